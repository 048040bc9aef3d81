"""
What Hugging Face's ``model_type`` says of an architecture: whether it is a decoder, and what its file may leave out.

The kinds that are refused make no decoder-only transformer: their layers have other products or other states. The
defaults are those of the configuration classes of transformers, for families whose published files leave them out.
"""

from collections.abc import Mapping
from typing import Any

from taut.data.spec import shorten
from taut.errors import DataError

_REFUSED = {
    "an encoder": (
        *("bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "modernbert"),
        *("camembert", "mpnet", "nomic_bert", "roformer", "xlm", "xlnet", "longformer", "big_bird", "esm"),
    ),
    "an encoder-decoder": (
        *("t5", "mt5", "umt5", "longt5", "switch_transformers", "bart", "mbart", "pegasus", "marian", "whisper"),
        *("m2m_100", "blenderbot", "led", "prophetnet", "nllb-moe", "speech_to_text", "t5gemma"),
    ),
    "a state-space model": (
        *("mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "recurrent_gemma", "xlstm"),
        *("nemotron_h", "granitemoehybrid", "falcon_h1", "mamba_ssm"),
    ),
    "a model with convolutions": ("lfm2", "lfm2_moe", "lfm2_vl", "stripedhyena"),
    "a model with compressed attention": ("deepseek_v4",),
    "a model with dense layers beside its experts": ("arctic",),
    "a recurrent model": ("rwkv", "rwkv5", "rwkv6", "rwkv7", "retnet"),
    "a model with linear attention": ("qwen3_next", "minimax", "minimax_text_01", "kimi_linear"),
    "a vision model": (
        "vit",
        "deit",
        "beit",
        "swin",
        "swinv2",
        "convnext",
        "dinov2",
        "resnet",
        "sam",
        "detr",
        "clip",
        "siglip",
    ),
}
_EXPECTED = "expected a decoder-only transformer"
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")
_UNUSUAL = {
    "ssm_cfg": "a state-space model",
    "cross_attention_layers": "layers that attend to images",
    "block_configs": "a shape for every layer",
}
"""Fields that only files of other architectures have, where their ``model_type`` is another or none."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208},
        **{"max_position_embeddings": 131_072, "sliding_window": 4096},
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "max_position_embeddings": 8192},
    "gemma": {"head_dim": 256, "max_position_embeddings": 8192},
    "gpt_oss": {"head_dim": 64},
    "falcon": {"max_position_embeddings": 2048},
    "RefinedWeb": {"max_position_embeddings": 2048},
    "RefinedWebModel": {"max_position_embeddings": 2048},
    "bloom": {"seq_length": 2048},
}
_TIED = (
    *("gpt2", "gpt_neo", "gpt_bigcode", "gemma", "gemma2", "gemma3_text", "opt", "falcon", "bloom", "mpt"),
    *("RefinedWeb", "RefinedWebModel", "starcoder2", "cohere", "cohere2"),
)
"""Model types whose files leave ``tie_word_embeddings`` out when it is true."""
_NORMED = ("qwen3", "qwen3_moe", "gemma3_text", "olmo2", "olmoe", "olmo3")
"""Model types that norm queries and keys; OLMo norms all heads together."""
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu")
_GATED_FAMILIES = ("gemma", "gemma2", "gemma3_text", "grok-1", "dbrx")
"""Model types that call their gated activation by the name of a plain one, or keep it elsewhere."""


def refuse_others(values: Mapping[str, Any], where: str) -> None:
    """
    Refuse, by name, what is no decoder-only transformer.

    Raises ``DataError``: with the field that says so, what the architecture is, and what was expected.
    """
    if (part := values.get("_class_name")) is not None:
        raise DataError(f"{where}: _class_name is {shorten(part)}, a part of a diffusion model, {_EXPECTED}")
    family = values.get("model_type")
    for words, families in _REFUSED.items():
        if family in families and not (words == "an encoder" and values.get("is_decoder")):
            raise DataError(f"{where}: model_type is {family!r}, {words}, {_EXPECTED}")
    if values.get("is_encoder_decoder"):
        raise DataError(f"{where}: is_encoder_decoder is true, {_EXPECTED}")
    for name, words in _UNUSUAL.items():
        if values.get(name) is not None:
            raise DataError(f"{where}: {name} is {shorten(values[name])}, {words}, {_EXPECTED}")
    if others := [kind for kind in _listed(values, "layer_types") if kind not in _ATTENTION]:
        raise DataError(f"{where}: layer_types names {shorten(others[0])}, {_EXPECTED}")


def _listed(values: Mapping[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    return found if isinstance(found, list) else []


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The file's values, with those that its family leaves out."""
    family = values.get("model_type")
    known = _DEFAULTS.get(family, {}) if isinstance(family, str) else {}
    return {**known, **{name: value for name, value in values.items() if value is not None or name not in known}}


def is_tied(values: Mapping[str, Any]) -> Any:
    """Whether the head is the embedding."""
    tied = values.get("tie_word_embeddings")
    return values.get("model_type") in _TIED if tied is None else tied


def is_gated(values: Mapping[str, Any]) -> bool:
    """Whether the feed-forward part is gated."""
    activation = values.get("hidden_act") or values.get("hidden_activation") or values.get("activation_function")
    return values.get("model_type") in _GATED_FAMILIES or str(activation or "") in _GATED_ACTIVATIONS


def is_normed(values: Mapping[str, Any]) -> bool:
    """Whether queries and keys have a norm of their own."""
    return values.get("model_type") in _NORMED or bool(values.get("use_qk_norm"))


def special_shape(values: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that Falcon, StarCoder, MPT and DBRX state in their own ways, where the file's model is one of them."""
    family, attention = values.get("model_type"), values.get("attn_config")
    kv_heads: Any = attention.get("kv_n_heads") if isinstance(attention, dict) else None
    if family in ("falcon", "RefinedWeb", "RefinedWebModel"):
        shared = values.get("multi_query", True) and not values.get("new_decoder_architecture", family == "RefinedWeb")
        kv_heads = 1 if shared else values.get("num_kv_heads", values.get("n_head_kv"))
        return {"kv_heads": kv_heads or shape["heads"]}
    if family == "gpt_bigcode":
        return {"kv_heads": 1 if values.get("multi_query", True) else shape["heads"]}
    if family == "mpt":
        ratio, hidden = values.get("expansion_ratio"), shape["hidden"]
        ffn = ratio * hidden if isinstance(ratio, int) and isinstance(hidden, int) else shape["ffn_hidden"]
        return {"kv_heads": kv_heads, "ffn_hidden": ffn}
    if family == "dbrx":
        return {"kv_heads": kv_heads}
    return {}
