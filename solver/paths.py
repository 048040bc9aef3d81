r"""
Pipelines on nodes by simulated annealing: good placements of many nodes, never a bound.

The state is dp paths of pp slots (``taut.solver.slots``), each the number of a node. With :math:`c_z` the seconds of a
path's hops beyond those of the shortest hops, and R the seconds of the ring over the first slots, annealing minimises

(1) :math:`(\sum_z c_z^8)^{1/8} + R`

in place of :math:`\max_z c_z + R`: every long path counts, so that no move is lost on the plateaus of a maximum. Moves
swap two slots, or a run in one node with as many slots of another path, or all slots of two nodes; exchange the ends of
two paths; reverse a part of a path; or move a slot within its path. The best placement by the maximum is kept.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.solver.slots import Slots

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOT, WARM, MILD, COLD = 0.3, 0.15, 0.05, 0.002
"""First temperatures, the lower the more of the start is to be kept, and the last, in standard deviations of hops."""
WHOLE_NODES = 0.02
"""Share of moves that exchange two nodes of several slots."""
CHUNK = 400_000
"""Moves of one call into compiled code."""


class PathAnnealing:
    """
    One run of annealing over a fixed number of moves, chunk by chunk.

    ``seconds`` and ``best`` are the least of longest path plus ring for ``gradients`` bytes, and its paths. ``hot``
    is the first temperature.
    """

    def __init__(self, given: Slots, gradients: float, paths: Ints, *, moves: int, seed: int, hot: float = HOT) -> None:
        hops, apart = given.hops, ~np.eye(len(given.hops), dtype=bool)
        self._hops, self._inverse, self._gradients = hops, given.inverse, gradients
        self._base, self._capacity = (given.pp - 1) * given.least_hop(), given.capacity
        self._paths, self._seed = paths.copy(), seed
        self._chunks = max(-(-moves // CHUNK), 1)
        self._moves, self._done = -(-moves // self._chunks), 0
        self._hot = hot
        self._scale = max(float(hops[apart].std()), 1e-12 * float(hops[apart].max()), 1e-300)
        self.best, self.seconds = paths.copy(), _longest(hops, given.inverse, gradients, paths)

    @property
    def finished(self) -> bool:
        """Whether all moves were made."""
        return self._done >= self._chunks

    def advance(self) -> None:
        """Make one chunk of moves."""
        cooling = (COLD / self._hot) ** (1.0 / self._chunks)
        hot = self._hot * self._scale * cooling**self._done
        seconds, best = _anneal(
            self._hops,
            self._inverse,
            self._gradients,
            self._base,
            self._capacity,
            self._paths,
            self._moves,
            hot,
            hot * cooling,
            (self._seed * 7919 + self._done) % 1000003,
        )
        if seconds < self.seconds:
            self.seconds, self.best = seconds, best
        self._done += 1


@njit(cache=True, nogil=True)
def _draw(state: Ints) -> int:
    """A number of 31 random bits (xorshift)."""
    x = state[0]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    state[0] = x
    return int((x >> 32) & 0x7FFFFFFF)


@njit(cache=True, nogil=True)
def _share(state: Ints) -> float:
    """A random number from 0 to below 1."""
    return _draw(state) / 2147483648.0


@njit(cache=True, nogil=True)
def _length(hops: Floats, path: Ints) -> float:
    length = 0.0
    for x in range(len(path) - 1):
        length += hops[path[x], path[x + 1]]
    return length


@njit(cache=True, nogil=True)
def _slowest(inverse: Floats, paths: Ints) -> float:
    """Slowest inverse rate between first slots of unlike nodes."""
    slowest = 0.0
    for a in range(len(paths)):
        for b in range(a):
            if paths[a, 0] != paths[b, 0]:
                slowest = max(slowest, inverse[paths[a, 0], paths[b, 0]])
    return slowest


@njit(cache=True, nogil=True)
def _slowest_after(inverse: Floats, paths: Ints, slowest: float, removed: Ints, added: Ints) -> float:
    """The slowest when two first slots have changed nodes: all pairs only where the slowest may have gone."""
    gone, new = 0.0, 0.0
    if removed[0] != removed[1]:
        gone = inverse[removed[0], removed[1]]
    for z in range(len(paths)):
        v = paths[z, 0]
        for k in range(2):
            if v != removed[k]:
                gone = max(gone, inverse[v, removed[k]])
            if v != added[k]:
                new = max(new, inverse[v, added[k]])
    return max(slowest, new) if gone < slowest else _slowest(inverse, paths)


@njit(cache=True, nogil=True)
def _ring(inverse: Floats, paths: Ints, slowest: float, count: Ints) -> float:
    """Seconds per byte of the data-parallel ring over the first slots; ``count`` is a scratch by node."""
    for z in range(len(paths)):
        count[paths[z, 0]] = 0
    for z in range(len(paths)):
        count[paths[z, 0]] += 1
    inside, touched = 0.0, 0.0
    for z in range(len(paths)):
        v = paths[z, 0]
        g = count[v]
        touched += 1.0 / g
        if g > 1:
            inside = max(inside, 4.0 * (g - 1) / g * inverse[v, v])
    return inside + 2.0 * (touched - 1.0) / touched * slowest


@njit(cache=True, nogil=True)
def _longest(hops: Floats, inverse: Floats, gradients: float, paths: Ints) -> float:
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, _length(hops, paths[z]))
    return longest + gradients * _ring(inverse, paths, _slowest(inverse, paths), np.zeros(len(hops), np.int64))


@njit(cache=True, nogil=True)
def _power(length: float, base: float, unit: float) -> float:
    """The eighth power of what a path takes beyond ``base``."""
    x = max(length - base, 0.0) / unit
    x *= x
    x *= x
    return x * x


@njit(cache=True, nogil=True)
def _move(state: Ints, paths: Ints, y: int, z: int, shared: bool) -> bool:
    """Change paths y and z; returns whether a first slot may have changed."""
    pp = paths.shape[1]
    kind = _share(state)
    i, j = _draw(state) % pp, _draw(state) % pp
    if shared and kind < 0.4:
        return _swap_runs(state, paths, y, z, i, j)
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


@njit(cache=True, nogil=True)
def _swap_runs(state: Ints, paths: Ints, y: int, z: int, i: int, j: int) -> bool:
    """Swap the run around slot i of path y, or some of it, with as many slots of path z that begin with a run."""
    pp = paths.shape[1]
    low, high, there = i, i + 1, j
    while low > 0 and paths[y, low - 1] == paths[y, i]:
        low -= 1
    while high < pp and paths[y, high] == paths[y, i]:
        high += 1
    while there > 0 and paths[z, there - 1] == paths[z, j]:
        there -= 1
    if _share(state) < 0.3:
        high = low + 1 + _draw(state) % (high - low)
    size = min(high - low, pp - there)
    if y == z and abs(low - there) < size:
        return False
    for x in range(size):
        paths[y, low + x], paths[z, there + x] = paths[z, there + x], paths[y, low + x]
    return bool(low == 0 or there == 0)


@njit(cache=True, nogil=True)
def _swap_nodes(paths: Ints, a: int, b: int) -> None:
    """Exchange all slots of two nodes of equal size."""
    for z in range(paths.shape[0]):
        for x in range(paths.shape[1]):
            if paths[z, x] == a:
                paths[z, x] = b
            elif paths[z, x] == b:
                paths[z, x] = a


@njit(cache=True, nogil=True)
def _anneal(
    hops: Floats,
    inverse: Floats,
    gradients: float,
    base: float,
    capacity: Ints,
    paths: Ints,
    moves: int,
    hot: float,
    cold: float,
    seed: int,
) -> tuple[float, Ints]:
    """Anneal the paths in place from one temperature to another; returns the best seconds and paths."""
    state = np.full(1, 88172645463325252 + 7046029254386353 * seed, np.int64)
    for _ in range(8):
        _draw(state)
    dp, pp = paths.shape
    lengths = np.array([_length(hops, paths[z]) for z in range(dp)])
    count = np.zeros(len(hops), np.int64)
    slowest = _slowest(inverse, paths)
    ring = gradients * _ring(inverse, paths, slowest, count)
    removed, added = np.zeros(2, np.int64), np.zeros(2, np.int64)
    best, best_paths = lengths.max() + ring, paths.copy()
    unit = max(lengths.max() - base, 1e-300)
    powers = np.array([_power(length, base, unit) for length in lengths])
    total = powers.sum()
    value = unit * total**0.125 + ring
    cooling = (cold / hot) ** (1.0 / moves)
    old_y, old_z = np.zeros(pp, np.int64), np.zeros(pp, np.int64)
    temperature = hot
    shared = capacity.max() > 1
    for _ in range(moves):
        temperature *= cooling
        if shared and _share(state) < WHOLE_NODES:
            a, b = _draw(state) % len(capacity), _draw(state) % len(capacity)
            if capacity[a] != capacity[b]:
                continue
            _swap_nodes(paths, a, b)
            powers_then, total_then = powers.copy(), total
            for k in range(dp):
                lengths[k] = _length(hops, paths[k])
                powers[k] = _power(lengths[k], base, unit)
            total = powers.sum()
            slowest_then, slowest = slowest, _slowest(inverse, paths)
            ringed = gradients * _ring(inverse, paths, slowest, count)
            candidate = unit * np.sqrt(np.sqrt(np.sqrt(total))) + ringed
            if candidate <= value or _share(state) < np.exp((value - candidate) / temperature):
                value, ring = candidate, ringed
                if lengths.max() + ring < best:
                    best = lengths.max() + ring
                    best_paths[:] = paths
            else:
                _swap_nodes(paths, a, b)
                powers, total, slowest = powers_then, total_then, slowest_then
                for k in range(dp):
                    lengths[k] = _length(hops, paths[k])
            continue
        y = _draw(state) % dp
        z = _draw(state) % dp if _share(state) < 0.8 else y
        old_y[:] = paths[y]
        old_z[:] = paths[z]
        first = _move(state, paths, y, z, shared)
        long_y, long_z = _length(hops, paths[y]), _length(hops, paths[z])
        power_y, power_z = _power(long_y, base, unit), _power(long_z, base, unit)
        changed = total - powers[y] + power_y
        if y != z:
            changed += power_z - powers[z]
        ringed, slowest_then = ring, slowest
        if first and gradients > 0.0:
            removed[0], removed[1], added[0], added[1] = old_y[0], old_z[0], paths[y, 0], paths[z, 0]
            slowest = _slowest_after(inverse, paths, slowest, removed, added)
            ringed = gradients * _ring(inverse, paths, slowest, count)
        candidate = unit * np.sqrt(np.sqrt(np.sqrt(max(changed, 0.0)))) + ringed
        if candidate <= value or _share(state) < np.exp((value - candidate) / temperature):
            value, ring, total = candidate, ringed, changed
            lengths[y], lengths[z], powers[y], powers[z] = long_y, long_z, power_y, power_z
            longest = 0.0
            for k in range(dp):
                longest = max(longest, lengths[k])
            if longest + ring < best:
                best = longest + ring
                best_paths[:] = paths
        else:
            slowest = slowest_then
            paths[y] = old_y
            paths[z] = old_z
    return best, best_paths
