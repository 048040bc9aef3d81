"""
Fields of a Hugging Face ``config.json``: the names that rules read, and the names that change no price.

A field that speaks of layers, heads, experts, attention, widths or windows changes the model. A rule reads such a field
(``NAMES``, ``SPECIAL``), or the field is known to change neither parameters nor work (``WITHOUT_EFFECT``), or the file
is refused by the field's name. A field that is off (null, false, 0, 1.0 of a factor, or empty) is as good as absent.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from taut.data.spec import shorten
from taut.data.suggest import nearest
from taut.errors import DataError

NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_attention_groups", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels", "dim_head"),
    "ffn_hidden": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "dff", "dim_ff"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "seq": (
        *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
        *("model_max_length", "max_position_embedding"),
    ),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "afn"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"),
    "chosen": (
        *("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k"),
        "top_k_experts",
    ),
    "expert_width": ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size"),
    "dense_width": ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size"),
    "shared": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_width": (
        *("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"),
        *("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"),
    ),
    "groups": ("n_group", "num_expert_group", "num_expert_groups"),
    "groups_kept": ("topk_group", "num_limited_groups"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "expert_period": ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval"),
    "q_lora_rank": ("q_lora_rank", "attention_q_lora_dim"),
    "kv_lora_rank": ("kv_lora_rank", "attention_kv_lora_dim"),
    "qk_nope_head_dim": ("qk_nope_head_dim", "attention_qk_dim"),
    "qk_rope_head_dim": ("qk_rope_head_dim", "attention_qk_rope_dim"),
    "v_head_dim": ("v_head_dim", "attention_v_dim"),
    "window": ("sliding_window", "attention_chunk_size", "sliding_window_size"),
    "further": ("num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_hidden_layers"),
}
"""What a decoder has, and the names under which families state it; the first that a file states counts."""

SPECIAL = frozenset(
    (
        *("layer_types", "layers_block_type", "attn_type_list", "hybrid_layer_pattern", "mlp_layer_types"),
        *("use_sliding_window", "max_window_layers", "sliding_window_pattern", "_sliding_window_pattern"),
        *("global_attn_every_n_layers", "mlp_only_layers", "moe_layers_enum", "moe_layer_end_index", "topk_method"),
        *("use_grouped_topk", "tie_word_embeddings", "use_qk_norm", "multi_query", "new_decoder_architecture"),
        *("num_kv_heads", "n_head_kv", "expansion_ratio", "attn_config", "ffn_config", "multi_query_attention"),
        *(
            "index_topk",
            "sparse_config",
            "residual_moe",
            "use_mixed_mlp_moe",
            "model_type",
            "is_moe",
            "num_attention_heads_per_layer",
        ),
        *("qk_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim"),
        *("word_embed_proj_dim", "attention_types", "attention_layers", "window_size", "is_decoder", "text_config"),
        *(
            "is_encoder_decoder",
            "add_cross_attention",
            "moe_layers",
            "full_attn_idxs",
            "mlp_type",
            "full_attn_mod",
            "first_last_k_dense_replace",
            "is_moe_layer",
            "use_gated_activation",
        ),
    )
)
"""Further fields that a rule reads."""

WITHOUT_EFFECT: dict[str, str] = {
    "chance: dropout and noise": r"dropout|_pdrop$|layerdrop|drop_path|dropout_p$|jitter",
    "first values": r"(^|_)init(ializer)?(_|$)|_init_std$|rescale_prenorm_residual|_variance_scale$",
    "positions without parameters": r"rope|rotary|theta|yarn|alibi|position_embedding_type|rel_pos|position_encoding",
    "tokens by number": r"_token_id$|_token_ids$|_token_index$|_index_token$|tokenizer|(^|_)(bos|eos|pad|sep|cls)(_|$)",
    "factors of numbers": r"(?<!dim)(?<!ffn)(?<!mlp)(?<!width)(?<!hidden)_(multipliers?|factor)$|"
    r"scaling|(^|_)scale(_|$)|softcap|"
    r"temperature|^clip_|_clip(_|$)|cutoff|_limit$|swiglu_alpha|logits_div|mup|(^|_)scalar$|(^|_)loss|_coef(f|ficient)?$|aux_|z_loss",
    "smallest numbers of norms": r"(^|_)(eps|epsilon)(_|$)",
    "norms and biases, below one in a thousand": r"(^|_)bias(es)?(_|$)|(^|_)(layer)?norm(alization|s)?(_|$)|layernorm|"
    r"^ln_|_ln_|^no_bias$|elementwise_affine",
    "how a router scores": r"norm_topk_prob|scoring_func|score_func|router_(bias|dtype|logit|aux|scor)|renormalize|"
    r"e_score|correction_bias|route_norm|selection_fn|combination_strategy|enable_moe_fp32_combine|expert_bias|"
    r"^moe_(gate|router|apply|use_(aux|bias|softmax|sigmoid)|grouped|expert_capacity|shared_expert_overlap|dropout)|"
    r"moe_capacity|moe_norm|shared_moe_mode|moe_drop|moe_random|seq_aux|router_(type|activation|enable)|ep_size|gate_norm|moe_permute",
    "running without training": r"cache|num_logits_to_keep|keep_last|use_mem|speculative|prefill|decode_|generation|"
    r"max_batch_size|pad_key_length|^use_mla$|^lm_head$",
    "kernels and formats": r"(?<!conv_)kernel(s|_dtype)?$|grouped_mm$|_impl(ementation)?$|"
    r"flash|fused|fuse_|fp32|upcast|precision|"
    r"(^|_)dtype$|quant|compression_config|sdpa|use_associative_scan|gradient_checkpointing|pretraining_tp|"
    r"(tensor|pipeline|sequence)_parallel|tp_plan|pp_plan|fsdp_plan|ep_plan|compile|use_triton|_attn_implementation",
    "what a call returns": r"^output_(attentions|hidden_states|router_logits|scores|past|logits)$|return_|^summary_|"
    r"classifier|classification|problem_type|label|chunk_size_feed_forward|pruned_heads|"
    r"tie_encoder_decoder|cross_attention_hidden_size|^decoder_start_token|is_causal|use_bidirectional_attention|"
    r"prefix_lm",
    "writing of text": r"beam|^top_k$|^top_p$|^typical_p$|ngram_size|repetition_penalty|length_penalty|early_stopping|"
    r"^(min|max)_(length|new_tokens)$|do_sample|bad_words|suppress",
    "further tokens, named in a line": r"nextn|(^|_)mtp(_|$)|num_mtp",
    "where a file comes from": r"^_name_or_path$|^architectures$|^auto_map$|version|^torch_dtype$|_commit_hash$|"
    r"^_diffusers|^transformers|^name$|^language|^unsloth|^license",
    "parts beside the language model, and where rows of words lie": r"vision|visual|image|img|(^|_)audio|video|speech|"
    r"projector|^mm_|(^|_)vit(_|$)|anyres|"
    r"downsample|pixel|patch_size|num_channels|vq_config|codec|tts|resampler|vocabulary_map|modalit|codebook|"
    r"depth_decoder|adapter_config|^merge|spatial_|(^|_)media(_|$)|dense_list|^org_vocab_size$|parallel_embedding",
    "attention to every token as it is priced, or where a layer's window ends": r"^attn_logit|attention_dropout|"
    r"attn_temperature|attention_sink|sinks?$|no_rope_layer|add_swa|add_full_attention_sink|pad_attn|"
    r"attention_value_scale|query_pre_attn|max_attn_value|^scale_attn|reorder_and|attention_softmax|attn_scale|prefix_dense_sliding|"
    r"order_of_interleaved|^layer_switch$|logn_attn|"
    r"floor_scale|lambda_std",
    "the shape of an activation": r"activation_situ|swiglu_limit",
    "order of a layer's parts": r"use_parallel_residual|apply_residual_connection|parallel_block|parallel_attn|"
    r"sandwich|use_post_norm|scale_depth|dim_model_base|embedding_sharing|slow_but_exact|embedding_fraction|learned_pos_emb|"
    r"segment_types|prompt_(types|length)|position_bias_(max|num)|original_max_position",
}
"""Reasons why fields change no price, each with the names that it holds for."""

_NEUTRAL = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in WITHOUT_EFFECT.items()}
_DECIDING = re.compile(r"expan|reuse|(shar|cross_layer).*cache|cache.*(shar|layers)|experts?(_layers)?$", re.IGNORECASE)
"""Names of what changes the shape even where a reason above holds for the rest of the name."""
_STRUCTURAL = re.compile(
    r"layer|head|expert|moe|attention|attn|hidden|width|window|rank|lora|(^|_)dim|dim(_|$)|size|mlp|ffn|feed_forward|"
    r"intermediate|inner|mamba|ssm|conv|group|block|top_?k|shared?|state|expan|kv|sparse|dense|router|index|pattern|"
    r"freq|period|interval|stride|linear|recurr|depth|repeat|loop|cycle|gate|gating|memory|embed|chunk|local|global|"
    r"hybrid|altup|laurel|hc_|residual|^n_|^num_|query|key|value|multi|skip|cla(_|$)|delta|retention|ratio|step|"
    r"(^|_)d_ff|latent|glu(_|$)|^mod_|universal",
    re.IGNORECASE,
)
KNOWN = frozenset(name for names in NAMES.values() for name in names) | SPECIAL


def first(values: Mapping[str, Any], concept: str) -> Any:
    """The value under the first of a concept's names that the file states."""
    return next((values[name] for name in NAMES[concept] if values.get(name) is not None), None)


