r"""
Activations of named modules in the memory of hosts: which of the bytes that a layer keeps go there.

Modules have the names of Megatron-LM's ``--offload-modules``. With n tokens of hidden size h, elements of e bytes and
of :math:`e'` as products keep them, k experts of width :math:`f_e` a token, queries, keys and values of widths
:math:`q, k', v` and an attention's output of width o over all tensor ranks, and g matrices of a feed-forward part, what
goes to the host of the bytes that ``taut.data.analytic.routed_layers`` (4) counts is

===================  ==============================================================================================
module               bytes
===================  ==============================================================================================
``attn_norm``        the input of the norm before attention, :math:`e n h`, where it is a kernel of its own
``qkv_linear``       of plain attention the input of the product, :math:`e' n h`, that of the norm fused with it,
                     :math:`e n h`, and queries and keys before their own norms; of latent attention the input,
                     :math:`e' n h`, and what is compressed with its norm
``core_attn``        queries, keys and values, :math:`e n (q + k' + v)`
``attn_proj``        the attention's output, :math:`e n o`, and its cast where products keep another copy,
                     :math:`e' n o`
``mlp_norm``         the input of the norm before experts, :math:`e n h`
``expert_fc1``       the experts' inputs, :math:`e' n k h`
``moe_act``          the input of the experts' activation function, :math:`e n (g - 1) k f_e`
``fused_group_mlp``  both of these, and the activation's output, :math:`e' n k f_e`
===================  ==============================================================================================

(1) What recompute drops does not go: queries, keys and values beside recompute of ``mla_up_proj``; a norm's output in
    front of latent attention beside ``layernorm``; the activation's output beside ``moe_act``. A core that is computed
    again is outside of its module's region, and its inputs stay. Under full recompute nothing goes.
(2) Norms before plain attention and dense feed-forward parts are one kernel with the product that follows
    (``taut.data.analytic.recompute_modules``), and are no modules there.
(3) The output of ``core_attn`` is the input of ``attn_proj``, which is offloaded beside ``core_attn`` alone; of a fused
    part all goes with ``fused_group_mlp``, and not some of it; and nothing within a part that recompute of ``moe`` does
    again (megatron/core/transformer/transformer_config.py, ``__post_init__``).

Megatron-LM leaves tensors of less than 2^20 elements on the device, and the last ones before the first backward pass;
neither is counted.
"""

import math
from collections.abc import Collection

from taut.data.analytic.device_rates import Rates
from taut.data.analytic.routed_layers import Kept, cast_bytes, widths_of
from taut.data.costs import Module, OffloadModule
from taut.data.layers.layer import LayerSpec

IN_EXPERTS = "expert_fc1", "moe_act", "fused_group_mlp"
"""Modules within a part that recompute of ``moe`` does again."""


def conflict(modules: Collection[str], recomputed: Collection[str] = ()) -> str:
    """What does not go together of modules that are offloaded and recomputed, (3); empty where all do."""
    if "attn_proj" in modules and "core_attn" not in modules:
        return "attn_proj without core_attn, whose output it keeps, expected both"
    if "fused_group_mlp" in modules and (parts := [name for name in IN_EXPERTS[:2] if name in modules]):
        return f"fused_group_mlp beside {parts[0]}, a part of it, expected one of both"
    if "moe" in recomputed and (parts := [name for name in IN_EXPERTS if name in modules]):
        return f"{parts[0]} beside recompute of moe, which holds it, expected one of both"
    return ""


def offloaded(
    layer: LayerSpec,
    modules: Collection[OffloadModule],
    recompute: str,
    recomputed: Collection[Module],
    tokens: int,
    rates: Rates,
    share: float = 1.0,
) -> Kept:
    """Bytes of ``tokens`` that a layer's modules move to the host, (1), (2), at a rank's share of experts' rows."""
    if recompute == "full" or not modules:
        return Kept(0, 0, 0)
    if layer.beside:
        own = [offloaded(part, modules, recompute, recomputed, tokens, rates, share) for part in layer.together]
        return Kept(*(sum(bytes_) for bytes_ in zip(*own, strict=True)))
    again = frozenset(recomputed or ("core_attn",)) if recompute == "selective" else frozenset()
    attention = _of_attention(layer, frozenset(modules), again, tokens, rates)
    experts = _of_experts(layer, frozenset(modules), again, tokens, rates)
    norm = rates.element * tokens * layer.hidden if "mlp_norm" in modules and layer.experts else 0
    return Kept(attention.replicated + norm, attention.split + experts.split, int(share * experts.whole))


def _of_attention(layer: LayerSpec, modules: frozenset[str], again: frozenset[str], tokens: int, rates: Rates) -> Kept:
    """Bytes of the attention's modules."""
    unit, latent, replicated, split = rates.element * tokens, layer.latent, 0, 0
    if not layer.mixes:
        return Kept(0, 0, 0)
    if "attn_norm" in modules and latent:
        replicated += unit * layer.hidden
    if "qkv_linear" in modules:
        dropped = latent is not None and "layernorm" in again
        replicated += 0 if dropped else cast_bytes(tokens * layer.hidden, rates)
        if latent:
            replicated += unit * latent.compressed + cast_bytes(tokens * latent.normed, rates)
        else:
            replicated, split = replicated + unit * layer.hidden, split + unit * layer.normed_hidden
    if "core_attn" in modules and "core_attn" not in again and not (latent and "mla_up_proj" in again):
        split += unit * sum(widths_of(layer))
    if "attn_proj" in modules:
        split += unit * layer.query_hidden + (cast_bytes(tokens * layer.query_hidden, rates) if rates.casts else 0)
    return Kept(replicated, split, 0)


def _of_experts(layer: LayerSpec, modules: frozenset[str], again: frozenset[str], tokens: int, rates: Rates) -> Kept:
    """Bytes of the experts' modules, of all rows."""
    experts = layer.experts
    if experts is None:
        return Kept(0, 0, 0)
    rows = tokens * experts.experts_per_token
    inner, fused = rows * experts.expert_ffn_hidden, "fused_group_mlp" in modules
    split = whole = 0
    if fused or "expert_fc1" in modules:
        whole = math.ceil(rates.imbalance * cast_bytes(rows * layer.row, rates))
    if fused or "moe_act" in modules:
        split = rates.element * (layer.ffn_matrices - 1) * inner
    if fused and "moe_act" not in again:
        split += cast_bytes(inner, rates)
    return Kept(0, int(rates.imbalance * split), whole)
