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


def steps_of(counts: Ints) -> Ints:
    """Steps s_c of (1) from slots by kind (C,), and the number of all multisets as the last entry, (C + 1,)."""
    return np.append(np.int64(1), np.cumprod(counts + 1))


def small_multisets(counts: Ints, most: int) -> tuple[Ints, Ints32]:
    """Multisets (M, C) of at most so many slots by ascending number (1), and by number the row, -1 for others."""
    numbers, size = np.arange(steps_of(counts)[-1]), 0
    for step, count in zip(steps_of(counts).tolist(), counts.tolist(), strict=False):
        size = size + numbers // step % (count + 1)
    small = np.flatnonzero(size <= most)
    row = np.full(len(numbers), -1, np.int32)
    row[small] = np.arange(len(small))
    return small[:, None] // steps_of(counts)[:-1] % (counts + 1), row


def path_lengths(hops: Floats, counts: Ints, members: Ints, row: Ints32) -> Floats:
    """Shortest paths (2), path[c, Q] (C, M) seconds, infinite where Q has no slot of kind c."""
    path = np.full((len(counts), len(members)), np.inf)
    _find_paths(hops, steps_of(counts), members, row, path)
    return path


@jit
def _find_paths(hops: Floats, steps: Ints, members: Ints, row: Ints32, path: Floats) -> None:
    """Fill the shortest paths (2) by ascending number; ``path`` is infinite before."""
    kinds = len(hops)
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


def lengths_through(path: Floats, members: Ints, pp: int) -> Floats:
    """Seconds (C, C) of the shortest path of pp slots that starts at one kind and visits another."""
    whole = np.flatnonzero(members.sum(axis=1) == pp)
    through = [path[:, whole[members[whole, d] > 0]].min(axis=1, initial=np.inf) for d in range(len(path))]
    return np.stack(through, axis=1)


def least_cover(
    path: Floats, row: Ints32, counts: Ints, starts: Ints, pp: int, cutoff: float
) -> tuple[float, Ints, int]:
    """Seconds (infinite: none) of a cover by paths from starts, multisets (dp,), numbers of multisets, pairs, (3)."""
    dp, free, steps = len(starts), counts - np.bincount(starts, minlength=len(counts)), steps_of(counts)
    word, size, number, guard = _parts(free, steps)
    everything, looked = len(word) - 1, dp * len(word)
    longest, given = np.full(len(word), np.inf), np.zeros(len(word), np.int32)
    longest[0] = 0.0
    for k in range(dp):
        if k == 0 or starts[k] != starts[k - 1]:
            length = path[starts[k], row[steps[starts[k]] + number]]
            length[(size != pp - 1) | (length >= cutoff)] = np.inf
            fitting = np.flatnonzero(length < cutoff)
        begun = np.flatnonzero((size == k * (pp - 1)) & (longest < np.inf))
        if k < dp - 1:
            looked += len(begun) * len(fitting)
            _add_path(begun, fitting, word, guard, length, longest, given)
        else:
            # The last path takes what is left.
            looked += len(begun)
            worse = np.maximum(longest[begun], length[everything - begun])
            if len(begun) > 0 and worse.min() < longest[everything]:
                chosen = int(worse.argmin())
                longest[everything], given[everything] = worse[chosen], everything - begun[chosen]
    visited, covered = np.zeros(dp, np.int64), everything
    for k in range(dp - 1, -1, -1):
        visited[k] = number[given[covered]] + steps[starts[k]]
        covered -= int(given[covered])
    return float(longest[everything]), visited, looked


@jit
def _add_path(
    begun: Ints, fitting: Ints, word: Ints, guard: int, length: Floats, longest: Floats, given: Ints32
) -> None:
    """One more path, from a start to any of the multisets that fit, after the covers that are begun."""
    everything = word[len(word) - 1]
    for r in begun:
        before, left = longest[r], (everything - word[r]) | guard
        for m in fitting:
            if (left - word[m]) & guard == guard:
                value = max(before, length[m])
                if value < longest[r + m]:
                    longest[r + m], given[r + m] = value, m


def _parts(free: Ints, steps: Ints) -> tuple[Ints, Ints, Ints, int]:
    """Word (4), size and number (1) among all slots of every multiset of the free slots; and the free bits."""
    numbers = np.arange(steps_of(free)[-1])
    word, size, number = np.zeros_like(numbers), np.zeros_like(numbers), np.zeros_like(numbers)
    known, shift, guard = 1, 0, 0
    for count, step in zip(free.tolist(), steps.tolist(), strict=False):
        some = numbers // known % (count + 1)
        word, size, number = word + (some << shift), size + some, number + some * step
        known *= count + 1
        guard |= 1 << (shift + count.bit_length())
        shift += count.bit_length() + 1
    return word, size, number, guard


def shortest_path(
    hops: Floats, path: Floats, members: Ints, row: Ints32, counts: Ints, start: int, number: int
) -> Ints:
    """Kinds in order of a shortest path from a kind ``start`` over the multiset of a number (1)."""
    steps = steps_of(counts)
    order = np.zeros(members[row[number]].sum(), np.int64)
    order[0] = start
    for k in range(1, len(order)):
        number -= int(steps[order[k - 1]])
        order[k] = (hops[order[k - 1]] + path[:, row[number]]).argmin()
    return order
