r"""
One training step as a graph: what runs on which stream of which device, how long, and after what.

Sets: tasks u; streams of a device: computation, tensor groups and context rings, messages of activations, messages of
gradients, gradients and weights among replicas (``taut.formulations.simulation.operators``). A device stands for the
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
(4) The step takes as long as the longest path through the graph (``taut.formulations.simulation.cards``), and what
    no term explains, a calibration's constant.
(5) Where nothing overlaps it is the step time of ``taut.formulations.latency``. Computation has one stream and
    all-reduces are links of a pass's chain, so a pass takes the evaluator's seconds. Order-priced schedules then follow
    the same recurrence, if messages take as long both ways and no two wait for one stream. In GPipe
    :math:`\sum_x t + (m - 1) \max_x t` is exact where one stage is the slowest of both passes; in 1F1B where all
    stages take as long and no message takes time, or m = 1, or there is one stage. Elsewhere it is an estimate, in 1F1B
    with unequal stages mostly too long, and the graph is the reference.
(6) A transfer is priced as if others left its links alone, but for those that its price counts. Where it is asked for,
    flows that meet on a node's cards slow each other (``taut.formulations.simulation.cards``). Seconds are then
    those that tasks take beside the others, and (4) holds with them.

The graph of a schedule with p ranks, m micro-batches, and k operators a pass has about 2 k p m tasks, for every kind of
replica (``taut.formulations.simulation.operator_graph``).

References
----------
Bang et al. (2024), vTrain, section III: operators, streams, and the graph.
"""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from taut.data.arrays import Ints
from taut.errors import FormulationError
from taut.formulations.gradient_reductions import overlaps
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import Order, passes_of
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.sharding import gather_slowdown
from taut.formulations.simulation import operators
from taut.formulations.simulation.cards import Load, alike_on_cards, card_flows, card_loads, shared_seconds
from taut.formulations.simulation.operator_graph import (
    Laid,
    Narrow,
    OperatorGraph,
    Replicas,
    Templates,
    lay_out,
    replicas_of,
)
from taut.formulations.simulation.operators import BACK, FORTH, RETURN, SEND, STREAMS, WHOLE, Operator, Prices
from taut.formulations.simulation.passes import (
    Ended,
    Gathers,
    Tail,
    Template,
    appended,
    backward_operators,
    forward_operators,
    tail_of,
    template,
)
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import BlockLink
from taut.formulations.terms import gathers_of

KIND_OF = {INPUT_GRADIENT: operators.INPUT, WEIGHT_GRADIENT: operators.WEIGHT, BACKWARD: operators.BACKWARD}
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
    """
    The graph of a step on ``devices`` (pp, dp, tp cp), (1) to (3); with ``share_links`` tasks take what (6) says.

    ``FormulationError`` under another latency model than ``step``, or for expert ranks that are not simulated.
    """
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
    templates = _pass_templates(strategy, prices, order, replicas)
    flat = _flat(templates)
    laid = lay_out(order.passes, order.first, order.device, flat, candidate.num_micro_batches, len(STREAMS))
    tail = tail_of(problem, strategy, devices, prices, Ended(order, templates, laid.row))
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
    """The tasks of all passes, and those that follow them."""
    seconds, first_dependency, dependency = appended(tail, laid.first_dependency)
    rest = np.array([each[1:] for each in tail.operators], dtype=np.int32)
    none = np.full(len(rest), -1)

    def joined(passes: Narrow, after: Narrow) -> Narrow:
        return np.concatenate([passes, after.astype(passes.dtype)])

    return OperatorGraph(
        seconds=np.concatenate([laid.seconds, seconds]),
        stream=joined(laid.stream, rest[:, 3]),
        kind=joined(laid.kind, rest[:, 0]),
        part=joined(laid.part, rest[:, 1]),
        layer=joined(laid.layer, rest[:, 2]),
        chunk=joined(laid.chunk, none),
        micro_batch=joined(laid.micro_batch, none),
        first_dependency=np.concatenate([laid.first_dependency, first_dependency]),
        dependency=np.concatenate([laid.dependency, dependency]),
        order=order,
        row=laid.row,
        last=laid.row[:, :-1] + templates.last[templates.of[:, order.passes[:, 0], order.passes[:, 1]]],
        replicas=replicas,
    )


