"""
A decoder-only transformer from a Hugging Face ``config.json``.

Each field is read under any of its names (``taut.data.readers.config_fields``): of Llama and most others
(``hidden_size``, ``num_hidden_layers``, ...), of GPT-2 (``n_embd``, ``n_layer``), of Falcon, BLOOM and MPT. Multimodal
files keep them under ``text_config`` or a name like it, at times two levels deep; the other parts of such a model are
not priced. A field that no rule knows and that speaks of the model's shape refuses the file by name.

The file states the longest sequence that the model takes (``max_position_embeddings``, or what stands for it), not the
one that it is trained on. Unless the caller states a sequence length it is the longest up to ``USUAL_SEQ`` tokens, and
``USUAL_SEQ``, with a warning, of models that take more.

Encoders, encoder-decoders, state-space, vision and diffusion models are refused by name. What is left out of the price
of a decoder is said in one warning.

The ``model_type`` says whether a model is a decoder, and what its file may leave out
(``taut.data.readers.config_families``). What its layers are is in ``taut.data.readers.config_layers``.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.config_families import (
    further_fields,
    gate_width,
    is_gated,
    is_known,
    is_normed,
    is_tied,
    position_rows,
    refuse_others,
    refuse_unknown_gate,
    with_defaults,
)
from taut.data.readers.config_fields import NAMES, first, refuse_unknown
from taut.data.readers.config_layers import experts, latent, refuse_lists, refuse_mixed, special_shape, windows
from taut.data.readers.config_mixers import adjusted_ffn, mixing_layers, whole_number, with_mixers
from taut.data.readers.config_parts import PARTS, layers_of_parts
from taut.data.spec import name_of_file, shorten
from taut.errors import DataError

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "language_model", "llm_cfg")
"""Where files of multimodal models keep what describes their language model."""
_SHAPE = ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "seq")
_REQUIRED = ("hidden", "layers", "heads", "vocab", "seq")
USUAL_SEQ = 8192
"""Tokens. Pre-training seldom uses more (Llama 3: 8192), while files state the context that a short last phase adds."""


def read_config(path: Path, *, seq: int | None = None) -> ModelSpec:
    """Model of a ``config.json``, by default at its longest sequence up to ``USUAL_SEQ``; ``DataError`` if refused."""
    values, where = _language_model(read_json(path, "a Hugging Face config.json", ("time_step_limit",)), str(path))
    refuse_unknown(values, where, further_fields(values))
    if values.get("model_type") in PARTS:
        return _of_parts(values, path, where, seq)
    values = refuse_lists(values, where)
    shape = {ours: first(values, ours) for ours in _SHAPE}
    shape |= special_shape(values, shape) | adjusted_ffn(values)
    for ours in _REQUIRED:
        if shape[ours] is None and (ours != "seq" or seq is None):
            raise DataError(
                f"{where}: {NAMES[ours][0]}: missing, expected a value; if transformers takes a default for it, "
                "to_json_file(FILE, use_diff=False) of the loaded configuration writes it out"
            )
    refuse_mixed(values, shape, where)
    refuse_unknown_gate(values, where)
    rows = position_rows(values, shape["seq"])
    shape |= _lengths(shape["seq"], seq)
    reach, left_out = windows(values, shape["layers"], shape["seq"])
    shape |= experts(values, shape["layers"], where) | latent(values, where) | reach
    gate, mixing = gate_width(values, shape["heads"], shape["head_dim"]), mixing_layers(values, shape["layers"])
    model = ModelSpec.parse(
        {
            **{"name": _name(values, path), **shape, "gated_mlp": is_gated(values), "tied_embedding": is_tied(values)},
            **({"qk_norm": True} if is_normed(values) and not shape.get("latent") else {}),
            **({"position_rows": rows} if rows else {}),
            **({"attention_gate": gate} if gate else {}),
        },
        str(path),
    )
    if mixing:
        model = with_mixers(model, mixing, values, where)
    _warn_of_approximations(values, model, left_out, where)
    _warn_of_length(model, where, stated=seq is not None)
    return model


def _of_parts(values: Mapping[str, Any], path: Path, where: str, seq: int | None) -> ModelSpec:
    """Model of a type whose layers have parts of their own."""
    longest = first(values, "seq")
    lengths = _lengths(USUAL_SEQ if longest is None else longest, seq)
    tokens = whole_number(lengths, where, "seq")
    own = {"vocab": whole_number(values, where, *NAMES["vocab"]), "tied_embedding": is_tied(values)}
    own |= {"max_seq": lengths["max_seq"]} if longest is not None else {}
    own |= layers_of_parts(values, where, tokens)
    model = ModelSpec.parse({"name": _name(values, path), **own}, str(path))
    said = f"the file states no longest sequence, {tokens} tokens are taken" if longest is None and seq is None else ""
    _warn_of_approximations(values, model, said, where)
    _warn_of_length(model, where, stated=seq is not None)
    return model


def _language_model(values: Mapping[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """What describes the language model, with what its family leaves out, and where it stands in the file."""
    refuse_others(values, path)
    where, inner, outer = path, dict(values), [dict(values)]
    while (name := next((name for name in _NESTED if isinstance(inner.get(name), dict)), None)) is not None:
        inner, where = inner[name], f"{where if where != path else path + ':'} {name}"
        refuse_others(inner, where)
        outer.append(inner)
    if len(outer) == 1:
        return with_defaults(inner), where
    found = with_defaults(inner, nested=True)
    for part in reversed(outer[:-1]):
        found = {**{name: value for name, value in part.items() if name in _BESIDE}, **found}
        for concept in _SHAPE:
            if first(found, concept) is None:
                found |= {name: part[name] for name in NAMES[concept] if part.get(name) is not None}
        if part.get("tie_word_embeddings") is not None:
            found["tie_word_embeddings"] = part["tie_word_embeddings"]
    return found, where


_BESIDE = ("_name_or_path", "vision_config", "audio_config", "backbone_hidden_size")
"""Fields beside a nested language model that messages name, or that its layers depend on."""


def _lengths(longest: Any, stated: int | None) -> dict[str, Any]:
    """Sequence length, and the longest where the file says what it is."""
    known = isinstance(longest, int) and not isinstance(longest, bool) and longest > 0
    usual = min(longest, USUAL_SEQ) if known else longest
    return {"seq": usual if stated is None else stated, "max_seq": longest if known else None}


def _name(values: Mapping[str, Any], path: Path) -> str:
    """The name that the file gives itself (of a path the last part), else the folder's or the file's."""
    given = values.get("_name_or_path")
    if isinstance(given, str) and given.strip("./"):
        given = given.replace("\\", "/")
        is_path = given.startswith(("/", ".")) or given.count("/") > 1
        return given.rstrip("/").rpartition("/")[2] if is_path else given
    return name_of_file((path.absolute().parent.name if path.stem == "config" else "") or path.stem)


def _warn_of_length(model: ModelSpec, where: str, *, stated: bool) -> None:
    """A warning where the length is another than the file's without being asked for, or is longer."""
    longest = model.max_seq or model.tokens
    if model.tokens > longest:
        warnings.warn(f"{where}: the model takes {longest} tokens, {model.tokens} asked for", UserWarning, stacklevel=3)
    elif model.tokens < longest and not stated:
        words = f"the model takes up to {longest} tokens, {model.tokens} are taken for its training"
        warnings.warn(f"{where}: {words}; --seq (in Python seq) states another length", UserWarning, stacklevel=3)


