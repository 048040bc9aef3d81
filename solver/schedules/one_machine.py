r"""
The one-machine relaxation of a pipeline to one device, and the heads and tails that join the devices.

Of a schedule of makespan at most T, keep the passes of device d alone, whose chunks are :math:`c_1 < \dots < c_v`. They
run one at a time, within memory, each after its head and before its tail, as in the one-machine problem to which a
job-shop problem is relaxed [1]_. Here consecutive passes of a micro-batch on d are also joined by a lag, at least the
way through the chunks of other devices:

.. math:: \ell(F_c, F_{c'}) = \sum_{c < x < c'} f_x + \sum_{c \le x < c'} t_x, \quad
    \ell(F_{c_v}, I_{c_v}) = \sum_{x > c_v} (f_x + b_x + 2 t_{x-1}), \quad
    \ell(I_{c'}, I_c) = \sum_{c < x < c'} b_x + \sum_{c \le x < c'} t_x. \tag{1}

Consecutive micro-batches are at least

.. math:: \sigma = \max_x f_x, \qquad \max\big( \max_x f_x, \; \max_x b_x, \; f_{C-1} + b_{C-1} \big), \qquad
    \max_x b_x \tag{2}

apart on that way, x being the chunks in between: for j < k, x runs its passes for j, ..., k one after the other, and
the last chunk its forward and backward ones, between the end of pass j before the way and the start of pass k after it.

What remains is a one-machine problem whose state is one number for each stream of equal passes. Sweeps
(``taut.solver.schedules.sweep``) refute a makespan T for it, a destructive bound [2]_. Weight gradients of equal
duration and memory form one stream: the k-th of them, whatever its chunk, has at least the k-th smallest head of all,
and is followed by the rest of the stream (3).

All data are whole numbers. They relax the problem: every schedule stays feasible and none gets longer. With powers of
two :math:`\tau` for a time unit and :math:`\upsilon` for a memory unit,

.. math:: f'_c = \lfloor f_c / \tau \rfloor \text{ and likewise } b, w, t; \qquad
    a'_c = \lfloor a_c / \upsilon \rfloor, \; k'_c = \lfloor k_c / \upsilon \rfloor, \;
    M'_d = \lceil M_d / \upsilon \rceil. \tag{4}

Starts and ends as early as possible grow with every duration, and memory held is a sum of non-negative multiples of a
and k. So a feasible schedule of makespan X is feasible here and ends by :math:`X / \tau` (5): if no schedule here ends
by the time unit T, none there ends before :math:`(T + 1) \tau` (6). Powers of two make (4) exact for whole numbers and
for fractions of few binary digits. Bounds look at canonical schedules alone
(``taut.formulations.schedules.schedule``), whose micro-batches run in order in every (chunk, kind).

A head is a lower bound on the start of a pass, a tail one on the time units from its end until the last pass of all
ends [1]_:

.. math::
    h^F_{c,k} &\ge h^F_{c-1,k} + f_{c-1} + t_{c-1}, \quad h^F_{c,k-1} + f_c, \quad
        h^F_{c_0,0} + (k + 1) \sum_{c' < c} f_{c'} + k f_c \tag{7} \\
    h^I_{c,k} &\ge h^F_{c,k} + f_c, \quad h^I_{c+1,k} + b_{c+1} + t_c, \quad h^I_{c,k-1} + b_c, \quad
        h^F_{c_0,0} + (k + 1) \Big( \sum_{c'} f_{c'} + \sum_{c' > c} b_{c'} \Big) + k b_c \tag{8} \\
    q^I_{c,k} &\ge t_{c-1} + b_{c-1} + q^I_{c-1,k}, \quad b_c + q^I_{c,k+1}, \quad
        (m - k) \Big( w_c + \sum_{c' < c} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) b_c \tag{9} \\
    q^F_{c,k} &\ge b_c + q^I_{c,k}, \quad t_c + f_{c+1} + q^F_{c+1,k}, \quad f_c + q^F_{c,k+1}, \quad
        (m - k) \Big( \sum_{c' > c} f_{c'} + \sum_{c'} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) f_c \tag{10}

where :math:`c_0` is the first chunk of the device and sums are over its chunks. The first terms propagate along the
chain of a micro-batch. The last terms are the work that one device does for micro-batches up to k, or from k on, before
or after the pass: for j at most k, F of (c', j) comes before I of (c', j), which comes before I of (c, j) if c' > c; if
c' < c then F of (c', j) comes before F of (c, j).

What the sweeps of one device prove of its passes tightens the windows of all others. Every schedule of makespan at most
T passes through the state in which pass k of stream s of a device has just ended, and sweeps keep a label that bounds
it there. So with the least t of the states that forward sweeps keep, and t' of backward ones, heads and tails are
adjusted [3]_ to

.. math:: h_{s,k} \ge \min_{n: \; n_s = k + 1} t_n - p_s, \qquad q_{s,k} \ge \min_{n: \; n_s = k} t'_n - p_s \tag{11}

and propagated by (7) to (10) to the other devices, whose sweeps then drop more. Devices are visited up and down until
one refutes T, or a round raises heads and tails by next to nothing (12). The order of visits is fixed, so the number of
the visit that refutes T is all that is needed to refute it again.

References
----------
.. [1] Carlier, J. (1982). The one-machine sequencing problem. European J. of Operational Research 11: 42-47.
.. [2] Klein, R. and Scholl, A. (1999). Computing lower bounds by destructive improvement: an application to
       resource-constrained project scheduling. European J. of Operational Research 112: 322-346.
.. [3] Carlier, J. and Pinson, E. (1994). Adjustment of heads and tails for the job-shop problem. European J. of
       Operational Research 78: 146-161.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.sweep import RADIX, SECONDS, SIZE, OneMachine, SweptStates, no_states, sweep

_DIGITS = 46
"""
Binary digits of the largest sum of durations.

