r"""
Makespan of an order: the longest path of its disjunctive graph, evaluated again after a late change alone.

Numbers, predecessors :math:`\pi`, lags :math:`\ell` and flat orders are those of
``taut.solver.schedules.disjunctive_graph``. With p the duration of a pass and :math:`\sigma(x)` the pass before x on
its device, every pass of the semi-active schedule of an order ends at

.. math:: e_x = \max(e_{\sigma(x)}, \; e_{\pi(x)} + \ell_x) + p_x, \qquad \text{makespan} = \max_x e_x, \tag{1}

the length of the longest path to x. It is infinite if the order has a cycle: devices then wait for each other.

A search changes an order in few places. A change among passes that start at time t or later moves no pass that started
before t, so the ends of those are kept and (1) is evaluated for the others alone (2).
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.disjunctive_graph import DisjunctiveGraph

ROUNDING = 1e-12
"""Share of a time by which sums of the same seconds in another order may differ: a few thousand roundings of 1e-16."""


class Timing(NamedTuple):
    """
    How far (1) has been evaluated.

    Parameters
    ----------
    end
        End of each pass in seconds, -1 if not known yet (n,).
    waiting
        The device that waits for each pass, -1 if none (n,).
    row
        Row of the next pass of each device in the flat order (devices,).
    free_at
        End of the last pass of each device in seconds (devices,).
    todo
        Stack of devices to go on with (2 devices,).
    """

    end: Floats
    waiting: Ints
    row: Ints
    free_at: Floats
    todo: Ints


def makespan(graph: DisjunctiveGraph, order: Ints) -> float:
    """
    Makespan of an order, (1).

    ``order``: flat order (n,). Returns seconds; infinite if devices wait for each other.
    """
    return float(longest_path(graph, order))


@jit
def longest_path(graph: DisjunctiveGraph, order: Ints) -> float:
    """Makespan of a flat order (n,) in seconds, as ``makespan`` gives it, for compiled callers."""
    return run(graph, order, np.inf, new_timing(graph))


@jit
def new_timing(graph: DisjunctiveGraph) -> Timing:
    """Timing of a pipeline of which no pass has been evaluated."""
    passes, devices = len(graph.predecessor), len(graph.first) - 1
    return Timing(
        np.full(passes, -1.0),
        np.full(passes, -1),
        graph.first[:-1].copy(),
        np.zeros(devices),
        np.zeros(2 * devices, dtype=np.int64),
    )


@jit
def rewind(graph: DisjunctiveGraph, order: Ints, end: Floats, since: float, timing: Timing) -> None:
    """
    Keep the ends of the passes that started before a time, and forget the others, (2).

    A pass that seems to have started just before the time may have done so by rounding alone, and is forgotten too.

    ``order``: flat order (n,); ``end``: ends of all passes in the order before its change, in seconds (n,); ``since``:
    the time in seconds.
    """
    first = graph.first
    for d in range(len(first) - 1):
        low, high = first[d], first[d + 1]
        while low < high:
            middle = (low + high) // 2
            x = order[middle]
            if end[x] - graph.seconds[x] < since - ROUNDING * end[x]:
                low = middle + 1
            else:
                high = middle
        timing.row[d] = low
        timing.free_at[d] = end[order[low - 1]] if low > first[d] else 0.0
        for r in range(low, first[d + 1]):
            timing.end[order[r]] = -1.0


@jit
def run(graph: DisjunctiveGraph, order: Ints, limit: float, timing: Timing) -> float:
    """
    Evaluate (1) for all passes that have no end yet.

    ``order``: flat order (n,); ``limit``: seconds at which to give up; ``timing``: where to go on; brought up to date.
    Returns makespan in seconds; infinite if it is above the limit or if devices wait for each other.
    """
    first, predecessor, lag, seconds = graph.first, graph.predecessor, graph.lag, graph.seconds
    end, waiting = timing.end, timing.waiting
    devices = len(first) - 1
    waiting[:] = -1
    longest = 0.0
    for d in range(devices):
        timing.todo[d] = d
    depth = devices
    while depth > 0:
        depth -= 1
        d = timing.todo[depth]
        now, r = timing.free_at[d], timing.row[d]
        while r < first[d + 1]:
            x = order[r]
            y = predecessor[x]
            if y >= 0:
                if end[y] < 0:
                    waiting[y] = d
                    break
                now = max(now, end[y] + lag[x])
            now += seconds[x]
            end[x] = now
            r += 1
            if waiting[x] >= 0:
                timing.todo[depth] = waiting[x]
                depth += 1
        timing.row[d], timing.free_at[d] = r, now
        longest = max(longest, now)
        if longest > limit:
            return np.inf
    for d in range(devices):
        if timing.row[d] < first[d + 1]:
            return np.inf
    return longest
