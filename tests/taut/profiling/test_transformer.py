"""Slices of one tensor rank: their shapes are the model's, and the ranks' results add up to the layer's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.profiling.slices import Attention, Embedding, FeedForward, Head, slice_of
from tests.support.profiling import gated_model, plain_model

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
LAYER = LayerSpec(hidden=16, heads=4, kv_heads=2, ffn_hidden=24, seq=8, gated_mlp=True)


def count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("model", [plain_model(), gated_model(), gated_model(head_dim=8)], ids=str)
def test_slices_have_the_parameters_of_the_model(model: ModelSpec, tp: int) -> None:
    """Every slice holds as many parameters as the memory model counts; with tp 4 the 2 key-value heads repeat."""
    layer = model.kinds["block"]
    block = slice_of(model, "block", tp, 1, device=CPU, dtype=torch.float32).module
    matrices = [part.weight.numel() for part in block.modules() if isinstance(part, nn.Linear)]
    assert sum(matrices) == layer.matrix_parameters(tp)
    assert count(block) == layer.parameters(tp)
    assert count(Embedding(model, tp)) == model.embedding_parameters(tp)
    assert count(Head(model, tp, 1)) == model.head_parameters(tp)


def test_hand_counted_slice() -> None:
    """Rank 0 of 2 of the plain layer has the widths that one writes down for it."""
    block = slice_of(plain_model(), "block", 2, 3, device=CPU, dtype=torch.float32)
    shapes = {name: tuple(weight.shape) for name, weight in block.module.named_parameters() if "norm" not in name}
    # 2 of 4 heads of 4 channels: queries, keys and values of 8 each; 32 of 64 feed-forward channels.
    assert shapes == {
        "attention.inward.weight": (24, 16),
        "attention.inward.bias": (24,),
        "attention.outward.weight": (16, 8),
        "attention.outward.bias": (16,),
        "feed_forward.inward.weight": (32, 16),
        "feed_forward.inward.bias": (32,),
        "feed_forward.outward.weight": (16, 32),
        "feed_forward.outward.bias": (16,),
    }
    assert block.inputs.shape == block.gradient.shape == block.module(block.inputs).shape == (3, 8, 16)


def test_attention_of_the_ranks_adds_up() -> None:
    """Two ranks with the rows of their heads give partial sums of what one rank gives."""
    whole, parts = Attention(LAYER, 1), [Attention(LAYER, 2) for _ in range(2)]
    x = torch.randn(2, 8, 16)
    # Rows of the whole: 4 query heads, 2 key heads, 2 value heads, of 4 channels each.
    rows = [[*range(8), *range(16, 20), *range(24, 28)], [*range(8, 16), *range(20, 24), *range(28, 32)]]
    with torch.no_grad():
        for rank, part in enumerate(parts):
            part.inward.weight.copy_(whole.inward.weight[rows[rank]])
            part.outward.weight.copy_(whole.outward.weight[:, 8 * rank : 8 * rank + 8])
        torch.testing.assert_close(parts[0](x) + parts[1](x), whole(x))


def test_feed_forward_of_the_ranks_adds_up() -> None:
    """Two ranks with halves of the gate, of the values and of the way back give partial sums of the whole."""
    whole, parts = FeedForward(LAYER, 1), [FeedForward(LAYER, 2) for _ in range(2)]
    x = torch.randn(2, 8, 16)
    with torch.no_grad():
        for rank, part in enumerate(parts):
            half = slice(12 * rank, 12 * rank + 12)
            part.inward.weight.copy_(torch.cat([whole.inward.weight[:24][half], whole.inward.weight[24:][half]]))
            part.outward.weight.copy_(whole.outward.weight[:, half])
        torch.testing.assert_close(parts[0](x) + parts[1](x), whole(x))


def changed(attention: Attention, token: int) -> list[int]:
    """Tokens whose output changes when one input token does."""
    x = torch.randn(1, 8, 16)
    other = x.clone()
    other[0, token] += 1.0
    with torch.no_grad():
        moved: Tensor = (attention(x) - attention(other)).abs().amax(dim=2)[0] > 1e-7
    return [int(index) for index in moved.nonzero()]


def test_attention_is_causal_within_its_window() -> None:
    """A token reaches itself and later ones, of its own window alone."""
    assert changed(Attention(LAYER, 1), 2) == [2, 3, 4, 5, 6, 7]
    assert changed(Attention(LAYER.model_copy(update={"attention_window": 4}), 1), 2) == [2, 3]


def test_windows_must_divide_the_sequence() -> None:
    """A window that leaves a rest is refused in one line."""
    layer = LAYER.model_copy(update={"attention_window": 3})
    model = ModelSpec.parse({"name": "windows", "layers": [layer.model_dump()]}, "windows")
    with pytest.raises(DataError, match="windows: layer block: attention_window is 3, expected a divisor of its seq"):
        slice_of(model, "block", 1, 1, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"experts": {"num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden": 8}}, "experts"),
        ({"latent": {"kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4}}, "latent"),
    ],
)
def test_experts_and_latent_attention_are_not_measured(part: dict[str, Any], words: str) -> None:
    """Layers that would be measured as dense ones are refused in one line."""
    entry = {"hidden": 16, "heads": 2, "seq": 8, **part}
    model = ModelSpec.parse({"name": "experts", "layers": [entry]}, "experts")
    with pytest.raises(DataError, match=f"experts: layer block: has {words}.*, expected a dense layer"):
        slice_of(model, "block", 1, 1, device=CPU, dtype=torch.float32)


def test_tokens_of_other_ranks_become_zero() -> None:
    """With 2 ranks and 512 padded rows, rank 0 finds tokens below 256; the others are another rank's."""
    embedding = Embedding(plain_model(), 2)
    found = embedding(torch.tensor([[0, 255, 256, 299]]))
    assert embedding.table.weight.shape == (256, 16)
    torch.testing.assert_close(found[0, :2], embedding.table.weight[[0, 255]])
    assert not found[0, 2:].any()


def test_number_format_reaches_weights_and_activations_alone() -> None:
    """A slice in bf16 leaves the default number format as it was, and its loss is summed in fp32."""
    head = slice_of(plain_model(), "head", 1, 2, device=CPU, dtype=torch.bfloat16)
    assert {weight.dtype for weight in head.module.parameters()} == {torch.bfloat16}
    assert head.inputs.dtype == torch.bfloat16
    assert head.module(head.inputs).dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32
