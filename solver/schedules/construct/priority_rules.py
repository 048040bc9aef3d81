r"""
The family of priority rules that list schedules of a pipeline are drawn from.

A list schedule (``taut.solver.schedules.construct.list_schedule``) follows from a few parameters, each one of a short
list:

1. a building block, whose slots are the keys of forwards and gradients by the input;
2. how many slots after its I a gradient by the weights has its key, up to for ever: then it fills idle time alone;
3. how long a device waits for a pass of smaller key;
4. memory M to use, up to the limit, and its shares among the v chunks of a device. Chunk c other than the first may
   have

   .. math:: \min(\lfloor s_0 + s (C - 1 - c) \rfloor, \lfloor \sigma M / (v a_c) \rfloor) \tag{1}

   micro-batches in flight: that number grows with its distance from the last chunk, as the time from its forward to
   its gradient does. The first chunk has the memory that is left.
5. the times that the rule takes for true while it orders the passes: the given ones, or all equal, with or without
   transfers.

Every rule gives a feasible schedule whatever the times, so rules may be sampled freely, as in sampling methods for
project scheduling [1]_.

A building block (``taut.formulations.schedules.orders.block``, equation (1)) gives slots to the passes of one
micro-batch. On the V, blocks are those of ``taut.solver.schedules.construct.v_sequences``: every pair of steps from 1
to 5, a larger one on the first devices, and in the slots of device 0 every order of its four passes (2). On other
placements both steps range from 1 to the period less one, and turns are made without a wait (3). Collisions are allowed
here, since slots serve as keys alone.

References
----------
.. [1] Kolisch, R. and Drexl, A. (1996). Adaptive search for solving hard project scheduling problems. Naval Research
       Logistics 43: 23-40.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.orders.block import Block, v_block
from taut.formulations.schedules.schedule import ScheduleProblem, v_shape
from taut.solver.schedules.construct.list_schedule import ListProblem, ListRule, list_schedule
from taut.solver.schedules.construct.v_sequences import place_v_block
from taut.solver.schedules.longest_path import DisjunctiveGraph, disjunctive_graph, makespan


class BuildingBlocks:
    """
    All building blocks of a pipeline, (2) or (3), made when asked for.

    ``problem``: the pipeline.
    """

    def __init__(self, problem: ScheduleProblem) -> None:
        half = problem.num_chunks // 2
        self.period = 3 * int(np.bincount(problem.device).max())
        self.steps = np.sign(np.diff(problem.device))
        self.is_v = half > 0 and np.array_equal(problem.device, v_shape(half))
        self.half = half

    def __len__(self) -> int:
        """Return their number."""
        return 25 * 60 * 4 if self.is_v else (self.period - 1) ** 2

    def __getitem__(self, place: int) -> Block:
        """Return a block by its place."""
        rest, down = divmod(place, self.period - 1)
        if not self.is_v:
            return self._straight(down + 1, rest + 1)
        rest, first = divmod(rest, 5)
        quarter, turns = divmod(rest, 60)
        return _turned(self.half, down + 1, max(down, first) + 1, quarter, _TURNS[turns])

    def _straight(self, down: int, up: int) -> Block:
        forward = np.concatenate(([0], np.cumsum(np.where(self.steps >= 0, down, up))))
        back = np.concatenate(([0], np.cumsum(np.where(self.steps[::-1] >= 0, up, down))))
        return Block(forward, (forward[-1] + 1 + back)[::-1], self.period)


_TURNS = tuple(permutations(range(1, 6), 3))


def _turned(p: int, down: int, early: int, quarter: int, turns: tuple[int, ...]) -> Block:
    """Block of the V whose f, I, i on device 0 are in given slots modulo 6, and that is longer on early devices."""
    slots = np.empty((p, 4), dtype=np.int64)
    f, up, i = turns
    place_v_block(early, down, ((quarter + 1) * p) // 5, f, up, i, slots)
    return v_block(*slots.T)


# A rule draws one value of each list. Which is best depends on times and memory, so each list spans its range, and a
# value that seldom wins costs samples alone.
_DELAYS = (1e9, 11.5, 5.5, 3.5, 23.5, 1.5)
"""Slots from I to its W, parameter 2: 1e9 is for ever; halves fall between slots, which are whole, so no keys tie."""
_PATIENCE = ((0.5, 0.5), (0.0, 0.0), (0.25, 0.75), (1.0, 1.0), (0.0, 1.0))
"""Shares of a forward's or input gradient's and of a weight gradient's duration, parameter 3; zeros never wait."""
_SLOPES = (0.5, 2 / 3, 0.75, 1.0, 1 / 3, None, None)
"""Slope s of (1); None, twice as likely, takes the lifespans in the block."""
_STARTS = (1.5, 1.0, 2.0, 1.25, 1.75)
"""Micro-batches in flight on the last chunk, s_0 of (1)."""
_SHARES = (1.0, 0.75, 1.25, 1.1)
"""Share sigma of (1): above 1 a chunk may take memory that others leave."""
_RESERVES = (0, 1)
"""Activations of the largest chunk that are kept free, parameter 4."""
_OF_1F1B = (1e9, 1.0, 1.5, 2.0)
"""Largest M as a multiple of 1F1B's memory, parameter 4; 1e9 is the limit alone."""


