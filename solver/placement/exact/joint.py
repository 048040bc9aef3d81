r"""
Bound ``placement``: layer partition and exact placement together, where slots have few multisets.

Sets: layers j at which stage 0 ends; placements of the tensor groups on slots.
Data: stage tables, links. Variables: stages, recompute, placement. Objective: the step time in seconds.

Partition and placement meet in the gradient bytes of stage 0 alone, hence in j:

(1) LB = min over j of [partition with stage 0 ending at j] + V(j), V(j) = least communication for those gradients.
(2) V(j) is first bounded by links (``taut.solver.bounds.candidate_bounds``), then replaced by its exact value
    (``taut.solver.placement.exact.subset``) for the j that attains the minimum, until that j's V is exact: a cutting
    plane at a time, as in logic-based Benders decomposition.
(3) With different messages the trip is priced at the smallest message, and a cut adds its further bytes at the fastest
    link. The bound is the optimum with one device type, one group time, and one message size.
(4) In the latency model ``step`` that is a bound on what stage 0 waits for. Of two stages the other one's ring is known
    with it (``taut.solver.placement.exact.subset``), and the slower of both is minimised.

References
----------
Hooker and Ottosson (2003), Logic-based Benders decomposition: (2).
"""

from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.partition import LaterStages, partition_problem
from taut.formulations.placement import slot_sites
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import communication, fixed_seconds
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition, solve_partition
from taut.solver.placement.exact.subset import SecondPrice, kept_share, waited_for
from taut.solver.placement.exact.subset_cache import SubsetCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """
    A bound over partitions and placements, and what attains it.

    ``lower_bound`` seconds, ``partition``, ``positions`` (pp * dp, R) sites; ``exact`` unless placements were left
    untried.
    """

    lower_bound: float
    partition: Partition
    positions: Ints
    exact: bool


def has_joint(problem: PlanningProblem, candidate: Candidate, cache: SubsetCache) -> bool:
    """
    Say whether the bound applies: few multisets of groups, each one device or in a node of interchangeable ones.

    With different devices the pipeline with the slowest stage need not make the longest trip: their sum is no bound.

    Returns whether it applies.
    """
    return (
        candidate.pp > 1
        and candidate.is_plain
        and len(problem.device_types) == 1
        and (problem.links.by_node or candidate.tp == 1)
        and candidate.tp <= problem.links.gpus_per_node.min()
        and not problem.latency.rings_are_flat
        and problem.transfer_weight(candidate) > 0.0
        and cache.has_few(problem, candidate)
    )


def solve_joint(
    problem: PlanningProblem,
    candidate: Candidate,
    best: BestLinks,
    cache: SubsetCache,
    *,
    margin: bool = True,
) -> Joint:
    """Bound (1); infinite with an empty partition where nothing fits memory."""
    tables, weight = problem.tables(candidate), problem.transfer_weight(candidate)
    messages = tables.message[1:-1]
    smallest = float(messages.min())
    solver = cache.solver(problem, candidate, smallest)
    rings = cache.rings(problem, candidate, solver)
    edge, tail, later = linked(problem, candidate, best, smallest)
    gather = least_gather(problem, candidate, best)
    stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    gradients = least_bytes(problem, candidate)[0]
    fixed = fixed_seconds(problem, candidate)
    second = cache.rings(problem, candidate, solver, others=True) if later is not None and candidate.pp == 2 else None
    share = kept_share(problem, candidate, best)
    found_slots: dict[int, Ints] = {}
    exact = True
    while True:
        found = solve_partition(stages, edge, tail, later=later)
        if not found.feasible or found.division.stages[0][1] in found_slots:
            break
        end = found.division.stages[0][1]
        price = None
        if second is not None and later is not None:
            price = SecondPrice(share, (waited_for(stages, later, end, second) - edge[end]) / weight)
        # The solver prices unweighted hops, so the ring is divided by the weight and the sum multiplied.
        placed = solver.solve(rings * gradients[end] / weight, second=price)
        tail[end] = max(tail[end], weight * placed.lower_bound + fixed[end])
        found_slots[end] = placed.slots
        exact &= placed.lower_bound == placed.seconds
    if not found.feasible:
        return Joint(lower_bound=np.inf, partition=found, positions=np.zeros((0, 1), np.int64), exact=True)
    sites = slot_sites(problem.links, candidate.tp)
    positions = sites[found_slots[found.division.stages[0][1]].ravel()]
    return Joint(lower_bound=found.seconds * (1 - ROUNDING), partition=found, positions=positions, exact=exact)


def linked(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, smallest: float
) -> tuple[Floats, Floats, LaterStages | None]:
    """Cuts before layer j, their further bytes alone, and all else (L+1,) by (3), and what later stages wait for."""
    comm = communication(problem, candidate, best)
    least = float(comm.edge[1:-1].min())
    edge, tail = further_edge(problem, candidate, best, smallest), comm.tail + (candidate.pp - 1) * least
    if comm.later is None:
        return edge, tail, None
    others = comm.later.others + (candidate.pp - 1) * float(comm.later.edge[1:-1].min())
    return edge, tail, replace(comm.later, edge=np.zeros_like(edge), others=others)


def further_edge(problem: PlanningProblem, candidate: Candidate, best: BestLinks, smallest: float) -> Floats:
    """Seconds (L+1,) of a cut's bytes beyond the smallest message at the fastest link, (3)."""
    inverse = 1.0 / problem.links.pipeline_rate(candidate.tp)
    both_ways = inverse + inverse.T
    fastest = min(best.least_inside(both_ways), best.least_apart(both_ways))
    further = np.maximum(problem.tables(candidate).message - smallest, 0.0)
    return np.asarray(problem.transfer_weight(candidate) * further * fastest)
