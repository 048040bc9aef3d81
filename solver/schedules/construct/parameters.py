r"""
The choices that make a list schedule of a pipeline.

A list schedule (:mod:`taut.solver.schedules.construct.list_schedule`) is given by a few choices:

1. a building block, whose slots are the keys of forward passes and gradients by the input;
2. how many slots after its I a gradient by the weights has its key, up to for ever: then it fills idle time alone;
3. how long a device would rather wait than run something less urgent;
4. memory M to use, up to the limit, and how it is shared among the chunks of a device: chunk c other than the first may
   have :math:`\min(\lfloor s_0 + s (C - 1 - c) \rfloor, \lfloor \sigma M / (v a_c) \rfloor)` micro-batches in flight,
   which grows with its distance from the last chunk as its lifespan does, and the first chunk has what is left.

All of them give feasible schedules whatever the times, so the choices are free to be tried.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.chains import Chains, chains
from taut.solver.schedules.clock import makespan
from taut.solver.schedules.construct.blocks import Blocks
from taut.solver.schedules.construct.list_schedule import list_schedule

_DELAYS = (1e9, 11.5, 5.5, 3.5, 23.5, 1.5)
_PATIENCE = ((0.5, 0.5), (0.0, 0.0), (0.25, 0.75), (1.0, 1.0), (0.0, 1.0))
_SLOPES = (0.5, 2 / 3, 0.75, 1.0, 1 / 3, None, None)
_STARTS = (1.5, 1.0, 2.0, 1.25, 1.75)
_SHARES = (1.0, 0.75, 1.25, 1.1)
_LESS = (0, 1)
_MOST_OF_1F1B = (1e9, 1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Choice:
    """Places of the choices 1 to 4 in their lists."""

    block: int
    delay: int
    patience: int
    slope: int
    start: int
    share: int
    less: int
    most: int
    times: int


@dataclass(eq=False)
class Lister:
    """List schedules of one pipeline."""

    problem: ScheduleProblem
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = Blocks(self.problem)
        passes = 3 * self.problem.num_chunks * self.problem.num_micro_batches
        self._passes = np.zeros((passes, 3), dtype=np.int64)

    @cached_property
    def hosted(self) -> Ints:
        """Chunks of each device, -1 beyond the last (devices, most chunks)."""
        chunks = [np.flatnonzero(self.problem.device == d) for d in range(self.problem.num_devices)]
        table = np.full((len(chunks), max(len(row) for row in chunks)), -1)
        for row, found in zip(table, chunks, strict=True):
            row[: len(found)] = found
        return table

    @cached_property
    def chains(self) -> Chains:
        """The pipeline by number of pass."""
        return chains(self.problem)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of every choice."""
        lists = (_DELAYS, _PATIENCE, _SLOPES, _STARTS, _SHARES, _LESS, _MOST_OF_1F1B, self._times)
        return (len(self.blocks), *(len(values) for values in lists))

    def schedule(self, choice: Choice) -> tuple[float, Ints]:
        """Makespan and flat order of the list schedule of a choice."""
        problem = self.problem
        m, first = problem.num_micro_batches, self.chains.first
        seconds, transfer = self._times[choice.times]
        list_schedule(
            self.hosted,
            problem.device,
            seconds,
            transfer,
            m,
            problem.activation,
            problem.kept_for_weight,
            problem.allowed,
            self._slots(choice),
            float(self.blocks[choice.block].period),
            self.caps(choice),
            np.array(_PATIENCE[choice.patience]),
            self._passes,
            first,
        )
        kind, chunk, micro_batch = self._passes.T
        order = (kind * problem.num_chunks + chunk) * m + micro_batch
        return makespan(self.chains, order), order

    @cached_property
    def _times(self) -> list[tuple[Floats, Floats]]:
        """Seconds and transfers that a list may take for true: as given, without transfers, all passes equal."""
        problem = self.problem
        mean = np.full_like(problem.seconds, problem.seconds[:3].mean())
        none = np.zeros_like(problem.transfer)
        return [(problem.seconds, problem.transfer), (mean, none), (problem.seconds, none), (mean, problem.transfer)]

    def _slots(self, choice: Choice) -> Floats:
        """Keys of the first micro-batch, choices 1 and 2."""
        block = self.blocks[choice.block]
        return np.stack((block.forward, block.input_gradient, block.input_gradient + _DELAYS[choice.delay]))

    def caps(self, choice: Choice) -> Ints:
        """Most micro-batches in flight by chunk."""
        problem, m = self.problem, self.problem.num_micro_batches
        device, first, memory = problem.device, self.hosted[:, 0], self._memory(choice)
        share = _SHARES[choice.share] * memory / (self.hosted >= 0).sum(axis=1)
        caps = np.clip(np.minimum(self._ramps(choice), _quotient(share[device], problem.activation, m)), 1, m)
        caps[first] = 0
        left = memory - np.bincount(device, weights=caps * problem.activation, minlength=problem.num_devices)
        caps[first] = np.maximum(_quotient(left, problem.activation[first], m), 1)
        return caps

    def _ramps(self, choice: Choice) -> Ints:
        """Micro-batches in flight by chunk from a slope, or from the lifespans in the block."""
        slope, start = _SLOPES[choice.slope], _STARTS[choice.start]
        if slope is None:
            block = self.blocks[choice.block]
            alive = (block.input_gradient - block.forward) / block.period
            return np.asarray(np.ceil(alive + start - 1.5), dtype=np.int64)
        return np.asarray(start + slope * np.arange(self.problem.num_chunks)[::-1], dtype=np.int64)

    def _memory(self, choice: Choice) -> Floats:
        """Memory to use on each device, choice 4."""
        problem = self.problem
        largest = np.zeros(problem.num_devices)
        np.maximum.at(largest, problem.device, problem.activation)
        whole = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
        most = _MOST_OF_1F1B[choice.most] * problem.num_devices * whole
        used = np.minimum(problem.allowed, most) - _LESS[choice.less] * largest
        return np.asarray(np.maximum(used, whole), dtype=np.float64)


def _quotient(memory: Floats, unit: Floats, most: int) -> Ints:
    """How often units fit into memories, at most a given number."""
    # Units of nothing fit even where nothing is left.
    scarce = (memory < unit * most) & (unit > 0)
    times = np.divide(memory, unit, out=np.zeros_like(unit), where=scarce) * (1 + 1e-9)
    return np.where(scarce, times, most).astype(np.int64)
