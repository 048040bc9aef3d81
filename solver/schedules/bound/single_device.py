r"""
The one-machine relaxation: the passes of one device with heads, tails and lags, all other passes as delays.

Data are whole numbers, ``taut.solver.schedules.bound.rounded_problem``. Of a schedule of makespan at most T, keep the
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
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.solver.schedules.bound.rounded_problem import RoundedProblem
from taut.solver.schedules.bound.states import OneMachine
from taut.solver.schedules.bound.sweep import SweptStates, no_states, sweep

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
