"""
A decoder-only transformer from a Hugging Face ``config.json``.

Each field is read under any of its names (``_NAMES``): of Llama and most others (``hidden_size``,
``num_hidden_layers``, ...), of GPT-2 (``n_embd``, ``n_layer``), of Falcon, BLOOM and MPT. Multimodal files keep them
under ``text_config`` or a name like it; the other parts of such a model are not priced.

The file states the longest sequence that the model takes (``max_position_embeddings``, or what stands for it), not the
one that it is trained on. Unless the caller states a sequence length it is the longest up to ``USUAL_SEQ`` tokens, and
``USUAL_SEQ``, with a warning, of models that take more.

Encoders, encoder-decoders, state-space, vision and diffusion models are refused by name. What is left out of the price
of a decoder is said in one warning.

The ``model_type`` says whether a model is a decoder, and what its file may leave out. The kinds that are refused make
no decoder-only transformer: their layers have other products or other states. The defaults are those of the
configuration classes of transformers, for families whose published files leave them out.

Windows stand as ``sliding_window`` or ``attention_chunk_size`` (Llama 4), for all layers or for all but every n-th:
``layer_types`` names every layer, ``sliding_window_pattern`` states n, and families without either have their own.
Experts stand under several names; ``_COUNT`` to ``_GROUPS`` list them. Groups that a router keeps to are left out where
the file says that it takes the best experts of all (``topk_method`` greedy in DeepSeek-V2-Lite). A pattern that is not
one of ``taut.data.model`` (1) and (2) is refused for experts, and for windows priced as attention to every token.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.layers.sizes import MOST_LAYERS
from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.spec import shorten
from taut.errors import DataError

_COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
_WIDTH = ("moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_GROUPS, _KEPT = ("n_group", "num_expert_group"), ("topk_group",)
_FIRST = ("first_k_dense_replace", "moe_layer_start_index")
_PERIOD = ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval")
_FULL_PERIOD = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "llama4_text": 4}
"""Every how many layers a family attends to all tokens, where its file does not say."""
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def windows(values: Mapping[str, Any], layers: Any, tokens: Any) -> tuple[dict[str, Any], str]:
    """
    Fields of a model whose layers attend to windows.

    ``layers``, ``tokens``: layers, and tokens of a sequence, if the file states numbers. Returns fields of
    ``ModelSpec``, none where every layer attends to every token; and what is priced as something else.
    """
    window: Any = values.get("sliding_window")
    window = values.get("attention_chunk_size") if window is None else window
    numbers = all(isinstance(each, int) and not isinstance(each, bool) for each in (window, layers, tokens))
    if not numbers or not 0 < layers <= MOST_LAYERS:
        return {}, ""
    if values.get("use_sliding_window") is False or not 0 < window < tokens:
        return {}, ""
    whole = _whole(values, layers)
    if not any(whole):
        return {"attention_window": window}, ""
    period = whole.index(True) + 1
    if all(whole):
        return {}, ""
    if whole != [(layer + 1) % period == 0 for layer in range(layers)]:
        return {}, f"sliding_window {window} of some layers is not priced, attention goes to all {tokens} tokens"
    return {"attention_window": window, "full_attention_period": period}, ""


def _whole(values: Mapping[str, Any], layers: int) -> list[bool]:
    """Whether each layer attends to all tokens."""
    named = values.get("layer_types")
    if isinstance(named, list) and len(named) == layers:
        return [kind == "full_attention" for kind in named]
    first = values.get("max_window_layers")
    if isinstance(first, int) and values.get("use_sliding_window"):
        return [layer < first for layer in range(layers)]
    period = values.get("sliding_window_pattern") or _FULL_PERIOD.get(str(values.get("model_type")))
    return [isinstance(period, int) and (layer + 1) % period == 0 for layer in range(layers)]


def experts(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """
    Fields of a model with experts.

    ``where``: the file, for messages. Returns fields of ``ModelSpec``, none of a dense model. Raises ``DataError`` if a
    size is missing, or no rule says which layers have experts.
    """
    if isinstance(apart := values.get("ffn_config"), dict):
        values = {**values, **apart}
    count = _first(values, _COUNT)
    if count in (None, 0, 1):
        return {}
    width = _first(values, _WIDTH)
    llama4 = values.get("intermediate_size_mlp")
    shared = values.get("shared_expert_intermediate_size")
    if shared is None:
        number = _first(values, _SHARED) or (0 if llama4 is None else 1)
        shared = number * width if isinstance(number, int) and isinstance(width, int) else number
    chosen = {"num_experts": count, "experts_per_token": _first(values, _CHOSEN), "expert_ffn_hidden": width}
    for name, names in (("experts_per_token", _CHOSEN), ("expert_ffn_hidden", _WIDTH)):
        if chosen[name] is None:
            raise DataError(f"{where}: {names[0]}: missing, expected a value with {shorten(count)} experts")
    dense = {} if llama4 is None else {"ffn_hidden": llama4}
    biased = {"biased": True} if values.get("model_type") == "gpt_oss" else {}
    chosen |= {"shared_ffn_hidden": shared, **biased, **_groups(values)}
    return {"experts": chosen, **dense, **_places(values, where)}


def _groups(values: Mapping[str, Any]) -> dict[str, Any]:
    """Groups of experts and those that a token keeps to, where the router has some."""
    groups, kept = _first(values, _GROUPS), _first(values, _KEPT)
    unused = values.get("topk_method") == "greedy" or values.get("use_grouped_topk") is False
    if groups in (None, 0, 1) or kept in (None, 0, groups) or unused:
        return {}
    return {"router_num_groups": groups, "router_group_topk": kept}


def _places(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Which layers have experts."""
    first, listed = _first(values, _FIRST) or 0, values.get("mlp_only_layers") or []
    if listed:
        if not isinstance(listed, list) or listed != list(range(len(listed))):
            words = "expected the first layers, or none"
            raise DataError(f"{where}: mlp_only_layers is {shorten(listed)}, {words}")
        first = len(listed)
    period = _first(values, _PERIOD) or 1
    return {"dense_layers": first, "expert_period": period}


