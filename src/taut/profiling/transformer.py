r"""
One tensor rank's slice of a model's layers, as PyTorch modules without communication.

Of :math:`t` tensor ranks, one holds, in the words of ``taut.data.model``:

(1) attention: the column slice :math:`h \to (a + 2 \max(a_{kv}, t)) h_a / t` of queries, keys and values (few
    key-value heads are replicated), causal ``scaled_dot_product_attention`` over its heads, and the row slice
    :math:`a h_a / t \to h`;
(2) feed-forward part: :math:`h \to f / t \to h` with GELU, or gated :math:`h \to 2 f / t`, SiLU of one half times the
    other, :math:`f / t \to h`;
(3) around both a norm and a residual sum, on all :math:`h` channels: layer norms and biases in a plain layer, RMS norms
    and no biases in a gated one;
(4) embedding: :math:`v / t` rows of the padded vocabulary; tokens of other ranks look up row 0 and become zero;
(5) head: final norm, :math:`h \to v / t`, and the cross entropy of these logits in fp32 with targets among them.

What tensor parallelism sends between ranks is left out, so a slice's results are partial sums, at the full cost. Left
out too, as ``LayerSpec`` has neither: dropout and position encodings. A window narrower than the sequence is measured
as separate blocks of so many tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from taut.data.layers.layer import EMBEDDING, HEAD, LayerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError


class Attention(nn.Module):
    """The attention of one tensor rank, (1)."""

    def __init__(self, layer: LayerSpec, tp: int) -> None:
        super().__init__()
        self.heads = layer.heads // tp
        self.kv_heads = layer.key_value_heads // min(tp, layer.key_value_heads)
        self.head_dim = layer.query_hidden // layer.heads
        self.window = layer.window
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.inward = nn.Linear(layer.hidden, width, bias=not layer.gated_mlp)
        self.outward = nn.Linear(self.heads * self.head_dim, layer.hidden, bias=not layer.gated_mlp)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each window; x is (micro_batch, seq, hidden)."""
        mixed = self.inward(x).view(-1, self.window, self.heads + 2 * self.kv_heads, self.head_dim).transpose(1, 2)
        query, key, value = mixed.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        grouped = self.heads != self.kv_heads
        core = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        out: Tensor = self.outward(core.transpose(1, 2).reshape(*x.shape[:2], -1))
        return out


class FeedForward(nn.Module):
    """The feed-forward part of one tensor rank, (2)."""

    def __init__(self, layer: LayerSpec, tp: int) -> None:
        super().__init__()
        self.gated = layer.gated_mlp
        width = layer.ffn // tp
        self.inward = nn.Linear(layer.hidden, 2 * width if self.gated else width, bias=not self.gated)
        self.outward = nn.Linear(width, layer.hidden, bias=not self.gated)

    def forward(self, x: Tensor) -> Tensor:
        """Map every token by itself."""
        wide: Tensor = self.inward(x)
        if self.gated:
            gate, up = wide.chunk(2, dim=-1)
            wide = functional.silu(gate) * up
        else:
            wide = functional.gelu(wide, approximate="tanh")
        out: Tensor = self.outward(wide)
        return out


