r"""
When every task runs if flows share the cards on which they meet: an event simulation, compiled.

Sets: tasks u with :math:`\tau_u` seconds alone and :math:`P(u)` tasks that each waits for; flows on cards with loads
:math:`\lambda_{fv}` (``taut.formulations.simulation.cards``); A(t) the flows under way at time t.

(1) A task starts when the last of P(u) has ended. One that is no flow takes :math:`\tau_u`.
(2) A flow goes on at the speed :math:`s_f(t) = 1 / \max(1, \max_v \sum_{g \in A(t)} \lambda_{gv})`, v the cards that it
    loads, and ends when :math:`\int s_f` is :math:`\tau_f`. No card carries more than it can: what its flows carry is
    their load over at least their sum. What a flow leaves, since it is slower elsewhere, is given to nobody.
(3) As :math:`s_f \le 1` every task takes :math:`\tau_u` or longer, after the same tasks in the same order on every
    stream. By induction over the order nothing starts earlier than without sharing. So every lower bound on the longest
    path of the graph, and on any relaxation of it, is one on the step with shared cards.

Events are taken from a heap by their time; an event whose flow has changed its speed since is skipped.
"""

import heapq

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.simulation.cards import CardFlows
from taut.formulations.simulation.layout import Narrow

FULL = 1.0 + 1e-9
"""Sum of loads up to which a card is not shared: such sums are exact to about 1e-12."""


def shared_seconds(seconds: Floats, first_dependency: Ints, children: tuple[Ints, Narrow], flows: CardFlows) -> Floats:
    """
    Seconds that every task takes, (1) and (2).

    ``seconds``: alone (n,); ``first_dependency``: where the tasks begin that each waits for (n + 1,); only their number
    counts; ``children``: tasks that wait for each: (n + 1,) and (edges,); ``flows``: which tasks are flows, and what
    they load. Raises ``FormulationError`` if tasks wait for each other in a circle.
    """
    took = np.full(len(seconds), -1.0)
    first_child, child = children
    _run(seconds, first_dependency, first_child, child.astype(np.int64), *flows, took)
    if (left := int((took < 0.0).sum())) > 0:
        raise FormulationError(f"{left} tasks wait for each other for ever")
    return took


@jit
def _run(
    seconds: Floats,
    first_dependency: Ints,
    first_child: Ints,
    child: Ints,
    of: Ints,
    first: Ints,
    card: Ints,
    load: Floats,
    cards: int,
    took: Floats,
) -> None:
    """Fill ``took``; a task that never runs keeps its -1."""
    tasks = len(seconds)
    waits = np.empty(tasks, np.int32)
    begun, left, since, speed = np.zeros(tasks), seconds.copy(), np.zeros(tasks), np.ones(tasks)
    version, total = np.zeros(tasks, np.int64), np.zeros(cards)
    under_way, count = np.zeros(len(first), np.int64), 0
    heap = [(0.0, -1, 0)]
    heap.pop()
    for u in range(tasks):
        waits[u] = first_dependency[u + 1] - first_dependency[u]
        if waits[u] == 0:
            count = _begin(u, 0.0, left, since, of, first, card, load, total, under_way, count, heap)
            _reprice(0.0, left, since, speed, version, of, first, card, total, under_way, count, heap)
    while len(heap) > 0:
        now, u, made = heapq.heappop(heap)
        if made != version[u] or took[u] >= 0.0:
            continue
        took[u] = seconds[u] if version[u] == 0 else now - begun[u]
        changed = of[u] >= 0 and first[of[u]] < first[of[u] + 1]
        if changed:
            count = _end(u, of, first, card, load, total, under_way, count)
        for e in range(first_child[u], first_child[u + 1]):
            v = child[e]
            waits[v] -= 1
            if waits[v] == 0:
                begun[v] = now
                before = count
                count = _begin(v, now, left, since, of, first, card, load, total, under_way, count, heap)
                changed = changed or count > before
        if changed:
            _reprice(now, left, since, speed, version, of, first, card, total, under_way, count, heap)


@jit_inside
def _begin(
    u: int,
    now: float,
    left: Floats,
    since: Floats,
    of: Ints,
    first: Ints,
    card: Ints,
    load: Floats,
    total: Floats,
    under_way: Ints,
    count: int,
    heap: list[tuple[float, int, int]],
) -> int:
    """Start a task: its end, as if it shared nothing, and what it loads; returns the flows under way."""
    since[u] = now
    heapq.heappush(heap, (now + left[u], u, 0))
    if of[u] < 0 or first[of[u]] == first[of[u] + 1]:
        return count
    for e in range(first[of[u]], first[of[u] + 1]):
        total[card[e]] += load[e]
    under_way[count] = u
    return count + 1


@jit_inside
def _end(u: int, of: Ints, first: Ints, card: Ints, load: Floats, total: Floats, under_way: Ints, count: int) -> int:
    """Take a flow off its cards; returns the flows under way."""
    for e in range(first[of[u]], first[of[u] + 1]):
        total[card[e]] -= load[e]
    for k in range(count):
        if under_way[k] == u:
            under_way[k] = under_way[count - 1]
            return count - 1
    return count


@jit_inside
def _reprice(
    now: float,
    left: Floats,
    since: Floats,
    speed: Floats,
    version: Ints,
    of: Ints,
    first: Ints,
    card: Ints,
    total: Floats,
    under_way: Ints,
    count: int,
    heap: list[tuple[float, int, int]],
) -> None:
    """Speeds (2) of the flows under way, and the new ends of those whose speed has changed."""
    for k in range(count):
        u = under_way[k]
        most = 1.0
        for e in range(first[of[u]], first[of[u] + 1]):
            most = max(most, total[card[e]])
        fresh = 1.0 / most if most > FULL else 1.0
        if fresh != speed[u]:
            left[u] = max(left[u] - (now - since[u]) * speed[u], 0.0)
            since[u], speed[u] = now, fresh
            version[u] += 1
            heapq.heappush(heap, (now + left[u] / fresh, u, version[u]))
