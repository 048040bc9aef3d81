r"""
Pipelines on nodes by simulated annealing: good placements of many nodes, never a bound.

The state is dp paths of pp slots (``taut.solver.placement.slots``), each the number of a node. With :math:`c_z` the
seconds of a path's hops beyond those of the shortest hops, and R the seconds of the ring over the first slots,
annealing minimises

(1) :math:`(\sum_z c_z^8)^{1/8} + R`

in place of :math:`\max_z c_z + R`: every long path counts, so that no move is lost on the plateaus of a maximum. The
moves are those of ``taut.solver.placement.annealing.path_moves``. The best placement by the maximum is kept.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.annealing.path_moves import draw, move, share, swap_nodes
from taut.solver.placement.annealing.path_prices import (
    longest_and_ring,
    path_length,
    power,
    ring_by_byte,
    slowest_link,
    slowest_link_after,
)
from taut.solver.placement.slots import SlotGraph

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

    def __init__(
        self, graph: SlotGraph, gradients: float, paths: Ints, *, moves: int, seed: int, hot: float = HOT
    ) -> None:
        hops, apart = graph.hops, ~np.eye(len(graph.hops), dtype=bool)
        self._hops, self._inverse, self._gradients = hops, graph.inverse, gradients
        self._base, self._capacity = (graph.pp - 1) * graph.shortest_hop(), graph.capacity
        self._paths, self._seed = paths.copy(), seed
        self._chunks = max(-(-moves // CHUNK), 1)
        self._moves, self._done = -(-moves // self._chunks), 0
        self._hot = hot
        self._scale = max(float(hops[apart].std()), 1e-12 * float(hops[apart].max()), 1e-300)
        self.best, self.seconds = paths.copy(), longest_and_ring(hops, graph.inverse, gradients, paths)

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


@jit
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
        draw(state)
    dp, pp = paths.shape
    lengths = np.array([path_length(hops, paths[z]) for z in range(dp)])
    count = np.zeros(len(hops), np.int64)
    slowest = slowest_link(inverse, paths)
    ring = gradients * ring_by_byte(inverse, paths, slowest, count)
    removed, added = np.zeros(2, np.int64), np.zeros(2, np.int64)
    best, best_paths = lengths.max() + ring, paths.copy()
    unit = max(lengths.max() - base, 1e-300)
    powers = np.array([power(seconds, base, unit) for seconds in lengths])
    total = powers.sum()
    value = unit * total**0.125 + ring
    cooling = (cold / hot) ** (1.0 / moves)
    old_y, old_z = np.zeros(pp, np.int64), np.zeros(pp, np.int64)
    temperature = hot
    shared = capacity.max() > 1
    for _ in range(moves):
        temperature *= cooling
        if shared and share(state) < WHOLE_NODES:
            a, b = draw(state) % len(capacity), draw(state) % len(capacity)
            if capacity[a] != capacity[b]:
                continue
            swap_nodes(paths, a, b)
            powers_then, total_then = powers.copy(), total
            for k in range(dp):
                lengths[k] = path_length(hops, paths[k])
                powers[k] = power(lengths[k], base, unit)
            total = powers.sum()
            slowest_then, slowest = slowest, slowest_link(inverse, paths)
            ringed = gradients * ring_by_byte(inverse, paths, slowest, count)
            candidate = unit * np.sqrt(np.sqrt(np.sqrt(total))) + ringed
            if candidate <= value or share(state) < np.exp((value - candidate) / temperature):
                value, ring = candidate, ringed
                if lengths.max() + ring < best:
                    best = lengths.max() + ring
                    best_paths[:] = paths
            else:
                swap_nodes(paths, a, b)
                powers, total, slowest = powers_then, total_then, slowest_then
                for k in range(dp):
                    lengths[k] = path_length(hops, paths[k])
            continue
        y = draw(state) % dp
        z = draw(state) % dp if share(state) < 0.8 else y
        old_y[:] = paths[y]
        old_z[:] = paths[z]
        first = move(state, paths, y, z, shared)
        long_y, long_z = path_length(hops, paths[y]), path_length(hops, paths[z])
        power_y, power_z = power(long_y, base, unit), power(long_z, base, unit)
        changed = total - powers[y] + power_y
        if y != z:
            changed += power_z - powers[z]
        ringed, slowest_then = ring, slowest
        if first and gradients > 0.0:
            removed[0], removed[1], added[0], added[1] = old_y[0], old_z[0], paths[y, 0], paths[z, 0]
            slowest = slowest_link_after(inverse, paths, slowest, removed, added)
            ringed = gradients * ring_by_byte(inverse, paths, slowest, count)
        candidate = unit * np.sqrt(np.sqrt(np.sqrt(max(changed, 0.0)))) + ringed
        if candidate <= value or share(state) < np.exp((value - candidate) / temperature):
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
