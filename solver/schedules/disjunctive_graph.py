r"""
The disjunctive graph of a pipeline, the makespan of an order as its longest path, and local search along that path.

The disjunctive graph is the form of a job-shop problem that compiled loops read. Sets and data are those of
``taut.formulations.schedules.schedule``. The nodes are the passes. Pass (kind, chunk c, micro-batch i) with kinds F =
0, I = 1 and W = 2 has the number

.. math:: x = (\text{kind} \cdot C + c) \, m + i. \tag{1}

Conjunctive arcs are the precedences that every schedule keeps. Each pass x has one predecessor :math:`\pi(x)` at most,
and starts no earlier than :math:`\ell_x` seconds after its end [1]_:

.. math::
    \pi(F_{c,i}) = F_{c-1,i}, \quad \pi(I_{c,i}) = I_{c+1,i}, \quad \pi(I_{C-1,i}) = F_{C-1,i}, \quad
    \pi(W_{c,i}) = I_{c,i}. \tag{2}

That F precedes I on the same chunk follows along this chain. Disjunctive arcs join the passes of one device; a schedule
orients them, so it is an order of the passes for every device, kept as one *flat order*: numbers of passes, device
after device (3). A whole backward pass B counts as its I followed by its W: both end when B ends, so I hands its
gradient on no earlier (4).

With p the duration of a pass and :math:`\sigma(x)` the pass before x on its device, every pass of the semi-active
schedule of an order ends at

.. math:: e_x = \max(e_{\sigma(x)}, \; e_{\pi(x)} + \ell_x) + p_x, \qquad \text{makespan} = \max_x e_x, \tag{5}

the length of the longest path to x. It is infinite if the order has a cycle: devices then wait for each other. A change
among passes that start at time t or later moves no pass that started before t, so the ends of those are kept and (5) is
evaluated for the others alone (6).

A critical path is a chain of passes without slack, each waiting for the one before it on its device or in its
micro-batch. Only a change to such a path shortens the schedule. Maximal runs of consecutive passes of one device on it
are blocks, and the moves are those of job shops [1]_ [2]_: two neighbours of a block change places, or a pass is
inserted at the start or end of its block, or a little beyond. A move must keep the memory limit at every pass between
old and new place, and every pass behind the one it waits for; cycles through other devices show when the order is
evaluated. A move is accepted if the makespan is at most what it was, or what it was L accepted or refused moves ago
(late acceptance [3]_). Random bits come from the seed alone and the number of trials is given, so the result is
determined by the arguments.

References
----------
.. [1] Balas, E. (1969). Machine sequencing via disjunctive graphs: an implicit enumeration algorithm. Operations
       Research 17: 941-957.
.. [2] Nowicki, E. and Smutnicki, C. (1996). A fast taboo search algorithm for the job shop problem. Management
       Science 42: 797-813.
.. [3] Burke, E. and Bykov, Y. (2017). The late acceptance hill-climbing heuristic. European J. of Operational
       Research 258: 70-78.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Bits, Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.recurrence import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem


class DisjunctiveGraph(NamedTuple):
    """
    The n = 3 C m passes of a pipeline by number (1).

    By pass (n,): ``predecessor``, -1 if none, and ``lag``, seconds from its end, (2); ``successors`` (n, 2), -1 where
    there are fewer; ``seconds``; ``device``; ``memory_change``, units. By device: ``allowed``, memory limit with room
    for rounding, and ``first``, row of its first pass in a flat order, then n, (3).
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
    """Number the passes of a pipeline and list their conjunctive arcs, (1) and (2)."""
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
    """Row of each device's first pass in a flat order, then the number of passes (devices + 1,), (3)."""
    hosted = np.bincount(problem.device, minlength=problem.num_devices)
    return np.concatenate(([0], np.cumsum(3 * problem.num_micro_batches * hosted))).astype(np.int64)


