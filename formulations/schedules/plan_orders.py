r"""
Order-priced schedules: where their chunks lie, the order of their passes, and what they hold.

A pipeline of pp devices has v = vpp chunks on each, C = v pp in all, in the order in which a micro-batch visits them.
Chunk c lies on device c mod pp; under a V, where v = 2, on c or 2 pp - 1 - c. For m micro-batches the passes run in

=====================  ===========================  ======================================================
``interleaved-1f1b``   round the devices, v >= 2    whole backward passes; m is a multiple of pp
``zb-h1``, ``zb-h2``   one chunk a device           gradients by the weights fill what would be idle
``zb-v``               the V                        as its authors wrote it down; m >= 2 pp
``v-half``, ``v-min``  the V                        their building block, repeated, idle slots squeezed out
=====================  ===========================  ======================================================

(``taut.formulations.schedules.orders``). This order depends on kind, pp, v and m alone: with other times it stays,
and passes start as early as it allows (``taut.formulations.schedules.schedule``, equations (2) to (5)). On the V an
order that is adapted to the times may be given in its place (``taut.formulations.schedules.orders``).

A device holds :math:`\max_n \sum_c n_c a_c` bytes of activations, :math:`a_c` those of one micro-batch of chunk c,
over the counts n of micro-batches in flight that its order goes through. Counts that others dominate are dropped.
A split backward pass keeps everything until the gradient by the weights, as published figures do. (1)

Sources: Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters (interleaved); Qi, Wan,
Huang and Lin (2023), Zero bubble pipeline parallelism (zb-h1, zb-h2); Qi, Wan, Amar and Lin (2024), Pipeline
parallelism with controllable memory (zb-v, v-half, v-min).

A forward pass of chunk c adds one to
:math:`n_c`, and the pass that yields the gradient by the weights, or a whole backward pass, takes it away. Of the
counts n in between only those matter that no other one reaches in every chunk. (2)
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from taut.data.arrays import Ints
from taut.data.spec import Spec
from taut.errors import FormulationError
from taut.formulations.schedules.orders import (
    gpipe,
    interleaved,
    one_forward_one_backward,
    orders_of,
    repeat,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zb_v,
)
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    round_robin,
    unit_pipeline,
    v_shape,
    violations,
)


def largest_counts(kinds: Ints, chunks: Ints, number: int) -> Ints:
    """Counts (2) of a device, (states, chunks) in no order, of kind and chunk by pass in execution order (n,)."""
    change = np.zeros((len(kinds), number), np.int64)
    change[np.arange(len(kinds)), chunks] = np.where(kinds == FORWARD, 1, np.where(kinds == INPUT_GRADIENT, 0, -1))
    # A further forward pass adds to what is there.
    last = (kinds == FORWARD) & np.append(kinds[1:] != FORWARD, True)
    left, found = np.unique(change.cumsum(axis=0)[last], axis=0), np.zeros((0, number), np.int64)
    left = left[np.argsort(-left.sum(axis=1), kind="stable")]
    while len(left):
        # No other row left has as many in all.
        found, left = np.vstack((found, left[:1])), left[(left > left[0]).any(axis=1)]
    return found


_BUILD: dict[str, Callable[[ScheduleProblem], Schedule]] = {
    "interleaved-1f1b": interleaved,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "v-half": lambda problem: repeat(problem, v_half(problem.num_devices), "v-half"),
    "v-min": lambda problem: repeat(problem, v_min(problem.num_devices), "v-min"),
}
CLOSED_FORM: dict[str, Callable[[ScheduleProblem], Schedule]] = {"1f1b": one_forward_one_backward, "gpipe": gpipe}
"""Schedules whose time is a sum over stages, and how their orders are made."""
ORDER_PRICED = tuple(_BUILD)
"""Schedules whose time is that of their order, not a sum over stages."""
ON_V = ("zb-v", "v-half", "v-min")
"""Schedules whose first and last chunk share a device."""
SPLIT = ("zb-h1", "zb-h2", *ON_V)
"""Schedules that split the backward pass into gradients by the input and by the weights."""


class Order(NamedTuple):
    """Passes (n, 3) of all devices, the row of each device's first one, and the device of each chunk (C,)."""

    passes: Ints
    first: Ints
    device: Ints


def chunks_of_device(schedule: str, most: int) -> range:
    """Numbers of chunks that a device can have under a schedule, at most ``most`` where it is free to choose."""
    if schedule in ON_V:
        return range(2, 3)
    return range(2, most + 1) if schedule == "interleaved-1f1b" else range(1, 2)


