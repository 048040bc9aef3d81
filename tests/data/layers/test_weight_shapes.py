"""Shapes of weights by layer: counted by hand, and together the matrices of a layer where no two are alike."""

import pytest

import taut
from taut.data.layers.layer import WeightShape, weight_shapes
from taut.data.memory import MemoryModel


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_dense_layer_has_four(tp: int) -> None:
    """Llama 3 70B: queries, keys and values; the output; gates with what goes up; what goes down: all its matrices."""
    layer = taut.load_model("llama3-70b").blocks[0]
    shapes = weight_shapes(layer, tp, tp)
    assert WeightShape(10240 // tp, 8192) in shapes and WeightShape(57344 // tp, 8192) in shapes
    assert len(shapes) == 4
    assert sum(shape.size for shape in shapes) == layer.matrix_parameters(tp)


def test_experts_have_the_shapes_of_one() -> None:
    """Of 128 experts in one kernel two shapes count, from the release on that has stand-ins of them."""
    layer = taut.load_model("qwen3-30b-a3b").blocks[0]
    shapes = weight_shapes(layer, 1, 1)
    assert {shape for shape in shapes if shape.grouped} == {
        WeightShape(2 * 768, 2048, grouped=True),
        WeightShape(2048, 768, grouped=True),
    }
    old, new = (MemoryModel(transformer_engine=release) for release in ("2.9", "2.10"))
    assert old.caches(grouped=False) and not old.caches(grouped=True)
    assert new.caches(grouped=True) and not MemoryModel().caches(grouped=False)


def test_latent_attention_has_five() -> None:
    """DeepSeek-V3: what compresses queries, and keys, whole; what unfolds them by heads; and the output."""
    layer = taut.load_model("deepseek-v3").blocks[0]
    attention = {shape for shape in weight_shapes(layer, 2, 2) if 18432 // 2 not in shape and 18432 not in shape}
    assert attention == {
        WeightShape(1536, 7168),
        WeightShape(128 * 192 // 2, 1536),
        WeightShape(576, 7168),
        WeightShape(128 * 256 // 2, 512),
        WeightShape(7168, 128 * 128 // 2),
    }
