r"""
Longest path: the walks of few levels that gain most, by compiled dynamic programming.

Hops and runs as in ``taut.solver.placement.path_cover.certificate``: a walk takes pp slots in runs of at most
:math:`c_v` slots in one node v, begins in the set P, and takes fewer than R levels. A run of r slots gains
:math:`g_{vr}`, the first run of a walk its own, and takes :math:`(r - 1) l_{vv}` levels; the hop from v to w takes
:math:`l_{vw}` and gains
:math:`e_{vw}`.

(1) With :math:`F_{kvx}` the most that walks of x levels gain before a run at v that begins with slot k,

    .. math:: F_{0v0} = 0 \;\; (v \in P), \qquad
        F_{k+r, w, x + (r-1) l_{vv} + l_{vw}} \ge F_{kvx} + g_{vr} + e_{vw} \quad (v \ne w, \; r \le c_v),

    and the walk may not return at once to the node that it left if it had filled it: after a run of :math:`c_v` slots
    at v the next run but one must not be at v.
(2) The walk behind F bans one node at most, so a second choice is enough: the most with another ban. If the best walk
    may not enter w, the second may.
(3) A gain and a ban are one whole number, the gain times :math:`2^{20}` plus the ban, so that one comparison orders
    both. Walks to w by (1) that ban a node v come from v alone, one for each level: the two largest have unlike bans,
    or ban nothing.

Runs shorter than :math:`c_v` ban no node; those that end with the same slot are merged before they hop on.
"""

import numpy as np

from taut.data.arrays import Flags, Ints, Ints32
from taut.formulations.compiled import jit

NEVER = -(1 << 29)
_BITS = 20
_BAN = (1 << _BITS) - 1
_ANYWHERE = _BAN
"""In place of the node that a walk must not return to."""
_NONE = NEVER << _BITS | _ANYWHERE
MOST_SUM = 1 << 28
"""Gains of a walk sum to less, so that no walk is taken for none."""


@jit
def dearest_walks(
    levels: Ints32,
    hop_gains: Ints,
    first_gains: Ints32,
    later_gains: Ints32,
    capacity: Ints,
    starts: Flags,
    pp: int,
    most: int,
) -> tuple[Ints, Ints32]:
    """
    Largest gain of a walk by its last node, and that walk, (N, pp); ``NEVER`` and -1 where there is none.

    ``first[k, v]`` is the most that walks gain before a run at v which begins with slot k, by levels, with the node
    that such a walk must not enter next, (3); ``second`` is the most with another ban.
    """
    n = len(later_gains)
    first, second = np.full((pp, n, most), _NONE), np.full((pp, n, most), _NONE)
    part, part_second = np.empty((n, most), np.int64), np.empty((n, most), np.int64)
    for v in range(n):
        if starts[v]:
            first[0, v, 0] = _ANYWHERE
    for last in range(pp - 1):
        for v in range(n):
            part[v], part_second[v] = _NONE, _NONE
            for run in range(1, min(capacity[v] - 1, last + 1) + 1):
                k, shift = last - run + 1, (run - 1) * levels[v, v]
                if shift >= most:
                    break
                gain = int(first_gains[v, run] if k == 0 else later_gains[v, run]) << _BITS
                for walks in (first[k, v, : most - shift], second[k, v, : most - shift]):
                    _merge(walks, gain, part[v, shift:], part_second[v, shift:])
        for w in range(n):
            best, next_best = first[last + 1, w], second[last + 1, w]
            for v in range(n):
                step = levels[v, w]
                if v == w or step >= most:
                    continue
                k, shift = last - capacity[v] + 1, step + (capacity[v] - 1) * levels[v, v]
                if k >= 0 and shift < most:
                    gain = int(first_gains[v, capacity[v]] if k == 0 else later_gains[v, capacity[v]])
                    gain, left = gain + hop_gains[v, w] << _BITS, most - shift
                    _extend(first[k, v, :left], second[k, v, :left], gain, best[shift:], next_best[shift:], w, v)
                if capacity[v] > 1:
                    gain, left = hop_gains[v, w] << _BITS, most - step
                    _extend(part[v, :left], part_second[v, :left], gain, best[step:], next_best[step:], w, _ANYWHERE)
    return _walks(levels, hop_gains, first_gains, later_gains, capacity, first, second)


@jit
def _merge(walks: Ints, gain: int, best: Ints, next_best: Ints) -> None:
    """Take walks, which gain so much more, into the best and the second best with another ban, by levels."""
    for level in range(len(walks)):
        walk, one, two = walks[level] + gain, best[level], next_best[level]
        same = (walk ^ one) & _BAN == 0
        next_best[level] = two if same else max(two, min(one, walk))
        best[level] = max(one, walk)


@jit
def _extend(first: Ints, second: Ints, gain: int, best: Ints, next_best: Ints, w: int, ban: int) -> None:
    """Continue walks by a run at w, by levels, in a form that compilers turn into vector instructions."""
    for level in range(len(first)):
        walk = second[level] if first[level] & _BAN == w else first[level]
        walk = ((walk & ~_BAN) + gain) | ban
        one = best[level]
        next_best[level] = max(next_best[level], min(one, walk))
        best[level] = max(one, walk)


@jit
def _walks(
    levels: Ints32,
    hop_gains: Ints,
    first_gains: Ints32,
    later_gains: Ints32,
    capacity: Ints,
    first: Ints,
    second: Ints,
) -> tuple[Ints, Ints32]:
    """The best walk to every last node, found again run by run from its last."""
    pp, n, most = first.shape
    best = np.full(n, NEVER, np.int64)
    walks = np.full((n, pp), -1, np.int32)
    for end in range(n):
        k, level, walk = pp, 0, _NONE
        for run in range(1, min(capacity[end], pp) + 1):
            begin = pp - run
            more = first_gains[end, run] if begin == 0 else later_gains[end, run]
            for x in range(most - (run - 1) * levels[end, end]):
                gain = first[begin, end, x] >> _BITS
                if gain > NEVER // 2 and gain + more > best[end]:
                    best[end] = gain + more
                    k, level, walk = begin, x, first[begin, end, x]
        if k == pp:
            continue
        walks[end, k:] = end
        v = end
        while k > 0:
            u, run, level, walk = _before(
                levels, hop_gains, first_gains, later_gains, capacity, first, second, k, v, level, walk
            )
            walks[end, k - run : k] = u
            k, v = k - run, u
    return best, walks


@jit
def _before(
    levels: Ints32,
    hop_gains: Ints,
    first_gains: Ints32,
    later_gains: Ints32,
    capacity: Ints,
    first: Ints,
    second: Ints,
    k: int,
    v: int,
    level: int,
    walk: int,
) -> tuple[int, int, int, int]:
    """The run before slot k at v: its node and length, and level, gain and ban where it begins."""
    for u in range(len(later_gains)):
        for run in range(1, min(capacity[u], k) + 1):
            begin, there = k - run, level - levels[u, v] - (run - 1) * levels[u, u]
            if u == v or there < 0 or (u if run == capacity[u] else _ANYWHERE) != walk & _BAN:
                continue
            more = (first_gains[u, run] if begin == 0 else later_gains[u, run]) + hop_gains[u, v]
            before = first[begin, u, there]
            if before & _BAN == v:
                before = second[begin, u, there]
            if (before >> _BITS) + more == walk >> _BITS:
                return u, run, there, before
    return -1, k, 0, 0
