"""Models from Hugging Face configurations."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_models
from taut.data.load import load_model
from taut.data.model import ModelSpec
from taut.data.readers.huggingface import read_config
from taut.errors import DataError

LLAMA: dict[str, Any] = {
    "_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 1024,
    "n_head": 16,
    "n_layer": 24,
    "n_positions": 1024,
    "vocab_size": 50257,
}

SHAPE = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size"),
)


def read(folder: Path, values: dict[str, Any], seq: int | None = None) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return read_config(path, seq=seq)


def test_llama_is_read_to_the_catalogs_shape(tmp_path: Path) -> None:
    """The published configuration of Llama 3 8B gives the catalog's model and its parameters."""
    model = read(tmp_path, LLAMA)
    assert model.name == "meta-llama/Meta-Llama-3-8B"
    assert model.blocks == catalog_models()["llama3-8b"].blocks
    assert model.parameters() == 8_030_261_248
    assert model.gated_mlp
    assert not model.tied_embedding


def test_gpt2_names_are_known(tmp_path: Path) -> None:
    """GPT-2's own field names are read; its feed-forward width is four times the hidden size, its head is tied."""
    model = read(tmp_path, GPT2)
    assert (model.layers, model.hidden, model.heads, model.seq, model.vocab) == (24, 1024, 16, 1024, 50257)
    assert model.blocks[0].ffn == 4096
    assert model.tied_embedding
    assert not model.gated_mlp
    # 24 (12 x 1024^2 + 13 x 1024) + 50257 x 1024 + 2 x 1024, and 1024 x 1024 of positions.
    assert model.parameters() == 354_823_168 == 353_774_592 + 1024 * 1024


def test_multimodal_files_keep_the_text_model_apart(tmp_path: Path) -> None:
    """Fields under ``text_config`` come before those beside it."""
    model = read(tmp_path, {"model_type": "llava", "hidden_size": 1, "text_config": LLAMA})
    assert model.hidden == 4096


def test_config_json_is_loaded_by_its_ending(tmp_path: Path) -> None:
    """A model named by a ``.json`` file is such a configuration, whose sequence length may be replaced."""
    read(tmp_path, LLAMA)
    assert load_model(str(tmp_path / "config.json"), seq=4096).tokens == 4096


def test_gemmas_gelu_is_gated(tmp_path: Path) -> None:
    """Gemma calls its gated activation gelu, and ties its head unless it says otherwise."""
    values = {name: value for name, value in LLAMA.items() if name != "tie_word_embeddings"}
    model = read(tmp_path, {**values, "model_type": "gemma", "hidden_act": "gelu_pytorch_tanh"})
    assert model.gated_mlp
    assert model.tied_embedding


