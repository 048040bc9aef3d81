r"""
The recurrence of a pipeline schedule, compiled: when every pass starts, and what its device then holds.

Sets and data are those of ``taut.formulations.schedules.schedule``, equations (1) to (7). Passes come flat, device
after device, as rows (kind, chunk, micro-batch); ``first[d]`` is the row of device d's first pass. A device runs until
its next pass waits for another device; it is taken up again when that pass has run, so every pass is looked at twice at
most and the time is linear in the number of passes.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = 0, 1, 2, 3


@jit
def execute(
    passes: Ints, first: Ints, seconds: Floats, transfer: Floats, num_micro_batches: int, start: Floats, end: Floats
) -> Ints:
    """
    Start every pass as early as its device's order allows, and fill the seconds at which passes start and end (n,).

    ``passes`` (n, 3) lie device after device, from the rows ``first`` (devices + 1,); ``seconds`` are by kind and chunk
    (4, C), and ``transfer`` (C - 1,) is 0 on one device. Returns the row at which each device waits for ever
    (devices,), the end of its rows if it got through.
    """
    devices, chunks, size = len(first) - 1, seconds.shape[1], seconds.shape[1] * num_micro_batches
    # By place, of all forward passes and then of all backward ones. Places have no sign: numba asks of each index that
    # has one whether it counts from the end, which takes as long as all else.
    finish, waiting = np.full(2 * size, -1.0), np.full(2 * size, -1)
    next_chunk, backward = np.uint64(num_micro_batches), np.uint64(size)
    row, todo = first[:-1].copy(), first[:-1].copy()
    clock = np.zeros(devices)
    # Not by numpy.arange, which takes half a second to compile.
    for d in range(devices):
        todo[d] = d
    depth = devices
    while depth > 0:
        depth -= 1
        d = todo[depth]
        r, now = row[d], clock[d]
        while r < first[d + 1]:
            at = np.uint64(r)
            kind, c = passes[at, 0], passes[at, 1]
            place = np.uint64(c * num_micro_batches + passes[at, 2])
            ready = 0.0
            if kind == FORWARD:
                if c > 0:
                    ready = finish[place - next_chunk]
                    if ready < 0:
                        waiting[place - next_chunk] = d
                        break
                    ready += transfer[c - 1]
            else:
                # The pass before on the same chunk ran on this device; if it has not, the order is wrong.
                if finish[place + backward if kind == WEIGHT_GRADIENT else place] < 0:
                    break
                place += backward
                if kind != WEIGHT_GRADIENT and c < chunks - 1:
                    ready = finish[place + next_chunk]
                    if ready < 0:
                        waiting[place + next_chunk] = d
                        break
                    ready += transfer[c]
            start[at] = max(now, ready)
            now = start[at] + seconds[kind, c]
            end[at] = now
            r += 1
            if kind != WEIGHT_GRADIENT:
                finish[place] = now
                other = waiting[place]
                if other >= 0:
                    todo[depth] = other
                    depth += 1
        row[d], clock[d] = r, now
    return row


@jit
def peaks(passes: Ints, first: Ints, activation: Floats, kept: Floats) -> Floats:
    """Largest units held on every device (devices,), (7), by units of a forward and until the weight gradient (C,)."""
    peak = np.zeros(len(first) - 1)
    for d in range(len(peak)):
        held = 0.0
        for r in range(first[d], first[d + 1]):
            kind, c = passes[r, 0], passes[r, 1]
            if kind == FORWARD:
                held += activation[c]
                peak[d] = max(peak[d], held)
            elif kind == INPUT_GRADIENT:
                held -= activation[c] - kept[c]
            elif kind == WEIGHT_GRADIENT:
                held -= kept[c]
            else:
                held -= activation[c]
    return peak


@jit
def device_ends(passes: Ints, first: Ints, seconds: Floats, transfer: Floats, num_micro_batches: int) -> Floats:
    """Ends of devices (n, devices) under durations by kind and chunk (n, 4, C) and transfers (n, C - 1)."""
    ends = np.zeros((len(seconds), len(first) - 1))
    start, end = np.zeros(len(passes)), np.zeros(len(passes))
    for n in range(len(seconds)):
        execute(passes, first, seconds[n], transfer[n], num_micro_batches, start, end)
        for d in range(len(first) - 1):
            if first[d + 1] > first[d]:
                ends[n, d] = end[first[d + 1] - 1]
    return ends


@jit_inside
def critical_counts(
    passes: Ints, first: Ints, device: Ints, start: Floats, end: Floats, num_micro_batches: int, last: int
) -> tuple[Ints, Ints]:
    """Passes by kind and chunk (4, C), and transfers by chunk (C,), of a longest path to the end of a device."""
    chunks = len(device)
    row_of = np.zeros((2, chunks, num_micro_batches), np.int64)
    for r in range(len(passes)):
        if passes[r, 0] != WEIGHT_GRADIENT:
            row_of[0 if passes[r, 0] == FORWARD else 1, passes[r, 1], passes[r, 2]] = r
    counts, hops = np.zeros((4, chunks), np.int64), np.zeros(chunks, np.int64)
    d, r = last, first[last + 1] - 1
    while True:
        kind, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
        counts[kind, c] += 1
        if start[r] <= 0.0:
            return counts, hops
        if r > first[d] and end[r - 1] == start[r]:
            r -= 1
            continue
        before = c - 1 if kind == FORWARD else c + 1
        hops[min(before, c)] += 1
        d, r = device[before], row_of[0 if kind == FORWARD else 1, before, i]