def flat_order(problem: ScheduleProblem, schedule: Schedule) -> Ints:
    """Flat order of a schedule (3 C m,), (3); B becomes I and W, (4)."""
    m, chunks = problem.num_micro_batches, problem.num_chunks
    passes, _ = schedule.flat
    fused = passes[:, 0] == BACKWARD
    kinds = np.where(fused, INPUT_GRADIENT, passes[:, 0])
    split = np.repeat((kinds * chunks + passes[:, 1]) * m + passes[:, 2], 1 + fused)
    second = np.cumsum(1 + fused)[fused] - 1
    split[second] += (WEIGHT_GRADIENT - INPUT_GRADIENT) * chunks * m
    return np.asarray(split, dtype=np.int64)


def schedule_of(problem: ScheduleProblem, order: Ints, kind: str) -> Schedule:
    """Turn a flat order (3 C m,) into a schedule of a kind."""
    m = problem.num_micro_batches
    cell, micro_batch = np.divmod(order, m)
    passes = np.column_stack((*np.divmod(cell, problem.num_chunks), micro_batch))
    return Schedule(kind, tuple(np.split(passes, first_rows(problem)[1:-1])))


ROUNDING = 1e-12
"""Share of a time by which sums of the same seconds in another order may differ: a few thousand roundings of 1e-16."""


class Timing(NamedTuple):
    """
    How far (5) has been evaluated.

    By pass (n,): ``end`` in seconds, -1 if not known yet, and the device ``waiting`` for it, -1 if none. By device:
    ``row`` of its next pass in the flat order, ``free_at``, end of its last pass. ``todo`` is a stack of devices to go
    on with.
    """

    end: Floats
    waiting: Ints
    row: Ints
    free_at: Floats
    todo: Ints


@jit
def longest_path(graph: DisjunctiveGraph, order: Ints) -> float:
    """Makespan of a flat order (n,) in seconds, (5); infinite if devices wait for each other."""
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
    """Keep the ends (n,) of passes that started before ``since``, and not by rounding alone; forget the others, (6)."""
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
    """Evaluate (5) for passes without an end: makespan, infinite above the limit or where devices deadlock."""
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


_TO_START, _TO_END, _SWAP, _KINDS = 0, 1, 2, 4


