r"""
What is trained: a model as a chain of layers (``taut.data.layers.layer``), with an embedding and a head.

A number of layers L of one shape may still be of several kinds, layers :math:`l = 0..L-1`:

(1) the first ``dense_layers`` have a dense feed-forward part; of those after them, with experts, every
    ``expert_period``-th layer has them, :math:`(l + 1) \bmod p = 0`, and the others are dense;
(2) with an ``attention_window`` every ``full_attention_period``-th layer attends to all tokens, :math:`(l + 1) \bmod p
    = 0`, the others to the window; without a period every layer has the window;
(3) kinds are then named ``dense`` or ``experts``, and ``window`` where attention is to one; a model of one kind has
    ``block`` alone.

(4) With ``mtp_layers`` the model also predicts further tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2): for each, a
    layer of the last one's shape, three norms, a product from 2 h to h of the normed output and the embedding of the
    token that follows, and logits with a loss of its own by the same head. They stand behind the layers, with the head,
    whose stage then has a copy of the embedding; the copies exchange their gradients as a tied embedding's do.
    ``mtp_kinds`` are the kinds of several layers for each token instead (Nemotron 3: attention and experts), and with
    ``mtp_repeated`` all tokens pass the same weights (``mtp_use_repeated_layer`` of Megatron-LM).

(5) With ``position_rows`` positions have an embedding of so many rows (GPT-2, OPT). It lies with the token embedding,
    whole on every tensor rank, and no head is tied to it.

(6) ``further_embedding`` are parameters of a table beside the token embedding, whole on every tensor rank like (5):
    Gemma 3n's and 4's embeddings for every layer, of which a token reads one row.

(7) An ``encoder`` of images stands before the token embedding, on its stage (``taut.data.layers.encoder``).

The vocabulary is padded as Megatron-LM does, to a multiple of 128 times the tensor degree.
"""

from functools import cached_property
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from taut.data.layers.encoder import EncoderSpec
from taut.data.layers.experts import ExpertsSpec
from taut.data.layers.layer import BLOCK, LatentSpec, LayerSpec
from taut.data.layers.mixer import Mixing
from taut.data.spec import LATER, MOST_LAYERS, MOST_PARAMETERS, Count, GrownSpec, LayerCount

