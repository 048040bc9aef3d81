"""
Random moves of paths on nodes, for annealing.

A move swaps two slots, or a run in one node with as many slots of another path, or all slots of two nodes; exchanges
the ends of two paths; reverses a part of a path; or moves a slot within its path. Random bits are those of a xorshift
generator, whose state is an array of one.
"""

from taut.data.arrays import Ints
from taut.formulations.compiled import jit


@jit
def draw(state: Ints) -> int:
    """A number of 31 random bits (xorshift)."""
    x = state[0]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    state[0] = x
    return int((x >> 32) & 0x7FFFFFFF)


@jit
def share(state: Ints) -> float:
    """A random number from 0 to below 1."""
    return draw(state) / 2147483648.0


@jit
def move(state: Ints, paths: Ints, y: int, z: int, shared: bool) -> bool:
    """Change paths y and z; returns whether a first slot may have changed."""
    pp = paths.shape[1]
    kind = share(state)
    i, j = draw(state) % pp, draw(state) % pp
    if shared and kind < 0.4:
        return swap_runs(state, paths, y, z, i, j)
    if y != z:
        if kind < 0.6 or pp < 3:
            paths[y, i], paths[z, j] = paths[z, j], paths[y, i]
            return bool(i == 0 or j == 0)
        i = max(i, 1)
        for x in range(i, pp):
            paths[y, x], paths[z, x] = paths[z, x], paths[y, x]
        return False
    low, high = min(i, j), max(i, j)
    first = bool(low == 0)
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
    return first


@jit
def swap_runs(state: Ints, paths: Ints, y: int, z: int, i: int, j: int) -> bool:
    """Swap the run around slot i of path y, or some of it, with as many slots of path z that begin with a run."""
    pp = paths.shape[1]
    low, high, there = i, i + 1, j
    while low > 0 and paths[y, low - 1] == paths[y, i]:
        low -= 1
    while high < pp and paths[y, high] == paths[y, i]:
        high += 1
    while there > 0 and paths[z, there - 1] == paths[z, j]:
        there -= 1
    if share(state) < 0.3:
        high = low + 1 + draw(state) % (high - low)
    size = min(high - low, pp - there)
    if y == z and abs(low - there) < size:
        return False
    for x in range(size):
        paths[y, low + x], paths[z, there + x] = paths[z, there + x], paths[y, low + x]
    return bool(low == 0 or there == 0)


@jit
def swap_nodes(paths: Ints, a: int, b: int) -> None:
    """Exchange all slots of two nodes of equal size."""
    for z in range(paths.shape[0]):
        for x in range(paths.shape[1]):
            if paths[z, x] == a:
                paths[z, x] = b
            elif paths[z, x] == b:
                paths[z, x] = a