def improve(
    graph: DisjunctiveGraph, order: Ints, trials: int, *, seed: int = 0, target: float = 0.0
) -> tuple[float, Ints]:
    """The makespan, not longer and at best ``target``, and the flat order that moves along critical paths lead to."""
    history = max(1, min(1000, trials // 100))
    bits = np.array([(seed * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    found = order.copy()
    return float(_late_acceptance(graph, found, trials, history, bits, target)), found


@jit_inside
def _random(bits: Bits, below: int) -> np.int64:
    """Next of Marsaglia's xorshift numbers, modulo a bound."""
    x = bits[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    bits[0] = x
    return np.int64((x >> np.uint64(11)) % np.uint64(below))


@jit_inside
def _draw_path_position(bits: Bits, length: int) -> np.int64:
    """A place on the path, more often near its ends: the middle repeats itself, warm-up and cool-down do not."""
    k = min(_random(bits, length), min(_random(bits, length), _random(bits, length)))
    return k if _random(bits, 2) == 0 else length - 1 - k


@jit_inside
def _critical_path(
    graph: DisjunctiveGraph, order: Ints, place: Ints, end: Floats, longest: float, bits: Bits, path: Ints
) -> int:
    """Rows of a critical path that wait for the row before, last first; ties are broken at random."""
    slack = ROUNDING * longest
    x = -1
    for d in range(len(graph.first) - 1):
        last = order[graph.first[d + 1] - 1] if graph.first[d + 1] > graph.first[d] else -1
        if last >= 0 and (x < 0 or end[last] > end[x]):
            x = last
    length = 0
    while True:
        start = end[x] - graph.seconds[x] - slack
        r, y = place[x], graph.predecessor[x]
        before = order[r - 1] if r > graph.first[graph.device[x]] else -1
        waits_device = before >= 0 and end[before] >= start
        waits_chain = y >= 0 and end[y] + graph.lag[x] >= start
        if waits_device and not (waits_chain and _random(bits, 2) == 0):
            path[length] = r
            length += 1
            x = before
        elif waits_chain:
            x = y
        else:
            return length


@jit_inside
def _propose_insertion(path: Ints, length: int, first: Ints, device: int, k: np.int64, bits: Bits) -> tuple[int, int]:
    """Row to take a pass from and row to put it at, in or near the block of a row of the path."""
    r = path[k]
    low, high = r - 1, r
    up = k
    while up > 0 and path[up - 1] == high + 1:
        up -= 1
        high += 1
    while k + 1 < length and path[k + 1] == low:
        k += 1
        low -= 1
    kind = _random(bits, _KINDS)
    if kind == _SWAP:
        return r - 1, r
    if kind == _TO_START:
        return r, low + _random(bits, r - low)
    if kind == _TO_END:
        return r - 1, r + _random(bits, high - r + 1)
    if _random(bits, 2) == 0:
        return r, max(first[device], low - _random(bits, 4))
    return r - 1, min(first[device + 1] - 1, high + _random(bits, 6))


@jit_inside
def _keeps_precedence(graph: DisjunctiveGraph, place: Ints, x: int, a: int, b: int) -> bool:
    """Whether a pass stays behind what it waits for, and before what waits for it, on its own device."""
    d = graph.device[x]
    if a < b:
        for q in range(2):
            y = graph.successors[x, q]
            if y >= 0 and graph.device[y] == d and place[y] <= b:
                return False
        return True
    y = graph.predecessor[x]
    return bool(y < 0 or graph.device[y] != d or place[y] < b)


@jit
def _insert(order: Ints, a: int, b: int) -> None:
    """Take the pass at row a to row b."""
    x = order[a]
    if a < b:
        for r in range(a, b):
            order[r] = order[r + 1]
    else:
        for r in range(a, b, -1):
            order[r] = order[r - 1]
    order[b] = x


@jit
def _fits(graph: DisjunctiveGraph, order: Ints, held: Floats, low: int, high: int, allowed: float) -> bool:
    """Whether a forward from a later place may run now, held then and at each pass that it overtakes."""
    now = held[low]
    for r in range(low, high + 1):
        now += graph.memory_change[order[r]]
        if now > allowed:
            return False
    return True


@jit_inside
def _store_positions(graph: DisjunctiveGraph, order: Ints, held: Floats, place: Ints, low: int, high: int) -> None:
    """Write down rows and memory between two rows."""
    now = held[low]
    for r in range(low, high + 1):
        held[r] = now
        now += graph.memory_change[order[r]]
        place[order[r]] = r


@jit
def _late_acceptance(
    graph: DisjunctiveGraph, order: Ints, trials: int, history: int, bits: Bits, target: float
) -> float:
    """Late acceptance from an order, which becomes the best one found; its makespan."""
    first, n = graph.first, len(order)
    timing = new_timing(graph)
    held, place, path = np.zeros(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for d in range(len(first) - 1):
        if first[d + 1] > first[d]:
            _store_positions(graph, order, held, place, first[d], first[d + 1] - 1)
    now = run(graph, order, np.inf, timing)
    end = timing.end.copy()
    best, kept, past = now, order.copy(), np.full(history, now)
    length, stale = 0, True
    for trial in range(trials):
        if best <= target:
            break
        if stale:
            length, stale = _critical_path(graph, order, place, end, now, bits, path), False
            if length == 0:
                break
        k = _draw_path_position(bits, length)
        d = graph.device[order[path[k]]]
        a, b = _propose_insertion(path, length, first, d, k, bits)
        low, high = min(a, b), max(a, b)
        if not _keeps_precedence(graph, place, order[a], a, b):
            continue
        _insert(order, a, b)
        if not _fits(graph, order, held, low, high, graph.allowed[d]):
            _insert(order, b, a)
            continue
        since = end[order[low - 1]] if low > first[d] else 0.0
        rewind(graph, order, end, since - ROUNDING * now, timing)
        new = run(graph, order, max(past[trial % history], now) * (1 + ROUNDING), timing)
        if new == np.inf:
            _insert(order, b, a)
            for x in range(len(end)):
                timing.end[x] = end[x]
        else:
            _store_positions(graph, order, held, place, low, high)
            now, stale = new, True
            for x in range(len(end)):
                end[x] = timing.end[x]
            if new < best * (1 - ROUNDING):
                best = new
                for r in range(len(order)):
                    kept[r] = order[r]
        past[trial % history] = min(past[trial % history], now)
    for r in range(len(order)):
        order[r] = kept[r]
    return best
