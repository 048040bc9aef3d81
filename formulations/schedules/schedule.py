r"""
Pipeline schedules: which pass of which chunk and micro-batch every device runs next.

Sets
    - Chunks :math:`c = 0, \dots, C - 1` of the layers, in the order in which a micro-batch visits them.
    - Micro-batches :math:`i = 0, \dots, m - 1`.
    - Devices d; chunk c is on device :math:`d(c)`, by any map.

Data
    - :math:`f_c, b_c, w_c`: seconds of the forward pass and of the gradients by the input and by the weights.
    - :math:`t_c`: seconds from the end of a pass of chunk c until chunk c + 1 may use its result, and of the gradient
      back; latency alone, so no device or link is occupied; 0 where both chunks are on one device.
    - :math:`a_c`: memory units that a forward pass takes; :math:`k_c \le a_c`: those still held between the gradient by
      the input and the gradient by the weights; :math:`M_d`: memory limit, in the same units, may be infinite.

Variables
    The order of the passes on every device: F (forward), I and W (gradients by input and weights), or B, which is I
    and W in one and takes :math:`b_c + w_c`. Start s and end e of each pass follow, all as early as possible.

Objective
    .. math:: \text{makespan} = \max e, \qquad \text{span} = \max_d (\max_{x \in d} e_x - \min_{x \in d} s_x). \tag{1}

Constraints
    .. math::
        s(F_{c,i}) &\ge e(F_{c-1,i}) + t_{c-1} \tag{2} \\
        s(I_{c,i}) &\ge e(F_{c,i}), \quad s(I_{c,i}) \ge e(I_{c+1,i}) + t_c \tag{3} \\
        s(W_{c,i}) &\ge e(I_{c,i}) \tag{4} \\
        s(x) &\ge e(y) \text{ if y is the pass before x on its device} \tag{5}

    with B in the place of I where it stands for it; every pass runs once, on the device of its chunk (6). Memory
    changes by :math:`+a_c` at the start of F, :math:`-(a_c - k_c)` at the end of I, :math:`-k_c` at the end of W and
    :math:`-a_c` at the end of B, so its peak depends on the order alone and

    .. math:: \text{peak}_d \le M_d. \tag{7}

The single letters, and B for the whole backward pass, are PyTorch's. Published schedules of the V shape count
:math:`k_c = a_c` [1]_.

In a *canonical* schedule every whole backward pass is split, and the micro-batches of each chunk and kind of pass are
in order. Two dominance rules remove symmetric schedules:

1. I and W in the place of a pass B let the gradient leave no later and give memory back no later.
2. Micro-batches are interchangeable, so the k-th pass of a kind on a chunk may be given to micro-batch k, for
   :math:`k = 0, 1, \dots, m - 1`. If every pass of one kind and chunk follows, by a fixed delay, the end of its own
   micro-batch's pass of another, then the k-th start follows the k-th end by that delay; memory depends on counts
   alone.

So for every schedule there is a canonical one within the same memory that is not longer. Bounds and searches need to
look at canonical schedules alone.

References
----------
.. [1] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.compiled import Warming
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, execute, peaks

_TOLERANCE = 1e-9
MOST_IN_PYTHON = 20_000
"""Passes that Python runs in one process: a tenth of a second."""
_execute, _peaks = Warming(execute, MOST_IN_PYTHON), Warming(peaks, MOST_IN_PYTHON)
"""Memory may exceed a limit by this share of it: sums of the same units in another order."""


def sequential(stages: int) -> Ints:
    """Device map of one chunk a device, in order (stages,)."""
    return np.arange(stages)


def round_robin(stages: int, chunks_per_device: int) -> Ints:
    """Device map of interleaved schedules: chunk c on device c mod stages."""
    return np.arange(stages * chunks_per_device) % stages


def v_shape(stages: int) -> Ints:
    """Device map of two chunks a device, down the devices and back up: first and last chunk on device 0."""
    return np.concatenate((np.arange(stages), np.arange(stages)[::-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduleProblem:
    """
    A pipeline whose passes are to be ordered; all arrays are copied, and ``FormulationError`` refuses wrong ones.

    ``device`` of each chunk (C,), every device from 0 on at least once; seconds of its passes (C,) and to the next
    chunk (C - 1,), 0 on one device; memory units ``activation`` of a forward pass and ``kept_for_weight`` between both
    gradients (C,), and ``memory_limit`` (devices,), infinite for none.
    """

    device: Ints
    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats
    transfer: Floats
    num_micro_batches: int
    activation: Floats
    kept_for_weight: Floats
    memory_limit: Floats

    def __post_init__(self) -> None:
        device = np.array(self.device)
        if device.ndim != 1 or device.size == 0 or not np.issubdtype(device.dtype, np.integer):
            raise FormulationError(f"device: {self.device!r}, expected one whole number for each chunk")
        self._set("device", device.astype(np.int64))
        if self.num_micro_batches < 1:
            raise FormulationError(f"num_micro_batches: {self.num_micro_batches}, expected at least 1")
        chunks = len(device)
        for name in ("forward", "input_gradient", "weight_gradient", "activation", "kept_for_weight"):
            self._set(name, _numbers(getattr(self, name), chunks, name))
        transfer = _numbers(self.transfer, chunks - 1, "transfer")
        self._set("transfer", np.where(device[1:] == device[:-1], 0.0, transfer))
        limits = np.asarray(self.memory_limit, dtype=np.float64)
        self._set("memory_limit", _numbers(limits, len(limits) if limits.ndim == 1 else 0, "memory_limit", limit=True))
        if set(device.tolist()) != set(range(self.num_devices)):
            expected = f"every device from 0 to {self.num_devices - 1}, one memory limit each"
            raise FormulationError(f"device: chunks are on devices {sorted(set(device.tolist()))}, expected {expected}")
        if np.any(self.kept_for_weight > self.activation):
            c = int(np.argmax(self.kept_for_weight > self.activation))
            kept, taken = self.kept_for_weight[c], self.activation[c]
            raise FormulationError(f"kept_for_weight: {kept:g} of chunk {c}, expected at most its activation {taken:g}")

    def _set(self, name: str, values: npt.NDArray[np.generic]) -> None:
        values.setflags(write=False)
        object.__setattr__(self, name, values)

    @property
    def num_chunks(self) -> int:
        """Number C of chunks."""
        return len(self.device)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.memory_limit)

    @cached_property
    def seconds(self) -> Floats:
        """Duration by kind of pass and chunk (4, C)."""
        whole = self.input_gradient + self.weight_gradient
        return np.stack((self.forward, self.input_gradient, self.weight_gradient, whole))

    @cached_property
    def busy(self) -> Floats:
        """Seconds of all passes of every device (devices,)."""
        work = self.num_micro_batches * (self.forward + self.input_gradient + self.weight_gradient)
        return np.bincount(self.device, weights=work, minlength=self.num_devices).astype(np.float64)

    @cached_property
    def allowed(self) -> Floats:
        """Memory limits with the rounding that (7) is checked with (devices,)."""
        return self.memory_limit * (1.0 + _TOLERANCE)


def unit_pipeline(device: Ints, num_micro_batches: int) -> ScheduleProblem:
    """A pipeline without memory limits whose passes and messages take a second each, of chunks on some devices (C,)."""
    one = np.ones(len(device))
    return ScheduleProblem(
        device=device,
        forward=one,
        input_gradient=one,
        weight_gradient=one,
        transfer=one[1:],
        num_micro_batches=num_micro_batches,
        activation=one,
        kept_for_weight=one,
        memory_limit=np.full(int(device.max()) + 1, np.inf),
    )


def _numbers(values: npt.ArrayLike, size: int, name: str, *, limit: bool = False) -> Floats:
    """Copy of an array of given size, finite (unless a limit) and not negative."""
    array = np.array(values, dtype=np.float64)
    if array.shape != (size,):
        raise FormulationError(f"{name}: shape {array.shape}, expected ({size},)")
    good = (array >= 0) if limit else np.isfinite(array) & (array >= 0)
    if not good.all():
        place = int(np.argmin(good))
        raise FormulationError(f"{name}: entry {place} is {array[place]:g}, expected a number not below 0")
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedProblem:
    """A pipeline, the name of its placement, what 1F1B holds on its fullest device, and the unit of the times."""

    placement: str
    problem: ScheduleProblem
    reference_memory: float
    unit: str = ""


LETTERS = "FIWB"
"""PyTorch's letters of the four kinds of pass."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """An order for every device: kind of pass, chunk and micro-batch (n, 3) in execution order; ``kind`` names it."""

    kind: str
    orders: tuple[Ints, ...]

    @cached_property
    def flat(self) -> tuple[Ints, Ints]:
        """All passes, device after device (n, 3), and the row of each device's first one, ending in n."""
        rows = [np.asarray(order, dtype=np.int64).reshape(-1, 3) for order in self.orders]
        first = np.concatenate(([0], np.cumsum([len(order) for order in rows])))
        return np.ascontiguousarray(np.concatenate(rows) if rows else np.zeros((0, 3), dtype=np.int64)), first


