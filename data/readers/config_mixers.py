r"""
Layers of a Hugging Face ``config.json`` that mix tokens otherwise than by attention, and which layers they are.

Each family's sizes are those of its class in transformers (models/*/modeling_*.py): gated DeltaNet of Qwen3-Next,
Qwen3.5, OLMo Hybrid and LARA, Kimi Delta Attention of Kimi Linear and Ling 2.5, lightning attention of MiniMax-01,
Mamba-2 of Bamba and Granite 4, and the convolutions of LFM2. With a heads of d channels (values of :math:`d_v`), the
columns that a layer makes from its h channels are

(1) gated DeltaNet: :math:`2 k + 2 a d_v + 2 a`, keys (and queries) being k columns in all;
(2) Kimi Delta Attention: :math:`3 a d + a`, and 2 d whole ones for decay and gate of low rank; with a gate of full rank
    (Kimi K3) :math:`4 a d + a`, and d; in Ling 2.5 :math:`5 a d + a`;
(3) lightning attention: :math:`4 a d`;
(4) Mamba-2 with G groups and a state of N numbers a channel: :math:`2 a d + 2 G N + a`, of which
    :math:`a d + 2 G N` are convolved;
(5) a gated short convolution: 3 h, h of which are convolved.
"""

from collections.abc import Callable, Mapping
from typing import Any

from taut.data.layers.layer import LayerSpec
from taut.data.layers.mixer import MixerSpec
from taut.data.model import ModelSpec
from taut.data.readers.config_fields import TABLES, first
from taut.data.spec import shorten
from taut.errors import DataError

CHUNK = 64
"""Tokens of a chunk of the delta rule's kernels (flash-linear-attention, fla/ops/gated_delta_rule/chunk.py)."""


def whole_number(values: Mapping[str, Any], where: str, *names: str, usual: int | None = None) -> int:
    """A whole number under one of some names."""
    found = next((values[name] for name in names if values.get(name) is not None), usual)
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        said = "missing" if found is None else f"is {shorten(found)}"
        raise DataError(f"{where}: {names[0]}: {said}, expected a whole number above 0")
    return found