def test_heads_of_their_own_width_are_priced(tmp_path: Path) -> None:
    """Qwen3 0.6B has 16 heads of 128 channels at hidden size 1024: 596,042,752 parameters without its head norms."""
    # A layer: 2 x 1024 x 2048 + 2 x 1024 x 1024 + 3 x 1024 x 3072 + 2 x 1024 = 15,730,688; 28 of them, a tied
    # embedding of 151,936 x 1024 and a norm of 1024. The published 596,049,920 adds 28 x 2 x 128 head norms.
    config = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
    more = {"head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960}
    model = read(tmp_path, {**config, **more, "hidden_act": "silu", "tie_word_embeddings": True}, 4096)
    assert model.parameters() == 596_042_752
    assert model.blocks[0].query_hidden == 2048


FALCON: dict[str, Any] = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
BLOOM: dict[str, Any] = {
    "model_type": "bloom",
    "n_embed": 4096,
    "n_layer": 30,
    "n_head": 32,
    "vocab_size": 250880,
    "seq_length": 2048,
}
MPT: dict[str, Any] = {
    "model_type": "mpt",
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "vocab_size": 50432,
    "attn_config": {"attn_type": "multihead_attention"},
}


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (FALCON, (32, 4544, 71, 1, 18176)),
        ({**FALCON, "new_decoder_architecture": True, "num_kv_heads": 71}, (32, 4544, 71, 71, 18176)),
        (BLOOM, (30, 4096, 32, 32, 16384)),
        (MPT, (32, 4096, 32, 32, 16384)),
        ({**MPT, "attn_config": {"kv_n_heads": 8}}, (32, 4096, 32, 8, 16384)),
    ],
)
def test_names_of_falcon_bloom_mpt_are_known(tmp_path: Path, values: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Layers, widths and heads of the published files, with the sequence length that the caller states."""
    model = read(tmp_path, values, 2048)
    block = model.blocks[0]
    assert (model.layers, block.hidden, block.heads, block.key_value_heads, block.ffn) == shape
    assert model.tokens == 2048
    assert model.tied_embedding


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model_type": "t5", "num_layers": 24}, "model_type is 't5', an encoder-decoder, expected a decoder-only"),
        ({**LLAMA, "is_encoder_decoder": True}, "is_encoder_decoder is true, expected a decoder-only"),
        ({"model_type": "bart"}, "model_type is 'bart', an encoder-decoder, expected a decoder-only"),
        ({**LLAMA, "model_type": "bert"}, "model_type is 'bert', an encoder, expected a decoder-only transformer"),
        ({**LLAMA, "model_type": "roberta"}, "model_type is 'roberta', an encoder, expected"),
        ({"model_type": "mamba_ssm", "n_layer": 24}, "model_type is 'mamba_ssm', a state-space model, expected"),
        ({**LLAMA, "model_type": "stripedhyena"}, "model_type is 'stripedhyena', a model with convolutions, expected"),
        ({"model_type": "rwkv7", "hidden_size": 768}, "model_type is 'rwkv7', a recurrent model, expected"),
        ({"model_type": "vit", "hidden_size": 768}, "model_type is 'vit', a vision model, expected"),
        ({"model_type": "clip", "text_config": LLAMA}, "model_type is 'clip', a vision model, expected"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 32}, "layer_types names 'linear_attention', expected"),
        ({**LLAMA, "layer_types": ["full_attention", "conv"]}, "layer_types names 'conv', expected"),
        ({"d_model": 2560, "n_layer": 64, "ssm_cfg": {}}, "ssm_cfg is {}, a state-space model, expected"),
        ({**LLAMA, "block_configs": [1]}, r"block_configs is \[1\], a shape for every layer, expected"),
        (
            {"text_config": {**LLAMA, "cross_attention_layers": [3]}},
            r"text_config: cross_attention_layers is \[3\], layers that attend to images, expected",
        ),
        (
            {**LLAMA, "architectures": ["LlamaForSequenceClassification"]},
            r"architectures is \['LlamaForSequenceClassification'\], whose head gives no words, expected",
        ),
        ({**LLAMA, "architectures": ["InternLM2ForRewardModel"]}, "architectures is .*, whose head gives no words"),
        ({"_class_name": "UNet2DConditionModel"}, "_class_name is 'UNet2DConditionModel', a part of a diffusion model"),
        ({"text_config": {"hidden_size": 2560}}, r"text_config: num_hidden_layers: missing.* use_diff=False"),
    ],
)
def test_other_architectures_are_refused_by_name(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    """What is not priced is refused for what it is, and defaults that the file leaves out are asked for."""
    with pytest.raises(DataError, match=f"config.json: {words}"):
        read(tmp_path, values)


@pytest.mark.parametrize(
    ("changes", "seq", "words"),
    [
        ({"vision_config": {}}, None, "the language model alone is priced"),
        (
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 8},
            None,
            "sliding_window 4096 of some layers is not priced, attention goes to all 8192 tokens",
        ),
        (
            {"architectures": ["LlamaModel"]},
            None,
            "architectures is LlamaModel, which has no head; it is priced with one",
        ),
        ({"index_topk": 2048}, None, "attention to index_topk 2048 chosen tokens is priced as attention to all"),
        ({"num_nextn_predict_layers": 1}, None, r"further tokens \(num_nextn_predict_layers 1\) is left out"),
    ],
)
def test_approximations_are_said(tmp_path: Path, changes: dict[str, Any], seq: int | None, words: str) -> None:
    """What is priced as something else warns in one line."""
    with pytest.warns(UserWarning, match=words):
        read(tmp_path, {**LLAMA, **changes}, seq)


def test_stated_sequences_and_unused_windows_are_silent(tmp_path: Path) -> None:
    """No warning where the caller states the sequence length, or the window reaches over it or is switched off."""
    assert read(tmp_path, {**LLAMA, "max_position_embeddings": 131072}, 4096).tokens == 4096
    assert read(tmp_path, {**LLAMA, "max_position_embeddings": 131072}, 131072).tokens == 131072
    assert read(tmp_path, {**LLAMA, "sliding_window": 4096}, 4096).tokens == 4096
    assert read(tmp_path, {**LLAMA, "sliding_window": 64, "use_sliding_window": False}).tokens == 8192


@pytest.mark.parametrize(
    ("published", "longest"),
    [
        # hidden_size, num_hidden_layers, heads, key-value heads, intermediate_size, vocab_size as published.
        (("Qwen2.5-72B", 8192, 80, 64, 8, 29568, 152064), 131072),
        (("Mistral-7B-v0.3", 4096, 32, 32, 8, 14336, 32768), 32768),
        (("Qwen3-8B", 4096, 36, 32, 8, 12288, 151936), 40960),
    ],
)
def test_the_longest_sequence_is_not_the_training_length(
    tmp_path: Path, published: tuple[Any, ...], longest: int
) -> None:
    """A model that takes more than 8192 tokens is planned for 8192, and one line names both and the way out."""
    name, *shape = published
    values = {**dict(zip(SHAPE, shape, strict=True)), "_name_or_path": name, "hidden_act": "silu"}
    words = f"takes up to {longest} tokens, 8192 are taken for its training; --seq .* states another length$"
    with pytest.warns(UserWarning, match=words) as said:
        model = read(tmp_path, {**values, "max_position_embeddings": longest})
    assert len(said) == 1
    assert (model.tokens, model.max_seq) == (8192, longest)


@pytest.mark.parametrize("longest", [1024, 4096, 8192])
def test_a_usual_length_is_the_training_length(tmp_path: Path, longest: int) -> None:
    """GPT-2 is trained on its 1024 tokens, Llama 2 on its 4096, Llama 3 on its 8192, and the model says both."""
    model = read(tmp_path, {**LLAMA, "max_position_embeddings": longest})
    assert (model.tokens, model.max_seq) == (longest, longest)


def test_a_longer_sequence_than_the_model_takes_is_said(tmp_path: Path) -> None:
    """What the caller states holds, and a warning names the model's own length."""
    with pytest.warns(UserWarning, match="the model takes 8192 tokens, 16384 asked for"):
        assert read(tmp_path, LLAMA, 16384).tokens == 16384


@pytest.mark.parametrize("longest", [-1, None, 10**8, "many"])
def test_a_stated_length_needs_none_of_the_file(tmp_path: Path, longest: Any) -> None:
    """With a length of the caller's, what the file says of the longest one is not needed."""
    assert read(tmp_path, {**LLAMA, "max_position_embeddings": longest}, 4096).tokens == 4096


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("/home/models/mine/", "mine"),
        ("./checkpoints/last", "last"),
        (None, "llama-at-home"),
        ("", "llama-at-home"),
    ],
)
def test_model_is_named_after_itself_or_its_folder(tmp_path: Path, given: str | None, name: str) -> None:
    """The name is the hub's, the last part of a path, or the folder's, and never the architecture's."""
    folder = tmp_path / "llama-at-home"
    folder.mkdir()
    assert read(folder, {**LLAMA, "_name_or_path": given}).name == name


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("hidden_size", "hidden_size: missing, expected a value"),
        ("num_hidden_layers", "num_hidden_layers: missing"),
        ("num_attention_heads", "num_attention_heads: missing"),
        ("vocab_size", "vocab_size: missing"),
        ("max_position_embeddings", "max_position_embeddings: missing"),
    ],
)
def test_missing_fields_are_named_as_in_the_file(tmp_path: Path, field: str, words: str) -> None:
    """The message names the file and the field by Hugging Face's name."""
    with pytest.raises(DataError, match=f"config.json: {words}"):
        read(tmp_path, {name: value for name, value in LLAMA.items() if name != field})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 4100}, r"hidden is 4100, expected a multiple of heads \(32\)"),
        ({"num_key_value_heads": 5}, r"heads is 32, expected a multiple of kv_heads \(5\)"),
        ({"hidden_size": "4096"}, "hidden_size is '4096', expected a whole number"),
        ({"num_hidden_layers": -1}, "layers.number: is -1, expected to be greater than 0"),
        ({"num_hidden_layers": [1, 2]}, "layers.list.0: is 1, expected"),
        ({"vocab_size": 1e400}, "config.json: holds Infinity"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Values that no model can have are refused in one line."""
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, {**LLAMA, **changes})
    assert "\n" not in str(caught.value)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    """A file that was cut off is named with the line where it ends."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA, indent=1)[:-20], encoding="utf-8")
    with pytest.raises(DataError, match=r"config.json line \d+: .*expected a Hugging Face config.json"):
        read_config(path)