def is_defined(schedule: str, pp: int, num_micro_batches: int) -> bool:
    """Whether there is an order for so many devices and micro-batches."""
    if schedule == "interleaved-1f1b":
        return num_micro_batches % pp == 0
    return schedule != "zb-v" or num_micro_batches >= 2 * pp


def device_of_chunk(schedule: str, pp: int, vpp: int) -> Ints:
    """Pipeline device of every chunk (C,)."""
    return v_shape(pp) if schedule in ON_V else round_robin(pp, vpp)


@lru_cache(maxsize=64)
def order_of(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()) -> Order:
    """Order of the passes, by formula or the one that words give; ``FormulationError`` if there is none such."""
    if schedule not in ORDER_PRICED:
        raise FormulationError(f"schedule: {schedule!r}, expected one of {', '.join(ORDER_PRICED)}")
    given = _sized(orders_of(words), pp, num_micro_batches) if words else ()
    device = device_of_chunk(schedule, pp, vpp)
    pipeline = unit_pipeline(device, num_micro_batches)
    found = _given(pipeline, schedule, given) if words else _BUILD[schedule](pipeline)
    return Order(*found.flat, device)


@lru_cache(maxsize=64)
def passes_of(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()) -> Order:
    """Order of the passes of any schedule, those with a closed form included."""
    if (build := CLOSED_FORM.get(schedule)) is None:
        return order_of(schedule, pp, vpp, num_micro_batches, words)
    pipeline = unit_pipeline(device_of_chunk(schedule, pp, vpp), num_micro_batches)
    return Order(*build(pipeline).flat, pipeline.device)


def _sized(orders: tuple[Ints, ...], pp: int, num_micro_batches: int) -> tuple[Ints, ...]:
    """The orders, refused where they are too few, before anything as large as they claim to be is built."""
    if len(orders) != pp:
        raise FormulationError(f"orders of {len(orders)} devices, expected {pp}")
    # Every chunk and micro-batch has a forward and at least one backward pass.
    if min(map(len, orders)) < 2 * num_micro_batches:
        raise FormulationError(
            f"order of {min(map(len, orders))} passes, too short for {num_micro_batches} micro-batches"
        )
    return orders


def as_schedule(kind: str, order: Order) -> Schedule:
    """An order as a schedule, which may be priced on its own."""
    return Schedule(kind, tuple(np.split(order.passes, order.first[1:-1])))


def _given(pipeline: ScheduleProblem, schedule: str, orders: tuple[Ints, ...]) -> Schedule:
    """An order that is given, checked."""
    if schedule not in ON_V:
        raise FormulationError(f"{schedule}: runs in its own order, expected one of {', '.join(ON_V)}")
    found = Schedule(schedule, orders)
    if faults := violations(pipeline, found):
        raise FormulationError(f"order of {schedule}: {faults[0]}")
    return found


def in_flight_counts(
    schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()
) -> tuple[Ints, ...]:
    """Counts of micro-batches in flight that every device goes through, (1): for each (states, vpp), none dominated."""
    if schedule == "interleaved-1f1b":
        # Counts repeat after pp v forward passes, and all begin to before the first (v + 1) pp of them are done.
        num_micro_batches = min(num_micro_batches, 3 * pp)
    return _counts(schedule, pp, vpp, num_micro_batches, words)


@lru_cache(maxsize=4096)
def _counts(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...]) -> tuple[Ints, ...]:
    passes, first, device = order_of(schedule, pp, vpp, num_micro_batches, words)
    place = np.array([np.count_nonzero(device[:c] == d) for c, d in enumerate(device.tolist())])
    found = []
    for d in range(pp):
        rows = passes[first[d] : first[d + 1]]
        counts = largest_counts(rows[:, 0], place[rows[:, 1]], int((device == d).sum()))
        found.append(np.unique(counts, axis=0))
    return tuple(found)


class GivenOrder(Spec):
    """An order for a schedule on the V at given degrees, a word for each device (``taut.formulations.space`` (6))."""

    schedule: Literal["zb-v", "v-half", "v-min"]
    pp: Annotated[int, Field(gt=1)]
    tp: Annotated[int, Field(gt=0)]
    micro_batch: Annotated[int, Field(gt=0)]
    num_micro_batches: Annotated[int, Field(gt=0)]
    words: list[str]

    @model_validator(mode="after")
    def _feasible(self) -> Self:
        try:
            order_of(self.schedule, self.pp, 2, self.num_micro_batches, tuple(self.words))
        except FormulationError as error:
            raise ValueError(str(error)) from None
        return self