Six digits below the 52 of a float leave room for sums; up to some thousand roundings put a bound off by less than
1e-10 of itself.
"""
_NO_LIMIT = 1 << 60
"""Memory that no sum of rounded activations reaches."""


class RoundedProblem(NamedTuple):
    """
    A pipeline in whole numbers, (4).

    By chunk (C,): ``device``, durations in time units, and ``transfer`` to the next chunk (C - 1,); ``activation`` and
    ``kept``, memory units that a forward takes and that are kept for the weight gradient; ``limit`` by device;
    ``exponent``, the binary logarithm of the time unit in seconds; ``is_exact``, whether no duration was rounded.
    """

    device: Ints
    forward: Ints
    input_gradient: Ints
    weight_gradient: Ints
    transfer: Ints
    micro_batches: int
    activation: Ints
    kept: Ints
    limit: Ints
    exponent: int
    is_exact: bool

    def seconds(self, target: int) -> float:
        """Seconds before which no schedule ends if none ends by the time unit ``target``, (6)."""
        return math.ldexp(target + 1, self.exponent)

    def target(self, makespan: float) -> int:
        """The largest time unit that is less than ``makespan`` seconds."""
        return math.ceil(math.ldexp(makespan, -self.exponent)) - 1


def rounded_down(problem: ScheduleProblem) -> RoundedProblem:
    """Round a problem to whole numbers, (4)."""
    everything = problem.num_micro_batches * float(problem.seconds[3].sum() + problem.forward.sum())
    everything += 2 * float(problem.transfer.sum())
    exponent = _exponent(everything)
    unit = _exponent(float(problem.activation.sum()) * problem.num_micro_batches)
    limited = np.isfinite(problem.memory_limit)
    limit = np.full(problem.num_devices, _NO_LIMIT)
    # More than all activations together limits nothing; scaled, it could exceed what 64 bits hold.
    most = 2.0 ** (_DIGITS + 1)
    limit[limited] = np.minimum(np.ceil(np.ldexp(problem.allowed[limited] * (1 + 1e-12), -unit)), most)
    times = (problem.forward, problem.input_gradient, problem.weight_gradient, problem.transfer)
    forward, input_gradient, weight_gradient, transfer = (_floor(seconds, exponent) for seconds in times)
    scaled = np.ldexp(np.concatenate(times), -exponent)
    return RoundedProblem(
        device=problem.device,
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        transfer=transfer,
        micro_batches=problem.num_micro_batches,
        activation=_floor(problem.activation, unit),
        kept=_floor(problem.kept_for_weight, unit),
        limit=limit,
        exponent=exponent,
        is_exact=bool(np.all(scaled == np.floor(scaled))),
    )


def _exponent(largest: float) -> int:
    """Exponent of the power of two that ``largest`` has so many binary digits in."""
    return math.frexp(largest)[1] - _DIGITS if largest > 0 else 0


def _floor(values: Floats, exponent: int) -> Ints:
    return np.floor(np.ldexp(values, -exponent)).astype(np.int64)


WIDTHS = (1, 4, 16)
"""Labels that a state may have, from one stage of a refutation to the next; work grows with it, so small ones first."""
MOST_SWEEPS = 24
"""Sweeps of one refutation: a cap on what a witness may ask a checker to do."""
_SHRINKS = 0.97
"""Share of states above which a sweep counts as having removed hardly any: another one would cost as much as it did."""
_MOST_STATES = 1 << 62
"""Keys must fit into 64 bits with their sign, and one digit less for sums."""


class Swept(NamedTuple):
    """Number of sweeps that refute the target or None, values of labels extended, states that the last sweeps kept."""

    refuted: int | None
    work: int
    forwards: SweptStates
    backwards: SweptStates


def refute(
    machine: OneMachine,
    target: int,
    *,
    stages: int = len(WIDTHS),
    sweeps: int = MOST_SWEEPS,
    most: int = 1 << 62,
    stop: Callable[[], bool] = lambda: False,
) -> Swept:
    """
    Try to show that the device cannot have done all its passes by the time unit ``target``.

    Directions alternate. Where a sweep keeps hardly fewer states than the last one in its direction, the next of
    ``stages`` widths begins, with more labels a state. At most ``sweeps`` are made and ``most`` values of labels
    extended, a measure of work that does not vary; ``stop`` is asked between sweeps.
    """
    left, work, stage, values = [no_states(), no_states()], 0, 0, 1 + 2 * machine.slots
    for number in range(sweeps):
        if stop():
            break
        way = number % 2
        room = (most - work) // values
        outcome, labels, new = sweep(machine, way == 0, target, WIDTHS[stage], room, left[1 - way])
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


class Relaxed(NamedTuple):
    """A pipeline in whole numbers with its heads and tails (3, C, m), in time units."""

    rounded: RoundedProblem
    head: Ints
    tail: Ints


def single_device(given: Relaxed, number: int) -> OneMachine | None:
    """One device with its heads and tails, (1) to (3); None if 64 bits cannot tell its states apart."""
    rounded, head, tail = given
    chunks = np.flatnonzero(rounded.device == number)
    m, v = rounded.micro_batches, len(chunks)
    chain = [(FORWARD, c) for c in chunks] + [(INPUT_GRADIENT, c) for c in chunks[::-1]]
    alike = np.stack((rounded.weight_gradient, rounded.kept))[:, chunks]
    kinds, group = np.unique(alike, axis=1, return_inverse=True)
    group = group.ravel()
    members = np.bincount(group)
    size = np.concatenate((np.full(2 * v, m), m * members))
    if np.prod(size + 1.0) > _MOST_STATES:
        return None
    lag, spacing = np.zeros((2, len(size)), np.int64)
    for s in range(1, 2 * v):
        lag[s], spacing[s] = _way(rounded, *chain[s - 1], *chain[s])
    freed = rounded.activation - rounded.kept
    early, late = np.zeros((2, len(size), int(size.max())), np.int64)
    for s, (kind, c) in enumerate(chain):
        early[s, :m], late[s, :m] = head[kind, c], tail[kind, c]
    for g in range(len(members)):
        own = chunks[group == g]
        first = np.sort(head[WEIGHT_GRADIENT, own], axis=None)
        early[2 * v + g, : len(first)] = first
        late[2 * v + g, : len(first)] = kinds[0, g] * np.arange(len(first))[::-1]
    slot, slots = _slots(rounded, chain, np.flatnonzero(lag), len(size), int(rounded.limit[number]))
    seconds = np.concatenate((rounded.forward[chunks], rounded.input_gradient[chunks[::-1]], kinds[0]))
    memory = np.concatenate((rounded.activation[chunks], -freed[chunks[::-1]], -kinds[1]))
    radix = np.concatenate(([1], np.cumprod(size[:-1] + 1)))
    return OneMachine(
        streams=np.ascontiguousarray(np.stack((size, seconds, memory, radix, lag, spacing, slot), axis=1)),
        follower=np.concatenate((np.full(v, -1), 2 * v + group[::-1])),
        head=early,
        tail=late,
        limit=int(rounded.limit[number]),
        slots=slots,
    )


def _way(rounded: RoundedProblem, kind: int, c: int, next_kind: int, d: int) -> tuple[int, int]:
    """Lag (1) and spacing (2) between the passes of a micro-batch on chunks c and d."""
    if kind != next_kind:
        lag = 2 * rounded.transfer[c:].sum()
        way = np.stack((rounded.forward, rounded.input_gradient))[:, c + 1 :]
        return int(lag + way.sum()), int(max(way.max(initial=0), way[:, -1:].sum()))
    low, high = min(c, d), max(c, d)
    lag = rounded.transfer[low:high].sum()
    between = (rounded.forward if kind == FORWARD else rounded.input_gradient)[low + 1 : high]
    return int(lag + between.sum()), int(between.max(initial=0))


def _slots(
    rounded: RoundedProblem, chain: list[tuple[int, int]], lagged: Ints, streams: int, limit: int
) -> tuple[Ints, int]:
    """Columns of the passes under way to each lagged stream: as many as memory and micro-batches allow."""
    slot, column = np.full(streams, -1), 1
    for s in lagged:
        held = sum(int(rounded.activation[c]) * (1 if kind == FORWARD else -1) for kind, c in chain[:s])
        slot[s] = column
        column += min(rounded.micro_batches, max(limit // held, 0)) if held > 0 else rounded.micro_batches
    return slot, column - 1


def heads(rounded: RoundedProblem, known: Ints | None = None) -> Ints:
    """Earliest starts by kind F, I, W, chunk and micro-batch (3, C, m), (7) and (8); no ``known`` one is lowered."""
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
    """Least time after each pass by kind, chunk and micro-batch (3, C, m), (9), (10); no ``known`` one is lowered."""
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
    given: Relaxed,
    target: int,
    *,
    visits: int = MOST_VISITS,
    most: int = 1 << 62,
    stop: Callable[[], bool] = lambda: False,
) -> Propagated:
    """Try to show that no schedule ends by the time unit ``target``, from heads and tails, (11), (12)."""
    work, visit, devices = 0, 0, np.arange(len(given.rounded.limit))[::-1]
    while True:
        before = given.head.sum() + given.tail.sum()
        for d in devices:
            if visit == visits:
                return Propagated(None, work)
            visit += 1
            machine = single_device(given, int(d))
            if machine is None:
                continue
            swept = refute(machine, target, stages=_STAGES, most=most - work, stop=stop)
            work += swept.work
            if swept.refuted is not None:
                return Propagated(visit, work)
            if work >= most or stop() or not len(swept.backwards.keys):
                return Propagated(None, work)
            given = _adjusted(given, int(d), machine, swept)
        if given.head.sum() + given.tail.sum() - before < _LITTLE * target * given.head.size:
            return Propagated(None, work)
        devices = devices[::-1]


def _adjusted(given: Relaxed, number: int, machine: OneMachine, swept: Swept) -> Relaxed:
    """Heads and tails by (11), for all devices."""
    rounded, (forwards, backwards) = given.rounded, (swept.forwards, swept.backwards)
    chunks = np.flatnonzero(rounded.device == number)
    chain = [(FORWARD, c) for c in chunks] + [(INPUT_GRADIENT, c) for c in chunks[::-1]]
    head, tail = given.head.copy(), given.tail.copy()
    for s, (kind, c) in enumerate(chain):
        radix, base = machine.streams[s, RADIX], int(machine.streams[s, SIZE]) + 1
        early = _least(forwards.keys // radix % base, forwards.least[:, 0], base)[1:]
        late = _least(backwards.keys // radix % base, backwards.least[:, 0], base)[:-1]
        head[kind, c] = np.maximum(head[kind, c], early - machine.streams[s, SECONDS])
        tail[kind, c] = np.maximum(tail[kind, c], late - machine.streams[s, SECONDS])
    return Relaxed(rounded, heads(rounded, head), tails(rounded, tail))


def _least(place: Ints, values: Ints, size: int) -> Ints:
    """Least value by place. Sweeps that keep any state keep one at each."""
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, place, values)
    return least