@dataclass(frozen=True)
class PriorityRule:
    """Index of each parameter's value in its list, 1 to 5."""

    block: int
    delay: int
    patience: int
    slope: int
    start: int
    share: int
    reserve: int
    of_1f1b: int
    times: int


@dataclass(eq=False)
class ListScheduler:
    """List schedules of one pipeline."""

    problem: ScheduleProblem
    blocks: BuildingBlocks = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = BuildingBlocks(self.problem)
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
    def graph(self) -> DisjunctiveGraph:
        """The pipeline as a disjunctive graph."""
        return disjunctive_graph(self.problem)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of every parameter of a rule."""
        lists = (_DELAYS, _PATIENCE, _SLOPES, _STARTS, _SHARES, _RESERVES, _OF_1F1B, self._problems)
        return (len(self.blocks), *(len(values) for values in lists))

    def schedule(self, rule: PriorityRule) -> tuple[float, Ints]:
        """
        List schedule of a rule.

        ``rule``: the parameters 1 to 5. Returns makespan in seconds at the given times, and flat order (3 C m,).
        """
        problem = self.problem
        keys = ListRule(
            slot=self._slots(rule),
            period=float(self.blocks[rule.block].period),
            cap=self.caps(rule),
            patience=np.array(_PATIENCE[rule.patience]),
        )
        list_schedule(self._problems[rule.times], keys, self._passes, self.graph.first)
        kind, chunk, micro_batch = self._passes.T
        order = (kind * problem.num_chunks + chunk) * problem.num_micro_batches + micro_batch
        return makespan(self.graph, order), order

    @cached_property
    def _problems(self) -> list[ListProblem]:
        """The pipeline with the times of parameter 5: as given, equal and without transfers, and with one of both."""
        problem = self.problem
        given = ListProblem(
            hosted=self.hosted,
            device=problem.device,
            seconds=problem.seconds,
            transfer=problem.transfer,
            activation=problem.activation,
            kept=problem.kept_for_weight,
            allowed=problem.allowed,
            micro_batches=problem.num_micro_batches,
        )
        mean = np.full_like(problem.seconds, problem.seconds[:3].mean())
        none = np.zeros_like(problem.transfer)
        times = [(problem.seconds, problem.transfer), (mean, none), (problem.seconds, none), (mean, problem.transfer)]
        return [given._replace(seconds=seconds, transfer=transfer) for seconds, transfer in times]

    def _slots(self, rule: PriorityRule) -> Floats:
        """Keys of the first micro-batch, parameters 1 and 2."""
        block = self.blocks[rule.block]
        return np.stack((block.forward, block.input_gradient, block.input_gradient + _DELAYS[rule.delay]))

    def caps(self, rule: PriorityRule) -> Ints:
        """
        Most micro-batches in flight, (1).

        ``rule``: the parameters 1 to 5. Returns number by chunk (C,), at least 1.
        """
        problem, m = self.problem, self.problem.num_micro_batches
        device, first, memory = problem.device, self.hosted[:, 0], self._memory(rule)
        share = _SHARES[rule.share] * memory / (self.hosted >= 0).sum(axis=1)
        caps = np.clip(np.minimum(self._ramps(rule), _quotient(share[device], problem.activation, m)), 1, m)
        caps[first] = 0
        left = memory - np.bincount(device, weights=caps * problem.activation, minlength=problem.num_devices)
        caps[first] = np.maximum(_quotient(left, problem.activation[first], m), 1)
        return caps

    def _ramps(self, rule: PriorityRule) -> Ints:
        """Micro-batches in flight by chunk from a slope, or from the lifespans in the block."""
        slope, start = _SLOPES[rule.slope], _STARTS[rule.start]
        if slope is None:
            block = self.blocks[rule.block]
            alive = (block.input_gradient - block.forward) / block.period
            return np.asarray(np.ceil(alive + start - 1.5), dtype=np.int64)
        return np.asarray(start + slope * np.arange(self.problem.num_chunks)[::-1], dtype=np.int64)

    def _memory(self, rule: PriorityRule) -> Floats:
        """Memory to use on each device in units, parameter 4."""
        problem = self.problem
        largest = np.zeros(problem.num_devices)
        np.maximum.at(largest, problem.device, problem.activation)
        whole = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
        most = _OF_1F1B[rule.of_1f1b] * problem.num_devices * whole
        used = np.minimum(problem.allowed, most) - _RESERVES[rule.reserve] * largest
        return np.asarray(np.maximum(used, whole), dtype=np.float64)


def _quotient(memory: Floats, unit: Floats, most: int) -> Ints:
    """How often units fit into memories, at most a given number."""
    # Units of nothing fit even where nothing is left.
    scarce = (memory < unit * most) & (unit > 0)
    times = np.divide(memory, unit, out=np.zeros_like(unit), where=scarce) * (1 + 1e-9)
    return np.where(scarce, times, most).astype(np.int64)
