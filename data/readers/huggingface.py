"""
A dense decoder-only transformer from a Hugging Face ``config.json``.

Each field is read under any of its names (``_NAMES``): of Llama and most others (``hidden_size``,
``num_hidden_layers``, ...), of GPT-2 (``n_embd``, ``n_layer``), of Falcon, BLOOM and MPT. Multimodal files keep them
under ``text_config``; the other parts of such a model are not priced.

The file states the longest sequence that the model takes (``max_position_embeddings``, or what stands for it), not the
one that it is trained on. Unless the caller states a sequence length it is the longest up to ``USUAL_SEQ`` tokens, and
``USUAL_SEQ``, with a warning, of models that take more.

Mixtures of experts, latent attention, encoder-decoders and state-space models are refused: they are not priced. An
encoder is priced as a decoder of its shape, and a sliding window as attention to every token; both warn.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.spec import shorten
from taut.errors import DataError

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
_REQUIRED = ("hidden", "layers", "heads", "vocab", "seq")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "modernbert")
_ENCODER_DECODERS = ("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "whisper", "m2m_100")
_STATE_SPACE = ("mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "rwkv", "recurrent_gemma")
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu")
_TIED_BY_DEFAULT = ("gpt2", "gemma", "gemma2", "gemma3_text", "opt", "falcon", "bloom", "mpt")
"""Model types whose files leave ``tie_word_embeddings`` out when it is true."""
USUAL_SEQ = 8192
"""Tokens. Pre-training seldom uses more (Llama 3: 8192), while files state the context that a short last phase adds."""


def read_config(path: Path, *, seq: int | None = None) -> ModelSpec:
    """
    Model described by a ``config.json``.

    Parameters
    ----------
    path
        The file.
    seq
        Sequence length in tokens; without it the model's longest, at most ``USUAL_SEQ``.

    Returns
    -------
    ModelSpec
        Equal layers, with vocabulary.

    Raises
    ------
    DataError
        If the file is not such a description, lacks a field, or describes what is not priced.
    """
    values = read_json(path, "a Hugging Face config.json")
    nested = values.get("text_config")
    where = f"{path}: text_config" if isinstance(nested, dict) else str(path)
    if isinstance(nested, dict):
        values = {**values, **nested}
    _refuse_unpriced(values, where)
    shape = {ours: _first(values, theirs) for ours, theirs in _NAMES.items()}
    shape |= _special(values, shape) | _lengths(shape["seq"], seq)
    for ours in _REQUIRED:
        if shape[ours] is None:
            raise DataError(
                f"{where}: {_NAMES[ours][0]}: missing, expected a value; if transformers takes a default for it, "
                "to_json_file(FILE, use_diff=False) of the loaded configuration writes it out"
            )
    tied = values.get("tie_word_embeddings", values.get("model_type") in _TIED_BY_DEFAULT)
    model = ModelSpec.parse(
        {"name": _name(values, path), **shape, "gated_mlp": _gated(values), "tied_embedding": tied}, str(path)
    )
    _warn_of_approximations(values, model, where)
    _warn_of_length(model, where, stated=seq is not None)
    return model


def _refuse_unpriced(values: Mapping[str, Any], where: str) -> None:
    """Refuse architectures whose costs are not those of a dense decoder."""
    for field in _EXPERTS:
        if (values.get(field) or 0) not in (0, 1):
            raise DataError(
                f"{where}: {field} is {shorten(values[field])}, expected a dense model (experts are not priced)"
            )
    if values.get("kv_lora_rank"):
        rank = shorten(values["kv_lora_rank"])
        raise DataError(f"{where}: kv_lora_rank is {rank}, expected plain attention (latent is not priced)")
    kind = values.get("model_type")
    for kinds, words in ((_ENCODER_DECODERS, "an encoder-decoder"), (_STATE_SPACE, "a state-space model")):
        if kind in kinds:
            raise DataError(f"{where}: model_type is {kind!r}, {words}, expected a decoder-only transformer")
    if values.get("is_encoder_decoder"):
        raise DataError(f"{where}: is_encoder_decoder is true, expected a decoder-only transformer")


def _special(values: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that Falcon and MPT state in their own ways, where the file's model is one of them."""
    if values.get("model_type") in ("falcon", "RefinedWeb", "RefinedWebModel"):
        shared = values.get("multi_query", True) and not values.get("new_decoder_architecture", False)
        kv_heads = 1 if shared else values.get("num_kv_heads", values.get("n_head_kv"))
        return {"kv_heads": kv_heads or shape["heads"]}
    if values.get("model_type") == "mpt":
        attention, ratio = values.get("attn_config"), values.get("expansion_ratio")
        kv_heads = attention.get("kv_n_heads") if isinstance(attention, dict) else None
        hidden = shape["hidden"]
        ffn = ratio * hidden if isinstance(ratio, int) and isinstance(hidden, int) else shape["ffn_hidden"]
        return {"kv_heads": kv_heads, "ffn_hidden": ffn}
    return {}


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


def _gated(values: Mapping[str, Any]) -> bool:
    activation = str(values.get("hidden_act") or values.get("activation_function") or "")
    gelu_gated = activation.startswith("gelu") and str(values.get("model_type", "")).startswith("gemma")
    return activation in _GATED_ACTIVATIONS or gelu_gated


def _warn_of_length(model: ModelSpec, where: str, *, stated: bool) -> None:
    """A warning where the length is another than the file's without being asked for, or is longer."""
    longest = model.max_seq or model.tokens
    if model.tokens > longest:
        warnings.warn(f"{where}: the model takes {longest} tokens, {model.tokens} asked for", UserWarning, stacklevel=3)
    elif model.tokens < longest and not stated:
        words = f"the model takes up to {longest} tokens, {model.tokens} are taken for its training"
        warnings.warn(f"{where}: {words}; --seq (in Python seq) states another length", UserWarning, stacklevel=3)


def _warn_of_approximations(values: Mapping[str, Any], model: ModelSpec, where: str) -> None:
    """One warning for everything that is priced as something else."""
    said = []
    if values.get("model_type") in _ENCODERS and not values.get("is_decoder"):
        said.append(f"{values['model_type']} is an encoder, priced as a decoder with a head on every token")
    if isinstance(values.get("vision_config"), dict):
        said.append("of a multimodal model the language model alone is priced")
    window = values.get("sliding_window")
    if isinstance(window, int) and 0 < window < model.tokens and values.get("use_sliding_window", True):
        said.append(f"sliding_window {window} is not priced, attention goes to all {model.tokens} tokens")
    if said:
        warnings.warn(f"{where}: {'; '.join(said)}", UserWarning, stacklevel=3)
