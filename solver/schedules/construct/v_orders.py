r"""
Orders on the V as letters, and what can be done with them.

Two chunks a device, down the devices 0 to p - 1 and back up, give five letters: F and f are forward passes on the way
down and up, I and i the gradients by the input of f and F, W a gradient by the weights. Micro-batches are alike, so the
n-th F of a device belongs to micro-batch n, f, I and i likewise, and the n-th W is that of the n-th gradient by the
input of its device: a word for each device is a whole schedule,

.. math:: \text{a permutation of } F^m f^m I^m i^m W^{2m} \text{ with no prefix of more W than I and i}. \tag{1}

With all passes one slot long and no transfers, a pass may start in slot t if the one that it waits for ended before,

.. math::
    F_d \leftarrow F_{d-1}, \quad f_d \leftarrow f_{d+1} \;(f_{p-1} \leftarrow F_{p-1}), \quad
    I_d \leftarrow I_{d-1} \;(I_0 \leftarrow f_0), \quad i_d \leftarrow i_{d+1} \;(i_{p-1} \leftarrow I_{p-1}), \tag{2}

and a device holds as many chunks as it has run F and f more often than W (3).
"""

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Flags, Ints
from taut.formulations.compiled import jit

Word = npt.NDArray[np.int8]
Words = npt.NDArray[np.int8]
"""A word for each device (p, 6m)."""

DOWN, UP, GRADIENT_OF_UP, GRADIENT_OF_DOWN, WEIGHT = 0, 1, 2, 3, 4
"""F, f, I, i and W."""

_NEVER = 1 << 40


@jit
def waits_for(stages: int) -> Ints:
    """The pass that a letter other than W waits for on each device, (2), as letter p + device (4, p); 4p if none."""
    found, last = np.empty((4, stages), dtype=np.int64), stages - 1
    for d in range(stages):
        found[DOWN, d] = DOWN * stages + d - 1 if d > 0 else 4 * stages
        found[UP, d] = UP * stages + d + 1 if d < last else DOWN * stages + d
        found[GRADIENT_OF_UP, d] = GRADIENT_OF_UP * stages + d - 1 if d > 0 else UP * stages
        found[GRADIENT_OF_DOWN, d] = (GRADIENT_OF_DOWN * stages + d + 1) if d < last else GRADIENT_OF_UP * stages + d
    return found


@jit
def unbegun(stages: int, m: int) -> Ints:
    """Slots of the passes F, f, I, i, by letter p + device, before any has run, and -1 of none (4p + 1, m)."""
    slots = np.full((4 * stages + 1, m), _NEVER)
    slots[-1] = -1
    return slots


@jit
def peak(words: Words) -> int:
    """Most chunks held on any device, (3)."""
    most = 0
    for d in range(len(words)):
        held = 0
        for x in words[d]:
            held += 1 if x <= UP else -1 if x == WEIGHT else 0
            most = max(most, held)
    return most


@jit
def shorten(words: Words, m: int, out: Words) -> None:
    """Leave the first m micro-batches, with the W of their gradients."""
    for d in range(len(words)):
        seen = np.zeros(5, dtype=np.int64)
        stays = np.zeros(words.shape[1], dtype=np.bool_)
        gradients, n = 0, 0
        for x in words[d]:
            left = stays[seen[x]] if x == WEIGHT else seen[x] < m
            seen[x] += 1
            if x in (GRADIENT_OF_UP, GRADIENT_OF_DOWN):
                stays[gradients] = left
                gradients += 1
            if left:
                out[d, n] = x
                n += 1


@jit
def squeeze(words: Words, slot: Ints) -> bool:
    """Slot of every pass (p, 6m), all as early as the order allows; false if devices wait for each other."""
    stages, length = words.shape
    slots, before = unbegun(stages, length // 6), waits_for(stages)
    done = np.zeros((stages, 5), dtype=np.int64)
    row = np.zeros(stages, dtype=np.int64)
    left, t = stages * length, 0
    while left > 0:
        left_before = left
        for d in range(stages):
            if row[d] == length:
                continue
            x = words[d, row[d]]
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
def fill(words: Words, most: int, out: Words) -> bool:
    """
    Run the first pass that is ready wherever the next one of the order is not, holding at most so many chunks.

    Slots are gone through from left to right; a forward moves ahead only if all passes that it overtakes still fit.
    The order found goes to ``out``; false if devices wait for each other.
    """
    stages, length = words.shape
    slots, before = unbegun(stages, length // 6), waits_for(stages)
    done = np.zeros((stages, 5), dtype=np.int64)
    following = np.full((stages, length), length)
    head = np.full((stages, 5), length)
    for d in range(stages):
        for q in range(length - 1, -1, -1):
            x = words[d, q]
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
            x = int(words[d, lowest[d]])
            if x == WEIGHT:
                waits = done[d, WEIGHT] == done[d, GRADIENT_OF_UP] + done[d, GRADIENT_OF_DOWN]
            else:
                waits = slots[before[x, d], done[d, x]] >= t
            if waits or (x <= UP and held[d] == most):
                x = _later(words, used, head, done, slots, before, d, t, lowest[d], held[d], most)
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


@jit
def _later(
    words: Words,
    used: Flags,
    head: Ints,
    done: Ints,
    slots: Ints,
    before: Ints,
    d: int,
    t: int,
    lowest: int,
    held: int,
    most: int,
) -> int:
    """First letter after the next one that can run in slot t; -1 if none can."""
    found, place = -1, words.shape[1]
    for x in range(5):
        if x == words[d, lowest] or head[d, x] >= place:
            continue
        if x == WEIGHT:
            can = done[d, WEIGHT] < done[d, GRADIENT_OF_UP] + done[d, GRADIENT_OF_DOWN]
        else:
            can = slots[before[x, d], done[d, x]] < t
        if can and (x > UP or _fits(words, used, d, lowest, head[d, x], held, most)):
            found, place = x, head[d, x]
    return found


@jit
def _fits(words: Words, used: Flags, d: int, lowest: int, place: int, held: int, most: int) -> bool:
    """Whether a forward from a later place may run now: then and at each pass that it overtakes, (3)."""
    now = held + 1
    for q in range(lowest, place):
        if now > most:
            return False
        if not used[d, q]:
            now += 1 if words[d, q] <= UP else -1 if words[d, q] == WEIGHT else 0
    return now <= most


@jit
def number(words: Words, order: Ints) -> None:
    """Flat order (6pm,) as numbers of passes, as in :mod:`taut.solver.schedules.chains`."""
    stages, length = words.shape
    m, chunks = length // 6, 2 * stages
    pending = np.empty(length // 3, dtype=np.int64)
    for d in range(stages):
        seen = np.zeros(5, dtype=np.int64)
        gradients = 0
        for q in range(length):
            x = words[d, q]
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
