r"""
Longest path: a proof of how short the longest of the paths that take all slots cannot be, and its check.

Sets: nodes with :math:`c_v` slots (``taut.solver.placement.slots``), to be divided among paths of pp slots, every one
of which begins in the set P, so that at least k and at most k' nodes are touched, among them the set Q. A run is a
stretch of a path in one node.

(1) Let w be the least hop and q a quantum. Hops weigh :math:`l_{ab} = \lfloor (W_{ab} - w) / q \rfloor` levels, so a
    path of R levels or more takes at least :math:`T_R = (pp - 1) w + R q` seconds.
(2) Let runs have whole gains by node and length, first runs their own (``taut.solver.placement.fillings``), and
    :math:`\Gamma` be the least that all paths together gain. Let Z be the largest gain of a walk of pp slots that
    begins in P, has runs of at most :math:`c_v` slots, never returns at once to the node it left if it had filled it,
    and takes fewer than R levels. If paths shorter than :math:`T_R` took every slot once, each would be such a walk.
    Hence

    .. math:: \Gamma > paths \cdot Z \;\Rightarrow\; T \ge T_R.

Z is found by dynamic programming over (slots so far, node of the run, levels). A walk that must not return to one node
needs a second choice: the best walk that may. All in integers: checking (2) takes one pass. A gain of one on every
slot of one node and zero elsewhere is the bound by the hardest node to visit; gains from the average path are covered
too. ``taut.solver.placement.walks`` finds gains.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.solver.placement.fillings import cheapest_fillings, least_total
from taut.solver.placement.slots import Slots

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
NEVER = -(1 << 29)
ANYWHERE = -1
"""In place of the node that a walk must not return to."""
MOST_SUM = 1 << 28
"""Gains of a walk sum to less, so that no walk is taken for none."""
MOST_LEVELS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """
    Proof by (2) that some path takes at least ``seconds``.

    ``quantum`` seconds a level, ``levels`` = R; ``later`` and ``first`` gains by node and length from 1 on, ``first``
    where they differ. Valid for paths that begin in the set it was made for, or in any part of it, for any part of the
    range of touched nodes, and with more required ones.
    """

    quantum: float
    levels: int
    later: tuple[tuple[int, ...], ...]
    first: tuple[tuple[int, ...], ...] | None = None


def refuted_seconds(given: Slots, starts: Flags, required: Flags, touched: tuple[int, int], proof: Refutation) -> float:
    """
    Seconds that the longest path takes at least, minus infinity where the proof does not hold.

    Parameters
    ----------
    given
        The slots.
    starts
        P, (N,).
    required
        Q, (N,).
    touched
        k and k', the fewest and most nodes that stage 0 touches.
    proof
        Gains and levels.
    """
    if not 0 < proof.levels <= MOST_LEVELS or not 0.0 < proof.quantum < np.inf:
        return -np.inf
    later = _table(given, proof.later)
    first = later if proof.first is None else _table(given, proof.first)
    if later is None or first is None:
        return -np.inf
    least, levels = levels_of(given, proof.quantum, proof.levels)
    best = dearest_walks(levels, first, later, given.capacity, starts, given.pp, proof.levels)[0]
    fillings = cheapest_fillings(first.astype(np.float64), later.astype(np.float64), given.capacity)[0]
    if not int(best.max()) * given.paths < least_total(fillings, starts, required, *touched) < np.inf:
        return -np.inf
    return (given.pp - 1) * least + proof.levels * proof.quantum


def _table(given: Slots, gains: tuple[tuple[int, ...], ...]) -> Small | None:
    """Gains as an array (N, c + 1) with a column for no slots; None where they are not by node and length, or huge."""
    longest = int(given.capacity.max())
    if len(gains) != len(given.hops) or any(len(row) != longest for row in gains):
        return None
    if max(abs(gain) for row in gains for gain in row) * given.pp >= MOST_SUM:
        return None
    return np.pad(np.array(gains, dtype=np.int32), ((0, 0), (1, 0)))


def levels_of(given: Slots, quantum: float, most: int) -> tuple[float, Small]:
    """Least hop, and hops in levels by (1), never more than ``most``; single slots have no hop inside."""
    least = given.least_hop()
    allowed = ~np.diag(given.capacity <= 1)
    # Rounding in the quotient must not lift a hop to the next level.
    exact = np.floor((np.where(allowed, given.hops, np.inf) - least) / quantum * (1 - 1e-12))
    return least, np.clip(exact, 0, most).astype(np.int32)


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
                _merge(
                    first[k, v, :left],
                    ban[k, v],
                    value,
                    part[v, shift:],
                    part_second[v, shift:],
                    part_ban[v, shift:],
                    part_other[v, shift:],
                )
                _merge(
                    second[k, v, :left],
                    other[k, v],
                    value,
                    part[v, shift:],
                    part_second[v, shift:],
                    part_ban[v, shift:],
                    part_other[v, shift:],
                )
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