@dataclass(frozen=True, kw_only=True, eq=False)
class Timetable:
    """
    When every pass runs, ``start`` and ``end`` seconds of each device's (n,); makespan and span (1).

    ``bubble`` is the share of the makespan in which a device is idle, largest over devices, and ``peak_memory``
    (devices,) the units held at most.
    """

    start: tuple[Floats, ...]
    end: tuple[Floats, ...]
    makespan: float
    span: float
    bubble: float
    peak_memory: Floats


def timetable(problem: ScheduleProblem, schedule: Schedule) -> Timetable:
    """Start every pass as early as the order allows; ``FormulationError`` where (6) is violated or orders deadlock."""
    broken = next(_misplaced(problem, schedule), None)
    if broken:
        raise FormulationError(f"{schedule.kind}: {broken}")
    passes, first = schedule.flat
    start, end, row = _run(problem, schedule)
    stuck = next(_stuck(schedule, row), None)
    if stuck:
        raise FormulationError(f"{schedule.kind}: {stuck}")
    last, begin = end[first[1:] - 1], start[first[:-1]]
    makespan = float(last.max())
    idle = 1.0 - float(problem.busy.min()) / makespan if makespan > 0 else 0.0
    return Timetable(
        start=tuple(np.split(start, first[1:-1])),
        end=tuple(np.split(end, first[1:-1])),
        makespan=makespan,
        span=float((last - begin).max()),
        bubble=idle,
        peak_memory=_peaks(len(passes), passes, first, problem.activation, problem.kept_for_weight),
    )


