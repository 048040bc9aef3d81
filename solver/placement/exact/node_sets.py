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
(2) Labels over the sets of stages, (5) to (7), find out whether there is one, and
    how much below T the least seconds are. T begins at the bound of the division, where few labels are left, and
    rises by growing steps until one is found: the least seconds v(D). Once a placement of another division is known, T
    is its seconds. Where more than ``MOST_LABELS`` are left the step is quartered, and after ``RETRIES`` of that v(D)
    is the last T that was refuted.
(3) Divisions D are taken in the order of their bounds b(D) with the least hops and rings
    (``taut.solver.layer_division.divide``), until the next b is no less than the best v, or
    ``MOST_DIVISIONS`` were taken. The bound is the least of these v and the next b.
(4) With different messages hops are priced at the smallest one, and a cut adds its further bytes at the fastest link.
    Of a tied embedding nothing is known here.

The bound is the optimum of ``step`` where messages are equal, no embedding is tied and all labels fit.

Labels go over the sets of nodes that stages take one after another, for one division and one threshold T.

(5) A state of stage x is a pair (U, S): nodes U of the stages up to x, and S of them of stage x. A label of a state has
    for every node of S, where one pipeline lies, its net seconds n so far and the seconds s that are left for hops
    after it. A hop of h seconds, of which :math:`h'` without its way back, leads to

    .. math:: n' = n + h', \qquad s' = \min(s - h, \; A_x(S') - n'),

    with :math:`A_x(S')` what stage x leaves for hops if its ring is that of :math:`S'`.
(6) A label is dropped if its s at some node is below the least seconds of the remaining hops from there. A label is
    also dropped if another label of its state dominates it: n is no larger and s is no smaller, at every node.
(7) For a label of the last stage take the least s of its nodes. The largest of these says how far below T the optimum
    is. If no placement takes at most T, no label is left.

