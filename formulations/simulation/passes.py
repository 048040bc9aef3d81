r"""
The tasks of a pass: operators of a chunk's layers in order, with what gathers and scatters add.

Sets: units u = 1, ..., n of a pass, its layers in the order in which it runs them; :math:`C_u` the operators of a unit,
one after another (``taut.formulations.simulation.operators`` (1) to (4)).

(1) Without them a pass is the chain :math:`C_1, \dots, C_n`.
(2) Under ZeRO-3 the weights of a unit are gathered before it, those of the next unit while it runs: gather
    :math:`G_{u+1}` starts when :math:`G_u` has ended and :math:`C_u` starts, and :math:`C_{u+1}` waits for it.
(3) Under ZeRO-2 and 3 the gradients of a unit are scattered after it: :math:`S_u` starts when :math:`C_u` has ended and
    the stream of its device is free, gathers first. A pass ends when its last scatter has.
(4) A pass of a chunk sends its result when it ends, if the next chunk is on another device.

(5) Gathers and scatters take pace from the units beside them: with G seconds of those beside unit u and
    :math:`\sigma` of ``taut.formulations.sharding`` (2), its operators take
    :math:`\min(1 + \sigma G / C_u, 1 / (1 - \sigma))` times as long.

Where every gather and scatter is shorter than the operators beside it, a pass takes what
``taut.formulations.sharding`` (2) says.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from taut.data.costs import LayerCost
from taut.formulations.simulation.operators import (
    ATTENTION,
    BACKWARD,
    COMPUTE,
    CONTEXT,
    DATA,
    EMBEDDING,
    EXCHANGE,
    FORWARD,
    GATHER,
    GROUP,
    HEAD,
    INPUT,
    MLP,
    RECOMPUTED,
    SCATTER,
    TENSOR,
    TRAFFIC,
    WEIGHT,
    WHOLE,
    LayerPrices,
    Operator,
    Prices,
)
from taut.formulations.tables.block_links import BlockLink

ENTRY, NONE = -2, -1
"""Places of tasks that stand for the start of the pass, and for nothing."""


class Gathers(NamedTuple):
    """
    Seconds of gathering a unit's weights and of scattering its gradients, by layer; 0 where there are none.

    ``slowdown`` is the share of their pace that kernels beside them lose, (5).
    """

    gather: dict[int, float]
    scatter: dict[int, float]
    slowdown: float = 0.0


class Template(NamedTuple):
    """
    Tasks of a pass.

    ``operators`` in order; ``after`` two places each that a task waits for; ``last`` the place of the one that ends
    the pass, and ``send`` of the one that sends its result, or none.
    """

    operators: list[Operator]
    after: list[tuple[int, int]]
    last: int
    send: int


class _Builder:
    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.after: list[tuple[int, int]] = []

    def add(self, operator: Operator, first: int, second: int = NONE) -> int:
        self.operators.append(operator)
        self.after.append((first, second if second != first else NONE))
        return len(self.operators) - 1


def template(units: Iterable[list[Operator]], sent: Gathers, send: Operator | None) -> Template:
    """
    Tasks of a pass over some units, (1) to (5).

    ``units``: operators of every unit, in the order of the pass; ``sent``: gathers and scatters by layer; ``send``:
    the transfer of the result, if there is one.
    """
    made, every = _Builder(), list(units)
    gathers = [sent.gather.get(unit[0].layer, 0.0) for unit in every]
    ended = started = ENTRY
    fetched = _gather(made, every, gathers, 0, ENTRY, NONE)
    stream, pending = fetched, NONE
    for u, unit in enumerate(every):
        started = ended
        ready, fetched, beside = fetched, NONE, 0.0
        if u + 1 < len(every) and gathers[u + 1] > 0.0:
            stream = fetched = _gather(made, every, gathers, u + 1, started, stream)
            beside += gathers[u + 1]
        if pending != NONE:
            stream = _scatter(made, every[u - 1], sent, pending, stream)
            beside += sent.scatter[every[u - 1][0].layer]
        ended = _chain(made, _slowed(unit, beside, sent.slowdown), ended, ready)
        pending = ended if sent.scatter.get(unit[0].layer, 0.0) > 0.0 else NONE
    if pending != NONE:
        ended = _scatter(made, every[-1], sent, pending, stream)
    result = NONE if send is None else made.add(send, ended)
    return Template(made.operators, made.after, ended, result)


def _gather(made: _Builder, units: list[list[Operator]], gathers: list[float], u: int, start: int, stream: int) -> int:
    """Gather of unit u, (2); none where it takes no time."""
    if gathers[u] <= 0.0:
        return NONE
    own = Operator(gathers[u], GATHER, WHOLE, units[u][0].layer, DATA)
    # A unit starts when the one before has ended and its own weights are there; the stream says the latter.
    return made.add(own, stream, start) if stream != NONE else made.add(own, start)


def _scatter(made: _Builder, unit: list[Operator], sent: Gathers, ended: int, stream: int) -> int:
    layer = unit[0].layer
    return made.add(Operator(sent.scatter[layer], SCATTER, WHOLE, layer, DATA), ended, stream)


def _slowed(unit: list[Operator], beside: float, slowdown: float) -> list[Operator]:
    """Operators of a unit beside some seconds of gathers and scatters, (5)."""
    whole = sum(operator.seconds for operator in unit)
    if not (slowdown > 0.0 and beside > 0.0 and whole > 0.0):
        return unit
    longer = min(1.0 + slowdown * beside / whole, 1.0 / (1.0 - slowdown))
    return [operator._replace(seconds=longer * operator.seconds) for operator in unit]


def _chain(made: _Builder, unit: list[Operator], before: int, ready: int) -> int:
    """Operators of a unit one after another; the first waits for its weights as well."""
    for operator in unit:
        before, ready = made.add(operator, before, ready), NONE
    return before


def forward_operators(
    prices: Prices, layer: int, recompute: str, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's forward pass in order, (1) and (2)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == 0:
        yield from _compute(prices.edge(EMBEDDING, types).forward, FORWARD, EMBEDDING, layer)
    if own is not None:
        yield from _forward(prices, own, layer, FORWARD, own.forward)
    if layer == prices.layers - 1:
        yield from _compute(prices.edge(HEAD, types).forward, FORWARD, HEAD, layer)


def _forward(prices: Prices, own: LayerPrices, layer: int, kind: int, seconds: float) -> Iterator[Operator]:
    yield from _contexts(own.ring + own.exchange, layer)
    yield from _part(prices, own.reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    yield from _tokens(own.dispatch if kind == FORWARD else own.dispatch_again, layer)
    yield from _part(prices, own.reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))
    yield from _tokens(own.combine, layer)


def backward_operators(
    prices: Prices, layer: int, recompute: str, kind: int, types: tuple[int, ...], link: BlockLink
) -> Iterator[Operator]:
    """Operators of a layer's gradients by input, by weights (W alone has no traffic) or both, in order, (2) and (3)."""
    own = prices.layer(layer, recompute, types, link)
    if layer == prices.layers - 1:
        yield from _compute(_of_kind(prices.edge(HEAD, types), kind), kind, HEAD, layer)
    if own is not None:
        yield from _backward(prices, own, layer, recompute, kind)
    if layer == 0:
        yield from _compute(_of_kind(prices.edge(EMBEDDING, types), kind), kind, EMBEDDING, layer)