def violations(problem: ScheduleProblem, schedule: Schedule) -> tuple[str, ...]:
    """What is wrong with a schedule, a sentence each: (6), then orders that wait for each other, then (7)."""
    misplaced = tuple(_misplaced(problem, schedule))
    if misplaced:
        return misplaced
    _, _, row = _run(problem, schedule)
    passes, first = schedule.flat
    held = _peaks(len(passes), passes, first, problem.activation, problem.kept_for_weight)
    return (
        *_stuck(schedule, row),
        *(
            f"device {d} holds {held[d]:g}, more than its limit {problem.memory_limit[d]:g}"
            for d in np.flatnonzero(held > problem.allowed)
        ),
    )


def _run(problem: ScheduleProblem, schedule: Schedule) -> tuple[Floats, Floats, Ints]:
    passes, first = schedule.flat
    start, end = np.zeros(len(passes)), np.zeros(len(passes))
    given = passes, first, problem.seconds, problem.transfer, problem.num_micro_batches, start, end
    row = _execute(len(passes), *given)
    return start, end, row


def _misplaced(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """Passes that (6) is violated for."""
    if len(schedule.orders) != problem.num_devices:
        yield f"orders of {len(schedule.orders)} devices, expected {problem.num_devices}"
        return
    shapes = [d for d, order in enumerate(schedule.orders) if np.ndim(order) != 2 or np.shape(order)[1] != 3]
    if shapes:
        yield f"device {shapes[0]}: the order has shape {np.shape(schedule.orders[shapes[0]])}, expected (n, 3)"
        return
    passes, first = schedule.flat
    sizes = np.array((4, problem.num_chunks, problem.num_micro_batches))
    strange = np.flatnonzero(((passes < 0) | (passes >= sizes)).any(axis=1))
    if strange.size:
        yield from (f"pass {tuple(passes[r].tolist())} does not exist" for r in strange)
        return
    kind, chunk, micro_batch = passes.T
    where = np.repeat(np.arange(problem.num_devices), np.diff(first))
    for r in np.flatnonzero(problem.device[chunk] != where):
        yield f"{name(passes[r])} is on device {where[r]}, expected {problem.device[chunk[r]]}"
    cell = chunk * problem.num_micro_batches + micro_batch
    cells = problem.num_chunks * problem.num_micro_batches
    times = [np.bincount(cell[np.isin(kind, kinds)], minlength=cells) for kinds in ((0,), (1, 3), (2, 3))]
    for letter, count in zip("FIW", times, strict=True):
        for at in np.flatnonzero(count != 1):
            yield (
                f"{letter} of chunk {at // problem.num_micro_batches}, micro-batch {at % problem.num_micro_batches} "
                f"runs {count[at]} times, expected once"
            )


def _stuck(schedule: Schedule, row: Ints) -> Iterator[str]:
    """Passes that devices wait at for ever."""
    passes, first = schedule.flat
    for d in np.flatnonzero(row < first[1:]):
        yield f"device {d} waits for ever at {name(passes[row[d]])}"


def name(passed: Ints) -> str:
    """Name of a pass (kind, chunk, micro-batch), such as F of chunk 2, micro-batch 0."""
    kind, chunk, micro_batch = passed.tolist()
    return f"{LETTERS[kind]} of chunk {chunk}, micro-batch {micro_batch}"


def canonical_schedule(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    """The canonical schedule by rules 1 and 2, feasible in the same memory and not longer."""
    orders = []
    for order in schedule.orders:
        rows = np.asarray(order)
        fused = rows[:, 0] > WEIGHT_GRADIENT
        split = np.repeat(rows, 1 + fused, axis=0)
        place = np.flatnonzero(np.repeat(fused, 1 + fused))
        split[place[::2], 0], split[place[1::2], 0] = INPUT_GRADIENT, WEIGHT_GRADIENT
        for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT):
            for c in range(problem.num_chunks):
                mine = (split[:, 0] == kind) & (split[:, 1] == c)
                split[mine, 2] = np.arange(int(mine.sum()))
        orders.append(split)
    return Schedule(schedule.kind, tuple(orders))


def canonical_starts(problem: ScheduleProblem, schedule: Schedule) -> Floats:
    """Starts in the canonical schedule, in seconds by kind F, I, W, chunk and micro-batch (3, C, m)."""
    split = canonical_schedule(problem, schedule)
    table, begin = timetable(problem, split), np.zeros((3, problem.num_chunks, problem.num_micro_batches))
    for order, start in zip(split.orders, table.start, strict=True):
        begin[tuple(np.asarray(order).T)] = start
    return begin
