"""Encoders of multimodal files: sizes by family, images as a distribution, what is refused, and the command."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taut.commands.app import app
from taut.data.load import load_model
from taut.data.readers.config_encoders import read_multimodal
from taut.errors import DataError

TEXT: dict[str, Any] = {
    **{"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 262144, "head_dim": 128},
}
QWEN25: dict[str, Any] = {
    **{"model_type": "qwen2_5_vl", "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64},
    **{"num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 128000},
    **{"hidden_act": "silu", "tie_word_embeddings": False, "vision_config": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3456, "num_heads": 16, "in_chans": 3,
        "out_hidden_size": 8192, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}},
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False, "text_config": TEXT | {"model_type": "qwen3_vl_text"},
    "vision_config": {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "in_channels": 3,
        "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]},
}  # fmt: skip
INTERNVL: dict[str, Any] = {
    "model_type": "internvl", "downsample_ratio": 0.5, "tie_word_embeddings": False,
    "text_config": TEXT | {"model_type": "qwen3"},
    "vision_config": {
        "hidden_size": 3200, "num_hidden_layers": 45, "num_attention_heads": 25, "intermediate_size": 12800,
        "image_size": [448, 448], "patch_size": [14, 14]},
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "model_type": "gemma3", "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
        "vocab_size": 262208, "max_position_embeddings": 131072},
    "vision_config": {
        "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
        "patch_size": 14, "image_size": 896},
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "vocab_size": 202048,
        "max_position_embeddings": 10485760, "tie_word_embeddings": False},
    "vision_config": {
        "hidden_size": 1408, "num_hidden_layers": 34, "num_attention_heads": 16, "intermediate_size": 5632,
        "image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 4096,
        "projector_output_dim": 4096, "vision_output_dim": 4096},
}  # fmt: skip
FILES = {"qwen25": QWEN25, "qwen3": QWEN3, "internvl": INTERNVL, "gemma": GEMMA, "llama": LLAMA}
ENCODERS: dict[str, tuple[int, int, int]] = {
    # Layers (gated: 4 h^2 + 3 h f + 2 h), the patches' 1176 h, and 5120^2 + 5120 * 8192.
    "qwen25": (32 * (4 * 1280**2 + 3 * 1280 * 3456 + 2 * 1280) + 1176 * 1280 + 5120**2 + 5120 * 8192, 72 * 72, 4),
    # Layers with biases 2 (3 h + h) + f + h + norms, 1536 h and 2304 h, and four mergers of 4608^2 + 4608 * 4096.
    "qwen3": (
        27 * (4 * 1152**2 + 2 * 1152 * 4304 + 9 * 1152 + 4304) + 3840 * 1152 + 4 * (4608**2 + 4608 * 4096),
        64 * 64,
        4,
    ),
    "internvl": (45 * (12 * 3200**2 + 13 * 3200) + (588 + 1024) * 3200 + 12800 * 4096 + 4096**2, 1024, 4),
    "gemma": (27 * (4 * 1152**2 + 2 * 1152 * 4304 + 9 * 1152 + 4304) + (588 + 4096) * 1152 + 1152 * 5376, 4096, 16),
    "llama": (
        34 * (12 * 1408**2 + 13 * 1408) + (588 + 576) * 1408 + 5632 * 4096 + 4096**2 + 4096 * 5120,
        576,
        4,
    ),
}
"""Parameters by the shapes of the modules in transformers, patches of an image, and patches of a token."""


def written(folder: Path, values: dict[str, Any]) -> Path:
    """The file."""
    path = folder / "model.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_encoders_of_every_family(tmp_path: Path, name: str) -> None:
    """Parameters as the modules have them, and the patches of an image."""
    size = "1008x1008" if name == "qwen25" else "1024x1024" if name == "qwen3" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = read_multimodal(written(tmp_path, FILES[name]), "2", size=size, seq=8192)
        alone = load_model(str(written(tmp_path, FILES[name])), seq=8192)
    encoder, (parameters, patches, merge) = model.encoder, ENCODERS[name]
    assert encoder is not None and alone.encoder is None
    assert encoder.parameters() == pytest.approx(parameters, rel=2e-4)
    assert (encoder.patches, encoder.merge, encoder.images, encoder.most_images) == (patches, merge, 2.0, 2)
    assert encoder.tensor_parallel == (name == "qwen3")
    assert model.parameters() == alone.parameters() + encoder.parameters()


def test_a_published_size(tmp_path: Path) -> None:
    """Qwen2.5-VL-72B has 73.4 billion parameters."""
    model = read_multimodal(written(tmp_path, QWEN25), "1", size="1008x1008", seq=8192)
    assert model.parameters() == pytest.approx(73.41e9, rel=1e-3)


@pytest.mark.parametrize(
    ("images", "most", "expected"),
    [("1.5", None, (1.5, 2)), ("1.5", 4, (1.5, 4)), ("1:0.5,4:0.5", None, (2.5, 4)), ("0:3,2:1", None, (0.5, 2))],
)
def test_images_are_a_distribution(tmp_path: Path, images: str, most: int | None, expected: tuple[float, int]) -> None:
    encoder = read_multimodal(written(tmp_path, QWEN25), images, most=most, size="504x504", seq=8192).encoder
    assert encoder is not None and (encoder.images, encoder.most_images) == expected


def changed(part: str, **fields: object) -> dict[str, Any]:
    return QWEN25 | {part: QWEN25[part] | fields}


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        (QWEN25, {}, "takes images of any size, expected --image-size"),
        (QWEN25, {"size": "1008"}, "--image-size '1008': expected height and width"),
        (QWEN25, {"size": "504x504", "images": "many"}, "--images 'many': expected a number"),
        (QWEN25, {"size": "504x504", "images": "1:0,2:0"}, "--images '1:0,2:0': expected a number"),
        (QWEN25, {"size": "504x504", "images": "-1"}, "--images '-1': expected a number"),
        (QWEN25, {"size": "504x504", "images": "2", "most": 1}, "images is 2, expected at most most_images"),
        (QWEN25, {"size": "4000x4000"}, "expected at most the 8192 tokens of a sequence"),
        (QWEN25, {"size": "504x504", "trained": "some"}, "encoder.trained"),
        (GEMMA, {"size": "504x504"}, "gemma3 has tiles of one size, expected none"),
        (changed("vision_config", depth=None), {"size": "504x504"}, "depth missing, expected a whole number"),
        (changed("vision_config", num_heads="16"), {"size": "504x504"}, "num_heads is '16', expected a whole number"),
        (changed("vision_config", fullatt_block_indexes=7), {"size": "504x504"}, "fullatt_block_indexes is 7"),
        (changed("vision_config", out_hidden_size=4096), {"size": "504x504"}, "ends with 4096 columns"),
        (QWEN25 | {"vision_config": None}, {"size": "504x504"}, "vision_config: missing"),
        (QWEN25 | {"model_type": "gemma4"}, {}, "model_type is 'gemma4', expected .*did you mean gemma3"),
        (INTERNVL | {"downsample_ratio": 0.3}, {}, "downsample_ratio is 0.3, expected one over a whole number"),
        (GEMMA | {"mm_tokens_per_image": 300}, {}, "mm_tokens_per_image is 300, expected to divide"),
    ],
)
def test_what_is_no_encoder_is_refused(tmp_path: Path, values: dict[str, Any], options: Any, words: str) -> None:
    """One line that says the field, its value and what was expected."""
    given = dict(options)
    with pytest.raises(DataError, match=words), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read_multimodal(written(tmp_path, values), given.pop("images", "1"), seq=8192, **given)


def test_the_command_writes_a_model_file(tmp_path: Path) -> None:
    """What it writes is read again, and the text-only remark is not said."""
    path, out = written(tmp_path, QWEN25), tmp_path / "model.yaml"
    options = ["--images", "1.5", "--image-size", "504x504", "--seq", "4096", "--trained", "projector"]
    result = CliRunner().invoke(app, ["import", "images", str(path), *options, "--out", str(out)])
    assert result.exit_code == 0 and "704,133,120 of the encoder, 324 tokens an image" in result.stderr
    assert "alone" not in result.stderr
    encoder = load_model(str(out)).encoder
    assert encoder is not None and encoder.trained == "projector" and encoder.window == 64


def test_a_file_by_itself_says_how_to_take_the_encoder_in(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="language model alone is priced .taut import images"):
        load_model(str(written(tmp_path, QWEN25)), seq=4096)
