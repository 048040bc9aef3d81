r"""
Bound ``cover`` of a candidate, from the case distinction that is its witness.

With V(g) the least communication for gradients of g bytes by ``taut.solver.placement.path_cover.cases`` (3),

(1) LB = min over the layers j that stage 0 takes of [partition with stage 0 ending at j] + V(gradients of j);
(2) hops are priced at the smallest message; a cut adds its further bytes at the fastest link.

The witness is the case distinction (``taut.solver.placement.path_cover.witness``). Everything else follows from the
problem, so this module is all that a check needs; ``taut.solver.placement.path_cover.candidate`` searches for
witnesses.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.pair_table import PairTable
from taut.formulations.partition import LaterStages, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import ROUNDING
from taut.solver.bounds.communication import fixed_seconds
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_partition import Partition, solve_partition
from taut.solver.placement.exact.joint import linked
from taut.solver.placement.path_cover.cases import CommunicationBound

MAX_NODES = 2048
"""Nodes up to which the bound is tried: one pass of the pricing problem takes minutes beyond."""


def has_cover(problem: PlanningProblem, candidate: Candidate) -> bool:
    """
    Say whether the bound applies: equal devices, different links, and trips that are priced apart from stages.

    An order-priced candidate has no such price, and rings of several copies or of context ranks are not priced. Where
    all nodes have equal links and hold one tensor group each, every placement costs the same, and bound ``partition``
    is exact.

    Parameters
    ----------
    problem, candidate
        What is bounded.

    Returns
    -------
    bool
        Whether it applies.
    """
    links = problem.links
    return (
        candidate.pp > 1
        and not candidate.is_order_priced
        and not candidate.dp_shard
        and candidate.cp == 1
        and len(problem.device_types) == 1
        and 1 < links.num_nodes <= MAX_NODES
        and bool((links.gpus_per_node == links.gpus_per_node[0]).all() or candidate.tp <= links.gpus_per_node.min())
        and problem.latency_model != "amp"
        and problem.transfer_weight(candidate) > 0.0
        and not (_equal(links.latency) and _equal(problem.rings.inverse) and _equal(links.pipeline_rate(candidate.tp)))
    )


def _equal(figures: PairTable) -> bool:
    """Whether all pairs of two different sites have the same figure."""
    apart = figures.present()
    return bool((apart == apart[0]).all())


def cover_bound(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, bound: CommunicationBound, *, margin: bool = True
) -> tuple[float, Partition]:
    """
    Evaluate bound (1).

    Parameters
    ----------
    problem, candidate
        What is bounded.
    best
        Best links of the cluster.
    bound
        What the witness proves.
    margin
        Whether the memory margin is kept.

    Returns
    -------
    tuple
        Seconds, infinite if no division fits; and the partition that attains them.
    """
    edge, tail, later, _ = covered_seconds(problem, candidate, best, bound)
    gather = least_gather(problem, candidate, best)
    stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    found = solve_partition(stages, edge, tail, later=later)
    return found.seconds * (1 - ROUNDING), found


def covered_seconds(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, bound: CommunicationBound
) -> tuple[Floats, Floats, LaterStages | None, Floats]:
    """
    Price cuts and all else by (1) and (2).

    Parameters
    ----------
    problem, candidate
        What is bounded.
    best
        Best links of the cluster.
    bound
        What the witness proves.

    Returns
    -------
    tuple
        Seconds of a cut before layer j, (L+1,); seconds of a stage 0 that ends at layer j, with the communication that
        is proven; what later stages wait for; and the part of stage 0's seconds that is no communication.
    """
    message = float(problem.tables(candidate).message[1:-1].min())
    edge, tail, later = linked(problem, candidate, best, message)
    fixed = fixed_seconds(problem, candidate)
    covered = bound.seconds(problem.transfer_weight(candidate), least_bytes(problem, candidate)[0]) + fixed
    return edge, np.maximum(tail, covered), later, fixed
