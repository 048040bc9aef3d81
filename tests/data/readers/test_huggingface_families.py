"""Families of dense decoders from Hugging Face files: their parameters against the published counts."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.data.model import ModelSpec
from taut.data.readers.huggingface import read_config


def read(folder: Path, values: dict[str, Any], seq: int | None = 2048) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return read_config(path, seq=seq)


def llama(
    kind: str, hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    """Fields under Llama's names, gated unless said otherwise."""
    names = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    rest = {"num_key_value_heads": kv, "intermediate_size": ffn, "vocab_size": vocab, "hidden_act": "silu"}
    return {"model_type": kind, **names, **rest, "tie_word_embeddings": False, **more}


def falcon(hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    names = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 65024}
    return {"model_type": "falcon", **names, "multi_query": True, **more}


def gpt(kind: str, hidden: int, layers: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """Fields under GPT-2's names."""
    return {"model_type": kind, "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocab, **more}


GEMMA = {"hidden_act": None, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": None}
GEMMA3 = {"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62}
GEMMA3_SMALL = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
PUBLISHED: list[tuple[str, dict[str, Any], float]] = [
    ("falcon-7b", falcon(4544, 32, 71, num_kv_heads=71, new_decoder_architecture=False), 6.922e9),
    ("falcon-40b", falcon(8192, 60, 128, num_kv_heads=8, new_decoder_architecture=True), 41.3e9),
    ("falcon-180b", falcon(14848, 80, 232, num_kv_heads=8, new_decoder_architecture=True), 179.5e9),
    ("bloom-7b1", {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880}, 7.069e9),
    ("bloom", gpt("bloom", 14336, 70, 112, 250880), 176.25e9),
    (
        "mpt-7b",
        {
            "model_type": "mpt",
            "d_model": 4096,
            "n_layers": 32,
            "n_heads": 32,
            "expansion_ratio": 4,
            "vocab_size": 50432,
        },
        6.649e9,
    ),
    (
        "mpt-30b",
        {
            "model_type": "mpt",
            "d_model": 7168,
            "n_layers": 48,
            "n_heads": 64,
            "expansion_ratio": 4,
            "vocab_size": 50432,
        },
        29.96e9,
    ),
    ("gpt2-xl", gpt("gpt2", 1600, 48, 25, 50257), 1.5576e9),
    (
        "gpt-neox-20b",
        {**llama("gpt_neox", 6144, 44, 64, 64, 24576, 50432, hidden_act="gelu_fast"), "num_key_value_heads": None},
        20.55e9,
    ),
    (
        "opt-6.7b",
        {
            **{"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
            **{"ffn_dim": 16384, "vocab_size": 50272, "activation_function": "relu"},
        },
        6.66e9,
    ),
    ("phi-2", llama("phi", 2560, 32, 32, 32, 10240, 51200, hidden_act="gelu_new"), 2.78e9),
    ("phi-3-mini", llama("phi3", 3072, 32, 32, 32, 8192, 32064), 3.821e9),
    (
        "starcoder2-7b",
        llama("starcoder2", 4608, 32, 36, 4, 18432, 49152, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=None),
        7.174e9,
    ),
    ("starcoder", gpt("gpt_bigcode", 6144, 40, 48, 49152, multi_query=True, n_inner=24576), 15.52e9),
    ("qwen2-7b", llama("qwen2", 3584, 28, 28, 4, 18944, 152064), 7.616e9),
    ("qwen3-8b", llama("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8.191e9),
    ("mistral-7b", llama("mistral", 4096, 32, 32, 8, 14336, 32000), 7.242e9),
    ("command-r", llama("cohere", 8192, 40, 64, 64, 22528, 256000, tie_word_embeddings=None), 34.98e9),
    ("olmo-7b", llama("olmo", 4096, 32, 32, 32, 11008, 50304), 6.888e9),
    ("olmo2-7b", llama("olmo2", 4096, 32, 32, 32, 11008, 100352), 7.299e9),
    ("gemma-7b", llama("gemma", 3072, 28, 16, 16, 24576, 256000, **GEMMA), 8.538e9),
    ("gemma2-9b", llama("gemma2", 3584, 42, 16, 8, 14336, 256000, **GEMMA), 9.242e9),
    ("gemma2-27b", llama("gemma2", 4608, 46, 32, 16, 36864, 256000, head_dim=128, **GEMMA), 27.23e9),
    # The published 27.4 and 4.3 billion hold a vision tower of 0.42 billion.
    (
        "gemma3-27b",
        {"text_config": {**GEMMA3, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}},
        27.01e9,
    ),
    ("gemma3-4b", {"model_type": "gemma3", "text_config": GEMMA3_SMALL, "vision_config": {}}, 3.88e9),
]


@pytest.mark.parametrize(
    ("values", "parameters"), [case[1:] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED]
)
def test_families_have_their_published_parameters(tmp_path: Path, values: dict[str, Any], parameters: float) -> None:
    """The sizes that the public file states give the published number of parameters within 1 %."""
    assert read(tmp_path, values).parameters() == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("values", "seq"),
    [(falcon(4544, 32, 71), 2048), (gpt("bloom", 14336, 70, 112, 250880), 2048), ({"text_config": GEMMA3}, 8192)],
)
def test_lengths_that_files_leave_out_are_known(tmp_path: Path, values: dict[str, Any], seq: int) -> None:
    """Falcon and BLOOM are trained on 2048 tokens, of which their files say nothing; Gemma 3 takes 131,072."""
    assert read(tmp_path, values, None).tokens == seq


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        # Gemma 3: five layers with a window, then one without, of 62 layers; Gemma 2: one with, one without.
        ({"model_type": "gemma3_text", "sliding_window": 1024}, [layer % 6 == 5 for layer in range(62)]),
        ({"model_type": "gemma2", "sliding_window": 1024}, [layer % 2 == 1 for layer in range(62)]),
        (
            {"model_type": "cohere2", "sliding_window": 1024, "sliding_window_pattern": 4},
            [i % 4 == 3 for i in range(62)],
        ),
        (
            {
                "model_type": "x",
                "sliding_window": 128,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 20
                + ["sliding_attention"] * 2,
            },
            [layer % 3 == 2 for layer in range(62)],
        ),
        ({"model_type": "mistral", "sliding_window": 1024}, [False] * 62),
        ({"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False}, [True] * 62),
        (
            {"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": True, "max_window_layers": 62},
            [True] * 62,
        ),
        ({"model_type": "mistral", "sliding_window": 4096}, [True] * 62),
        ({"model_type": "llama4_text", "attention_chunk_size": 1024}, [layer % 4 == 3 for layer in range(62)]),
    ],
)
def test_windows_are_those_of_each_layer(tmp_path: Path, changes: dict[str, Any], whole: list[bool]) -> None:
    """Windows hold for the layers that the family, its period or the list of layers says, where they limit anything."""
    model = read(tmp_path, {**llama("x", 5376, 62, 32, 16, 21504, 32000), **changes})
    assert [layer.window == 2048 for layer in model.blocks] == whole
    assert len(model.kinds) == len(set(whole))
