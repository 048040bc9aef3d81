r"""
Certificates that the longest path takes at least T seconds, and their checks: dual prices, and Held-Karp forests.

Sets: nodes v with :math:`c_v` slots (``taut.solver.placement.slots``), divided among paths of pp slots that begin in
the set P, so that at least k and at most k' nodes are touched, among them the set Q. A segment is a stretch of a path
in one node.
Data: w the shortest hop; q seconds of a resource unit, R the resource limit; hops W in seconds.

A destructive bound supposes a threshold and refutes it: suppose that every path is shorter than

(1) :math:`T_R = (pp - 1) w + R q`. A hop consumes :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` units, so each path
    would be a route that consumes fewer than R units (``taut.solver.placement.path_cover.pricing``).

The paths would then be an integer solution of a set-partitioning problem. Variables: :math:`x_\rho \ge 0` paths on
route :math:`\rho`, :math:`y_{v\pi} \ge 0` the share of pattern :math:`\pi` of node v
(``taut.solver.placement.path_cover.pricing``). Constraints:

(2) :math:`\sum_\rho x_\rho` = number of paths; :math:`\sum_\pi y_{v\pi} = 1` for every node; routes have as many first
    and as many later segments of each length in each node as patterns do; k to k' nodes of P have touched patterns,
    those of Q among them; and the cuts (5) and (6) hold.

(3) Let segments have any dual prices by node and length, first ones their own, and cuts prices of at least zero. Let
    :math:`\Gamma` be the least that all patterns and right-hand sides of cuts are worth together, and Z the largest
    dual value of a route. By Farkas' lemma (2) has no solution, fractional ones included, and :math:`T \ge T_R`, if

    .. math:: \Gamma > paths \cdot Z.

Prices are whole numbers, so that checking (3) is exact: one pass of the pricing problem and one knapsack a node. A
price of one on every slot of one node and zero elsewhere is the bound by the node that is hardest to reach.
``taut.solver.placement.path_cover.path_bound`` searches for prices by column generation.

Cuts are on the visits of paths to a set of nodes. Let a set B of nodes have b slots. A visit is a longest stretch of a
path inside B. Of the v visits of all paths, s begin a path; those take at most pp slots of B each, all others at most
pp - 1, since the slot before lies outside:

(4) :math:`(pp - 1) v + s \ge b, \quad 0 \le s \le v`.

Fractional solutions satisfy (4) with parts of visits. With :math:`m = \lceil b / (pp - 1) \rceil` and
:math:`j = b \bmod (pp - 1)`, all integer solutions satisfy

(5) :math:`v \ge \lceil b / pp \rceil`, the rounded capacity cut (Chvatal-Gomory rounding of (4) with s <= v);
(6) :math:`j v + s \ge j m`, the mixed-integer-rounding (MIR) cut of (4), v integer.

With (4) they describe the convex hull of its integer solutions. A cut has a coefficient for a visit, one more for a
visit that begins a path, and a right-hand side; the dual price of a cut is at least zero.

Held-Karp bound on the mean path: a minimum spanning forest with Lagrangian multipliers of the nodes.

Sets: N nodes of one slot each; d paths of pp >= 2 nodes cover all N = pp d, so their hops are a forest of N - d edges.
Data: seconds :math:`W_{ab}` of hops. Inner nodes have degree 2, the d first and d last nodes degree 1.
Variables: the forest; :math:`\pi_v` multipliers of the degree constraints, free in sign.

(7) Relaxing the degrees, the sum of all hops is

    .. math:: \sum_{ab} (W_{ab} + \pi_a + \pi_b) - 2 \sum_v \pi_v + \sum_{\text{ends } v} \pi_v
        \ge \min_{|F| = N - d} \sum_{ab \in F} (W_{ab} + \pi_a + \pi_b) - 2 \sum_v \pi_v
        + \text{the } 2 d \text{ smallest } \pi_v,

    where the minimum is over forests, found by the greedy algorithm.
(8) The longest path takes at least the d-th part of (7), its mean.

The multipliers follow a subgradient of (7), 2 - degree. All numbers are whole quanta, so that (7) is exact for the
multipliers stated, however they were found.

References
----------
Klein and Scholl (1999), Computing lower bounds by destructive improvement: thresholds refuted one after the other.
Desrochers, Desrosiers and Solomon (1992), A new optimization algorithm for the vehicle routing problem with time
windows: set partitioning over routes.
Laporte and Nobert (1983), A branch and bound algorithm for the capacitated vehicle routing problem; Lysgaard, Letchford
and Eglese (2004), A new branch-and-cut algorithm for the capacitated vehicle routing problem: rounded capacity cuts.
Nemhauser and Wolsey (1990), A recursive procedure to generate all cuts for 0-1 mixed integer programs: MIR cuts.
Held and Karp (1970, 1971), The traveling-salesman problem and minimum spanning trees, parts I and II: (7) for one tour,
and subgradient steps.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Floats, Ints, Ints32
from taut.formulations.compiled import jit
from taut.solver.placement.path_cover.pricing import (
    MAX_SUM,
    PricingData,
    cheapest_patterns,
    least_pattern_total,
    price_routes,
)
from taut.solver.placement.path_cover.racks import crossed
from taut.solver.placement.slots import SlotGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A cut on the visits to a set of nodes: the MIR cut (6) if ``mir``, else the rounded capacity cut (5)."""

    nodes: tuple[int, ...]
    mir: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class CutArrays:
    """
    Several cuts as arrays.

    ``inside`` (cuts, N) flags of their nodes; ``visit`` and ``start`` (cuts,) the coefficients of a visit, and of a
    visit that begins a path beside it; ``least`` (cuts,) the right-hand sides.
    """

    inside: Flags
    visit: Ints
    start: Ints
    least: Ints

    def coefficients(self, routes: Ints) -> Ints:
        """Left-hand sides (routes, cuts) of the cuts for single routes (routes, pp)."""
        inside = self.inside[:, routes]
        entries = (inside[:, :, 1:] & ~inside[:, :, :-1]).sum(axis=2)
        coefficients = self.visit[:, None] * entries + (self.visit + self.start)[:, None] * inside[:, :, 0]
        return np.asarray(coefficients.T, dtype=np.int64)

    def hop_duals(self, duals: Ints) -> Ints:
        """Sum of the cuts' prices (cuts,) that a hop from v to w collects, (N, N)."""
        inside = self.inside.astype(np.int64)
        return (1 - inside).T @ ((duals * self.visit)[:, None] * inside)

    def start_duals(self, duals: Ints) -> Ints:
        """Sum of the cuts' prices (cuts,) that a path collects by beginning in a node, (N,)."""
        return np.asarray((duals * (self.visit + self.start)) @ self.inside.astype(np.int64))


