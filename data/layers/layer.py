"""
One transformer layer: its sizes, parameters and FLOP.

Data of one layer, per sample: tokens :math:`s`, hidden size :math:`h`, attention heads :math:`a` and key-value heads
:math:`a_{kv}`, hidden size of the feed-forward part :math:`f`, and the attention window :math:`w` (all :math:`s` tokens
unless stated). With heads of :math:`h_a = h / a` channels unless stated,
:math:`h_q = a h_a`, :math:`h_{kv} = a_{kv} h_a` and :math:`g = 3` for a gated feed-forward part, 2 otherwise:

(1) matrix parameters of a layer: :math:`2 h h_q + 2 h h_{kv} + g h f`, split evenly over tensor ranks; the attention's
    may be those of (5) and (6) instead, and the feed-forward part's those of ``taut.data.layers.experts``;
(2) small parameters: without gating two layer norms (4 h) and all biases, as in GPT; with gating two RMS norms (2 h),
    as in Llama; no biases with experts, latent attention or a mixer; one RMS norm a part (h each) if one of (10) to
    (14) holds. With ``qk_norm`` :math:`2 h_a` more norm every head's queries and keys, as in Qwen3;
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

A layer may mix tokens otherwise than by attention (``taut.data.layers.mixer``), and differ from (1) and (3) further:

(10) it may have one of its two parts only (Nemotron-H): attention or its like, or the feed-forward part, and one norm;
(11) values may have channels of their own, :math:`d_v` a head, and keys and values may be made by one matrix (Gemma 4:
    keys are values) or by none, where an earlier layer's are taken (Gemma 3n, Hunyuan-Large);
(12) further products of K columns in and N out belong to the layer (Gemma 3n's gates of per-layer embeddings, the
    adapters of Zamba 2): K N parameters each, :math:`2 s K N` FLOP, N columns kept, whole on every tensor rank or
    shared by all;
(13) the residual stream may be n wide (hyper-connections, AltUp): a hop carries :math:`n s h` elements, and each part
    reads n streams and writes n;
(14) a second layer may stand ``beside`` a layer and count with it as one (a Mamba-2 mixer parallel to attention in
    Falcon-H1, the second attention of LongCat, a shared block of Zamba). All of it is summed; experts are the first's;
(15) a layer with ``reused`` weights takes an earlier layer's. They count once in the model, and on every stage that
    uses them; a stage that uses them twice is priced as if it held them twice.

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

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from taut.data.layers.experts import ExpertsSpec
from taut.data.layers.mixer import MixerSpec, Mixing, Whole
from taut.data.spec import LATER, Count, GrownSpec, LayerCount


class LatentSpec(GrownSpec):
    """
    Sizes of latent attention, (5) to (8), under the names of Hugging Face.

    ``q_lora_rank``: None if queries are made from the layer's input; ``index_heads``, ``index_dim``: 0 without indexer.
    """

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    index_heads: Annotated[Whole, LATER] = 0
    index_dim: Annotated[Whole, LATER] = 0

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
        """Channels of ``compressed`` that pass a norm, one parameter each."""
        return (self.q_lora_rank or 0) + self.kv_lora_rank

    def matrix_parameters(self, hidden: int, heads: int, tp: int = 1) -> int:
        """Matrix parameters of the attention on one of ``tp`` tensor ranks, (5) and (6)."""
        made = (self.q_lora_rank or hidden) * self.key_dim
        made += self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim) + self.v_head_dim * hidden
        return hidden * (self.compressed + self.indexed) + self.index_parameters + heads * made // tp


BLOCK, EMBEDDING, HEAD, ENCODER = "block", "embedding", "head", "encoder"


class ProductSpec(GrownSpec):
    """
    A further product of a layer, (12).

    ``sums``, ``columns``: columns K in and N out; ``mixes``: whether it belongs to attention or what takes its place;
    ``split``: whether tensor ranks share it; ``idle``: whether it is there for other tokens alone (experts of JetMoE's
    attention that a token does not choose).
    """

    sums: Count
    columns: Count
    mixes: bool = False
    split: bool = False
    idle: Annotated[bool, LATER] = False

    def parameters(self, tp: int = 1) -> int:
        """Parameters of its matrix on one of ``tp`` tensor ranks."""
        return self.sums * self.columns // (tp if self.split else 1)


class LayerSpec(GrownSpec):
    """
    One transformer layer (or ``count`` equal ones in a row); ``kind`` names its shape in the cost table.

    ``attention_gate``: columns u, (9); ``only``: the one part, (10); ``kv_matrices``: how many make keys and values,
    and ``value_head_dim``, (11); ``adjoined``: further products, (12); ``streams``: n, (13).
    """

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
    qk_norm: Annotated[bool, LATER] = False
    experts: ExpertsSpec | None = None
    latent: LatentSpec | None = None
    attention_gate: Annotated[Count | None, LATER] = None
    mixer: Annotated[MixerSpec | None, LATER] = None
    only: Annotated[Literal["attention", "feed_forward"] | None, LATER] = None
    kv_matrices: Annotated[int, Field(ge=0, le=2, strict=True), LATER] = 2
    value_head_dim: Annotated[Count | None, LATER] = None
    streams: Annotated[Count, LATER] = 1
    adjoined: Annotated[list[ProductSpec], LATER] = []
    beside: Annotated["LayerSpec | None", LATER] = None
    reused: Annotated[bool, LATER] = False

    @model_validator(mode="after")
    def _consistent(self) -> "LayerSpec":
        if self.kind in (EMBEDDING, HEAD, ENCODER):
            raise ValueError(f"kind is {self.kind!r}, which is reserved; expected another name")
        if self.latent is not None and (self.head_dim or self.key_value_heads != self.heads or self.qk_norm):
            raise ValueError("latent attention has its own heads and norms, expected no head_dim, kv_heads or qk_norm")
        plain = (self.latent, self.head_dim, self.kv_heads, self.attention_window, self.attention_gate)
        if self.mixer is not None and (self.qk_norm or any(each is not None for each in plain)):
            raise ValueError("a mixer takes the place of attention, expected no heads, windows or norms of attention")
        self._check_parts()
        if self.mixes and not (self.mixer or self.latent or self.head_dim) and self.hidden % self.heads:
            raise ValueError(f"hidden is {self.hidden}, expected a multiple of heads ({self.heads})")
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads is {self.heads}, expected a multiple of kv_heads ({self.key_value_heads})")
        return self

    def _check_parts(self) -> None:
        own = (self.kv_matrices != 2, self.value_head_dim is not None)
        if any(own) and (self.mixer or self.latent or self.only == "feed_forward"):
            raise ValueError("kv_matrices and value_head_dim belong to plain attention, expected it with them")
        mixing = (self.mixer, self.latent, self.attention_gate, self.qk_norm or None)
        if self.only == "feed_forward" and any(part is not None for part in mixing):
            raise ValueError("only is 'feed_forward', expected no mixer, latent attention, gate or norm of queries")
        if self.only == "attention" and self.experts:
            raise ValueError("only is 'attention', expected no experts")
        if self.value_head_dim is not None and self.attention_gate is not None:
            raise ValueError("value_head_dim and attention_gate are given, expected one of both")
        other = self.beside
        if other and (other.experts or other.hidden != self.hidden or other.seq != self.seq or other.streams > 1):
            raise ValueError("beside has experts, streams or another hidden or seq, expected a layer of the same sizes")

    @property
    def mixes(self) -> bool:
        """Whether the layer has attention or what takes its place, (10)."""
        return self.only != "feed_forward"

    @property
    def feeds(self) -> bool:
        """Whether the layer has a feed-forward part, (10)."""
        return self.only != "attention"

    @property
    def parts(self) -> int:
        """Parts of the layer, each with a norm before it: 2 unless (10)."""
        return int(self.mixes) + int(self.feeds)

    @property
    def own(self) -> "LayerSpec":
        """The layer without the one beside it, (14)."""
        return self.model_copy(update={"beside": None}) if self.beside else self

    @property
    def together(self) -> tuple["LayerSpec", ...]:
        """The layer and those beside it, each by itself, (14)."""
        return (self.own, *self.beside.together) if self.beside else (self,)

    @property
    def attending(self) -> tuple["LayerSpec", ...]:
        """The layer and those beside it that have attention, each by itself."""
        return tuple(part for part in self.together if part.mixes and not part.mixer)

    @property
    def mixers(self) -> tuple[tuple[int, MixerSpec], ...]:
        """Mixers of the layer and of those beside it, each with its heads."""
        return tuple((part.heads, part.mixer) for part in self.together if part.mixer)

    @property
    def mixing(self) -> set[Mixing]:
        """How the layer and those beside it mix tokens."""
        indexed = [bool(part.latent and part.latent.index_heads) for part in self.attending]
        found: set[Mixing] = {"sparse-attention" if each else "attention" for each in indexed}
        return found | {"attention" if mixer.attends == self.seq else mixer.mixing for _, mixer in self.mixers}

    @property
    def is_usual(self) -> bool:
        """Whether none of (10) to (14) holds."""
        return not any((self.only, self.kv_matrices != 2, self.value_head_dim, self.adjoined, self.beside)) and (
            self.streams == 1
        )

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values; all heads unless stated."""
        return self.kv_heads or self.heads

    @property
    def ffn(self) -> int:
        """Hidden size of the feed-forward part, if it is dense; four times ``hidden`` unless stated."""
        return 0 if not self.feeds else self.ffn_hidden or 4 * self.hidden

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
        """Tokens w that one token attends to; for a mixer the window of plain attention with as many FLOP."""
        if self.mixer:
            return min(self.mixer.reach, self.seq)
        return min(self.attention_window or self.seq, self.seq)

    @property
    def masks(self) -> int:
        """Dropout masks of a byte an element that a layer keeps: 2, unless it is gated or has no dropout."""
        return 2 * int(not self.gated_mlp if self.dropout is None else self.dropout)

    @property
    def query_hidden(self) -> int:
        """Width of the attention's output, and of the queries unless latent or with ``value_head_dim``."""
        if not self.mixes:
            return 0
        if self.mixer:
            return self.heads * self.mixer.value_dim
        each = self.latent.v_head_dim if self.latent else self.value_head_dim or self.key_head_dim
        return self.heads * each

    @property
    def key_head_dim(self) -> int:
        """Channels of a head's queries and keys in plain attention."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_hidden(self) -> int:
        """Width of the keys of plain attention, and of the values unless they have a width of their own, (11)."""
        return self.key_head_dim * self.key_value_heads if self.value_head_dim else self._value_hidden

    @property
    def _value_hidden(self) -> int:
        """Width of the values of plain attention."""
        return self.query_hidden // self.heads * self.key_value_heads

    @property
    def core_dim(self) -> float:
        """Channels of a plain head whose attention core has as many FLOP, the indexer's included, (3), (7), (8)."""
        if self.latent:
            return self.latent.core_dim + self.latent.index_heads * self.latent.index_dim / (2 * self.heads)
        if self.value_head_dim:
            return (self.key_head_dim + self.value_head_dim) / 2
        return self.query_hidden // self.heads

    @property
    def output_elements(self) -> int:
        """Elements that one sample hands to the next layer, eqs. (4) and (13)."""
        return self.seq * self.hidden * self.streams

    @property
    def normed_hidden(self) -> int:
        """Width of the queries and keys that pass a norm before attention (``qk_norm``)."""
        return self.query_hidden + self.kv_hidden if self.qk_norm else 0

    def keys_and_values(self, tp: int) -> int:
        """Width of keys and values together on one of ``tp`` tensor ranks; few key-value heads are replicated."""
        if self.mixer or not self.mixes:
            return 0
        if self.latent:
            return self.heads * (self.latent.key_dim + self.latent.v_head_dim) // tp
        held = min(tp, self.key_value_heads)
        return self.kv_hidden // held + self._value_hidden // held

    def kv_made(self, tp: int) -> int:
        """Width of keys and values that the layer makes on one tensor rank, (11)."""
        if self.kv_matrices == 2:
            return self.keys_and_values(tp)
        return self.kv_matrices * (self.kv_hidden // min(tp, self.key_value_heads))

    def queries(self, tp: int) -> int:
        """Width of the queries on one of ``tp`` tensor ranks."""
        if self.latent:
            return self.heads * self.latent.key_dim // tp
        return (self.heads * self.key_head_dim if self.value_head_dim else self.query_hidden) // tp

    def output(self, tp: int) -> int:
        """Width of the attention's output, before its last product, on one of ``tp`` tensor ranks."""
        return self.query_hidden // tp

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the layer evenly, as Megatron-LM requires."""
        if self.beside:
            return all(layer.splits(tp) for layer in self.together)
        kv = self.key_value_heads
        shared = self.experts.splits(tp) if self.experts else self.ffn % tp == 0
        by_heads = self.heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)
        return (by_heads or not self.mixes) and shared

    def attention_parameters(self, tp: int = 1) -> int:
        """Matrix parameters of the attention, or of what takes its place, on one of ``tp`` tensor ranks, eq. (1)."""
        if self.beside:
            return sum(layer.attention_parameters(tp) for layer in self.together)
        return self._mixing_parameters(tp) + sum(each.parameters(tp) for each in self.adjoined if each.mixes)

    def _mixing_parameters(self, tp: int) -> int:
        if not self.mixes:
            return 0
        if self.mixer:
            return self.mixer.matrix_parameters(self.hidden, self.heads, tp)
        gate = self.hidden * (self.attention_gate or 0) // tp
        if self.latent:
            return self.latent.matrix_parameters(self.hidden, self.heads, tp) + gate
        outer = self.query_hidden + (self.queries(1) if self.value_head_dim else self.query_hidden)
        return gate + self.hidden * outer // tp + self.hidden * self.kv_made(tp)

    def ffn_parameters(self, tp: int = 1) -> int:
        """Matrix parameters of the feed-forward part, or of router and experts, on one tensor rank, eq. (1)."""
        if self.beside:
            return sum(layer.ffn_parameters(tp) for layer in self.together)
        if self.experts:
            return self.experts.matrix_parameters(self.hidden, self.ffn_matrices, tp)
        return self.ffn_matrices * self.hidden * self.ffn // tp

    def further_parameters(self, tp: int = 1) -> int:
        """Matrix parameters of the products that are part of neither attention nor feed-forward part, (12)."""
        return sum(each.parameters(tp) for layer in self.together for each in layer.adjoined if not each.mixes)

    def matrix_parameters(self, tp: int = 1) -> int:
        """Parameters of the matrices on one of ``tp`` tensor ranks, eq. (1); few key-value heads are replicated."""
        return self.attention_parameters(tp) + self.ffn_parameters(tp) + self.further_parameters(tp)

    def parameters(self, tp: int = 1) -> int:
        """Parameters on one of ``tp`` tensor ranks, eqs. (1) and (2)."""
        if self.beside:
            return sum(layer.parameters(tp) for layer in self.together)
        normed = self.latent.normed if self.latent else 2 * (self.query_hidden // self.heads) * self.qk_norm
        if not self.is_usual:
            return self.matrix_parameters(tp) + normed + self.parts * self.hidden
        if self.gated_mlp or self.experts or self.latent or self.mixer:
            return self.matrix_parameters(tp) + normed + (2 if self.gated_mlp else 4) * self.hidden
        biases = (self.query_hidden + self.ffn) // tp + self.keys_and_values(tp) + 2 * self.hidden
        return self.matrix_parameters(tp) + biases + normed + 4 * self.hidden

    @property
    def routed_parameters(self) -> int:
        """Parameters of the experts that a router chooses from, on all ranks."""
        if self.experts is None:
            return 0
        return self.ffn_matrices * self.row * self.experts.num_experts * self.experts.expert_ffn_hidden

    @property
    def row(self) -> int:
        """Channels of an expert's input and output, ``taut.data.layers.experts`` (7)."""
        return (self.experts.latent_hidden if self.experts else None) or self.hidden

    @property
    def worked(self) -> list[ProductSpec]:
        """The further products that a token passes, (12)."""
        return [each for each in self.adjoined if not each.idle]

    @property
    def own_parameters(self) -> int:
        """Parameters that no earlier layer has, (15)."""
        if not (self.beside or self.reused):
            return self.parameters()
        return sum(part.parameters() for part in self.together if not part.reused)

    @property
    def unused_parameters(self) -> int:
        """Parameters of the experts that do not take a token, and of idle products."""
        idle = sum(each.parameters() for layer in self.together for each in layer.adjoined if each.idle)
        if self.experts is None:
            return idle
        return idle + self.ffn_matrices * self.row * (self.experts.width - self.experts.used_width)

    def attention_flops(self) -> float:
        """FLOP of the attention core of one sample, forward, eq. (3)."""
        if self.beside:
            return sum(layer.attention_flops() for layer in self.together)
        return 4.0 * self.seq * self.window * self.heads * self.core_dim if self.mixes else 0.0

    def ffn_flops(self) -> float:
        """FLOP of the feed-forward part of one sample, forward, eq. (3)."""
        idle = sum(each.parameters() for layer in self.together for each in layer.adjoined if each.idle)
        return 2.0 * self.seq * (self.ffn_parameters() - self.unused_parameters + idle)

    def forward_flops(self) -> float:
        """FLOP of one sample, forward, eq. (3)."""
        return 2.0 * self.seq * (self.matrix_parameters() - self.unused_parameters) + self.attention_flops()


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
