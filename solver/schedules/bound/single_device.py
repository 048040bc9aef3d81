r"""
The one-machine relaxation: the passes of one device with heads, tails and lags, all other passes as delays.

Data are whole numbers, (4). Of a schedule of makespan at most T, keep the
passes of device d alone, whose chunks are :math:`c_1 < \dots < c_v`. They run one at a time, within memory, each after
its head and before its tail (``taut.solver.schedules.bound.heads_tails``), as in the one-machine problem to which a
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
(``taut.solver.schedules.bound.sweep``) refute a makespan T for it, a destructive bound [2]_. Weight gradients of equal
duration and memory form one stream: the k-th of them, whatever its chunk, has at least the k-th smallest head of all,
and is followed by the rest of the stream (3).

References
----------
.. [1] Carlier, J. (1982). The one-machine sequencing problem. European J. of Operational Research 11: 42-47.
.. [2] Klein, R. and Scholl, A. (1999). Computing lower bounds by destructive improvement: an application to
       resource-constrained project scheduling. European J. of Operational Research 112: 322-346.

The whole numbers relax the problem: every schedule stays feasible and none gets longer. Sets and data are those of
``taut.formulations.schedules.schedule``. With powers of two :math:`\tau` for a time unit and
:math:`\upsilon` for a memory unit,

.. math:: f'_c = \lfloor f_c / \tau \rfloor \text{ and likewise } b, w, t; \qquad
    a'_c = \lfloor a_c / \upsilon \rfloor, \; k'_c = \lfloor k_c / \upsilon \rfloor, \;
    M'_d = \lceil M_d / \upsilon \rceil. \tag{4}

Starts and ends as early as possible grow with every duration, and memory held is a sum of non-negative multiples of a
and k. So a feasible schedule of makespan X is feasible here and ends by :math:`X / \tau` (5): if no schedule here ends
by the time unit T, none there ends before :math:`(T + 1) \tau` (6). Powers of two make (4) exact for whole numbers and
for fractions of few binary digits. Bounds look at canonical schedules alone (``taut.formulations.schedules.schedule``).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.bound.sweep import OneMachine, SweptStates, no_states, sweep

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

    ``device``: device of each chunk (C,); ``forward``, ``input_gradient``, ``weight_gradient``: durations by chunk in
    time units (C,); ``transfer``: time units between each chunk and the next (C - 1,); ``micro_batches``: number m;
    ``activation``, ``kept``: memory units that a forward takes, and that are kept for the weight gradient (C,);
    ``limit``: memory units of each device (devices,); ``exponent``: binary logarithm of the time unit in seconds;
    ``is_exact``: whether no duration was rounded.
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
    """
    Round a problem to whole numbers, (4).

    Returns its relaxation in whole numbers.
    """
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
    """
    Outcome of a refutation.

    ``refuted``: number of sweeps that refute the target, None if they do not; ``work``: values of labels extended;
    ``forwards``, ``backwards``: the states that the last sweep in each direction kept.
    """

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

    Directions alternate. Where a sweep keeps hardly fewer states than the last one in its direction, the next stage
    begins, with more labels a state.

    ``target``: makespan T in time units; ``stages``: how many of ``WIDTHS`` to use; ``sweeps``: sweeps at most;
    ``most``: values of labels to extend at most, a measure of work that does not vary; ``stop``: asked between sweeps;
    if true, no more are made. Returns whether it is refuted, at which cost, and what is kept if it is not.
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


def single_device(rounded: RoundedProblem, number: int, head: Ints, tail: Ints) -> OneMachine | None:
    """
    Relax a pipeline to one of its devices, (1) to (3).

    ``head``, ``tail``: of every pass (3, C, m), in time units. Returns the relaxation; None if 64 bits cannot tell its
    states apart.
    """
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
    given = rounded.activation - rounded.kept
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
    memory = np.concatenate((rounded.activation[chunks], -given[chunks[::-1]], -kinds[1]))
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
