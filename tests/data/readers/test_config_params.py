"""Model files of Llama, Mistral, DeepSeek and OpenAI that are no ``config.json``."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.data.load import load_model
from taut.errors import DataError

LLAMA3: dict[str, Any] = {
    **{"dim": 8192, "ffn_dim_multiplier": 1.3, "multiple_of": 4096, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80},
    **{"norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True, "vocab_size": 128256},
}
MIXTRAL: dict[str, Any] = {
    **{"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8},
    **{"norm_eps": 1e-05, "vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}},
}
LARGE3: dict[str, Any] = {
    **{"dim": 7168, "n_layers": 61, "head_dim": 128, "hidden_dim": 16384, "n_heads": 128, "n_kv_heads": 128},
    **{"vocab_size": 131072, "tied_embeddings": False, "max_position_embeddings": 262144, "q_lora_rank": 1536},
    **{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "moe": {
        **{"expert_parallel": 1, "expert_model_parallel": 1, "route_every_n": 1, "first_k_dense_replace": 3},
        **{"num_experts": 128, "num_experts_per_tok": 4, "num_expert_groups": 1, "num_expert_groups_per_tok": 1},
        **{"routed_scale": 1.0, "expert_hidden_dim": 4096, "num_shared_experts": 1},
    },
    **{"vision_encoder": {"hidden_size": 1664}, "yarn": {"factor": 64}},
}
DEEPSEEK: dict[str, Any] = {
    **{"vocab_size": 129280, "dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048, "n_layers": 61},
    **{"n_dense_layers": 3, "n_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "n_activated_experts": 8},
    **{"n_expert_groups": 8, "n_limited_groups": 4, "route_scale": 2.5, "score_func": "sigmoid", "q_lora_rank": 1536},
    **{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
}
GPT_OSS: dict[str, Any] = {
    **{"num_hidden_layers": 36, "num_experts": 128, "experts_per_token": 4, "vocab_size": 201088, "hidden_size": 2880},
    **{"intermediate_size": 2880, "swiglu_limit": 7.0, "head_dim": 64, "num_attention_heads": 64},
    **{"num_key_value_heads": 8, "sliding_window": 128, "initial_context_length": 4096, "rope_theta": 150000},
}


def write(folder: Path, values: dict[str, Any]) -> str:
    """A folder with these values as its ``params.json``."""
    (folder / "params.json").write_text(json.dumps(values), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("values", "billions", "active", "kinds"),
    [
        (LLAMA3, 70.55, 70.55, 1),
        (MIXTRAL, 46.70, 12.88, 1),
        (LARGE3, 673.4, 39.9, 2),
        (DEEPSEEK, 671.0, 37.5, 2),
        (GPT_OSS, 116.8, 5.71, 2),
    ],
)
def test_they_are_read(tmp_path: Path, values: dict[str, Any], billions: float, active: float, kinds: int) -> None:
    """
    Parameters are those that the publishers state: 70.6, 46.7, 673, 671 and 116.8 billion.

    GPT-OSS in OpenAI's form has the windows of every second layer and gated experts as in its ``config.json``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(write(tmp_path, values), seq=4096)
    assert model.parameters() == pytest.approx(billions * 1e9, rel=1e-3)
    assert model.active_parameters() == pytest.approx(active * 1e9, rel=2e-3)
    assert len(model.kinds) == kinds


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"multiple_of": None}, "hidden_dim: missing, expected it, or multiple_of"),
        ({"multiple_of": True}, "hidden_dim: missing, expected it, or multiple_of"),
        ({"ffn_dim_multiplier": "1.3"}, "hidden_dim: missing, expected it, or multiple_of"),
        ({"moe": 8}, "moe is 8, expected a section"),
        ({"vision_num_cross_attention_layers": 8}, "vision_num_cross_attention_layers is 8, which may change"),
        ({"moe_args": {"num_experts": 16}}, "moe_args is .* which may change"),
        ({"vocab_size": -1}, "vocab"),
        ({"n_heads": "64"}, "n_heads is '64', expected a whole number"),
    ],
)
def test_what_they_leave_open_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """A width that follows from nothing, layers that attend to images, and sections of others are named."""
    with pytest.raises(DataError, match=words):
        load_model(write(tmp_path, {**LLAMA3, **change}), seq=4096)


@pytest.mark.parametrize("name", ["hidden_act", "intermediate_size"])
def test_a_file_without_a_type_states_its_feed_forward_parts(tmp_path: Path, name: str) -> None:
    """Nothing is guessed of a file that names no type and no class: neither a gate, nor four times the hidden size."""
    values: dict[str, Any] = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    }
    values |= {"intermediate_size": 11008, "hidden_act": "silu"}
    assert load_model(write(tmp_path, values), seq=4096).parameters() == pytest.approx(6.74e9, rel=1e-3)
    del values[name]
    with pytest.raises(DataError, match=f"{name}: missing, .*no model_type"):
        load_model(write(tmp_path, values), seq=4096)


def test_two_matrices_of_an_unknown_type_are_said(tmp_path: Path) -> None:
    """An activation such as gelu stands in files with a gate and without one, so a line says which was taken."""
    values: dict[str, Any] = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    }
    values |= {"intermediate_size": 11008, "hidden_act": "gelu", "model_type": "of-mine"}
    with pytest.warns(UserWarning, match="'of-mine' is not known.*two matrices without a gate, as 'gelu' says"):
        model = load_model(write(tmp_path, values), seq=4096)
    assert model.blocks[0].ffn_matrices == 2
