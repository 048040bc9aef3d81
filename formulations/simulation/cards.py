r"""
Flows that meet on a node's network cards: how much each needs, which replicas meet alike, and when tasks run then.

Sets: nodes v with cards of :math:`N_v` bytes/s in each direction, so two cards a node, out and in; flows f: messages of
a chunk forth and back and gathers and scatters of a pipeline rank, of every replica; the reduction of a rank and that
of a tied embedding, of all replicas together. Transfers within a node, and of tensor groups and context rings, meet
nobody here. Tasks u take :math:`\tau_u` seconds alone, and each waits for the tasks P(u).

(1) Alone a flow takes the seconds :math:`\tau_f` that it is priced with, in which :math:`M_{fv}` of its bytes cross
    card v. It loads that card by :math:`\lambda_{fv} = M_{fv} / (\tau_f N_v) \le 1`. A calibration's coefficient is
    part of neither: it stands for what the run's cards did, shared or not.
(2) Across nodes a ring of k nodes moves :math:`2 (k - 1) / k` of its message over the cards of each of them, both ways,
    in an all-reduce, and half of that in a gather or scatter, in equal parts for the members that a node has.
(3) Replicas are alike if they are without shared cards (``taut.formulations.simulation.operator_graph``) and each flow
    of one loads, by as much, cards that are alike with the other's; cards are alike if like flows load them by as much.
    The coarsest such division is found by refining: divide cards by the flows on them, replicas by their cards, until
    nothing changes. By induction over the events like flows run at equal times, so one of each kind is simulated, which
    loads a card by what all its kind load there.
(4) A task starts when the last of P(u) has ended. One that is no flow takes :math:`\tau_u`.
(5) A flow goes on at the speed :math:`s_f(t) = 1 / \max(1, \max_v \sum_{g \in A(t)} \lambda_{gv})`, v the cards that it
    loads and A(t) the flows under way, and ends when :math:`\int s_f` is :math:`\tau_f`. No card carries more than it
    can: what its flows carry is their load over at least their sum. What a flow leaves, since it is slower elsewhere,
    is given to nobody.
(6) As :math:`s_f \le 1` every task takes :math:`\tau_u` or longer, after the same tasks in the same order on every
    stream. By induction over the order nothing starts earlier than without sharing. So every lower bound on the longest
    path of the graph, and on any relaxation of it, is one on the step with shared cards.

Events are taken from a heap by their time; an event whose flow has changed its speed since is skipped.

References
----------
Paige and Tarjan (1987), Three partition refinement algorithms: (3).
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import by_device, reduction_seconds, tied_bytes, tied_seconds
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.simulation.operator_graph import Narrow, OperatorGraph, Replicas
from taut.formulations.simulation.operators import GATHER, REDUCE, RETURN, SCATTER, SEND, STREAMS, TIED
from taut.formulations.strategy import Strategy
from taut.formulations.terms import gathers_of, reductions_of

EVERY = -1
"""In place of a replica: all of them together."""
DIGITS = 12
"""Loads that agree to so many digits are equal: they are quotients of the same few figures."""

Load = tuple[int, int, int, float]
"""A flow's number within its replica, the replica, a card (twice the node, and one more inwards), and its load, (1)."""


class CardFlows(NamedTuple):
    """Flows of tasks (tasks,), -1 for none, on kinds of cards, (3): f loads ``card[first[f] : first[f + 1]]``."""

    of: Ints
    first: Ints
    card: Ints
    load: Floats
    cards: int


def card_loads(
    problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints, every: Replicas
) -> list[Load]:
    """What every flow loads, (1) and (2), of chunks on ranks (C,), devices (pp, dp, tp cp) and all replicas."""
    total: dict[tuple[int, int, int], float] = defaultdict(float)
    parts = (
        _messages(problem, strategy, device, devices, every),
        _gathers(problem, strategy, len(device), devices, every),
        _reductions(problem, strategy, len(device), devices),
    )
    for part in parts:
        for flow, replica, card, load in part:
            total[flow, replica, card] += load
    return [(*key, round(load, DIGITS)) for key, load in sorted(total.items()) if load > 0.0]


def _both_ways(node: int) -> tuple[int, int]:
    return 2 * node, 2 * node + 1


def _messages(
    problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints, every: Replicas
) -> Iterator[Load]:
    """Messages of chunks to the next, and of the gradients back; each tensor and context rank sends its own."""
    node, cards = problem.links.node_of[devices], problem.links.cards
    messages = problem.tables(strategy.candidate).message[strategy.division.ends[:-1]]
    for c in np.flatnonzero(device[:-1] != device[1:]).tolist():
        size = problem.coefficient("pipeline") * float(messages[c])
        for z in range(strategy.candidate.dp):
            ends = zip(node[device[c], z].tolist(), node[device[c + 1], z].tolist(), strict=True)
            for before, after in ends:
                ways = ((c, every.forth[c, z], before, after), (len(device) + c + 1, every.back[c, z], after, before))
                for flow, seconds, source, target in ways:
                    if before != after and seconds > 0.0:
                        yield flow, z, 2 * source, size / (seconds * cards[source])
                        yield flow, z, 2 * target + 1, size / (seconds * cards[target])


