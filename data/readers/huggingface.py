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
(``taut.data.readers.config_families``).

Windows stand as ``sliding_window`` or ``attention_chunk_size`` (Llama 4), for all layers or for some: ``layer_types``
names every layer, ``sliding_window_pattern`` states that every n-th has none, and families without either have their
own. Experts stand under several names (``taut.data.readers.config_fields``). Groups that a router keeps to are left
out where the file says that it takes the best experts of all (``topk_method`` greedy in DeepSeek-V2-Lite). A dense part
beside the experts (Grok-2's ``residual_moe``) is a shared expert of its width: it takes every token.

A pattern that is not one of ``taut.data.model`` (1) and (2) is refused for experts, and for windows priced as attention
to every token.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.config_families import (
    EXPECTED,
    STATED_TYPE,
    further_fields,
    gate_width,
    is_gated,
    is_known,
    is_normed,
    is_tied,
    named_by_class,
    position_rows,
    refuse_others,
    refuse_unknown_gate,
    refuse_unknown_width,
    with_defaults,
)
from taut.data.readers.config_fields import (
    NAMES,
    TABLES,
    first,
    latent_sizes,
    refuse_contradictions,
    refuse_forms,
    refuse_unknown,
    router_groups,
)
from taut.data.readers.config_mixers import (
    MIXERS,
    adjusted_ffn,
    mixing_layers,
    whole_number,
    with_mixers,
    with_shared_indexers,
)
from taut.data.readers.config_params import of_params
from taut.data.readers.config_parts import PARTS, layers_of_parts
from taut.data.spec import MOST_LAYERS, name_of_file, shorten
from taut.errors import DataError

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "language_model", "llm_cfg")
"""Where files of multimodal models keep what describes their language model."""
_SHAPE = ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "seq")
_REQUIRED = ("hidden", "layers", "heads", "vocab", "seq")
USUAL_SEQ = 8192
"""Tokens. Pre-training seldom uses more (Llama 3: 8192), while files state the context that a short last phase adds."""


def read_config(path: Path, *, seq: int | None = None, alone: bool = True) -> ModelSpec:
    """Model of a ``config.json``, at most at ``USUAL_SEQ``; ``alone``: whether to say that its encoder is left out."""
    values, where = _language_model(read_json(path, "a Hugging Face config.json", ("time_step_limit",)), str(path))
    if not alone:
        values.pop("vision_config", None)
    refuse_unknown(values, where, further_fields(values))
    if values.get("model_type") in PARTS:
        return _of_parts(values, path, where, seq)
    values = refuse_lists(values, where)
    refuse_contradictions(values, where)
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
    refuse_unknown_width(values, shape, where)
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
    model = with_mixers(model, mixing, values, where) if mixing else with_shared_indexers(model, values, where)
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
    values = of_params(values, path)
    refuse_forms(values, path)
    values = named_by_class(values)
    refuse_others(values, path)
    where, inner, outer = path, values, [values]
    while (name := next((name for name in _NESTED if isinstance(inner.get(name), dict)), None)) is not None:
        where = f"{where if where != path else path + ':'} {name}"
        refuse_forms(inner[name], where)
        inner = named_by_class(inner[name])
        refuse_others(inner, where)
        outer.append(inner)
    if len(outer) == 1:
        return with_defaults(inner), where
    found = with_defaults(inner, nested=True)
    for part in reversed(outer[:-1]):
        whole = with_defaults(part)
        found = {**{name: value for name, value in whole.items() if name in _BESIDE}, **found}
        for concept in _SHAPE:
            if first(found, concept) is None:
                found |= {name: part[name] for name in NAMES[concept] if part.get(name) is not None}
        if whole.get("tie_word_embeddings") is not None:
            found["tie_word_embeddings"] = whole["tie_word_embeddings"]
    return found, where


