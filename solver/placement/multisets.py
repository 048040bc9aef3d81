r"""
Multisets of alike slots: paths through them, and covers of all slots by paths, in compiled loops.

Of kind c there are :math:`n_c` slots, which can be exchanged; a multiset Q has :math:`q_c \le n_c` of each. W[c, d] is
the length of a hop from a slot of kind c to another of kind d, also for c = d.

(1) The number of Q is :math:`\sum_c q_c s_c` with :math:`s_c = \prod_{b < c} (n_b + 1)`: numbers of disjoint multisets
    add up, and a part of Q has a smaller number than Q.
(2) path[Q, c] = least length of a path that starts at kind c and visits all of Q: the least over d of W[c, d] +
    path[Q - c, d].
(3) cover[R] = least, over the ways to give R to the first starts, of the longest of their paths, where R has pp - 1
    slots for each start but the start itself.
(4) The counts of Q also stand in one word, each in a field with a free bit above it: Q is a part of R exactly if R - Q
    borrows none of the free bits.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]


@njit(cache=True, nogil=True)
def steps_of(counts: Ints) -> Ints:
    """Steps s_c of (1), and the number of all multisets as the last entry, (C + 1,)."""
    steps = np.ones(len(counts) + 1, np.int64)
    for c in range(len(counts)):
        steps[c + 1] = steps[c] * (counts[c] + 1)
    return steps


@njit(cache=True, nogil=True)
def small_multisets(counts: Ints, most: int) -> tuple[Ints, Small]:
    """Counts (M, C) of the multisets of ``most`` slots or fewer by ascending number (1), and the row of each number."""
    total = steps_of(counts)[-1]
    row = np.full(total, -1, np.int32)
    at, size, found = np.zeros(len(counts), np.int64), 0, 0
    for number in range(total):
        if size <= most:
            row[number] = found
            found += 1
        size += _next(at, counts)
    members, at, size = np.zeros((found, len(counts)), np.int64), np.zeros(len(counts), np.int64), 0
    for number in range(total):
        if size <= most:
            members[row[number]] = at
        size += _next(at, counts)
    return members, row


@njit(cache=True, nogil=True)
def _next(at: Ints, counts: Ints) -> int:
    """Go on to the multiset with the next number; returns by how many slots it is larger."""
    more = 0
    for c in range(len(counts)):
        if at[c] < counts[c]:
            at[c] += 1
            return more + 1
        more -= at[c]
        at[c] = 0
    return more


@njit(cache=True, nogil=True)
def path_lengths(hops: Floats, counts: Ints, members: Ints, row: Small) -> Floats:
    """path[Q, c] of (2) for the given multisets, (C, M); infinite where Q has no slot of kind c."""
    steps, kinds = steps_of(counts), len(counts)
    path = np.full((kinds, len(members)), np.inf)
    for q in range(len(members)):
        number, size = 0, 0
        for c in range(kinds):
            number += members[q, c] * steps[c]
            size += members[q, c]
        for c in range(kinds):
            if members[q, c] == 0:
                continue
            if size == 1:
                path[c, q] = 0.0
                continue
            rest = row[number - steps[c]]
            for d in range(kinds):
                path[c, q] = min(path[c, q], hops[c, d] + path[d, rest])
    return path


@njit(cache=True, nogil=True)
def visits(path: Floats, members: Ints, pp: int) -> Floats:
    """Length of the shortest path of pp slots that starts at one kind and visits another, (C, C)."""
    kinds = len(path)
    least = np.full((kinds, kinds), np.inf)
    for q in range(len(members)):
        if members[q].sum() == pp:
            for c in range(kinds):
                for d in range(kinds):
                    if members[q, d] > 0:
                        least[c, d] = min(least[c, d], path[c, q])
    return least


@njit(cache=True, nogil=True)
def least_cover(
    path: Floats, row: Small, counts: Ints, starts: Ints, pp: int, cutoff: float
) -> tuple[float, Ints, int]:
    """
    Cover all slots by paths from starts of the given kinds, the longest as short as possible and below a cutoff, (3).

    Returns its length, infinity where no cover is below the cutoff; the number (1) of each path's multiset; and how
    many multisets and pairs of them were looked at. Equal starts stand together.
    """
    kinds, dp = len(counts), len(starts)
    free = counts.copy()
    for c in starts:
        free[c] -= 1
    steps, whole = steps_of(counts), steps_of(free)[-1]
    shift = np.zeros(kinds, np.int64)
    guard = 0
    for c in range(kinds):
        width = 0
        while free[c] >> width:
            width += 1
        guard |= 1 << (shift[c] + width)
        if c + 1 < kinds:
            shift[c + 1] = shift[c] + width + 1
    word, size, number = np.zeros(whole, np.int64), np.zeros(whole, np.int16), np.zeros(whole, np.int32)
    known = 1
    for c in range(kinds):
        for r in range(known, known * (free[c] + 1)):
            word[r] = word[r - known] + (1 << shift[c])
            size[r], number[r] = size[r - known] + 1, number[r - known] + steps[c]
        known *= free[c] + 1
    longest, given = np.full(whole, np.inf), np.zeros(whole, np.int32)
    longest[0] = 0.0
    length = np.full(whole, np.inf)
    fitting, some, looked = np.zeros(whole, np.int64), 0, dp * whole
    everything = whole - 1
    for k in range(dp):
        if k == 0 or starts[k] != starts[k - 1]:
            some = 0
            for r in range(whole):
                length[r] = np.inf
                if size[r] == pp - 1:
                    seconds = path[starts[k], row[number[r] + steps[starts[k]]]]
                    if seconds < cutoff:
                        length[r] = seconds
                        fitting[some] = r
                        some += 1
        for r in range(whole):
            if size[r] != k * (pp - 1) or longest[r] == np.inf:
                continue
            if k == dp - 1:
                value = max(longest[r], length[everything - r])
                if value < longest[everything]:
                    longest[everything], given[everything] = value, everything - r
                continue
            left = (word[everything] - word[r]) | guard
            looked += some
            for m in fitting[:some]:
                if (left - word[m]) & guard == guard:
                    value = max(longest[r], length[m])
                    if value < longest[r + m]:
                        longest[r + m], given[r + m] = value, m
    visited = np.zeros(dp, np.int64)
    covered = everything
    for k in range(dp - 1, -1, -1):
        visited[k] = number[given[covered]] + steps[starts[k]]
        covered -= given[covered]
    return longest[everything], visited, looked


@njit(cache=True, nogil=True)
def shortest_path(hops: Floats, path: Floats, members: Ints, row: Small, counts: Ints, start: int, number: int) -> Ints:
    """Kinds of a shortest path from kind ``start`` through all of the multiset with a number (1)."""
    steps = steps_of(counts)
    order = np.zeros(members[row[number]].sum(), np.int64)
    order[0] = start
    for k in range(1, len(order)):
        number -= steps[order[k - 1]]
        least = np.inf
        for d in range(len(counts)):
            if hops[order[k - 1], d] + path[d, row[number]] < least:
                least = hops[order[k - 1], d] + path[d, row[number]]
                order[k] = d
    return order