def _gathers(
    problem: PlanningProblem, strategy: Strategy, chunks: int, devices: Ints, every: Replicas
) -> Iterator[Load]:
    """A replica's part of the gathers and scatters of a rank, (2)."""
    candidate, cards = strategy.candidate, problem.links.cards
    for term in gathers_of(problem.terms(candidate)):
        # Gathers of experts load no card here.
        for group, share in term.rings if term.load == "common" else ():
            groups = group.of(problem.links.node_of[devices])
            for x, copy, y in np.ndindex(candidate.pp, groups.shape[1], group.width):
                nodes, place, members = np.unique(groups[x, copy, :, y], return_inverse=True, return_counts=True)
                moved = share * ring_factor(len(nodes))
                for member, at in enumerate(place.tolist()):
                    z, node = (copy * group.members + member) // candidate.cp, int(nodes[at])
                    if (seconds := float(every.rate[0, x, z])) > 0.0:
                        for card in _both_ways(node):
                            yield 2 * chunks + x, z, card, moved / members[at] / (seconds * cards[node])


def _reductions(problem: PlanningProblem, strategy: Strategy, chunks: int, devices: Ints) -> Iterator[Load]:
    """Reductions of every rank's gradients, (2), and the exchange of a tied embedding."""
    candidate, cards = strategy.candidate, problem.links.cards
    seconds = reduction_seconds(problem, strategy, devices)
    gradients = by_device(strategy, problem.gradient_bytes(candidate))
    first, common = 2 * chunks + candidate.pp, reductions_of(problem.terms(candidate))[0]
    for x in np.flatnonzero(seconds).tolist():
        for group, share in common.rings:
            groups = group.of(problem.links.node_of[devices])[x]
            for ring in np.swapaxes(groups, -1, -2).reshape(-1, group.members):
                nodes = np.unique(ring)
                for node in nodes.tolist():
                    moved = share * ring_factor(len(nodes)) * float(gradients[x])
                    for card in _both_ways(node):
                        yield first + x, EVERY, card, moved / (float(seconds[x]) * cards[node])
    if (tied := float(tied_seconds(problem, strategy, devices))) > 0.0:
        ends = problem.links.node_of[devices[[0, -1]]].reshape(2, -1)
        for one, other in ends.T.tolist():
            for node in (one, other) if one != other else ():
                for card in _both_ways(node):
                    yield first + candidate.pp, EVERY, card, tied_bytes(problem, candidate) / (tied * cards[node])


def alike_on_cards(loads: list[Load], like: Ints) -> Ints:
    """Kind of every replica (dp,), (3), from its kind where no card is shared."""
    kinds = like
    while True:
        cards = _kinds_of_cards(loads, kinds)
        found: list[list[Any]] = [[int(kind)] for kind in kinds]
        for flow, replica, card, load in loads:
            if replica != EVERY:
                found[replica].append((flow, cards[card], load))
        finer = _numbered([(row[0], *sorted(row[1:])) for row in found])
        if len(set(finer)) == len(set(kinds.tolist())):
            return kinds
        kinds = np.array(finer)


def _kinds_of_cards(loads: list[Load], kinds: Ints) -> dict[int, int]:
    """Kind of every card by the flows that load it."""
    on: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for flow, replica, card, load in loads:
        on[card].append((flow, EVERY if replica == EVERY else int(kinds[replica]), load))
    return dict(zip(on, _numbered([tuple(sorted(flows)) for flows in on.values()]), strict=True))


