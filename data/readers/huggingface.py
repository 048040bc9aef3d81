"""
A dense transformer from a Hugging Face ``config.json``.

Fields read (with their GPT-2 names): ``hidden_size`` (``n_embd``), ``num_hidden_layers`` (``n_layer``),
``num_attention_heads`` (``n_head``), ``num_key_value_heads``, ``head_dim``, ``intermediate_size`` (``n_inner``),
``vocab_size``, ``max_position_embeddings`` (``n_positions``), ``tie_word_embeddings``, ``hidden_act``. Multimodal files
keep them under ``text_config``. Mixtures of experts and latent attention are refused: they are not priced.
"""

from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.errors import DataError

_ALIASES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_hidden": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocab": ("vocab_size",),
    "seq": ("max_position_embeddings", "n_positions", "n_ctx"),
}
_REQUIRED = ("hidden", "layers", "heads", "vocab", "seq")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu")
_TIED_BY_DEFAULT = ("gpt2", "gemma", "gemma2", "gemma3_text")


def read_config(path: Path) -> ModelSpec:
    """
    Model described by a ``config.json``.

    Raises
    ------
    DataError
        If the file is not such a description, lacks a field, or describes what is not priced.
    """
    values = read_json(path, "a Hugging Face config.json")
    nested = values.get("text_config")
    if isinstance(nested, dict):
        values = {**values, **nested}
    for field in _EXPERTS:
        if (values.get(field) or 0) not in (0, 1):
            raise DataError(f"{path}: {field} is {values[field]}, expected a dense model (experts are not priced)")
    if values.get("kv_lora_rank"):
        raise DataError(
            f"{path}: kv_lora_rank is {values['kv_lora_rank']}, expected plain attention (latent is not priced)"
        )
    shape = {ours: _first(values, theirs) for ours, theirs in _ALIASES.items()}
    for ours in _REQUIRED:
        if shape[ours] is None:
            raise DataError(f"{path}: {_ALIASES[ours][0]}: missing, expected a value")
    model_type = str(values.get("model_type", path.parent.name or path.stem))
    tied = values.get("tie_word_embeddings", model_type in _TIED_BY_DEFAULT)
    return ModelSpec.parse(
        {"name": _name(values, path), **shape, "gated_mlp": _gated(values), "tied_embedding": tied}, str(path)
    )


def _first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _name(values: dict[str, Any], path: Path) -> str:
    return str(values.get("_name_or_path") or values.get("model_type") or path.stem)


def _gated(values: dict[str, Any]) -> bool:
    activation = str(values.get("hidden_act") or values.get("activation_function") or "")
    gelu_gated = activation.startswith("gelu") and str(values.get("model_type", "")).startswith("gemma")
    return activation in _GATED_ACTIVATIONS or gelu_gated
