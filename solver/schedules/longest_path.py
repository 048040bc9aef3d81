r"""
Makespan of an order: the longest path of its disjunctive graph, evaluated again after a late change alone.

Numbers, predecessors :math:`\pi`, lags :math:`\ell` and flat orders are (3) to (6) below. With p the duration of a pass
and :math:`\sigma(x)` the pass before x on its device, every pass of the semi-active schedule of an order ends at

.. math:: e_x = \max(e_{\sigma(x)}, \; e_{\pi(x)} + \ell_x) + p_x, \qquad \text{makespan} = \max_x e_x, \tag{1}

the length of the longest path to x. It is infinite if the order has a cycle: devices then wait for each other.

A search changes an order in few places. A change among passes that start at time t or later moves no pass that started
before t, so the ends of those are kept and (1) is evaluated for the others alone (2).

The disjunctive graph is the form of a job-shop problem that compiled loops read. Sets and data are those of
``taut.formulations.schedules.schedule``. The nodes are the passes. Pass (kind, chunk c, micro-batch i) with kinds F =
0, I = 1 and W = 2 has the number

.. math:: x = (\text{kind} \cdot C + c) \, m + i. \tag{3}

Conjunctive arcs are the precedences that every schedule keeps. Each pass x has one predecessor :math:`\pi(x)` at most,
and starts no earlier than :math:`\ell_x` seconds after its end [1]_:

.. math::
    \pi(F_{c,i}) = F_{c-1,i}, \quad \pi(I_{c,i}) = I_{c+1,i}, \quad \pi(I_{C-1,i}) = F_{C-1,i}, \quad
    \pi(W_{c,i}) = I_{c,i}. \tag{4}

That F precedes I on the same chunk follows along this chain. Disjunctive arcs join the passes of one device; a schedule
orients them, so it is an order of the passes for every device, kept as one *flat order*: numbers of passes, device
after device (5). A whole backward pass B counts as its I followed by its W: both end when B ends, so I hands its
gradient on no earlier (6).

References
----------
.. [1] Balas, E. (1969). Machine sequencing via disjunctive graphs: an implicit enumeration algorithm. Operations
       Research 17: 941-957.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.recurrence import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem


class DisjunctiveGraph(NamedTuple):
    """
    The n = 3 C m passes of a pipeline by number (3).

    ``predecessor``: number of the pass that each waits for (n,), -1 if none, (4); ``lag``: seconds from the
    predecessor's end until the pass may start (n,); ``successors``: numbers of the passes that wait for each (n, 2), -1
    where there are fewer; ``seconds``: duration of each pass (n,); ``device``: device of each pass (n,);
    ``memory_change``: units that each pass adds to the memory of its device (n,); ``allowed``: memory limit of each
    device with room for rounding, in units (devices,); ``first``: row of each device's first pass in a flat order, then
    n (devices + 1,), (5).
    """

    predecessor: Ints
    lag: Floats
    successors: Ints
    seconds: Floats
    device: Ints
    memory_change: Floats
    allowed: Floats
    first: Ints


def disjunctive_graph(problem: ScheduleProblem) -> DisjunctiveGraph:
    """
    Number the passes of a pipeline and list their conjunctive arcs, (3) and (4).

    Returns durations in seconds, memory in the units of the pipeline.
    """
    m, chunks = problem.num_micro_batches, problem.num_chunks
    grid = np.arange(3 * chunks * m).reshape(3, chunks, m)
    predecessor, lag = np.full((3, chunks, m), -1), np.zeros((3, chunks, m))
    predecessor[0, 1:], lag[0, 1:] = grid[0, :-1], problem.transfer[:, None]
    predecessor[1, :-1], lag[1, :-1] = grid[1, 1:], problem.transfer[:, None]
    predecessor[1, -1] = grid[0, -1]
    predecessor[2] = grid[1]
    successors = np.full((3, chunks, m, 2), -1)
    successors[0, :-1, :, 0], successors[0, -1, :, 0] = grid[0, 1:], grid[1, -1]
    successors[1, :, :, 0], successors[1, 1:, :, 1] = grid[2], grid[1, :-1]
    kept = problem.kept_for_weight
    memory_change = np.stack((problem.activation, kept - problem.activation, -kept))
    return DisjunctiveGraph(
        predecessor.ravel(),
        lag.ravel(),
        successors.reshape(-1, 2),
        np.repeat(problem.seconds[:3].ravel(), m),
        np.repeat(np.tile(problem.device, 3), m),
        np.repeat(memory_change.ravel(), m),
        problem.allowed,
        first_rows(problem),
    )


def first_rows(problem: ScheduleProblem) -> Ints:
    """
    Row of each device's first pass in a flat order, (5).

    Returns rows, then the number of passes (devices + 1,).
    """
    hosted = np.bincount(problem.device, minlength=problem.num_devices)
    return np.concatenate(([0], np.cumsum(3 * problem.num_micro_batches * hosted))).astype(np.int64)


def flat_order(problem: ScheduleProblem, schedule: Schedule) -> Ints:
    """
    Flat order of a schedule, (5); B becomes I and W, (6).

    Returns numbers of the passes, device after device (3 C m,).
    """
    m, chunks = problem.num_micro_batches, problem.num_chunks
    passes, _ = schedule.flat
    fused = passes[:, 0] == BACKWARD
    kinds = np.where(fused, INPUT_GRADIENT, passes[:, 0])
    split = np.repeat((kinds * chunks + passes[:, 1]) * m + passes[:, 2], 1 + fused)
    second = np.cumsum(1 + fused)[fused] - 1
    split[second] += (WEIGHT_GRADIENT - INPUT_GRADIENT) * chunks * m
    return np.asarray(split, dtype=np.int64)


def schedule_of(problem: ScheduleProblem, order: Ints, kind: str) -> Schedule:
    """
    Turn a flat order into a schedule.

    ``order``: numbers of its passes, device after device (3 C m,); ``kind``: name of the schedule. Returns orders of
    (kind of pass, chunk, micro-batch) for every device.
    """
    m = problem.num_micro_batches
    cell, micro_batch = np.divmod(order, m)
    passes = np.column_stack((*np.divmod(cell, problem.num_chunks), micro_batch))
    return Schedule(kind, tuple(np.split(passes, first_rows(problem)[1:-1])))


ROUNDING = 1e-12
"""Share of a time by which sums of the same seconds in another order may differ: a few thousand roundings of 1e-16."""


class Timing(NamedTuple):
    """
    How far (1) has been evaluated.

    ``end``: end of each pass in seconds, -1 if not known yet (n,); ``waiting``: the device that waits for each pass, -1
    if none (n,); ``row``: row of the next pass of each device in the flat order (devices,); ``free_at``: end of the
    last pass of each device in seconds (devices,); ``todo``: stack of devices to go on with (2 devices,).
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


@jit_inside
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


@jit_inside
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