def cut_arrays(graph: SlotGraph, cuts: tuple[Cut, ...]) -> CutArrays:
    """Coefficients and right-hand sides of cuts on sets of a graph's nodes, in their order."""
    inside = np.zeros((len(cuts), len(graph.hops)), dtype=bool)
    for flags, cut in zip(inside, cuts, strict=True):
        flags[list(cut.nodes)] = True
    mir = np.array([cut.mir for cut in cuts], dtype=bool)
    slots, later = inside @ graph.capacity, graph.pp - 1
    rest = slots % later
    return CutArrays(
        inside=inside,
        visit=np.where(mir, rest, 1),
        start=np.where(mir, 1, 0),
        least=np.where(mir, rest * -(-slots // later), -(-slots // graph.pp)),
    )


MAX_RESOURCE = 512
"""Largest resource limit of a certificate: a check's time and memory grow with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DualCertificate:
    """
    Certificate (3) that some path takes at least (1) seconds.

    ``quantum`` q seconds of a resource unit, ``limit`` R; ``later`` and ``first`` prices of segments by node and length
    from 1 on, ``first`` where they differ; ``cuts`` with their prices. Valid for paths that begin in the set it was
    made for, or in any part of it, for any part of the range of touched nodes, and with more required ones.
    """

    quantum: float
    limit: int
    later: tuple[tuple[int, ...], ...]
    first: tuple[tuple[int, ...], ...] | None = None
    cuts: tuple[tuple[Cut, int], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class DualPrices:
    """Whole dual prices of first and later segments (N, c + 1) by node and length, and of cuts (cuts,)."""

    first: Ints
    later: Ints
    cuts: CutArrays
    by_cut: Ints

    def least_total(self, graph: SlotGraph, starts: Flags, required: Flags, touched: tuple[int, int]) -> float:
        r"""The least worth of all patterns and cuts, :math:`\Gamma` of (3), infinite where none is possible."""
        least, _ = cheapest_patterns(self.first.astype(np.float64), self.later.astype(np.float64), graph.capacity)
        return least_pattern_total(least, starts, required, *touched) + float(self.by_cut @ self.cuts.least)

    def best_routes(
        self, graph: SlotGraph, consumption: Ints32, starts: Flags, limit: int
    ) -> tuple[Ints, Ints32] | None:
        """Largest dual value (N,) of a route by its last node, and those routes (N, pp); None for too large prices."""
        if self.largest * graph.pp >= MAX_SUM:
            return None
        first, hops = self._with_cuts
        tables = first.astype(np.int32), self.later.astype(np.int32)
        data = PricingData(consumption, hops, *tables, graph.capacity, *crossed(graph))
        return price_routes(data, starts, graph.pp, limit)

    @property
    def largest(self) -> int:
        """Largest absolute value of a segment and the hop to it together."""
        first, hops = self._with_cuts
        return int(max(np.abs(first).max(), np.abs(self.later).max()) + hops.max())

    @cached_property
    def _with_cuts(self) -> tuple[Ints, Ints]:
        """Prices of first segments (N, c + 1) and of hops (N, N) with those of cuts."""
        return self.first + self.cuts.start_duals(self.by_cut)[:, None], self.cuts.hop_duals(self.by_cut)


def certified_seconds(
    graph: SlotGraph, starts: Flags, required: Flags, touched: tuple[int, int], proof: DualCertificate
) -> float:
    """Seconds (1) of the longest path that a certificate proves for P and Q (N,); minus infinity where (3) fails."""
    if not 0 < proof.limit <= MAX_RESOURCE or not 0.0 < proof.quantum < np.inf:
        return -np.inf
    duals = _dual_prices(graph, proof)
    if duals is None:
        return -np.inf
    shortest, consumption = resource_consumption(graph, proof.quantum, proof.limit)
    found = duals.best_routes(graph, consumption, starts, proof.limit)
    if found is None:
        return -np.inf
    if not int(found[0].max()) * graph.num_paths < duals.least_total(graph, starts, required, touched) < np.inf:
        return -np.inf
    return (graph.pp - 1) * shortest + proof.limit * proof.quantum


def _dual_prices(graph: SlotGraph, proof: DualCertificate) -> DualPrices | None:
    """The prices of a certificate; None where they are not by node and length, not of cuts, or huge."""
    later = _table(graph, proof.later)
    first = later if proof.first is None else _table(graph, proof.first)
    sets = [set(cut.nodes) for cut, _ in proof.cuts]
    known = all(len(nodes) == len(cut.nodes) for nodes, (cut, _) in zip(sets, proof.cuts, strict=True))
    if later is None or first is None or not known or any(not nodes <= set(range(len(graph.hops))) for nodes in sets):
        return None
    by_cut = [dual for _, dual in proof.cuts]
    if any(not 0 <= dual < MAX_SUM for dual in by_cut):
        return None
    cuts = cut_arrays(graph, tuple(cut for cut, _ in proof.cuts))
    return DualPrices(first=first, later=later, cuts=cuts, by_cut=np.array(by_cut, dtype=np.int64))


def _table(graph: SlotGraph, duals: tuple[tuple[int, ...], ...]) -> Ints | None:
    """Prices as an array (N, c + 1) with a column for no slots; None where they are not by node and length, or huge."""
    longest = int(graph.capacity.max())
    if len(duals) != len(graph.hops) or any(len(row) != longest for row in duals):
        return None
    if max(abs(dual) for row in duals for dual in row) >= MAX_SUM:
        return None
    return np.pad(np.array(duals, dtype=np.int64), ((0, 0), (1, 0)))


def resource_consumption(graph: SlotGraph, quantum: float, limit: int) -> tuple[float, Ints32]:
    """Seconds of the shortest hop, and units (N, N) of every hop, (1), at most the limit R."""
    shortest = graph.shortest_hop()
    allowed = ~np.diag(graph.capacity <= 1)
    # Rounding in the quotient must not lift a hop to the next unit.
    exact = np.floor((np.where(allowed, graph.hops, np.inf) - shortest) / quantum * (1 - 1e-12))
    return shortest, np.clip(exact, 0, limit).astype(np.int32)


QUANTA = 1 << 40
"""Quanta in the longest hop: with multipliers up to 2^8 hops the sums of 2,048 nodes stay below 2^62, and rounding
costs less than 1e-12 of a hop."""
MOMENTUM, FRESH = 0.7, 0.3
"""Shares of the last direction and of the new subgradient in the next direction."""
STEP, PATIENCE, DECAY = 0.05, 20, 0.6
"""
Share of Polyak's step that is taken; steps without a better bound after which it is cut, and the share that is left.

All are of the usual size for subgradient ascent. Any multipliers are valid, so they decide how good the bound is and
not whether it holds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMultipliers:
    """Certificate of (7): the multiplier of every node in quanta of 1 / ``QUANTA`` of the longest hop."""

    values: tuple[int, ...]


def forest_bound(graph: SlotGraph, proof: NodeMultipliers) -> float:
    """Seconds of the longest path at least, (8); minus infinity for several slots a node, or wrong multipliers."""
    values = proof.values
    if (graph.capacity > 1).any() or len(values) != len(graph.hops) or max(map(abs, values)) > QUANTA << 8:
        return -np.inf
    quantum, whole = _quantised(graph.hops)
    return _forest(whole, np.array(values, dtype=np.int64), graph.num_paths)[0] / graph.num_paths * quantum


def subgradient_ascent(graph: SlotGraph, *, longest: float, rounds: int) -> tuple[float, NodeMultipliers]:
    """A good bound (8) in seconds and its multipliers, by Polyak's steps towards the ``longest`` known path."""
    quantum, whole = _quantised(graph.hops)
    best, values = _subgradient_ascent(
        whole, graph.num_paths, int(min(longest / quantum, 1e15) * graph.num_paths), rounds
    )
    return best / graph.num_paths * quantum, NodeMultipliers(values=tuple(values.tolist()))


def _quantised(hops: Floats) -> tuple[float, Ints]:
    """Seconds of a quantum, and hops in quanta rounded down."""
    apart = ~np.eye(len(hops), dtype=bool)
    quantum = float(hops[apart].max()) / QUANTA
    if quantum <= 0.0:
        return 0.0, np.zeros(hops.shape, np.int64)
    return quantum, np.where(apart, np.floor(hops / quantum * (1 - 1e-12)), 0).astype(np.int64)


@jit
def _subgradient_ascent(hops: Ints, dp: int, target: int, rounds: int) -> tuple[int, Ints]:
    """
    Ascend towards the target; returns the best bound of (7) and its multipliers.

    A step has the length of Polyak's rule times a share that is cut after ``PATIENCE`` steps without a better bound;
    the ascent then goes on from the best multipliers. Its direction keeps a part of the one before (Camerini, Fratta
    and Maffioli 1975).
    """
    n = len(hops)
    values = np.zeros(n, np.int64)
    best, degrees = _forest(hops, values, dp)
    best_values, real = values.copy(), np.zeros(n)
    step, stale = 1.0, 0
    direction = np.zeros(n)
    for _ in range(rounds):
        direction = MOMENTUM * direction + FRESH * (degrees - 2.0)
        norm = (direction * direction).sum()
        if norm < 1e-9:
            break
        real = real + step * max(target - best, 1) * STEP / norm * direction
        values = np.rint(real).astype(np.int64)
        value, degrees = _forest(hops, values, dp)
        stale += 1
        if value > best:
            best, stale = value, 0
            best_values = values
        if stale >= PATIENCE:
            step, stale = step * DECAY, 0
            real = best_values.astype(np.float64)
    return best, best_values


@jit
def _forest(hops: Ints, values: Ints, dp: int) -> tuple[int, Ints]:
    """The right-hand side of (7), and every node's degree with ends counted as in (7)."""
    n = len(values)
    near = np.full(n, 1 << 62, np.int64)
    link = np.zeros(n, np.int64)
    done = np.zeros(n, np.bool_)
    edge, one, other = np.zeros(n - 1, np.int64), np.zeros(n - 1, np.int64), np.zeros(n - 1, np.int64)
    v = 0
    for k in range(n - 1):
        done[v] = True
        nearest = -1
        for u in range(n):
            if not done[u]:
                length = hops[v, u] + values[v] + values[u]
                if length < near[u]:
                    near[u], link[u] = length, v
                if nearest < 0 or near[u] < near[nearest]:
                    nearest = u
        edge[k], one[k], other[k] = near[nearest], nearest, link[nearest]
        v = nearest
    degrees = np.zeros(n, np.int64)
    total = np.int64(0)
    for k in np.argsort(edge, kind="mergesort")[: n - dp]:
        total += edge[k]
        degrees[one[k]] += 1
        degrees[other[k]] += 1
    for v in np.argsort(values, kind="mergesort")[: 2 * dp]:
        total += values[v]
        degrees[v] += 1
    return total - 2 * values.sum(), degrees
