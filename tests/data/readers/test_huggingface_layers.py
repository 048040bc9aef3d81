"""Experts and latent attention from Hugging Face files: parameters in all, and those a token uses, as published."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_models
from taut.data.model import ModelSpec
from taut.data.readers.huggingface import read_config
from taut.errors import DataError


def read(folder: Path, values: dict[str, Any]) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return read_config(path, seq=4096)


def sizes(
    kind: str, hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    names = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    rest = {"num_key_value_heads": kv, "intermediate_size": ffn, "vocab_size": vocab, "hidden_act": "silu"}
    return {"model_type": kind, **names, **rest, "tie_word_embeddings": False, **more}


def routed(count: int, chosen: int, width: int, shared: int = 0, dense: int = 0) -> dict[str, Any]:
    """Experts under DeepSeek's names."""
    names = {"n_routed_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    return {**names, "n_shared_experts": shared, "first_k_dense_replace": dense}


LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
MIXTRAL = sizes("mixtral", 6144, 56, 48, 8, 16384, 32768, num_local_experts=8, num_experts_per_tok=2)
DEEPSEEK3 = {
    **sizes("deepseek_v3", 7168, 61, 128, 128, 18432, 129280, **LATENT, **routed(256, 8, 2048, 1, 3)),
    **{"n_group": 8, "topk_group": 4, "topk_method": "noaux_tc"},
}
QWEN3 = sizes("qwen3_moe", 4096, 94, 64, 4, 12288, 151936, head_dim=128)
GPT_OSS = sizes("gpt_oss", 2880, 36, 64, 8, 2880, 201088, num_local_experts=128, num_experts_per_tok=4)
LLAMA4 = {"intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "head_dim": 128}

KIMI2 = sizes("kimi_k2", 7168, 61, 64, 64, 18432, 163840, **LATENT, **routed(384, 8, 2048, 1, 1))
PUBLISHED: list[tuple[str, dict[str, Any], str, str, str]] = [
    # Name, file, published billions of parameters in all and of one token, and what the second leaves out.
    (
        "mixtral-8x7b",
        sizes("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
        *("46.7", "12.9", ""),
    ),
    ("mixtral-8x22b", MIXTRAL, "141", "39", ""),
    (
        "deepseek-v2",
        sizes("deepseek_v2", 5120, 60, 128, 128, 12288, 102400, **LATENT, **routed(160, 6, 1536, 2, 1)),
        *("236", "21", "embedding"),
    ),
    ("deepseek-v3", DEEPSEEK3, "671", "37", "embedding"),
    (
        "qwen2-57b-a14b",
        {
            **sizes("qwen2_moe", 3584, 28, 28, 4, 18944, 151936, num_experts=64, num_experts_per_tok=8),
            **{"moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480},
        },
        *("57.4", "14", ""),
    ),
    (
        "qwen3-30b-a3b",
        {
            **sizes("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, num_experts=128, num_experts_per_tok=8),
            **{"moe_intermediate_size": 768, "head_dim": 128},
        },
        *("30.5", "3.3", ""),
    ),
    (
        "qwen3-235b-a22b",
        {**QWEN3, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536},
        *("235", "22", ""),
    ),
    ("gpt-oss-20b", {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}, "20.91", "3.61", "embedding"),
    ("gpt-oss-120b", GPT_OSS, "116.83", "5.13", "embedding"),
    (
        "llama-4-scout",
        {"text_config": sizes("llama4_text", 5120, 48, 40, 8, 8192, 202048, num_local_experts=16) | LLAMA4},
        # 109 billion as published, 108.6 by its file, of which a vision tower has 0.9.
        *("108.6", "17", ""),
    ),
    (
        "llama-4-maverick",
        {
            "text_config": {
                **sizes("llama4_text", 5120, 48, 40, 8, 8192, 202048, num_local_experts=128),
                **{"interleave_moe_layer_step": 2, **LLAMA4},
            }
        },
        *("400", "17", ""),
    ),
    (
        "olmoe",
        sizes("olmoe", 2048, 16, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8),
        *("6.92", "1.28", ""),
    ),
    (
        "dbrx",
        {
            **{"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352},
            **{"max_seq_len": 32768, "attn_config": {"kv_n_heads": 8}},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        *("131.6", "36", ""),
    ),
    (
        "ernie-4.5-300b-a47b",
        {
            **sizes("ernie4_5_moe", 8192, 54, 64, 8, 28672, 103424, moe_num_experts=64, moe_k=8),
            **{"moe_intermediate_size": 3584, "moe_layer_start_index": 3, "moe_layer_interval": 1},
            **{"moe_num_shared_experts": 0},
        },
        *("300", "47", "embedding"),
    ),
    (
        "glm-4.5",
        sizes("glm4_moe", 5120, 92, 96, 8, 12288, 151552, head_dim=128, **routed(160, 8, 1536, 1, 3)),
        *("355", "32", "embedding and head"),
    ),
    (
        "glm-4.5-air",
        sizes("glm4_moe", 4096, 46, 96, 8, 10944, 151552, head_dim=128, **routed(128, 8, 1408, 1, 1)),
        *("106", "12", "embedding and head"),
    ),
]


@pytest.mark.parametrize(
    ("values", "total", "active", "without"), [case[1:] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED]
)
def test_experts_have_their_published_parameters(
    tmp_path: Path, values: dict[str, Any], total: str, active: str, without: str
) -> None:
    """The file's sizes give the published parameters, in all and of one token, within 1 % or the last digit stated."""
    model = read(tmp_path, values)
    vocabulary = (model.vocab or 0) * model.blocks[0].hidden
    used = model.active_parameters() - {"": 0, "embedding": 1, "embedding and head": 2}[without] * vocabulary
    for found, published in ((model.parameters(), total), (used, active)):
        digit = 10.0 ** -len(published.partition(".")[2])
        assert abs(found / 1e9 - float(published)) <= max(0.01 * float(published), digit)


def test_kimi_k2_has_fewer_parameters_than_its_report(tmp_path: Path) -> None:
    """The file's sizes give 1,026 billion parameters, 1.3 % below the report's 1.04 trillion; a token uses 32.9."""
    model = read(tmp_path, KIMI2)
    # Experts alone: 60 layers x 384 x 3 x 7168 x 2048 = 1,014.7 billion.
    assert model.parameters() == pytest.approx(1026.4e9, rel=1e-4)
    assert model.parameters() == pytest.approx(1040e9, rel=0.015)
    assert model.active_parameters() == pytest.approx(32.6e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("deepseek-v3", DEEPSEEK3),
        ("mixtral-8x22b", MIXTRAL),
        ("qwen3-235b-a22b", {**QWEN3, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536}),
        ("gpt-oss-120b", {**GPT_OSS, "sliding_window": 128}),
    ],
)
def test_files_give_the_catalogs_shapes(tmp_path: Path, name: str, values: dict[str, Any]) -> None:
    """The published files give the layers, the vocabulary and the parameters of the catalog's models."""
    model, known = read(tmp_path, values), catalog_models()[name]
    assert known.tokens == 4096
    assert (known.blocks, known.vocab, known.parameters()) == (model.blocks, model.vocab, model.parameters())


def test_layers_without_experts_are_told_apart(tmp_path: Path) -> None:
    """DeepSeek-V3 has three dense layers before its experts, Llama 4 Maverick experts in every second layer."""
    assert [layer.kind for layer in read(tmp_path, DEEPSEEK3).blocks] == ["dense"] * 3 + ["experts"] * 58
    maverick = sizes("llama4_text", 5120, 48, 40, 8, 8192, 202048, num_local_experts=128)
    model = read(tmp_path, {**maverick, **LLAMA4, "interleave_moe_layer_step": 2})
    assert [layer.kind for layer in model.blocks] == ["dense", "experts"] * 24
    assert model.kinds["dense"].used_ffn == 16384
    assert model.kinds["experts"].used_ffn == 2 * 8192
    windows = read(tmp_path, {**GPT_OSS, "sliding_window": 128})
    assert [layer.kind for layer in windows.blocks] == ["experts-window", "experts"] * 18
    assert [layer.kind for layer in read(tmp_path, MIXTRAL).blocks] == ["block"] * 56


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy"}, (8, 3)),
        ({"num_expert_group": 4, "topk_group": 2}, (4, 2)),
        ({"n_group": 1, "topk_group": 1}, (1, 1)),
        ({"n_group": 8, "topk_group": 3, "topk_method": "greedy"}, (1, 1)),
        ({"num_expert_group": 8, "topk_group": 4, "use_grouped_topk": False}, (1, 1)),
        ({"n_group": None, "topk_group": None}, (1, 1)),
        ({}, (1, 1)),
    ],
    ids=["deepseek-v2", "other-name", "kimi-k2", "deepseek-v2-lite", "unused", "none", "unsaid"],
)
def test_groups_of_experts_that_a_router_keeps_to_are_read(
    tmp_path: Path, changes: dict[str, Any], groups: tuple[int, int]
) -> None:
    """As DeepSeek-V2's, Ling's and their like state them; not where the file says that the router takes the best."""
    values = sizes("deepseek_v2", 5120, 60, 128, 128, 12288, 102400, **LATENT, **routed(160, 6, 1536, 2, 1))
    experts = read(tmp_path, values | changes).experts
    assert experts is not None
    assert (experts.router_num_groups, experts.router_group_topk) == groups


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_group": 3, "topk_group": 1}, r"router_num_groups is 3, expected a divisor of num_experts \(8\)"),
        ({"num_experts_per_tok": None}, "config.json: num_experts_per_tok: missing, expected a value with 8 experts"),
        ({"num_experts_per_tok": 9}, r"experts_per_token is 9, expected at most num_experts \(8\)"),
        ({"mlp_only_layers": [5]}, r"mlp_only_layers is \[5\], expected the first layers, or none"),
        ({"first_k_dense_replace": 56}, "experts: dense_layers and expert_period leave no layer with them"),
        ({"kv_lora_rank": 512}, "latent.qk_nope_head_dim: missing"),
        ({"num_local_experts": -8}, "experts.num_experts: is -8, expected to be greater than 0"),
    ],
)
def test_impossible_experts_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """What is missing or contradicts itself is named by its field."""
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, {**MIXTRAL, **changes})
    assert "\n" not in str(caught.value)


NEXT = {
    **sizes("qwen3_next", 2048, 48, 16, 2, 5120, 151936, head_dim=256, num_experts=512, num_experts_per_tok=10),
    **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "full_attention_interval": 4},
    **{"linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128},
    **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4},
}
KIMI_LINEAR = {
    **sizes("kimi_linear", 2304, 27, 32, 32, 9216, 163840, kv_lora_rank=512, qk_nope_head_dim=128, v_head_dim=128),
    **{"qk_rope_head_dim": 64, "num_experts": 256, "num_experts_per_token": 8, "moe_intermediate_size": 1024},
    **{"num_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": None},
    "linear_attn_config": {
        **{"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32, "head_dim": 128},
        **{"kda_layers": [each for each in range(1, 28) if each % 4 and each != 27], "short_conv_kernel_size": 4},
    },
}
GRANITE = {
    **sizes("granitemoehybrid", 1536, 40, 12, 4, 512, 100352, num_local_experts=64, num_experts_per_tok=6),
    **{"shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1},
    **{"mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256},
    "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
    "tie_word_embeddings": True,
}
LFM2 = {
    **sizes("lfm2", 2048, 16, 32, 8, 12288, 65536, tie_word_embeddings=True, conv_L_cache=3, block_multiple_of=256),
    "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
}


@pytest.mark.parametrize(
    ("values", "total", "active", "mixing"),
    [
        (NEXT, 79.7e9, 3.9e9, 36),
        (KIMI_LINEAR, 49.1e9, 3.4e9, 20),
        (GRANITE, 6.94e9, 1.5e9, 36),
        (LFM2, 1.17e9, 1.17e9, 10),
    ],
    ids=["qwen3-next-80b", "kimi-linear-48b", "granite-4-tiny", "lfm2-1.2b"],
)
def test_layers_without_attention_are_read(
    tmp_path: Path, values: dict[str, Any], total: float, active: float, mixing: int
) -> None:
    """Published files of hybrids: parameters in all and of one token, and how many layers have a mixer."""
    model = read(tmp_path, values)
    assert model.parameters() == pytest.approx(total, rel=0.005)
    assert model.active_parameters() == pytest.approx(active, rel=0.05)
    assert sum(layer.mixer is not None for layer in model.blocks) == mixing
    assert isinstance(model.layers, list)


def test_kimi_k3_has_its_own_sizes_of_linear_attention(tmp_path: Path) -> None:
    """Heads of the file and not of the type, gates of full rank, of attention too, and experts of fewer channels."""
    full, kda = [*range(4, 93, 4), 93], {"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4}
    latent = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    latent |= {"v_head_dim": 128, "mla_use_output_gate": True, "mla_use_nope": True}
    routed = {"num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072}
    routed |= {"routed_expert_hidden_size": 3584, "first_k_dense_replace": 1, "latent_moe_use_norm": True}
    text = sizes("kimi_linear", 7168, 93, 96, 96, 33792, 163840, **latent, **routed, attn_res_block_size=12)
    text |= {"hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0}
    text["linear_attn_config"] = {**kda, "full_attn_layers": full, "use_full_rank_gate": True, "gate_lower_bound": -5.0}
    model = read(tmp_path, {"model_type": "kimi_k3", "text_config": text, "vision_config": {}})
    linear, attention = model.blocks[1], model.blocks[3]
    # Queries, keys, values, gate and output of 96 heads, the decay through 128 channels, a number a head.
    assert linear.attention_parameters() == 5 * 7168 * 12288 + 128 * (7168 + 12288) + 7168 * 96 + 3 * 12288 * 4
    assert attention.attention_gate == 12288 and attention.experts is not None
    assert attention.experts.latent_hidden == 3584 and model.parameters() == pytest.approx(2.8e12, rel=0.01)


def test_fields_of_mixers_refuse_files_of_other_types(tmp_path: Path) -> None:
    """What no rule of a type reads is refused, though a rule of another type reads it."""
    with pytest.raises(DataError, match="linear_num_value_heads is 32, which may change the model's shape"):
        read(tmp_path, {**QWEN3, "linear_num_value_heads": 32})
    with pytest.raises(DataError, match="linear_num_value_heads: is -3, expected a whole number above 0"):
        read(tmp_path, {**NEXT, "linear_num_value_heads": -3})


def test_steps_without_bounds_are_passed_over(tmp_path: Path) -> None:
    """Files of Mamba-2 state an infinite limit of steps, which changes nothing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GRANITE, "time_step_limit": [0.0, float("inf")]}), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert read_config(path, seq=4096).blocks == read(tmp_path, GRANITE).blocks
