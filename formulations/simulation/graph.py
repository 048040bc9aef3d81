r"""
One training step as a graph: what runs on which stream of which device, how long, and after what.

Sets: tasks u; streams of a device: computation, tensor groups and context rings, messages of activations, messages of
gradients, gradients and weights among replicas (``taut.formulations.simulation.passes``). A device stands for the
tensor and context ranks of one stage and replica, which run in step.
Data: seconds :math:`\tau_u` by the evaluator's cost tables, link prices and rings; the order of the passes of every
device.

(1) Tasks of a pass are the operators of its layers (``taut.formulations.simulation.passes``), laid out in the device's
    order (``taut.formulations.simulation.operator_graph``); reductions and optimizer follow
    (``taut.formulations.simulation.passes``).
(2) Precedence: an operator waits for the one before in its pass, a pass for the one before on its device and for the
    message of the chunk before or after, a message for its pass.
(3) Streams run one task at a time in one order: passes in the order of the schedule, messages as they are sent,
    gathers and scatters as their pass issues them, buckets as they fill. The order is part of the precedence.
(4) The step takes as long as the longest path through the graph, and what no term explains, a calibration's constant.
(5) Where nothing overlaps it is the step time of ``taut.formulations.latency``. Computation has one stream and
    all-reduces are links of a pass's chain, so a pass takes the evaluator's seconds. Order-priced schedules then follow
    the same recurrence, if messages take as long both ways and no two wait for one stream. In GPipe
    :math:`\sum_x t + (m - 1) \max_x t` is exact where one stage is the slowest of both passes; in 1F1B where all
    stages take as long and no message takes time, or m = 1, or there is one stage. Elsewhere it is an estimate, in 1F1B
    with unequal stages mostly too long, and the graph is the reference.
(6) A transfer is priced as if others left its links alone, but for those that its price counts. Where it is asked for,
    flows that meet on a node's cards slow each other, (7) to (12). Seconds are then those that tasks take beside the
    others, and (4) holds with them.

The graph of a schedule with p ranks, m micro-batches, and k operators a pass has about 2 k p m tasks, for every kind of
replica (``taut.formulations.simulation.operator_graph``).

Where cards are shared, how much each flow needs, which replicas meet alike, and when tasks run then:

Sets: nodes v with cards of :math:`N_v` bytes/s in each direction, so two cards a node, out and in; flows f: messages of
a chunk forth and back and gathers and scatters of a pipeline rank, of every replica; the reduction of a rank and that
of a tied embedding, of all replicas together. Transfers within a node, and of tensor groups and context rings, meet
nobody here. Tasks u take :math:`\tau_u` seconds alone, and each waits for the tasks P(u).

(7) Alone a flow takes the seconds :math:`\tau_f` that it is priced with, in which :math:`M_{fv}` of its bytes cross
    card v. It loads that card by :math:`\lambda_{fv} = M_{fv} / (\tau_f N_v) \le 1`. A calibration's coefficient is
    part of neither: it stands for what the run's cards did, shared or not.
(8) Across nodes a ring of k nodes moves :math:`2 (k - 1) / k` of its message over the cards of each of them, both ways,
    in an all-reduce, and half of that in a gather or scatter, in equal parts for the members that a node has.
(9) Replicas are alike if they are without shared cards (``taut.formulations.simulation.operator_graph``) and each flow
    of one loads, by as much, cards that are alike with the other's; cards are alike if like flows load them by as much.
    The coarsest such division is found by refining: divide cards by the flows on them, replicas by their cards, until
    nothing changes. By induction over the events like flows run at equal times, so one of each kind is simulated, which
    loads a card by what all its kind load there.
(10) A task starts when the last of P(u) has ended. One that is no flow takes :math:`\tau_u`.
(11) A flow goes on at the speed :math:`s_f(t) = 1 / \max(1, \max_v \sum_{g \in A(t)} \lambda_{gv})`, v the cards that
    it loads and A(t) the flows under way, and ends when :math:`\int s_f` is :math:`\tau_f`. No card carries more than
    it can: what its flows carry is their load over at least their sum. What a flow leaves, since it is slower
    elsewhere, is given to nobody.
(12) As :math:`s_f \le 1` every task takes :math:`\tau_u` or longer, after the same tasks in the same order on every
    stream. By induction over the order nothing starts earlier than without sharing. So every lower bound on the longest
    path of the graph, and on any relaxation of it, is one on the step with shared cards.

Events are taken from a heap by their time; an event whose flow has changed its speed since is skipped.

References
----------
Bang et al. (2024), vTrain, section III: operators, streams, and the graph.
Paige and Tarjan (1987), Three partition refinement algorithms: (9).
"""

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints, Narrow
from taut.errors import FormulationError
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import by_device, overlaps, reduction_seconds, tied_bytes, tied_seconds
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.schedules.orders import Order, passes_of
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.sharding import gather_slowdown
from taut.formulations.simulation import passes as of_pass
from taut.formulations.simulation.operator_graph import Laid, OperatorGraph, Replicas, Templates, lay_out, replicas_of
from taut.formulations.simulation.passes import (
    BACK,
    FORTH,
    GATHER,
    REDUCE,
    RETURN,
    SCATTER,
    SEND,
    STREAMS,
    TIED,
    WHOLE,
    Ended,
    Gathers,
    Operator,
    Prices,
    Tail,
    Template,
    backward_operators,
    forward_operators,
    tail_of,
    template,
)
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import BlockLink
from taut.formulations.terms import gathers_of, reductions_of

