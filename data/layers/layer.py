r"""
One transformer layer: its sizes, parameters and FLOP.

Data of one layer, per sample: tokens :math:`s`, hidden size :math:`h`, attention heads :math:`a` and key-value heads
:math:`a_{kv}`, hidden size of the feed-forward part :math:`f`, and the attention window :math:`w` (all :math:`s` tokens
unless stated). With heads of :math:`h_a = h / a` channels unless stated,
:math:`h_q = a h_a`, :math:`h_{kv} = a_{kv} h_a` and :math:`g = 3` for a gated feed-forward part, 2 otherwise:

(1) matrix parameters of a layer: :math:`2 h h_q + 2 h h_{kv} + g h f`, split evenly over tensor ranks; the attention's
    may be those of (5) and (6) instead, and the feed-forward part's those of ``taut.data.layers.experts``;
(2) small parameters: without gating two layer norms and all biases, with gating two RMS norms, as in GPT and Llama;
    with ``qk_norm`` those of :math:`2 h_a` channels that norm every head's queries and keys, as in Qwen3;
(3) forward FLOP: :math:`2 s` per matrix parameter that a token uses, and :math:`4 s w h_q` for the attention core
    (scores and values, the full square: causal masks are left to the efficiency of the kernel);
(4) output of a layer: :math:`s h` elements, which a pipeline hop carries.

Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). Keys and values are made from :math:`r_{kv}`
channels a token, queries from :math:`r_q` (or from the layer's input). Each of a heads has keys and queries of
:math:`d_n + d_r` channels, of which the :math:`d_r` with rotary positions are one key for all heads, and values of
:math:`d_v`. In training every head has its own keys and values, as made. With hidden size h,

(5) parameters that every tensor rank has: :math:`h r_q + h (r_{kv} + d_r)`, and the norms' :math:`r_q + r_{kv}`;
(6) parameters that tensor ranks share by heads: :math:`r_q a (d_n + d_r) + r_{kv} a (d_n + d_v) + a d_v h`; without
    :math:`r_q` the first is :math:`h a (d_n + d_r)`;
(7) FLOP of the attention core: :math:`2 s w a (d_n + d_r + d_v)`, as of plain heads with the mean of the two widths;
(8) an indexer (DeepSeek-V3.2) scores tokens with :math:`a_i` heads of :math:`d_i` channels, made from the queries'
    ranks: :math:`r_q a_i d_i + h (d_i + a_i)` parameters, whole on every tensor rank, and :math:`2 s w a_i d_i` FLOP,
    counted with the core.

A gate of the attention's output (Qwen3-Next, AFMoE) is made of u columns, one a channel or one a head:

(9) :math:`h u` parameters, which tensor ranks share; the output is multiplied by the gate before its last product.

A layer may mix tokens otherwise than by attention (``taut.data.layers.mixer``).
"""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from taut.data.layers.experts import ExpertsSpec
from taut.data.layers.mixer import MixerSpec, Whole
from taut.data.layers.sizes import Count, LayerCount
from taut.data.spec import Spec


