r"""
Exact placement on at most 20 slots: dynamic programming over subsets.

Slots :math:`u, v` hold one tensor group each; W[u, v] is the seconds of a hop, already weighted. For a set Q of slots,

(1) path[Q, s] = least length of a path that starts at s and visits all of Q;
(2) a start set S (stage 0's replicas) costs ring(S) seconds; S are tried by ascending ring(S);
(3) for each S, cover[k, R] = least over ways to give R to the first k starts of the longest of their paths;
(4) stop when least + ring(S) is no better than the best found, where least = max over v of the shortest path of pp
    slots that visits v: some pipeline visits every slot.

Slots of one site are interchangeable, so of equal start sets only the one on each site's first slots is tried.
The value is exact, or after ``most_sets`` start sets the valid bound of (4) for those that were not tried.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sizes = NDArray[np.int8]
MOST_SLOTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPlacement:
    """Least seconds found, a bound that no placement beats, and the slots of the best, (dp, pp)."""

    seconds: float
    lower_bound: float
    slots: Ints


class SubsetSolver:
    """Path lengths of one hop matrix, and the exact placements that follow from them."""

    def __init__(self, hops: Floats, sites: Ints, pp: int) -> None:
        self.pp, self.dp = pp, len(sites) // pp
        self._hops = hops
        self._path, sizes = _paths(hops, pp)
        self._least = _least_cover(self._path, sizes, pp)
        rank = np.array([np.count_nonzero(sites[:u] == site) for u, site in enumerate(sites)])
        self._starts = np.array([s for s in combinations(range(len(sites)), self.dp) if _first_slots(s, sites, rank)])

    @property
    def start_sets(self) -> Ints:
        """Start sets to be priced, (sets, dp), one of each class of equal ones."""
        return self._starts

    def solve(self, ring: Floats, *, most_sets: int = 4000) -> SubsetPlacement:
        """
        Least of longest pipeline plus ring over all placements.

        Parameters
        ----------
        ring
            Seconds of each of ``start_sets``.
        most_sets
            Start sets to try before the rest is only bounded.
        """
        order = np.argsort(ring, kind="stable")
        best, slots, bound = np.inf, np.zeros((self.dp, self.pp), np.int64), np.inf
        for tried, index in enumerate(order.tolist()):
            if self._least + ring[index] >= best or tried == most_sets:
                bound = self._least + ring[index]
                break
            starts = self._starts[index]
            longest, members = _cover(self._path, starts, self.pp, best - ring[index])
            if longest + ring[index] < best:
                best, slots = float(longest + ring[index]), self._ordered(members, starts)
        return SubsetPlacement(seconds=best, lower_bound=float(min(best, bound)), slots=slots)

    def _ordered(self, members: Ints, starts: Ints) -> Ints:
        """Slots of each pipeline in stage order, from its start and the set it visits."""
        return np.array([_walk(self._hops, self._path, s, q) for s, q in zip(starts, members, strict=True)])


def _first_slots(starts: tuple[int, ...], sites: Ints, rank: Ints) -> bool:
    """Whether the chosen slots of every site are its first ones."""
    taken: dict[int, int] = {}
    for slot in starts:
        site = int(sites[slot])
        if rank[slot] != taken.get(site, 0):
            return False
        taken[site] = taken.get(site, 0) + 1
    return True


@njit(cache=True, nogil=True)
def _bits(mask: int) -> int:
    """Number of members of a set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@njit(cache=True, nogil=True)
def _paths(hops: Floats, pp: int) -> tuple[Floats, Sizes]:
    """path[Q, s] of (1) for sets of at most pp slots, and the size of every set."""
    n = hops.shape[0]
    sizes = np.zeros(1 << n, np.int8)
    path = np.full((1 << n, n), np.inf)
    for s in range(n):
        path[1 << s, s] = 0.0
    for members in range(1, 1 << n):
        sizes[members] = sizes[members >> 1] + (members & 1)
        if sizes[members] < 2 or sizes[members] > pp:
            continue
        for s in range(n):
            if members >> s & 1:
                rest = members ^ (1 << s)
                least = np.inf
                for t in range(n):
                    if rest >> t & 1:
                        least = min(least, hops[s, t] + path[rest, t])
                path[members, s] = least
    return path, sizes


@njit(cache=True, nogil=True)
def _least_cover(path: Floats, sizes: Sizes, pp: int) -> float:
    """Seconds of (4): the slot that is hardest to visit by a path of pp slots."""
    n = path.shape[1]
    least = np.full(n, np.inf)
    for members in range(1, 1 << n):
        if sizes[members] != pp:
            continue
        shortest = np.inf
        for s in range(n):
            if members >> s & 1:
                shortest = min(shortest, path[members, s])
        for v in range(n):
            if members >> v & 1:
                least[v] = min(least[v], shortest)
    return float(least.max())


@njit(cache=True, nogil=True)
def _cover(path: Floats, starts: Ints, pp: int, cutoff: float) -> tuple[float, Ints]:
    """
    Cover the slots by paths from the given starts, the longest as short as possible and below the cutoff, (3).

    Returns its length and the set that each path visits; infinity where no cover is below the cutoff.
    """
    n, dp = path.shape[1], len(starts)
    others = np.array([u for u in range(n) if not (starts == u).any()], np.int64)
    free = len(others)
    # Sets of free slots are numbered within the free slots; spread maps them to sets of all slots.
    spread = np.zeros(1 << free, np.int64)
    size = np.zeros(1 << free, np.int8)
    for members in range(1, 1 << free):
        low = members & -members
        spread[members] = spread[members ^ low] | (1 << others[_bits(low - 1)])
        size[members] = size[members ^ low] + 1
    everything = (1 << free) - 1
    longest = np.full((dp + 1, 1 << free), np.inf)
    given = np.zeros((dp + 1, 1 << free), np.int32)
    longest[0, 0] = 0.0
    for k in range(dp):
        for members in range(1 << free):
            if size[members] != pp - 1:
                continue
            length = path[spread[members] | (1 << starts[k]), starts[k]]
            if length >= cutoff:
                continue
            rest = everything ^ members
            before = rest
            while True:
                if size[before] == k * (pp - 1) and longest[k, before] < np.inf:
                    value = max(longest[k, before], length)
                    if value < longest[k + 1, before | members]:
                        longest[k + 1, before | members] = value
                        given[k + 1, before | members] = members
                if before == 0:
                    break
                before = (before - 1) & rest
    visited = np.zeros(dp, np.int64)
    covered = everything
    for k in range(dp, 0, -1):
        members = given[k, covered]
        visited[k - 1] = spread[members] | (1 << starts[k - 1])
        covered ^= members
    return longest[dp, everything], visited


@njit(cache=True, nogil=True)
def _walk(hops: Floats, path: Floats, start: int, members: int) -> Ints:
    """A shortest path from ``start`` through all of ``members``."""
    length = _bits(members)
    order = np.zeros(length, np.int64)
    order[0] = start
    for k in range(1, length):
        here, rest = order[k - 1], members ^ (1 << order[k - 1])
        least = np.inf
        for t in range(path.shape[1]):
            if rest >> t & 1 and hops[here, t] + path[rest, t] < least:
                least = hops[here, t] + path[rest, t]
                order[k] = t
        members = rest
    return order