def _warn_of_approximations(values: Mapping[str, Any], model: ModelSpec, left_out: str, where: str) -> None:
    """One warning for everything that is priced as something else."""
    said = [left_out] if left_out else []
    if not is_known(values):
        said.append(f"model_type {shorten(values['model_type'])} is not known, its layers are taken for Llama's")
    if any(part.reused for layer in model.blocks for part in layer.together):
        said.append("a stage that uses the same weights twice is priced as if it held them twice")
    if values.get("model_type") == "hrm_text":
        said.append("turns without gradients (L_bp_cycles) are priced as if they had a backward pass")
    if values.get("zero_expert_num"):
        said.append("of the chosen experts a token takes the share that works, zero_expert_num do nothing")
    if any(part.mixer and not part.mixer.attends for layer in model.blocks for part in layer.together):
        said.append("layers without attention are priced by their work, no kernel of theirs was measured")
    if isinstance(values.get("vision_config"), dict):
        said.append("of a multimodal model the language model alone is priced")
    sparse = any(part.mixer and part.mixer.attends for layer in model.blocks for part in layer.together)
    if (chosen := values.get("index_topk")) is not None and not sparse:
        said.append(f"attention to index_topk {shorten(chosen)} chosen tokens is priced as attention to all")
    if further := first(values, "further"):
        name = next(name for name in NAMES["further"] if values.get(name) is not None)
        said.append(
            f"prediction of further tokens ({name} {shorten(further)}) is left out, as in most runs; "
            "--mtp-layers (in Python mtp_layers) takes it in"
        )
    if said:
        warnings.warn(f"{where}: {'; '.join(said)}", UserWarning, stacklevel=3)
