r"""
Schedules on the V-shaped placement as permutations with repetition, and what can be done with them.

Two chunks a device, down the devices 0 to p - 1 and back up, give five types of pass: F and f are forward passes on the
way down and up, I and i the gradients by the input of f and F, W a gradient by the weights. Micro-batches are
interchangeable, so the n-th F of a device belongs to micro-batch n, f, I and i likewise, and the n-th W is that of the
n-th gradient by the input of its device. A sequence of types for each device is therefore a whole schedule, a
permutation with repetition [1]_:

.. math:: \text{a permutation of } F^m f^m I^m i^m W^{2m} \text{ with no prefix of more W than I and i}. \tag{1}

With all passes one slot long and no transfers, a pass may start in slot t if the one that it waits for ended before,

.. math::
    F_d \leftarrow F_{d-1}, \quad f_d \leftarrow f_{d+1} \;(f_{p-1} \leftarrow F_{p-1}), \quad
    I_d \leftarrow I_{d-1} \;(I_0 \leftarrow f_0), \quad i_d \leftarrow i_{d+1} \;(i_{p-1} \leftarrow I_{p-1}), \tag{2}

and a device holds as many chunks as it has run F and f more often than W (3).

Sequences of p devices and m micro-batches are arrays of types (p, 6m).

A building block [2]_ gives
slots to F, f, I and i of one micro-batch on every device and is
repeated every 6 slots. On device 0, F is in slot 0 and f, I, i are in slots of given remainders modulo 6. To the next
device, F and I move by ``early`` slots on the first ``bend`` devices and by ``down`` on the others, f and i by -1, and
the pass after a turn takes the first slot that has its remainder (4). Two passes of a device collide if their slots
have the same remainder modulo 6 (5).

References
----------
.. [1] Bierwirth, C. (1995). A generalized permutation approach to job shop scheduling with genetic algorithms. OR
       Spektrum 17: 87-92.
.. [2] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
"""

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Ints
from taut.formulations.compiled import jit, jit_inside

DeviceSequence = npt.NDArray[np.int8]
Sequences = npt.NDArray[np.int8]
"""A sequence of types of pass for each device (p, 6m)."""

DOWN, UP, GRADIENT_OF_UP, GRADIENT_OF_DOWN, WEIGHT = 0, 1, 2, 3, 4
"""Types of pass: F, f, I, i and W."""

_NEVER = 1 << 40
"""A slot beyond all others."""


@jit_inside
def predecessor_table(stages: int) -> Ints:
    """
    The pass that each type other than W waits for on each device, (2).

    Returns row of that pass, type p + device, in ``unscheduled_slots`` (4, p); 4p if it waits for none.
    """
    found, last = np.empty((4, stages), dtype=np.int64), stages - 1
    for d in range(stages):
        found[DOWN, d] = DOWN * stages + d - 1 if d > 0 else 4 * stages
        found[UP, d] = UP * stages + d + 1 if d < last else DOWN * stages + d
        found[GRADIENT_OF_UP, d] = GRADIENT_OF_UP * stages + d - 1 if d > 0 else UP * stages
        found[GRADIENT_OF_DOWN, d] = (GRADIENT_OF_DOWN * stages + d + 1) if d < last else GRADIENT_OF_UP * stages + d
    return found


@jit_inside
def unscheduled_slots(stages: int, m: int) -> Ints:
    """
    Slots of all passes but W before any has run.

    ``stages``, ``m``: devices p and micro-batches. Returns a slot beyond all others by type p + device and micro-batch,
    then a row of -1 for no pass (4p + 1, m).
    """
    slots = np.full((4 * stages + 1, m), _NEVER)
    slots[-1] = -1
    return slots


@jit
def peak_chunks(sequences: Sequences) -> int:
    """Most chunks that any device of sequences (p, 6m) holds, (3)."""
    most = 0
    for d in range(len(sequences)):
        held = 0
        for x in sequences[d]:
            held += 1 if x <= UP else -1 if x == WEIGHT else 0
            most = max(most, held)
    return most


@jit
def truncate(sequences: Sequences, m: int, out: Sequences) -> None:
    """
    Keep the passes of the first micro-batches alone.

    ``sequences``: sequences of more micro-batches (p, 6m' with m' >= m); ``m``: micro-batches to keep; ``out``: filled
    (p, 6m).
    """
    for d in range(len(sequences)):
        seen = np.zeros(5, dtype=np.int64)
        stays = np.zeros(sequences.shape[1], dtype=np.bool_)
        gradients, n = 0, 0
        for x in sequences[d]:
            left = stays[seen[x]] if x == WEIGHT else seen[x] < m
            seen[x] += 1
            if x in (GRADIENT_OF_UP, GRADIENT_OF_DOWN):
                stays[gradients] = left
                gradients += 1
            if left:
                out[d, n] = x
                n += 1


