"""Fields of Hugging Face files: no field that speaks of the model's shape is passed over."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.data.readers.config_fields import KNOWN, NAMES, WITHOUT_EFFECT, unknown_fields
from taut.data.readers.huggingface import read_config
from taut.errors import DataError
from tests.data.readers.test_huggingface_layers import read

LLAMA: dict[str, Any] = {
    **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096},
    **{"hidden_act": "silu", "tie_word_embeddings": False},
}
PANGU: dict[str, Any] = {
    **{"model_type": "pangu_ultra_moe", "hidden_size": 7680, "intermediate_size": 18432, "num_hidden_layers": 61},
    **{"moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128, "num_dense_layers": 3},
    **{"num_routed_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8, "attention_kv_lora_dim": 512},
    **{"attention_q_lora_dim": 1536, "attention_qk_dim": 128, "attention_qk_rope_dim": 64, "attention_v_dim": 128},
    **{"hidden_act": "silu", "vocab_size": 153600, "max_position_embeddings": 131072, "num_mtp_layers": 1},
    **{"tie_word_embeddings": False, "sandwich_norm": True},
}
GROK: dict[str, Any] = {
    **{"model_type": "git", "architectures": ["Grok1ForCausalLM"], "hidden_size": 8192, "intermediate_size": 32768},
    **{"moe_intermediate_size": 16384, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8},
    **{"head_dim": 128, "num_local_experts": 8, "num_experts_per_tok": 2, "residual_moe": True, "hidden_act": "gelu"},
    **{"vocab_size": 131072, "max_position_embeddings": 131072, "tie_word_embeddings": False},
}
MICRO: dict[str, Any] = {
    **{"model_type": "granitemoehybrid", "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 40},
    **{"shared_intermediate_size": 8192, "num_attention_heads": 40, "num_key_value_heads": 8, "num_local_experts": 0},
    **{"num_experts_per_tok": 0, "layer_types": ["attention"] * 40, "vocab_size": 100352, "hidden_act": "silu"},
    **{"max_position_embeddings": 131072, "tie_word_embeddings": True, "position_embedding_type": "rope"},
}


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        ("num_experts_of_mine", 8, "num_experts"),
        ("num_zero_experts", 4, "num_experts"),
        ("zero_expert_num", 256, ""),
        ("share_q_dim", 2048, "share_expert_dim"),
        ("use_cla", True, ""),
        ("num_hidden_layer", 12, "num_hidden_layers"),
        ("attention_output_gate", True, ""),
        ("dense_attention_every_n_layers", 2, ""),
        ("altup_num_inputs", 4, ""),
        ("laurel_rank", 64, ""),
        ("mamba_d_state", 128, ""),
        ("linear_attn_config", {"num_heads": 32}, ""),
        ("hidden_size_per_layer_input", 256, "hidden_size"),
        ("window_of_attention", 128, ""),
        ("ffn_expansion_factor", 3, ""),
        ("hidden_factor", 2, ""),
        ("width_multiplier", 2, ""),
        ("engram_vocab", 100000, ""),
        ("hyper_connection_rate", 4, ""),
        ("further_parts", {"rows": 4}, ""),
        ("mod_intermediate_ratio", 3, ""),
        ("dense_intermediate_dim", 3, ""),
        ("cross_layer_kv_cache", True, ""),
        ("kv_reuse_factor", 2, ""),
        ("num_image_experts", 8, "num_experts"),
        ("short_conv_kernel", 4, ""),
        ("use_lora", True, ""),
        ("d_ff", 4096, ""),
        ("use_glu", True, ""),
    ],
)
def test_fields_that_no_rule_knows_refuse_the_file(tmp_path: Path, name: str, value: Any, near: str) -> None:
    """One line names file, field, value, what was expected, and the nearest name that a rule reads."""
    with pytest.raises(DataError, match=f"config.json: {name} is .*, expected fields that taut reads") as caught:
        read(tmp_path, {**LLAMA, name: value})
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"; the nearest is {near}") or not near


@pytest.mark.parametrize("value", [None, False, 0, [], {}, "", 1.0])
def test_fields_that_are_off_are_as_good_as_absent(tmp_path: Path, value: Any) -> None:
    """A part that a file switches off changes no model."""
    assert read(tmp_path, {**LLAMA, "zero_expert_num": value}) == read(tmp_path, LLAMA)


@pytest.mark.parametrize(
    "name",
    [
        *("attention_dropout", "initializer_range", "rope_theta", "bos_token_id", "use_cache", "rms_norm_eps"),
        *("router_aux_loss_coef", "norm_topk_prob", "pretraining_tp", "num_beams", "top_k", "attention_bias"),
        *(
            "attn_logit_softcapping",
            "query_pre_attn_scalar",
            "routed_scaling_factor",
            "max_batch_size",
            "dim_model_base",
        ),
        *("output_router_logits", "torch_dtype", "quantization_config", "tokenizer_class", "no_rope_layers"),
    ],
)
def test_fields_without_effect_are_passed_over(tmp_path: Path, name: str) -> None:
    """Each is on the list of fields that change neither parameters nor work, with its reason."""
    assert not [*unknown_fields({name: 7})]
    assert read(tmp_path, {**LLAMA, name: 7}).blocks == read(tmp_path, LLAMA).blocks


def test_names_of_sizes_stand_on_no_list_of_fields_without_effect() -> None:
    """What a rule reads is not also passed over: every name of a concept is read, and every reason has words."""
    assert {name for names in NAMES.values() for name in names} <= KNOWN
    assert all(reason and pattern for reason, pattern in WITHOUT_EFFECT.items())


@pytest.mark.parametrize(
    ("values", "total", "active"),
    [
        # 61 layers of latent attention, 58 with 256 experts: 718 billion as published, 39 of one token.
        (PANGU, 718e9, 39e9),
        # 64 x (8 experts + a dense part of twice their width) + attention: 269.5 billion.
        (GROK, 269.5e9, 115e9),
        (MICRO, 3.4e9, 3.4e9),
    ],
    ids=["openpangu-ultra", "grok-2", "granite-4.0-micro"],
)
def test_names_of_families_own_are_read(tmp_path: Path, values: dict[str, Any], total: float, active: float) -> None:
    """Experts and latent attention under other names, a dense part beside experts, and a hybrid of attention alone."""
    model = read(tmp_path, values)
    assert model.parameters() == pytest.approx(total, rel=0.005)
    assert model.active_parameters() == pytest.approx(active, rel=0.05)


def test_lists_of_one_value_are_that_value(tmp_path: Path) -> None:
    """A list with one value for every layer is read, and one with several is refused by its field."""
    assert read(tmp_path, {**LLAMA, "intermediate_size": [11008] * 32}) == read(tmp_path, LLAMA)
    assert read(tmp_path, {**LLAMA, "num_key_value_heads": [32]}) == read(tmp_path, LLAMA)
    with pytest.raises(DataError, match=r"intermediate_size is .*, expected one value for every layer"):
        read(tmp_path, {**LLAMA, "intermediate_size": [11008] * 31 + [4096]})
    kinds = {**LLAMA, "moe_num_experts": [64, 64], "moe_intermediate_size": [1536, 512], "moe_k": 6}
    with pytest.raises(DataError, match=r"moe_num_experts is \[64, 64\], expected one value for every layer"):
        read(tmp_path, kinds)


def test_language_models_two_levels_deep_are_read(tmp_path: Path) -> None:
    """Files of speech and vision keep their language model in a part of a part; what it leaves out is its class's."""
    inner = {**LLAMA, "tie_word_embeddings": True}
    whole = {"model_type": "any_to_any", "thinker_config": {"text_config": inner, "audio_config": {"num_layers": 3}}}
    assert read(tmp_path, whole).blocks == read(tmp_path, LLAMA).blocks
    assert read(tmp_path, whole).tied_embedding
    short = {"model_type": "mistral", "num_hidden_layers": 40, "hidden_size": 5120}
    model = read(tmp_path, {"model_type": "llava", "text_config": short})
    assert (model.layers, model.heads, model.kv_heads, model.ffn_hidden, model.vocab) == (40, 32, 8, 14336, 32000)


