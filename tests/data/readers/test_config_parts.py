"""Published files of models whose layers have parts of their own: their parameters, layers and refusals."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.data.model import ModelSpec
from taut.data.readers.huggingface import read_config
from taut.errors import DataError

NEMOTRON3: dict[str, Any] = {
    **{"model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "vocab_size": 131072},
    **{"hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32},
    **{"num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8},
    **{"ssm_state_size": 128, "conv_kernel": 4, "chunk_size": 128, "n_routed_experts": 128, "num_experts_per_tok": 6},
    **{"moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1},
    **{"intermediate_size": 1856, "mlp_hidden_act": "relu2", "max_position_embeddings": 262144, "expand": 2},
    **{"tie_word_embeddings": False, "mamba_hidden_act": "silu", "use_conv_bias": True, "n_group": 1, "topk_group": 1},
}
NEMOTRON_H: dict[str, Any] = {
    **{"model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 52, "vocab_size": 131072},
    **{"hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "num_attention_heads": 32},
    **{"num_key_value_heads": 8, "attention_head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64},
    **{"n_groups": 8, "ssm_state_size": 128, "intermediate_size": 21504, "max_position_embeddings": 8192},
}
FALCON_H1: dict[str, Any] = {
    **{"model_type": "falcon_h1", "hidden_size": 5120, "num_hidden_layers": 72, "vocab_size": 261120},
    **{"num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 21504},
    **{"mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256},
    **{"mamba_d_conv": 4, "mamba_chunk_size": 128, "max_position_embeddings": 262144, "tie_word_embeddings": False},
}
JAMBA: dict[str, Any] = {
    **{"model_type": "jamba", "hidden_size": 8192, "num_hidden_layers": 72, "vocab_size": 65536},
    **{"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 24576, "num_experts": 16},
    **{"num_experts_per_tok": 2, "mamba_dt_rank": 512, "max_position_embeddings": 262144},
}
MIMO: dict[str, Any] = {
    **{"model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48, "vocab_size": 152576},
    **{"num_attention_heads": 64, "num_key_value_heads": 4, "swa_num_key_value_heads": 8, "head_dim": 192},
    **{"v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128, "intermediate_size": 16384},
    **{"moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "sliding_window": 128},
    **{"hybrid_layer_pattern": [0, 1, 1, 1, 1, *[0, 1, 1, 1, 1, 1] * 7, 0], "moe_layer_freq": [0, *[1] * 47]},
    **{"max_position_embeddings": 262144, "tie_word_embeddings": False, "hidden_act": "silu"},
}
FALCON_MAMBA = {
    **{"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16},
    **{"intermediate_size": 8192, "vocab_size": 65024, "tie_word_embeddings": False, "time_step_rank": 256},
}
LONGCAT: dict[str, Any] = {
    **{"model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "vocab_size": 131072},
    **{"num_attention_heads": 64, "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "moe_topk": 12},
    **{"n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity", "q_lora_rank": 1536},
    **{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    **{"max_position_embeddings": 131072, "attention_method": "MLA"},
}
ZAMBA2: dict[str, Any] = {
    **{"model_type": "zamba2", "hidden_size": 3584, "num_hidden_layers": 81, "vocab_size": 32000},
    **{"num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 14336, "num_mem_blocks": 2},
    **{"mamba_d_state": 64, "mamba_expand": 2, "mamba_ngroups": 2, "n_mamba_heads": 112, "adapter_rank": 128},
    **{"hybrid_layer_ids": [6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77], "max_position_embeddings": 4096},
    **{"use_shared_attention_adapter": False},
}
ARCTIC: dict[str, Any] = {
    **{"model_type": "arctic", "hidden_size": 7168, "intermediate_size": 4864, "num_hidden_layers": 35},
    **{"num_attention_heads": 56, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 128},
    **{"num_experts_per_tok": 2, "moe_layer_frequency": 1, "parallel_attn_mlp_res": True, "use_residual": True},
    **{"max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False},
}
STEP3: dict[str, Any] = {
    **{"model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61},
    **{"num_attention_heads": 64, "num_attention_groups": 1, "max_seq_len": 65536, "vocab_size": 128815},
    **{"moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120, "share_expert_dim": 5120},
    **{"share_q_dim": 2048, "head_dim": 256, "moe_layers_enum": ",".join(map(str, range(4, 60)))},
}
STEP35: dict[str, Any] = {
    **{"model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45},
    **{"num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "vocab_size": 128896},
    **{"moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280},
    **{"moe_layers_enum": ",".join(map(str, range(3, 45))), "sliding_window": 512, "max_position_embeddings": 262144},
    **{"layer_types": [*["full_attention", *["sliding_attention"] * 3] * 11, "full_attention"]},
    **{"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}},
    **{"use_head_wise_attn_gate": True, "tie_word_embeddings": False},
}
HUNYUAN: dict[str, Any] = {
    **{"model_type": "hunyuan", "hidden_size": 6400, "intermediate_size": 18304, "num_hidden_layers": 64},
    **{"num_attention_heads": 80, "num_key_value_heads": 8, "attention_head_dim": 128, "vocab_size": 129024},
    **{"num_experts": 16, "moe_topk": 1, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "use_cla": True},
    **{"cla_share_factor": 2, "use_qk_norm": True, "tie_word_embeddings": True, "max_position_embeddings": 131072},
}
GEMMA4: dict[str, Any] = {
    **{"model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "moe_intermediate_size": 704},
    **{"num_experts": 128, "top_k_experts": 8, "enable_moe_block": True, "num_hidden_layers": 30},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512},
    **{"num_global_key_value_heads": 2, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    **{"sliding_window": 1024, "vocab_size": 262144, "max_position_embeddings": 262144, "num_kv_shared_layers": 0},
}
RING: dict[str, Any] = {
    **{"model_type": "bailing_moe_linear", "hidden_size": 2048, "intermediate_size": 5120, "layer_group_size": 5},
    **{"moe_intermediate_size": 512, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4},
    **{"head_dim": 128, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8},
    **{"topk_group": 4, "first_k_dense_replace": 1, "vocab_size": 157184, "max_position_embeddings": 131072},
    **{"hidden_act": "silu", "group_norm_size": 4, "linear_silu": False, "tie_word_embeddings": False},
}
HRM: dict[str, Any] = {
    **{"model_type": "hrm_text", "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16},
    **{"num_attention_heads": 12, "head_dim": 128, "H_cycles": 2, "L_cycles": 3, "vocab_size": 151808},
    **{"max_position_embeddings": 2048, "tie_word_embeddings": False},
}
QWEN4: dict[str, Any] = {
    **{"model_type": "qwen4_exp_text", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16},
    **{"num_key_value_heads": 2, "vocab_size": 248320, "max_position_embeddings": 32768, "indexer_n_heads": 8},
    **{"indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 16},
}
SUPER: dict[str, Any] = {
    **NEMOTRON3,
    **{"hidden_size": 4096, "num_hidden_layers": 88, "mamba_num_heads": 128, "n_routed_experts": 512},
    **{"hybrid_override_pattern": "MEMEMEM*" + "EMEMEMEM*" * 2 + "EMEMEMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME"},
    **{"num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376},
    **{"moe_latent_size": 1024},
}
BASES: dict[str, dict[str, Any]] = {
    **{"nemotron-3-nano": NEMOTRON3, "nemotron-h-8b": NEMOTRON_H, "falcon-h1-34b": FALCON_H1, "jamba-large": JAMBA},
    **{"arctic": ARCTIC, "step-3": STEP3, "step-3.5-flash": STEP35, "hunyuan-large": HUNYUAN},
    **{"gemma-4-26b-a4b": GEMMA4, "ring-mini-linear": RING, "nemotron-3-super": SUPER},
    **{"mimo-v2-flash": MIMO, "falcon-mamba-7b": FALCON_MAMBA, "longcat-flash": LONGCAT, "zamba2-7b": ZAMBA2},
}


def read(folder: Path, values: dict[str, Any], tokens: int = 4096) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_config(path, seq=tokens)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("nemotron-3-nano", 31.6, 3.6),
        ("nemotron-h-8b", 8.1, 8.1),
        ("falcon-h1-34b", 33.6, 33.6),
        ("jamba-large", 398.6, 94.0),
        ("mimo-v2-flash", 309.0, 15.0),
        ("falcon-mamba-7b", 7.27, 7.27),
        ("longcat-flash", 560.0, 27.0),
        ("zamba2-7b", 7.36, 7.36),
        ("arctic", 480.0, 17.0),
        ("step-3", 316.0, 38.0),
        ("step-3.5-flash", 196.0, 11.5),
        ("hunyuan-large", 389.0, 52.0),
        ("gemma-4-26b-a4b", 25.2, 3.8),
        ("ring-mini-linear", 16.4, 1.6),
        ("nemotron-3-super", 120.6, 12.7),
    ],
)
def test_parameters_are_those_that_were_published(tmp_path: Path, name: str, billions: float, active: float) -> None:
    """In all within 1 %, and those of a token within 8 %, which publishers round."""
    model = read(tmp_path, BASES[name])
    assert model.parameters() / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.active_parameters() / 1e9 == pytest.approx(active, rel=0.08)


def test_layers_are_those_of_the_pattern(tmp_path: Path) -> None:
    """Nemotron 3 Nano has 23 layers of Mamba-2, 23 of experts and 6 of attention, each alone and without dropout."""
    blocks = read(tmp_path, NEMOTRON3).blocks
    found = [layer.kind for layer in blocks]
    assert [found.count(kind) for kind in ("mamba", "experts", "attention")] == [23, 23, 6]
    assert not any(layer.masks for layer in blocks)


def test_stacks_of_layers_that_run_again_have_weights_once(tmp_path: Path) -> None:
    """HRM runs 16 low layers three times and 16 high ones once, all that twice."""
    model = read(tmp_path, HRM, 2048)
    kinds = [layer.kind for layer in model.blocks]
    assert [kinds.count(kind) for kind in ("low", "low-again", "high", "high-again")] == [16, 80, 16, 16]
    assert kinds[:17] == [*["low"] * 16, "low-again"] and kinds[63] == "high"
    assert sum(layer.own_parameters for layer in model.blocks if layer.kind.endswith("again")) == 0
    assert model.parameters() == pytest.approx(1.448e9, rel=1e-3)


def test_tokens_that_an_indexer_chooses_and_its_scores_are_counted(tmp_path: Path) -> None:
    """Of 32768 tokens 2063 are attended to, and scores of 2048 blocks cost 8 x 128 of 2 x 16 x 256 channels each."""
    mixer = read(tmp_path, QWEN4, 32768).blocks[3].mixer
    assert mixer is not None and mixer.attends == 2063 + 2048 * 8 * 128 // (2 * 16 * 256)
    with pytest.raises(DataError, match=r"ple_layer_ids is \[2\], expected no layers with tables of tokens in a row"):
        read(tmp_path, {**QWEN4, "ple_layer_ids": [2], "eos_token_id": 1})
    with pytest.raises(DataError, match="indexer_n_heads: missing"):
        read(tmp_path, {**QWEN4, "indexer_n_heads": None})


@pytest.mark.parametrize("change", [{"topk_method": "greedy"}, {"use_grouped_topk": False}])
def test_groups_that_a_router_does_not_keep_to_are_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    """The rule is that of other files, ``test_huggingface_layers``."""
    groups = {"n_group": 8, "topk_group": 4}
    found = [
        next(layer.experts for layer in read(tmp_path, {**NEMOTRON3, **groups, **own}).blocks if layer.experts)
        for own in ({}, change)
    ]
    assert [each.router_num_groups for each in found] == [8, 1]


def test_layers_of_further_tokens_are_read(tmp_path: Path) -> None:
    """Nemotron 3 Super repeats an attention and an expert layer, 2.94e9 parameters, unless its file says otherwise."""
    usual, plain = read(tmp_path, SUPER), read(tmp_path, {**SUPER, "mtp_use_repeated_layer": False})
    assert read(tmp_path, {**SUPER, "mtp_use_repeated_layer": None}) == usual
    assert (usual.mtp_kinds, usual.mtp_repeated) == (["attention", "experts"], True)
    for model, times in ((usual, 1), (plain, 2)):
        further = ModelSpec.parse({**model.model_dump(exclude_none=True), "mtp_layers": 2}, "super")
        assert further.parameters() - model.parameters() == pytest.approx(times * 2.942e9, rel=1e-3)
    letters = {"mtp_hybrid_override_pattern": "M*E", "num_nextn_predict_layers": 1}
    assert read(tmp_path, {**SUPER, **letters}).mtp_kinds == ["mamba", "attention", "experts"]
    assert not read(tmp_path, NEMOTRON_H).mtp_kinds
    with pytest.raises(DataError, match="mtp_layers_block_type names"):
        read(tmp_path, {**SUPER, "mtp_layers_block_type": [["moe"]]})
    with pytest.raises(DataError, match="mtp_use_repeated_layer is 'no', expected true or false"):
        read(tmp_path, {**SUPER, "mtp_use_repeated_layer": "no"})


def test_an_unknown_letter_of_further_tokens_alone_leaves_them_out(tmp_path: Path) -> None:
    """The model without further tokens is what it was, and asking for them is refused."""
    letters = {"mtp_hybrid_override_pattern": "*X", "num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**SUPER, **letters}), encoding="utf-8")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = read_config(tmp_path / "config.json", seq=4096)
    assert model == read(tmp_path, SUPER).model_copy(update={"mtp_kinds": [], "mtp_repeated": False})
    words = " ".join(str(each.message) for each in said)
    assert "mtp_hybrid_override_pattern names 'X', expected " in words and "--mtp-layers" not in words
    with pytest.raises(DataError, match="mtp_layers is 1, expected mtp_kinds"):
        ModelSpec.parse({**model.model_dump(exclude_none=True), "mtp_layers": 1}, "super")


def test_a_pattern_of_another_length_is_refused(tmp_path: Path) -> None:
    """Transformers would build as many layers as the pattern, and four where a file has none."""
    with pytest.raises(DataError, match="layers_block_type has 4 entries, expected one for each of num_hidden_layers"):
        read(tmp_path, {name: value for name, value in NEMOTRON_H.items() if name != "hybrid_override_pattern"})


def test_an_unknown_type_without_an_activation_is_refused(tmp_path: Path) -> None:
    """Nothing says whether its feed-forward parts are gated."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128, "seq_length": 64}
    with pytest.raises(DataError, match="hidden_act: missing, with a model_type"):
        read(tmp_path, {"model_type": "stranger", **sizes}, 64)
    with pytest.raises(DataError, match=r"hidden_act: is 'poly_norm', with a model_type \('Motif'\)"):
        read(tmp_path, {"model_type": "Motif", "hidden_act": "poly_norm", **sizes}, 64)