def latent(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a model with latent attention, none of one with plain attention."""
    if not values.get("kv_lora_rank"):
        return {}
    sizes = {name: values[name] for name in _LATENT if values.get(name) is not None}
    return {"latent": sizes, "kv_heads": None, "head_dim": None}


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


_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_hidden": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "seq": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
}
_NESTED = ("text_config", "language_config", "llm_config")
"""Where files of multimodal models keep what describes their language model."""
_REQUIRED = ("hidden", "layers", "heads", "vocab", "seq")
USUAL_SEQ = 8192
"""Tokens. Pre-training seldom uses more (Llama 3: 8192), while files state the context that a short last phase adds."""


def read_config(path: Path, *, seq: int | None = None) -> ModelSpec:
    """
    Model described by a ``config.json``.

    ``seq``: sequence length in tokens; without it the model's longest, at most ``USUAL_SEQ``. Returns layers of one
    shape, with vocabulary. Raises ``DataError`` if the file is not such a description, lacks a field, or describes what
    is not priced.
    """
    values = read_json(path, "a Hugging Face config.json")
    refuse_others(values, str(path))
    where, name = str(path), next((name for name in _NESTED if isinstance(values.get(name), dict)), None)
    if name is not None:
        values, where = {**values, **values[name]}, f"{path}: {name}"
        refuse_others(values, where)
    values = with_defaults(values)
    shape = {ours: _first(values, theirs) for ours, theirs in _NAMES.items()}
    shape |= special_shape(values, shape) | _lengths(shape["seq"], seq)
    for ours in _REQUIRED:
        if shape[ours] is None:
            raise DataError(
                f"{where}: {_NAMES[ours][0]}: missing, expected a value; if transformers takes a default for it, "
                "to_json_file(FILE, use_diff=False) of the loaded configuration writes it out"
            )
    reach, left_out = windows(values, shape["layers"], shape["seq"])
    shape |= experts(values, where) | latent(values) | reach
    model = ModelSpec.parse(
        {
            **{"name": _name(values, path), **shape, "gated_mlp": is_gated(values), "tied_embedding": is_tied(values)},
            **({"qk_norm": True} if is_normed(values) and not shape.get("latent") else {}),
        },
        str(path),
    )
    _warn_of_approximations(values, left_out, where)
    _warn_of_length(model, where, stated=seq is not None)
    return model


def _lengths(longest: Any, stated: int | None) -> dict[str, Any]:
    """Sequence length, and the longest where the file says what it is."""
    known = isinstance(longest, int) and not isinstance(longest, bool) and longest > 0
    usual = min(longest, USUAL_SEQ) if known else longest
    return {"seq": usual if stated is None else stated, "max_seq": longest if known else None}


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _name(values: Mapping[str, Any], path: Path) -> str:
    """The name that the file gives itself (of a path the last part), else the folder's or the file's."""
    given = values.get("_name_or_path")
    if isinstance(given, str) and given.strip("./"):
        is_path = given.startswith(("/", ".")) or given.count("/") > 1
        return given.rstrip("/").rpartition("/")[2] if is_path else given
    return (path.absolute().parent.name if path.stem == "config" else "") or path.stem


def _warn_of_length(model: ModelSpec, where: str, *, stated: bool) -> None:
    """A warning where the length is another than the file's without being asked for, or is longer."""
    longest = model.max_seq or model.tokens
    if model.tokens > longest:
        warnings.warn(f"{where}: the model takes {longest} tokens, {model.tokens} asked for", UserWarning, stacklevel=3)
    elif model.tokens < longest and not stated:
        words = f"the model takes up to {longest} tokens, {model.tokens} are taken for its training"
        warnings.warn(f"{where}: {words}; --seq (in Python seq) states another length", UserWarning, stacklevel=3)


def _warn_of_approximations(values: Mapping[str, Any], left_out: str, where: str) -> None:
    """One warning for everything that is priced as something else."""
    said = [left_out] if left_out else []
    if isinstance(values.get("vision_config"), dict):
        said.append("of a multimodal model the language model alone is priced")
    if (chosen := values.get("index_topk")) is not None:
        said.append(f"attention to index_topk {shorten(chosen)} chosen tokens is priced as attention to all")
    if further := values.get("num_nextn_predict_layers"):
        said.append(
            f"prediction of further tokens (num_nextn_predict_layers {shorten(further)}) is left out, as in most runs; "
            "--mtp-layers (in Python mtp_layers) takes it in"
        )
    if said:
        warnings.warn(f"{where}: {'; '.join(said)}", UserWarning, stacklevel=3)
