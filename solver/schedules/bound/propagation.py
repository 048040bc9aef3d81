r"""
Propagation of heads and tails: what the sweeps of one device prove of its passes tightens the windows of all others.

Data are whole numbers, ``taut.solver.schedules.bound.rounded_problem``; a makespan of at most T is assumed, so every
pass has a time window from its head to T less its tail. Every schedule passes through the state in which pass k of
stream s of a device has just ended, and sweeps keep a label that bounds it there
(``taut.solver.schedules.bound.sweep``). So with the least t of the states that they keep

.. math:: h_{s,k} \ge \min_{n: \; n_s = k + 1} t_n - p_s, \qquad q_{s,k} \ge \min_{n: \; n_s = k} t'_n - p_s, \tag{1}

t being that of forward and t' of backward sweeps. This is an adjustment of heads and tails [1]_. The raised ones, which
hold for schedules of makespan at most T, are propagated along the chains of the micro-batches
(``taut.solver.schedules.bound.heads_tails``, (1) to (4)) to the other devices, whose sweeps then drop more. Devices are
visited up and down until one refutes T, or a round raises heads and tails by next to nothing (2). The order of visits
is fixed, so the number of the visit that refutes T is all that is needed to refute it again.

References
----------
.. [1] Carlier, J. and Pinson, E. (1994). Adjustment of heads and tails for the job-shop problem. European J. of
       Operational Research 78: 146-161.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT
from taut.solver.schedules.bound.heads_tails import heads, tails
from taut.solver.schedules.bound.rounded_problem import RoundedProblem
from taut.solver.schedules.bound.single_device import refute, single_device
from taut.solver.schedules.bound.states import RADIX, SECONDS, SIZE, OneMachine
from taut.solver.schedules.bound.sweep import SweptStates

MOST_VISITS = 2000
"""Visits to devices: a cap on what a witness may ask a checker to do."""
_STAGES = 2
"""Stages of a refutation at each visit; the third, of the largest width, is left to the best device alone."""
_LITTLE = 1e-6
"""A round that raises heads and tails by less than this share of T for each pass, on average, is the last."""


class Propagated(NamedTuple):
    """Number of visits to devices that refute a target, None if they do not; values of labels extended."""

    visits: int | None
    work: int


def refute_by_propagation(
    rounded: RoundedProblem,
    head: Ints,
    tail: Ints,
    target: int,
    *,
    visits: int = MOST_VISITS,
    most: int = 1 << 62,
    stop: Callable[[], bool] = lambda: False,
) -> Propagated:
    """
    Try to show that no schedule ends by the time unit ``target``.

    ``head``, ``tail``: time units before and after every pass that hold for all schedules (3, C, m); ``target``:
    makespan T in time units; ``visits``: visits to devices at most; ``most``: values of labels to extend at most, a
    measure of work that does not vary; ``stop``: asked between sweeps; if true, no more are made. Returns whether it is
    refuted, and at which cost.
    """
    work, visit, devices = 0, 0, np.arange(len(rounded.limit))[::-1]
    while True:
        before = head.sum() + tail.sum()
        for d in devices:
            if visit == visits:
                return Propagated(None, work)
            visit += 1
            machine = single_device(rounded, int(d), head, tail)
            if machine is None:
                continue
            swept = refute(machine, target, stages=_STAGES, most=most - work, stop=stop)
            work += swept.work
            if swept.refuted is not None:
                return Propagated(visit, work)
            if work >= most or stop() or not len(swept.backwards.keys):
                return Propagated(None, work)
            head, tail = _adjusted(rounded, int(d), machine, head, tail, swept.forwards, swept.backwards)
        if head.sum() + tail.sum() - before < _LITTLE * target * head.size:
            return Propagated(None, work)
        devices = devices[::-1]


def _adjusted(
    rounded: RoundedProblem,
    number: int,
    machine: OneMachine,
    head: Ints,
    tail: Ints,
    forwards: SweptStates,
    backwards: SweptStates,
) -> tuple[Ints, Ints]:
    """Heads and tails by (1), for all devices."""
    chunks = np.flatnonzero(rounded.device == number)
    chain = [(FORWARD, c) for c in chunks] + [(INPUT_GRADIENT, c) for c in chunks[::-1]]
    head, tail = head.copy(), tail.copy()
    for s, (kind, c) in enumerate(chain):
        radix, base = machine.streams[s, RADIX], int(machine.streams[s, SIZE]) + 1
        early = _least(forwards.keys // radix % base, forwards.least[:, 0], base)[1:]
        late = _least(backwards.keys // radix % base, backwards.least[:, 0], base)[:-1]
        head[kind, c] = np.maximum(head[kind, c], early - machine.streams[s, SECONDS])
        tail[kind, c] = np.maximum(tail[kind, c], late - machine.streams[s, SECONDS])
    return heads(rounded, head), tails(rounded, tail)


def _least(place: Ints, values: Ints, size: int) -> Ints:
    """Least value by place. Sweeps that keep any state keep one at each."""
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, place, values)
    return least
