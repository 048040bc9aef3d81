r"""
The devices of a candidate with their options, and the division that costs least under weights.

With a limit T on the makespan, device d's options (``taut.solver.order_priced.device_options``) are those whose passes
take at most T less the constant seconds. Under weights of passes, cuts and device 0's parameters
(``taut.solver.order_priced.rows`` (3)) an option o of d costs :math:`c_d(o)`, and

(1) :math:`V_{d+1}(u) = \min_o V_d(u - N_o) + c_d(o)`, the least cost of devices before d + 1 with u layers, finds
    :math:`V_{pp}(L)`: no division within T and within memory costs less, however its layers differ.

Cuts cost the least seconds of any cut.
"""

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, device_path
from taut.solver.order_priced.device_options import HUGE, Figures, Options, few_enough
from taut.solver.order_priced.division import ROUNDING, Weights, room


class Devices:
    """
    The devices of a candidate, each with its options for makespans up to a limit.

    Parameters
    ----------
    given
        The division problem.
    limit
        Largest makespan T of interest, in seconds.

    Attributes
    ----------
    fewest, largest
        Numbers of layers between which every chunk has some (C,), as splits say.
    """

    def __init__(self, given: ChunkProblem, limit: float = np.inf) -> None:
        self.given, self.limit = given, limit
        self.fewest = np.ones(given.num_chunks, np.int64)
        self.largest = np.full(given.num_chunks, given.num_layers)

    @cached_property
    def paths(self) -> list[Path]:
        """Path of every device."""
        return [device_path(self.given.order, d) for d in range(len(self.given.counts))]

    @cached_property
    def most(self) -> int:
        """Layers of a device at most: all but one for every other chunk, or as many as the limit allows."""
        given, chunks = self.given, len(self.given.hosted(0))
        every = given.num_layers - (given.num_chunks - chunks)
        own = np.min([path.passes[given.hosted(d)].min(axis=0) for d, path in enumerate(self.paths)], axis=0)
        layer = np.diagonal(given.passes, 1, -2, -1)
        least = float((own @ np.where(np.isfinite(layer), layer, HUGE).reshape(3, -1)).min())
        if self.limit == np.inf or least <= 0:
            return every
        return max(int(min(every, (self.limit - given.constant) / least * (1 + ROUNDING))), chunks)

    @property
    def known(self) -> bool:
        """Whether the options are few enough to look at."""
        return few_enough(len(self.given.hosted(0)), self.given.passes.shape[1], self.most)

    @cached_property
    def alike(self) -> bool:
        """Whether all layers but the first and the last are alike, so that it does not matter which a chunk has."""
        given, layers = self.given, slice(1, self.given.num_layers - 1)
        tables = (given.passes, given.activation, given.parameters, given.logits)
        each = [np.diagonal(table, 1, -2, -1)[..., layers] for table in tables]
        each.append(given.edge[1:-1])
        return all(bool(np.isclose(one, one[..., :1], rtol=1e-12, atol=0.0).all()) for one in each)

    @cached_property
    def figures(self) -> Figures:
        """Least figures of so many layers."""
        return Figures(self.given, self.most)

    @cached_property
    def options(self) -> list[Options]:
        """Options of every device."""
        longest = (self.limit - self.given.constant) * (1 + ROUNDING)
        left = room(self.given)
        return [self.figures.options(d, path, longest, left) for d, path in enumerate(self.paths)]

    def with_more(self, memory: int) -> "Devices":
        """The same devices with so many more bytes each, and with the same figures, which memory does not change."""
        larger = Devices(replace(self.given, budget=self.given.budget + memory), self.limit)
        larger.fewest, larger.largest = self.fewest, self.largest
        larger.paths, larger.figures = self.paths, self.figures
        return larger

    def between(self, chunk: int) -> tuple[int, int]:
        """Numbers of layers at which a chunk can be split."""
        return int(self.fewest[chunk]), int(self.largest[chunk]) - 1

    def hold(self, division: Division) -> bool:
        """Whether a division has as many layers in every chunk as the splits say."""
        layers = division.layers
        return bool(((layers >= self.fewest) & (layers <= self.largest)).all())

    def split(self, chunk: int, layers: int) -> "tuple[Devices, Devices]":
        """The same devices with at most so many layers in a chunk, and with more."""
        few, many = copy(self), copy(self)
        few.largest, many.fewest = few.largest.copy(), many.fewest.copy()
        few.largest[chunk], many.fewest[chunk] = layers, layers + 1
        device = int(self.given.order.device[chunk])
        at = int(np.searchsorted(self.given.hosted(device), chunk))
        options = self.options[device]
        kept = options.layers[:, at] <= layers
        few.options, many.options = list(self.options), list(self.options)
        few.options[device], many.options[device] = options.only(kept), options.only(~kept)
        return few, many

    @cached_property
    def edge(self) -> float:
        """Least seconds of a cut."""
        return float(self.given.edge[1:-1].min(initial=np.inf))

    def least(self, weights: Weights) -> tuple[float, Division | None]:
        """Least cost of options under weights, (1), and a division with them; alike layers make it cost just that."""
        layers, value = self.given.num_layers, np.full(self.given.num_layers + 1, np.inf)
        value[0], chosen = 0.0, []
        for d, options in enumerate(self.options):
            cost = self._cost(d, options, weights)
            value, choice = _joined(value, options.whole, cost, layers)
            chosen.append(choice)
        cuts = float(weights.edge.sum()) * self.edge if weights.edge.any() else 0.0
        total = float(value[layers]) + cuts
        return (total, self._drawn(chosen)) if np.isfinite(total) else (np.inf, None)

    def _cost(self, device: int, options: Options, weights: Weights) -> Floats:
        """Cost of every option of a device (O,)."""
        hosted = self.given.hosted(device)
        table = self.figures.seconds(hosted, weights.passes[hosted])
        if weights.parameters[hosted].any():
            table = table + (weights.parameters[hosted, None] * self.figures.parameters(hosted))[:, None, :]
        chunk = np.arange(len(hosted))
        return np.asarray(table[chunk, options.recompute, options.layers].sum(axis=1))

    def _drawn(self, chosen: list[Ints]) -> Division:
        """Division of the options that were chosen for every number of layers up to each device."""
        layers, recompute = np.zeros((2, self.given.num_chunks), np.int64)
        left = self.given.num_layers
        for d in range(len(chosen) - 1, -1, -1):
            options, choice = self.options[d], chosen[d][left]
            hosted = self.given.hosted(d)
            layers[hosted], recompute[hosted] = options.layers[choice], options.recompute[choice]
            left -= int(options.whole[choice])
        return Division.of_ends(layers.cumsum(), recompute)


def _joined(value: Floats, whole: Ints, cost: Floats, layers: int) -> tuple[Floats, Ints]:
    """One step of (1): least cost by layers, and the option that was taken for each."""
    order = np.lexsort((cost, whole))
    sizes, first = np.unique(whole[order], return_index=True)
    options = order[first]
    joined, choice = np.full(layers + 1, np.inf), np.full(layers + 1, -1)
    for size, option in zip(sizes.tolist(), options.tolist(), strict=True):
        tried = value[: layers + 1 - size] + cost[option]
        better = tried < joined[size:]
        joined[size:][better] = tried[better]
        choice[size:][better] = option
    return joined, choice
