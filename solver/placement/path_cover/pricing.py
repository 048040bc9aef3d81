r"""
Pricing problem: routes of largest dual value within a resource limit, with 2-cycle elimination.

Sets: nodes v with :math:`c_v` slots; start nodes P. A route takes pp slots in segments; a segment is a stretch of r
slots, :math:`1 \le r \le c_v`, in one node.
Data: resource consumption :math:`l_{vw}` of a hop (whole units, :math:`l_{vv}` inside a node) and its limit R; dual
prices :math:`g_{vr}` of a segment (the first segment of a route has its own) and :math:`e_{vw}` of a hop.
Variables: the segments of one route; its resource is the sum of its hops' consumption, its dual value the sum of its
prices.

Maximise the dual value over routes that begin in P, consume less than R, and never return at once to a node that they
left after all its slots (no 2-cycle: the node is full). The relaxation of elementary paths keeps the program
pseudo-polynomial, O(pp N^2 R).

(1) With :math:`F_{kvx}` the largest dual value of the partial routes that take k slots, consume x units and go on with
    a segment at v,

    .. math:: F_{0v0} = 0 \;\; (v \in P), \qquad
        F_{k+r, w, x + (r-1) l_{vv} + l_{vw}} \ge F_{kvx} + g_{vr} + e_{vw} \quad (v \ne w, \; r \le c_v).

(2) A partial route forbids at most one node, the last one that it filled, so two labels a state suffice: the best, and
    the best among those that forbid another node. Where the first may not be extended to w, the second may.
(3) A label is one whole number, the dual value times :math:`2^{20}` plus the forbidden node, so that one comparison
    orders both. Extensions to w by (1) that forbid a node v come from v alone, one for each x: the two largest forbid
    different nodes, or none.

The first hops of a route may have to lead from one place to another, such as racks
(``taut.solver.placement.path_cover.racks`` (4)); others are not extended.

Segments shorter than :math:`c_v` forbid no node; those that end with the same slot are merged before they are extended.

A pattern of node v is a multiset of segments whose lengths sum to :math:`c_v`; the cheapest one under dual prices packs
the node's slots. Sets: required nodes Q within P. A node is touched if a path begins in it. Data: dual prices
``first[v, r]`` and ``later[v, r]`` of a first or later segment of r slots in v; k and k', the fewest and most nodes
that may be touched.

(4) :math:`\Phi_v` is the least sum of prices of a pattern without first segments, :math:`\Phi'_v` with one or more: a
    knapsack by dynamic programming over the slots filled so far, O(c^2) a node.
(5) With k to k' touched nodes, all of P and among them all of Q, the patterns of all nodes are worth at least

    .. math:: \sum_v \Phi_v + \min \Big\{ \sum_{v \in S} (\Phi'_v - \Phi_v) : Q \subseteq S \subseteq P, \;
              k \le |S| \le k' \Big\}.

Patterns are the second kind of columns of the restricted master problem
(``taut.solver.placement.path_cover.path_bound``), and (4) is their pricing problem, as in cutting stock.

References
----------
Houck, Picard, Queyranne and Vemuganti (1980), The travelling salesman problem as a constrained shortest path problem:
2-cycle elimination with two labels a state.
Irnich and Desaulniers (2005), Shortest path problems with resource constraints.
Gilmore and Gomory (1961), A linear programming approach to the cutting-stock problem: patterns priced by knapsacks.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints, Ints32
from taut.formulations.compiled import jit, jit_inside

UNREACHED = -(1 << 29)
"""Dual value of a state that no partial route reaches; below every sum of duals, see ``MAX_SUM``."""
_BITS = 20
"""Bits of a label that hold the forbidden node: a million nodes, and 43 bits are left for the dual value."""
_NODE = (1 << _BITS) - 1
_ANY = _NODE
"""In place of the forbidden node where a route forbids none."""
_NONE = UNREACHED << _BITS | _ANY
MAX_SUM = 1 << 28
"""Dual values of routes are smaller, so that half of ``UNREACHED`` tells reached states from others."""


class PricingData(NamedTuple):
    """
    What the pricing problem is about, N nodes with c slots at most.

    ``consumption`` (N, N) resource units of hops; ``hop_duals`` (N, N) prices of hops between nodes; ``first_duals``
    and ``later_duals`` (N, c + 1) prices of first and later segments by node and length; ``capacity`` (N,) slots. The
    first ``crossings`` hops lead from one of the ``places`` (N,) to another.
    """

    consumption: Ints32
    hop_duals: Ints
    first_duals: Ints32
    later_duals: Ints32
    capacity: Ints
    places: Ints
    crossings: int


class _Labels(NamedTuple):
    """Labels (3) before a segment at v that begins with slot k, (pp, N, R): the best, and the best by (2)."""

    best: Ints
    second: Ints


@jit
def price_routes(data: PricingData, starts: Flags, pp: int, limit: int) -> tuple[Ints, Ints32]:
    """Largest dual value (N,) of a route by its last node, ``UNREACHED`` without one, and those routes (N, pp)."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    consumption, hop_duals, capacity = data.consumption, data.hop_duals, data.capacity
    first_duals, later_duals, places = data.first_duals, data.later_duals, data.places
    n = len(later_duals)
    best, second = np.full((pp, n, limit), _NONE), np.full((pp, n, limit), _NONE)
    part, part_second = np.empty((n, limit), np.int64), np.empty((n, limit), np.int64)
    for v in range(n):
        if starts[v]:
            best[0, v, 0] = _ANY
    for last in range(pp - 1):
        for v in range(n):
            part[v], part_second[v] = _NONE, _NONE
            for length in range(1, min(capacity[v] - 1, last + 1) + 1):
                k, shift = last - length + 1, (length - 1) * consumption[v, v]
                if shift >= limit:
                    break
                dual = int(first_duals[v, length] if k == 0 else later_duals[v, length]) << _BITS
                for labels in (best[k, v, : limit - shift], second[k, v, : limit - shift]):
                    _merge(labels, dual, part[v, shift:], part_second[v, shift:])
        for w in range(n):
            best_here, second_here = best[last + 1, w], second[last + 1, w]
            for v in range(n):
                step = consumption[v, w]
                if v == w or step >= limit or (last < data.crossings and places[v] == places[w]):
                    continue
                k, shift = last - capacity[v] + 1, step + (capacity[v] - 1) * consumption[v, v]
                if k >= 0 and shift < limit:
                    dual = int(first_duals[v, capacity[v]] if k == 0 else later_duals[v, capacity[v]])
                    dual, left = dual + hop_duals[v, w] << _BITS, limit - shift
                    _extend(best[k, v, :left], second[k, v, :left], dual, best_here[shift:], second_here[shift:], w, v)
                if capacity[v] > 1:
                    dual, left = hop_duals[v, w] << _BITS, limit - step
                    _extend(part[v, :left], part_second[v, :left], dual, best_here[step:], second_here[step:], w, _ANY)
    return _routes(data, _Labels(best, second))