def test_a_model_without_experts_of_the_fields_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="layers_block_type names 'X'"):
        read(tmp_path, {**NEMOTRON_H, "hybrid_override_pattern": "MX", "num_hidden_layers": 2})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"model_type": "recurrent_gemma", "block_types": ["recurrent", "atention"]},
            "block_types names 'atention', expected one of recurrent, attention; did you mean attention",
        ),
        (
            {"model_type": "recurrent_gemma", "block_types": "attention"},
            "block_types is 'attention', expected a list of recurrent and attention",
        ),
        (
            {"model_type": "gemma3n_text", "layer_types": ["slidin_attention"] * 10, "num_kv_shared_layers": 0},
            "layer_types names 'slidin_attention', expected one of .*; did you mean sliding_attention",
        ),
        (
            {"model_type": "gemma3n_text", "num_kv_shared_layers": 10},
            "num_kv_shared_layers is 10, expected fewer than the 10 layers",
        ),
        (
            {"model_type": "gemma3n_text", "num_kv_shared_layers": 6},
            "num_kv_shared_layers is 6, expected a layer with full_attention among the first 4",
        ),
        (
            {"model_type": "gemma4_text", "num_kv_shared_layers": 5},
            "num_kv_shared_layers is 5, expected a layer with full_attention among the first 5",
        ),
    ],
)
def test_layers_that_no_class_builds_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """Layers without a name of their own, and layers of which all would have an earlier one's keys."""
    with pytest.raises(DataError, match=words):
        sizes = {"num_hidden_layers": 10, "vocab_size": 1024, "hidden_size": 256, "num_attention_heads": 4}
        read(tmp_path, {**sizes, "num_key_value_heads": 4, "intermediate_size": 512, **change})


