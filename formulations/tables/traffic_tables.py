"""
Traffic of every range of layers within a block: ``taut.formulations.tables.block_traffic`` (1) to (6), as tables.

A layer's bytes, steps and hidden seconds are sums over its kinds (``taut.formulations.tables.priced_layers`` (1)).
"""

from collections.abc import Collection, Sequence

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE, Module
from taut.data.layers.layer import LayerSpec
from taut.formulations.degrees import BlockShape, inner_contexts
from taut.formulations.rings import ring_factor, ring_steps
from taut.formulations.tables.block_traffic import Traffic
from taut.formulations.tables.priced_layers import PricedLayers

REDUCTIONS = {"forward": 2, "none": 4, "selective": 4, "full": 6}
"""All-reduces of a layer and micro-batch in Megatron by recompute, (1); and exchanges of tokens, (4)."""
PASSED = {"forward": 1, "none": 3, "selective": 4, "full": 4}
"""Times that keys and values pass their ring for a layer and micro-batch by recompute, (2)."""
GATHERS = 4, 3
"""Collectives of a layer whose tokens are gathered, forward and backward: of which experts take a token, of scores, and
of tokens, and the sums of outputs; the gradients of all but the first, (4)."""
EXCHANGED = {"forward": 1, "none": 2, "selective": 3, "full": 3}
"""Times that an all-to-all of context ranks goes to attention and back, by recompute, (2)."""


def traffic_tables(
    priced: PricedLayers, coefficient: float = 1.0, exchange: float = 1.0, *, hides: bool = False
) -> tuple[Traffic, Traffic]:
    """
    Traffic of both passes of every range of layers (recompute, L+1, L+1), and of the forward pass (L+1, L+1).

    ``priced``: the layers at the degrees of a block, and one micro-batch; ``coefficient``, ``exchange``: what a
    calibration multiplies it by, and what it multiplies the traffic of experts by; ``hides``: whether the computation
    of another micro-batch hides exchanges, (4).
    """
    hiding = priced.hiding if hides else 0.0
    both = [_traffic(priced, coefficient, exchange, kind, hiding) for kind in RECOMPUTE]
    forward = _traffic(priced, coefficient, exchange, "forward", hiding / 2)
    return Traffic(*(_stacked(figures) for figures in zip(*both, strict=True))), forward


def no_traffic(shape: tuple[int, ...]) -> Floats:
    """Zeros that take no memory: most blocks have no context ranks and no expert ranks."""
    return np.broadcast_to(np.zeros(1), shape)


def _stacked(figures: Sequence[Floats]) -> Floats:
    """The figures of every recompute in one array."""
    first = figures[0]
    without = all(figure.base is not None and not any(figure.strides) for figure in figures)
    return no_traffic((len(figures), *first.shape)) if without else np.stack(figures)


