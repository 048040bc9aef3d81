r"""
Local search on the critical path of a schedule, with late acceptance.

The makespan is the length of a critical path in the disjunctive graph (``taut.solver.schedules.longest_path``): a chain
of passes without slack, each waiting for the one before it on its device or in its micro-batch. Only a change to such a
path shortens the schedule. Maximal runs of consecutive passes of one device on it are blocks, and the moves are those
of job shops [1]_ [2]_: two neighbours of a block change places, or a pass is inserted at the start or end of its block,
or a little beyond. A move must keep the memory limit at every pass between old and new place, and every pass behind the
one it waits for; cycles through other devices show when the order is evaluated.

A move is accepted if the makespan is at most what it was, or what it was L accepted or refused moves ago (late
acceptance [3]_). The state of the random bits comes from the seed alone and the number of trials is given, so the
result is determined by the arguments.

References
----------
.. [1] Balas, E. (1969). Machine sequencing via disjunctive graphs: an implicit enumeration algorithm. Operations
       Research 17: 941-957.
.. [2] Nowicki, E. and Smutnicki, C. (1996). A fast taboo search algorithm for the job shop problem. Management
       Science 42: 797-813.
.. [3] Burke, E. and Bykov, Y. (2017). The late acceptance hill-climbing heuristic. European J. of Operational
       Research 258: 70-78.
"""

import numpy as np

from taut.data.arrays import Bits, Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.solver.schedules.longest_path import ROUNDING, DisjunctiveGraph, new_timing, rewind, run

_TO_START, _TO_END, _SWAP, _KINDS = 0, 1, 2, 4


def improve(
    graph: DisjunctiveGraph, order: Ints, trials: int, *, seed: int = 0, target: float = 0.0
) -> tuple[float, Ints]:
    """
    Shorten a schedule by moves along its critical path.

    ``order``: numbers of its passes, device after device, feasible; not changed; ``target``: makespan to stop at, such
    as a lower bound. Returns makespan in seconds and order found, never longer than the given one.
    """
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
    """Whether memory keeps its limit between two rows; ``held`` is what the device holds before each row."""
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
            timing.end[:] = end
        else:
            _store_positions(graph, order, held, place, low, high)
            now, stale = new, True
            end[:] = timing.end
            if new < best * (1 - ROUNDING):
                best, kept[:] = new, order
        past[trial % history] = min(past[trial % history], now)
    order[:] = kept
    return best
