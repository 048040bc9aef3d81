r"""
One tensor rank's slice of a model's layers, as PyTorch modules without communication, and its passes.

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

Its forward, input-gradient and weight-gradient pass are worked through apart. With :math:`y_j = f_j(x_j, w_j)` the
outputs of the parts that have parameters (matrix products, norms, embedding), and :math:`y` that of the slice:

(6) forward: :math:`y` from :math:`x`, with the graph;
(7) input gradient: :math:`\partial x` and every :math:`\partial y_j` from :math:`\partial y`. Weights are not asked
    for, so autograd leaves their matrix products out;
(8) weight gradient: :math:`\partial w_j` from :math:`\partial y_j` for every part;
(9) backward: the work of (7) and (8) in one go. (8) and (9) add to the gradients that are kept over the micro-batches
    in the type that ``taut.data.memory`` states;
(10) under full recompute (6) runs without the graph, and (7) and (9) begin with forward again.

Most schedules run (9), and zero-bubble pipelines run (7) and (8), which together take a few percent longer: nothing is
freed between them. All four are measured, in turns. A row of the cost table has the seconds of (9), divided between
input and weight gradient as (7) and (8) are. The difference between (9) and (7) alone would be noisier.

(11) Kept bytes are the distinct storages that autograd holds after (6), without those of parameters: what the slice
    does outside its ``split`` parts, inputs of these parts included, and what it does inside them.
(12) With sequence parallelism over t ranks a rank keeps 1/t of the former and all of the latter. This is derived, not
    measured: as in Megatron-LM, the gathered input of a column slice is gathered again, not kept.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

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


PASSES = ("forward", "input_grad", "weight_grad")


class Passes:
    """The passes of a slice, repeat after repeat; ``summed`` holds the summed gradients in ``gradient_dtype``."""

    def __init__(self, piece: Slice, gradient_dtype: torch.dtype) -> None:
        self.piece = piece
        self.summed: dict[Tensor, Tensor] = {
            w: torch.zeros_like(w, dtype=gradient_dtype) for w in piece.module.parameters()
        }
        self._outputs: dict[nn.Module, Tensor] = {}
        # A weight keeps its hook where no collector sees it, so the hook must not keep the weights.
        hook = partial(_sum, weakref.ref(self))
        for weight in self.summed:
            weight.register_post_accumulate_grad_hook(hook)
        for part in piece.module.modules():
            if _own(part):
                part.register_forward_hook(self._keep_output)

    def repeat(self, recompute: str) -> Iterator[str]:
        """All passes in turns: forward, backward, forward, input gradient, weight gradient."""
        yield from self.whole(recompute)
        yield from self.parted(recompute)

    def whole(self, recompute: str) -> Iterator[str]:
        """Work through (6) and (9); yields the name of every pass when it is done."""
        out = self._forward(recompute)
        yield "forward"
        out = self._again(out, recompute)
        self._outputs.clear()
        torch.autograd.backward(out, self.piece.gradient)
        self.piece.inputs.grad = None
        yield "backward"

    def parted(self, recompute: str) -> Iterator[str]:
        """Work through (6), (7) and (8); yields the name of every pass when it is done."""
        out = self._forward(recompute)
        yield PASSES[0]
        out = self._again(out, recompute)
        x, outputs = self.piece.inputs, self._outputs.copy()
        self._outputs.clear()
        wanted = [*outputs.values(), *([x] if x.requires_grad else [])]
        gradients = torch.autograd.grad(out, wanted, self.piece.gradient, retain_graph=True)
        yield PASSES[1]
        for (part, output), gradient in zip(outputs.items(), gradients, strict=False):
            for weight, term in zip(_own(part), torch.autograd.grad(output, _own(part), gradient), strict=True):
                self.summed[weight].add_(term)
        yield PASSES[2]

    def _forward(self, recompute: str) -> Tensor:
        with torch.set_grad_enabled(recompute == "none"):
            out: Tensor = self.piece.module(self.piece.inputs)
        return out

    def _again(self, out: Tensor, recompute: str) -> Tensor:
        """The output with its graph, (10)."""
        return self._forward("none") if recompute == "full" else out

    def _keep_output(self, part: nn.Module, inputs: Any, output: Tensor) -> None:
        self._outputs[part] = output


def _sum(passes: weakref.ref[Passes], weight: Tensor) -> None:
    own = passes()
    if own is not None and weight.grad is not None:
        own.summed[weight].add_(weight.grad)
    weight.grad = None


def kept_bytes(piece: Slice) -> tuple[int, int]:
    """Bytes that stay for the backward pass, outside and inside the split parts, (11)."""
    weights = {weight.untyped_storage().data_ptr() for weight in piece.module.parameters()}
    outside: dict[int, int] = {}
    inside: dict[int, int] = {}
    inputs: set[int] = set()
    alive: list[Tensor] = []
    depth = 0

    def enter(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        nonlocal depth
        depth += 1
        inputs.update(tensor.untyped_storage().data_ptr() for tensor in given)

    def leave(part: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal depth
        depth -= 1

    def pack(tensor: Tensor) -> None:
        # Handed back, a node's own output would keep the node, where no collector sees it.
        alive.append(tensor.detach())
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in weights and address not in outside and address not in inside:
            (inside if depth and address not in inputs else outside)[address] = storage.nbytes()

    hooks = [part.register_forward_pre_hook(enter) for part in piece.split]
    hooks += [part.register_forward_hook(leave) for part in piece.split]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        # While all that is kept lives, no address stands for two.
        piece.module(piece.inputs)
    for hook in hooks:
        hook.remove()
    return sum(outside.values()), sum(inside.values())


def _own(part: nn.Module) -> list[nn.Parameter]:
    """Parameters that belong to a part itself."""
    return list(part.parameters(recurse=False))
