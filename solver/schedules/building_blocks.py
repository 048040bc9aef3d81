r"""
Schedules on the V-shaped placement as sequences of passes, assembled from building blocks: repeat, squeeze, reorder.

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

and a device holds as many chunks as it has run F and f more often than W (3). Sequences of p devices and m
micro-batches are arrays of types (p, 6m).

A building block [2]_ gives slots to F, f, I and i of one micro-batch on every device and is repeated every 6 slots. On
device 0, F is in slot 0 and f, I, i are in slots of given remainders modulo 6. To the next device, F and I move by
``early`` slots on the first ``bend`` devices and by ``down`` on the others, f and i by -1, and the pass after a turn
takes the first slot that has its remainder (4). Two passes of a device collide if their slots have the same remainder
modulo 6 (5).

The assembly counts slots, as if all passes were equal and transfers free, so one pass over all blocks serves every
memory limit and all times:

1. *Repeat.* Every block without collisions is repeated every 6 slots, for :math:`\max(m, 2p)` micro-batches, each W in
   the next free slot. Let M be the chunks that it holds, at most 2p. All that follows keeps to M, so the schedule is
   feasible for every limit from M on.
2. *Reorder the warm-up*, until the first i, in one of two ways, or leave it: :math:`\phi = \min(d + 1, \lfloor M/2
   \rfloor)` times f and :math:`M - \phi` times F as soon as they can; then I W f, :math:`\max(0, \lfloor M/2 \rfloor -
   d - 1)` times, then I W F. There are as many of these triples as leave the number of F, or of I, before the first i
   what it was; the rest keeps its order.
3. *Truncate*: surplus micro-batches, if m < 2p, leave.
4. *Squeeze* the schedule and reorder the cool-down, after the last f. Let s be the slot of the last f on device 0. The
   last :math:`\beta = \min(m, \lceil M/2 \rceil)` passes i and the last :math:`\min(d + 1, M - \beta)` passes I of the
   device, counted back by k, take the slots

   .. math:: i: \; s + 2p - d - 2k, \qquad I: \; s + 1 + d - 2k,

   which no others have, and W the holes between them. So the last i follow each other up the devices without a wait.
5. *Backfill*, slot by slot from left to right: where the next pass of a sequence is not ready, the first later one that
   is ready moves ahead of it; a forward does so only if at every pass that it overtakes the device holds no more chunks
   than it may, so it takes no room from them, as in conservative backfilling of job queues [3]_. Where micro-batches
   have left, step 4 and this one run once more, and both schedules count.

The blocks of V-Min and V-Half are also backfilled as they are. Distinct schedules are kept for each (p, m) and priced
with the times and limits given. For equal passes, no transfers, :math:`m \ge p` and M chunks on each device, from
V-Min's memory to 2p, the best takes

.. math:: 6m + \max(6p - 1 - 3M, \; 3p - 1 - M) \tag{6}

slots on up to 16 devices, which is the proven optimum wherever one is known. On larger pipelines the number of blocks
is bounded by the number of their passes.

References
----------
.. [1] Bierwirth, C. (1995). A generalized permutation approach to job shop scheduling with genetic algorithms. OR
       Spektrum 17: 87-92.
.. [2] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
.. [3] Mu'alem, A.W. and Feitelson, D.G. (2001). Utilization, predictability, workloads, and user runtime estimates in
       scheduling the IBM SP2 with backfilling. IEEE Transactions on Parallel and Distributed Systems 12: 529-543.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.orders import Block, v_half, v_min
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, v_shape
from taut.solver.schedules.disjunctive_graph import DisjunctiveGraph, disjunctive_graph, longest_path, schedule_of

DeviceSequence = npt.NDArray[np.int8]
Sequences = npt.NDArray[np.int8]
"""A sequence of types of pass for each device (p, 6m)."""

DOWN, UP, GRADIENT_OF_UP, GRADIENT_OF_DOWN, WEIGHT = 0, 1, 2, 3, 4
"""Types of pass: F, f, I, i and W."""

_NEVER = 1 << 40
"""A slot beyond all others."""


@jit_inside
def predecessor_table(stages: int) -> Ints:
    """Row in ``unscheduled_slots`` of the pass that each type but W waits for (4, p); 4p if it waits for none, (2)."""
    found, last = np.empty((4, stages), dtype=np.int64), stages - 1
    for d in range(stages):
        found[DOWN, d] = DOWN * stages + d - 1 if d > 0 else 4 * stages
        found[UP, d] = UP * stages + d + 1 if d < last else DOWN * stages + d
        found[GRADIENT_OF_UP, d] = GRADIENT_OF_UP * stages + d - 1 if d > 0 else UP * stages
        found[GRADIENT_OF_DOWN, d] = (GRADIENT_OF_DOWN * stages + d + 1) if d < last else GRADIENT_OF_UP * stages + d
    return found


@jit_inside
def unscheduled_slots(stages: int, m: int) -> Ints:
    """Slots of all passes but W before any has run, by type p + device, and a row of -1 for no pass (4p + 1, m)."""
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
    """Keep the passes of the first m micro-batches of sequences (p, 6m') in ``out`` (p, 6m)."""
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
    """Start every pass of sequences (p, 6m) in the first ``slot`` that the order allows; False if devices deadlock."""
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
    """Turn sequences (p, 6m) into a flat ``order`` (6 p m,) as in ``taut.solver.schedules.disjunctive_graph``."""
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
    """Slots of F, f, I, i by device (blocks, p, 4) of every block without collisions with ``down`` <= ``early``."""
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
    """Place a block's F, f, I, i in ``slots`` (p, 4), (4), from its steps and remainders; False if two collide, (5)."""
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
    """Repeat a block's slots (p, 4) for every micro-batch in ``sequences`` (p, 6m); each W takes the next free slot."""
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


@jit
def backfill(sequences: Sequences, most: int, out: Sequences) -> bool:
    """Move later passes of sequences (p, 6m) to where a device would wait, step 5; False if devices deadlock."""
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


@jit_inside
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
    """Whether a forward from a later place may run now, held then and at each pass that it overtakes."""
    d, now = slot.device, slot.held + 1
    for q in range(slot.lowest, place):
        if now > slot.most:
            return False
        if not used[d, q]:
            now += 1 if sequences[d, q] <= UP else -1 if sequences[d, q] == WEIGHT else 0
    return now <= slot.most


BY_FORWARDS, AS_IS, BY_GRADIENTS = 0, 1, 2
"""What of a warm-up keeps its number: F, everything, or I."""


@jit_inside
def reorder_warm_up(sequences: Sequences, most: int, by: int, out: Sequences) -> None:
    """Reorder the warm-up of sequences (p, 6m) within ``most`` chunks, step 2; ``by`` counts the triples."""
    done, row = _forwards(sequences.shape[0], sequences.shape[1] // 6, most, out)
    for d in range(len(sequences)):
        _triples(sequences[d], most // 2 - d - 1, by, done[d], row[d], out[d])


@jit_inside
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


@jit_inside
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


@jit_inside
def reorder_cool_down(sequences: Sequences, slot: Ints, most: int, out: Sequences) -> None:
    """Reorder the cool-down of sequences (p, 6m) with their slots within ``most`` chunks, step 4."""
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


@jit_inside
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


@jit_inside
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


_PASSES = 8_000_000
"""Passes of all schedules that are assembled for one (p, m): eight megabytes, and about a second."""


def assembled_schedules(problem: ScheduleProblem, count: int) -> list[Schedule]:
    """At most ``count`` assembled schedules on the V that fit, of distinct makespans, the shortest first."""
    if not np.array_equal(problem.device, v_shape(problem.num_devices)):
        return []
    sequences = assembled_sequences(problem.num_devices, problem.num_micro_batches)
    lengths = _lengths(disjunctive_graph(problem), sequences)
    distinct, places = np.unique(lengths, return_index=True)
    best = places[np.isfinite(distinct)][:count]
    return [schedule_of(problem, _flattened(sequences[place]), "blocks") for place in best]


def _flattened(sequences: Sequences) -> Ints:
    order = np.empty(sequences.size, dtype=np.int64)
    flatten(sequences, order)
    return order


@jit
def _lengths(graph: DisjunctiveGraph, sequences: npt.NDArray[np.int8]) -> Floats:
    """Makespan of each order; infinite if it breaks a memory limit."""
    lengths = np.full(len(sequences), np.inf)
    order = np.empty(sequences[0].size, dtype=np.int64)
    for a in range(len(sequences)):
        flatten(sequences[a], order)
        if _keeps_limits(graph, order):
            lengths[a] = longest_path(graph, order)
    return lengths


@jit_inside
def _keeps_limits(graph: DisjunctiveGraph, order: Ints) -> bool:
    for d in range(len(graph.first) - 1):
        held = 0.0
        for r in range(graph.first[d], graph.first[d + 1]):
            held += graph.memory_change[order[r]]
            if held > graph.allowed[d]:
                return False
    return True


@lru_cache(maxsize=8)
def assembled_sequences(stages: int, m: int) -> npt.NDArray[np.int8]:
    """All distinct schedules of an assembly as types of pass (schedules, p, 6m), read-only, in a fixed order."""
    left = max(1, _PASSES // (6 * stages * max(m, 2 * stages)))
    fixed = np.stack([_by_device(block(stages)) for block in (v_min, v_half)])
    sequences = [_backfilled(fixed, m)]
    slots = collision_free_blocks(stages)
    for by in (BY_FORWARDS, AS_IS, BY_GRADIENTS):
        some = np.linspace(0, len(slots) - 1, min(left, len(slots))).astype(np.int64)
        sequences.append(_assembled(slots[some], m, by))
        left -= len(some)
    found = np.concatenate(sequences)
    _, places = np.unique(found.reshape(len(found), -1).view(f"V{found[0].size}"), return_index=True)
    found = found[np.sort(places)]
    found.setflags(write=False)
    return found


def _by_device(block: Block) -> Ints:
    """Slots of F, f, I, i by device (p, 4)."""
    down, up = np.split(block.forward, 2)
    gradient_of_down, gradient_of_up = np.split(block.input_gradient, 2)
    return np.stack((down, up[::-1], gradient_of_up[::-1], gradient_of_down), axis=1)


@jit
def _assembled(slots: Ints, m: int, by: int) -> npt.NDArray[np.int8]:
    """Schedules of blocks by steps 1 to 5; those that hold more than 2p chunks or cannot run are left out."""
    blocks, stages, _ = slots.shape
    rounds = 1 if m >= 2 * stages else 2
    found = np.empty((rounds * blocks, stages, 6 * m), dtype=np.int8)
    whole = np.empty((stages, 6 * max(m, 2 * stages)), dtype=np.int8)
    warm, slot = whole.copy(), np.empty((stages, 6 * m), dtype=np.int64)
    short, cool = np.empty((stages, 6 * m), dtype=np.int8), np.empty((stages, 6 * m), dtype=np.int8)
    n = 0
    for a in range(blocks):
        repeat_block(slots[a], whole)
        most = peak_chunks(whole)
        if most > 2 * stages:
            continue
        if by == AS_IS:
            truncate(whole, m, short)
        else:
            reorder_warm_up(whole, most, by, warm)
            truncate(warm, m, short)
        for _ in range(rounds):
            if not squeeze(short, slot):
                break
            reorder_cool_down(short, slot, most, cool)
            if not backfill(cool, most, found[n]):
                break
            for d in range(len(short)):
                for q in range(short.shape[1]):
                    short[d, q] = found[n, d, q]
            n += 1
    return found[:n].copy()


@jit
def _backfilled(slots: Ints, m: int) -> npt.NDArray[np.int8]:
    """Schedules of blocks by steps 1 and 5 alone."""
    blocks, stages, _ = slots.shape
    found = np.empty((blocks, stages, 6 * m), dtype=np.int8)
    sequence = np.empty((stages, 6 * m), dtype=np.int8)
    for a in range(blocks):
        repeat_block(slots[a], sequence)
        backfill(sequence, peak_chunks(sequence), found[a])
    return found
