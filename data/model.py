r"""
What is trained: a model as a chain of layers.

Data of one layer, per sample: tokens :math:`s`, hidden size :math:`h`, attention heads :math:`a` and key-value heads
:math:`a_{kv}`, hidden size of the feed-forward part :math:`f`, and the attention window :math:`w` (all :math:`s` tokens
unless stated). With heads of :math:`h_a = h / a` channels unless stated,
:math:`h_q = a h_a`, :math:`h_{kv} = a_{kv} h_a` and :math:`g = 3` for a gated feed-forward part, 2 otherwise:

(1) matrix parameters of a layer: :math:`2 h h_q + 2 h h_{kv} + g h f`, split evenly over tensor ranks;
(2) small parameters: without gating two layer norms and all biases, with gating two RMS norms, as in GPT and Llama;
(3) forward FLOP: :math:`2 s` per matrix parameter, and :math:`4 s w h_q` for the attention core (scores and values,
    the full square: causal masks are left to the efficiency of the kernel);
(4) output of a layer: :math:`s h` elements, which a pipeline hop carries.

The vocabulary is padded as Megatron-LM does, to a multiple of 128 times the tensor degree.
"""

from functools import cached_property
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from taut.data.spec import Spec

Count = Annotated[int, Field(gt=0, le=10_000_000, strict=True)]
MOST_LAYERS = 2048
MOST_PARAMETERS = 10**15
LayerCount = Annotated[int, Field(gt=0, le=MOST_LAYERS, strict=True)]
BLOCK, EMBEDDING, HEAD = "block", "embedding", "head"
VOCABULARY_MULTIPLE = 128


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

    @model_validator(mode="after")
    def _consistent(self) -> "LayerSpec":
        if self.kind in (EMBEDDING, HEAD):
            raise ValueError(f"kind is {self.kind!r}, which is reserved; expected another name")
        if self.head_dim is None and self.hidden % self.heads:
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
        """Hidden size of the feed-forward part; four times ``hidden`` unless stated."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def window(self) -> int:
        """Tokens that one token attends to."""
        return min(self.attention_window or self.seq, self.seq)

    @property
    def masks(self) -> int:
        """Dropout masks of a byte an element that a layer keeps: 2, unless it is gated or has no dropout."""
        return 2 * int(not self.gated_mlp if self.dropout is None else self.dropout)

    @property
    def query_hidden(self) -> int:
        """Width of the queries and of the attention's output; the hidden size unless ``head_dim`` says otherwise."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values)."""
        return self.query_hidden // self.heads * self.key_value_heads

    @property
    def output_elements(self) -> int:
        """Elements that one sample hands to the next layer, eq. (4)."""
        return self.seq * self.hidden

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the layer evenly, as Megatron-LM requires."""
        kv = self.key_value_heads
        return self.heads % tp == 0 and (kv % tp == 0 or tp % kv == 0) and self.ffn % tp == 0

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
        kv_width = self.kv_hidden // min(tp, self.key_value_heads)
        projections = 2 * self.hidden * self.query_hidden // tp + 2 * self.hidden * kv_width
        return projections + (3 if self.gated_mlp else 2) * self.hidden * self.ffn // tp

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
        if self.gated_mlp:
            return self.matrix_parameters(tp) + 2 * self.hidden
        kv_width = self.kv_hidden // min(tp, self.key_value_heads)
        biases = (self.query_hidden + self.ffn) // tp + 2 * kv_width + 2 * self.hidden
        return self.matrix_parameters(tp) + biases + 4 * self.hidden

    def attention_flops(self) -> float:
        """FLOP of the attention core of one sample, forward, eq. (3)."""
        return 4.0 * self.seq * self.window * self.query_hidden

    def forward_flops(self) -> float:
        """FLOP of one sample, forward, eq. (3)."""
        return 2.0 * self.seq * self.matrix_parameters() + self.attention_flops()


def _form(layers: object) -> str:
    return "number" if isinstance(layers, int | float | str) else "list"


Layers = Annotated[Annotated[LayerCount, Tag("number")] | Annotated[list[LayerSpec], Tag("list")], Discriminator(_form)]


class ModelSpec(Spec):
    """
    A model: a stack of equal transformer layers, or an explicit list of unlike ones.

    With ``layers`` a number, the shape stands beside it (``hidden``, ``heads``, ...). With ``layers`` a list, each
    entry is a LayerSpec and the shape fields stay empty. With ``vocab`` the first stage also holds the embedding and
    the last one the final norm and the head; without it the model is its layers alone. ``max_seq`` is the longest
    sequence that the model's own file allows, where it says so; ``seq`` is the one that is trained.
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
    tied_embedding: bool = False
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
                raise ValueError(f"{missing[0]} is missing, expected beside a number of layers")
        elif self.hidden or self.heads or self.kv_heads or self.head_dim or self.ffn_hidden:
            raise ValueError("hidden, heads, head_dim and their like belong to the entries of a list of layers")
        elif sum(layer.count for layer in self.layers) > MOST_LAYERS:
            raise ValueError(f"layers: more than {MOST_LAYERS} in all, expected at most as many")
        self._check_kinds()
        if self.parameters() > MOST_PARAMETERS:
            raise ValueError(f"has {self.parameters():.4g} parameters, expected at most {MOST_PARAMETERS:g}")
        return self

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
        shape = LayerSpec(
            hidden=self.hidden or 0,
            heads=self.heads or 0,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn_hidden=self.ffn_hidden,
            seq=self.seq or 0,
            gated_mlp=self.gated_mlp,
            dropout=self.dropout,
        )
        return (shape,) * self.layers

    @property
    def kinds(self) -> dict[str, LayerSpec]:
        """The distinct layer shapes by kind."""
        return {layer.kind: layer for layer in self.blocks}

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share every layer."""
        return all(layer.splits(tp) for layer in self.kinds.values())

    def padded_vocab(self, tp: int) -> int:
        """
        Vocabulary after padding to a multiple of 128 times ``tp`` (0 without one).

        Parameters
        ----------
        tp
            Tensor degree.

        Returns
        -------
        int
            Rows of the embedding over all ranks.
        """
        multiple = VOCABULARY_MULTIPLE * tp
        return -(-(self.vocab or 0) // multiple) * multiple

    def embedding_parameters(self, tp: int = 1) -> int:
        """Parameters of the token embedding on one tensor rank (0 without a vocabulary)."""
        return self.padded_vocab(tp) * self.blocks[0].hidden // tp

    def head_parameters(self, tp: int = 1, *, shared: bool = False) -> int:
        """
        Parameters of final norm and head on one tensor rank.

        A tied head is a copy of the embedding wherever the two lie on different stages; with ``shared`` (one stage)
        it costs nothing beyond the norm.

        Parameters
        ----------
        tp
            Tensor degree.
        shared
            Whether embedding and head lie on one stage.

        Returns
        -------
        int
            Parameters of one rank.
        """
        if not self.vocab:
            return 0
        hidden = self.blocks[-1].hidden
        norm = hidden if self.gated_mlp else 2 * hidden
        return norm + (0 if self.tied_embedding and shared else self.padded_vocab(tp) * hidden // tp)

    def parameters(self) -> int:
        """Parameters of the whole model; a tied head is counted once."""
        blocks = sum(layer.parameters() for layer in self.blocks)
        embedding = (self.vocab or 0) * self.blocks[0].hidden
        norm = 0 if not self.vocab else self.head_parameters() - self.padded_vocab(1) * self.blocks[-1].hidden
        head = 0 if self.tied_embedding else (self.vocab or 0) * self.blocks[-1].hidden
        return blocks + embedding + norm + head

    def head_flops(self) -> float:
        """FLOP of the head for one sample, forward."""
        return 2.0 * self.blocks[-1].output_elements * (self.vocab or 0)

    def training_flops(self) -> float:
        """Model FLOP of one sample, forward and backward, without recomputation (backward counts twice)."""
        return 3.0 * (sum(layer.forward_flops() for layer in self.blocks) + self.head_flops())

    @property
    def tokens(self) -> int:
        """Tokens of one sample, at the input."""
        return self.blocks[0].seq
