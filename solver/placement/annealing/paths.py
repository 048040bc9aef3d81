r"""
Pipelines on nodes by simulated annealing: good placements of many nodes, never a bound.

Sets: dp paths of pp slots on a slot graph (``taut.solver.placement.slots``). Variables: the node of every slot.
Data: :math:`c_z` seconds of path z beyond those of pp - 1 shortest hops; wait, seconds for the reductions of the
leading stages (``taut.solver.placement.annealing.path_prices`` (3)).

(1) Minimise :math:`(\sum_z c_z^8)^{1/8} + wait` in place of :math:`\max_z c_z + wait`: in the 8-norm every long path
    counts, so that no move is lost on the plateaus of a maximum. The best placement by the maximum is kept.
(2) A worse neighbour by :math:`\Delta` seconds is accepted with probability :math:`e^{-\Delta / T}`; the temperature T
    falls geometrically. Moves are those of ``taut.solver.placement.annealing.path_moves``.

References
----------
Kirkpatrick, Gelatt and Vecchi (1983), Optimization by simulated annealing.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.annealing.path_moves import draw, move, share, swap_nodes
from taut.solver.placement.annealing.path_prices import (
    Reductions,
    exchange,
    longest_wait,
    path_length,
    power,
    ring_by_byte,
    slowest_link,
    slowest_link_after,
)
from taut.solver.placement.slots import SlotGraph

HOT, WARM, MILD, COLD = 0.3, 0.15, 0.05, 0.002
"""
First temperatures, the lower the more of the start is to be kept, and the last, in standard deviations of hops.

