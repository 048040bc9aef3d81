r"""
Critical paths through an order of passes: linear lower bounds on its makespan.

Sets: passes (kind, chunk, micro-batch) in an order for every device; arcs from a pass to the next one of its device,
and to the pass of the neighbouring chunk that takes its output.
Data: seconds of F, I and W of every chunk, seconds of a transfer between neighbouring chunks.

In this directed acyclic graph a pass starts once all passes before it have ended and their transfers have arrived. So
the makespan is the length of a longest path, the critical path, and at least the length of every path, whatever the
seconds are (Kelley and Walker, Critical-path planning and scheduling, 1959). Two kinds of path are used:

(1) of a device: the forward passes of the chunks before its first one, all its passes, and, unless it ends there, after
    its last pass the gradients of the chunks before that one's, if that hands a gradient on;
(2) critical: a longest path for given seconds; where the pass before on the device and an input end at the same time,
    it goes through the pass before.

A path is the number of its F, I and W of every chunk, (C, 3), of its transfers, (C - 1,), and the device on which it
ends. A path that ends on device d is a lower bound on the end of that device's last pass.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import Warming, jit
from taut.formulations.schedules.orders import Order
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, WEIGHT_GRADIENT, execute

_TIE = 1e-9
"""Relative difference up to which two ends count as one: far above rounding, far below any pass."""


class Path(NamedTuple):
    """Numbers of passes (C, 3) and of transfers (C - 1,), and the device of the last pass."""

    passes: Ints
    transfers: Ints
    last: int


def device_path(order: Order, device: int, *, ends_there: bool = False) -> Path:
    """Path (1) of a device; ``ends_there``: whether it ends with the device's last pass."""
    rows = order.passes[order.first[device] : order.first[device + 1]]
    chunks = len(order.device)
    passes, transfers = np.zeros((chunks, 3), np.int64), np.zeros(chunks - 1, np.int64)
    for kind, column in ((0, 0), (1, 1), (2, 2), (BACKWARD, 1), (BACKWARD, 2)):
        passes[:, column] += np.bincount(rows[rows[:, 0] == kind, 1], minlength=chunks)
    begin, (last, end, _) = int(rows[0, 1]), rows[-1].tolist()
    passes[:begin, 0] += 1
    transfers[:begin] += 1
    if ends_there or last == WEIGHT_GRADIENT or end == 0:
        return Path(passes, transfers, device)
    passes[:end, 1] += 1
    passes[:end, 2] += last == BACKWARD
    transfers[:end] += 1
    return Path(passes, transfers, int(order.device[0]))


MOST_IN_PYTHON = 20_000
"""Passes whose paths Python finds in one process: a tenth of a second."""
_KEPT = 64
"""Orders whose devices' paths are kept: candidates that differ in other respects have their order in common."""
_of_devices: dict[int, tuple[Order, list[Path]]] = {}


def device_paths(order: Order) -> list[Path]:
    """Paths (1) of all devices to the step's end, and behind them those of the others that end with their last pass."""
    known = _of_devices.get(id(order.passes))
    if known is not None and known[0].passes is order.passes:
        return known[1]
    paths = [device_path(order, d) for d in range(len(order.first) - 1)]
    paths += [device_path(order, d, ends_there=True) for d, path in enumerate(paths) if path.last != d]
    if len(_of_devices) >= _KEPT:
        _of_devices.clear()
    # Kept with its order, so that no other one has its place in memory.
    _of_devices[id(order.passes)] = order, paths
    return paths


def critical_path(
    order: Order, seconds: Floats, transfer: Floats, num_micro_batches: int, after: Floats | None = None
) -> Path:
    """A longest path (2) for seconds of passes (3, C), transfers (C - 1,), and ``after`` last passes (devices,)."""
    every = np.concatenate([seconds, (seconds[1] + seconds[2])[None]])
    follow = np.zeros(len(order.first) - 1) if after is None else after
    given = order.passes, order.first, order.device, every, transfer, num_micro_batches, follow
    return Path(*_longest(len(order.passes), *given))


_MOST_STATED = 4096
"""Stated figures whose paths are kept."""
_stated: dict[tuple[int, int, bytes, bytes, bytes], tuple[Order, Path]] = {}


def stated_path(order: Order, seconds: Floats, transfer: Floats, num_micro_batches: int, after: Floats) -> Path:
    """``critical_path``, which is kept, since several entries of a certificate state the same figures."""
    key = id(order.passes), num_micro_batches, seconds.tobytes(), transfer.tobytes(), after.tobytes()
    known = _stated.get(key)
    if known is None or known[0].passes is not order.passes:
        if len(_stated) >= _MOST_STATED:
            _stated.clear()
        known = _stated[key] = order, critical_path(order, seconds, transfer, num_micro_batches, after)
    return known[1]


@jit
def _critical(
    passes: Ints, first: Ints, device: Ints, seconds: Floats, transfer: Floats, num_micro_batches: int, after: Floats
) -> tuple[Ints, Ints, int]:
    chunks = len(device)
    start, end = np.zeros(len(passes)), np.zeros(len(passes))
    execute(passes, first, seconds, transfer, num_micro_batches, start, end)
    row_of = np.full((2, chunks, num_micro_batches), -1)
    for r in range(len(passes)):
        if passes[r, 0] != WEIGHT_GRADIENT:
            row_of[0 if passes[r, 0] == FORWARD else 1, passes[r, 1], passes[r, 2]] = r
    counts, hops = np.zeros((chunks, 3), np.int64), np.zeros(max(chunks - 1, 0), np.int64)
    ended = 0
    for other in range(1, len(after)):
        if end[first[other + 1] - 1] + after[other] > end[first[ended + 1] - 1] + after[ended]:
            ended = other
    r = first[ended + 1] - 1
    while r >= 0:
        kind, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
        if kind == BACKWARD:
            counts[c, 1] += 1
            counts[c, 2] += 1
        else:
            counts[c, kind] += 1
        d = device[c]
        before = r - 1 if r > first[d] else -1
        free = end[before] if before >= 0 else 0.0
        wanted, hop, ready = -1, -1, 0.0
        if kind == FORWARD and c > 0:
            wanted, hop = row_of[0, c - 1, i], c - 1
        elif kind != FORWARD and kind != WEIGHT_GRADIENT and c < chunks - 1:
            wanted, hop = row_of[1, c + 1, i], c
        if wanted >= 0:
            ready = end[wanted] + transfer[hop]
        if wanted >= 0 and (before < 0 or ready > free * (1 + _TIE)):
            hops[hop] += 1
            r = wanted
        else:
            r = before
    return counts, hops, ended


_longest = Warming(_critical, MOST_IN_PYTHON)
