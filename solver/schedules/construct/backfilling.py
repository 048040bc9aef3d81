r"""
Backfilling: later passes move into the slots in which a device of the V would wait.

Sequences, slots, the precedences (2) and the chunks held (3) are those of
``taut.solver.schedules.construct.v_sequences``. Slots are gone through from left to right. Where the next pass of a
sequence is not ready, the first later one that is ready moves ahead of it; a forward does so only if at every pass
that it overtakes the device holds no more chunks than it may, so it takes no room from them, as in conservative
backfilling of job queues [1]_.

References
----------
.. [1] Mu'alem, A.W. and Feitelson, D.G. (2001). Utilization, predictability, workloads, and user runtime estimates in
       scheduling the IBM SP2 with backfilling. IEEE Transactions on Parallel and Distributed Systems 12: 529-543.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.construct.v_sequences import (
    GRADIENT_OF_DOWN,
    GRADIENT_OF_UP,
    UP,
    WEIGHT,
    Sequences,
    predecessor_table,
    unscheduled_slots,
)


@jit
def backfill(sequences: Sequences, most: int, out: Sequences) -> bool:
    """
    Move later passes into slots in which a device would wait, holding at most so many chunks.

    Slots are gone through from left to right, as in backfilling of job queues: where the next pass of a sequence is not
    ready, the first later one that is ready moves ahead, a forward only if all passes that it overtakes still fit.

    ``sequences``: the schedule (p, 6m); ``most``: chunks that a device may hold, (3); ``out``: filled with the
    sequences found (p, 6m). Returns False if devices wait for each other.
    """
    stages, length = sequences.shape
    slots, before = unscheduled_slots(stages, length // 6), predecessor_table(stages)
    done = np.zeros((stages, 5), dtype=np.int64)
    following = np.full((stages, length), length)
    head = np.full((stages, 5), length)
    for d in range(stages):
        for q in range(length - 1, -1, -1):
            x = sequences[d, q]
            following[d, q] = head[d, x]
            head[d, x] = q
    used = np.zeros((stages, length), dtype=np.bool_)
    row, held, lowest = np.zeros((3, stages), dtype=np.int64)
    left, t = stages * length, 0
    while left > 0:
        left_before = left
        for d in range(stages):
            while lowest[d] < length and used[d, lowest[d]]:
                lowest[d] += 1
            if lowest[d] == length:
                continue
            x = int(sequences[d, lowest[d]])
            if x == WEIGHT:
                waits = done[d, WEIGHT] == done[d, GRADIENT_OF_UP] + done[d, GRADIENT_OF_DOWN]
            else:
                waits = slots[before[x, d], done[d, x]] >= t
            if waits or (x <= UP and held[d] == most):
                x = _first_eligible(sequences, used, head, done, slots, before, _Slot(d, t, lowest[d], held[d], most))
                if x < 0:
                    continue
            q = head[d, x]
            used[d, q] = True
            head[d, x] = following[d, q]
            if x != WEIGHT:
                slots[x * stages + d, done[d, x]] = t
            done[d, x] += 1
            out[d, row[d]] = x
            row[d] += 1
            left -= 1
            held[d] += 1 if x <= UP else -1 if x == WEIGHT else 0
        if left == left_before:
            return False
        t += 1
    return True


class _Slot(NamedTuple):
    """A slot of a device: its first pass not yet run, the chunks that it holds and may hold at most."""

    device: int
    time: int
    lowest: int
    held: int
    most: int


@jit
def _first_eligible(
    sequences: Sequences, used: Flags, head: Ints, done: Ints, slots: Ints, before: Ints, slot: _Slot
) -> int:
    """Type of the first pass after the next one that can run in a slot; -1 if none can."""
    d = slot.device
    found, place = -1, sequences.shape[1]
    for x in range(5):
        if x == sequences[d, slot.lowest] or head[d, x] >= place:
            continue
        if x == WEIGHT:
            can = done[d, WEIGHT] < done[d, GRADIENT_OF_UP] + done[d, GRADIENT_OF_DOWN]
        else:
            can = slots[before[x, d], done[d, x]] < slot.time
        if can and (x > UP or _fits(sequences, used, head[d, x], slot)):
            found, place = x, head[d, x]
    return found


@jit
def _fits(sequences: Sequences, used: Flags, place: int, slot: _Slot) -> bool:
    """Whether a forward from a later place may run now: then and at each pass that it overtakes, (3)."""
    d, now = slot.device, slot.held + 1
    for q in range(slot.lowest, place):
        if now > slot.most:
            return False
        if not used[d, q]:
            now += 1 if sequences[d, q] <= UP else -1 if sequences[d, q] == WEIGHT else 0
    return now <= slot.most
