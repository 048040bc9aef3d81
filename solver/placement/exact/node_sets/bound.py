r"""
Bound ``node-sets``: exact division of the layers with the set of nodes of every stage, for few nodes, all different.

Sets: stages x = 0..pp-1, pipelines z = 1..dp; a block fills a node, so a stage takes a set :math:`S_x` of dp nodes and
a pipeline one node of each. Data: hops h(u, v) and h'(u, v) seconds of a trip in full and without the way back, both
weighted; :math:`\rho(S)` seconds per byte of a ring on S. Variables: division D, sets S, paths. Objective: the step.

(1) For one division D the compute is known: the slowest stage's seconds, the sums of layers and of backward passes, and
    with the bytes of stage x the seconds :math:`R_x(\rho)` of its ring, what its own backward pass hides taken off. In
    ``step`` a placement takes T or less if and only if for every stage x and pipeline z

    .. math:: \sum_{y \le x} h'(z, y) + \sum_{y > x} h(z, y) \le A_x(S_x) := T - C_x(D) - R_x(\rho(S_x)),

    h(z, y) the hop to stage y, and :math:`C_x(D)` all else that stage x waits for.
(2) Labels over the sets of stages find out whether there is one (``taut.solver.placement.exact.node_sets.labels``), and
    how much below T the least seconds are. T begins at the bound of the division, where few labels are left, and
    rises by growing steps until one is found: the least seconds v(D). Once a placement of another division is known, T
    is its seconds. Where more than ``MOST_LABELS`` are left the step is quartered, and after ``RETRIES`` of that v(D)
    is the last T that was refuted.
(3) Divisions D are taken in the order of their bounds b(D) with the least hops and rings
    (``taut.solver.layer_division.best_divisions``), until the next b is no less than the best v, or
    ``MOST_DIVISIONS`` were taken. The bound is the least of these v and the next b.
(4) With different messages hops are priced at the smallest one, and a cut adds its further bytes at the fastest link.
    Of a tied embedding nothing is known here.

The bound is the optimum of ``step`` where messages are equal, no embedding is tied and all labels fit.

References
----------
Ioachim, Gelinas, Soumis and Desrosiers (1998), A dynamic programming algorithm for the shortest path problem with time
windows and linear node costs: dominance between labels of several resources, (2).
"""

from dataclasses import replace
from math import comb

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.candidate_partition import partition_problem
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.bounds.communication import waits_for_every_stage
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.best_divisions import BestDivisions
from taut.solver.placement.exact.joint import Joint, has_joint, linked, solve_joint
from taut.solver.placement.exact.node_sets.labels import Labels, NodeSets, first_labels, next_labels, undominated
from taut.solver.placement.exact.node_sets.seconds import Placements, Waiting, placements_of, waiting_of
from taut.solver.placement.exact.subset_cache import SubsetCache

MOST_REPLICAS = 4
"""Nodes of a stage: 24 orders in which pipelines go on. Of eight there are 40,320, too many for every pair of sets."""
MOST_STATES = 1 << 21
"""States of all stages if none is dropped: 1.8 million of four stages on 16 nodes, a second if a tenth is left."""
MOST_LABELS = 1_000_000
"""Labels of a stage, 100 MB of four nodes each."""
MOST_DIVISIONS = 200
"""Divisions whose placements are sought, some milliseconds each: few are within the spread of placements."""
FIRST_STEP, GROWTH = 1e-4, 1.5
"""The first rise of T as a share of the bound, and the factor of the next: a thousandth is reached after five."""
RETRIES = 3
"""Times that a rise is quartered where more than ``MOST_LABELS`` are left: then 1 / 64 of it is."""


def has_node_sets(problem: PlanningProblem, candidate: Candidate, cache: SubsetCache) -> bool:
    """
    Say whether the bound applies: three stages or more of two to four blocks that fill a node, on few different nodes.

    ``problem``, ``candidate``: what is bounded, in the latency model ``step``; ``cache``: kinds of slots so far.
    Returns whether it applies.
    """
    nodes, dp, pp = problem.links.num_nodes, candidate.dp, candidate.pp
    return (
        pp > 2
        and 1 < dp <= MOST_REPLICAS
        and dp * pp == nodes
        and waits_for_every_stage(problem, candidate)
        and sum(comb(nodes, dp * x) * comb(dp * x, dp) for x in range(1, pp + 1)) <= MOST_STATES
        and has_joint(problem, candidate, cache)
        and cache.all_differ(problem, candidate)
    )


