r"""
Dual certificate that the longest path takes at least T seconds, and its check (a destructive lower bound).

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

References
----------
Klein and Scholl (1999), Computing lower bounds by destructive improvement: thresholds refuted one after the other.
Desrochers, Desrosiers and Solomon (1992), A new optimization algorithm for the vehicle routing problem with time
windows: set partitioning over routes.
Laporte and Nobert (1983), A branch and bound algorithm for the capacitated vehicle routing problem; Lysgaard, Letchford
and Eglese (2004), A new branch-and-cut algorithm for the capacitated vehicle routing problem: rounded capacity cuts.
Nemhauser and Wolsey (1990), A recursive procedure to generate all cuts for 0-1 mixed integer programs: MIR cuts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Ints, Ints32
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
    """
    Whole dual prices: of first and later segments (N, c + 1) by node and length, zero for length zero, and of cuts.

    ``by_cut`` (cuts,) is the price of each cut.
    """

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
