r"""
Least rings of a single stage whose replicas have several copies of weights and gradients, by cases.

Sets: copies of s replicas; nodes n with :math:`c_n` tensor groups, all of which the stage takes.

(1) If every copy lies in one node, node n has :math:`c_n / s` copies, so every ring between copies has so many members
    there and touches all nodes: ``taut.solver.bounds.least_rings`` (3) with them.
(2) Otherwise some copy touches at least two nodes. Gathers of its replicas take at least the least over these numbers
    of nodes (``taut.solver.bounds.least_rings`` (2)), and rings between copies the least of any.

Where devices or tensor groups differ, the slowest replica may be one of another copy than (2)'s, which then says
nothing of its gathers.
"""

from typing import NamedTuple

import numpy as np

from taut.formulations.gradient_reductions import weight_share
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.least_rings import every_device, least_ring, replicas_of, ring_per_byte, spreads
from taut.solver.bounds.link_bounds import BestLinks


class Case(NamedTuple):
    """Seconds per byte of an all-reduce inside a copy, and for each gradient byte that is left after the passes."""

    gather: float
    reduction: float


def cases(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[Case]:
    """
    List the cases of a single stage, one of which holds.

    Parameters
    ----------
    problem, candidate
        What is bounded, with ``dp_shard`` replicas to a copy.
    best
        The best links.
    """
    links, size, share = problem.links, candidate.dp_shard, weight_share(problem, candidate)
    copy, others = replicas_of(candidate, size), replicas_of(candidate, candidate.dp // size)
    found, least = [], least_ring(problem, copy, best)
    if (links.gpus_per_node % (candidate.tp * size) == 0).all():
        found.append(Case(least, share * least + every_device(links, candidate, best, size)))
    several = spreads(problem, copy)
    crossing = best.telling(size, range(max(several.start, 2), several.stop))
    if crossing:
        gather = min(ring_per_byte(size, k, best) for k in crossing) if _alike(problem, candidate) else least
        found.append(Case(gather, share * gather + least_ring(problem, others, best)))
    return found


def _alike(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether all tensor groups have the same seconds at best."""
    if len(problem.device_types) > 1:
        return False
    if candidate.tp == 1 or candidate.tp > problem.links.gpus_per_node.max():
        return True
    return all(np.ptp(figures) == 0 for figures in problem.links.best_groups(candidate.tp))