KIND_OF = {INPUT_GRADIENT: of_pass.INPUT, WEIGHT_GRADIENT: of_pass.WEIGHT, BACKWARD: of_pass.BACKWARD}
"""Kind of the computation of a pass that yields gradients."""

Place = tuple[tuple[int, ...], BlockLink]
"""Device types of a block, and its slowest links."""


def operator_graph(
    problem: PlanningProblem,
    strategy: Strategy,
    devices: Ints,
    *,
    every_replica: bool = False,
    recompute_communication: bool = True,
    share_links: bool = False,
) -> OperatorGraph:
    """The graph of a step on ``devices`` (pp, dp, tp cp), (1) to (3); with ``share_links`` tasks take what (6) says."""
    _refuse(problem, strategy, share_links=share_links)
    candidate, order = strategy.candidate, passes_of(*strategy.candidate.order_key)
    prices = Prices(problem, candidate, recompute_communication=recompute_communication)
    replicas = replicas_of(problem, strategy, order.device, devices, every=every_replica)
    loads: list[Load] = []
    if share_links:
        each = replicas_of(problem, strategy, order.device, devices, every=True)
        loads = card_loads(problem, strategy, order.device, devices, each)
        apart = alike_on_cards(loads, replicas.like)
        replicas = replicas_of(problem, strategy, order.device, devices, every=every_replica, apart=apart)
    of, templates = _pass_templates(strategy, prices, order, replicas)
    flat = _flat(of, templates)
    laid = lay_out(order.passes, order.first, order.device, flat, candidate.num_micro_batches, len(STREAMS))
    tail = tail_of(problem, strategy, devices, prices, Ended(order, of, templates, laid.row))
    graph = _joined(laid, tail, order, flat, replicas)
    if not loads:
        return graph
    flows = card_flows(graph, loads)
    return replace(graph, seconds=shared_seconds(graph.seconds, graph.first_dependency, graph.children, flows))


def _refuse(problem: PlanningProblem, strategy: Strategy, *, share_links: bool) -> None:
    """Refuse what is not simulated."""
    candidate = strategy.candidate
    if unknown := not_simulated(problem, candidate, share_links=share_links):
        raise FormulationError(f"ep={candidate.ep} with {unknown} is not simulated, expected ep=1, or without")
    if strategy.micro_batches:
        given = ", ".join(map(str, strategy.micro_batches))
        raise FormulationError(f"micro-batches by replica: are {given}, which are not simulated, expected one number")
    if not problem.latency.prices_mechanisms:
        raise FormulationError(f"latency model {problem.latency.name}: expected step, whose prices are simulated")


