"""
What families of models have of their own, by the ``model_type`` of a Hugging Face ``config.json``.

A family is refused by name if it is no decoder-only transformer, or if its layers have parts that are not priced. Of
the others ``data/catalog/families.yaml`` states what a file may leave out: the defaults of the configuration classes of
transformers. A type that neither knows is read by its fields' names, and a line says so.
"""

import re
from collections.abc import Mapping
from typing import Any

from taut.data.catalog.devices import catalog_section
from taut.data.readers.config_fields import NAMES, TABLES
from taut.data.readers.config_mixers import FIELDS, INDEX_FIELDS, MIXERS
from taut.data.readers.config_parts import PARTS
from taut.data.spec import shorten
from taut.errors import DataError

REFUSED: dict[str, list[str]] = {words: types.split() for words, types in TABLES["refused"].items()}
"""What families are that taut does not price, by type."""
EXPECTED = "expected a decoder-only transformer"
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")
_MIXED = ("linear_attention", "mamba", "conv")
_INDEXED, _INDEXES = ("deepseek_v32", "glm_moe_dsa"), ("indexed_attention", "deepseek_sparse_attention")
_GATES = {family: each for each, families in TABLES["gates"].items() for family in families.split()}
"""Types whose attention has a gate of its output, for each channel or for each head."""
_UNUSUAL: dict[str, str] = TABLES["unusual"]
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "silu_glu")
_PLAIN_ACTIVATIONS = ("gelu", "relu")
_GATED, _PLAIN, _NORMED, _BEYOND = (TABLES[name].split() for name in ("gated", "plain", "normed", "beyond"))
_UNTIED = TABLES["untied"].split()
_OMITTED = {family: names.split() for family, names in TABLES["omitted"].items()}
_POSITIONS: dict[str, int] = TABLES["positions"]
_OTHER_NAMES: dict[str, str] = TABLES["other_names"]


def known_families() -> dict[str, dict[str, Any]]:
    """By type, what files of transformers' decoders leave out."""
    return catalog_section("families")


_CLASSES: dict[str, str] = TABLES["classes"]