_FORMS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("architectures", "layer_types", "indexer_types", "mlp_layer_types"), ((list,), "a list")),
    **dict.fromkeys(("sparse_attention_config", "linear_attn_config"), ((dict,), "a section")),
    **dict.fromkeys(("index_topk_freq", "index_skip_topk_offset"), ((int,), "a whole number")),
    "index_topk_pattern": ((str, list), "letters or a list"),
    "model_type": ((str,), "a name"),
    "moe_layer_freq": ((int, list), "a whole number or a list"),
    **{
        name: ((int, list), "a whole number")
        for concept in ("hidden", "layers", "heads", "kv_heads", "head_dim", "v_head_dim")
        for name in NAMES[concept]
    },
}
"""What fields hold that readers count with, in types and in words."""


def refuse_forms(values: Mapping[str, Any], where: str) -> None:
    """Refuse a file in which a field that readers count with is of another type."""
    for name, (kinds, words) in _FORMS.items():
        value = values.get(name)
        if value is not None and (not isinstance(value, kinds) or (value == [] and int in kinds)):
            raise DataError(f"{where}: {name} is {shorten(value)}, expected {words}")


def refuse_contradictions(values: Mapping[str, Any], where: str) -> None:
    """Refuse a file that states one size under two names with two values above 1."""
    for concept in ("hidden", "layers", "heads", "kv_heads", "head_dim", "experts", "chosen"):
        stated = {
            name: values[name] for name in NAMES[concept] if isinstance(values.get(name), int) and values[name] > 1
        }
        if len(set(stated.values())) > 1:
            said = " and ".join(f"{name} is {value}" for name, value in stated.items())
            raise DataError(f"{where}: {said}, expected one number")


