"""The three passes apart: what they compute, and what is kept between them."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from taut.data.model import ModelSpec
from taut.profiling.slices import Passes, Slice, kept_bytes, slice_of
from tests.support.profiling import gated_model, plain_model

pytestmark = pytest.mark.usefixtures("one_thread")
MODELS = [plain_model(), gated_model()]


def piece_of(model: ModelSpec, kind: str, tp: int, micro_batch: int = 2) -> Slice:
    return slice_of(model, kind, tp, micro_batch, device=torch.device("cpu"), dtype=torch.float32)


def reference(piece: Slice) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of input (none for tokens) and parameters, by one call of autograd."""
    inputs = [piece.inputs] if piece.inputs.requires_grad else []
    weights = list(piece.module.parameters())
    found = torch.autograd.grad(piece.module(piece.inputs), [*inputs, *weights], piece.gradient)
    return list(found[: len(inputs)]), list(found[len(inputs) :])


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("kind", ["block", "embedding", "head"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_passes_compute_what_autograd_does(model: ModelSpec, kind: str, tp: int, recompute: str) -> None:
    """Backward in one go and in two passes give autograd's gradients, of the input and of every parameter."""
    piece = piece_of(model, kind, tp)
    of_inputs, of_weights = reference(piece)
    seen: list[Tensor] = []
    if piece.inputs.requires_grad:
        piece.inputs.register_hook(seen.append)
    passes = Passes(piece, torch.float32)
    assert list(passes.whole(recompute)) == ["forward", "backward"]
    torch.testing.assert_close(list(passes.summed.values()), of_weights)
    assert list(passes.parted(recompute)) == ["forward", "input_grad", "weight_grad"]
    torch.testing.assert_close(list(passes.summed.values()), [2 * gradient for gradient in of_weights])
    torch.testing.assert_close(seen, 2 * of_inputs)
    assert piece.inputs.grad is None
    assert all(weight.grad is None for weight in piece.module.parameters())


def test_gradients_are_summed_in_the_stated_type() -> None:
    """Weights in bf16 keep their gradients in fp32, over all repeats."""
    piece = slice_of(plain_model(), "block", 1, 2, device=torch.device("cpu"), dtype=torch.bfloat16)
    _, gradients = reference(piece)
    passes = Passes(piece, torch.float32)
    for _ in range(2):
        list(passes.repeat("none"))
    assert {total.dtype for total in passes.summed.values()} == {torch.float32}
    for total, gradient in zip(passes.summed.values(), gradients, strict=True):
        torch.testing.assert_close(total, 4 * gradient.float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_kept_bytes_of_a_plain_layer_by_hand(tp: int) -> None:
    """Storages of a GPT layer that stay, one by one, of 2 x 8 tokens in fp32."""
    # Outside: input and output of either norm (16 channels), and mean and deviation of each: 4 * 16 + 2 * 2.
    # Inside: queries, keys, values 48/tp, result of the core 16/tp and its sums 4/tp; 64/tp before and after GELU.
    tokens, element = 16, 4
    outside, inside = tokens * (4 * 16 + 4) * element, tokens * (48 + 16 + 4 + 2 * 64) * element // tp
    assert kept_bytes(piece_of(plain_model(), "block", tp)) == (outside, inside)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_kept_bytes_of_a_gated_layer_by_hand(tp: int) -> None:
    """What the split parts of a Llama layer keep; with tp 4 its 2 key-value heads lie on two ranks each."""
    # Queries 16/tp, keys and values of max(2/tp, 1) heads of 4 channels, result of the core 16/tp and its sums 4/tp.
    # Gate and values 2 * 24/tp, SiLU of the gate 24/tp, the product 24/tp.
    tokens, element = 16, 4
    widths = 16 // tp + 2 * 4 * max(2 // tp, 1) + 16 // tp + 4 // tp + 4 * 24 // tp
    outside, inside = kept_bytes(piece_of(gated_model(), "block", tp))
    assert inside == tokens * widths * element
    # At least input and output of the two norms, whose own storages differ between versions of PyTorch.
    assert tokens * 4 * 16 * element <= outside <= tokens * (6 * 16 + 8) * element


def test_kept_bytes_of_embedding_and_head_by_hand() -> None:
    """The embedding keeps its tokens; the head its norm's input and output, fp32 logits and targets."""
    # 16 tokens of 8 bytes; with 2 ranks also which of them are absent, 1 byte each.
    assert kept_bytes(piece_of(plain_model(), "embedding", 1)) == (16 * 8, 0)
    assert kept_bytes(piece_of(plain_model(), "embedding", 2)) == (16 * 9, 0)
    # 300 words padded to 384; 512 for 2 ranks, 256 each. The loss keeps its total weight, 4 bytes.
    assert kept_bytes(piece_of(plain_model(), "head", 1)) == (16 * (2 * 16 + 2) * 4, 16 * (384 * 4 + 8) + 4)
    assert kept_bytes(piece_of(plain_model(), "head", 2)) == (16 * (2 * 16 + 2) * 4, 16 * (256 * 4 + 8) + 4)


def test_measuring_leaves_no_hooks() -> None:
    """Kept bytes are the same when they are measured again, and the split parts carry no hooks after it."""
    piece = piece_of(plain_model(), "block", 1)
    assert kept_bytes(piece) == kept_bytes(piece)
    parts: tuple[nn.Module, ...] = piece.split
    assert all(not part._forward_hooks and not part._forward_pre_hooks for part in parts)


class Mark:
    """A hook of a node in the backward graph, which lives as long as the node."""

    def __call__(self, *given: object) -> None:
        """Change nothing."""


@pytest.mark.parametrize("kind", ["block", "head"])
def test_nothing_keeps_a_slice_that_is_done_with(kind: str) -> None:
    """Weights, their sums and the backward graphs go back, hooks or not, so that a sweep does not fill the device."""
    passes = Passes(piece_of(plain_model(), kind, 1), torch.float32)
    kept: list[weakref.ref[object]] = [weakref.ref(tensor) for pair in passes.summed.items() for tensor in pair]

    def mark(part: nn.Module, given: object, output: Tensor) -> None:
        if output.grad_fn is not None:
            hook = Mark()
            kept.append(weakref.ref(hook))
            output.grad_fn.register_hook(hook)

    for part in passes.piece.module.modules():
        part.register_forward_hook(mark)
    kept_bytes(passes.piece)
    list(passes.repeat("full"))
    del passes, part
    gc.collect()
    assert not [each for each in kept if each() is not None]
