r"""
Pipelines on nodes by simulated annealing: good placements of many nodes, never a bound.

The state is dp paths of pp nodes. With :math:`c_z` the seconds of a path's hops beyond those of the shortest hops, and
b the slowest inverse rate between first nodes, annealing minimises

(1) :math:`(\sum_z c_z^8)^{1/8} + r b`

in place of :math:`\max_z c_z + r b`: every long path counts, so that no move is lost on the plateaus of a maximum.
Moves swap two nodes, exchange the ends of two paths, reverse a part of a path, or move a node within its path. The best
placement by the maximum is kept.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOT, COLD = 0.3, 0.002
"""First and last temperature, in standard deviations of the hops."""
CHUNK = 400_000
"""Moves of one call into compiled code."""


class PathAnnealing:
    """
    One run of annealing over a fixed number of moves, chunk by chunk.

    ``seconds`` and ``best`` are the least of longest path plus ``ring`` times the slowest inverse rate, and its paths.
    """

    def __init__(self, hops: Floats, inverse: Floats, ring: float, paths: Ints, *, moves: int, seed: int) -> None:
        apart = ~np.eye(len(hops), dtype=bool)
        self._hops, self._inverse, self._ring = hops, inverse, ring
        self._paths, self._seed = paths.copy(), seed
        self._chunks = max(-(-moves // CHUNK), 1)
        self._moves, self._done = -(-moves // self._chunks), 0
        self._scale = max(float(hops[apart].std()), 1e-12 * float(hops[apart].max()), 1e-300)
        self.best, self.seconds = paths.copy(), _longest(hops, inverse, ring, paths)

    @property
    def finished(self) -> bool:
        """Whether all moves were made."""
        return self._done >= self._chunks

    def advance(self) -> None:
        """Make one chunk of moves."""
        cooling = (COLD / HOT) ** (1.0 / self._chunks)
        hot = HOT * self._scale * cooling**self._done
        seconds, best = _anneal(
            self._hops,
            self._inverse,
            self._ring,
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
    slowest = 0.0
    for a in range(len(paths)):
        for b in range(a):
            slowest = max(slowest, inverse[paths[a, 0], paths[b, 0]])
    return slowest


@njit(cache=True, nogil=True)
def _longest(hops: Floats, inverse: Floats, ring: float, paths: Ints) -> float:
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, _length(hops, paths[z]))
    return longest + ring * _slowest(inverse, paths)


@njit(cache=True, nogil=True)
def _power(length: float, base: float, unit: float) -> float:
    """The eighth power of what a path takes beyond ``base``."""
    x = max(length - base, 0.0) / unit
    x *= x
    x *= x
    return x * x


@njit(cache=True, nogil=True)
def _move(state: Ints, paths: Ints, y: int, z: int) -> bool:
    """Change paths y and z; returns whether a first node may have changed."""
    pp = paths.shape[1]
    kind = _share(state)
    i, j = _draw(state) % pp, _draw(state) % pp
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
def _anneal(
    hops: Floats, inverse: Floats, ring: float, paths: Ints, moves: int, hot: float, cold: float, seed: int
) -> tuple[float, Ints]:
    """Anneal the paths in place from one temperature to another; returns the best seconds and paths."""
    state = np.full(1, 88172645463325252 + 7046029254386353 * seed, np.int64)
    for _ in range(8):
        _draw(state)
    dp, pp = paths.shape
    lengths = np.array([_length(hops, paths[z]) for z in range(dp)])
    slowest = _slowest(inverse, paths)
    best, best_paths = lengths.max() + ring * slowest, paths.copy()
    base = (pp - 1) * hops.max()
    for a in range(len(hops)):
        for b in range(a):
            base = min(base, (pp - 1) * hops[a, b])
    unit = max(lengths.max() - base, 1e-300)
    powers = np.array([_power(length, base, unit) for length in lengths])
    total = powers.sum()
    value = unit * total**0.125 + ring * slowest
    cooling = (cold / hot) ** (1.0 / moves)
    old_y, old_z = np.zeros(pp, np.int64), np.zeros(pp, np.int64)
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        y = _draw(state) % dp
        z = _draw(state) % dp if _share(state) < 0.8 else y
        old_y[:] = paths[y]
        old_z[:] = paths[z]
        first = _move(state, paths, y, z)
        long_y, long_z = _length(hops, paths[y]), _length(hops, paths[z])
        power_y, power_z = _power(long_y, base, unit), _power(long_z, base, unit)
        changed = total - powers[y] + power_y
        if y != z:
            changed += power_z - powers[z]
        ringed = _slowest(inverse, paths) if first and ring > 0.0 else slowest
        candidate = unit * np.sqrt(np.sqrt(np.sqrt(max(changed, 0.0)))) + ring * ringed
        if candidate <= value or _share(state) < np.exp((value - candidate) / temperature):
            value, slowest, total = candidate, ringed, changed
            lengths[y], lengths[z], powers[y], powers[z] = long_y, long_z, power_y, power_z
            longest = 0.0
            for k in range(dp):
                longest = max(longest, lengths[k])
            if longest + ring * slowest < best:
                best = longest + ring * slowest
                best_paths[:] = paths
        else:
            paths[y] = old_y
            paths[z] = old_z
    return best, best_paths
