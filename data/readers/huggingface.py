"""
A decoder-only transformer from a Hugging Face ``config.json``.

Each field is read under any of its names (``_NAMES``): of Llama and most others (``hidden_size``,
``num_hidden_layers``, ...), of GPT-2 (``n_embd``, ``n_layer``), of Falcon, BLOOM and MPT. Multimodal files keep them
under ``text_config`` or a name like it; the other parts of such a model are not priced. Windows, experts and latent
attention are read by ``taut.data.readers.huggingface_layers``.

The file states the longest sequence that the model takes (``max_position_embeddings``, or what stands for it), not the
one that it is trained on. Unless the caller states a sequence length it is the longest up to ``USUAL_SEQ`` tokens, and
``USUAL_SEQ``, with a warning, of models that take more.

Encoders, encoder-decoders, state-space, vision and diffusion models are refused by name
(``taut.data.readers.huggingface_families``). What is left out of the price of a decoder is said in one warning.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.huggingface_families import (
    is_gated,
    is_normed,
    is_tied,
    refuse_others,
    special_shape,
    with_defaults,
)
from taut.data.readers.huggingface_layers import experts, latent, windows
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