def _joined(laid: Laid, tail: Tail, order: Order, templates: Templates, replicas: Replicas) -> OperatorGraph:
    """The tasks of all passes, and those that follow them, which are of no chunk."""
    kind, part, layer, stream = np.array([each[1:] for each in tail.operators]).T
    none = np.full(len(tail.operators), -1)
    following = {
        "seconds": np.array([operator.seconds for operator in tail.operators]),
        "stream": stream,
        "kind": kind,
        "part": part,
        "layer": layer,
        "chunk": none,
        "micro_batch": none,
        "first_dependency": laid.first_dependency[-1] + np.cumsum([len(waits) for waits in tail.after]),
        "dependency": np.array([task for waits in tail.after for task in waits]),
    }
    tasks = {
        name: np.concatenate([own := getattr(laid, name), more.astype(own.dtype)]) for name, more in following.items()
    }
    last = laid.row[:, :-1] + templates.last[templates.of[:, order.passes[:, 0], order.passes[:, 1]]]
    return OperatorGraph(**tasks, order=order, row=laid.row, last=last, replicas=replicas)


def not_simulated(problem: PlanningProblem, candidate: Candidate, *, share_links: bool = False) -> str:
    """What is not simulated of expert ranks: their exchanges have no flows, and their buckets two rings."""
    refused = {
        "exchanges behind another micro-batch": hides_exchange(problem.space, problem.model, candidate),
        "links that flows share": share_links,
        "gradient reductions that overlap": overlaps(problem, candidate),
    }
    return next((what for what, there in refused.items() if there and candidate.ep > 1), "")


def _flat(of: Ints, templates: list[Template]) -> Templates:
    """Templates one after another, by the numbers that passes have."""
    rows: list[Operator] = [operator for made in templates for operator in made.operators]
    figures = np.array([row[1:] for row in rows], dtype=np.int64)
    return Templates(
        of=of,
        first=np.cumsum([0, *(len(made.operators) for made in templates)]),
        last=np.array([made.last for made in templates]),
        send=np.array([made.send for made in templates]),
        after=np.array([pair for made in templates for pair in made.after]),
        seconds=np.array([row.seconds for row in rows]),
        kind=np.ascontiguousarray(figures[:, 0]),
        part=np.ascontiguousarray(figures[:, 1]),
        layer=np.ascontiguousarray(figures[:, 2]),
        stream=np.ascontiguousarray(figures[:, 3]),
    )


def _pass_templates(
    strategy: Strategy, prices: Prices, order: Order, replicas: Replicas
) -> tuple[Ints, list[Template]]:
    """Templates, and the number of each by simulated pipeline, kind of pass (F, I, W, B) and chunk, -1 for none."""
    ways, maker = set(order.passes[:, 0].tolist()), _Maker(strategy, prices, order, replicas)
    of = np.full((len(replicas.simulated), 4, len(order.device)), -1)
    for z, way, chunk in np.ndindex(of.shape):
        of[z, way, chunk] = maker.of(z, way, chunk) if way in ways else -1
    return of, maker.made