VOCABULARY_MULTIPLE = 128
SHAPE = (
    *("hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "qk_norm", "experts", "latent", "attention_window"),
    "attention_gate",
)
"""Fields of a number of layers that the entries of a list state for themselves."""


def _form(layers: object) -> str:
    return "number" if isinstance(layers, int | float | str) else "list"


Layers = Annotated[Annotated[LayerCount, Tag("number")] | Annotated[list[LayerSpec], Tag("list")], Discriminator(_form)]


class ModelSpec(GrownSpec):
    """
    A model: a stack of transformer layers of one shape, or an explicit list of different ones.

    If ``layers`` is a number, further fields state the shape (``hidden``, ``heads``, ...), and (1) and (2) say which
    layers have experts or attend to a window. If ``layers`` is a list, each entry is a LayerSpec and the shape fields
    stay empty. With ``vocab`` the first stage also holds the embedding, and the last stage the final norm and the head;
    without it the model is its layers only. ``max_seq`` is the longest sequence that the model's file allows, ``seq``
    the sequence length of the training.
    """

    name: str
    layers: Layers
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn_hidden: Count | None = None
    seq: Count | None = None
    max_seq: Annotated[int, Field(gt=0, lt=2**63, strict=True)] | None = None
    vocab: Count | None = None
    gated_mlp: bool = False
    dropout: bool | None = None
    attention_window: Count | None = None
    full_attention_period: Count | None = None
    qk_norm: Annotated[bool, LATER] = False
    experts: ExpertsSpec | None = None
    dense_layers: Annotated[int, Field(ge=0, le=MOST_LAYERS, strict=True)] = 0
    expert_period: Count = 1
    latent: LatentSpec | None = None
    attention_gate: Annotated[Count | None, LATER] = None
    tied_embedding: bool = False
    position_rows: Annotated[int, Field(ge=0, le=10_000_000, strict=True), LATER] = 0
    further_embedding: Annotated[int, Field(ge=0, le=MOST_PARAMETERS, strict=True), LATER] = 0
    mtp_layers: Annotated[int, Field(ge=0, le=100, strict=True), LATER] = 0
    mtp_kinds: Annotated[list[str], Field(max_length=100), LATER] = []
    mtp_repeated: Annotated[bool, LATER] = False
    encoder: Annotated[EncoderSpec | None, LATER] = None
    source: str = ""

    @field_validator("layers", mode="before")
    @classmethod
    def _some_layers(cls, layers: Any) -> Any:
        if isinstance(layers, list) and not layers:
            raise ValueError("is an empty list, expected at least one layer")
        return layers

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSpec":
        if isinstance(self.layers, int):
            missing = [field for field in ("hidden", "heads", "seq") if getattr(self, field) is None]
            if missing:
                raise ValueError(f"{missing[0]} is missing, expected with a number of layers")
            self._check_shares(self.layers)
        elif any(getattr(self, field) for field in (*SHAPE, "dense_layers", "full_attention_period")):
            raise ValueError("hidden, heads, head_dim and their like belong to the entries of a list of layers")
        elif sum(layer.count for layer in self.layers) > MOST_LAYERS:
            raise ValueError(f"layers: more than {MOST_LAYERS} in all, expected at most as many")
        self._check_kinds()
        if self.mtp_layers and not self.vocab:
            raise ValueError(f"mtp_layers is {self.mtp_layers}, expected 0 without a vocab")
        for name in ("position_rows", "further_embedding"):
            if getattr(self, name) and not self.vocab:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 without a vocab")
        self._check_further()
        if self.encoder:
            self._check_encoder(self.encoder)
        if self.parameters() > MOST_PARAMETERS:
            raise ValueError(f"has {self.parameters():.4g} parameters, expected at most {MOST_PARAMETERS:g}")
        return self

    def _check_shares(self, layers: int) -> None:
        if self.experts is None and (self.dense_layers or self.expert_period > 1):
            raise ValueError("dense_layers and expert_period say which layers have experts, expected experts too")
        if self.full_attention_period and self.attention_window is None:
            raise ValueError("full_attention_period is given, expected an attention_window with it")
        if self.experts and all(self._is_dense(layer) for layer in range(layers)):
            raise ValueError("experts: dense_layers and expert_period leave no layer with them, expected one or more")

    def _check_encoder(self, encoder: EncoderSpec) -> None:
        if not self.vocab:
            raise ValueError("encoder: given, expected none without a vocab")
        if encoder.projector[-1][1] != self.blocks[0].hidden:
            columns, hidden = encoder.projector[-1][1], self.blocks[0].hidden
            raise ValueError(f"encoder.projector: ends with {columns} columns, expected the hidden size, {hidden}")
        if encoder.most_images * encoder.image_tokens > self.tokens:
            images = f"{encoder.most_images} images of {encoder.image_tokens} tokens"
            raise ValueError(f"encoder.most_images: {images}, expected at most the {self.tokens} tokens of a sequence")

    def _check_further(self) -> None:
        if unknown := [kind for kind in self.mtp_kinds if kind not in self.kinds]:
            raise ValueError(f"mtp_kinds: {unknown[0]!r}, expected kinds of the layers: {', '.join(self.kinds)}")
        last, words = self.blocks[-1], f"mtp_layers is {self.mtp_layers}, expected"
        if self.mtp_layers and not self.mtp_kinds and last.only:
            raise ValueError(f"{words} mtp_kinds with it where the last layer has one part only")
        for layer in self.further:
            if (layer.hidden, layer.seq) != (last.hidden, last.seq):
                raise ValueError(f"mtp_kinds: {layer.kind!r}, expected layers with the last layer's hidden and seq")
            if last.streams > 1 or layer.streams > 1:
                raise ValueError(f"{words} 0 where layers have several streams")
            if any(part.reused or not part.kv_matrices for part in layer.together):
                raise ValueError(f"{words} 0 where {layer.kind!r} takes keys or weights of an earlier layer")

    def _check_kinds(self) -> None:
        kinds: dict[str, LayerSpec] = {}
        for layer in self.blocks:
            if kinds.setdefault(layer.kind, layer) != layer:
                raise ValueError(f"layers: kind {layer.kind!r} has two shapes, expected one kind per shape")

    @cached_property
    def blocks(self) -> tuple[LayerSpec, ...]:
        """The layers that are divided among pipeline stages, in order, each with ``count`` 1."""
        if isinstance(self.layers, list):
            return tuple(layer.model_copy(update={"count": 1}) for layer in self.layers for _ in range(layer.count))
        every = [(self._is_dense(layer), self._is_full(layer)) for layer in range(self.layers)]
        shapes = {each: self._shape(*each, alone=len(set(every)) == 1) for each in set(every)}
        return tuple(shapes[each] for each in every)

    def _is_dense(self, layer: int) -> bool:
        """Whether a layer has no experts, (1)."""
        return self.experts is None or layer < self.dense_layers or (layer + 1) % self.expert_period != 0

    def _is_full(self, layer: int) -> bool:
        """Whether a layer attends to all tokens, (2)."""
        period = self.full_attention_period
        return self.attention_window is None or (period is not None and (layer + 1) % period == 0)

    def _shape(self, dense: bool, full: bool, *, alone: bool) -> LayerSpec:
        """A layer of the model's shape, named by (3)."""
        given: dict[str, Any] = {name: getattr(self, name) for name in SHAPE}
        if dense:
            given["experts"] = None
        if full:
            given["attention_window"] = None
        names = [BLOCK if self.experts is None else "dense" if dense else "experts", *([] if full else ["window"])]
        own = {"seq": self.seq, "gated_mlp": self.gated_mlp, "dropout": self.dropout}
        return LayerSpec(kind=BLOCK if alone else "-".join(names), **given, **own)

    @cached_property
    def kinds(self) -> dict[str, LayerSpec]:
        """The distinct layer shapes by kind."""
        return {layer.kind: layer for layer in self.blocks}

    @property
    def mixing(self) -> set[Mixing]:
        """How layers mix tokens, all ways."""
        return set[Mixing]().union(*(layer.mixing for layer in self.kinds.values()))

    @cached_property
    def further(self) -> tuple[LayerSpec, ...]:
        """The layers that further tokens pass, behind the others, (4)."""
        return tuple(self.kinds[kind] for kind in self.mtp_kinds or [self.blocks[-1].kind]) * self.mtp_layers

    @property
    def further_held(self) -> tuple[LayerSpec, ...]:
        """Those of them that have weights of their own."""
        return self.further[: len(self.mtp_kinds) or 1] if self.mtp_repeated else self.further

    @cached_property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return any(layer.experts for layer in self.kinds.values())

    @cached_property
    def has_alike_experts(self) -> bool:
        """Whether the layers with experts exchange alike tokens: as many, as wide, among as many experts."""
        return len({(layer.experts, layer.hidden, layer.seq) for layer in self.kinds.values() if layer.experts}) == 1

    @cached_property
    def expert_counts(self) -> set[int]:
        """Numbers of experts that layers have, of those that have some."""
        return {layer.experts.num_experts for layer in self.kinds.values() if layer.experts}

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share every layer."""
        images = self.encoder is None or self.encoder.splits(tp)
        return images and all(layer.splits(tp) for layer in self.kinds.values())

    def padded_vocab(self, tp: int) -> int:
        """Rows of the embedding over ``tp`` tensor ranks: the vocabulary padded to 128 tp; 0 without one."""
        multiple = VOCABULARY_MULTIPLE * tp
        return -(-(self.vocab or 0) // multiple) * multiple

    def embedding_parameters(self, tp: int = 1) -> int:
        """Parameters of the token embedding on one tensor rank (0 without a vocabulary)."""
        return self.padded_vocab(tp) * self.blocks[0].hidden // tp

    @property
    def position_parameters(self) -> int:
        """Parameters of the embedding of positions, and of a further table, which every rank has whole, (5) and (6)."""
        return self.position_rows * self.blocks[0].hidden + self.further_embedding

    def edge_parameters(self, tp: int = 1) -> int:
        """Trained parameters before the first layer on one tensor rank: embeddings and encoder, (5) to (7)."""
        encoder = self.encoder.trained_parameters(tp) if self.encoder else 0
        return self.embedding_parameters(tp) + self.position_parameters + encoder

    def head_parameters(self, tp: int = 1, *, shared: bool = False) -> int:
        """Parameters of final norm and head on one of ``tp`` ranks; a tied head ``shared`` on one stage has none."""
        if not self.vocab:
            return 0
        hidden, table = self.blocks[-1].hidden, self.padded_vocab(tp) * self.blocks[-1].hidden // tp
        norm = hidden if self.gated_mlp else 2 * hidden
        head = norm + (0 if self.tied_embedding and shared else table)
        if not self.mtp_layers:
            return head
        copy = 0 if self.tied_embedding or shared else table
        return head + copy + (1 if self.mtp_repeated else self.mtp_layers) * (2 * hidden**2 // tp + 3 * norm)

    @property
    def shares_embedding(self) -> bool:
        """Whether the stage of the head has a copy of the embedding: of a tied one, or for further tokens, (4)."""
        return self.tied_embedding or self.mtp_layers > 0

    @property
    def mtp_head_share(self) -> float:
        """FLOP of a further token's logits and its product from 2 h to h, of those of the head, (4)."""
        return 1.0 + 2.0 * self.blocks[-1].hidden / self.padded_vocab(1)

    def parameters(self) -> int:
        """Parameters of the whole model; a tied head is counted once."""
        blocks = sum(layer.own_parameters for layer in (*self.blocks, *self.further_held))
        embedding = (self.vocab or 0) * self.blocks[0].hidden + self.position_parameters
        padded = 0 if self.tied_embedding else self.padded_vocab(1) * self.blocks[-1].hidden
        norm = self.head_parameters(shared=True) - padded
        head = 0 if self.tied_embedding else (self.vocab or 0) * self.blocks[-1].hidden
        return blocks + embedding + norm + head + (self.encoder.parameters() if self.encoder else 0)

    def active_parameters(self) -> int:
        """Parameters that one token uses: all but those of the experts that do not take it."""
        return self.parameters() - sum(layer.unused_parameters for layer in (*self.blocks, *self.further_held))

    def head_flops(self) -> float:
        """FLOP of the head for one sample, forward."""
        return 2.0 * self.blocks[-1].output_elements * (self.vocab or 0)

    def training_flops(self) -> float:
        """Model FLOP of one sample, forward and backward, without recomputation (backward counts twice)."""
        layers = sum(layer.forward_flops() for layer in (*self.blocks, *self.further))
        heads = self.head_flops() + self.mtp_layers * self._further_head_flops()
        return 3.0 * (layers + heads) + (self.encoder.training_flops() if self.encoder else 0.0)

    def _further_head_flops(self) -> float:
        """FLOP of a further token's logits and its product from 2 h to h, forward, (4)."""
        last = self.blocks[-1]
        return self.head_flops() + 4.0 * last.output_elements * last.hidden

    @property
    def tokens(self) -> int:
        """Tokens of one sample, at the input."""
        return self.blocks[0].seq