def router_groups(values: Mapping[str, Any]) -> dict[str, Any]:
    """Groups of experts and those that a token keeps to, as fields of ``ExpertsSpec``, where the router has some."""
    groups, kept = first(values, "groups"), first(values, "groups_kept")
    unused = values.get("topk_method") == "greedy" or values.get("use_grouped_topk") is False
    if groups in (None, 0, 1) or kept in (None, 0, groups) or unused:
        return {}
    return {"router_num_groups": groups, "router_group_topk": kept}


def unknown_fields(values: Mapping[str, Any]) -> Iterator[str]:
    """Fields that speak of the model's shape, are on, and that no rule knows."""
    for name, value in values.items():
        is_off = not value or (isinstance(value, float) and value == 1.0)
        if name in KNOWN or is_off:
            continue
        neutral = not _DECIDING.search(name) and any(pattern.search(name) for pattern in _NEUTRAL.values())
        if not neutral and _STRUCTURAL.search(name):
            yield name


def refuse_unknown(values: Mapping[str, Any], where: str, further: Collection[str] = ()) -> None:
    """Refuse a file with a field of its shape that no rule reads; ``DataError`` names the nearest known field."""
    for name in unknown_fields({name: value for name, value in values.items() if name not in further}):
        near = nearest(name, sorted(KNOWN))
        known = f"; the nearest is {near}" if near else ""
        raise DataError(
            f"{where}: {name} is {shorten(values[name])}, which may change the model's shape, "
            f"expected fields that taut reads{known}"
        )