def solve_by_node_sets(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, cache: SubsetCache, *, margin: bool = True
) -> Joint:
    """
    Compute bound (3) of a candidate for which ``has_node_sets`` holds.

    Returns the bound, no less than ``placement``; infinite with an empty partition where nothing fits memory.
    """
    known = solve_joint(problem, candidate, best, cache, margin=margin)
    if not known.partition.feasible or _attained(problem, candidate, known):
        return known
    smallest = float(problem.tables(candidate).message[1:-1].min())
    edge, tail, later = linked(problem, candidate, best, smallest)
    assert later is not None
    stages = partition_problem(problem, candidate, margin=margin, gather=least_gather(problem, candidate, best))
    divisions, placements = BestDivisions(stages, edge, tail, later), placements_of(problem, candidate, smallest)
    found, value = replace(known, exact=False), np.inf
    for _ in range(MOST_DIVISIONS):
        if (partition := divisions.next(value)) is None:
            break
        waiting = waiting_of(stages, partition.division, edge, later, problem.constant_seconds)
        seconds, nodes = least_placement(placements, waiting, max(partition.seconds, known.lower_bound), value)
        if seconds < value:
            value, found = (
                seconds,
                known
                if nodes is None
                else replace(
                    known, partition=replace(partition, seconds=seconds), positions=nodes.reshape(-1, 1), exact=True
                ),
            )
    lower = max(min(value, divisions.least) * (1 - ROUNDING), known.lower_bound)
    return replace(found, lower_bound=lower, exact=found.exact and divisions.least >= value)


def _attained(problem: PlanningProblem, candidate: Candidate, known: Joint) -> bool:
    """Whether the placement that bound ``placement`` found takes no longer under the whole step."""
    strategy = Strategy(candidate=candidate, division=known.partition.division)
    return placement_problem(problem, strategy).cost(known.positions) * (1 - 2 * ROUNDING) <= known.lower_bound


def least_placement(
    placements: Placements, waiting: Waiting, bound: float, limit: float = np.inf
) -> tuple[float, Ints | None]:
    """
    The least seconds of a division over all placements, (2).

    ``placements``: sets, rings and hops; ``waiting``: what the stages of the division wait for; ``bound``: seconds that
    no placement is below; ``limit``: seconds above which nothing is of use. Returns seconds at least, and the nodes of
    every pipeline (dp, pp) if some placement takes no more.
    """
    refuted, rise, retries = bound, limit - bound if np.isfinite(limit) else 0.0, RETRIES
    while refuted < limit and retries:
        least = min(refuted + rise, limit)
        stages, complete = _labels(placements, waiting, least)
        if len(stages[-1].used):
            return _best(placements.sets, stages, least)
        if complete:
            refuted, rise = least, max(GROWTH * rise, FIRST_STEP * bound)
        else:
            rise, retries = rise / 4, retries - 1
    return refuted, None


def _labels(placements: Placements, waiting: Waiting, seconds: float) -> tuple[list[Labels], bool]:
    """Labels of every stage for a threshold, (2), and whether none was left out."""
    pp, hops = len(waiting.seconds), placements.hops
    least = [np.zeros(len(hops))]
    for _ in range(pp - 1):
        least.append((np.where(np.eye(len(hops), dtype=bool), np.inf, hops) + least[-1]).min(axis=1))
    allowed = [seconds + waiting.allowed(x, placements.rings) for x in range(pp)]
    stages = [first_labels(placements.sets, allowed[0], least[pp - 1])]
    for x in range(1, pp):
        further, complete = next_labels(
            placements.sets, stages[-1], hops, placements.net, allowed[x], least[pp - 1 - x], MOST_LABELS
        )
        if not complete:
            return [*stages, Labels._make(figures[:0] for figures in further)], False
        stages.append(undominated(further))
    return stages, True


def _best(sets: NodeSets, stages: list[Labels], seconds: float) -> tuple[float, Ints]:
    """The least seconds and nodes of its pipelines, from labels that are left."""
    spare = stages[-1].left.min(axis=1)
    row = int(spare.argmax())
    at = np.arange(sets.members.shape[1])
    nodes = np.empty((len(at), len(stages)), dtype=np.int64)
    for x in range(len(stages) - 1, -1, -1):
        labels = stages[x]
        nodes[:, x] = sets.members[labels.last[row]][at]
        # Pipeline z went on to place order[z], so the one at a place came from the inverse of it.
        at, row_before = np.argsort(sets.orders[labels.order[row]])[at], int(labels.parent[row])
        row = row_before
    return seconds - float(spare.max()), nodes