@jit
def squeeze(sequences: Sequences, slot: Ints) -> bool:
    """
    Start every pass in the first slot that the order allows.

    ``sequences``: the schedule (p, 6m); ``slot``: filled with the slot of every pass (p, 6m). Returns False if devices
    wait for each other.
    """
    stages, length = sequences.shape
    slots, before = unscheduled_slots(stages, length // 6), predecessor_table(stages)
    done = np.zeros((stages, 5), dtype=np.int64)
    row = np.zeros(stages, dtype=np.int64)
    left, t = stages * length, 0
    while left > 0:
        left_before = left
        for d in range(stages):
            if row[d] == length:
                continue
            x = sequences[d, row[d]]
            n = done[d, x]
            if x != WEIGHT:
                if slots[before[x, d], n] >= t:
                    continue
                slots[x * stages + d, n] = t
            slot[d, row[d]] = t
            done[d, x] += 1
            row[d] += 1
            left -= 1
        if left == left_before:
            return False
        t += 1
    return True


@jit
def flatten(sequences: Sequences, order: Ints) -> None:
    """
    Turn sequences into a flat order.

    ``sequences``: the schedule (p, 6m); ``order``: filled with numbers of passes as in
    ``taut.solver.schedules.longest_path`` (6 p m,).
    """
    stages, length = sequences.shape
    m, chunks = length // 6, 2 * stages
    pending = np.empty(length // 3, dtype=np.int64)
    for d in range(stages):
        seen = np.zeros(5, dtype=np.int64)
        gradients = 0
        for q in range(length):
            x = sequences[d, q]
            n = seen[x]
            seen[x] += 1
            if x == WEIGHT:
                order[d * length + q] = pending[n] + chunks * m
                continue
            chunk = d if x in (DOWN, GRADIENT_OF_DOWN) else chunks - 1 - d
            kind = 0 if x <= UP else 1
            order[d * length + q] = (kind * chunks + chunk) * m + n
            if kind == 1:
                pending[gradients] = order[d * length + q]
                gradients += 1


@jit
def collision_free_blocks(stages: int) -> Ints:
    """
    List every block without collisions whose ``down`` is at most ``early``, (1) and (2).

    Returns slots of F, f, I, i by device (blocks, p, 4).
    """
    most = 60 * (5 + 10 * max(stages - 2, 0))
    found = np.empty((most, stages, 4), dtype=np.int64)
    n = 0
    for early in range(1, 6):
        for down in range(1, early + 1):
            for bend in range(1, 2 if down == early else stages - 1):
                for f in range(1, 6):
                    for up in range(1, 6):
                        for i in range(1, 6):
                            if f != up and up != i and f != i and place_v_block(early, down, bend, f, up, i, found[n]):
                                n += 1
    return found[:n].copy()


@jit
def place_v_block(early: int, down: int, bend: int, f: int, up: int, i: int, slots: Ints) -> bool:
    """
    Place the passes of a block, (4).

    ``early``, ``down``, ``bend``: steps of F and I; ``f``, ``up``, ``i``: remainders on device 0 of f, I and i;
    ``slots``: filled with the slots of F, f, I, i by device (p, 4). Returns False if two passes of a device collide,
    (5).
    """
    last = len(slots) - 1
    for d in range(last + 1):
        slots[d, DOWN] = early * min(d, bend) + down * max(d - bend, 0)
    turn = _next(slots[last, DOWN] + 1, f - last)
    top = _next(turn + last + 1, up)
    foot = _next(top + slots[last, DOWN] + 1, i - last)
    alone = True
    for d in range(last + 1):
        slots[d, UP] = turn + last - d
        slots[d, GRADIENT_OF_UP] = top + slots[d, DOWN]
        slots[d, GRADIENT_OF_DOWN] = foot + last - d
        taken = 0
        for x in range(4):
            remainder = 1 << slots[d, x] % 6
            alone = alone and not taken & remainder
            taken |= remainder
    return alone


@jit_inside
def _next(slot: int, remainder: int) -> int:
    """First slot from a given one on that leaves a remainder modulo 6."""
    return slot + (remainder - slot) % 6


@jit_inside
def repeat_block(slots: Ints, sequences: Sequences) -> None:
    """
    Repeat a block for every micro-batch; each W takes the next slot that is free.

    ``slots``: slots of F, f, I, i by device (p, 4); ``sequences``: filled with the types of the passes in the order of
    their slots (p, 6m).
    """
    stages, length = sequences.shape
    for d in range(stages):
        kind = np.full(6, WEIGHT, dtype=np.int8)
        since = np.full(6, -1)
        for x in range(4):
            kind[slots[d, x] % 6], since[slots[d, x] % 6] = x, slots[d, x]
        first, second = slots[d, GRADIENT_OF_UP], slots[d, GRADIENT_OF_DOWN]
        for t in (min(first, second), max(first, second)):
            while since[t % 6] >= 0:
                t += 1
            since[t % 6] = t
        n, t = 0, 0
        while n < length:
            i = (t - since[t % 6]) // 6
            if 0 <= i < length // 6:
                sequences[d, n] = kind[t % 6]
                n += 1
            t += 1
