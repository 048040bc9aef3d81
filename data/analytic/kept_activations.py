r"""
Bytes of activations that stay for the backward pass.

Korthikanti et al. (arXiv 2205.05198, eqs. 1-6), stated there for 2-byte elements:

(1) without sequence parallelism :math:`s b h (10 + 24 / t)` for a plain layer, with it :math:`s b h \cdot 34 / t`;
    where products keep their inputs in a narrower format, those of the four products take its bytes
    (``taut.data.analytic.device_rates``), and the attention output is kept in both;
    without a fused attention kernel also the scores, :math:`5 a w s b / t`, which selective recompute gives up (with
    a fused one they never exist, and selective recompute costs time and saves nothing);
(2) full recompute keeps the layer's input, :math:`2 s b h`, divided by :math:`t` with sequence parallelism;
(3) where selective recompute keeps every second product's output, it keeps the layer's input, queries, values, the
    attention's output, the first feed-forward product's and, gated, the last one's:
    :math:`2 s b (h [+ h] + (2 h_q + h_{kv} + f) / t)`.

Layers with experts, latent attention or norms of queries and keys keep the bytes of
``taut.data.analytic.routed_layers``; under recompute of named modules less what those need not keep
(``taut.data.analytic.recompute_modules``).
"""

import math
from dataclasses import replace

from taut.data.analytic.device_rates import KEPT_BLOCK, Rates
from taut.data.analytic.recompute_modules import dropped
from taut.data.analytic.routed_layers import Kept, routed_kept
from taut.data.costs import Module
from taut.data.layers.layer import LayerSpec


def is_plain(layer: LayerSpec) -> bool:
    """Whether a layer has neither experts nor latent attention, nor norms of queries and keys."""
    return layer.experts is None and layer.latent is None and not layer.qk_norm


def kept_of(
    layer: LayerSpec, recompute: str, tokens: int, rates: Rates, share: float, modules: tuple[Module, ...]
) -> Kept:
    """Bytes that a layer keeps, of whose experts' inputs a rank has a share."""
    if recompute == "selective" and modules:
        scores = "selective" if "core_attn" in modules else "none"
        whole = kept_of(layer, scores, tokens, replace(rates, selective_products=False), 1.0, ())
        less = dropped(layer, modules, tokens, rates)
        kept = Kept(*(max(mine - its, 0) for mine, its in zip(whole, less, strict=True)))
    elif is_plain(layer):
        return Kept(*kept_bytes(layer, recompute, tokens, rates), 0)
    else:
        kept = routed_kept(layer, recompute, tokens, rates)
    return kept if share == 1.0 else kept._replace(whole=math.ceil(kept.whole * share))


def kept_bytes(layer: LayerSpec, recompute: str, tokens: int, rates: Rates) -> tuple[int, int]:
    """Bytes of a layer that every tensor rank keeps, and bytes that the ranks share, (1) to (3)."""
    element = rates.element
    if recompute == "selective" and rates.selective_products:
        whole = (2 if layer.gated_mlp else 1) * layer.hidden
        return element * tokens * whole, element * tokens * (2 * layer.query_hidden + layer.kv_hidden + layer.ffn)
    return activation_bytes(layer, recompute, tokens, element, rates.fused_attention, rates.kept)


def activation_bytes(
    layer: LayerSpec, recompute: str, tokens: int, element: int, fused: bool, kept: int | None = None
) -> tuple[int, int]:
    """Bytes that every tensor rank keeps, and bytes that the ranks share, (1) and (2); ``kept`` as in ``Rates``."""
    hidden = layer.hidden
    if recompute == "full":
        return element * tokens * hidden, 0
    plain = KEPT_BLOCK * element
    kept = plain if kept is None else kept
    # Inputs of the two norms and, as products keep them, of the two blocks, and two dropout masks of one byte.
    replicated = tokens * hidden * (2 * element + layer.masks) - (-2 * tokens * hidden * kept // KEPT_BLOCK)
    # Queries, keys, values, attention output, and the feed-forward part before its function; as products keep them, the
    # same after it and, if that is another copy, the attention output.
    widths = 2 * layer.query_hidden + 2 * layer.kv_hidden + (2 if layer.gated_mlp else 1) * layer.ffn
    inputs = layer.ffn + (layer.query_hidden if kept != plain else 0)
    split = tokens * element * widths - (-tokens * inputs * kept // KEPT_BLOCK)
    if recompute == "none" and not fused:
        split += (2 * element + 1) * layer.heads * layer.window * tokens
    return replicated, split