For the layers and the recompute of every stage x of a division (``taut.formulations.partition`` (1')), with cut(y)
seconds of the further bytes of the cut after stage y,

(8) :math:`C_x = (m - 1) \max_y high(y) + optimizer \max_y P_y + \sum_{y < x} forward(y) + \sum_{y \ge x} (low(y) +
    cut(y)) + constant`;
(9) :math:`R_x(\rho) = \max(\rho \, unhidden(x), \rho \, exchanged(x) - (low(x) - forward(x)))` with overlap,
    :math:`\rho \, exchanged(x)` without.

References
----------
Ioachim, Gelinas, Soumis and Desrosiers (1998), A dynamic programming algorithm for the shortest path problem with time
windows and linear node costs: dominance between labels of several resources, (2).
"""

from dataclasses import dataclass, replace
from itertools import combinations, permutations
from math import comb
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, longer
from taut.formulations.partition import LaterStages, PartitionProblem, partition_problem, waits_for_later_stages
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import BestDivisions
from taut.solver.placement.exact.joint import Joint, Kept, all_differ, has_joint, linked, solve_joint


class NodeSets(NamedTuple):
    """Sets of M nodes (K, M) that a stage can take, as bits too, and the orders (M!, M) in which pipelines go on."""

    members: Ints
    words: Ints
    orders: Ints


@dataclass(frozen=True, kw_only=True)
class Placements:
    """Sets of nodes of a stage, seconds per byte of their rings (K,), and seconds of hops (nodes, nodes)."""

    sets: NodeSets
    rings: Floats
    hops: Floats
    net: Floats


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Seconds C_x of a division (pp,), bytes of reductions (pp,), those never hidden, and seconds that hide others."""

    seconds: Floats
    exchanged: Floats
    unhidden: Floats
    hiding: Floats

    def allowed(self, x: int, rings: Floats) -> Floats:
        """Seconds -C_x - R_x by seconds per byte of a ring, which T leaves for hops."""
        reduced = np.maximum(rings * self.exchanged[x] - self.hiding[x], rings * self.unhidden[x])
        return np.asarray(-self.seconds[x] - reduced)


def placements_of(problem: PlanningProblem, candidate: Candidate, smallest: float) -> Placements:
    """Sets of nodes with their rings, and hops at a message of ``smallest`` bytes."""
    links, tp, nodes = problem.links, candidate.tp, problem.links.num_nodes
    sets = sets_of(nodes, candidate.dp)
    pairs = np.arange(nodes)[:, None], np.arange(nodes)[None, :]
    hops = problem.transfer_weight(candidate) * links.hop_seconds(tp, smallest, both_ways=True)[pairs]
    back = links.latency[pairs] + smallest * (1.0 / links.pipeline_rate(tp))[pairs]
    return Placements(
        sets=sets,
        rings=ring_by_byte(problem.rings, sets.members, links.node_of_site[sets.members]),
        hops=hops,
        net=hops - problem.coefficient("pipeline") * back.T,
    )


def sets_of(nodes: int, size: int) -> NodeSets:
    """All sets of so many nodes."""
    members = np.array(list(combinations(range(nodes), size)), dtype=np.int64)
    orders = np.array(list(permutations(range(size))), dtype=np.int64)
    return NodeSets(members, (1 << members).sum(axis=1), orders)


def waiting_of(
    stages: PartitionProblem, division: Division, edge: Floats, later: LaterStages, constant: float
) -> Waiting:
    """What the stages of a division wait for but hops, (8) and (9); ``edge`` (L+1,) are further bytes' seconds."""
    within = division.starts, division.ends
    low, high = (figures[0][division.recompute_index, *within] for figures in (stages.low, stages.high))
    assert stages.forward is not None
    forward = stages.forward[0][within]
    cuts = np.append(edge[division.ends[:-1]], 0.0)
    slowest = (stages.micro_batches - 1) * high.max() + later.optimizer * later.parameters[within].max()
    after = np.cumsum((low + cuts)[::-1])[::-1]
    before = np.cumsum(forward) - forward
    return Waiting(
        seconds=slowest + constant + before + after + later.each,
        exchanged=later.exchanged[within],
        unhidden=later.unhidden[within],
        hiding=low - forward if later.overlap else np.zeros(len(low)),
    )


class Labels(NamedTuple):
    """
    Labels of one stage, (5).

    ``used`` (N,) nodes U as bits, ``last`` (N,) the set S, ``net`` and ``left`` (N, M) seconds, ``parent`` (N,) the
    label of the stage before and ``order`` (N,) in which its pipelines go on.
    """

    used: Ints
    last: Ints
    net: Floats
    left: Floats
    parent: Ints
    order: Ints


def first_labels(sets: NodeSets, allowed: Floats, least: Floats) -> Labels:
    """Labels of stage 0, one for each set (K,) that leaves enough, (6), of its ``allowed`` seconds A_0."""
    kept = np.flatnonzero(allowed >= least[sets.members].max(axis=1, initial=0.0))
    none, left = np.zeros(len(kept), np.int64), np.repeat(allowed[kept, None], sets.members.shape[1], axis=1)
    return Labels(sets.words[kept], kept, np.zeros(left.shape), left, none, none)


@jit
def next_labels(
    sets: NodeSets, labels: Labels, hops: Floats, net: Floats, allowed: Floats, least: Floats, most: int
) -> tuple[Labels, bool]:
    """At most ``most`` labels of the next stage that leave enough, (6), not yet dominated; whether these are all."""
    size, orders = sets.members.shape[1], len(sets.orders)
    room = min(most, 1024)
    used, last = np.empty(room, np.int64), np.empty(room, np.int64)
    parent, order = np.empty(room, np.int64), np.empty(room, np.int64)
    total, left = np.empty((room, size)), np.empty((room, size))
    new_total, new_left = np.empty(size), np.empty(size)
    found = 0
    for row in range(len(labels.used)):
        before = sets.members[labels.last[row]]
        for k in range(len(sets.words)):
            if labels.used[row] & sets.words[k]:
                continue
            after = sets.members[k]
            for p in range(orders):
                fits = True
                for z in range(size):
                    u, to = before[z], sets.orders[p, z]
                    v = after[to]
                    new_total[to] = labels.net[row, z] + net[u, v]
                    new_left[to] = min(labels.left[row, z] - hops[u, v], allowed[k] - new_total[to])
                    if new_left[to] < least[v]:
                        fits = False
                        break
                if not fits:
                    continue
                if found == room:
                    if room == most:
                        return Labels(used, last, total, left, parent, order), False
                    room = min(2 * room, most)
                    used, last = longer(used, room), longer(last, room)
                    parent, order = longer(parent, room), longer(order, room)
                    total, left = longer(total, room), longer(left, room)
                used[found], last[found] = labels.used[row] | sets.words[k], k
                parent[found], order[found] = row, p
                total[found], left[found] = new_total, new_left
                found += 1
    return Labels(used[:found], last[:found], total[:found], left[:found], parent[:found], order[:found]), True


def undominated(labels: Labels) -> Labels:
    """The labels that no other one of their state dominates, (6)."""
    if len(labels.used) < 2:
        return labels
    # Of one state labels with much left come first, so that few are compared with all that are kept.
    order = np.lexsort((-labels.left.min(axis=1), labels.last, labels.used))
    kept = order[_kept(labels.used[order], labels.last[order], labels.net[order], labels.left[order])]
    return Labels._make(figures[kept] for figures in labels)


@jit
def _kept(used: Ints, last: Ints, net: Floats, left: Floats) -> Ints:
    """Rows that no row of their state dominates, rows of a state being neighbours."""
    kept = np.empty(len(used), np.int64)
    found, begin = 0, 0
    for row in range(len(used)):
        if row and (used[row] != used[row - 1] or last[row] != last[row - 1]):
            begin = found
        dominated = False
        for at in range(begin, found):
            if (net[kept[at]] <= net[row]).all() and (left[kept[at]] >= left[row]).all():
                dominated = True
                break
        if not dominated:
            kept[found] = row
            found += 1
    return kept[:found]


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


def has_node_sets(problem: PlanningProblem, candidate: Candidate, kept: Kept) -> bool:
    """Whether the bound applies: three stages or more of two to four blocks that fill a node, on few nodes."""
    nodes, dp, pp = problem.links.num_nodes, candidate.dp, candidate.pp
    return (
        pp > 2
        and 1 < dp <= MOST_REPLICAS
        and dp * pp == nodes
        and waits_for_later_stages(problem, candidate)
        and sum(comb(nodes, dp * x) * comb(dp * x, dp) for x in range(1, pp + 1)) <= MOST_STATES
        and has_joint(problem, candidate, kept)
        and all_differ(problem, candidate, kept)
    )


def solve_by_node_sets(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, kept: Kept, *, margin: bool = True
) -> Joint:
    """Bound (3), no less than ``placement``; infinite with an empty partition where nothing fits memory."""
    known = solve_joint(problem, candidate, best, kept, margin=margin)
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
        waiting = waiting_of(stages, partition.division, edge, later, problem.least_constant(candidate))
        seconds, nodes = least_placement(placements, waiting, max(partition.seconds, known.lower_bound), value)
        if seconds < value:
            value, found = seconds, known
            if nodes is not None:
                partition = replace(partition, seconds=seconds)
                found = replace(known, partition=partition, positions=nodes.reshape(-1, 1), exact=True)
    lower = max(min(value, divisions.least) * (1 - ROUNDING), known.lower_bound)
    return replace(found, lower_bound=lower, exact=found.exact and divisions.least >= value)


def _attained(problem: PlanningProblem, candidate: Candidate, known: Joint) -> bool:
    """Whether the placement that bound ``placement`` found takes no longer under the whole step."""
    strategy = Strategy(candidate=candidate, division=known.partition.division)
    return placement_problem(problem, strategy).cost(known.positions) * (1 - 2 * ROUNDING) <= known.lower_bound


def least_placement(
    placements: Placements, waiting: Waiting, bound: float, limit: float = np.inf
) -> tuple[float, Ints | None]:
    """Least seconds of a division over all placements, (2), at least ``bound``, and its nodes (dp, pp), if any."""
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
