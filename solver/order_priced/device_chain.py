r"""
The devices of a candidate in a chain, and the division of least cost over the options of every device.

Sets: devices d = 0..pp-1, each with the options o that its passes leave within a limit T on the makespan
(``taut.solver.order_priced.device_options``).
Data: layers :math:`N_o` of an option; its cost :math:`c_d(o)` under costs of the chunks' figures
(``taut.solver.order_priced.master_rows`` (3)).
Variables: an option of each device.

(1) Minimise :math:`\sum_d c_d(o_d)` so that :math:`\sum_d N_{o_d} = L`, and every option has the start that the first
    chunks of the devices before it make: a multiple-choice knapsack with equality.
    :math:`V_{d+1}(s + x_o, u) = \min_o V_d(s, u - N_o) + c_d(o)` over the options of start s, :math:`x_o` the layers of
    their first chunks, is the least cost of the devices before d + 1 with u layers, of which the first chunks have
    :math:`s + x_o`. It solves (1) by dynamic programming, :math:`\min_s V_{pp}(s, L)` is its optimum, and starts from
    one on are the same (``taut.solver.order_priced.device_options`` (5)).

No division within T and within memory costs less than (1), since an option costs no more than the chunks that it stands
for, and every cut is priced by the least seconds of any cut. So (1) is a pricing problem whose columns each keep the
memory of every device (Sinha and Zoltners, The multiple-choice knapsack problem, Operations Research 27, 1979).
"""

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.errors import FormulationError
from taut.formulations.compiled import jit
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, device_path
from taut.solver.order_priced.device_options import (
    HUGE,
    MOST_KINDS,
    MOST_OPTIONS,
    MOST_TRIED,
    MOST_WITHIN,
    DeviceOptions,
    RangeMinima,
    count_pairs,
)
from taut.solver.order_priced.pricing import ChunkCosts, room