def not_simulated(problem: PlanningProblem, candidate: Candidate, *, share_links: bool = False) -> str:
    """What is not simulated of expert ranks: their exchanges have no flows, and their buckets two rings."""
    refused = {
        "exchanges behind another micro-batch": hides_exchange(problem.space, problem.model, candidate),
        "links that flows share": share_links,
        "gradient reductions that overlap": overlaps(problem, candidate),
    }
    return next((what for what, there in refused.items() if there and candidate.ep > 1), "")


def _flat(templates: list[list[list[Template | None]]]) -> Templates:
    """Templates one after another, equal ones once."""
    place: dict[int, int] = {}
    distinct: list[Template] = []
    of = np.full((len(templates), 4, len(templates[0][0])), -1)
    for z, by_kind in enumerate(templates):
        for kind, by_chunk in enumerate(by_kind):
            for chunk, made in enumerate(by_chunk):
                if made is not None:
                    of[z, kind, chunk] = place.setdefault(id(made), len(distinct))
                    if of[z, kind, chunk] == len(distinct):
                        distinct.append(made)
    rows: list[Operator] = [operator for made in distinct for operator in made.operators]
    figures = np.array([row[1:] for row in rows], dtype=np.int64)
    return Templates(
        of=of,
        first=np.cumsum([0, *(len(made.operators) for made in distinct)]),
        last=np.array([made.last for made in distinct]),
        send=np.array([made.send for made in distinct]),
        after=np.array([pair for made in distinct for pair in made.after]),
        seconds=np.array([row.seconds for row in rows]),
        kind=np.ascontiguousarray(figures[:, 0]),
        part=np.ascontiguousarray(figures[:, 1]),
        layer=np.ascontiguousarray(figures[:, 2]),
        stream=np.ascontiguousarray(figures[:, 3]),
    )


def _pass_templates(
    strategy: Strategy, prices: Prices, order: Order, replicas: Replicas
) -> list[list[list[Template | None]]]:
    """Templates by simulated pipeline, kind of pass (F, I, W, B) and chunk; None where no pass is of the kind."""
    ways = sorted(set(order.passes[:, 0].tolist()))
    made = _Maker(strategy, prices, order, replicas)
    chunks = range(len(order.device))
    return [
        [[made.of(z, way, chunk) if way in ways else None for chunk in chunks] for way in range(4)]
        for z in range(len(replicas.simulated))
    ]


class _Maker:
    """Makes templates, and keeps them by what they depend on."""

    def __init__(self, strategy: Strategy, prices: Prices, order: Order, replicas: Replicas) -> None:
        self.strategy, self.prices, self.order, self.replicas = strategy, prices, order, replicas
        self.gathers, self.recompute = gathers_of(prices.problem.terms(strategy.candidate)), strategy.recompute_of_parts
        self.kept: dict[Hashable, Template] = {}
        self.units: dict[Hashable, list[Operator]] = {}

    def of(self, pipeline: int, way: int, chunk: int) -> Template:
        """Template of the passes of one kind of a chunk."""
        rank = int(self.order.device[chunk])
        at = self.replicas.kinds(rank, pipeline), self.replicas.link(rank, pipeline)
        rates, send = tuple(self.replicas.rate[:, rank, pipeline].tolist()), self._send(pipeline, way, chunk)
        key = way, chunk, at, rates, send
        if key not in self.kept:
            first, end = self.strategy.stages[chunk]
            layers = range(first, end) if way == FORWARD else range(end - 1, first - 1, -1)
            units = [list(self._unit(way, layer, self.recompute[layer], at)) for layer in layers]
            self.kept[key] = template(units, self._gathers(way, layers, rates), send)
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
                Operator(0.0, KIND_OF.get(way, operators.FORWARD), WHOLE, layer, operators.COMPUTE)
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