@jit_inside
def _merge(labels: Ints, dual: int, best: Ints, second: Ints) -> None:
    """Take labels, worth so much more, into the best and the best that forbid another node, by resource."""
    for x in range(len(labels)):
        label, one, two = labels[x] + dual, best[x], second[x]
        same = (label ^ one) & _NODE == 0
        second[x] = two if same else max(two, min(one, label))
        best[x] = max(one, label)


@jit_inside
def _extend(from_best: Ints, from_second: Ints, dual: int, best: Ints, second: Ints, w: int, forbid: int) -> None:
    """Extend labels to a segment at w, by resource, in a form that compilers turn into vector instructions."""
    for x in range(len(from_best)):
        label = from_second[x] if from_best[x] & _NODE == w else from_best[x]
        label = ((label & ~_NODE) + dual) | forbid
        one = best[x]
        second[x] = max(second[x], min(one, label))
        best[x] = max(one, label)


@jit
def _routes(data: PricingData, labels: _Labels) -> tuple[Ints, Ints32]:
    """The best route to every last node, found again segment by segment from its last."""
    consumption, capacity = data.consumption, data.capacity
    pp, n, limit = labels.best.shape
    value = np.full(n, UNREACHED, np.int64)
    routes = np.full((n, pp), -1, np.int32)
    for end in range(n):
        k, x, label = pp, 0, _NONE
        for length in range(1, min(capacity[end], pp) + 1):
            begin = pp - length
            more = data.first_duals[end, length] if begin == 0 else data.later_duals[end, length]
            for used in range(limit - (length - 1) * consumption[end, end]):
                dual = labels.best[begin, end, used] >> _BITS
                if dual > UNREACHED // 2 and dual + more > value[end]:
                    value[end] = dual + more
                    k, x, label = begin, used, labels.best[begin, end, used]
        if k == pp:
            continue
        routes[end, k:] = end
        v = end
        while k > 0:
            u, length, x, label = _predecessor(data, labels, k, v, x, label)
            routes[end, k - length : k] = u
            k, v = k - length, u
    return value, routes