_BESIDE = (
    *("_name_or_path", "vision_config", "audio_config"),
    *("backbone_hidden_size", "use_ordered_embeddings", "num_centroids"),
)
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
    return name_of_file((path.absolute().parent.name if path.stem in ("config", "params") else "") or path.stem)


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
    if stated := values.get(STATED_TYPE):
        said.append(f"model_type {shorten(stated)} is read as {values['model_type']}, the class in architectures")
    names = map(str, values.get("architectures") or ())
    bare = [name for name in names if re.search(r"(?<!Head)(?<!Heads)(?<=[a-z\d])Model$", name)]
    if bare and is_known(values) and values.get("model_type") != "Dream":
        said.append(f"architectures is {bare[0]}, which has no head; it is priced with one")
    if not is_known(values):
        said += _unknown(values)
    if any(part.reused for layer in model.blocks for part in layer.together):
        said.append("a stage that uses the same weights twice is priced as if it held them twice")
    if values.get("model_type") == "hrm_text":
        said.append("turns without gradients (L_bp_cycles) are priced as if they had a backward pass")
    if values.get("zero_expert_num"):
        said.append("of the chosen experts a token takes the share that works, zero_expert_num do nothing")
    if any(part.mixer and not part.mixer.attends for layer in model.blocks for part in layer.together):
        said.append("layers without attention are priced by their work, no kernel of theirs was measured")
    if isinstance(values.get("vision_config"), dict):
        said.append("of a multimodal model the language model alone is priced (taut import images takes the rest in)")
    sparse = any(part.mixer and part.mixer.attends for layer in model.blocks for part in layer.together)
    if (chosen := values.get("index_topk")) is not None and not sparse:
        said.append(f"attention to index_topk {shorten(chosen)} chosen tokens is priced as attention to all")
    if values.get("sparse_config"):
        said.append("attention to chosen blocks (sparse_config) is priced as attention to all")
    if further := first(values, "further"):
        name = next(name for name in NAMES["further"] if values.get(name) is not None)
        how = (
            "; --mtp-layers (in Python mtp_layers) takes it in" if model.mtp_kinds or not model.blocks[-1].only else ""
        )
        said.append(f"prediction of further tokens ({name} {shorten(further)}) is left out, as in most runs{how}")
    if said:
        warnings.warn(f"{where}: {'; '.join(said)}", UserWarning, stacklevel=3)


def _unknown(values: Mapping[str, Any]) -> Iterator[str]:
    """What a line says of a file without a type, or of a type without rules of its own."""
    if (stated := values.get("model_type")) is not None:
        yield f"model_type {shorten(stated)} is not known, its layers are taken for Llama's"
    if not is_gated(values):
        activation = shorten(first(values, "activation"))
        yield f"feed-forward parts are taken for two matrices without a gate, as {activation} says of most models"


_WHOLE: dict[str, Callable[[int, int], bool]] = {
    **dict.fromkeys(("granite_swa", "granitemoe_swa", "cwm"), lambda layer, _: layer % 4 == 0),
    **dict.fromkeys(("laguna", "mellum", "cohere_compass_text"), lambda *_: True),
    "flint": lambda layer, layers: layer < 2 or layer % 4 == 1 or layer == layers - 1,
    "beam": lambda layer, layers: (layer + 1) % 6 == 0 or layer == layers - 1,
    "lara_mini": lambda layer, _: layer % 5 not in (1, 4),
    "lfm3": lambda layer, _: layer % 4 != 0 or layer == 0,
}
"""Which layers attend to all tokens in families whose pattern has no period, where a file does not say."""
_LISTED = ("mlp_layer_types", "is_moe_layer", "moe_layers_enum", "moe_layer_freq", "moe_layers")
"""Fields that list layers with experts."""


def windows(values: Mapping[str, Any], layers: Any, tokens: Any) -> tuple[dict[str, Any], str]:
    """Fields of ``ModelSpec`` of layers that attend to windows, and what is priced as something else."""
    local = values.get("model_type") == "gpt_neo"
    window: Any = values.get("window_size") if local else first(values, "window")
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
    named, marked = values.get("layer_types"), values.get("hybrid_layer_pattern")
    if isinstance(named, list) and len(named) == layers:
        return [kind not in ("sliding_attention", "chunked_attention") for kind in named]
    if isinstance(marked, list) and len(marked) == layers:
        return [mark == 0 for mark in marked]
    if values.get("model_type") == "gpt_neo":
        return [layer % 2 == 0 for layer in range(layers)]
    limit = values.get("max_window_layers")
    if isinstance(limit, int) and (values.get("use_sliding_window") or values.get("model_type") == "dots1"):
        return [layer < limit for layer in range(layers)]
    family = str(values.get("model_type"))
    if family in _WHOLE:
        return [_WHOLE[family](layer, layers) for layer in range(layers)]
    stated = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    period = next((values[name] for name in stated if values.get(name)), None) or TABLES["full_period"].get(family)
    if isinstance(period, str):
        return [period[layer % len(period)] == "G" for layer in range(layers)]
    return [isinstance(period, int) and (layer + 1) % period == 0 for layer in range(layers)]


