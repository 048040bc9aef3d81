r"""
Longest path: the walks of few levels that gain most, by compiled dynamic programming.

Hops and runs as in ``taut.solver.placement.refutation``: a walk takes pp slots in runs of at most :math:`c_v` slots in
one node v, begins in the set P, and takes fewer than R levels. A run of r slots gains :math:`g_{vr}`, the first run of
a walk its own, and takes :math:`(r - 1) l_{vv}` levels; the hop from v to w takes :math:`l_{vw}`.

(1) With :math:`F_{kvx}` the most that walks of x levels gain before a run at v that begins with slot k,

    .. math:: F_{0v0} = 0 \;\; (v \in P), \qquad
        F_{k+r, w, x + (r-1) l_{vv} + l_{vw}} \ge F_{kvx} + g_{vr} \quad (v \ne w, \; r \le c_v),

    and the walk may not return at once to the node that it left if it had filled it: after a run of :math:`c_v` slots
    at v the next run but one must not be at v.
(2) The walk behind F bans one node at most, so a second choice is enough: the most with another ban. If the best walk
    may not enter w, the second may.

Runs shorter than :math:`c_v` ban no node; those that end with the same slot are merged before they hop on.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
NEVER = -(1 << 29)
ANYWHERE = -1
"""In place of the node that a walk must not return to."""
MOST_SUM = 1 << 28
"""Gains of a walk sum to less, so that no walk is taken for none."""


@njit(cache=True, nogil=True)
def dearest_walks(
    levels: Small, first_gains: Small, later_gains: Small, capacity: Ints, starts: Flags, pp: int, most: int
) -> tuple[Ints, Small]:
    """
    Largest gain of a walk by its last node, and that walk, (N, pp); ``NEVER`` and -1 where there is none.

    ``first[k, v]`` is the most that walks gain before a run at v which begins with slot k, by levels, and ``ban`` the
    node that such a walk must not enter next; ``second`` is the most with another ban.
    """
    n = len(later_gains)
    first = np.full((pp, n, most), NEVER, np.int32)
    second = np.full((pp, n, most), NEVER, np.int32)
    ban = np.full((pp, n, most), ANYWHERE, np.int32)
    other = np.full((pp, n, most), ANYWHERE, np.int32)
    part, part_second = np.zeros((n, most), np.int32), np.zeros((n, most), np.int32)
    part_ban, part_other = np.zeros((n, most), np.int32), np.zeros((n, most), np.int32)
    for v in range(n):
        if starts[v]:
            first[0, v, 0] = 0
    for last in range(pp - 1):
        for v in range(n):
            part[v], part_second[v], part_ban[v], part_other[v] = NEVER, NEVER, ANYWHERE, ANYWHERE
            for run in range(1, min(capacity[v] - 1, last + 1) + 1):
                k, shift = last - run + 1, (run - 1) * levels[v, v]
                if shift >= most:
                    break
                left = most - shift
                value = first_gains[v, run] if k == 0 else later_gains[v, run]
                best, next_best, by, next_by = (
                    part[v, shift:],
                    part_second[v, shift:],
                    part_ban[v, shift:],
                    part_other[v, shift:],
                )
                for values, bans in ((first[k, v, :left], ban[k, v]), (second[k, v, :left], other[k, v])):
                    _merge(values, bans, value, best, next_best, by, next_by)
        for w in range(n):
            best, next_best, by, next_by = first[last + 1, w], second[last + 1, w], ban[last + 1, w], other[last + 1, w]
            for v in range(n):
                step = levels[v, w]
                if v == w or step >= most:
                    continue
                k, shift = last - capacity[v] + 1, step + (capacity[v] - 1) * levels[v, v]
                if k >= 0 and shift < most:
                    value = first_gains[v, capacity[v]] if k == 0 else later_gains[v, capacity[v]]
                    left = most - shift
                    _extend(
                        first[k, v, :left],
                        second[k, v, :left],
                        ban[k, v, :left],
                        value,
                        best[shift:],
                        next_best[shift:],
                        by[shift:],
                        next_by[shift:],
                        w,
                        v,
                    )
                if capacity[v] > 1:
                    left = most - step
                    _extend(
                        part[v, :left],
                        part_second[v, :left],
                        part_ban[v, :left],
                        0,
                        best[step:],
                        next_best[step:],
                        by[step:],
                        next_by[step:],
                        w,
                        ANYWHERE,
                    )
    return _walks(levels, first_gains, later_gains, capacity, first, second, ban, other)


@njit(cache=True, nogil=True, inline="always")
def _merge(values: Small, bans: Small, more: int, best: Small, next_best: Small, by: Small, next_by: Small) -> None:
    """Take walks with their bans into a best and second best, level by level."""
    for level in range(len(values)):
        value, banned = values[level] + more, bans[level]
        one, two, same = best[level], next_best[level], bans[level] == by[level]
        better = value > one
        fits = value > two and not same
        next_by[level] = (next_by[level] if same else by[level]) if better else (banned if fits else next_by[level])
        next_best[level] = (two if same else one) if better else (value if fits else two)
        by[level] = banned if better else by[level]
        best[level] = value if better else one


@njit(cache=True, nogil=True, inline="always")
def _extend(
    first: Small,
    second: Small,
    bans: Small,
    more: int,
    best: Small,
    next_best: Small,
    by: Small,
    next_by: Small,
    w: int,
    ban: int,
) -> None:
    """Continue walks by a run at w, level by level, in a form that compilers turn into vector instructions."""
    for level in range(len(first)):
        value = (second[level] if bans[level] == w else first[level]) + more
        one, two = best[level], next_best[level]
        better = value > one
        next_by[level] = by[level] if better else (ban if value > two else next_by[level])
        by[level] = ban if better else by[level]
        next_best[level] = max(two, min(one, value))
        best[level] = max(one, value)


@njit(cache=True, nogil=True)
def _walks(
    levels: Small,
    first_gains: Small,
    later_gains: Small,
    capacity: Ints,
    first: Small,
    second: Small,
    ban: Small,
    other: Small,
) -> tuple[Ints, Small]:
    """The best walk to every last node, found again run by run from its last."""
    pp, n, most = first.shape
    best = np.full(n, NEVER, np.int64)
    walks = np.full((n, pp), -1, np.int32)
    for end in range(n):
        k, level, value, banned = pp, 0, NEVER // 2, ANYWHERE
        for run in range(1, min(capacity[end], pp) + 1):
            begin = pp - run
            more = first_gains[end, run] if begin == 0 else later_gains[end, run]
            for x in range(most - (run - 1) * levels[end, end]):
                if first[begin, end, x] > NEVER // 2 and first[begin, end, x] + more > best[end]:
                    best[end] = first[begin, end, x] + more
                    k, level, value, banned = begin, x, first[begin, end, x], ban[begin, end, x]
        if k == pp:
            continue
        walks[end, k:] = end
        v = end
        while k > 0:
            u, run, level, value, banned = _before(
                levels, first_gains, later_gains, capacity, first, second, ban, other, k, v, level, value, banned
            )
            walks[end, k - run : k] = u
            k, v = k - run, u
    return best, walks


@njit(cache=True, nogil=True)
def _before(
    levels: Small,
    first_gains: Small,
    later_gains: Small,
    capacity: Ints,
    first: Small,
    second: Small,
    ban: Small,
    other: Small,
    k: int,
    v: int,
    level: int,
    value: int,
    banned: int,
) -> tuple[int, int, int, int, int]:
    """The run before slot k at v: its node and length, and level, gain and ban where it begins."""
    for u in range(len(later_gains)):
        for run in range(1, min(capacity[u], k) + 1):
            begin, there = k - run, level - levels[u, v] - (run - 1) * levels[u, u]
            if u == v or there < 0 or (u if run == capacity[u] else ANYWHERE) != banned:
                continue
            more = first_gains[u, run] if begin == 0 else later_gains[u, run]
            if ban[begin, u, there] != v and first[begin, u, there] + more == value:
                return u, run, there, first[begin, u, there], ban[begin, u, there]
            if ban[begin, u, there] == v and second[begin, u, there] + more == value:
                return u, run, there, second[begin, u, there], other[begin, u, there]
    return -1, k, 0, 0, 0
