r"""
Placement of a strategy as a quadratic assignment, and annealing by the step time from what it finds.

(1) The strategy's blocks and slots become a problem of Koopmans and Beckmann
    (``taut.formulations.placement``), whose permutation and bound come from ``taut.solver.qap``.
    Chains and rings of blocks have a bound of their own, (3) to (5), with which that begins.
(2) The quadratic cost is a sum where the step time has maxima, so its optimum is only a start: annealing goes on from
    it and from the constructed placements, and the step time decides between them. Where the problem has more than
    ``MOST_POSITIONS`` positions, (2) is all there is.

A position whose block spans several nodes is priced by the first of them.

The bound on chains and rings on nodes of several slots:

Sets
    dp chains of stages :math:`x = 1, \dots, pp`, one position for each stage of each chain; nodes k of :math:`c_k`
    slots each, as many slots as positions in all.

Data
    The flow :math:`a_x` each way between stages x and x + 1 of a chain; the flow :math:`g_x` from each of the dp
    positions of stage x to the next one of its ring. Two slots of one node have distance e at least, and a slot of node
    k has distance :math:`e + \delta_k` at least from every slot of another node, :math:`\delta_k \ge 0`.

Variables
    The content n of a node: its number :math:`n_x` of positions of every stage. Half of the flow across the node's
    border is at least

    .. math:: h(n) = \sum_x a_x |n_x - n_{x+1}| + \sum_x g_x [0 < n_x < dp], \tag{3}

    since :math:`|n_x - n_{x+1}|` chains or more cross it between stages x and x + 1, both ways, and a ring that is
    neither whole nor absent crosses it twice or more.

A unit of flow between nodes k and l costs :math:`e + \max(\delta_k, \delta_l) \ge e + (\delta_k + \delta_l) / 2` or
more: e, and half of delta for either border. With F the sum of all flow, every permutation costs at least

.. math:: e F + \min \sum_k \delta_k h(n_k), \quad \sum_k n_{kx} = dp, \quad \sum_x n_{kx} = c_k. \tag{4}

The minimum over convex combinations of contents is a linear program with one column for each content and class of
nodes of equal :math:`c` and :math:`\delta`. Its dual bounds the minimum in (4) for any prices y of stages:

.. math:: \sum_x dp \, y_x + \sum_k \min_n \left( \delta_k h(n) - \sum_x y_x n_x \right). \tag{5}

The inner minimum is a shortest path over stages with the positions of the last stage and of all stages so far as state,
so column generation needs no list of contents, and every round has a valid bound (5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.compiled import jit
from taut.formulations.placement import FoundPlacement, PlacementProblem, hop_flow, placement_assignment, replica_flow
from taut.solver.branch_and_bound.stop import Stopping, never
from taut.solver.linear_program import LinearProgram, linear_program
from taut.solver.placement.annealing.anneal import anneal_restarts, best_start
from taut.solver.qap.quadratic import place
from taut.solver.result import Limits, relative_gap

ROUNDS = 200
"""The most rounds of column generation; some twenty are needed."""
ENOUGH = 1e-6
"""Relative distance of (5) from the linear program at which more columns change no digit that is shown."""
DEAR = 1e3
"""Cost of a unit of a row that no content covers, in units of the largest hop and ring times the largest delta."""
ROUNDED = 1e-9
"""Share that is taken off the bound, more than the relative error of its sums of floats."""


class ChainsAndRings(NamedTuple):
    """Flow of ``chains`` replicas, dp: ``hops`` a (pp - 1,) each way, and ``rings`` g (pp,) from one to the next."""

    chains: int
    hops: Floats
    rings: Floats

    @property
    def total(self) -> float:
        """All flow, F."""
        rings = self.rings.sum() if self.chains > 1 else 0.0
        return float(self.chains * (2.0 * self.hops.sum() + rings))


def content_bound(flow: ChainsAndRings, distance: Floats, node_of: Ints) -> float:
    """The bound (4), in the unit of flow times distance (n, n), of slots on nodes (n,)."""
    inside, classes = node_classes(distance, node_of)
    rooms, deltas, counts = (np.array(column) for column in zip(*classes, strict=True))
    return inside * flow.total + _least_cut(flow, rooms.astype(np.int64), deltas.astype(float), counts.astype(float))


def node_classes(distance: Floats, node_of: Ints) -> tuple[float, list[tuple[int, float, int]]]:
    """The least distance e of two slots, and (slots c, delta, number of nodes) of every class of nodes."""
    nodes, room = np.unique(node_of, return_counts=True)
    same = node_of[:, None] == node_of[None, :]
    apart = np.where(same, np.inf, np.minimum(distance, distance.T)).min(axis=1)
    away = np.array([apart[node_of == node].min() for node in nodes])
    within = np.where(same & ~np.eye(len(node_of), dtype=bool), distance, np.inf).min()
    inside = float(min(within, away.min()))
    found: dict[tuple[int, float], int] = {}
    for slots, far in zip(room.tolist(), (away - inside).tolist(), strict=True):
        key = (slots, 0.0 if not np.isfinite(far) else far)
        found[key] = found.get(key, 0) + 1
    return inside, [(slots, far, count) for (slots, far), count in found.items()]


def _least_cut(flow: ChainsAndRings, rooms: Ints, deltas: Floats, counts: Floats) -> float:
    """The minimum in (4), bounded from below by the best (5) of column generation."""
    stages, classes = len(flow.rings), len(rooms)
    rings = flow.rings if flow.chains > 1 else np.zeros(stages)
    unit = float((flow.hops.max(initial=0.0) + rings.max(initial=0.0)) * deltas.max(initial=0.0))
    if unit <= 0.0:
        return 0.0
    need = np.append(np.full(stages, float(flow.chains)), counts)
    program = linear_program("glop")
    program.add_rows(np.zeros((len(need), 0)), need, need)
    # What no content covers yet costs more than any content could save.
    _add(program, np.full(len(need), DEAR), np.eye(len(need)))
    _add(program, np.full(len(need), DEAR), -np.eye(len(need)))
    prices, known, best = np.zeros(stages), set[tuple[int, ...]](), 0.0
    for _ in range(ROUNDS):
        value, added = flow.chains * float(prices.sum()), False
        for each in range(classes):
            share = deltas[each] / unit
            content = _content(flow.hops * share, rings * share, prices, int(rooms[each]), flow.chains)
            cost = share * _border(flow.hops, rings, content, flow.chains)
            value += counts[each] * (cost - float(prices @ content))
            if (key := (each, *content.tolist())) not in known:
                known.add(key)
                added = True
                column = np.append(content.astype(float), np.arange(classes) == each)
                _add(program, np.array([cost]), column[:, None])
        best = max(best, value)
        found = program.solve() if added else None
        if found is None or found.value - best <= ENOUGH * abs(found.value):
            break
        prices = found.duals[:stages]
    return best * unit * (1 - ROUNDED)


def _add(program: LinearProgram, costs: Floats, columns: Floats) -> None:
    """Add columns of any amount from 0 on."""
    program.add_columns(costs, np.zeros(len(costs)), np.full(len(costs), np.inf), columns)


def _border(hops: Floats, rings: Floats, content: Ints, chains: int) -> float:
    """The least half of the flow across the border of a content, h of (3)."""
    split = (content > 0) & (content < chains)
    return float(hops @ np.abs(np.diff(content)) + rings @ split)


@jit
def _content(hops: Floats, rings: Floats, prices: Floats, room: int, chains: int) -> Ints:
    """The content of ``room`` slots with the least h less prices, the inner minimum of (5), by a shortest path."""
    stages, most = len(rings), min(room, chains)
    least = np.full((stages, most + 1, room + 1), np.inf)
    before = np.zeros((stages, most + 1, room + 1), dtype=np.int64)
    for n in range(most + 1):
        least[0, n, n] = (rings[0] if 0 < n < chains else 0.0) - prices[0] * n
    for x in range(1, stages):
        for n in range(most + 1):
            own = (rings[x] if 0 < n < chains else 0.0) - prices[x] * n
            for total in range(n, room + 1):
                for last in range(most + 1):
                    value = least[x - 1, last, total - n] + hops[x - 1] * abs(n - last) + own
                    if value < least[x, n, total]:
                        least[x, n, total], before[x, n, total] = value, last
    content, total = np.zeros(stages, dtype=np.int64), room
    n = int(np.argmin(least[stages - 1, :, room]))
    for x in range(stages - 1, -1, -1):
        content[x] = n
        n, total = before[x, n, total], total - n
    return content


MOST_POSITIONS = 256
"""Positions up to which the assignment is posed: searches of two matrices with more take longer than annealing."""
MOST_CUTS = 2
"""Between segments of stages in (1): more of them are too many permutations for long pipelines."""
SEARCHED = "annealing and tabu search"
CONTENTS = "contents of nodes, with glop of OR-Tools"
"""Who found a permutation or proved a bound."""


@dataclass(frozen=True, slots=True)
class SolvedAssignment:
    """The quadratic assignment of a strategy by (1): slots, cost, bound, and who found and proved them."""

    problem: QuadraticAssignment
    slots: Ints
    cost: float
    lower_bound: float
    bound_by: str

    @property
    def gap(self) -> float | None:
        """Relative gap of the quadratic objective."""
        return relative_gap(self.cost, self.lower_bound)

    @property
    def figures(self) -> dict[str, Any]:
        """What a document says of the assignment: objective and bound in seconds of all transfers one by one."""
        return {
            "positions": self.problem.size,
            "objective": self.cost,
            "lower_bound": self.lower_bound if np.isfinite(self.lower_bound) else None,
            "gap": self.gap,
            "permutation_by": SEARCHED,
            "bound_by": self.bound_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticPlacement:
    """A placement by (1) and (2): ``seconds`` of the assignment, infinite if it breaks a rule; ``placed``: the best."""

    assignment: SolvedAssignment
    seconds: float
    placed: FoundPlacement


def segmented_start(given: PlacementProblem, assignment: QuadraticAssignment) -> Ints:
    """The cheapest permutation (n,) that takes slots in order for segments of stages, each chain by chain."""
    pp, dp = given.candidate.pp, given.candidate.pipelines
    stage, chain = np.tile(np.arange(pp), dp), np.repeat(np.arange(dp), pp)
    cuts = [each for count in range(MOST_CUTS + 1) for each in combinations(range(1, pp), count)]
    segments = [np.searchsorted(np.array(each, dtype=int), stage, side="right") for each in cuts]
    orders = [np.lexsort((stage, chain, segment)) for segment in [*segments, stage]]
    return min((np.argsort(order) for order in orders), key=assignment.cost)


def anneal_from(
    given: PlacementProblem, starts: list[FoundPlacement], limits: Limits, stopping: Stopping = never
) -> FoundPlacement:
    """The best placement of annealing from several starts, (2), which ends early once ``stopping`` is true."""
    runs = [
        anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping) for start in starts
    ]
    return min(runs, key=lambda run: run.seconds)


def assign(given: PlacementProblem, limits: Limits, seconds: float) -> SolvedAssignment | None:
    """The quadratic assignment of a strategy, or None where there are too many positions, or only one."""
    if not 1 < len(given.slots) <= MOST_POSITIONS:
        return None
    problem, sites = placement_assignment(given), given.slots[:, 0]
    flow = ChainsAndRings(given.candidate.pipelines, hop_flow(given), replica_flow(given))
    contents = content_bound(flow, problem.distance, sites), CONTENTS
    start = segmented_start(given, problem)
    found = place(problem, seed=limits.seed, time_limit=seconds, bound=contents, start=start)
    slots = np.array(found.permutation)
    return SolvedAssignment(problem, slots, problem.cost(slots), found.lower_bound, found.bound_source)


def place_quadratic(
    given: PlacementProblem,
    patterns: tuple[int, ...],
    limits: Limits,
    seconds: float,
    known: Sequence[FoundPlacement] = (),
    stopping: Stopping = never,
) -> QuadraticPlacement | None:
    """A placement by (1) and (2) from ``known`` ones too, or None where there are too many positions, or only one."""
    assignment = assign(given, limits, seconds)
    if assignment is None:
        return None
    start, positions = best_start(given, patterns), given.slots[assignment.slots]
    allowed = not given.violations(positions)
    priced = FoundPlacement(seconds=given.cost(positions) if allowed else np.inf, positions=positions)
    starts = [start, *known, priced] if allowed else [start, *known]
    return QuadraticPlacement(
        assignment=assignment, seconds=priced.seconds, placed=anneal_from(given, starts, limits, stopping)
    )