class _Maker:
    """Makes templates, and keeps them by what they depend on."""

    def __init__(self, strategy: Strategy, prices: Prices, order: Order, replicas: Replicas) -> None:
        self.strategy, self.prices, self.order, self.replicas = strategy, prices, order, replicas
        self.gathers, self.recompute = gathers_of(prices.problem.terms(strategy.candidate)), strategy.recompute_of_parts
        self.kept: dict[Hashable, int] = {}
        self.made: list[Template] = []
        self.units: dict[Hashable, list[Operator]] = {}

    def of(self, pipeline: int, way: int, chunk: int) -> int:
        """Number of the template of the passes of one kind of a chunk."""
        rank = int(self.order.device[chunk])
        at = self.replicas.kinds(rank, pipeline), self.replicas.link(rank, pipeline)
        rates, send = tuple(self.replicas.rate[:, rank, pipeline].tolist()), self._send(pipeline, way, chunk)
        key = way, chunk, at, rates, send
        if key not in self.kept:
            first, end = self.strategy.stages[chunk]
            layers = range(first, end) if way == FORWARD else range(end - 1, first - 1, -1)
            units = [list(self._unit(way, layer, self.recompute[layer], at)) for layer in layers]
            self.kept[key] = len(self.made)
            self.made.append(template(units, self._gathers(way, layers, rates), send))
        return self.kept[key]

    def _unit(self, way: int, layer: int, recompute: str, at: Place) -> list[Operator]:
        """Operators of one layer; equal inner layers are priced once."""
        inner = 0 < layer < self.prices.layers - 1
        key = (way, self.prices.kind_of(layer) if inner else ~layer, recompute, at)
        if key not in self.units:
            found = (
                forward_operators(self.prices, layer, recompute, *at)
                if way == FORWARD
                else backward_operators(self.prices, layer, recompute, KIND_OF[way], *at)
            )
            # A pass has a task also where it takes no time, as an embedding's gradient by its input.
            self.units[key] = list(found) or [
                Operator(0.0, KIND_OF.get(way, of_pass.FORWARD), WHOLE, layer, of_pass.COMPUTE)
            ]
        return [operator._replace(layer=layer) for operator in self.units[key]]

    def _send(self, pipeline: int, way: int, chunk: int) -> Operator | None:
        """The message of a pass's result, where the next chunk is on another device."""
        device, (first, end) = self.order.device, self.strategy.stages[chunk]
        if way == FORWARD and chunk + 1 < len(device) and device[chunk] != device[chunk + 1]:
            return Operator(float(self.replicas.forth[chunk, pipeline]), SEND, WHOLE, end - 1, FORTH)
        if way in (INPUT_GRADIENT, BACKWARD) and chunk > 0 and device[chunk] != device[chunk - 1]:
            return Operator(float(self.replicas.back[chunk - 1, pipeline]), RETURN, WHOLE, first, BACK)
        return None

    def _gathers(self, way: int, layers: range, rates: tuple[float, ...]) -> Gathers:
        """Gathers and scatters of a pass by layer."""
        gathers, scatters = dict.fromkeys(layers, 0.0), dict.fromkeys(layers, 0.0)
        by_load = dict(zip(("common", "experts"), rates, strict=True))
        for term in self.gathers:
            carried = self.prices.problem.tables(self.strategy.candidate).carried(term.load)
            for layer in layers:
                moved = by_load[term.load] * float(carried[layer, layer + 1])
                gathers[layer] += term.weight * moved if way != WEIGHT_GRADIENT else 0.0
                scatters[layer] += term.gradient * moved if way in (WEIGHT_GRADIENT, BACKWARD) else 0.0
        return Gathers(gathers, scatters, gather_slowdown(self.prices.problem) if self.gathers else 0.0)


EVERY = -1
"""In place of a replica: all of them together."""
DIGITS = 12
"""Loads that agree to so many digits are equal: they are quotients of the same few figures."""

Load = tuple[int, int, int, float]
"""A flow's number within its replica, the replica, a card (twice the node, and one more inwards), and its load, (7)."""


class CardFlows(NamedTuple):
    """Flows of tasks (tasks,), -1 for none, on kinds of cards, (9): f loads ``card[first[f] : first[f + 1]]``."""

    of: Ints
    first: Ints
    card: Ints
    load: Floats
    cards: int


def card_loads(
    problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints, every: Replicas
) -> list[Load]:
    """What every flow loads, (7) and (8), of chunks on ranks (C,), devices (pp, dp, tp cp) and all replicas."""
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
    """A replica's part of the gathers and scatters of a rank, (8)."""
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
    """Reductions of every rank's gradients, (8), and the exchange of a tied embedding."""
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
    """Kind of every replica (dp,), (9), from its kind where no card is shared."""
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
    """Flows of a graph whose simulated replicas are one of each kind of (9), from the loads of all replicas."""
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
    """Seconds that every task takes (n,), (10) and (11), from its seconds alone; ``FormulationError`` for a circle."""
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
    """Speeds (11) of the flows under way, and the new ends of those whose speed has changed."""
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
