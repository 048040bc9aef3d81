r"""
Clique and core bounds: sets of nodes in which stage 0 lies.

Sets: nodes; links (a, b) with inverse rate below b, a graph. The dp replicas of stage 0 exchange gradients, so if their
slowest link is below b they form a clique of k nodes, k the nodes they touch.

With nodes s tried in order, and A the nodes not yet tried,

(1) every clique that meets A first in s lies in s and its neighbours in A;
(2) a node with fewer than k - 1 neighbours there is in no such clique; dropping these until none is left gives the
    (k - 1)-core;
(3) a core whose nodes can be coloured with fewer than k colours, linked nodes differently, holds no clique;
(4) nor does any where branch and bound over all nodes with (3) finds none; of N nodes it has ``MAX_PAIRS`` / N^2
    branches, since colouring for one looks at up to N^2 pairs.

The cores that remain hold every clique. Without a core there is no clique, and b bounds the slowest link: the
bottleneck clique bound. Of more than ``MAX_PIVOTS`` nodes the one core of all is taken in their place.

References
----------
Seidman (1983), Network structure and minimum degree: k-cores. Tomita and Seki (2003), An efficient branch-and-bound
algorithm for finding a maximum clique: (3) and (4), colours as bound and branching order.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit, jit_inside

MAX_PIVOTS = 192
"""Nodes up to which every node has a core of its own: cores take O(N^3) together."""
MAX_PAIRS = 40_000 * 128 * 128
"""Pairs of nodes that (4) looks at, which bounds its time: 40,000 branches for 128 nodes."""
MAX_SETS, MAX_APART = 4, 24
"""Start sets that are kept if they overlap, and if they lie apart, such as racks: each needs proofs of its own."""
MAX_GROWTH, APART = 1.34, 1.9
"""
Start sets are merged while there are more than ``MAX_SETS`` (``MAX_APART`` if the smallest union is more than ``APART``
times the larger one), or while the union is at most ``MAX_GROWTH`` times the larger one.

A larger set has a weaker bound, more sets cost more proofs; merging is valid for any values.
"""


def clique_sets(inverse: Floats, below: float, size: int) -> Flags:
    """Sets (sets, N) that hold every clique of ``size`` nodes with links strictly below a rate (s/byte), (1) to (4)."""
    linked = (inverse < below) & ~np.eye(len(inverse), dtype=bool)
    whole = core(linked, np.ones(len(linked), dtype=bool), size)
    if has_no_clique(linked, whole, size, MAX_PAIRS // len(linked) ** 2):
        return whole[None, :][:0]
    return whole[None, :] if len(linked) > MAX_PIVOTS else np.unique(_cores(linked, whole, size), axis=0)


def bottleneck_clique_bound(inverse: Floats, size: int) -> float:
    """Seconds per byte of the slowest link of any ``size`` nodes at least, by bisection; zero for one node."""
    if size < 2:
        return 0.0
    steps = np.unique(inverse[~np.eye(len(inverse), dtype=bool)])
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        some = len(clique_sets(inverse, float(np.nextafter(steps[middle], np.inf)), size)) > 0
        low, high = (low, middle) if some else (middle + 1, high)
    return float(steps[low])


def core(linked: Flags, among: Flags, size: int) -> Flags:
    """Flags (N,) of the core of a set of nodes, (2), of those ``linked`` (N, N)."""
    left = among.copy()
    shrink(linked, left, size)
    return left


@jit
def _cores(linked: Flags, whole: Flags, size: int) -> Flags:
    """The cores of (2) that (3) leaves, one for every node of the whole that has one."""
    n = len(linked)
    kept = np.zeros((n, n), np.bool_)
    count = 0
    alive = whole.copy()
    for s in range(n):
        if not alive[s]:
            continue
        core = alive & linked[s]
        core[s] = True
        shrink(linked, core, size)
        if core[s] and num_greedy_colours(linked, core) >= size:
            kept[count] = core
            count += 1
        alive[s] = False
        shrink(linked, alive, size)
    return kept[:count]


@jit
def shrink(linked: Flags, alive: Flags, size: int) -> None:
    """Drop nodes ``alive`` (N,) with fewer than ``size`` - 1 neighbours until none is left."""
    changed = True
    while changed:
        changed = False
        for v in range(len(alive)):
            if alive[v] and np.count_nonzero(linked[v] & alive) < size - 1:
                alive[v] = False
                changed = True


@jit
def num_greedy_colours(linked: Flags, among: Flags) -> int:
    """Colours of a greedy colouring of some nodes, (3): no clique has more nodes."""
    order, colour = np.zeros(len(among), np.int64), np.zeros(len(among), np.int64)
    count = _coloured(linked, among, order, colour)
    return colour[count - 1] if count else 0


@jit
def has_no_clique(linked: Flags, among: Flags, size: int, most: int) -> bool:
    """Whether no clique is found, (4); False as well if ``most`` branches did not decide."""
    n = len(among)
    left = np.zeros((size + 1, n), np.bool_)
    order, colour = np.zeros((size + 1, n), np.int64), np.zeros((size + 1, n), np.int64)
    at = np.zeros(size + 1, np.int64)
    for v in range(n):
        left[0, v] = among[v]
    at[0] = _coloured(linked, among, order[0], colour[0])
    depth, branches = 0, 0
    while depth >= 0 and branches < most:
        at[depth] -= 1
        # With its colours a branch cannot reach the size, nor can those before it, which have no more.
        if at[depth] < 0 or depth + colour[depth, at[depth]] < size:
            depth -= 1
            continue
        branches += 1
        v = order[depth, at[depth]]
        left[depth, v] = False
        if depth + 1 == size:
            return False
        left[depth + 1] = left[depth] & linked[v]
        depth += 1
        at[depth] = _coloured(linked, left[depth], order[depth], colour[depth])
    return depth < 0


@jit_inside
def _coloured(linked: Flags, among: Flags, order: Ints, colour: Ints) -> int:
    """Nodes in the order of their colours, from 1, and how many there are."""
    left, count, colours = among.copy(), 0, 0
    while left.any():
        colours += 1
        free = left.copy()
        for v in range(len(left)):
            if free[v]:
                left[v] = False
                order[count], colour[count] = v, colours
                count += 1
                for u in range(v + 1, len(left)):
                    free[u] &= not linked[v, u]
    return count


def merged(sets: Flags) -> list[Flags]:
    """Fewer sets that hold all: the two with the smallest union are merged while it is hardly larger."""
    kept = _without_subsets(sets)
    while len(kept) > 1:
        table = np.array(kept, dtype=np.int64)
        sizes = table.sum(axis=1)
        unions = sizes[:, None] + sizes[None, :] - table @ table.T
        growth = unions / np.maximum(sizes[:, None], sizes[None, :]) + 9.0 * np.eye(len(kept))
        a, b = np.unravel_index(int(np.argmin(growth)), growth.shape)
        if growth[a, b] > MAX_GROWTH and len(kept) <= (MAX_APART if growth[a, b] > APART else MAX_SETS):
            break
        union = kept[a] | kept[b]
        kept = [part for part in kept if not (part <= union).all()] + [union]
    return kept


def _without_subsets(sets: Flags) -> list[Flags]:
    """The sets that are in no other, largest first."""
    kept: list[Flags] = []
    for part in sorted(sets, key=lambda s: (-int(s.sum()), s.tobytes())):
        if not any((part <= other).all() for other in kept):
            kept.append(part)
    return kept