class Block(nn.Module):
    """A transformer layer of one tensor rank, (1) to (3)."""

    def __init__(self, layer: LayerSpec, tp: int) -> None:
        super().__init__()
        self.attention_norm = _norm(layer.hidden, gated=layer.gated_mlp)
        self.attention = Attention(layer, tp)
        self.feed_forward_norm = _norm(layer.hidden, gated=layer.gated_mlp)
        self.feed_forward = FeedForward(layer, tp)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and feed-forward part, each added to its input."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class Embedding(nn.Module):
    """The token embedding of the first tensor rank, (4)."""

    def __init__(self, model: ModelSpec, tp: int) -> None:
        super().__init__()
        self.rows = model.padded_vocab(tp) // tp
        self.shared = tp > 1
        self.table = nn.Embedding(self.rows, model.blocks[0].hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look the tokens up; those of other ranks become zero."""
        if not self.shared:
            whole: Tensor = self.table(tokens)
            return whole
        absent = tokens >= self.rows
        found: Tensor = self.table(tokens.masked_fill(absent, 0))
        return found.masked_fill(absent.unsqueeze(-1), 0.0)


class Loss(nn.Module):
    """Logits and cross entropy of one tensor rank, (5)."""

    def __init__(self, hidden: int, targets: Tensor, vocab: int) -> None:
        super().__init__()
        self.targets = targets
        self.logits = nn.Linear(hidden, vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mean loss over the tokens, a scalar."""
        return functional.cross_entropy(self.logits(x).float().flatten(0, 1), self.targets.flatten())


class Head(nn.Module):
    """Final norm, logits and loss of one tensor rank, (5)."""

    def __init__(self, model: ModelSpec, tp: int, micro_batch: int) -> None:
        super().__init__()
        last, rows = model.blocks[-1], model.padded_vocab(tp) // tp
        self.norm = _norm(last.hidden, gated=model.gated_mlp)
        self.loss = Loss(last.hidden, torch.randint(rows, (micro_batch, last.seq)), rows)

    def forward(self, x: Tensor) -> Tensor:
        """Mean loss over the tokens, a scalar."""
        out: Tensor = self.loss(self.norm(x))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A slice with random inputs of one micro-batch and gradient; ``split``: parts that tensor ranks divide."""

    module: nn.Module
    inputs: Tensor
    gradient: Tensor
    split: tuple[nn.Module, ...]


def slice_of(
    model: ModelSpec, kind: str, tp: int, micro_batch: int, *, device: torch.device, dtype: torch.dtype
) -> Slice:
    """The slice of a layer kind, of the embedding or of the head, on a device in a number format."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return _slice(model, kind, tp, micro_batch)
    finally:
        torch.set_default_dtype(before)


def _slice(model: ModelSpec, kind: str, tp: int, micro_batch: int) -> Slice:
    if kind == EMBEDDING:
        first = model.blocks[0]
        tokens = torch.randint(model.vocab or 1, (micro_batch, first.seq))
        embedding = Embedding(model, tp)
        return Slice(
            module=embedding, inputs=tokens, gradient=torch.randn(micro_batch, first.seq, first.hidden), split=()
        )
    if kind == HEAD:
        head = Head(model, tp, micro_batch)
        inputs = _activations(model.blocks[-1], micro_batch)
        return Slice(module=head, inputs=inputs, gradient=torch.ones((), dtype=torch.float32), split=(head.loss,))
    layer = model.kinds[kind]
    if layer.mixer or layer.attention_gate or not layer.is_usual:
        part = "a gate of its attention" if layer.attention_gate else "no plain attention"
        raise DataError(
            f"{model.name}: layer {kind}: has {part}, expected a dense layer with plain attention to measure"
        )
    if layer.seq % layer.window:
        raise DataError(
            f"{model.name}: layer {kind}: attention_window is {layer.window}, expected a divisor of its seq"
        )
    if layer.experts or layer.latent:
        part = "experts" if layer.experts else "latent attention"
        raise DataError(
            f"{model.name}: layer {kind}: has {part}, expected a dense layer with plain attention to measure"
        )
    block, inputs = Block(layer, tp), _activations(layer, micro_batch)
    return Slice(
        module=block, inputs=inputs, gradient=torch.randn_like(inputs), split=(block.attention, block.feed_forward)
    )


def _activations(layer: LayerSpec, micro_batch: int) -> Tensor:
    return torch.randn(micro_batch, layer.seq, layer.hidden, requires_grad=True)


def _norm(hidden: int, *, gated: bool) -> nn.Module:
    return nn.RMSNorm(hidden) if gated else nn.LayerNorm(hidden)