def experts(values: Mapping[str, Any], layers: Any, where: str) -> dict[str, Any]:
    """Fields of a model with experts among its ``layers``, none of a dense one; ``where``: the file, for messages."""
    if isinstance(apart := values.get("ffn_config"), dict):
        values = {**values, **apart}
    count = first(values, "experts")
    dense = {} if (wide := first(values, "dense_width")) is None else {"ffn_hidden": wide}
    if count in (None, 0, 1) or values.get("is_moe") is False or values.get("moe_layers") == []:
        shared = values.get("shared_intermediate_size")
        return {"ffn_hidden": shared} if values.get("model_type") == "granitemoehybrid" and shared else dense
    width = first(values, "expert_width")
    chosen = {"num_experts": count, "experts_per_token": first(values, "chosen"), "expert_ffn_hidden": width}
    for name, concept in (("experts_per_token", "chosen"), ("expert_ffn_hidden", "expert_width")):
        if chosen[name] is None:
            raise DataError(f"{where}: {NAMES[concept][0]}: missing, expected a value with {shorten(count)} experts")
    biased = {"biased": True} if values.get("model_type") == "gpt_oss" else {}
    chosen |= {"shared_ffn_hidden": _shared(values, width), **biased, **router_groups(values)}
    if (latent := values.get("routed_expert_hidden_size")) is not None:
        chosen["latent_hidden"] = latent
    return {"experts": chosen, **dense, **_places(values, layers, where)}


def _shared(values: Mapping[str, Any], width: Any) -> Any:
    """Width of all that takes every token beside the experts."""
    if values.get("residual_moe"):
        return first(values, "ffn_hidden")
    shared = first(values, "shared_width")
    if shared is not None:
        return shared
    number = first(values, "shared")
    if number is None:
        number = int(values.get("intermediate_size_mlp") is not None or values.get("model_type") == "hunyuan_v1_moe")
    return number * width if isinstance(number, int) and isinstance(width, int) else number


def _places(values: Mapping[str, Any], layers: Any, where: str) -> dict[str, Any]:
    """Which layers have experts."""
    only = values.get("mlp_only_layers") or []
    if only and (not isinstance(only, list) or only != list(range(len(only)))):
        words = "expected the first layers, or none"
        raise DataError(f"{where}: mlp_only_layers is {shorten(only)}, {words}")
    dense, period = len(only) or first(values, "dense_layers") or 0, first(values, "expert_period") or 1
    name = next((name for name in _LISTED if name in values and _listed(values[name], layers) is not None), None)
    if name is None or not isinstance(layers, int):
        return {"dense_layers": dense, "expert_period": period}
    routed = _listed(values[name], layers) or []
    dense = routed.index(True) if True in routed else layers
    for period in range(1, layers + 1):
        if routed == [layer >= dense and (layer + 1) % period == 0 for layer in range(layers)]:
            return {"dense_layers": dense * (period == 1), "expert_period": period}
    words = "expected experts in every layer, or in every n-th, after the first dense ones"
    raise DataError(f"{where}: {name} is {shorten(values[name])}, {words}")


def _listed(value: Any, layers: Any) -> list[bool] | None:
    """Whether each layer has experts, where a field lists layers by name, by mark or by number."""
    if isinstance(value, str) and isinstance(layers, int):
        value = [int(each) for each in value.split(",") if each.strip().isdigit()]
        return [layer in value for layer in range(layers)] if value else None
    if not isinstance(value, list) or not value or not isinstance(layers, int):
        return None
    if len(value) == layers and all(isinstance(each, str) for each in value):
        return [each not in ("dense", "mlp") for each in value]
    if len(value) == layers and all(each in (0, 1) for each in value):
        return [bool(each) for each in value]
    return [layer in value for layer in range(layers)]