@pytest.mark.parametrize(
    ("changes", "dense", "period"),
    [
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 29}, 3, 1),
        ({"moe_layer_freq": [0] * 2 + [1] * 30}, 2, 1),
        ({"moe_layers_enum": ",".join(map(str, range(4, 32)))}, 4, 1),
        ({"moe_layers": list(range(1, 32, 2))}, 0, 2),
        ({"mlp_only_layers": [0, 1]}, 2, 1),
        ({"first_k_dense_replace": 1}, 1, 1),
    ],
)
def test_layers_with_experts_are_listed_in_many_ways(
    tmp_path: Path, changes: dict[str, Any], dense: int, period: int
) -> None:
    """By name, by mark, by number, and as a number of dense layers; other patterns are refused by their field."""
    values = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
    model = read(tmp_path, {**values, **changes})
    assert (model.dense_layers, model.expert_period) == (dense, period)
    with pytest.raises(DataError, match=r"moe_layer_freq is .*, expected experts in every layer, or in every n-th"):
        read(tmp_path, {**values, "moe_layer_freq": [1, 0] + [1] * 30})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"swa_num_key_value_heads": 8}, "swa_num_key_value_heads is 8, expected 32, as of all layers and heads"),
        ({"v_head_dim": 64, "head_dim": 128}, "v_head_dim is 64, expected 128"),
        ({"word_embed_proj_dim": 512}, "word_embed_proj_dim is 512, expected 4096"),
        ({"attn_type_list": [1] * 31 + [0]}, "attn_type_list names layers with linear attention"),
        ({"add_cross_attention": True}, "add_cross_attention is True, expected a decoder-only transformer"),
        ({"moe_layer_end_index": 12}, "moe_layer_end_index is 12, expected experts up to the last layer"),
    ],
)
def test_layers_that_are_not_alike_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Where fields give some layers or heads other sizes, the field is named."""
    with pytest.raises(DataError, match=words):
        read(tmp_path, {**LLAMA, **changes})


def test_a_type_that_no_rule_knows_is_said(tmp_path: Path) -> None:
    """A decoder of a type that taut has not seen is read by its fields, and one line says so."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "brandnew"}), encoding="utf-8")
    with pytest.warns(UserWarning, match="model_type 'brandnew' is not known, its layers are taken for Llama's"):
        read_config(path, seq=4096)


@pytest.mark.parametrize(("family", "gated"), [("llama", True), ("gpt_neox", False), ("brandnew", None)])
def test_a_family_says_whether_its_feed_forward_part_is_gated(tmp_path: Path, family: str, gated: bool | None) -> None:
    """Llama's class has three matrices with any activation, GPT-NeoX's two; a type that is not known goes by it."""
    for activation, usual in (("gelu", False), ("silu", True)):
        model = read(tmp_path, {**LLAMA, "model_type": family, "hidden_act": activation})
        assert model.gated_mlp == (usual if gated is None else gated)