At the last a move that costs 1 % of a standard deviation is accepted once in 150 times. Plans depend on them, bounds do
not.
"""
WHOLE_NODES = 0.02
"""Share of moves that exchange two nodes of several slots: each prices all paths again, so few are affordable."""
CHUNK = 400_000
"""Moves of one call into compiled code, some tenths of a second, so that Ctrl-C is answered."""


class PathAnnealing:
    """
    One run of annealing over a fixed number of moves, chunk by chunk.

    ``seconds`` and ``best`` are the least of longest path plus wait for ``reductions``, and its paths (dp, pp).
    ``hot`` is the first temperature in standard deviations of hops.
    """

    def __init__(
        self, graph: SlotGraph, reductions: Reductions, paths: Ints, *, moves: int, seed: int, hot: float = HOT
    ) -> None:
        hops, apart = graph.hops, ~np.eye(len(graph.hops), dtype=bool)
        base = (graph.pp - 1) * graph.shortest_hop()
        self._instance = _Instance(hops, graph.inverse, graph.card, reductions, base, graph.capacity)
        self._paths, self._seed = paths.copy(), seed
        self._chunks = max(-(-moves // CHUNK), 1)
        self._moves, self._done = -(-moves // self._chunks), 0
        self._hot = hot
        self._scale = max(float(hops[apart].std()), 1e-12 * float(hops[apart].max()), 1e-300)
        self.best, self.seconds = paths.copy(), _seconds(self._instance, paths, _rings(self._instance, paths))

    @property
    def finished(self) -> bool:
        """Whether all moves were made."""
        return self._done >= self._chunks

    def advance(self, stop: Flags) -> None:
        """Make one chunk of moves, less where a flag (1,) is raised."""
        cooling = (COLD / self._hot) ** (1.0 / self._chunks)
        hot = self._hot * self._scale * cooling**self._done
        schedule = _Schedule(self._moves, hot, hot * cooling, (self._seed * 7919 + self._done) % 1000003)
        rings = _rings(self._instance, self._paths)
        seconds, best = _anneal(self._instance, self._paths, rings, schedule, stop)
        if seconds < self.seconds:
            self.seconds, self.best = seconds, best
        self._done += 1


class _Instance(NamedTuple):
    """
    What is annealed.

    Seconds of hops (N, N), inverse rates (N, N), cards (N,), reductions, seconds of pp - 1 shortest hops, slots (N,).
    """

    hops: Floats
    inverse: Floats
    card: Floats
    reductions: Reductions
    base: float
    capacity: Ints


class _Rings(NamedTuple):
    """Slowest links between slots of the leading stages and seconds per byte of their rings (stages,)."""

    slowest: Floats
    by_byte: Floats


def _rings(instance: _Instance, paths: Ints) -> _Rings:
    """The rings of paths."""
    stages = instance.reductions.num_stages
    rings = _Rings(np.zeros(stages), np.zeros(stages))
    _price_rings(instance, paths, rings, np.zeros(len(instance.hops), np.int64))
    return rings


@jit
def _price_rings(instance: _Instance, paths: Ints, rings: _Rings, count: Ints) -> None:
    """Price the rings of all leading stages anew."""
    for x in range(len(rings.slowest)):
        rings.slowest[x] = slowest_link(instance.inverse, paths, x)
        rings.by_byte[x] = ring_by_byte(instance.inverse, instance.card, paths, x, rings.slowest[x], count)


@jit
def _seconds(instance: _Instance, paths: Ints, rings: _Rings) -> float:
    """Seconds of the longest path and of the wait for reductions."""
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(instance.hops, paths[z]))
    return longest + max(longest_wait(instance.reductions, rings.by_byte), _slowest_tie(instance, paths))


@jit
def _slowest_tie(instance: _Instance, paths: Ints) -> float:
    """Seconds in which first and last slots exchange a tied embedding."""
    slowest = 0.0
    if instance.reductions.tied > 0.0:
        for z in range(len(paths)):
            slowest = max(slowest, exchange(instance.inverse, instance.card, paths[z]))
    return instance.reductions.tied * slowest


class _Schedule(NamedTuple):
    """Moves, first and last temperature in seconds, and the seed."""

    moves: int
    hot: float
    cold: float
    seed: int


class _Current(NamedTuple):
    """The state: seconds and their eighth powers (dp,), rings; scratch by node (N,); best paths so far (dp, pp)."""

    lengths: Floats
    powers: Floats
    rings: _Rings
    counts: Ints
    best_paths: Ints


class _Value(NamedTuple):
    """The objective (1), its wait, the sum of eighth powers, and the best maximum so far."""

    value: float
    wait: float
    total: float
    best: float


@jit
def _anneal(instance: _Instance, paths: Ints, rings: _Rings, schedule: _Schedule, stop: Flags) -> tuple[float, Ints]:
    """Anneal the paths in place from one temperature to another; returns the best seconds and paths."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    hops, inverse, card, reductions, base, capacity = instance
    slowest, by_byte = rings
    state = np.full(1, 88172645463325252 + 7046029254386353 * schedule.seed, np.int64)
    for _ in range(8):
        draw(state)
    dp, pp = paths.shape
    lengths = np.array([path_length(hops, paths[z]) for z in range(dp)])
    count = np.zeros(len(hops), np.int64)
    stages = len(slowest)
    wait = max(longest_wait(reductions, by_byte), _slowest_tie(instance, paths))
    removed, added = np.zeros(2, np.int64), np.zeros(2, np.int64)
    best, best_paths = lengths.max() + wait, paths.copy()
    unit = max(lengths.max() - base, 1e-300)
    powers = np.array([power(seconds, base, unit) for seconds in lengths])
    total = powers.sum()
    value = unit * total**0.125 + wait
    cooling = (schedule.cold / schedule.hot) ** (1.0 / schedule.moves)
    old_y, old_z = np.zeros(pp, np.int64), np.zeros(pp, np.int64)
    slowest_then, by_byte_then = slowest.copy(), by_byte.copy()
    temperature = schedule.hot
    shared = capacity.max() > 1
    for _ in range(schedule.moves):
        if stop[0]:
            break
        temperature *= cooling
        if shared and share(state) < WHOLE_NODES:
            a, b = draw(state) % len(capacity), draw(state) % len(capacity)
            if capacity[a] != capacity[b]:
                continue
            swap_nodes(paths, a, b)
            current = _Current(lengths, powers, rings, count, best_paths)
            before = _Value(value, wait, total, best)
            after, accepted = _reprice(instance, paths, current, before, unit, temperature, state)
            value, wait, total, best = after
            if not accepted:
                swap_nodes(paths, a, b)
                for k in range(dp):
                    lengths[k] = path_length(hops, paths[k])
            continue
        y = draw(state) % dp
        z = draw(state) % dp if share(state) < 0.8 else y
        old_y[:] = paths[y]
        old_z[:] = paths[z]
        move(state, paths, y, z, shared)
        long_y, long_z = path_length(hops, paths[y]), path_length(hops, paths[z])
        power_y, power_z = power(long_y, base, unit), power(long_z, base, unit)
        changed = total - powers[y] + power_y
        if y != z:
            changed += power_z - powers[z]
        waited, ringed = wait, False
        for x in range(stages):
            removed[0], removed[1], added[0], added[1] = old_y[x], old_z[x], paths[y, x], paths[z, x]
            if _same(removed, added):
                continue
            if not ringed:
                slowest_then[:] = slowest
                by_byte_then[:] = by_byte
                ringed = True
            slowest[x] = slowest_link_after(inverse, paths, x, slowest[x], removed, added)
            by_byte[x] = ring_by_byte(inverse, card, paths, x, slowest[x], count)
        if ringed or _ends_differ(old_y, old_z, paths[y], paths[z]):
            waited = max(longest_wait(reductions, by_byte), _slowest_tie(instance, paths))
        candidate = unit * np.sqrt(np.sqrt(np.sqrt(max(changed, 0.0)))) + waited
        if candidate <= value or share(state) < np.exp((value - candidate) / temperature):
            value, wait, total = candidate, waited, changed
            lengths[y], lengths[z], powers[y], powers[z] = long_y, long_z, power_y, power_z
            longest = 0.0
            for k in range(dp):
                longest = max(longest, lengths[k])
            if longest + wait < best:
                best = longest + wait
                best_paths[:] = paths
        else:
            if ringed:
                slowest[:] = slowest_then
                by_byte[:] = by_byte_then
            paths[y] = old_y
            paths[z] = old_z
    return best, best_paths


