"""
Random moves of paths on nodes, for annealing.

A state is an array (dp, pp) of nodes, a path a row. A move does one of these:

(1) swaps two slots, of one or two paths;
(2) swaps a segment, a stretch of a path in one node, with as many slots of another path;
(3) exchanges the ends of two paths from one stage on;
(4) reverses a part of a path;
(5) takes a slot out of its path and puts it in elsewhere;
(6) exchanges all slots of two nodes.

Random bits are those of a xorshift generator (Marsaglia 2003, Xorshift RNGs), whose state is an array of one.
"""

from taut.data.arrays import Ints
from taut.formulations.compiled import jit


@jit
def draw(state: Ints) -> int:
    """Draw 31 random bits; ``state`` (1,) changes."""
    x = state[0]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    state[0] = x
    return int((x >> 32) & 0x7FFFFFFF)


@jit
def share(state: Ints) -> float:
    """Draw a random number from 0 to below 1."""
    return draw(state) / 2147483648.0


@jit
def below(state: Ints, bound: int) -> int:
    """Draw a random number from 0 to below ``bound``, at most 2^31, without a division."""
    return (draw(state) * bound) >> 31


@jit
def move(state: Ints, paths: Ints, y: int, z: int, shared: bool) -> None:
    """
    Make one of the moves (1) to (5).

    ``state``: the random generator, (1,); ``paths``: nodes of every path, (dp, pp), changed in place; ``y``, ``z``: the
    paths to change; the same path twice for moves within one; ``shared``: whether any node has several slots, so that
    (2) makes sense.
    """
    pp = paths.shape[1]
    kind = share(state)
    i, j = below(state, pp), below(state, pp)
    if shared and kind < 0.4:
        swap_segments(state, paths, y, z, i, j)
        return
    if y != z:
        if kind < 0.6 or pp < 3:
            paths[y, i], paths[z, j] = paths[z, j], paths[y, i]
            return
        i = max(i, 1)
        for x in range(i, pp):
            paths[y, x], paths[z, x] = paths[z, x], paths[y, x]
        return
    low, high = min(i, j), max(i, j)
    if kind < 0.5:
        while low < high:
            paths[y, low], paths[y, high] = paths[y, high], paths[y, low]
            low += 1
            high -= 1
    else:
        moved, towards = paths[y, i], 1 if j > i else -1
        while i != j:
            paths[y, i] = paths[y, i + towards]
            i += towards
        paths[y, j] = moved


@jit
def swap_segments(state: Ints, paths: Ints, y: int, z: int, i: int, j: int) -> None:
    """
    Swap the segment around a slot, or a part of it, with as many slots that begin with a segment, (2).

    ``state``: the random generator, (1,); ``paths``: nodes of every path, (dp, pp), changed in place; ``i``, ``j``:
    slots of y and z in the segments.
    """
    pp = paths.shape[1]
    low, high, there = i, i + 1, j
    while low > 0 and paths[y, low - 1] == paths[y, i]:
        low -= 1
    while high < pp and paths[y, high] == paths[y, i]:
        high += 1
    while there > 0 and paths[z, there - 1] == paths[z, j]:
        there -= 1
    if share(state) < 0.3:
        high = low + 1 + below(state, high - low)
    size = min(high - low, pp - there)
    if y == z and abs(low - there) < size:
        return
    for x in range(size):
        paths[y, low + x], paths[z, there + x] = paths[z, there + x], paths[y, low + x]


@jit
def swap_nodes(paths: Ints, a: int, b: int) -> None:
    """Exchange all slots of nodes a and b, of equal size, in ``paths`` (dp, pp), (6)."""
    for z in range(paths.shape[0]):
        for x in range(paths.shape[1]):
            if paths[z, x] == a:
                paths[z, x] = b
            elif paths[z, x] == b:
                paths[z, x] = a