def latent(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of a model with latent attention, none of one with plain attention."""
    if not first(values, "kv_lora_rank"):
        return {}
    sizes = latent_sizes(values, where)
    if "v_head_dim" not in sizes and values.get("model_type") == "minicpm3":
        sizes["v_head_dim"] = values["hidden_size"] // values["num_attention_heads"]
    if values.get("index_n_heads") and values.get("index_head_dim"):
        sizes |= {"index_heads": values["index_n_heads"], "index_dim": values["index_head_dim"]}
    return {"latent": sizes, "kv_heads": None, "head_dim": None}


def special_shape(values: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that Falcon, StarCoder, MPT, DBRX and others state in their own ways, of a file of one of them."""
    family, attention = values.get("model_type"), values.get("attn_config")
    kv_heads: Any = attention.get("kv_n_heads") if isinstance(attention, dict) else None
    if family in ("falcon", "RefinedWeb", "RefinedWebModel"):
        shared = values.get("multi_query", True) and not values.get("new_decoder_architecture", family == "RefinedWeb")
        kv_heads = 1 if shared else values.get("num_kv_heads", values.get("n_head_kv"))
        return {"kv_heads": kv_heads or shape["heads"]}
    if family == "gpt_bigcode":
        return {"kv_heads": 1 if values.get("multi_query", True) else shape["heads"]}
    if family in ("mpt", "dbrx"):
        return {"kv_heads": kv_heads}
    if family in ("moshi", "qwen"):
        width = shape["ffn_hidden"]
        return {"ffn_hidden": width // 2 if isinstance(width, int) else width}
    if values.get("multi_query_attention") is False:
        return {"kv_heads": None}
    return {}


def refuse_mixed(values: Mapping[str, Any], shape: Mapping[str, Any], where: str) -> None:
    """Refuse a file whose fields say that layers or heads are unlike where taut prices them alike."""
    head_dim, heads, kv_heads = shape.get("head_dim"), shape.get("heads"), shape.get("kv_heads")
    own = {"swa_num_attention_heads": heads, "swa_num_key_value_heads": kv_heads, "swa_head_dim": head_dim}
    if not first(values, "kv_lora_rank"):
        values = {name: None if name == "v_head_dim" and value == 0 else value for name, value in values.items()}
        own |= {"v_head_dim": head_dim, "swa_v_head_dim": head_dim, "q_lora_rank": None, "attention_v_dim": head_dim}
    if values.get("model_type") == "helium" and isinstance(heads, int) and isinstance(shape.get("hidden"), int):
        own["head_dim"] = shape["hidden"] // heads  # Its last product is as wide as the model on both sides.
    own |= {"mlp_type": "default", "full_attn_mod": 1, "first_last_k_dense_replace": first(values, "dense_layers")}
    own["word_embed_proj_dim"] = shape.get("hidden")
    own |= {"num_attention_heads_per_layer": heads, "expansion_ratio": 4}
    for name, expected in own.items():
        if values.get(name) not in (None, expected):
            words = "no value" if expected is None else f"{shorten(expected)}, as of all layers and heads"
            raise DataError(f"{where}: {name} is {shorten(values[name])}, expected {words}")
    last, layers = values.get("moe_layer_end_index"), shape.get("layers")
    if isinstance(last, int) and isinstance(layers, int) and 0 <= last < layers - 1:
        raise DataError(f"{where}: moe_layer_end_index is {last}, expected experts up to the last layer ({layers - 1})")
    marks = values.get("attn_type_list")
    if isinstance(marks, list) and any(mark != 1 for mark in marks) and values.get("model_type") not in MIXERS:
        raise DataError(f"{where}: attn_type_list names layers with linear attention, {EXPECTED}")
    if values.get("add_cross_attention"):
        raise DataError(f"{where}: add_cross_attention is {shorten(values['add_cross_attention'])}, {EXPECTED}")
    if values.get("model_type") == "hy_v3" and values.get("num_shared_experts") == 0:
        raise DataError(f"{where}: num_shared_experts is 0, expected at least 1, as its class makes a dense part of 0")
    gating = values.get("gating")
    if values.get("model_type") == "laguna" and gating not in (None, True, "per-head", "per-element"):
        words = "expected true, 'per-head' or 'per-element', as its class has a gate in any case"
        raise DataError(f"{where}: gating is {shorten(gating)}, {words}")


def refuse_lists(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values, a list of one value for all layers as that value; ``DataError`` for lists of different ones."""
    found, layers = dict(values), first(values, "layers")
    for concept, names in NAMES.items():
        for name in names if concept not in ("layers", "expert_period") else ():
            value = values.get(name)
            if not isinstance(value, list) or not value:
                continue
            if len(value) not in (1, layers) or any(each != value[0] for each in value):
                raise DataError(f"{where}: {name} is {shorten(value)}, expected one value for every layer")
            found[name] = value[0]
    heads = values.get("num_attention_heads_per_layer")
    if isinstance(heads, list) and len(set(map(str, heads))) == 1:
        found["num_attention_heads_per_layer"] = heads[0]
    return found
