r"""
Reordering of warm-up and cool-down on the V, within M chunks on each device [1]_.

Sequences and slots are those of ``taut.solver.schedules.construct.v_sequences``; d is a device of p, m the
micro-batches.

1. Warm-up, until the first i. :math:`\phi = \min(d + 1, \lfloor M/2 \rfloor)` times f and :math:`M - \phi` times F as
   soon as they can; then I W f, :math:`\max(0, \lfloor M/2 \rfloor - d - 1)` times, then I W F. There are as many of
   these triples as leave the number of F, or of I, before the first i what it was; the rest keeps its order.
2. Cool-down, after the last f. Let s be the slot of the last f on device 0. The last
   :math:`\beta = \min(m, \lceil M/2 \rceil)` passes i and the last :math:`\min(d + 1, M - \beta)` passes I of the
   device, counted back by k, take the slots

   .. math:: i: \; s + 2p - d - 2k, \qquad I: \; s + 1 + d - 2k,

   which no others have, and W the holes between them. So the last i follow each other up the devices without a wait.

References
----------
.. [1] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.construct.v_sequences import (
    DOWN,
    GRADIENT_OF_DOWN,
    GRADIENT_OF_UP,
    UP,
    WEIGHT,
    DeviceSequence,
    Sequences,
    predecessor_table,
    unscheduled_slots,
)

BY_FORWARDS, AS_IS, BY_GRADIENTS = 0, 1, 2
"""What of a warm-up keeps its number: F, everything, or I."""


@jit
def reorder_warm_up(sequences: Sequences, most: int, by: int, out: Sequences) -> None:
    """
    Reorder the warm-up, 1.

    ``sequences``: the schedule (p, 6m); ``most``: chunks M that a device may hold; ``by``: what counts the triples:
    ``BY_FORWARDS`` or ``BY_GRADIENTS``; ``out``: filled with the reordered schedule (p, 6m).
    """
    done, row = _forwards(sequences.shape[0], sequences.shape[1] // 6, most, out)
    for d in range(len(sequences)):
        _triples(sequences[d], most // 2 - d - 1, by, done[d], row[d], out[d])


@jit
def _forwards(stages: int, m: int, most: int, out: Sequences) -> tuple[Ints, Ints]:
    """F and f ahead of the first I, as soon as they can: how often each type, and how many on each device."""
    slots, before, done = unscheduled_slots(stages, m), predecessor_table(stages), np.zeros((stages, 5), dtype=np.int64)
    row = np.zeros(stages, dtype=np.int64)
    moving, t = True, 0
    while moving:
        moving = False
        for d in range(stages):
            ahead = min(d + 1, most // 2)
            ups, downs = min(ahead, m), min(most - ahead, m)
            if done[d, UP] == ups and done[d, DOWN] == downs:
                continue
            moving = True
            if done[d, UP] < ups and slots[before[UP, d], done[d, UP]] < t:
                x = UP
            elif done[d, DOWN] < downs and slots[before[DOWN, d], done[d, DOWN]] < t:
                x = DOWN
            else:
                continue
            slots[x * stages + d, done[d, x]] = t
            done[d, x] += 1
            out[d, row[d]] = x
            row[d] += 1
        t += 1
    return done, row


@jit
def _triples(sequence: DeviceSequence, with_up: int, by: int, done: Ints, row: int, out: DeviceSequence) -> None:
    """I W f and I W F on one device, then what is left of its sequence."""
    m = len(sequence) // 6
    counted = DOWN if by == BY_FORWARDS else GRADIENT_OF_UP
    before = 0
    for x in sequence:
        if x == GRADIENT_OF_DOWN:
            break
        before += 1 if x == counted else 0
    triple = 0
    while done[counted] < before:
        forward = UP if triple < with_up else DOWN
        if done[forward] == m or done[GRADIENT_OF_UP] == m:
            break
        for x in (GRADIENT_OF_UP, WEIGHT, forward):
            out[row] = x
            done[x] += 1
            row += 1
        triple += 1
    seen = np.zeros(5, dtype=np.int64)
    for x in sequence:
        seen[x] += 1
        if seen[x] > done[x]:
            out[row] = x
            row += 1


@jit
def reorder_cool_down(sequences: Sequences, slot: Ints, most: int, out: Sequences) -> None:
    """
    Reorder the cool-down, 2.

    ``sequences``: the schedule (p, 6m); ``slot``: slot of every pass (p, 6m); ``most``: chunks M that a device may
    hold; ``out``: filled with the reordered schedule (p, 6m).
    """
    stages, length = sequences.shape
    m = length // 6
    start = 0
    for q in range(length):
        if sequences[0, q] == UP:
            start = slot[0, q]
    for d in range(stages):
        downs = min(m, (most + 1) // 2)
        ups = min(d + 1, most - downs, m)
        _tail(sequences[d], slot[d], downs, ups, start + 2 * stages - d, start + 1 + d, out[d])


@jit
def _tail(
    sequence: DeviceSequence, slot: Ints, downs: int, ups: int, last_down: int, last_up: int, out: DeviceSequence
) -> None:
    """Put the last i and I of a device on their slots, and leave all else up to its last forward."""
    m, last = len(sequence) // 6, 0
    for q in range(len(sequence)):
        if sequence[q] <= UP:
            last = q
    tail, when = np.empty(2 * m, dtype=np.int8), np.empty(2 * m, dtype=np.int64)
    seen = np.zeros(5, dtype=np.int64)
    row, late, pending = 0, 0, 0
    for q in range(len(sequence)):
        x = sequence[q]
        seen[x] += 1
        k = m - seen[x]
        on_i, on_up = x == GRADIENT_OF_DOWN and k < downs, x == GRADIENT_OF_UP and k < ups
        if x != WEIGHT and (on_i or on_up or q > last):
            tail[late] = x
            when[late] = last_down - 2 * k if on_i else last_up - 2 * k if on_up else slot[q]
            late += 1
        elif q <= last and (x != WEIGHT or pending > 0):
            pending += 0 if x <= UP else -1 if x == WEIGHT else 1
            out[row] = x
            row += 1
    _interleave(tail[:late], when[:late], slot[last] + 1, pending, out[row:])


@jit
def _interleave(tail: DeviceSequence, when: Ints, t: int, pending: int, out: DeviceSequence) -> None:
    """Passes in the order of their slots, and W in the holes from slot t on."""
    order = np.argsort(when, kind="mergesort")
    late = 0
    for row in range(len(out)):
        if late < len(tail) and (when[order[late]] <= t or pending == 0):
            t = max(t, when[order[late]]) + 1
            out[row] = tail[order[late]]
            late += 1
            pending += 1
        else:
            out[row] = WEIGHT
            pending -= 1
            t += 1
