"""Types of files: named by their class, and what files of types that no rule knows must state."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.data.model import ModelSpec
from taut.data.readers.huggingface import read_config
from taut.errors import DataError

M2: dict[str, Any] = {
    **{"model_type": "minimax", "architectures": ["MiniMaxM2ForCausalLM"], "hidden_size": 3072, "hidden_act": "silu"},
    **{"num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128},
    **{"intermediate_size": 1536, "vocab_size": 200064, "max_position_embeddings": 8192, "num_local_experts": 256},
    **{"num_experts_per_tok": 8, "use_qk_norm": True, "tie_word_embeddings": False},
}
GLM5: dict[str, Any] = {
    **{"model_type": "glm_moe_dsa", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4},
    **{"intermediate_size": 1024, "moe_intermediate_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2},
    **{"n_shared_experts": 1, "first_k_dense_replace": 2, "q_lora_rank": 64, "kv_lora_rank": 32, "v_head_dim": 16},
    **{"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8},
    **{"vocab_size": 1000, "max_position_embeddings": 4096, "hidden_act": "silu", "n_group": 1, "topk_group": 1},
}
M3: dict[str, Any] = {
    **{"hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64},
    **{"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064, "max_position_embeddings": 524288},
    **{"hidden_act": "swigluoai", "dense_intermediate_size": 12288, "shared_intermediate_size": 3072},
    **{"num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1, "tie_word_embeddings": False},
    **{"moe_layer_freq": [0] * 3 + [1] * 57, "architectures": ["MiniMaxM3SparseForCausalLM"]},
    "sparse_attention_config": {
        **{"sparse_attention_freq": [0] * 3 + [1] * 57, "sparse_index_dim": 128, "sparse_num_index_heads": 4},
        **{"sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_local_block": 1},
    },
}


def read(folder: Path, values: dict[str, Any]) -> ModelSpec:
    """The model of a file with these values."""
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return read_config(path, seq=4096)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_class_that_says_more_than_the_type_counts(tmp_path: Path) -> None:
    """MiniMax-M2's first file had the type of MiniMax-01, whose layers have linear attention; it has 228.7e9."""
    assert read(tmp_path, M2).parameters() == pytest.approx(228.7e9, rel=1e-3)


def test_the_type_of_the_file_is_named(tmp_path: Path) -> None:
    """A line says which type is read instead."""
    with pytest.warns(UserWarning, match="model_type 'deepseek_ref' is read as deepseek_v3, the class in architec"):
        read(tmp_path, {**GLM5, "model_type": "deepseek_ref", "architectures": ["DeepseekV3ForCausalLM"]} | _NO_INDEX)


_NO_INDEX = dict.fromkeys(("index_n_heads", "index_head_dim", "index_topk"))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "change",
    [
        {"indexer_types": ["full", "full", "full", "shared", "shared", "shared"]},
        {"index_topk_pattern": "FFFSSS"},
        {"index_topk_freq": 4, "index_skip_topk_offset": 3},
    ],
)
def test_layers_that_take_an_earlier_choice_have_no_indexer(tmp_path: Path, change: dict[str, Any]) -> None:
    """An indexer has 512 x (16 + 2) + 64 x 2 x 16 parameters; the last three layers have none."""
    every, some = read(tmp_path, GLM5), read(tmp_path, GLM5 | change)
    assert every.parameters() - some.parameters() == 3 * (512 * 18 + 64 * 32)
    assert [layer.kind for layer in some.blocks] == [*["dense"] * 2, "experts", *["experts-shared"] * 3]
    with pytest.raises(DataError, match=r"indexer_types is .*, expected full or shared for each of 6 layers"):
        read(tmp_path, GLM5 | {"indexer_types": ["shared", "none"]})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attention_to_chosen_blocks_is_read_from_its_section(tmp_path: Path) -> None:
    """MiniMax-M3's class has 426.2e9 parameters with three dense layers; its indexers make 640 columns a layer."""
    model = read(tmp_path, {"model_type": "minimax_m3_vl", "text_config": M3, "vision_config": {}})
    assert model.parameters() == pytest.approx(426.17e9, rel=1e-4)
    sparse = model.blocks[-1].together[0].mixer
    assert sparse is not None
    # 17 blocks of 128 tokens, and scores of 4 x 128 channels with 4096 keys beside 2 x 64 x 128 of attention.
    assert sparse.attends == 17 * 128 + 4096 * 512 // (2 * 64 * 128)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_more_heads_in_layers_with_a_window(tmp_path: Path) -> None:
    """Step-3.7 states the heads of its windows as a number: 96 - 64 more have queries, outputs and gates."""
    base = {
        **{"model_type": "step3p5", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 64},
        **{"num_attention_groups": 8, "head_dim": 128, "intermediate_size": 2048, "moe_intermediate_size": 128},
        **{"moe_num_experts": 8, "moe_top_k": 2, "share_expert_dim": 128, "vocab_size": 1000, "sliding_window": 512},
        **{
            "layer_types": ["full_attention", *["sliding_attention"] * 3],
            "mlp_layer_types": ["dense"] + 3 * ["sparse"],
        },
        **{"max_position_embeddings": 4096, "num_sliding_attention_heads": 96},
    }
    more = read(tmp_path, base).parameters() - read(tmp_path, base | {"num_sliding_attention_heads": 64}).parameters()
    assert more == 3 * 32 * 1024 * (2 * 128 + 1)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pattern_may_be_a_list(tmp_path: Path) -> None:
    """Nemotron-H's pattern is read as a list too; passed over, the class's own four layers stood in for it."""
    base = {
        **{"model_type": "nemotron_h", "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1024, "vocab_size": 1000},
        **{"mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4},
        **{"chunk_size": 64, "max_position_embeddings": 4096, "hidden_act": "relu2", "time_step_rank": 32},
    }
    text, listed = ({**base, "hybrid_override_pattern": pattern} for pattern in ("M-*", ["M", "-", "*"]))
    assert read(tmp_path, text) == read(tmp_path, listed)
    assert [layer.kind for layer in read(tmp_path, listed).blocks] == ["mamba", "dense", "attention"]


def test_an_unknown_type_states_the_width_of_its_feed_forward_parts(tmp_path: Path) -> None:
    """Four times the hidden size is what GPT-2's class takes, and is not taken for every class."""
    values = {
        **{"model_type": "mine", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8},
        **{"vocab_size": 1000, "max_position_embeddings": 4096, "hidden_act": "silu"},
    }
    with pytest.raises(DataError, match="intermediate_size: missing, expected a value, as of model_type 'mine'"):
        read(tmp_path, values)


def test_two_names_of_one_size_agree(tmp_path: Path) -> None:
    """A file that states two numbers of experts is refused with both names."""
    values = {**M2, "architectures": None, "model_type": "minimax_m2", "n_routed_experts": 128}
    with pytest.raises(DataError, match="num_local_experts is 256 and n_routed_experts is 128, expected one number"):
        read(tmp_path, values)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("base", [M2, GLM5 | {"index_topk_freq": 4}, M3], ids=["minimax-m2", "glm-5", "minimax-m3"])
def test_any_value_is_read_or_refused_in_one_line(tmp_path: Path, base: dict[str, Any]) -> None:
    """No value of a field ends in anything but a model or a line."""
    for name in base:
        for value in (5, 0, -1, "x", [], [1], {}, {"a": 1}, True, None, 1.5, [None], 10**30):
            try:
                read(tmp_path, base | {name: value})
            except DataError as error:
                assert "\n" not in str(error)