class LatentSpec(Spec):
    """Sizes of latent attention, under the names of Hugging Face; without ``q_lora_rank`` queries are plain."""

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    index_heads: Whole = 0
    index_dim: Whole = 0

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return self.dumped(handler(self), "index_heads", "index_dim")

    @property
    def index_parameters(self) -> int:
        """Parameters of the indexer's queries, made from the queries' ranks, (8)."""
        return (self.q_lora_rank or 0) * self.index_heads * self.index_dim

    @property
    def indexed(self) -> int:
        """Columns that the indexer makes from a layer's input: one key, and a weight for each of its heads, (8)."""
        return self.index_dim + self.index_heads

    @property
    def key_dim(self) -> int:
        """Channels of a head's queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def core_dim(self) -> float:
        """Channels of a plain head whose attention core has as many FLOP, (7)."""
        return (self.key_dim + self.v_head_dim) / 2

    @property
    def compressed(self) -> int:
        """Channels a token that queries, keys and values are made from."""
        return (self.q_lora_rank or 0) + self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def normed(self) -> int:
        """Of these the channels that pass a norm, one parameter each."""
        return (self.q_lora_rank or 0) + self.kv_lora_rank

    def matrix_parameters(self, hidden: int, heads: int, tp: int = 1) -> int:
        """
        Matrix parameters of the attention on one of ``tp`` tensor ranks, (5) and (6).

        ``hidden``, ``heads``: hidden size and heads of the layer.
        """
        made = (self.q_lora_rank or hidden) * self.key_dim
        made += self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim) + self.v_head_dim * hidden
        return hidden * (self.compressed + self.indexed) + self.index_parameters + heads * made // tp


BLOCK, EMBEDDING, HEAD = "block", "embedding", "head"


class LayerSpec(Spec):
    """One transformer layer (or ``count`` equal ones in a row); ``kind`` names its shape in the cost table."""

    kind: str = BLOCK
    count: LayerCount = 1
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn_hidden: Count | None = None
    seq: Count
    gated_mlp: bool = False
    dropout: bool | None = None
    attention_window: Count | None = None
    qk_norm: bool = False
    experts: ExpertsSpec | None = None
    latent: LatentSpec | None = None
    attention_gate: Count | None = None
    mixer: MixerSpec | None = None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return self.dumped(handler(self), "qk_norm", "attention_gate", "mixer")

    @model_validator(mode="after")
    def _consistent(self) -> "LayerSpec":
        if self.kind in (EMBEDDING, HEAD):
            raise ValueError(f"kind is {self.kind!r}, which is reserved; expected another name")
        if self.latent is not None and (self.head_dim or self.key_value_heads != self.heads or self.qk_norm):
            raise ValueError("latent attention has its own heads and norms, expected no head_dim, kv_heads or qk_norm")
        plain = (self.latent, self.head_dim, self.kv_heads, self.attention_window, self.attention_gate)
        if self.mixer is not None and (self.qk_norm or any(each is not None for each in plain)):
            raise ValueError("a mixer takes the place of attention, expected no heads, windows or norms of attention")
        if self.mixer is None and self.latent is None and self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden is {self.hidden}, expected a multiple of heads ({self.heads})")
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads is {self.heads}, expected a multiple of kv_heads ({self.key_value_heads})")
        return self

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values; all heads unless stated."""
        return self.kv_heads or self.heads

    @property
    def ffn(self) -> int:
        """Hidden size of the feed-forward part, if it is dense; four times ``hidden`` unless stated."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def ffn_matrices(self) -> int:
        """Matrices of a feed-forward part: 3 if it is gated, else 2."""
        return 3 if self.gated_mlp else 2

    @property
    def used_ffn(self) -> int:
        """Width of the feed-forward parts that one token passes through."""
        return self.experts.used_width if self.experts else self.ffn

    @property
    def window(self) -> int:
        """Tokens that one token attends to; of a mixer those of attention with as much work."""
        if self.mixer:
            return min(self.mixer.reach, self.seq)
        return min(self.attention_window or self.seq, self.seq)

    @property
    def masks(self) -> int:
        """Dropout masks of a byte an element that a layer keeps: 2, unless it is gated or has no dropout."""
        return 2 * int(not self.gated_mlp if self.dropout is None else self.dropout)

    @property
    def query_hidden(self) -> int:
        """Width of the attention's output and, unless latent, of the queries; ``hidden`` unless stated."""
        if self.mixer:
            return self.heads * self.mixer.value_dim
        each = self.latent.v_head_dim if self.latent else self.head_dim or self.hidden // self.heads
        return self.heads * each

    @property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values) of plain attention."""
        return self.query_hidden // self.heads * self.key_value_heads

    @property
    def core_dim(self) -> float:
        """Channels of a head, or those of a plain head with as many FLOP, the indexer's with them."""
        if self.latent:
            return self.latent.core_dim + self.latent.index_heads * self.latent.index_dim / (2 * self.heads)
        return self.query_hidden // self.heads

    @property
    def output_elements(self) -> int:
        """Elements that one sample hands to the next layer, eq. (4)."""
        return self.seq * self.hidden

    @property
    def normed_hidden(self) -> int:
        """Width of the queries and keys that a norm of their own takes before attention."""
        return self.query_hidden + self.kv_hidden if self.qk_norm else 0

    def keys_and_values(self, tp: int) -> int:
        """Width of keys and values together on one of ``tp`` tensor ranks; few key-value heads are replicated."""
        if self.mixer:
            return 0
        if self.latent:
            return self.heads * (self.latent.key_dim + self.latent.v_head_dim) // tp
        return 2 * (self.kv_hidden // min(tp, self.key_value_heads))

    def queries(self, tp: int) -> int:
        """Width of the queries on one of ``tp`` tensor ranks."""
        return self.heads * self.latent.key_dim // tp if self.latent else self.query_hidden // tp

    def output(self, tp: int) -> int:
        """Width of the attention's output, before its last product, on one of ``tp`` tensor ranks."""
        return self.query_hidden // tp

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the layer evenly, as Megatron-LM requires."""
        kv = self.key_value_heads
        shared = self.experts.splits(tp) if self.experts else self.ffn % tp == 0
        return self.heads % tp == 0 and (kv % tp == 0 or tp % kv == 0) and shared

    def attention_parameters(self, tp: int = 1) -> int:
        """Matrix parameters of the attention, or of what takes its place, on one of ``tp`` tensor ranks, eq. (1)."""
        if self.mixer:
            return self.mixer.matrix_parameters(self.hidden, self.heads, tp)
        gate = self.hidden * (self.attention_gate or 0) // tp
        if self.latent:
            return self.latent.matrix_parameters(self.hidden, self.heads, tp) + gate
        return gate + 2 * self.hidden * self.query_hidden // tp + self.hidden * self.keys_and_values(tp)

    def ffn_parameters(self, tp: int = 1) -> int:
        """Matrix parameters of the feed-forward part, or of router and experts, on one tensor rank, eq. (1)."""
        if self.experts:
            return self.experts.matrix_parameters(self.hidden, self.ffn_matrices, tp)
        return self.ffn_matrices * self.hidden * self.ffn // tp

    def matrix_parameters(self, tp: int = 1) -> int:
        """
        Parameters of the matrices on one of ``tp`` tensor ranks, eq. (1); few key-value heads are replicated.

        Parameters
        ----------
        tp
            Tensor degree.

        Returns
        -------
        int
            Parameters of one rank.
        """
        return self.attention_parameters(tp) + self.ffn_parameters(tp)

    def parameters(self, tp: int = 1) -> int:
        """
        Parameters on one of ``tp`` tensor ranks, eqs. (1) and (2).

        Parameters
        ----------
        tp
            Tensor degree.

        Returns
        -------
        int
            Parameters of one rank.
        """
        normed = self.latent.normed if self.latent else 2 * (self.query_hidden // self.heads) * self.qk_norm
        if self.gated_mlp or self.experts or self.latent or self.mixer:
            return self.matrix_parameters(tp) + normed + (2 if self.gated_mlp else 4) * self.hidden
        biases = (self.query_hidden + self.ffn) // tp + self.keys_and_values(tp) + 2 * self.hidden
        return self.matrix_parameters(tp) + biases + normed + 4 * self.hidden

    @property
    def routed_parameters(self) -> int:
        """Parameters of the experts that a router chooses from, on all ranks."""
        if self.experts is None:
            return 0
        return self.ffn_matrices * self.hidden * self.experts.num_experts * self.experts.expert_ffn_hidden

    @property
    def unused_parameters(self) -> int:
        """Parameters of the experts that do not take a token."""
        if self.experts is None:
            return 0
        return self.ffn_matrices * self.hidden * (self.experts.width - self.experts.used_width)

    def attention_flops(self) -> float:
        """FLOP of the attention core of one sample, forward, eq. (3)."""
        return 4.0 * self.seq * self.window * self.heads * self.core_dim

    def ffn_flops(self) -> float:
        """FLOP of the feed-forward part of one sample, forward, eq. (3)."""
        return 2.0 * self.seq * (self.ffn_parameters() - self.unused_parameters)

    def forward_flops(self) -> float:
        """FLOP of one sample, forward, eq. (3)."""
        return 2.0 * self.seq * (self.matrix_parameters() - self.unused_parameters) + self.attention_flops()