def _numbered(keys: list[Any]) -> list[int]:
    """Equal keys as equal numbers, by first occurrence."""
    known: dict[Any, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def card_flows(graph: OperatorGraph, loads: list[Load]) -> CardFlows:
    """Flows of a graph whose simulated replicas are one of each kind of (3), from the loads of all replicas."""
    chunks, ranks, like = len(graph.order.device), graph.ranks, graph.replicas.like
    own, pipelines = 2 * chunks + ranks, len(graph.replicas.simulated)
    rank, pipeline = graph.stream // len(STREAMS) % ranks, graph.stream // len(STREAMS) // ranks
    of = np.full(graph.tasks, -1)
    within = pipeline * own
    places = {SEND: within + graph.chunk, RETURN: within + chunks + graph.chunk, REDUCE: pipelines * own + rank}
    places |= {GATHER: within + 2 * chunks + rank, SCATTER: within + 2 * chunks + rank}
    places[TIED] = np.full(graph.tasks, pipelines * own + ranks)
    for kind, place in places.items():
        of = np.where(graph.kind == kind, place, of)
    # A flow of the graph loads a kind of cards by what all flows of its kind load one of them.
    cards, kind_of_card = [card for *_, card, _ in loads], _kinds_of_cards(loads, like)
    one = {kind: card for card, kind in kind_of_card.items()}
    rows: dict[tuple[int, int], float] = defaultdict(float)
    for (flow, replica, _, load), card in zip(loads, cards, strict=True):
        if one[kind_of_card[card]] == card:
            # Flows of all replicas have the numbers after those of a replica's own.
            flow_of = (pipelines - 1 if replica == EVERY else int(like[replica])) * own + flow
            rows[flow_of, kind_of_card[card]] += load
    keys = sorted(rows)
    flows = np.array([flow for flow, _ in keys], dtype=np.int64)
    first = np.searchsorted(flows, np.arange(pipelines * own + ranks + 2))
    loaded = np.array([rows[key] for key in keys])
    return CardFlows(of, first, np.array([card for _, card in keys], dtype=np.int64), loaded, len(one))


FULL = 1.0 + 1e-9
"""Sum of loads up to which a card is not shared: such sums are exact to about 1e-12."""


def shared_seconds(seconds: Floats, first_dependency: Ints, children: tuple[Ints, Narrow], flows: CardFlows) -> Floats:
    """Seconds that every task takes (n,), (4) and (5), from its seconds alone; ``FormulationError`` for a circle."""
    took = np.full(len(seconds), -1.0)
    first_child, child = children
    _run(seconds, first_dependency, first_child, child.astype(np.int64), flows, took)
    if (left := int((took < 0.0).sum())) > 0:
        raise FormulationError(f"{left} tasks wait for each other for ever")
    return took


class _Running(NamedTuple):
    """
    Tasks and cards on the way through the graph.

    By task (n,): seconds ``left``, ``since`` when, ``speed``, and ``version`` of its end; sum of loads by card
    ``total``; and flows ``under_way``.
    """

    left: Floats
    since: Floats
    speed: Floats
    version: Ints
    total: Floats
    under_way: Ints


@jit
def _run(
    seconds: Floats, first_dependency: Ints, first_child: Ints, child: Ints, flows: CardFlows, took: Floats
) -> None:
    """Fill ``took``; a task that never runs keeps its -1."""
    tasks = len(seconds)
    of, first = flows.of, flows.first
    waits, version = np.empty(tasks, np.int32), np.zeros(tasks, np.int64)
    begun, total, under_way = np.zeros(tasks), np.zeros(flows.cards), np.zeros(len(first), np.int64)
    running, count = _Running(seconds.copy(), np.zeros(tasks), np.ones(tasks), version, total, under_way), 0
    heap = [(0.0, -1, 0)]
    heap.pop()
    for u in range(tasks):
        waits[u] = first_dependency[u + 1] - first_dependency[u]
        if waits[u] == 0:
            count = _begin(u, 0.0, flows, running, count, heap)
            _reprice(0.0, flows, running, count, heap)
    while len(heap) > 0:
        now, u, made = heapq.heappop(heap)
        if made != version[u] or took[u] >= 0.0:
            continue
        took[u] = seconds[u] if version[u] == 0 else now - begun[u]
        changed = of[u] >= 0 and first[of[u]] < first[of[u] + 1]
        if changed:
            count = _end(u, flows, running, count)
        for e in range(first_child[u], first_child[u + 1]):
            v = child[e]
            waits[v] -= 1
            if waits[v] == 0:
                begun[v] = now
                before = count
                count = _begin(v, now, flows, running, count, heap)
                changed = changed or count > before
        if changed:
            _reprice(now, flows, running, count, heap)


Heap = list[tuple[float, int, int]]
"""Ends of tasks: when, which, and the version of its end."""


@jit_inside
def _begin(u: int, now: float, flows: CardFlows, running: _Running, count: int, heap: Heap) -> int:
    """Start a task: its end, as if it shared nothing, and what it loads; returns the flows under way."""
    of, first, card, load, _ = flows
    running.since[u] = now
    heapq.heappush(heap, (now + running.left[u], u, 0))
    if of[u] < 0 or first[of[u]] == first[of[u] + 1]:
        return count
    for e in range(first[of[u]], first[of[u] + 1]):
        running.total[card[e]] += load[e]
    running.under_way[count] = u
    return count + 1


@jit_inside
def _end(u: int, flows: CardFlows, running: _Running, count: int) -> int:
    """Take a flow off its cards; returns the flows under way."""
    of, first, card, load, _ = flows
    under_way = running.under_way
    for e in range(first[of[u]], first[of[u] + 1]):
        running.total[card[e]] -= load[e]
    for k in range(count):
        if under_way[k] == u:
            under_way[k] = under_way[count - 1]
            return count - 1
    return count


@jit_inside
def _reprice(now: float, flows: CardFlows, running: _Running, count: int, heap: Heap) -> None:
    """Speeds (5) of the flows under way, and the new ends of those whose speed has changed."""
    of, first, card, _, _ = flows
    left, since, speed, version, total, under_way = running
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
