r"""
All devices together: what one device's sweeps say of its passes becomes heads and tails of the others.

Data are whole numbers, :class:`taut.solver.schedules.bound.ticks.Ticks`; a makespan of at most T is assumed. Every
schedule passes through the state in which pass k of stream s of a device has just ended, and sweeps leave a label below
it there (:mod:`taut.solver.schedules.bound.sweep`), so with the least t of states that they leave

.. math:: h_{s,k} \ge \min_{n: \; n_s = k + 1} t_n - p_s, \qquad q_{s,k} \ge \min_{n: \; n_s = k} t'_n - p_s \tag{1}

t being that of forward and t' of backward sweeps. These heads and tails, larger than those that hold for every
schedule, go along the ways of micro-batches (:mod:`taut.solver.schedules.bound.heads`, (1) to (4)) to the other
devices, whose sweeps then drop more. Devices are visited up and down until one refutes T, or a round raises heads and
tails by next to nothing (2). The order of visits is fixed, so the number of the visit that refutes T is all that is
needed to refute it again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT
from taut.solver.schedules.bound.heads import heads, tails
from taut.solver.schedules.bound.single_device import refute, single_device
from taut.solver.schedules.bound.states import Device, radices
from taut.solver.schedules.bound.sweep import Left
from taut.solver.schedules.bound.ticks import Ticks

MOST_VISITS = 2000
_STAGES = 2
_LITTLE = 1e-6
"""A round that raises heads and tails by less than this share of T for each pass, on average, is the last."""


class Propagated(NamedTuple):
    """Number of visits to devices that refute a target, None if they do not; values extended."""

    visits: int | None
    work: int


def refute_together(
    ticks: Ticks,
    head: Ints,
    tail: Ints,
    target: int,
    *,
    visits: int = MOST_VISITS,
    most: int = 1 << 62,
    stop: Callable[[], bool] = lambda: False,
) -> Propagated:
    """
    Try to show that no schedule ends by the tick ``target``.

    Parameters
    ----------
    ticks
        The pipeline in whole numbers.
    head, tail
        Ticks before and after every pass that hold for all schedules (3, C, m).
    target
        Makespan T in ticks.
    visits
        Visits to devices at most.
    most
        Values of labels to extend at most, a measure of work that does not vary.
    stop
        Asked between sweeps; if true, no more are made.

    Returns
    -------
    Propagated
        Whether it is refuted, and at which cost.
    """
    work, visit, devices = 0, 0, np.arange(len(ticks.limit))[::-1]
    while True:
        before = head.sum() + tail.sum()
        for d in devices:
            if visit == visits:
                return Propagated(None, work)
            visit += 1
            device = single_device(ticks, int(d), head, tail)
            if device is None:
                continue
            swept = refute(device, target, stages=_STAGES, most=most - work, stop=stop)
            work += swept.work
            if swept.refuted is not None:
                return Propagated(visit, work)
            if work >= most or stop() or not len(swept.backwards.keys):
                return Propagated(None, work)
            head, tail = _raised(ticks, int(d), device, head, tail, swept.forwards, swept.backwards)
        if head.sum() + tail.sum() - before < _LITTLE * target * head.size:
            return Propagated(None, work)
        devices = devices[::-1]


def _raised(
    ticks: Ticks, number: int, device: Device, head: Ints, tail: Ints, forwards: Left, backwards: Left
) -> tuple[Ints, Ints]:
    """Heads and tails by (1), for all devices."""
    chunks = np.flatnonzero(ticks.device == number)
    chain = [(FORWARD, c) for c in chunks] + [(INPUT_GRADIENT, c) for c in chunks[::-1]]
    head, tail = head.copy(), tail.copy()
    radix = radices(device.size)
    for s, (kind, c) in enumerate(chain):
        base = int(device.size[s]) + 1
        early = _least(forwards.keys // radix[s] % base, forwards.least[:, 0], base)[1:]
        late = _least(backwards.keys // radix[s] % base, backwards.least[:, 0], base)[:-1]
        head[kind, c] = np.maximum(head[kind, c], early - device.seconds[s])
        tail[kind, c] = np.maximum(tail[kind, c], late - device.seconds[s])
    return heads(ticks, head), tails(ticks, tail)


def _least(place: Ints, values: Ints, size: int) -> Ints:
    """Least value by place. Sweeps that leave anything leave something at each."""
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, place, values)
    return least
