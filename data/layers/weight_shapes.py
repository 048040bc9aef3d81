r"""
Shapes of a layer's weights on one rank, by which frameworks cache what stands in for a gradient.

Where products add to the gradients themselves, Transformer Engine hands a tensor of the weight's shape and format to
autograd in place of the gradient. Since release 2.3 it keeps one tensor for every shape (``get_dummy_wgrad`` in
``pytorch/module/base.py``; ``linear.py`` and ``layernorm_linear.py``), and since 2.10 for experts in one kernel as well
(``grouped_linear.py``), of which all have the shape of one. Megatron-LM's head takes its tensor from the same store
(``LinearWithGradAccumulationAndAsyncCommunication`` in ``core/tensor_parallel/layers.py``, core 0.14).

Products of a layer have the shapes rows by columns, with h the hidden size and t tensor ranks:

=====================  =============================================================================
products               shapes
=====================  =============================================================================
attention              queries, keys and values together by h; h by the output's width
latent attention       what compresses by h, whole; queries and keys by the compressed widths
feed-forward, shared   :math:`g f / t` by h (g = 2 if it is gated), and h by :math:`f / t`
experts                the same of one expert on its x tensor ranks
=====================  =============================================================================

The router's product is PyTorch's own and has no such tensor.
"""

from typing import NamedTuple

from taut.data.layers.layer import LayerSpec


class WeightShape(NamedTuple):
    """Rows and columns of a weight, and whether many of them are multiplied in one kernel."""

    rows: int
    columns: int
    grouped: bool = False

    @property
    def size(self) -> int:
        """Parameters of the weight."""
        return self.rows * self.columns


def weight_shapes(layer: LayerSpec, tp: int, expert_tp: int) -> set[WeightShape]:
    """Shapes of a layer's weights on one of ``tp`` tensor ranks, ``expert_tp`` of which share an expert."""
    return {shape for part in layer.together for shape in _of_one(part, tp, expert_tp)}


def _of_one(layer: LayerSpec, tp: int, expert_tp: int) -> set[WeightShape]:
    """Shapes of a layer without the ones beside it."""
    found = {WeightShape(each.columns // (tp if each.split else 1), each.sums) for each in layer.adjoined}
    if layer.mixes:
        found |= {WeightShape(layer.hidden, layer.output(tp)), *_attention(layer, tp)}
    if not layer.feeds:
        return found
    if layer.experts is None:
        return found | _feed_forward(layer, layer.hidden, layer.ffn // tp)
    if shared := layer.experts.shared_ffn_hidden:
        found |= _feed_forward(layer, layer.hidden, shared // tp)
    return found | _feed_forward(layer, layer.row, layer.experts.expert_ffn_hidden // expert_tp, grouped=True)


def _attention(layer: LayerSpec, tp: int) -> set[WeightShape]:
    """What makes queries, keys and values, or a mixer's columns."""
    hidden, latent, mixer = layer.hidden, layer.latent, layer.mixer
    if mixer:
        return {WeightShape(mixer.made // tp + mixer.made_whole, hidden)}
    if latent is None:
        gate = (layer.attention_gate or 0) // tp
        return {WeightShape(layer.queries(tp) + layer.kv_made(tp) + gate, hidden)}
    made = latent.qk_nope_head_dim + latent.v_head_dim
    found = {
        WeightShape(latent.kv_lora_rank + latent.qk_rope_head_dim, hidden),
        WeightShape(layer.heads * made // tp, latent.kv_lora_rank),
        WeightShape(layer.queries(tp), latent.q_lora_rank or hidden),
    }
    return found | ({WeightShape(latent.q_lora_rank, hidden)} if latent.q_lora_rank else set())


def _feed_forward(layer: LayerSpec, row: int, width: int, *, grouped: bool = False) -> set[WeightShape]:
    """The products of a row into and out of a feed-forward part of a width."""
    return {WeightShape((layer.ffn_matrices - 1) * width, row, grouped), WeightShape(row, width, grouped)}