@jit_inside
def _predecessor(data: PricingData, labels: _Labels, k: int, v: int, x: int, label: int) -> tuple[int, int, int, int]:
    """The segment before slot k at v: its node and length, and the resource and label where it begins."""
    consumption, capacity = data.consumption, data.capacity
    for u in range(len(data.later_duals)):
        for length in range(1, min(capacity[u], k) + 1):
            begin, used = k - length, x - consumption[u, v] - (length - 1) * consumption[u, u]
            if u == v or used < 0 or (u if length == capacity[u] else _ANY) != label & _NODE:
                continue
            if k <= data.crossings and data.places[u] == data.places[v]:
                continue
            more = (data.first_duals[u, length] if begin == 0 else data.later_duals[u, length]) + data.hop_duals[u, v]
            before = labels.best[begin, u, used]
            if before & _NODE == v:
                before = labels.second[begin, u, used]
            if (before >> _BITS) + more == label >> _BITS:
                return u, length, used, before
    return -1, k, 0, 0


@jit
def cheapest_patterns(first: Floats, later: Floats, capacity: Ints) -> tuple[Floats, Ints]:
    """Least prices (N, 2) of untouched and touched nodes, (4), and the patterns' segments (N, 2, 2, c + 1)."""
    n, most = later.shape
    least = np.full((n, 2), np.inf)
    counts = np.zeros((n, 2, 2, most), np.int64)
    best = np.full((2, most), np.inf)
    kind, length, before = np.zeros((2, most), np.int64), np.zeros((2, most), np.int64), np.zeros((2, most), np.int64)
    for v in range(n):
        best[:] = np.inf
        best[0, 0] = 0.0
        for size in range(1, capacity[v] + 1):
            for segment in range(1, size + 1):
                for touched in range(2):
                    rest = best[touched, size - segment]
                    if rest + later[v, segment] < best[touched, size]:
                        best[touched, size] = rest + later[v, segment]
                        kind[touched, size], length[touched, size], before[touched, size] = 1, segment, touched
                    if rest + first[v, segment] < best[1, size]:
                        best[1, size] = rest + first[v, segment]
                        kind[1, size], length[1, size], before[1, size] = 0, segment, touched
        for touched in range(2):
            least[v, touched] = best[touched, capacity[v]]
            state, size = touched, capacity[v]
            while size > 0:
                segment = length[state, size]
                counts[v, touched, kind[state, size], segment] += 1
                state, size = before[state, size], size - segment
    return least, counts


def least_pattern_total(least: Floats, starts: Flags, required: Flags, fewest: int, most: int) -> float:
    """The least worth of all nodes' patterns, (5), of their ``least`` prices (N, 2); infinite if impossible."""
    difference, fixed = least[:, 1] - least[:, 0], int(required.sum())
    further = np.r_[0.0, np.sort(difference[starts & ~required])].cumsum()[
        max(fewest - fixed, 0) : max(most - fixed + 1, 0)
    ]
    return float(least[:, 0].sum() + difference[required].sum() + further.min(initial=np.inf))