def gated_delta_sizes(values: Mapping[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """Heads and sizes of gated DeltaNet, (1): queries, keys, values and gates by channel, two numbers a head."""
    heads = whole_number(values, where, "linear_num_value_heads")
    keys = whole_number(values, where, "linear_num_key_heads") * (
        key := whole_number(values, where, "linear_key_head_dim")
    )
    value = whole_number(values, where, "linear_value_head_dim")
    taps = whole_number(values, where, "linear_conv_kernel_dim", usual=4)
    sizes = {"key_dim": key, "value_dim": value, "made": 2 * keys + 2 * heads * value + 2 * heads}
    return heads, {**sizes, "convolved": 2 * keys + heads * value, "taps": taps, "chunk": CHUNK, "delta_rule": True}


_APART = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Names of ``linear_attn_config``, and what a file without it calls them."""


def _kimi_delta(values: Mapping[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """Heads and sizes of Kimi Delta Attention, (2); its decay and gate are of low rank, in Ling 2.5 by channel."""
    apart = values.get("linear_attn_config")
    # What the file says of these layers comes before what its type leaves out.
    stated: Mapping[str, Any] = apart if isinstance(apart, dict) else {}
    own = {**values, **{_APART.get(name, name): value for name, value in stated.items()}}
    heads = whole_number(own, where, "linear_num_heads", "num_attention_heads")
    each = whole_number(own, where, "linear_head_dim", "head_dim")
    taps = whole_number(own, where, "linear_conv_kernel_dim", usual=4)
    width = heads * each
    sizes = {"key_dim": each, "value_dim": each, "convolved": 3 * width, "taps": taps, "chunk": CHUNK}
    if values.get("model_type") == "bailing_hybrid":
        return heads, {**sizes, "made": 5 * width + heads, "delta_rule": True}
    full = int(bool(own.get("use_full_rank_gate")))
    low = {"made_whole": (2 - full) * each, "second_parameters": (2 - full) * each * width}
    return heads, {**sizes, **low, "made": (3 + full) * width + heads, "delta_rule": True}


def _lightning(values: Mapping[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """Heads and sizes of lightning attention, (3): queries, keys, values and a gate of the output."""
    heads, hidden = whole_number(values, where, "num_attention_heads"), whole_number(values, where, "hidden_size")
    each = whole_number(values, where, "head_dim", usual=hidden // heads)
    chunk = whole_number(values, where, "block_size", usual=256)
    return heads, {"key_dim": each, "value_dim": each, "made": 4 * heads * each, "chunk": chunk}


def _mamba2(values: Mapping[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """Heads and sizes of Mamba-2, (4)."""
    heads, hidden = whole_number(values, where, "mamba_n_heads"), whole_number(values, where, "hidden_size")
    inner, groups = (
        hidden * whole_number(values, where, "mamba_expand", usual=2),
        whole_number(values, where, "mamba_n_groups"),
    )
    state = whole_number(values, where, "mamba_d_state")
    each = values.get("mamba_d_head")
    value = inner // heads if each in (None, "auto") else whole_number(values, where, "mamba_d_head")
    taps, chunk = (
        whole_number(values, where, "mamba_d_conv"),
        whole_number(values, where, "mamba_chunk_size", usual=256),
    )
    return heads, mamba2_sizes(heads, value, groups, state, taps, chunk)


def mamba2_sizes(heads: int, each: int, groups: int, state: int, taps: int, chunk: int) -> dict[str, Any]:
    """Fields of Mamba-2's mixer, (4): gate and input, keys and queries of every group, and a step for every head."""
    inner, shared = heads * each, 2 * groups * state
    sizes = {"key_dim": state, "value_dim": each, "made": 2 * inner + shared + heads, "chunk": chunk}
    return {**sizes, "convolved": inner + shared, "taps": taps}


def _convolution(values: Mapping[str, Any], where: str) -> tuple[int, dict[str, Any]]:
    """Heads and sizes of a gated short convolution, (5): two gates and the input by channel."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "num_attention_heads")
    sizes = {"key_dim": 1, "value_dim": hidden // heads, "made": 3 * hidden}
    return heads, {**sizes, "convolved": hidden, "taps": whole_number(values, where, "conv_L_cache", usual=3)}


Sizes = Callable[[Mapping[str, Any], str], tuple[int, dict[str, Any]]]
_DELTA = ("linear_attention", gated_delta_sizes)
MIXERS: dict[str, tuple[str, Sizes]] = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lara_mini", "olmo_hybrid"), _DELTA),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _DELTA),
    **dict.fromkeys(("kimi_linear", "bailing_hybrid"), ("linear_attention", _kimi_delta)),
    **dict.fromkeys(
        ("minimax", "minimax_text_01", "minimax_m1", "bailing_moe_linear"), ("linear_attention", _lightning)
    ),
    **dict.fromkeys(("granitemoehybrid", "bamba"), ("linear_attention", _mamba2)),
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), ("conv", _convolution)),
}
"""By type, the name of its layers without attention, and their sizes."""
FIELDS, INDEX_FIELDS = frozenset(TABLES["mixers"].split()), frozenset(TABLES["indexers"].split())
"""Fields that the files of these types have beside others', and fields of indexers."""
_NAMES = ("linear_attention", "mamba", "conv", "linear", "lightning_attention", "recurrent")


def mixing_layers(values: Mapping[str, Any], layers: Any) -> list[bool]:
    """Whether each layer mixes tokens otherwise than by attention; empty if none does, or no rule of the type knows."""
    if str(values.get("model_type")) not in MIXERS or not isinstance(layers, int):
        return []
    named = next((values[name] for name in ("layer_types", "layers_block_type") if values.get(name)), None)
    if isinstance(named, list) and len(named) == layers:
        found = [kind in _NAMES for kind in named]
    else:
        found = [_is_mixing(values, layer, layers) for layer in range(layers)]
    return found if any(found) else []


def _is_mixing(values: Mapping[str, Any], layer: int, layers: int) -> bool:
    """Whether a layer mixes tokens otherwise, where no list names the layers."""
    family, apart = str(values.get("model_type")), values.get("linear_attn_config")
    if isinstance(apart, dict) and isinstance(apart.get("full_attn_layers"), list):
        return layer + 1 not in apart["full_attn_layers"]
    if isinstance(apart, dict) and isinstance(apart.get("kda_layers"), list):
        return layer + 1 in apart["kda_layers"]
    marks, listed = values.get("attn_type_list"), values.get("attn_layer_indices")
    if isinstance(marks, list) and len(marks) == layers:
        return bool(marks[layer] == 0)
    if isinstance(full := values.get("full_attn_idxs"), list):
        return layer not in full
    if family in ("granitemoehybrid", "bamba"):
        return layer not in (listed or [])
    if family == "minimax":
        return layer % 2 == 1
    if family == "kimi_linear":
        return layer == 0 or layer % 4 != 0
    if family == "lara_mini":
        return layer % 5 in (0, 2)
    if family == "lfm3":
        return layer % 4 in (1, 3) or layer == 0
    if family in ("lfm2", "lfm2_moe"):
        return False
    if family == "bailing_moe_linear":
        group = whole_number(values, family, "layer_group_size")
        return (layer + 1) % group != 0 and layer < layers // group * group
    stated = values.get("layer_group_size" if family == "bailing_hybrid" else "full_attention_interval")
    interval = stated or TABLES["attention_interval"].get(family, 1)
    return isinstance(interval, int) and (layer + 1) % interval != 0


def with_mixers(model: ModelSpec, mixing: list[bool], values: Mapping[str, Any], where: str) -> ModelSpec:
    """The model with layers that mix tokens otherwise, as a list of layers."""
    name, sizes = MIXERS[str(values["model_type"])]
    heads, mixer = sizes(values, where)
    # Convolutions are called by their name, all that has a state linear.
    word, spec = ("conv" if name == "conv" else "linear"), MixerSpec.parse(mixer, where)
    usual = {"heads": heads, "mixer": spec, "qk_norm": False}
    none = dict.fromkeys(("kv_heads", "head_dim", "latent", "attention_window", "attention_gate"))
    blocks = list[LayerSpec]()
    for block, mixes in zip(model.blocks, mixing, strict=True):
        kind = "experts" if block.experts else "dense"
        if mixes:
            block = block.model_copy(update={**usual, **none, "kind": f"{word}-{kind}"})
        elif not any(part in block.kind for part in ("dense", "experts")):
            block = block.model_copy(update={"kind": f"{kind}{'-window' if block.attention_window else ''}"})
        blocks.append(block)
    return _with_layers(model, blocks, where)


def with_shared_indexers(model: ModelSpec, values: Mapping[str, Any], where: str) -> ModelSpec:
    """
    The model without indexers in layers that attend to the tokens that an earlier layer chose.

    Such layers are ``shared`` in ``indexer_types``, or S in ``index_topk_pattern``. Otherwise each
    ``index_topk_freq``-th layer from ``index_skip_topk_offset`` on has an indexer, and all layers before.
    """
    count, freq = len(model.blocks), values.get("index_topk_freq") or 1
    offset = 2 if values.get("index_skip_topk_offset") is None else values["index_skip_topk_offset"]
    usual = ["shared" if max(layer - offset + 1, 0) % freq else "full" for layer in range(count)]
    stated = next((values[name] for name in ("indexer_types", "index_topk_pattern") if values.get(name)), usual)
    shared = [kind in ("shared", "S") for kind in stated]
    if not any(shared) or model.latent is None:
        return model
    if len(shared) != count or any(kind not in ("shared", "S", "full", "F") for kind in stated):
        raise DataError(
            f"{where}: indexer_types is {shorten(stated)}, expected full or shared for each of {count} layers"
        )
    none = model.latent.model_copy(update={"index_heads": 0, "index_dim": 0})
    blocks = list[LayerSpec]()
    for block, takes in zip(model.blocks, shared, strict=True):
        kind = "experts" if block.experts else "dense"
        own = {"latent": none, "kind": f"{kind}-shared"} if takes else {"kind": kind}
        blocks.append(block.model_copy(update=own))
    return _with_layers(model, blocks, where)


def _with_layers(model: ModelSpec, blocks: list[LayerSpec], where: str) -> ModelSpec:
    """The model with layers of its own, equal ones in a row as one kind with their number."""
    layers: list[dict[str, Any]] = []
    for block in blocks:
        shape = block.model_dump()
        if layers and all(layers[-1][field] == value for field, value in shape.items() if field != "count"):
            layers[-1]["count"] += 1
        else:
            layers.append({"attention_gate": None, "mixer": None, **shape})
    whole = {field: getattr(model, field) for field in ("name", "vocab", "max_seq", "gated_mlp", "tied_embedding")}
    if model.position_rows:
        whole["position_rows"] = model.position_rows
    return ModelSpec.parse({**whole, "layers": layers}, where)


def adjusted_ffn(values: Mapping[str, Any]) -> dict[str, Any]:
    """Width of LFM2's feed-forward part, two thirds of the stated one, rounded up to a multiple."""
    width = first(values, "ffn_hidden") if values.get("block_ff_dim") is None else values["block_ff_dim"]
    if values.get("model_type") != "lfm2" or not isinstance(width, int):
        return {}
    if values.get("block_auto_adjust_ff_dim", True):
        factor, multiple = values.get("block_ffn_dim_multiplier", 1.0), values.get("block_multiple_of", 256)
        width = int(2 * width / 3)
        if factor is not None:
            width = multiple * -(-int(factor * width) // multiple)
    return {"ffn_hidden": width}
