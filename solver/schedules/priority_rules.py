r"""
The family of priority rules that list schedules of a pipeline are drawn from.

A list schedule follows from a few parameters, each one of a short list:

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

A building block (``taut.formulations.schedules.orders``, equation (7)) gives slots to the passes of one
micro-batch. On the V, blocks are those of ``taut.solver.schedules.building_blocks``: every pair of steps from 1
to 5, a larger one on the first devices, and in the slots of device 0 every order of its four passes (2). On other
placements both steps range from 1 to the period less one, and turns are made without a wait (3). Collisions are allowed
here, since slots serve as keys alone.

*List scheduling* with priority keys keeps memory limits without deadlock. Sets and data are those of
``taut.formulations.schedules.schedule``. This is the parallel schedule generation scheme [2]_ [3]_: time runs forward
over all devices at once, and a device that is free starts the eligible pass of least key. For kind k, chunk c and
micro-batch i the key is

.. math:: \kappa_{k,c} + i \, P, \tag{4}

the slot of the pass in a building block that is repeated every P slots.

Micro-batches pass every chunk in order, a dominance rule (``taut.formulations.schedules.schedule``). So the state of a
device is how many forwards, gradients by the input and gradients by the weights each of its chunks has done,
:math:`n^F_c, n^I_c, n^W_c`, and the memory h that it holds. Let :math:`c_1 < c_2 < \dots` be its chunks. No gradient of
a micro-batch starts before its last forward. So micro-batch :math:`j = n^F_{c_r}`, the first that chunk :math:`c_r` has
not seen, and all later ones keep what they hold until j has been forward through all chunks; the device deadlocks
unless

.. math:: \sum_q a_{c_q} \max(n^F_{c_q} - n^F_{c_r}, 1) \le M_d \quad \text{for every r}. \tag{5}

A forward is eligible only if its input has arrived, (5) holds after it, :math:`h + a_c \le M_d` (6), and fewer
micro-batches are in flight on the chunk than a cap of at least one (7). Condition (5) is the safety test of deadlock
avoidance [4]_: the oldest unfinished micro-batch can always go on, possibly after gradients by the weights, which are
always eligible. A state against (5) can never end, so the test loses no schedule; at the start it says that one
micro-batch fits, which every schedule needs.

A device may also wait (8): it idles up to a share, ``patience``, of the chosen pass's duration if a pass of smaller key
is known to arrive by then, as in parameterised active schedules [5]_. A forward that only (6) excludes lends its key to
the gradient by the weights that makes room for it (9).

References
----------
.. [1] Kolisch, R. and Drexl, A. (1996). Adaptive search for solving hard project scheduling problems. Naval Research
       Logistics 43: 23-40.
.. [2] Graham, R.L. (1969). Bounds on multiprocessing timing anomalies. SIAM Journal on Applied Mathematics 17: 416-429.
.. [3] Kolisch, R. (1996). Serial and parallel resource-constrained project scheduling methods revisited. European J. of
       Operational Research 90: 320-333.
.. [4] Dijkstra, E.W. (1965). Cooperating sequential processes. Technical report EWD-123, section 6.
.. [5] Storer, R.H., Wu, S.D. and Vaccari, R. (1992). New search spaces for sequencing problems with application to job
       shop scheduling. Management Science 38: 1495-1509.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.orders import Block, v_block
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import ScheduleProblem, v_shape
from taut.solver.schedules.building_blocks import place_v_block
from taut.solver.schedules.disjunctive_graph import DisjunctiveGraph, disjunctive_graph, longest_path

_NEVER = np.inf


class ListProblem(NamedTuple):
    """
    What a list schedule reads of a pipeline.

    ``hosted``: chunks of each device in order, -1 beyond the last (devices, most chunks); ``seconds`` by kind (F, I, W,
    B) and chunk (4, C), ``transfer`` to the next (C - 1,); ``activation`` and ``kept`` units (C,), ``allowed``
    (devices,).
    """

    hosted: Ints
    device: Ints
    seconds: Floats
    transfer: Floats
    activation: Floats
    kept: Floats
    allowed: Floats
    micro_batches: int


class ListRule(NamedTuple):
    """
    The priority rule of a list schedule.

    ``slot`` and ``period``: keys of the first micro-batch by kind and chunk (3, C), and what each further one adds,
    (4); ``cap``: most micro-batches in flight by chunk (C,), at least 1, (7); ``patience``: shares of a pass's and of a
    weight gradient's duration to wait, (8).
    """

    slot: Floats
    period: float
    cap: Ints
    patience: Floats


@jit
def list_schedule(problem: ListProblem, rule: ListRule, passes: Ints, first: Ints) -> float:
    """Fill ``passes``, each device's from ``first`` on, by a priority rule: the makespan, infinite if nothing fits."""
    # Arrays taken out of a tuple, or rows out of a table, inside the loop would each be counted as another reference.
    hosted, device, seconds, transfer, activation, kept, allowed, m = problem
    slots, period, cap, patience = rule
    forward_slot, input_slot, weight_slot = slots[0], slots[1], slots[2]
    chunks, devices = len(device), len(hosted)
    most = hosted.shape[1]
    forwards, inputs, weights = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
    forward_at, input_at = np.full((chunks, m), _NEVER), np.full((chunks, m), _NEVER)
    forward_at[0, :] = 0.0
    held, decide, free_at = np.zeros(devices), np.zeros(devices), np.zeros(devices)
    row, left, makespan = first[:-1].copy(), first[-1], 0.0
    while left > 0:
        d, now = 0, decide[0]
        for other in range(1, devices):
            if decide[other] < now:
                d, now = other, decide[other]
        if now == _NEVER:
            return _NEVER
        kind, c, best = INPUT_GRADIENT, -1, _NEVER
        spare, spare_key = -1, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and input_at[x, i] <= now and input_slot[x] + period * i < best:
                c, best = x, input_slot[x] + period * i
            i = weights[x]
            if i < inputs[x] and weight_slot[x] + period * i < spare_key:
                spare, spare_key = x, weight_slot[x] + period * i
        if spare_key < best:
            kind, c, best = WEIGHT_GRADIENT, spare, spare_key
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = forwards[x]
            key = forward_slot[x] + period * i
            if i < m and forward_at[x, i] <= now and key < best and i - inputs[x] < cap[x]:
                if not _is_safe(hosted, d, forwards, x, activation, allowed[d]):
                    continue
                if held[d] + activation[x] <= allowed[d]:
                    kind, c, best = FORWARD, x, key
                elif spare >= 0 and kept[spare] > 0:
                    kind, c, best = WEIGHT_GRADIENT, spare, key
        # The first arrival of an input whose pass has a smaller key, (8).
        arrival = _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and now < input_at[x, i] < arrival and input_slot[x] + period * i < best:
                arrival = input_at[x, i]
            i = forwards[x]
            if (
                i < m
                and now < forward_at[x, i] < arrival
                and forward_slot[x] + period * i < best
                and i - inputs[x] < cap[x]
                and held[d] + activation[x] <= allowed[d]
                and _is_safe(hosted, d, forwards, x, activation, allowed[d])
            ):
                arrival = forward_at[x, i]
        if c < 0 or arrival - now < patience[1 if kind == WEIGHT_GRADIENT else 0] * seconds[kind, c]:
            decide[d] = arrival
            continue
        end = now + seconds[kind, c]
        free_at[d], decide[d] = end, end
        makespan = max(makespan, end)
        if kind == FORWARD:
            i = forwards[c]
            forwards[c] += 1
            held[d] += activation[c]
            if c < chunks - 1:
                forward_at[c + 1, i] = end + transfer[c]
                other = device[c + 1]
                decide[other] = min(decide[other], max(free_at[other], forward_at[c + 1, i]))
            else:
                input_at[c, i] = end
        elif kind == INPUT_GRADIENT:
            i = inputs[c]
            inputs[c] += 1
            held[d] -= activation[c] - kept[c]
            if c > 0:
                input_at[c - 1, i] = end + transfer[c - 1]
                other = device[c - 1]
                decide[other] = min(decide[other], max(free_at[other], input_at[c - 1, i]))
        else:
            i = weights[c]
            weights[c] += 1
            held[d] -= kept[c]
        passes[row[d], 0], passes[row[d], 1], passes[row[d], 2] = kind, c, i
        row[d] += 1
        left -= 1
    return makespan


