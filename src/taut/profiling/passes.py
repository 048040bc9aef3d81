r"""
Forward, input-gradient and weight-gradient pass of a slice apart, and what it keeps between them.

With :math:`y_j = f_j(x_j, w_j)` the outputs of the parts that have parameters (matrix products, norms, embedding), and
:math:`y` that of the slice:

(1) forward: :math:`y` from :math:`x`, with the graph;
(2) input gradient: :math:`\partial x` and every :math:`\partial y_j` from :math:`\partial y`. Weights are not asked
    for, so autograd leaves their matrix products out;
(3) weight gradient: :math:`\partial w_j` from :math:`\partial y_j` for every part;
(4) backward: the work of (2) and (3) in one go. (3) and (4) add to the gradients that are kept over the micro-batches
    in the type that ``taut.data.memory`` states;
(5) under full recompute (1) runs without the graph, and (2) and (4) begin with forward again.

Most schedules run (4), and zero-bubble pipelines run (2) and (3), which together take a few percent longer: nothing is
freed between them. All four are measured, in turns. A row of the cost table has the seconds of (4), divided between
input and weight gradient as (2) and (3) are. The difference between (4) and (2) alone would be noisier.

(6) Kept bytes are the distinct storages that autograd holds after (1), without those of parameters: what the slice
    does outside its ``split`` parts, inputs of these parts included, and what it does inside them.
(7) With sequence parallelism over t ranks a rank keeps 1/t of the former and all of the latter. This is derived, not
    measured: as in Megatron-LM, the gathered input of a column slice is gathered again, not kept.
"""

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.profiling.transformer import Slice

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
        """Work through (1) and (4); yields the name of every pass when it is done."""
        out = self._forward(recompute)
        yield "forward"
        out = self._again(out, recompute)
        self._outputs.clear()
        torch.autograd.backward(out, self.piece.gradient)
        self.piece.inputs.grad = None
        yield "backward"

    def parted(self, recompute: str) -> Iterator[str]:
        """Work through (1), (2) and (3); yields the name of every pass when it is done."""
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
        """The output with its graph, (5)."""
        return self._forward("none") if recompute == "full" else out

    def _keep_output(self, part: nn.Module, inputs: Any, output: Tensor) -> None:
        self._outputs[part] = output


def _sum(passes: weakref.ref[Passes], weight: Tensor) -> None:
    own = passes()
    if own is not None and weight.grad is not None:
        own.summed[weight].add_(weight.grad)
    weight.grad = None


def kept_bytes(piece: Slice) -> tuple[int, int]:
    """Bytes that stay for the backward pass, outside and inside the split parts, (6)."""
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
