r"""
Where stage 0 can lie: sets of nodes that hold every clique of fast enough links.

The dp replicas of stage 0 exchange their gradients, so if their slowest link has inverse rate below b they form a
clique of size dp in the graph of the links below b. Nodes s are tried in order; with A the nodes not yet tried,

(1) every clique that meets A first in s lies in s and its neighbours in A;
(2) a node with fewer than dp - 1 neighbours there is in no such clique, and is dropped until none is left (a core);
(3) neither is one left whose nodes can be coloured with fewer than dp colours, linked nodes unlike;
(4) and none at all if branch and bound over all nodes, with (3), shows that there is no clique; of N nodes it has
    ``MOST_PAIRS`` / N^2 branches, as colouring for one looks at up to N^2 pairs.

The cores that remain hold every clique. No core: no clique, and b bounds the slowest link. Of more than ``MOST_PIVOTS``
nodes the one core of all is taken in their place.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit

MOST_PIVOTS = 192
MOST_PAIRS = 40_000 * 128 * 128
MOST_SETS, MOST_APART = 4, 24
MOST_GROWTH, APART = 1.34, 1.9
"""
Start sets are joined while there are more, or while the union is at most so much larger than the larger one.

Of those that lie apart, such as racks, whose union would be so much larger, more are kept.
"""


def clique_sets(inverse: Floats, below: float, size: int) -> Flags:
    """
    Sets of nodes, (sets, N), that hold every clique of ``size`` nodes with all links below a rate, by (1) to (4).

    Parameters
    ----------
    inverse
        Symmetric seconds per byte between nodes, (N, N); the diagonal is ignored.
    below
        Links count from here down, this value not included.
    size
        Nodes of a clique; a single node is one.
    """
    linked = (inverse < below) & ~np.eye(len(inverse), dtype=bool)
    whole = core(linked, np.ones(len(linked), dtype=bool), size)
    if has_none(linked, whole, size, MOST_PAIRS // len(linked) ** 2):
        return whole[None, :][:0]
    return whole[None, :] if len(linked) > MOST_PIVOTS else np.unique(_cores(linked, whole, size), axis=0)


def least_slowest_link(inverse: Floats, size: int) -> float:
    """Seconds per byte of the slowest link of any ``size`` nodes, at least; zero for a single node."""
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
    """What (2) leaves of a set of nodes."""
    left = among.copy()
    _shrink(linked, left, size)
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
        _shrink(linked, core, size)
        if core[s] and colours(linked, core) >= size:
            kept[count] = core
            count += 1
        alive[s] = False
        _shrink(linked, alive, size)
    return kept[:count]


@jit
def _shrink(linked: Flags, alive: Flags, size: int) -> None:
    """Drop nodes with fewer than ``size`` - 1 neighbours until none is left."""
    changed = True
    while changed:
        changed = False
        for v in range(len(alive)):
            if alive[v] and np.count_nonzero(linked[v] & alive) < size - 1:
                alive[v] = False
                changed = True


@jit
def colours(linked: Flags, among: Flags) -> int:
    """Colours that a greedy colouring of the nodes takes: no clique has more nodes."""
    order, colour = np.zeros(len(among), np.int64), np.zeros(len(among), np.int64)
    count = _coloured(linked, among, order, colour)
    return colour[count - 1] if count else 0


@jit
def has_none(linked: Flags, among: Flags, size: int, most: int) -> bool:
    """Whether (4) shows with so many branches at most that no clique lies among some nodes."""
    n = len(among)
    left = np.zeros((size + 1, n), np.bool_)
    order, colour = np.zeros((size + 1, n), np.int64), np.zeros((size + 1, n), np.int64)
    at = np.zeros(size + 1, np.int64)
    left[0] = among
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


@jit
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


def joined(sets: Flags) -> list[Flags]:
    """Fewer sets that hold the given ones: the two with the smallest union are joined while that adds little."""
    joined = _without_parts(sets)
    while len(joined) > 1:
        table = np.array(joined, dtype=np.int64)
        sizes = table.sum(axis=1)
        unions = sizes[:, None] + sizes[None, :] - table @ table.T
        growth = unions / np.maximum(sizes[:, None], sizes[None, :]) + 9.0 * np.eye(len(joined))
        a, b = np.unravel_index(int(np.argmin(growth)), growth.shape)
        if growth[a, b] > MOST_GROWTH and len(joined) <= (MOST_APART if growth[a, b] > APART else MOST_SETS):
            break
        union = joined[a] | joined[b]
        joined = [part for part in joined if not (part <= union).all()] + [union]
    return joined


def _without_parts(sets: Flags) -> list[Flags]:
    """The sets that are in no other, largest first."""
    kept: list[Flags] = []
    for part in sorted(sets, key=lambda s: (-int(s.sum()), s.tobytes())):
        if not any((part <= other).all() for other in kept):
            kept.append(part)
    return kept
