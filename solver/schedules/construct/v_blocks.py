r"""
Building blocks of the V: slots of the passes of one micro-batch, and their repetition.

A building block [1]_ gives slots to F, f, I and i of one micro-batch on every device
(``taut.solver.schedules.construct.v_sequences``) and is repeated every 6 slots. On device 0, F is in slot 0 and f, I, i
are in slots of given remainders modulo 6. To the next device, F and I move by ``early`` slots on the first ``bend``
devices and by ``down`` on the others, f and i by -1, and the pass after a turn takes the first slot that has its
remainder (1). Two passes of a device collide if their slots have the same remainder modulo 6 (2).

References
----------
.. [1] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.construct.v_sequences import DOWN, GRADIENT_OF_DOWN, GRADIENT_OF_UP, UP, WEIGHT, Sequences


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
    Place the passes of a block, (1).

    ``early``, ``down``, ``bend``: steps of F and I; ``f``, ``up``, ``i``: remainders on device 0 of f, I and i;
    ``slots``: filled with the slots of F, f, I, i by device (p, 4). Returns False if two passes of a device collide,
    (2).
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


@jit
def _next(slot: int, remainder: int) -> int:
    """First slot from a given one on that leaves a remainder modulo 6."""
    return slot + (remainder - slot) % 6


@jit
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