def test_gemma_3n_of_few_layers_is_read(tmp_path: Path) -> None:
    """Ten layers of which five take keys of the first five: transformers 5.24 builds 2,353,257,248 parameters."""
    values = {"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 10, "num_attention_heads": 8}
    values |= {"vocab_size": 262400, "num_kv_shared_layers": 5}
    assert read(tmp_path, values).parameters() == pytest.approx(2_353_257_248, rel=1e-3)


def test_hunyuan_4_is_read_within_its_wrapper(tmp_path: Path) -> None:
    """Its type for images has layers of the same class and sizes of its own: 769,907,389,085 parameters of text."""
    inner = {"model_type": "hy_v4_vl_text", "hidden_size": 6144}
    model = read(tmp_path, {"model_type": "hy_v4_vl", "text_config": inner})
    assert model.parameters() == pytest.approx(769_907_389_085, rel=1e-4)


def test_cohere_compass_attends_to_all_tokens(tmp_path: Path) -> None:
    """Its class gives no layer the window that it states, and ties the head: 5,385,527,296 parameters of 4 layers."""
    values: dict[str, Any] = {"model_type": "cohere_compass_text", "hidden_size": 8192, "num_hidden_layers": 4}
    values |= {"num_attention_heads": 64, "vocab_size": 256000, "max_position_embeddings": 8192}
    model = read(tmp_path, {"model_type": "cohere_compass", "text_config": values}, 8192)
    assert model.parameters() == pytest.approx(5_385_527_296, rel=1e-4)
    assert all(layer.attention_window is None for layer in model.blocks)


def test_a_field_that_no_rule_of_the_type_reads_is_refused(tmp_path: Path) -> None:
    """Fields of other families are not known to a type's own rules."""
    with pytest.raises(DataError, match="altup_num_inputs is 4, which may change the model's shape"):
        read(tmp_path, {**JAMBA, "altup_num_inputs": 4})


XLSTM = {"model_type": "xlstm", "hidden_size": 512, "num_hidden_layers": 4, "num_heads": 8, "vocab_size": 1024}
LAGUNA = {"model_type": "laguna", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
LAGUNA |= {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024, "max_position_embeddings": 4096}
DOTS3: dict[str, Any] = {"model_type": "dots3_note_text", "hidden_size": 5120, "num_hidden_layers": 4}
DOTS3 |= {"layer_types": ["indexed_attention"] * 2 + ["sliding_attention"] * 2, "num_attention_heads": 128}
DOTS3 |= {"vocab_size": 1024, "max_position_embeddings": 4096}
UNIFIED = {**GEMMA4, "model_type": "gemma4_unified_text", "enable_moe_block": False, "attention_k_eq_v": False}
UNIFIED = {name: value for name, value in UNIFIED.items() if name not in ("hidden_size_per_layer_input", "num_experts")}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 5, "num_attention_heads": 128}
DEEPSEEK |= {"vocab_size": 1024, "max_position_embeddings": 4096}

DEEPSEEK_V4: dict[str, Any] = {**DEEPSEEK, "model_type": "deepseek_v4", "hidden_size": 4096, "head_dim": 512}
DEEPSEEK_V4 |= {"q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128, "index_n_heads": 64}
DEEPSEEK_V4 |= {"index_head_dim": 128, "index_topk": 512, "moe_intermediate_size": 2048, "n_routed_experts": 256}
DEEPSEEK_V4 |= {"num_experts_per_tok": 6}
FLINT = {"model_type": "flint", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32}
FLINT |= {"vocab_size": 1024, "max_position_embeddings": 4096}
MOSHI = {**FLINT, "model_type": "moshi", "tie_word_embeddings": False}
ZAMBA = {"model_type": "zamba", "hidden_size": 256, "num_hidden_layers": 14, "num_attention_heads": 4}
ZAMBA |= {"num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 4096}
WRAPPER: dict[str, Any] = {
    "model_type": "got_ocr2",
    "text_config": {**FLINT, "model_type": "qwen2", "tie_word_embeddings": True},
}
MPT = {"model_type": "mpt", "d_model": 512, "n_heads": 8, "n_layers": 2, "vocab_size": 1024, "max_seq_len": 4096}


@pytest.mark.parametrize(
    ("values", "change", "more"),
    [
        # A layer of xLSTM: 2 x 256 + 3 x 512 columns in and out, gates of 8 heads, 3 x 1408, and norms and biases.
        (XLSTM, {"num_blocks": 3}, -((2 * 256 + 3 * 512 + 2 * 8 + 3 * 1408) * 512 + 2 * 512)),
        (LAGUNA, {"gating": "per-element"}, 4 * 4 * (64 - 1) * 256),
        (LAGUNA, {"gating": "per-head"}, 0),
        # Three layers of experts.
        (DOTS3, {"n_shared_experts": 2}, 3 * 3 * 5120 * 1536),
        # Values are keys in five of 30 layers; with that they have two heads of 512 channels, not eight.
        (UNIFIED, {"attention_k_eq_v": True}, -5 * 2816 * 512 * (2 * 8 - 2)),
        # Experts stay 2048 wide, and the first three layers have no experts.
        (DEEPSEEK, {"intermediate_size": 18433}, 3 * 3 * 7168),
        # The first two layers of Flint are dense unless the file says that none is: 256 experts, 512 wide, a shared
        # one of 1024 and a router for 6144.
        (FLINT, {"mlp_only_layers": []}, 2 * 2048 * (3 * (256 * 512 + 1024 - 6144) + 256)),
        (MOSHI, {"tie_word_embeddings": True}, 0),
        # Layers 2, 7 and 13 of Zamba have the shared block, and each a product of its own.
        (ZAMBA, {"num_hidden_layers": 14, "attn_layer_period": 2, "attn_layer_offset": 1}, 3 * 256**2),
        # Layers 2, 3, 8 and 13 have it, one more than by the usual 6 and 4.
        (ZAMBA, {"attn_layer_period": 5, "attn_layer_offset": 0}, 256**2),
        # A wrapper's class ties the head, whatever its language model says.
        (WRAPPER, {"text_config": {**WRAPPER["text_config"], "tie_word_embeddings": False}}, 0),
    ],
)
def test_a_field_changes_what_it_changes_in_its_class(
    tmp_path: Path, values: dict[str, Any], change: dict[str, Any], more: int
) -> None:
    """Parameters that one field adds, by hand from the shapes of the class."""
    base = read(tmp_path, values).parameters()
    assert read(tmp_path, {**values, **change}).parameters() - base == more


@pytest.mark.parametrize(
    ("values", "change", "words"),
    [
        (XLSTM, {"embedding_dim": 1024}, "embedding_dim is 1024, expected 512, as its class builds"),
        (LONGCAT, {"qk_head_dim": 256}, r"qk_head_dim is 256, expected the sum of qk_nope_head_dim .* \(192\)"),
        (LAGUNA, {"gating": False}, "gating is False, expected true, 'per-head' or 'per-element', as its class has"),
        (DOTS3, {"use_dsa": False}, "use_dsa is False, expected True"),
        (ZAMBA, {"attention_hidden_size": 256}, "attention_hidden_size is 256, expected 512"),
        (ZAMBA, {"tie_word_embeddings": False}, "tie_word_embeddings is False, expected True, without which its class"),
        (ZAMBA2, {"n_mamba_heads": 9}, "n_mamba_heads is 9, expected a divisor of 7168 channels"),
        (ZAMBA2, {"num_hidden_layers": 54}, r"hybrid_layer_ids is \[6, 11.*, expected \[6, 12.*, as in layers_block"),
        (NEMOTRON_H, {"layers_block_type": []}, "layers_block_type has 0 entries, expected some"),
        (NEMOTRON3, {"n_shared_experts": 0}, "n_shared_experts: is 0, expected a whole number above 0"),
        (MPT, {"expansion_ratio": 3}, "expansion_ratio is 3, expected 4"),
        (DEEPSEEK_V4, {"compress_rates": {"heavily_compressed_attention": 128}}, "has none of 'compressed_sparse_"),
        (STEP3, {"moe_layers_enum": "4-59"}, "moe_layers_enum: is '4-59', expected numbers such as 3,4,5"),
        ({**DEEPSEEK, "model_type": "hy_v3"}, {"num_shared_experts": 0}, "num_shared_experts is 0, expected at least"),
        (UNIFIED, {"num_kv_shared_layers": 31}, "num_kv_shared_layers is 31, expected at most 30 layers"),
    ],
)
def test_a_field_that_its_class_does_not_follow_is_refused(
    tmp_path: Path, values: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    """Sizes that the class does not build from, or builds into a model that does not run."""
    with pytest.raises(DataError, match=words):
        read(tmp_path, {**values, **change})


def test_no_layer_of_an_empty_list_has_experts(tmp_path: Path) -> None:
    """Llama Guard 4 is Llama 4 with ``moe_layers`` empty: every layer is dense, with the width of dense layers."""
    layer = read(tmp_path, {**FLINT, "model_type": "llama4_text", "moe_layers": []}).blocks[0]
    assert (layer.experts, layer.ffn) == (None, 16384)