class DeviceChain:
    """
    The devices of a division problem with their options of makespans up to ``limit`` seconds.

    ``lower`` and ``upper`` (C,) are a branch's bounds on the layers of every chunk.
    """

    def __init__(self, given: ChunkProblem, limit: float = np.inf) -> None:
        self.given, self.limit = given, limit
        self.lower = np.ones(given.num_chunks, np.int64)
        self.upper = np.full(given.num_chunks, given.num_layers)

    @cached_property
    def paths(self) -> list[Path]:
        """Path of every device."""
        return [device_path(self.given.order, d) for d in range(len(self.given.counts))]

    @cached_property
    def most_layers(self) -> int:
        """Most layers of any device: all but one for every other chunk, or as many as the limit allows."""
        return max(self._most(d) for d in range(len(self.given.counts)))

    def _most(self, device: int) -> int:
        """Most layers of a device, with embedding and head where these are divided beside the layers."""
        given, hosted = self.given, self.given.hosted(device)
        every = given.num_layers - (given.num_chunks - len(hosted))
        # Both take next to nothing.
        more = given.ends * int(hosted[0] == 0) + given.ends * int(hosted[-1] == given.num_chunks - 1)
        return max(int(min(every, more + self._within)), len(hosted))

    @cached_property
    def _within(self) -> float:
        """Layers that a device may have within the limit, infinite without one."""
        given = self.given
        own = np.min([path.passes[given.hosted(d)].min(axis=0) for d, path in enumerate(self.paths)], axis=0)
        every_range = np.where(np.isfinite(given.passes), given.passes, HUGE)
        i, j = np.triu_indices(given.num_layers + 1, 1)
        layers = j - i - given.ends * ((i == 0) * 1 + (j == given.num_layers))
        i, j, layers = (each[layers > 0] for each in (i, j, layers))
        # Chunks that wait for gathers take less for each of their layers the more they have.
        least = float((np.tensordot(own, every_range, axes=1)[:, i, j] / layers).min())
        return np.inf if self.limit == np.inf or least <= 0 else (self.limit - given.constant) / least * (1 + ROUNDING)

    @cached_property
    def is_enumerable(self) -> bool:
        """Whether the options are few enough to enumerate, by their pairs or within the limit of time."""
        if self._pairs <= MOST_OPTIONS:
            return True
        return self.limit < np.inf and self._pairs <= MOST_TRIED and self._enumerated is not None

    @cached_property
    def _pairs(self) -> int:
        kinds = int(np.isfinite(self.given.passes[0]).any(axis=(-1, -2)).sum())
        return count_pairs(len(self.given.hosted(0)), kinds, self.most_layers)

    @cached_property
    def _enumerated(self) -> list[DeviceOptions] | None:
        """Options of every device, None where they are too many."""
        longest = (self.limit - self.given.constant) * (1 + ROUNDING)
        left, most = room(self.given), MOST_OPTIONS if self._pairs <= MOST_OPTIONS else MOST_WITHIN
        found = []
        for d, path in enumerate(self.paths):
            options = self.minima.options(d, path, longest, left, most, self._most(d))
            if options is None:
                return None
            found.append(options)
        return found

    @property
    def has_alike_layers(self) -> bool:
        """Whether all layers but few of the first ones and the last are alike, so that numbers of them tell enough."""
        return self.given.lead <= MOST_KINDS

    @cached_property
    def minima(self) -> RangeMinima:
        """Least figures of chunks by their layers."""
        return RangeMinima(self.given, self.most_layers)

    @cached_property
    def options(self) -> list[DeviceOptions]:
        """Options of every device; ``FormulationError`` if they are too many."""
        if self._enumerated is None:
            raise FormulationError("a device has too many options, expected devices that are enumerable")
        return self._enumerated

    def with_memory(self, memory: int) -> "DeviceChain":
        """The same devices with so many more bytes each; paths and least figures do not depend on memory."""
        larger = DeviceChain(replace(self.given, budget=self.given.budget + memory), self.limit)
        larger.lower, larger.upper = self.lower, self.upper
        larger.paths, larger.minima = self.paths, self.minima
        return larger

    def split_range(self, chunk: int) -> tuple[int, int]:
        """Least and largest number of layers at which a chunk can be split."""
        return int(self.lower[chunk]), int(self.upper[chunk]) - 1

    def device_split_range(self, device: int) -> tuple[int, int]:
        """Least and largest number of layers of its options at which a device can be split."""
        whole = self.options[device].whole
        return int(whole.min(initial=self.given.num_layers)), int(whole.max(initial=0)) - 1

    def contains(self, division: Division) -> bool:
        """
        Whether a division has an option of the branch on every device.

        Another one as a column would keep the master problem below the dual function, which then counts as maximal.
        """
        layers, recompute, last = division.layers, division.recompute_index, self.minima.last_start
        starts = np.minimum(division.starts, last)
        return all(
            options.has(layers[hosted], recompute[hosted], int(starts[hosted[0]]))
            for options, hosted in ((options, self.given.hosted(d)) for d, options in enumerate(self.options))
        )

    def split(self, chunk: int, layers: int) -> "tuple[DeviceChain, DeviceChain]":
        """Two branches: at most so many layers in a chunk, and more."""
        device = int(self.given.order.device[chunk])
        at = int(np.searchsorted(self.given.hosted(device), chunk))
        options = self.options[device]
        few, many = self._split(device, options.codes[:, at] >> options.bits <= layers)
        few.upper, many.lower = few.upper.copy(), many.lower.copy()
        few.upper[chunk], many.lower[chunk] = layers, layers + 1
        return few, many

    def split_device(self, device: int, layers: int) -> "tuple[DeviceChain, DeviceChain]":
        """Two branches: at most so many layers on a device, and more."""
        return self._split(device, self.options[device].whole <= layers)

    def _split(self, device: int, kept: Flags) -> "tuple[DeviceChain, DeviceChain]":
        """The devices with some options of one of them, and with the others."""
        few, many, options = copy(self), copy(self), self.options[device]
        few.options, many.options = list(self.options), list(self.options)
        few.options[device], many.options[device] = options.only(kept), options.only(~kept)
        return few, many

    @cached_property
    def least_cut(self) -> float:
        """Least seconds of a cut."""
        return float(self.given.edge[1:-1].min(initial=np.inf))

    def least_division(self, costs: ChunkCosts) -> tuple[float, Division | None]:
        """Least cost (1) and a division that attains it; infinite and None where no options have all layers."""
        layers, last = self.given.num_layers, self.minima.last_start
        value = np.full((last + 1, layers + 1), np.inf)
        value[0, 0], chosen = 0.0, []
        for d in range(len(self.options)):
            value, choice = _joined(value, *self._least_by_start(d, costs))
            chosen.append(choice)
        cuts = float(costs.edge.sum()) * self.least_cut if costs.edge.any() else 0.0
        ended = int(value[:, layers].argmin())
        total = float(value[ended, layers]) + cuts
        return (total, self._backtracked(chosen, ended)) if np.isfinite(total) else (np.inf, None)

    def _least_by_start(self, device: int, costs: ChunkCosts) -> tuple[Floats, Ints]:
        """Least cost of a device's options by start, next start and layers, and the first option that has it."""
        options, last = self.options[device], self.minima.last_start
        shape = last + 1, last + 1, self.most_layers + 1
        least, option = np.full(shape, np.inf), np.full(shape, -1)
        for start in self.minima.starts(device):
            options.take_least(start, start, self._table(device, costs, start), least[start], option[start])
        return least, option

    def _table(self, device: int, costs: ChunkCosts, start: int) -> Floats:
        """Cost of every chunk of a device with a start by recompute and layers (v, recompute, n)."""
        hosted = self.given.hosted(device)
        table = self.minima.seconds(hosted, costs.passes[hosted], start)
        if costs.loads[hosted].any():
            table = table + (costs.loads[hosted, None] * self.minima.loads(hosted))[:, None, :]
        return table

    def _backtracked(self, chosen: list[Ints], ended: int) -> Division:
        """The division by the option that was taken at each device for every next start and number of layers."""
        layers, recompute = np.zeros((2, self.given.num_chunks), np.int64)
        left = self.given.num_layers
        for d in range(len(chosen) - 1, -1, -1):
            hosted = self.given.hosted(d)
            layers[hosted], recompute[hosted], start = self.options[d].chosen(int(chosen[d][ended, left]))
            left, ended = left - int(layers[hosted].sum()), start
        return Division.of_ends(layers.cumsum(), recompute)


@jit
def _joined(value: Floats, least: Floats, option: Ints) -> tuple[Floats, Ints]:
    """One step of (1): least cost by start and layers (s, L + 1), and the option that has it, of the same shape."""
    joined, choice = np.full(value.shape, np.inf), np.full(value.shape, -1)
    starts, most = value.shape
    for start in range(starts):
        if np.isinf(value[start].min()):
            continue
        for after in range(starts):
            for size in range(min(least.shape[2], most)):
                if option[start, after, size] < 0:
                    continue
                for layers in range(size, most):
                    tried = value[start, layers - size] + least[start, after, size]
                    if tried < joined[after, layers]:
                        joined[after, layers], choice[after, layers] = tried, option[start, after, size]
    return joined, choice
