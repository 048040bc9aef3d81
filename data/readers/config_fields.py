"""
Fields of a Hugging Face ``config.json``: the names that rules read, and the names that change no price.

A field that speaks of layers, heads, experts, attention, widths or windows changes the model, and a number, list or
section of any other name may. A rule reads such a field, or the field is known to change neither parameters nor work,
or the file is refused by the field's name. The names are in ``data/catalog/config_files.yaml``. A field that is off
(null, false, 0, 1.0 of a factor, or empty) is as good as absent.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from taut.data.catalog.devices import catalog_section
from taut.data.spec import shorten
from taut.data.suggest import nearest
from taut.errors import DataError

TABLES = catalog_section("config_files")
NAMES: dict[str, tuple[str, ...]] = {concept: tuple(names.split()) for concept, names in TABLES["names"].items()}
"""What a decoder has, and the names under which families state it; the first that a file states counts."""


def _any_of(patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns.split()), re.IGNORECASE)


WITHOUT_EFFECT: dict[str, str] = TABLES["without_effect"]
"""Reasons why fields change no price, each with patterns of the names that it holds for."""
_NEUTRAL = [_any_of(patterns) for patterns in WITHOUT_EFFECT.values()]
_DECIDING, _STRUCTURAL = _any_of(TABLES["deciding"]), _any_of(TABLES["structural"])
KNOWN = frozenset(name for names in NAMES.values() for name in names) | set(TABLES["special"].split())


def first(values: Mapping[str, Any], concept: str) -> Any:
    """The value under the first of a concept's names that the file states."""
    return next((values[name] for name in NAMES[concept] if values.get(name) is not None), None)


_FORMS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("architectures", "layer_types", "indexer_types", "mlp_layer_types"), ((list,), "a list")),
    **dict.fromkeys(
        ("index_topk_pattern", "mtp_hybrid_override_pattern", "mtp_layers_block_type"),
        ((str, list), "letters or a list"),
    ),
    "mtp_use_repeated_layer": ((bool,), "true or false"),
    **dict.fromkeys(("sparse_attention_config", "linear_attn_config"), ((dict,), "a section")),
    **dict.fromkeys(("index_topk_freq", "index_skip_topk_offset", "additional_vocab_size"), ((int,), "a whole number")),
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


_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def latent_sizes(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Sizes of latent attention that a file states; refused if keys are not as wide as their two parts."""
    sizes = {name: size for name in _LATENT if (size := first(values, name)) is not None}
    whole, parts = values.get("qk_head_dim"), [sizes.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if isinstance(whole, int) and all(isinstance(part, int) for part in parts) and whole != sum(filter(None, parts)):
        words = f"expected the sum of qk_nope_head_dim and qk_rope_head_dim ({sum(filter(None, parts))})"
        raise DataError(f"{where}: qk_head_dim is {whole}, {words}")
    return sizes


def unknown_fields(values: Mapping[str, Any]) -> Iterator[str]:
    """Fields that may speak of the model's shape, are on, and that no rule knows."""
    for name, value in values.items():
        is_off = not value or (isinstance(value, float) and value == 1.0)
        if name in KNOWN or is_off:
            continue
        neutral = not _DECIDING.search(name) and any(pattern.search(name) for pattern in _NEUTRAL)
        counts = isinstance(value, int | list | dict) and not isinstance(value, bool)
        if not neutral and (_STRUCTURAL.search(name) or (counts and value != 1)):
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