def named_by_class(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the type that ``architectures`` names, if taut knows it: new families keep older types."""
    stated, found = str(values.get("model_type")), dict(values)
    known = {re.sub(r"[_-]", "", family).lower(): family for family in (*known_families(), *PARTS, *_BEYOND)} | _CLASSES
    strange = values.get("model_type") is None or not is_known(values)
    strange = strange and all(stated not in families for families in REFUSED.values())
    for name in values.get("architectures") or ():
        family = known.get(re.sub(r"(ForCausalLM|LMHeadModel)$", "", str(name)).lower(), "")
        if family != stated and (strange or family in _CLASSES.values() or family.startswith(f"{stated}_")):
            found |= {"model_type": family, STATED_TYPE: values.get("model_type")} if family else {}
    return found


STATED_TYPE = "_model_type_of_the_file"
"""Where the type stands that a file states, if its class is another's."""


OTHER_HEAD = re.compile(
    r"(For(\w*Classification|QuestionAnswering|MultipleChoice|\w*Reward\w*)|RewardModel|Classifier)$"
)
"""Ends of classes whose head is no language model's."""


def refuse_others(values: Mapping[str, Any], where: str) -> None:
    """Refuse what is no decoder-only transformer: ``DataError`` with the field that says so and what was expected."""
    if (part := values.get("_class_name")) is not None:
        raise DataError(f"{where}: _class_name is {shorten(part)}, a part of a diffusion model, {EXPECTED}")
    for name in filter(OTHER_HEAD.search, map(str, values.get("architectures") or ())):
        raise DataError(f"{where}: architectures is {shorten([name])}, whose head gives no words, {EXPECTED}")
    family = values.get("model_type")
    for words, families in REFUSED.items():
        if family in families:
            raise DataError(f"{where}: model_type is {family!r}, {words}, {EXPECTED}")
    if values.get("is_encoder_decoder"):
        raise DataError(f"{where}: is_encoder_decoder is true, {EXPECTED}")
    if family in PARTS:
        return
    for name, words in _UNUSUAL.items():
        if values.get(name) is not None:
            raise DataError(f"{where}: {name} is {shorten(values[name])}, {words}, {EXPECTED}")
    allowed = _ATTENTION + (_MIXED if family in MIXERS else ()) + (_INDEXES if family in _INDEXED else ())
    for name in ("layer_types", "layers_block_type"):
        named = values.get(name)
        if others := [kind for kind in (named if isinstance(named, list) else []) if kind not in allowed]:
            raise DataError(f"{where}: {name} names {shorten(others[0])}, {EXPECTED}")


def is_known(values: Mapping[str, Any]) -> bool:
    """Whether rules for the file's type were compared with its class, or its fields say all."""
    family = values.get("model_type")
    return family in known_families() or family in (*_OTHER_NAMES, *_BEYOND)


def with_defaults(values: Mapping[str, Any], *, nested: bool = False) -> dict[str, Any]:
    """The values of a file, or of the ``nested`` part of one, with those that its family leaves out under any name."""
    family = values.get("model_type")
    known = known_families().get(str(_OTHER_NAMES.get(str(family), family)), {})
    found = dict(values)
    for name, value in known.items():
        concept = next((concept for concept, names in NAMES.items() if name in names), "")
        required = concept in ("hidden", "layers", "heads", "vocab", "seq")
        # A name under which the class has a size of its own is no other name of this size.
        others = {name, *(other for other in NAMES.get(concept, ()) if known.get(other) is None)}
        if (
            value is not None
            and not others & values.keys()
            and (nested or not required or name in _OMITTED.get(str(family), ()))
        ):
            found[name] = value
    return found


def is_tied(values: Mapping[str, Any]) -> Any:
    """Whether the head is the embedding."""
    if values.get("model_type") in _UNTIED:
        return False
    if values.get("share_embedding") is True:
        return True
    tied = values.get("tie_word_embeddings", values.get("tie_embedding"))
    if tied is not None:
        return tied
    family = str(values.get("model_type"))
    return known_families().get(_OTHER_NAMES.get(family, family), {}).get("tie_word_embeddings", False)


def is_gated(values: Mapping[str, Any]) -> bool:
    """Whether the feed-forward part is gated: as its family's is, or as its activation says if no class is known."""
    family = str(values.get("model_type"))
    family = _OTHER_NAMES.get(family, family)
    if family in known_families():
        return family not in _PLAIN
    if values.get("use_gated_activation") is True or family in _GATED:
        return True
    usual = _GATED_ACTIVATIONS[0] if family in _BEYOND else ""
    activation = next((values[name] for name in NAMES["activation"] if values.get(name) is not None), usual)
    return str(activation) in _GATED_ACTIVATIONS


def refuse_unknown_gate(values: Mapping[str, Any], where: str) -> None:
    """Refuse a file of an unknown type whose activation does not say whether feed-forward parts are gated."""
    name = next((name for name in NAMES["activation"] if values.get(name) is not None), NAMES["activation"][0])
    stated = values.get(name)
    if is_known(values) or is_gated(values) or any(word in str(stated) for word in _PLAIN_ACTIVATIONS):
        return
    said = f"is {shorten(stated)}" if stated is not None else "missing"
    stated = values.get("model_type")
    family = f"a model_type ({shorten(stated)}) that taut does not know" if stated else "no model_type"
    words = f"one of {', '.join(_GATED_ACTIVATIONS)} where feed-forward parts are gated, else gelu or relu"
    raise DataError(f"{where}: {name}: {said}, with {family}, expected {words}")


def refuse_unknown_width(values: Mapping[str, Any], shape: Mapping[str, Any], where: str) -> None:
    """Refuse a file without a width of dense feed-forward parts, unless its class is known to take four times h."""
    family = str(values.get("model_type"))
    dense = not shape.get("experts") or shape.get("dense_layers") or shape.get("expert_period", 1) != 1
    if shape["ffn_hidden"] is None and dense and _OTHER_NAMES.get(family, family) not in known_families():
        of = "no model_type" if values.get("model_type") is None else f"model_type {family!r}"
        raise DataError(f"{where}: {NAMES['ffn_hidden'][0]}: missing, expected a value, as of {of}")


def is_normed(values: Mapping[str, Any]) -> bool:
    """Whether queries and keys have a norm of their own."""
    return values.get("model_type") in _NORMED or bool(values.get("use_qk_norm"))


def further_fields(values: Mapping[str, Any]) -> frozenset[str]:
    """Fields that rules of a file's type read beside those of every file."""
    family = values.get("model_type")
    if family in PARTS:
        return frozenset(known_families()[str(family)])
    found = FIELDS if family in MIXERS else frozenset[str]()
    if family in _GATES:
        found |= {"use_attention_gate", "attn_output_gate"} | ({"gating"} if family == "laguna" else set[str]())
    return found | INDEX_FIELDS if family in _INDEXED else found


def gate_width(values: Mapping[str, Any], heads: Any, head_dim: Any) -> int | None:
    """Columns of the gate of the attention's output, None without one."""
    kind = _GATES.get(str(values.get("model_type")))
    if values.get("model_type") == "laguna" and values.get("gating") == "per-element":
        kind = "channels"
    off = values.get("use_attention_gate") is False
    if kind is None or off or values.get("attn_output_gate") is False or not isinstance(heads, int) or heads < 1:
        return None
    each = head_dim if isinstance(head_dim, int) else values.get("hidden_size", 0) // heads
    if values.get("model_type") == "kimi_linear":
        wide = values.get("v_head_dim")
        each = (wide if isinstance(wide, int) else each) * bool(values.get("mla_use_output_gate"))
    return heads * (each if kind == "channels" else 1)


def position_rows(values: Mapping[str, Any], longest: Any) -> int:
    """Rows of an embedding of positions or further words, 0 without one; ``longest``: tokens that the model takes."""
    if values.get("model_type") == "cpmant":
        return int(values.get("prompt_types", 32) * values.get("prompt_length", 32) + values.get("segment_types", 32))
    if further := values.get("additional_vocab_size"):
        return int(further)  # Rows of words that the head does not have (Molmo 2).
    more = _POSITIONS.get(str(values.get("model_type")))
    return 0 if more is None or not isinstance(longest, int) else longest + more