@jit_inside
def _is_safe(hosted: Ints, d: int, forwards: Ints, c: int, activation: Floats, allowed: float) -> bool:
    """Whether (5) holds on a device after one more forward of a chunk."""
    for p in range(hosted.shape[1]):
        r = hosted[d, p]
        if r < 0:
            break
        seen = forwards[r] + (1 if r == c else 0)
        total = 0.0
        for q in range(hosted.shape[1]):
            x = hosted[d, q]
            if x < 0:
                break
            total += activation[x] * max(forwards[x] + (1 if x == c else 0) - seen, 1)
        if total > allowed:
            return False
    return True


class BuildingBlocks:
    """All building blocks of a pipeline, (2) or (3), made when asked for."""

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
        """Makespan in seconds at the given times, and flat order (3 C m,), of a rule's list schedule."""
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
        return longest_path(self.graph, order), order

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
        none.setflags(write=False)  # As the pipeline's own: what may be written is another type to numba.
        times = [(problem.seconds, problem.transfer), (mean, none), (problem.seconds, none), (mean, problem.transfer)]
        return [given._replace(seconds=seconds, transfer=transfer) for seconds, transfer in times]

    def _slots(self, rule: PriorityRule) -> Floats:
        """Keys of the first micro-batch, parameters 1 and 2."""
        block = self.blocks[rule.block]
        return np.stack((block.forward, block.input_gradient, block.input_gradient + _DELAYS[rule.delay]))

    def caps(self, rule: PriorityRule) -> Ints:
        """Most micro-batches in flight by chunk (C,), at least 1, (1)."""
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
