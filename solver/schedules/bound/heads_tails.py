r"""
Heads and tails of passes: how early each can start, and how much time must follow its end.

Data are whole numbers, ``taut.solver.schedules.bound.single_device``; micro-batches run in order in every (chunk,
kind). A head is a lower bound on a start, a tail one on the time units from an end until the last pass of all ends
[1]_:

.. math::
    h^F_{c,k} &\ge h^F_{c-1,k} + f_{c-1} + t_{c-1}, \quad h^F_{c,k-1} + f_c, \quad
        h^F_{c_0,0} + (k + 1) \sum_{c' < c} f_{c'} + k f_c \tag{1} \\
    h^I_{c,k} &\ge h^F_{c,k} + f_c, \quad h^I_{c+1,k} + b_{c+1} + t_c, \quad h^I_{c,k-1} + b_c, \quad
        h^F_{c_0,0} + (k + 1) \Big( \sum_{c'} f_{c'} + \sum_{c' > c} b_{c'} \Big) + k b_c \tag{2} \\
    q^I_{c,k} &\ge t_{c-1} + b_{c-1} + q^I_{c-1,k}, \quad b_c + q^I_{c,k+1}, \quad
        (m - k) \Big( w_c + \sum_{c' < c} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) b_c \tag{3} \\
    q^F_{c,k} &\ge b_c + q^I_{c,k}, \quad t_c + f_{c+1} + q^F_{c+1,k}, \quad f_c + q^F_{c,k+1}, \quad
        (m - k) \Big( \sum_{c' > c} f_{c'} + \sum_{c'} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) f_c \tag{4}

where :math:`c_0` is the first chunk of the device and sums are over its chunks. The first terms propagate along the
chain of a micro-batch. The last terms are the work that one device does for micro-batches up to k, or from k on, before
or after the pass: for j at most k, F of (c', j) comes before I of (c', j), which comes before I of (c, j) if c' > c; if
c' < c then F of (c', j) comes before F of (c, j).

What the sweeps of one device prove of its passes tightens the windows of all others. A makespan of at most T is
assumed, so every pass has a time window from its head to T less its tail. Every schedule passes through the state in
which pass k of stream s of a device has just ended, and sweeps keep a label that bounds it there
(``taut.solver.schedules.bound.sweep``). So with the least t of the states that they keep

.. math:: h_{s,k} \ge \min_{n: \; n_s = k + 1} t_n - p_s, \qquad q_{s,k} \ge \min_{n: \; n_s = k} t'_n - p_s, \tag{5}

t being that of forward and t' of backward sweeps. This is an adjustment of heads and tails [2]_. The raised ones, which
hold for schedules of makespan at most T, are propagated along the chains of the micro-batches
by (1) to (4) to the other devices, whose sweeps then drop more. Devices are
visited up and down until one refutes T, or a round raises heads and tails by next to nothing (6). The order of visits
is fixed, so the number of the visit that refutes T is all that is needed to refute it again.

References
----------
.. [1] Carlier, J. (1982). The one-machine sequencing problem. European J. of Operational Research 11: 42-47.
.. [2] Carlier, J. and Pinson, E. (1994). Adjustment of heads and tails for the job-shop problem. European J. of
       Operational Research 78: 146-161.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.solver.schedules.bound.single_device import RoundedProblem, refute, single_device
from taut.solver.schedules.bound.sweep import RADIX, SECONDS, SIZE, OneMachine, SweptStates


def heads(rounded: RoundedProblem, known: Ints | None = None) -> Ints:
    """
    Earliest starts, (1) and (2).

    ``known``: heads that are known already (3, C, m); none is lowered. Returns time units by kind F, I, W, chunk and
    micro-batch (3, C, m).
    """
    f, b, w, t = rounded.forward, rounded.input_gradient, rounded.weight_gradient, rounded.transfer
    chunks, k = len(f), np.arange(rounded.micro_batches)
    head = np.zeros((3, chunks, len(k)), np.int64) if known is None else known.copy()
    for c in range(chunks):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        before = head[FORWARD, mates[0], 0] + (k + 1) * f[mates[mates < c]].sum() + k * f[c]
        ready = head[FORWARD, c] if mates[0] == c else np.maximum(head[FORWARD, c], before)
        if c:
            ready = np.maximum(ready, head[FORWARD, c - 1] + f[c - 1] + t[c - 1])
        head[FORWARD, c] = _paced(ready, f[c])
    for c in reversed(range(chunks)):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        before = head[FORWARD, mates[0], 0] + (k + 1) * (f[mates].sum() + b[mates[mates > c]].sum()) + k * b[c]
        ready = np.maximum(np.maximum(head[INPUT_GRADIENT, c], before), head[FORWARD, c] + f[c])
        if c + 1 < chunks:
            ready = np.maximum(ready, head[INPUT_GRADIENT, c + 1] + b[c + 1] + t[c])
        head[INPUT_GRADIENT, c] = _paced(ready, b[c])
        head[WEIGHT_GRADIENT, c] = _paced(np.maximum(head[WEIGHT_GRADIENT, c], head[INPUT_GRADIENT, c] + b[c]), w[c])
    return head


def tails(rounded: RoundedProblem, known: Ints | None = None) -> Ints:
    """
    Least time after each pass, (3) and (4).

    ``known``: tails that are known already (3, C, m); none is lowered. Returns time units by kind F, I, W, chunk and
    micro-batch (3, C, m).
    """
    f, b, w, t = rounded.forward, rounded.input_gradient, rounded.weight_gradient, rounded.transfer
    chunks, k = len(f), np.arange(rounded.micro_batches)
    left = rounded.micro_batches - k
    tail = np.zeros((3, chunks, len(k)), np.int64) if known is None else known.copy()
    for c in range(chunks):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        tail[WEIGHT_GRADIENT, c] = (left - 1) * w[c]
        after = left * (w[c] + (b + w)[mates[mates < c]].sum()) + (left - 1) * b[c]
        after = np.maximum(tail[INPUT_GRADIENT, c], after)
        if c:
            after = np.maximum(after, t[c - 1] + b[c - 1] + tail[INPUT_GRADIENT, c - 1])
        tail[INPUT_GRADIENT, c] = _paced(after[::-1], b[c])[::-1]
    for c in reversed(range(chunks)):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        after = left * (f[mates[mates > c]].sum() + (b + w)[mates].sum()) + (left - 1) * f[c]
        after = np.maximum(np.maximum(tail[FORWARD, c], after), b[c] + tail[INPUT_GRADIENT, c])
        if c + 1 < chunks:
            after = np.maximum(after, t[c] + f[c + 1] + tail[FORWARD, c + 1])
        tail[FORWARD, c] = _paced(after[::-1], f[c])[::-1]
    return tail


def _paced(least: Ints, pace: int) -> Ints:
    """Raise bounds to those of a sequence that takes at least ``pace`` from each member to the next."""
    drift = pace * np.arange(len(least))
    return np.asarray(np.maximum.accumulate(least - drift) + drift)


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
    """Heads and tails by (5), for all devices."""
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
