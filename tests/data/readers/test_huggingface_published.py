"""Files as they are published, every field of them: parameters in all, and nothing refused that has no effect."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.data.readers.huggingface import read_config
from taut.errors import DataError

PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "phi4-mini": (
        {
            **{"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32},
            **{"num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064},
            **{"max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "hidden_act": "silu"},
            **{"tie_word_embeddings": True, "full_attn_mod": 1, "interpolate_factor": 1, "sliding_window": 262144},
            **{"partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "lm_head_bias": False},
            **{"mlp_bias": False, "attention_bias": False, "rope_scaling": {"type": "longrope"}},
        },
        3.84e9,
    ),
    "command-r7b": (
        {
            **{"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000},
            **{"max_position_embeddings": 8192, "hidden_act": "silu"},
            **{"order_of_interleaved_layers": "local_attn_first", "use_embedding_sharing": True},
            **{"use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": False},
            **{"rotary_pct": 1.0, "logit_scale": 0.25, "layer_switch": 4, "sliding_window": 4096},
            **{"sliding_window_pattern": 4, "cache_implementation": "hybrid", "position_embedding_type": "rope_gptj"},
            **{"use_qk_norm": False, "attention_bias": False, "layer_norm_eps": 1e-05},
        },
        8.03e9,
    ),
    "minimax-text-01": (
        {
            **{"model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216},
            **{"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128},
            **{"vocab_size": 200064, "max_position_embeddings": 10240000, "hidden_act": "silu"},
            **{"num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": [*([0] * 7), 1] * 10},
            **{"layernorm_full_attention_alpha": 3.55, "layernorm_linear_attention_beta": 1.0, "postnorm": True},
            **{"rotary_dim": 64, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": None},
            **{"router_jitter_noise": 0.0, "tie_word_embeddings": False},
        },
        456e9,
    ),
    "hunyuan-a13b": (
        {
            **{"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072},
            **{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
            **{"attention_head_dim": 128, "vocab_size": 128167, "max_position_embeddings": 32768},
            **{"hidden_act": "silu", "num_experts": 64, "moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32},
            **{"num_shared_expert": [1] * 32, "use_mixed_mlp_moe": True, "use_cla": False, "cla_share_factor": 2},
            **{"moe_layer_num_skipped": 0, "dense_list": [4096, 0], "num_media_embeds": 257},
            **{"anyres_vit_max_image_size": None, "skip_cls_token": False, "moe_drop_tokens": False},
            **{"moe_random_routing_dropped_token": False, "group_limited_greedy": False, "use_qk_norm": True},
            **{"tie_word_embeddings": True, "pool_type": "last", "position_embedding_xdrope": False},
            **{"mask_init_id": 12, "norm_type": "rms", "class_num": 0},
        },
        80.4e9,
    ),
    "granite-4-h-small": (
        {
            **{"model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768},
            **{"num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 100352},
            **{"max_position_embeddings": 131072, "hidden_act": "silu", "num_local_experts": 72},
            **{"num_experts_per_tok": 10, "shared_intermediate_size": 1536},
            **{"layer_types": ["attention" if layer % 10 == 5 else "mamba" for layer in range(40)]},
            **{"mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64},
            **{"mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128},
            **{"mamba_proj_bias": False, "attention_multiplier": 0.0078125, "embedding_multiplier": 12},
            **{"logits_scaling": 16, "residual_multiplier": 0.22, "init_method": "mup"},
            **{"normalization_function": "rmsnorm", "position_embedding_type": "nope", "router_aux_loss_coef": 0.01},
            **{"output_router_logits": False, "tie_word_embeddings": True, "rope_theta": 10000},
        },
        32.2e9,
    ),
    "deepseek-v3.2": (
        {
            **{"model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432},
            **{"moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128},
            **{"num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128},
            **{"qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1},
            **{"num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8},
            **{"topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True},
            **{"index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "ep_size": 1},
            **{"num_nextn_predict_layers": 1, "vocab_size": 129280, "max_position_embeddings": 163840},
            **{"hidden_act": "silu", "quantization_config": {"fmt": "e4m3"}, "rope_scaling": {"type": "yarn"}},
            **{"tie_word_embeddings": False},
        },
        671.9e9,
    ),
    "k-exaone": (
        {
            **{"model_type": "exaone_moe", "hidden_size": 6144, "intermediate_size": 18432},
            **{"moe_intermediate_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 64},
            **{"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 153600, "max_position_embeddings": 262144},
            **{"hidden_act": "silu", "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1},
            **{"first_k_dense_replace": 1, "first_last_k_dense_replace": 1, "is_moe_layer": [False, *([True] * 47)]},
            **{"sliding_window": 128, "sliding_window_pattern": "LLLG", "n_group": 1, "topk_group": 1},
            **{"num_nextn_predict_layers": 1, "tie_word_embeddings": False, "scoring_func": "sigmoid"},
            **{"topk_method": "noaux_tc"},
        },
        236e9,
    ),
    "chatglm3": (
        {
            **{"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28},
            **{"num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2},
            **{"kv_channels": 128, "padded_vocab_size": 65024, "seq_length": 8192, "add_bias_linear": False},
            **{"add_qkv_bias": True, "apply_query_key_layer_scaling": True},
            **{"apply_residual_connection_post_layernorm": False, "attention_softmax_in_fp32": True},
            **{"bias_dropout_fusion": True, "fp32_residual_connection": False, "original_rope": True},
            **{"post_layer_norm": True, "rmsnorm": True, "pre_seq_len": None, "prefix_projection": False},
            **{"interleaved_qkv": False, "tie_word_embeddings": False, "hidden_dropout": 0.0},
        },
        6.24e9,
    ),
    "qwen1-7b": (
        {
            **{"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192},
            **{"max_position_embeddings": 8192, "no_bias": True, "use_dynamic_ntk": True, "use_logn_attn": True},
            **{"use_flash_attn": "auto", "emb_dropout_prob": 0.0, "attn_dropout_prob": 0.0},
            **{"scale_attn_weights": True, "use_cache_kernel": False, "use_cache_quantization": False},
            **{"rotary_emb_base": 10000, "rotary_pct": 1.0, "softmax_in_fp32": False, "tie_word_embeddings": False},
        },
        7.72e9,
    ),
    "starcoder": (
        {
            **{"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576},
            **{"n_positions": 8192, "vocab_size": 49152, "multi_query": True, "activation_function": "gelu"},
            **{"attention_softmax_in_fp32": True, "inference_runner": 0, "max_batch_size": None},
            **{"max_sequence_length": None, "pad_key_length": True, "pre_allocate_kv_cache": False},
            **{"scale_attention_softmax_in_fp32": True, "scale_attn_weights": True, "validate_runner_input": True},
        },
        15.5e9,
    ),
    "mpt-7b": (
        {
            **{"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4},
            **{"max_seq_len": 2048, "vocab_size": 50432},
            **{
                "attn_config": {
                    "alibi": True,
                    "alibi_bias_max": 8,
                    "attn_impl": "torch",
                    "attn_pdrop": 0,
                    "attn_type": "multihead_attention",
                    "attn_uses_sequence_id": False,
                    "clip_qkv": None,
                    "prefix_lm": False,
                    "qk_ln": False,
                    "softmax_scale": None,
                }
            },
            **{"emb_pdrop": 0, "embedding_fraction": 1.0, "init_config": {"emb_init_std": None}, "init_device": "cpu"},
            **{"learned_pos_emb": True, "logit_scale": None, "no_bias": True, "norm_type": "low_precision_layernorm"},
            **{"resid_pdrop": 0, "use_cache": False, "verbose": 0, "tokenizer_name": "x"},
        },
        6.65e9,
    ),
    "lfm2-8b": (
        {
            **{"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168},
            **{"moe_intermediate_size": 1792, "num_hidden_layers": 24, "num_dense_layers": 2, "num_experts": 32},
            **{"num_experts_per_tok": 4, "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3},
            **{"conv_bias": False},
            **{"layer_types": ["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)]},
            **{"norm_topk_prob": True, "routed_scaling_factor": 1.0, "use_expert_bias": True, "vocab_size": 65536},
            **{"max_position_embeddings": 128000, "norm_eps": 1e-05, "tie_word_embeddings": True},
        },
        8.34e9,
    ),
    "ernie-21b": (
        {
            **{"model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288},
            **{"moe_intermediate_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 20},
            **{"num_key_value_heads": 4, "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2},
            **{"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
            **{"moe_capacity": [64, 64, 64], "moe_gate": "topk", "moe_use_aux_free": True, "use_bias": False},
            **{"vocab_size": 103424, "max_position_embeddings": 131072, "hidden_act": "silu"},
            **{"compression_ratio": 1.0, "num_nextn_predict_layers": 1, "use_rmsnorm": True, "fuse_rms_norm": True},
            **{"tie_word_embeddings": True},
        },
        21.8e9,
    ),
    "glm-5": (
        {
            **{"model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288},
            **{"moe_intermediate_size": 2048, "num_hidden_layers": 78, "num_attention_heads": 64},
            **{"num_key_value_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_head_dim": 256},
            **{"qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "head_dim": 64},
            **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
            **{"moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc"},
            **{"scoring_func": "sigmoid", "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048},
            **{"indexer_rope_interleave": True, "num_nextn_predict_layers": 1, "vocab_size": 154880},
            **{"max_position_embeddings": 202752, "hidden_act": "silu", "tie_word_embeddings": False},
        },
        744e9,
    ),
    "hy3": (
        {
            **{"model_type": "hy_v3", "hidden_size": 4096, "intermediate_size": 13312, "expert_hidden_dim": 1536},
            **{"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128},
            **{"num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
            **{"num_nextn_predict_layers": 1, "vocab_size": 120832, "max_position_embeddings": 262144},
        },
        295e9,
    ),
    "mimo-v2-pro": (
        {
            **{"model_type": "mimo_v2", "architectures": ["MiMoV2ForCausalLM"], "hidden_size": 6144},
            **{
                "intermediate_size": 16384,
                "moe_intermediate_size": 2048,
                "num_hidden_layers": 70,
                "hidden_act": "silu",
            },
            **{"num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 192, "v_head_dim": 128},
            **{"swa_num_attention_heads": 128, "swa_num_key_value_heads": 8, "swa_head_dim": 192},
            **{"swa_v_head_dim": 128, "sliding_window": 128, "n_routed_experts": 384, "num_experts_per_tok": 8},
            **{"hybrid_layer_pattern": [int(at > 0 and at % 7 > 0) for at in range(70)]},
            **{"moe_layer_freq": [0, *[1] * 69], "attention_projection_layout": "fused_qkv", "vocab_size": 152576},
            **{"max_position_embeddings": 1048576, "tie_word_embeddings": False},
        },
        1.02e12,
    ),
    "gpt2-xl": (
        {
            **{"model_type": "gpt2", "activation_function": "gelu_new", "n_ctx": 1024, "n_embd": 1600, "n_head": 25},
            **{"n_layer": 48, "n_positions": 1024, "vocab_size": 50257, "output_past": True, "resid_pdrop": 0.1},
            **{"summary_type": "cls_index", "summary_use_proj": True, "layer_norm_epsilon": 1e-05},
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        },
        1.558e9,
    ),
    "zamba2-1.2b": (
        {
            **{"model_type": "zamba2", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 38},
            **{"adapter_rank": 128, "attention_head_dim": 128, "attention_hidden_size": 4096, "chunk_size": 256},
            **{"hybrid_layer_ids": list(range(5, 36, 6)), "mamba_d_conv": 4, "mamba_d_state": 128, "mamba_expand": 2},
            "layers_block_type": ["hybrid" if at in range(5, 36, 6) else "mamba" for at in range(38)],
            **{"mamba_headdim": 64, "mamba_ngroups": 1, "n_mamba_heads": 64, "num_attention_heads": 32},
            **{"num_key_value_heads": 32, "num_mem_blocks": 1, "use_shared_attention_adapter": True},
            **{"use_shared_mlp_adapter": True, "vocab_size": 32000, "max_position_embeddings": 4096},
        },
        1.215e9,
    ),
    "smolvlm": (
        {
            **{"model_type": "smolvlm", "scale_factor": 4, "tie_word_embeddings": False, "vocab_size": 49280},
            "text_config": {
                **{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24},
                **{"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 64, "vocab_size": 49280},
                **{"max_position_embeddings": 8192, "perceiver_config": {"resampler_depth": 6}},
                **{"pixel_shuffle_factor": 4, "qk_layer_norms": False, "neftune_noise_alpha": 0.0},
            },
        },
        1.81e9,
    ),
    "phi-4-multimodal": (
        {
            **{"model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32},
            **{"num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064, "hidden_act": "silu"},
            **{"max_position_embeddings": 131072, "sliding_window": 262144, "tie_word_embeddings": True},
            **{"embd_layer": {"embedding_cls": "image_audio"}, "full_attn_mod": 1, "interpolate_factor": 1},
            **{"audio_processor": {"config": {}}, "speech_lora": {"r": 320}, "vision_lora": {"r": 256}},
        },
        3.84e9,
    ),
    "minicpm-v-4.5": (
        {
            **{"model_type": "minicpmv", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151748},
            **{"max_position_embeddings": 40960, "hidden_act": "silu", "tie_word_embeddings": False, "query_num": 64},
            **{"slice_config": {"max_slice_nums": 9}, "slice_mode": True, "batch_vision_input": True},
        },
        8.19e9,
    ),
    "llava-onevision-7b": (
        {
            **{"model_type": "llava", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28},
            **{"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "hidden_act": "silu"},
            **{"max_position_embeddings": 32768, "faster_token_stride": 10, "pos_skipping_range": 4096},
            **{"mm_hidden_size": 1152, "use_sliding_window": False, "max_window_layers": 28},
            "tie_word_embeddings": False,
        },
        7.62e9,
    ),
    "mobilellm-125m": (
        {
            **{"model_type": "mobilellm", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30},
            **{"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 32000},
            **{"max_position_embeddings": 2048, "hidden_act": "silu", "layer_sharing": False},
            **{"share_embedding": True, "tie_word_embeddings": False},
        },
        124.6e6,
    ),
    "molmo2-8b": (
        {
            **{"model_type": "molmo2", "tie_word_embeddings": False, "vit_config": {"hidden_size": 1152}},
            "text_config": {
                **{"model_type": "molmo2_text", "hidden_size": 4096, "intermediate_size": 12288},
                **{"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
                **{"hidden_act": "silu", "vocab_size": 151936, "additional_vocab_size": 128, "qk_norm_type": "qwen3"},
                **{"use_qk_norm": True, "max_position_embeddings": 36864, "norm_after": False},
            },
        },
        8.19e9,
    ),
    "xlstm-7b": (
        {
            **{"model_type": "xlstm", "embedding_dim": 4096, "hidden_size": 4096, "num_blocks": 32, "num_heads": 8},
            **{"num_hidden_layers": 32, "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "chunk_size": 64},
            **{"ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "mlstm_round_up_to_multiple_of": 64},
            **{"vocab_size": 50304, "tie_word_embeddings": False, "gate_soft_cap": 15.0},
        },
        6.87e9,
    ),
    "llada-moe-7b": (
        {
            **{"model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "hidden_size": 2048},
            **{"dense_intermediate_size": 8192, "expert_intermediate_size": 1024, "num_hidden_layers": 16},
            **{"num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8},
            **{"moe_layer_freq": [1] * 16, "vocab_size": 157184, "max_position_embeddings": 8192},
            **{"hidden_act": "silu", "tie_word_embeddings": False, "qk_layernorm": True},
        },
        7.36e9,
    ),
}
"""Files, by name, and the parameters that their publishers state."""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_of_words_that_the_head_lacks_count_once(tmp_path: Path) -> None:
    """Molmo 2 has 128 rows of 4096 channels beside its embedding: transformers' class has 8,191,259,648 parameters."""
    values, _ = PUBLISHED["molmo2-8b"]
    path = tmp_path / "config.json"
    for rows, parameters in ((128, 8_191_259_648), (0, 8_191_259_648 - 128 * 4096)):
        text = {**values["text_config"], "additional_vocab_size": rows}
        path.write_text(json.dumps({**values, "text_config": text}), encoding="utf-8")
        assert read_config(path, seq=2048).parameters() == pytest.approx(parameters, abs=20_000)
    path.write_text(json.dumps({**values, "text_config": {**text, "additional_vocab_size": "128"}}), encoding="utf-8")
    with pytest.raises(DataError, match="additional_vocab_size is '128', expected a whole number"):
        read_config(path, seq=2048)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read_whole(tmp_path: Path, name: str) -> None:
    """Factors, kernels, routers' scores and parts beside the language model refuse no file."""
    values, parameters = PUBLISHED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert read_config(path, seq=2048).parameters() == pytest.approx(parameters, rel=0.01)
