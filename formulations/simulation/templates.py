"""
Templates of every pass of a strategy: one for each simulated pipeline, kind of pass and chunk, equal ones shared.

A pass F, I, W or B of a chunk runs the operators of its layers (``taut.formulations.simulation.passes``),
backwards from the last layer, with gathers and scatters (``taut.formulations.simulation.passes``).
"""

from collections.abc import Hashable

from taut.formulations.schedules.plan_orders import Order
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.sharding import gather_slowdown
from taut.formulations.simulation import operators
from taut.formulations.simulation.operators import BACK, FORTH, RETURN, SEND, WHOLE, Operator, Prices
from taut.formulations.simulation.passes import Gathers, Template, backward_operators, forward_operators, template
from taut.formulations.simulation.replicas import Replicas
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_links import BlockLink
from taut.formulations.terms import gathers_of

KIND_OF = {INPUT_GRADIENT: operators.INPUT, WEIGHT_GRADIENT: operators.WEIGHT, BACKWARD: operators.BACKWARD}
"""Kind of the computation of a pass that yields gradients."""

Place = tuple[tuple[int, ...], BlockLink]
"""Device types of a block, and its slowest links."""


def pass_templates(
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
        self.gathers = gathers_of(prices.problem.terms(strategy.candidate))
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
            units = [list(self._unit(way, layer, self.strategy.recompute[chunk], at)) for layer in layers]
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
