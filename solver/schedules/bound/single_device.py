r"""
The single-device relaxation: one device's passes, all others as delays.

Data are whole numbers, :class:`taut.solver.schedules.bound.ticks.Ticks`. Of a schedule of makespan at most T, keep the
passes of device d alone, whose chunks are :math:`c_1 < \dots < c_v`. They run one at a time, within memory, each after
its head and before its tail (:mod:`taut.solver.schedules.bound.heads`), and between consecutive passes of a micro-batch
on d lies at least the way through the chunks of other devices:

.. math:: \ell(F_c, F_{c'}) = \sum_{c < x < c'} f_x + \sum_{c \le x < c'} t_x, \quad
    \ell(F_{c_v}, I_{c_v}) = \sum_{x > c_v} (f_x + b_x + 2 t_{x-1}), \quad
    \ell(I_{c'}, I_c) = \sum_{c < x < c'} b_x + \sum_{c \le x < c'} t_x. \tag{1}

Consecutive micro-batches are at least

.. math:: \sigma = \max_x f_x, \qquad \max\big( \max_x f_x, \; \max_x b_x, \; f_{C-1} + b_{C-1} \big), \qquad
    \max_x b_x \tag{2}

apart on that way, x being the chunks in between: for j < k, x runs its passes for j, ..., k one after the other, and
the last chunk its forward and backward ones, between the end of pass j before the way and the start of pass k after it.
What remains is a one-machine problem whose state is one number for each stream of equal
passes; sweeps (:mod:`taut.solver.schedules.bound.sweep`) refute a makespan T for it. Weight gradients of equal duration
and memory form one stream: the k-th of them, whatever its chunk, has at least the k-th smallest head of all, and is
followed by the rest of the stream (3).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.solver.schedules.bound.states import Device
from taut.solver.schedules.bound.sweep import Left, nothing, sweep
from taut.solver.schedules.bound.ticks import Ticks

WIDTHS = (1, 4, 16)
"""Labels that a state may have, from one stage of a refutation to the next. The first decides nearly always."""
MOST_SWEEPS = 24
_SHRINKS = 0.97
_MOST_STATES = 1 << 62


class Swept(NamedTuple):
    """Number of sweeps that refute a target, None if they do not; values extended; what the last ones left."""

    refuted: int | None
    work: int
    forwards: Left
    backwards: Left


def refute(
    device: Device,
    target: int,
    *,
    stages: int = len(WIDTHS),
    sweeps: int = MOST_SWEEPS,
    most: int = 1 << 62,
    stop: Callable[[], bool] = lambda: False,
) -> Swept:
    """
    Try to show that the device cannot have done all by the tick ``target``.

    Directions alternate. Where a sweep leaves hardly fewer states than the last one in its direction, the next stage
    begins, with more labels a state.

    Parameters
    ----------
    device
        The relaxation.
    target
        Makespan T in ticks.
    stages
        How many of :data:`WIDTHS` to use.
    sweeps
        Sweeps at most.
    most
        Values of labels to extend at most, a measure of work that does not vary.
    stop
        Asked between sweeps; if true, no more are made.

    Returns
    -------
    Swept
        Whether it is refuted, at which cost, and what was left if it is not.
    """
    left, work, stage, values = [nothing(), nothing()], 0, 0, 1 + 2 * device.slots
    for number in range(sweeps):
        if stop():
            break
        way = number % 2
        room = (most - work) // values
        outcome, labels, new = sweep(device, way == 0, target, WIDTHS[stage], room, left[1 - way])
        work += labels * values
        if outcome == 0:
            return Swept(number + 1, work, *left)
        if outcome < 0:
            break
        if number > 1 and len(new.keys) > _SHRINKS * len(left[way].keys):
            stage += 1
        left[way] = new
        if stage == stages:
            break
    return Swept(None, work, *left)


def single_device(ticks: Ticks, number: int, head: Ints, tail: Ints) -> Device | None:
    """
    Relax a pipeline to one of its devices.

    Parameters
    ----------
    ticks
        The pipeline in whole numbers.
    number
        The device d.
    head, tail
        Of every pass (3, C, m), in ticks.

    Returns
    -------
    Device or None
        What the sweeps need; None if 64 bits cannot tell its states apart.
    """
    chunks = np.flatnonzero(ticks.device == number)
    m, v = ticks.micro_batches, len(chunks)
    chain = [(FORWARD, c) for c in chunks] + [(INPUT_GRADIENT, c) for c in chunks[::-1]]
    alike = np.stack((ticks.weight_gradient, ticks.kept))[:, chunks]
    kinds, group = np.unique(alike, axis=1, return_inverse=True)
    group = group.ravel()
    members = np.bincount(group)
    size = np.concatenate((np.full(2 * v, m), m * members))
    if np.prod(size + 1.0) > _MOST_STATES:
        return None
    lag, spacing = np.zeros((2, len(size)), np.int64)
    for s in range(1, 2 * v):
        lag[s], spacing[s] = _way(ticks, *chain[s - 1], *chain[s])
    given = ticks.activation - ticks.kept
    early, late = np.zeros((2, len(size), int(size.max())), np.int64)
    for s, (kind, c) in enumerate(chain):
        early[s, :m], late[s, :m] = head[kind, c], tail[kind, c]
    for g in range(len(members)):
        own = chunks[group == g]
        first = np.sort(head[WEIGHT_GRADIENT, own], axis=None)
        early[2 * v + g, : len(first)] = first
        late[2 * v + g, : len(first)] = kinds[0, g] * np.arange(len(first))[::-1]
    lagged = np.flatnonzero(lag)
    slot, slots = _slots(ticks, chain, lagged, len(size), int(ticks.limit[number]))
    return Device(
        chain=2 * v,
        size=size,
        seconds=np.concatenate((ticks.forward[chunks], ticks.input_gradient[chunks[::-1]], kinds[0])),
        memory=np.concatenate((ticks.activation[chunks], -given[chunks[::-1]], -kinds[1])),
        follower=np.concatenate((np.full(v, -1), 2 * v + group[::-1])),
        limit=int(ticks.limit[number]),
        lag=lag,
        spacing=spacing,
        lagged=lagged,
        slot=slot,
        slots=slots,
        head=early,
        tail=late,
    )


def _way(ticks: Ticks, kind: int, c: int, next_kind: int, d: int) -> tuple[int, int]:
    """Lag (1) and spacing (2) between the passes of a micro-batch on chunks c and d."""
    if kind != next_kind:
        lag = 2 * ticks.transfer[c:].sum()
        way = np.stack((ticks.forward, ticks.input_gradient))[:, c + 1 :]
        return int(lag + way.sum()), int(max(way.max(initial=0), way[:, -1:].sum()))
    low, high = min(c, d), max(c, d)
    lag = ticks.transfer[low:high].sum()
    between = (ticks.forward if kind == FORWARD else ticks.input_gradient)[low + 1 : high]
    return int(lag + between.sum()), int(between.max(initial=0))


def _slots(ticks: Ticks, chain: list[tuple[int, int]], lagged: Ints, streams: int, limit: int) -> tuple[Ints, int]:
    """Columns of the passes under way to each lagged stream: as many as memory and micro-batches allow."""
    slot, column = np.full(streams, -1), 1
    for s in lagged:
        held = sum(int(ticks.activation[c]) * (1 if kind == FORWARD else -1) for kind, c in chain[:s])
        slot[s] = column
        column += min(ticks.micro_batches, max(limit // held, 0)) if held > 0 else ticks.micro_batches
    return slot, column - 1
