r"""
Building blocks of the V in slots of device 0, and their repetition as words.

A block gives slots to F, f, I and i of one micro-batch on every device
(:mod:`taut.solver.schedules.construct.v_orders`). On device 0, F is in slot 0 and f, I, i are in slots of given
remainders modulo 6. To the next device, F and I move by
``early`` slots on the first ``bend`` devices and by ``down`` on the others, f and i by -1, and the pass after a turn
takes the first slot that has its remainder. (1)
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.construct.v_orders import DOWN, GRADIENT_OF_DOWN, GRADIENT_OF_UP, UP, WEIGHT, Words


@jit
def all_slots(stages: int) -> Ints:
    """Slots of F, f, I, i of every block without collisions whose ``down`` is at most ``early`` (blocks, p, 4)."""
    most = 60 * (5 + 10 * max(stages - 2, 0))
    found = np.empty((most, stages, 4), dtype=np.int64)
    n = 0
    for early in range(1, 6):
        for down in range(1, early + 1):
            for bend in range(1, 2 if down == early else stages - 1):
                for f in range(1, 6):
                    for up in range(1, 6):
                        for i in range(1, 6):
                            if f != up and up != i and f != i and on_v(early, down, bend, f, up, i, found[n]):
                                n += 1
    return found[:n].copy()


@jit
def on_v(early: int, down: int, bend: int, f: int, up: int, i: int, slots: Ints) -> bool:
    """
    Fill in the slots of F, f, I, i by device (p, 4), (1); false if two passes of a device share a remainder.

    Parameters
    ----------
    early, down, bend
        Steps of F and I.
    f, up, i
        Remainders on device 0 of f, I and i.
    slots
        Filled.
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
def repeated(slots: Ints, words: Words) -> None:
    """Words of a block that is repeated for every micro-batch; each W takes the next slot that is free."""
    stages, length = words.shape
    for d in range(stages):
        letter = np.full(6, WEIGHT, dtype=np.int8)
        since = np.full(6, -1)
        for x in range(4):
            letter[slots[d, x] % 6], since[slots[d, x] % 6] = x, slots[d, x]
        first, second = slots[d, GRADIENT_OF_UP], slots[d, GRADIENT_OF_DOWN]
        for t in (min(first, second), max(first, second)):
            while since[t % 6] >= 0:
                t += 1
            since[t % 6] = t
        n, t = 0, 0
        while n < length:
            i = (t - since[t % 6]) // 6
            if 0 <= i < length // 6:
                words[d, n] = letter[t % 6]
                n += 1
            t += 1