@jit
def _ends_differ(old_y: Ints, old_z: Ints, y: Ints, z: Ints) -> bool:
    """Whether first or last slots of two paths have changed."""
    return bool(old_y[0] != y[0] or old_z[0] != z[0] or old_y[-1] != y[-1] or old_z[-1] != z[-1])


@jit
def _same(removed: Ints, added: Ints) -> bool:
    """Whether two slots of a stage are in the same nodes as before, exchanged or not."""
    if removed[0] == added[0]:
        return bool(removed[1] == added[1])
    return bool(removed[0] == added[1] and removed[1] == added[0])


@jit
def _reprice(
    instance: _Instance, paths: Ints, current: _Current, before: _Value, unit: float, temperature: float, state: Ints
) -> tuple[_Value, bool]:
    """Price all paths after a move, and accept or reject it; ``current`` changes, powers and rings if accepted."""
    lengths, powers, rings = current.lengths, current.powers, current.rings
    powers_then, slowest_then, by_byte_then = powers.copy(), rings.slowest.copy(), rings.by_byte.copy()
    for k in range(len(paths)):
        lengths[k] = path_length(instance.hops, paths[k])
        powers[k] = power(lengths[k], instance.base, unit)
    total = powers.sum()
    _price_rings(instance, paths, rings, current.counts)
    wait = max(longest_wait(instance.reductions, rings.by_byte), _slowest_tie(instance, paths))
    value, best = unit * np.sqrt(np.sqrt(np.sqrt(total))) + wait, before.best
    if value <= before.value or share(state) < np.exp((before.value - value) / temperature):
        if lengths.max() + wait < best:
            best = lengths.max() + wait
            current.best_paths[:] = paths
        return _Value(value, wait, total, best), True
    powers[:] = powers_then
    rings.slowest[:] = slowest_then
    rings.by_byte[:] = by_byte_then
    return before, False
