r"""
Multisets of exchangeable slots: paths through them, and covers of all slots by paths, in compiled loops.

Sets: kinds c with :math:`n_c` slots each, which can be exchanged; a multiset Q has :math:`q_c \le n_c` of each.
Data: W[c, d] seconds of a hop from a slot of kind c to another of kind d, also for c = d.

(1) The number of Q is :math:`\sum_c q_c s_c` with :math:`s_c = \prod_{b < c} (n_b + 1)`: numbers of disjoint multisets
    add up, and a part of Q has a smaller number than Q.
(2) path[Q, c] = least length of a path that starts at kind c and visits all of Q: the least over d of W[c, d] +
    path[Q - c, d].
(3) cover[R] = least, over the ways to give R to the first starts, of the longest of their paths, where R has pp - 1
    slots for each start but the start itself.
(4) The counts of Q also stand in one word, each in a field with a free bit above it: Q is a part of R exactly if R - Q
    borrows none of the free bits.

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: (2), there over sets.
"""

import numpy as np

from taut.data.arrays import Floats, Ints, Ints32
from taut.formulations.compiled import jit


@jit
def steps_of(counts: Ints) -> Ints:
    """
    Compute the steps of (1).

    ``counts``: slots by kind, (C,). Returns steps s_c, and the number of all multisets as the last entry, (C + 1,).
    """
    steps = np.ones(len(counts) + 1, np.int64)
    for c in range(len(counts)):
        steps[c + 1] = steps[c] * (counts[c] + 1)
    return steps


@jit
def small_multisets(counts: Ints, most: int) -> tuple[Ints, Ints32]:
    """
    List the multisets of at most so many slots.

    ``counts``: slots by kind, (C,); ``most``: slots at most. Returns counts of the multisets by ascending number (1),
    (M, C); and by number the row, -1 for larger ones.
    """
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


@jit
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


@jit
def path_lengths(hops: Floats, counts: Ints, members: Ints, row: Ints32) -> Floats:
    """
    Compute the shortest paths (2).

    ``hops``: W, (C, C) seconds; ``counts``: slots by kind, (C,); ``members``, ``row``: multisets as of
    ``small_multisets``. Returns path[Q, c], (C, M) seconds, infinite where Q has no slot of kind c.
    """
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


@jit
def lengths_through(path: Floats, members: Ints, pp: int) -> Floats:
    """
    Compute the shortest paths through every kind.

    ``path``, ``members``: paths (2) and their multisets. Returns seconds of the shortest path of pp slots that starts
    at one kind and visits another, (C, C).
    """
    kinds = len(path)
    least = np.full((kinds, kinds), np.inf)
    for q in range(len(members)):
        if members[q].sum() == pp:
            for c in range(kinds):
                for d in range(kinds):
                    if members[q, d] > 0:
                        least[c, d] = min(least[c, d], path[c, q])
    return least


@jit
def least_cover(
    path: Floats, row: Ints32, counts: Ints, starts: Ints, pp: int, cutoff: float
) -> tuple[float, Ints, int]:
    """
    Cover all slots by paths from given starts, the longest as short as possible and below a cutoff, (3).

    ``path``, ``row``, ``counts``: paths (2), rows by number, and slots by kind; ``starts``: kinds of the starts, (dp,),
    equal ones together; ``cutoff``: seconds that every path stays below. Returns seconds of the longest path, infinite
    where no cover is below the cutoff; the number (1) of each path's multiset, (dp,); and how many multisets and pairs
    of them were looked at.
    """
    dp, free, steps = len(starts), counts.copy(), steps_of(counts)
    for c in starts:
        free[c] -= 1
    word, size, number, guard = _parts(free, steps)
    everything, looked = len(word) - 1, dp * len(word)
    longest, given = np.full(len(word), np.inf), np.zeros(len(word), np.int32)
    length, fitting = np.full(len(word), np.inf), np.zeros(0, np.int64)
    longest[0] = 0.0
    for k in range(dp):
        if k == 0 or starts[k] != starts[k - 1]:
            fitting = _fitting(path[starts[k]], row[steps[starts[k]] :], size, number, pp - 1, cutoff, length)
        for r in range(len(word)):
            if size[r] != k * (pp - 1) or longest[r] == np.inf:
                continue
            # The last path takes what is left.
            before, left = longest[r], (word[everything] - word[r]) | guard
            possible = fitting if k < dp - 1 else np.array([everything - r])
            looked += len(possible)
            for m in possible:
                if (left - word[m]) & guard == guard:
                    value = max(before, length[m])
                    if value < longest[r + m]:
                        longest[r + m], given[r + m] = value, m
    visited, covered = np.zeros(dp, np.int64), everything
    for k in range(dp - 1, -1, -1):
        visited[k] = number[given[covered]] + steps[starts[k]]
        covered -= given[covered]
    return longest[everything], visited, looked


@jit
def _parts(free: Ints, steps: Ints) -> tuple[Ints, Ints32, Ints32, int]:
    """Word (4), size and number (1) among all slots of every multiset of the free slots; and the free bits."""
    whole = steps_of(free)[-1]
    word, size, number = np.zeros(whole, np.int64), np.zeros(whole, np.int32), np.zeros(whole, np.int32)
    known, shift, guard = 1, 0, 0
    for c in range(len(free)):
        for r in range(known, known * (free[c] + 1)):
            word[r] = word[r - known] + (1 << shift)
            size[r], number[r] = size[r - known] + 1, number[r - known] + steps[c]
        known *= free[c] + 1
        width = 0
        while free[c] >> width:
            width += 1
        guard |= 1 << (shift + width)
        shift += width + 1
    return word, size, number, guard


@jit
def _fitting(
    path: Floats, row: Ints32, size: Ints32, number: Ints32, later: int, cutoff: float, length: Floats
) -> Ints:
    """Multisets that a path below the cutoff takes after its start; ``length`` becomes that of each, else infinite."""
    fitting, some = np.zeros(len(length), np.int64), 0
    for r in range(len(length)):
        length[r] = np.inf
        if size[r] == later and path[row[number[r]]] < cutoff:
            length[r] = path[row[number[r]]]
            fitting[some] = r
            some += 1
    return fitting[:some]


@jit
def shortest_path(
    hops: Floats, path: Floats, members: Ints, row: Ints32, counts: Ints, start: int, number: int
) -> Ints:
    """
    Recover a shortest path.

    ``start``: kind of its first slot; ``number``: number (1) of its multiset. Returns kinds in order, (slots of the
    multiset,).
    """
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
