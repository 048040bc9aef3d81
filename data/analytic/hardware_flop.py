r"""
FLOP that devices execute for a sample, and hardware FLOP utilisation: how near computation comes to the peak.

Model FLOP (``taut.data.model.ModelSpec.training_flops``) count attention over the full square and no recompute. Sets:
layers l with recompute :math:`r_l`, devices d. Data of a sample, forward: :math:`f_l` FLOP of a layer, of which
:math:`a_l` in its attention core, w of s tokens attended to.

(1) A causal mask leaves :math:`s w - w^2 / 2` of the s w scores of a core, so that a layer executes
    :math:`e_l = f_l - a_l w / 2 s`, and its backward pass twice that.
(2) Recompute executes again :math:`e_l` if full, less a layer's last product where PyTorch's checkpoints stop before
    it (``taut.data.analytic.layer_work.whole_terms``); if selective the core, or products of the named modules
    (``taut.data.analytic.recompute_modules``), or where every second product's output is kept, products for queries,
    gate and output, in their share of widths (``taut.data.analytic.layer_work.selective_shares``).
(3) The utilisation of computation is the FLOP of all samples of a step over the sum of
    :math:`P_d t_d`, with a device's peak P in the precision and the seconds t in which it computes the passes of its
    layers: no communication, no bubble, no optimizer. It is at most the best measured rate of products or attention
    over the peak (``taut.data.analytic.kernel_floors``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from taut.data.costs import Module
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec


def executed_flop(
    model: ModelSpec, recompute: Sequence[str], modules: Collection[Module] = (), kept: Mapping[str, Any] = {}
) -> float:
    """
    FLOP that a sample's passes execute, (1) and (2); ``kept`` of a stack.

    ``recompute`` is that of every layer, those for further tokens last.
    """
    selective_products, early_stop = kept.get("selective_products", False), kept.get("early_stop", False)
    layers = (*model.blocks, *model.further)
    masked = sum(map(_masked, layers))
    again = sum(
        (_whole(layer, early_stop) if kind == "full" else _selective(layer, modules, selective_products))
        for layer, kind in zip(layers, recompute, strict=True)
        if kind != "none"
    )
    return model.training_flops() - 3.0 * masked + again


def _masked(layer: LayerSpec) -> float:
    """FLOP of a core's scores that the mask takes away, forward, (1)."""
    cores = (part for part in layer.together if not part.mixer)
    return sum(part.attention_flops() * part.window / part.seq / 2.0 for part in cores)


def _whole(layer: LayerSpec, early_stop: bool) -> float:
    """FLOP that full recompute executes again, (2)."""
    left_out = 0.0
    for part in layer.together if early_stop else ():
        if not part.experts:
            left_out += _share(part, part.used_ffn) * (part.forward_flops() - part.attention_flops())
    return layer.forward_flops() - _masked(layer) - left_out


def _share(layer: LayerSpec, columns: float) -> float:
    """Share of a layer's products that products with so many columns or sums have, by their widths."""
    kv, query, up = layer.kv_hidden, layer.query_hidden, 2 if layer.gated_mlp else 1
    return columns / (2 * query + 2 * kv + (1 + up) * layer.used_ffn)


def _selective(layer: LayerSpec, modules: Collection[Module], selective_products: bool) -> float:
    """FLOP that selective recompute executes again, (2)."""
    if layer.beside:
        return sum(_selective(part, modules, selective_products) for part in layer.together)
    if not modules and selective_products:
        columns = layer.kv_hidden + layer.query_hidden + layer.used_ffn
        return _share(layer, columns) * (layer.forward_flops() - layer.attention_flops())
    found, experts, latent = 0.0, layer.experts, layer.latent
    if not modules or "core_attn" in modules:
        found += layer.attention_flops() - _masked(layer)
    if "mla_up_proj" in modules and latent:
        keys, values = latent.key_dim, latent.qk_nope_head_dim + latent.v_head_dim
        widths = (latent.q_lora_rank or layer.hidden) * keys + latent.kv_lora_rank * values
        found += 2.0 * layer.seq * layer.heads * widths
    if ("moe" if experts else "mlp") in modules:
        found += layer.ffn_flops()
    elif experts and "shared_experts" in modules:
        found += 2.0 * layer.seq * layer.ffn_matrices * layer.hidden * experts.shared_ffn_hidden
    return found
