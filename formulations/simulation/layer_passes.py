"""Operators of a layer's passes in their order, by ``taut.formulations.simulation.operators`` (1) to (4)."""

from collections.abc import Iterator

from taut.data.costs import LayerCost
from taut.formulations.simulation.operators import (
    ATTENTION,
    BACKWARD,
    COMPUTE,
    CONTEXT,
    EMBEDDING,
    EXCHANGE,
    FORWARD,
    GROUP,
    HEAD,
    INPUT,
    MLP,
    RECOMPUTED,
    TENSOR,
    TRAFFIC,
    WEIGHT,
    LayerPrices,
    Operator,
    Prices,
)
from taut.formulations.tables.block_links import BlockLink


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