def _traffic(priced: PricedLayers, coefficient: float, exchange: float, kind: str, hiding: float) -> Traffic:
    """Traffic of every range of layers under a recompute, or of its forward pass, of experts some of it hidden."""
    block, kinds = priced.block, priced.kinds
    modules = priced.modules if kind == "selective" else ()
    attention = "none" if modules and "core_attn" not in modules else kind
    repeated, exchanged = np.array([_again(layer, block, modules) for layer in kinds]).T
    reductions, exchanges = REDUCTIONS[kind], REDUCTIONS[kind] + 2 * exchanged
    forward = (2 if kind == "full" else 1) + exchanged
    backward = float(kind != "forward")
    exchanged_bytes = np.array([_outputs_moved(layer, priced) for layer in kinds]).T
    moved = exchanged_bytes[0] * forward + exchanged_bytes[1] * backward
    tp = block.tp
    tokens = [priced.micro_batch * layer.seq // block.cp for layer in kinds]
    output = np.array([priced.element * count * layer.hidden for count, layer in zip(tokens, kinds, strict=True)])
    rows = np.array([priced.element * count * layer.row for count, layer in zip(tokens, kinds, strict=True)])
    summed, chosen = np.array([_feed_forward(layer, block) for layer in kinds]).T
    gathers = priced.dispatch.gathers
    apart = chosen > 0
    wide = (block.ep * moved if gathers else chosen * exchanges) * (block.etp > 1) * apart
    summed_apart = exchanges * (wide > 0) * (not gathers)
    waits = (GATHERS[0] * forward + GATHERS[1] * backward) * (block.experts - 1) if gathers else exchanges
    near, far = np.array([_copies(layer, priced) for layer in kinds]).T
    none = np.zeros(len(kinds))

    def sums(common: Floats, experts: Floats = none) -> Floats:
        return _weighed_sums(priced, [(coefficient, common), (exchange, experts)])

    rings = _rings(priced, np.array(tokens), PASSED[attention])
    rings = coefficient * rings if rings.any() else rings
    inside, outside, steps = _all_to_alls(priced, np.array(tokens), EXCHANGED[attention])
    return Traffic(
        sums(
            ring_factor(tp) * (reductions * summed / 2 + repeated) * output,
            ring_factor(tp) * (wide / 2) * rows,
        ),
        sums(ring_steps(tp) * (reductions * summed / 2 + repeated), ring_steps(tp) * (summed_apart / 2)),
        rings[0],
        rings[1],
        rings[2],
        sums(none, moved * (near * rows / tp)),
        sums(none, moved * (far * rows / tp)),
        sums(none, waits * apart),
        sums(inside),
        sums(outside),
        sums(steps),
        _weighed_sums(priced, [(1.0, hiding * apart)]),
    )


def _weighed_sums(priced: PricedLayers, parts: list[tuple[float, Floats]]) -> Floats:
    """Sums of figures by kind over every range, each times its coefficient."""
    some = [weight * priced.sums(figure.astype(float).tolist(), 0, 0) for weight, figure in parts if figure.any()]
    return np.asarray(sum(some[1:], some[0]) if some else no_traffic(priced.first.shape))


def _rings(priced: PricedLayers, tokens: Ints, passes: int) -> Floats:
    """Bytes, steps and hidden seconds of context rings of every range, (3, L+1, L+1, layers alike), (2) and (3)."""
    block, inner = priced.block, inner_contexts(priced.tp, priced.cp, priced.node_size)
    if priced.cp == 1:
        return no_traffic((3, *priced.first.shape, 1))
    turns = {"a2a": 0, "a2a+p2p": block.cp // inner - 1}.get(block.cp_comm, block.cp - 1)
    sent = priced.element * tokens * np.array([layer.keys_and_values(block.tp) for layer in priced.kinds])
    hides = priced.core_inverse if block.cp_comm != "all_gather" else 0.0
    core = np.array([layer.attention_flops() for layer in priced.kinds]) * priced.micro_batch / block.tp / block.cp
    each = np.stack([sent, np.ones(len(sent)), core / (turns + 1) * hides])
    alike, of = np.unique(each, axis=1, return_inverse=True)
    count = np.stack([priced.count[of.ravel() == k].sum(axis=0) for k in range(alike.shape[1])], axis=-1)
    return np.asarray(turns * passes * count * alike[:, None, None])


def _all_to_alls(priced: PricedLayers, tokens: Ints, times: int) -> tuple[Floats, Floats, Floats]:
    """Bytes within nodes and between them, and steps, of the all-to-alls of context ranks of each layer kind, (2)."""
    block, inner = priced.block, inner_contexts(priced.tp, priced.cp, priced.node_size)
    if block.cp_comm not in ("a2a", "a2a+p2p"):
        return (np.zeros(len(tokens)),) * 3
    ranks = block.cp if block.cp_comm == "a2a" else inner
    widths = [layer.queries(block.tp) + layer.output(block.tp) for layer in priced.kinds]
    keys = [layer.keys_and_values(block.tp) for layer in priced.kinds]
    moved = times * priced.element * tokens * (np.array(widths) + np.array(keys)) / ranks
    return moved * (inner - 1), moved * (ranks - inner), np.full(len(tokens), 2.0 * times)


def _feed_forward(layer: LayerSpec, block: BlockShape) -> tuple[int, int]:
    """All-reduces forward of a layer but its experts', and experts on other ranks that take a token, (1) and (4)."""
    summed = sum(part.parts for part in layer.together)
    if not layer.experts or block.ep == 1:
        return summed, 0
    return summed - 1 + int(layer.experts.shared_ffn_hidden > 0), layer.experts.experts_per_token


def _again(layer: LayerSpec, block: BlockShape, modules: Collection[Module]) -> tuple[int, int]:
    """All-reduces, and exchanges to and fro, of a layer that recomputing modules repeats, (6)."""
    dense = sum(part.feeds for part in layer.together if not part.experts) if "mlp" in modules else 0
    if layer.experts is None:
        return dense, 0
    shared = int(layer.experts.shared_ffn_hidden > 0)
    if "moe" in modules:
        return dense + (1 if block.ep == 1 else shared), int(block.ep > 1)
    return dense + int("shared_experts" in modules and shared and block.ep > 1), 0


def _outputs_moved(layer: LayerSpec, priced: PricedLayers) -> tuple[float, float]:
    """Bytes of a dispatch and a combine over those of a layer's output, forward and backward, (4)."""
    dispatch, element = priced.dispatch, priced.element
    if not dispatch.gathers or layer.experts is None:
        return dispatch.imbalance * (dispatch.dispatched + 1.0), dispatch.imbalance * 2.0
    score, row = dispatch.score_bytes(element), element * layer.row
    scores, summed = layer.experts.num_experts * score / row, score / element
    return 1.0 + scores + layer.experts.num_experts / row + summed, summed + 1.0 + scores


def _copies(layer: LayerSpec, priced: PricedLayers) -> tuple[float, float]:
    """Copies of a token that a device sends inside nodes, and to other nodes, in an exchange, (4)."""
    block = priced.block
    if not layer.experts or block.ep == 1:
        return 0.0, 0.0
    ep, here = block.ep, min(block.ep, priced.node_size // block.etp)
    if priced.dispatch.dispatcher == "alltoall":
        rows = layer.experts.experts_per_token
        return rows * (here - 1) / ep, rows * (ep - here) / ep
    of_device, of_node = (1.0 if priced.dispatch.gathers else layer.experts.reach(n) for n in (ep, ep // here))
    return ep * (here - 1) / here * of_device, (ep / here - 1) * of_node
