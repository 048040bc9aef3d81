r"""
Selective recompute of named modules: what a layer does again before its input gradient, and what it need not keep.

Modules have the names of Megatron-LM's ``--recompute-modules``. With n tokens of hidden size h on one of t tensor
ranks, elements of e bytes and of :math:`e'` as products keep them, k experts of width :math:`f_e` a token, shared
experts of width :math:`f_s`, a dense feed-forward part of width f, and g matrices of a feed-forward part:

==================  ========================================  =====================================================
module              computed again                            not kept
==================  ========================================  =====================================================
``core_attn``       the attention core                        its scores, where it is not fused
``mla_up_proj``     products that make queries, keys and      :math:`e n` times their widths, :math:`/ t`
                    values of latent attention by heads
``layernorm``       norms that are kernels of their own:      :math:`e' n h` each
                    before latent attention, before experts
``moe_act``         the experts' activation function          its output, :math:`e' n k f_e / t`
``shared_experts``  their two products and function           :math:`n ((g - 1) e + e') f_s / t`
``mlp``             a dense feed-forward part                 its input's norm and :math:`n ((g - 1) e + e') f / t`
``moe``             router, exchange, experts, shared ones    scores, the experts' inputs :math:`e' n k h`, and
                                                              :math:`n ((g - 1) e + e') (k f_e + f_s) / t`
==================  ========================================  =====================================================

Norms before plain attention and dense feed-forward parts are one kernel with the product that follows (Transformer
Engine's LayerNormLinear), so ``layernorm`` does not reach them (megatron/core/transformer/transformer_layer.py). A
module that holds another one stands for both: ``moe`` for ``moe_act`` and ``shared_experts``. Seconds are the terms of
``taut.data.analytic.layer_work``: products by the operator model, traffic of functions and norms as counted there, and
of the forward pass's launches the share of the work that is done again; launches of core, norms and function, which
are a kernel or two, are left out.
"""

from collections.abc import Collection, Iterator

import numpy as np

from taut.data.analytic.device_rates import Rates
from taut.data.analytic.layer_work import LayerShape, Product, attention_core, forward_terms
from taut.data.analytic.routed_layers import (
    SCORE_BYTES,
    TOGETHER,
    ExpertRanks,
    Kept,
    attention_products,
    biased_bytes,
    cast_bytes,
    feed_forward_products,
    routing_bytes,
    shared_products,
    widths_of,
)
from taut.data.arrays import Floats
from taut.data.costs import Module
from taut.data.layers.layer import LayerSpec

LAUNCHED = ("mla_up_proj", "shared_experts", "mlp", "moe")
"""Modules of many kernels, whose launches take their share of the forward pass's."""


def usual_modules(latent: bool, experts: bool) -> list[Module]:
    """Modules that NVIDIA's recipes of models with experts recompute (perf_recipes, August 2026); none is the core."""
    found: list[Module] = ["mla_up_proj"] if latent else []
    return [*found, "layernorm", "moe_act"] if experts else found


def recomputed_terms(
    layer: LayerSpec,
    shape: LayerShape,
    tp: int,
    rates: Rates,
    forward: Floats,
    modules: Collection[Module],
    ranks: ExpertRanks = TOGETHER,
) -> Floats:
    """Terms (..., 4) of the forward work that a layer does again; the attention core's where no module is named."""
    found, work = np.zeros_like(forward), forward[..., :3] @ np.array([1.0, 1.0, 1 / rates.memory_efficiency])
    for module, products, moved, core in _work(layer, shape, tp, rates, frozenset(modules or ("core_attn",)), ranks):
        part = forward_terms(products, core, moved, rates)
        share = part[..., :3] @ np.array([1.0, 1.0, 1 / rates.memory_efficiency]) / work
        part[..., 3] = forward[..., 3] * share if module in LAUNCHED else 0.0
        found = found + part
    return found


def _work(
    layer: LayerSpec, shape: LayerShape, tp: int, rates: Rates, modules: frozenset[Module], ranks: ExpertRanks
) -> Iterator[tuple[str, list[Product], Floats | float, Floats | float]]:
    """Modules that the layer has: products, bytes moved, and seconds of an attention core."""
    tokens, experts, latent, element = shape.batch * shape.seq, layer.experts, layer.latent, rates.element
    unit = element * tokens
    if "core_attn" in modules and layer.mixes:
        yield "core_attn", [], 0.0, attention_core(shape, rates)
    if "mla_up_proj" in modules and latent:
        made = attention_products(layer, shape, tp, tokens)[-3:-1]
        yield "mla_up_proj", made, unit * 2.0 * layer.heads * latent.key_dim / tp, 0.0
    if "layernorm" in modules and own_norms(layer):
        yield "layernorm", [], unit * 2.0 * shape.hidden * own_norms(layer), 0.0
    if "mlp" in modules and experts is None and layer.feeds:
        products = feed_forward_products(layer, shape, tp, tokens, ranks)
        yield "mlp", products, unit * 4.0 * shape.ffn, 0.0
    if experts is None:
        return
    chosen = experts.experts_per_token * experts.expert_ffn_hidden / tp
    if "moe" in modules:
        moved = unit * 4.0 * shape.ffn + routing_bytes(layer, shape, tp, rates, ranks)
        moved = moved + biased_bytes(layer, tokens, tp, rates, ranks)
        yield "moe", feed_forward_products(layer, shape, tp, tokens, ranks, rates.imbalance), moved, 0.0
        return
    if "moe_act" in modules:
        yield "moe_act", [], unit * 4.0 * chosen, 0.0
    if "shared_experts" in modules and experts.shared_ffn_hidden:
        products = shared_products(layer, shape, tp, tokens)
        yield "shared_experts", products, unit * 4.0 * experts.shared_ffn_hidden / tp, 0.0


def own_norms(layer: LayerSpec) -> int:
    """Norms of a layer that are kernels of their own: before latent attention, and before experts."""
    return int(layer.latent is not None) + int(layer.experts is not None)


def dropped(layer: LayerSpec, modules: Collection[Module], tokens: int, rates: Rates) -> Kept:
    """Bytes of ``tokens`` that a layer need not keep, of those that ``routed_kept`` counts without recompute."""
    element, experts = rates.element, layer.experts
    routed = experts.experts_per_token * experts.expert_ffn_hidden if experts else 0

    def inner(width: int) -> int:
        """Bytes of a feed-forward part's first output and its function's."""
        return element * tokens * (layer.ffn_matrices - 1) * width + cast_bytes(tokens * width, rates)

    replicated = split = whole = 0
    if "layernorm" in modules:
        replicated += own_norms(layer) * cast_bytes(tokens * layer.hidden, rates)
    if "mla_up_proj" in modules and layer.latent:
        split += element * tokens * sum(widths_of(layer))
    if experts is None:
        if "mlp" in modules and layer.feeds:
            replicated, split = replicated + cast_bytes(tokens * layer.hidden, rates), split + inner(layer.ffn)
    elif "moe" in modules:
        replicated += SCORE_BYTES * experts.num_experts * tokens
        split += inner(experts.shared_ffn_hidden) + int(rates.imbalance * inner(routed))
        whole = int(rates.imbalance * cast_bytes(tokens * experts.experts_per_token * layer.row, rates))
    else:
        if "moe_act" in modules:
            split += int(rates.imbalance * cast_bytes(tokens * routed, rates))
        if "shared_experts" in modules:
            split += inner(experts.shared_ffn_hidden)
    return Kept(replicated, split, whole)