def _backward(prices: Prices, own: LayerPrices, layer: int, recompute: str, kind: int) -> Iterator[Operator]:
    """What is computed again of a layer, and its gradients."""
    seconds = {INPUT: own.input, WEIGHT: own.weight, BACKWARD: own.input + own.weight}[kind]
    if kind != WEIGHT:
        yield from _recomputed(prices, own, layer, recompute)
    reduce, combine = (0.0, 0.0) if kind == WEIGHT else (own.reduce_back, own.combine)
    yield from _tokens(combine, layer)
    yield from _part(prices, reduce, Operator((1 - own.share) * seconds, kind, MLP, layer, COMPUTE))
    yield from _tokens(combine, layer)
    yield from _part(prices, reduce, Operator(own.share * seconds, kind, ATTENTION, layer, COMPUTE))
    if kind != WEIGHT:
        yield from _contexts(2 * own.ring + own.exchange, layer)


def _recomputed(prices: Prices, own: LayerPrices, layer: int, recompute: str) -> Iterator[Operator]:
    """What is computed again, (3)."""
    silent = own if prices.recompute_communication else own._replace(**dict.fromkeys(TRAFFIC, 0.0))
    if recompute == "full":
        yield from _forward(prices, silent, layer, RECOMPUTED, own.again)
    elif recompute == "selective":
        modules = prices.modules
        if "core_attn" in modules:
            yield from _contexts(silent.ring + silent.exchange, layer)
        if "moe" in modules:
            yield from _tokens(silent.dispatch_again, layer)
        yield from _compute(own.again, RECOMPUTED, ATTENTION if "core_attn" in modules else MLP, layer)
        if silent.summed > 0.0:
            yield Operator(silent.summed, TENSOR, MLP, layer, GROUP)
        if "moe" in modules:
            yield from _tokens(silent.combine, layer)


def _of_kind(cost: LayerCost, kind: int) -> float:
    return {INPUT: cost.input_grad, WEIGHT: cost.weight_grad, BACKWARD: cost.input_grad + cost.weight_grad}[kind]


def _part(prices: Prices, reduce: float, own: Operator) -> Iterator[Operator]:
    """A part with its collective, (2)."""
    both = Operator(reduce / 2, TENSOR, own.part, own.layer, GROUP)
    if reduce > 0.0 and prices.candidate.sequence_parallel:
        yield both
        yield own
        yield both
        return
    yield own
    if reduce > 0.0:
        yield both._replace(seconds=reduce)


def _tokens(seconds: float, layer: int) -> Iterator[Operator]:
    """An exchange of tokens, (4)."""
    if seconds > 0.0:
        yield Operator(seconds, EXCHANGE, MLP, layer, GROUP)


def _contexts(seconds: float, layer: int) -> Iterator[Operator]:
    if seconds > 0.0:
        yield Operator(seconds, CONTEXT, ATTENTION, layer, GROUP)


def _compute(seconds: float, kind: int, part: int, layer: int) -> Iterator[Operator]:
    if seconds > 0.0:
        yield Operator(seconds, kind, part, layer, COMPUTE)
