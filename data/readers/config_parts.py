r"""
Model files whose layers have parts of their own, read layer by layer with one function for each ``model_type``.

Each family's parts and sizes are those of its class in transformers (models/*/modeling_*.py). The equations of
``taut.data.layers.layer`` price them:

- (10) one part alone: attention, a mixer or a feed-forward part (Nemotron-H, Mamba);
- (11) values narrower than keys (MiMo-V2), keys that are values or an earlier layer's (Gemma 4, Hunyuan-Large);
- (12) further products: gates and embeddings of every layer (Gemma 3n and 4), adapters (Zamba 2);
- (13) several streams: hyper-connections (DeepSeek-V4, Hunyuan 4, Qwen4-Exp), AltUp (Gemma 3n);
- (14) a mixer beside attention (Falcon-H1), two attentions in a layer (LongCat), a shared block (Zamba);
- (15) layers that run several times with the same weights (Dory, HRM).

Two rules need a formula:

(1) Mamba-1 with n channels, a state of N numbers a channel, and steps of rank r makes 2 n columns of a layer's input,
    of which n are convolved. Products of :math:`n \times (r + 2 N)` and :math:`r \times n` make from them the keys and
    queries of the state, and a step for each channel;
(2) if only E of E + Z experts do work (LongCat's zero experts), a token that chooses k experts is priced as if it chose
    :math:`k E / (E + Z)` of E, rounded: 12 of 768 with 512 that work are 8.
"""

from collections.abc import Callable, Mapping
from typing import Any

from taut.data.readers.config_fields import NAMES, first, router_groups
from taut.data.readers.config_mixers import gated_delta_sizes, mamba2_sizes, whole_number
from taut.data.spec import shorten
from taut.errors import DataError

Values = Mapping[str, Any]
Layer = dict[str, Any]


def _list(values: Values, where: str, layers: int, *names: str, default: list[Any] | None = None) -> list[Any]:
    """One entry for every layer under one of some names."""
    found = next((values[name] for name in names if values.get(name) is not None), default)
    if isinstance(found, str):
        found = list(found)
    if not isinstance(found, list) or len(found) != layers:
        said = "missing" if found is None else f"is {shorten(found)}"
        raise DataError(f"{where}: {names[0]}: {said}, expected a list with one entry for each of {layers} layers")
    return found


def _layers(values: Values, where: str) -> int:
    """Number of layers."""
    return whole_number(values, where, "num_hidden_layers", "num_layers", "n_layer")


def _attention(values: Values, where: str, **more: Any) -> Layer:
    """Plain attention as most files state it."""
    heads = whole_number(values, where, "num_attention_heads")
    kv_heads = first(values, "kv_heads")
    sizes = {"heads": heads, "kv_heads": heads if kv_heads is None else kv_heads, "head_dim": first(values, "head_dim")}
    return {**sizes, **more}


def _dense(values: Values, where: str) -> Layer:
    """A dense feed-forward part as most files state it."""
    return {"ffn_hidden": whole_number(values, where, "intermediate_size")}


def _experts(values: Values, where: str, *, shared: int = 0, **more: Any) -> Layer:
    """Experts as most files state them; ``shared``: width of all shared experts together."""
    routed = {"num_experts": first(values, "experts"), "experts_per_token": first(values, "chosen")}
    width = whole_number(values, where, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    sizes = {"expert_ffn_hidden": width, "shared_ffn_hidden": shared}
    return {"experts": {**routed, **sizes, **more, **router_groups(values)}}


def _product(sums: int, columns: int, *, mixes: bool = False, split: bool = False) -> Layer:
    """A further product with ``sums`` columns in and ``columns`` out, ``ProductSpec``."""
    return {"sums": sums, "columns": columns, "mixes": mixes, "split": split}


def _mamba2(heads: int, each: int, groups: int, state: int, taps: int, chunk: int) -> Layer:
    """Mamba-2, ``taut.data.readers.config_mixers`` (4)."""
    return {"heads": heads, "mixer": mamba2_sizes(heads, each, groups, state, taps, chunk)}


def _mamba1(inner: int, state: int, rank: int, taps: int) -> Layer:
    """Mamba-1, (1): gate and input; from the convolved input keys, queries and, through low rank, steps of channels."""
    each = next(width for width in (64, 32, 16, 8, 4, 2, 1) if inner % width == 0)
    sizes = {"key_dim": state, "value_dim": each, "made": 2 * inner, "convolved": inner, "taps": taps, "scanned": state}
    own = {"mixes": True, "split": True}
    further = [_product(inner, rank + 2 * state, **own), _product(rank, inner, **own)]
    return {"heads": inner // each, "mixer": sizes, "adjoined": further}


def _rank(values: Values, hidden: int, name: str) -> int:
    """The rank of Mamba-1's steps; ``auto`` is a sixteenth of the hidden size, rounded up."""
    stated = values.get(name)
    return stated if isinstance(stated, int) else -(-hidden // 16)


def _nemotron_h(values: Values, where: str, tokens: int) -> list[Layer]:
    """Nemotron-H and 3: layers of Mamba-2, attention, a dense feed-forward part or experts alone."""
    pattern = values.get("hybrid_override_pattern")
    named = values.get("layers_block_type") or values.get("layer_types")
    listed = list(pattern) if isinstance(pattern, str | list) and not named else named
    kinds = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe", "linear_attention": "mamba"}
    kinds |= {"full_attention": "attention"} | {kind: kind for kind in ("mamba", "attention", "mlp", "moe")}
    listed, layers = listed or ["linear_attention", "moe", "full_attention", "mlp"], values.get("num_hidden_layers")
    if layers is not None and layers != len(listed):
        words = f"expected one for each of num_hidden_layers ({shorten(layers)})"
        name = "hybrid_override_pattern" if pattern and not named else "layers_block_type"
        raise DataError(f"{where}: {name} has {len(listed)} entries, {words}")
    if others := [kind for kind in listed if kind not in kinds]:
        raise DataError(f"{where}: layers_block_type names {shorten(others[0])}, expected one of {', '.join(kinds)}")
    hidden = whole_number(values, where, "hidden_size")
    sizes = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel", "chunk_size")
    mamba = _mamba2(*(whole_number(values, where, name) for name in sizes))
    found: list[Layer] = []
    for kind in (kinds[each] for each in listed):
        if kind == "mamba":
            found.append({"kind": "mamba", "only": "attention", **mamba})
        elif kind == "attention":
            window = values.get("sliding_window")
            windowed = {"attention_window": window} if isinstance(window, int) and 0 < window < tokens else {}
            found.append({"kind": "attention", "only": "attention", **_attention(values, where), **windowed})
        elif kind == "mlp":
            found.append({"kind": "dense", "only": "feed_forward", "heads": 1, **_dense(values, where)})
        else:
            shared = int(values.get("n_shared_experts") is not None and values["n_shared_experts"] > 0)
            shared *= whole_number(values, where, "moe_shared_expert_intermediate_size", usual=1)
            routed: Layer = {"kind": "experts", "only": "feed_forward", "heads": 1}
            if latent := values.get("moe_latent_size"):
                routed |= _experts(values, where, shared=shared, latent_hidden=latent)
                routed["adjoined"] = [_product(hidden, latent), _product(latent, hidden)]
            else:
                routed |= _experts(values, where, shared=shared)
            found.append(routed)
    return found


def _falcon_h1(values: Values, where: str, _: int) -> list[Layer]:
    """Falcon-H1: Mamba-2 beside attention in every layer, and a feed-forward part."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "mamba_n_heads")
    inner = values.get("mamba_d_ssm") or hidden * whole_number(values, where, "mamba_expand", usual=2)
    stated = values.get("mamba_d_head")
    each = stated if isinstance(stated, int) else inner // heads
    names = ("mamba_n_groups", "mamba_d_state", "mamba_d_conv", "mamba_chunk_size")
    mamba = _mamba2(heads, each, *(whole_number(values, where, name) for name in names))
    layer = {"kind": "hybrid", **_attention(values, where), **_dense(values, where)}
    return [{**layer, "beside": {"only": "attention", **mamba}}] * _layers(values, where)


def _jamba(values: Values, where: str, _: int) -> list[Layer]:
    """Jamba: attention in every eighth layer and Mamba-1 in the others, experts in every second."""
    hidden, found = whole_number(values, where, "hidden_size"), []
    state, taps = whole_number(values, where, "mamba_d_state"), whole_number(values, where, "mamba_d_conv")
    inner = hidden * whole_number(values, where, "mamba_expand", usual=2)
    mamba = _mamba1(inner, state, _rank(values, hidden, "mamba_dt_rank"), taps)
    periods = [whole_number(values, where, f"{part}_layer_period") for part in ("attn", "expert")]
    offsets = [values.get(f"{part}_layer_offset") or 0 for part in ("attn", "expert")]
    for layer in range(_layers(values, where)):
        attends, routes = (layer % period == at % period for period, at in zip(periods, offsets, strict=True))
        routes = routes and (first(values, "experts") or 1) > 1
        own = _attention(values, where) if attends else dict(mamba)
        own |= _experts(values, where) if routes else _dense(values, where)
        kind = f"{'attention' if attends else 'mamba'}-{'experts' if routes else 'dense'}"
        found.append({"kind": kind, **own})
    return found


def _mamba(values: Values, where: str, _: int) -> list[Layer]:
    """Mamba and Falcon Mamba: Mamba-1 alone."""
    hidden = whole_number(values, where, "hidden_size", "d_model")
    inner = values.get("intermediate_size") or hidden * whole_number(values, where, "expand", usual=2)
    state, taps = whole_number(values, where, "state_size"), whole_number(values, where, "conv_kernel", usual=4)
    layer = _mamba1(inner, state, _rank(values, hidden, "time_step_rank"), taps)
    return [{"kind": "mamba", "only": "attention", **layer}] * _layers(values, where)


def _mamba_2(values: Values, where: str, _: int) -> list[Layer]:
    """Mamba-2 alone."""
    names = ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "chunk_size")
    mamba = _mamba2(*(whole_number(values, where, name) for name in names))
    return [{"kind": "mamba", "only": "attention", **mamba}] * _layers(values, where)


def _has_shared_block(values: Values, where: str, default: list[str]) -> list[bool]:
    """Whether a shared block stands beside the Mamba of each layer."""
    layers = _layers(values, where)
    listed = _list(values, where, layers, "layers_block_type", "layer_types", default=default)
    return [kind in ("hybrid", "g") for kind in listed]


def _shared_block(values: Values, where: str, hidden: int, width: int) -> Layer:
    """Zamba's block: queries, keys and values of 2 h columns each, from a layer's input and the embedding together."""
    heads = whole_number(values, where, "num_attention_heads")
    # The layer counts the h columns of its input; this product adds the h columns of the embedding.
    wide = _product(hidden, 3 * 2 * hidden, mixes=True, split=True)
    return {"heads": heads, "head_dim": 2 * hidden // heads, "ffn_hidden": width, "adjoined": [wide]}


def _zamba(values: Values, where: str, _: int) -> list[Layer]:
    """Zamba: Mamba-1, and beside every sixth layer one block of attention and feed-forward part, always the same."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    inner = hidden * whole_number(values, where, "mamba_expand", usual=2)
    state, taps = whole_number(values, where, "mamba_d_state"), whole_number(values, where, "mamba_d_conv")
    mamba = _mamba1(inner, state, _rank(values, hidden, "mamba_dt_rank"), taps)
    period, offset = values.get("attn_layer_period") or 6, values.get("attn_layer_offset") or 4
    rest = ["hybrid" if at % period == offset else "linear_attention" for at in range(3, layers)]
    default = ["linear_attention", "linear_attention", "hybrid", *rest][:layers]
    block = _shared_block(values, where, hidden, whole_number(values, where, "intermediate_size"))
    used = False
    for hybrid in _has_shared_block(values, where, default):
        layer = {"kind": "mamba", "only": "attention", **mamba}
        if hybrid:
            layer["adjoined"] = [*mamba["adjoined"], _product(hidden, hidden)]
            layer |= {"kind": f"hybrid{'-again' if used else ''}", "beside": {**block, "reused": used}}
            used = True
        found.append(layer)
    return found


def _zamba2(values: Values, where: str, _: int) -> list[Layer]:
    """Zamba 2: Mamba-2, and beside some layers one of a few shared blocks, with adapters of the layer's own."""
    hidden, layers = whole_number(values, where, "hidden_size"), _layers(values, where)
    found: list[Layer] = []
    inner = hidden * whole_number(values, where, "mamba_expand", usual=2)
    heads = whole_number(values, where, "n_mamba_heads")
    names = (("mamba_ngroups", 1), ("mamba_d_state", None), ("mamba_d_conv", None), ("chunk_size", 256))
    sizes = (whole_number(values, where, name, usual=usual) for name, usual in names)
    mamba = _mamba2(heads, inner // heads, *sizes)
    width = values.get("intermediate_size") or 4 * hidden
    block, rank = _shared_block(values, where, hidden, width), whole_number(values, where, "adapter_rank", usual=128)
    adapters = [_product(hidden, rank), _product(rank, 2 * width, split=True)]
    if values.get("use_shared_attention_adapter"):
        own = [_product(2 * hidden, rank, mixes=True), _product(rank, 2 * hidden, mixes=True, split=True)]
        adapters += 3 * own
    ids, number = values.get("hybrid_layer_ids") or [], values.get("num_mem_blocks") or 1
    default = ["hybrid" if at in ids else "linear_attention" for at in range(layers)]
    for hybrid in _has_shared_block(values, where, default):
        layer = {"kind": "mamba", "only": "attention", **mamba}
        if hybrid:
            used = sum("beside" in each for each in found)
            again = used >= number
            layer["adjoined"] = [_product(hidden, hidden), *adapters]
            layer |= {"kind": f"hybrid{'-again' if again else ''}", "beside": {**block, "reused": again}}
        found.append(layer)
    return found


def _recurrent_gemma(values: Values, where: str, tokens: int) -> list[Layer]:
    """RecurrentGemma (Griffin): two layers with a gated linear recurrence, then one with attention to a window."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "num_attention_heads")
    width, layers = values.get("lru_width") or hidden, _layers(values, where)
    sizes = {"key_dim": 1, "value_dim": width // heads, "made": 2 * width, "convolved": width, "scanned": 1}
    gate = _product(width // heads, width, mixes=True, split=True)
    taps = whole_number(values, where, "conv1d_width", usual=4)
    recurrent = {"heads": heads, "mixer": {**sizes, "taps": taps}, "adjoined": [gate, gate]}
    window = whole_number(values, where, "attention_window_size", usual=2048)
    attention = _attention(values, where, **({"attention_window": window} if window < tokens else {}))
    types = values.get("block_types") or values.get("_block_types") or ["recurrent", "recurrent", "attention"]
    dense = {"ffn_hidden": whole_number(values, where, "intermediate_size") // 2}
    kinds = [types[layer % len(types)] for layer in range(layers)]
    return [{"kind": kind, **(attention if kind == "attention" else recurrent), **dense} for kind in kinds]


def _xlstm(values: Values, where: str, _: int) -> list[Layer]:
    """xLSTM: matrix memories, and a gated feed-forward part."""
    hidden, heads = (
        whole_number(values, where, "hidden_size", "embedding_dim"),
        whole_number(values, where, "num_heads"),
    )
    keys, width = (
        int(hidden * (values.get(name) or usual)) for name, usual in (("qk_dim_factor", 0.5), ("v_dim_factor", 1.0))
    )
    rounded = whole_number(values, where, "ffn_round_up_to_multiple_of", usual=64)
    wide = rounded * -(-int(hidden * (values.get("ffn_proj_factor") or 2.667)) // rounded)
    sizes = {"key_dim": keys // heads, "value_dim": width // heads, "made": 2 * keys + 2 * width + 2 * heads}
    mixer = {**sizes, "chunk": whole_number(values, where, "chunk_size", usual=64)}
    layers = whole_number(values, where, "num_hidden_layers", "num_blocks")
    return [{"kind": "mlstm", "heads": heads, "mixer": mixer, "ffn_hidden": wide}] * layers


def _rwkv(values: Values, where: str, _: int) -> list[Layer]:
    """RWKV-4: decays by channel, and a feed-forward part with a gate of its output."""
    hidden = whole_number(values, where, "hidden_size")
    width, wide = values.get("attention_hidden_size") or hidden, values.get("intermediate_size") or 4 * hidden
    each = next(size for size in (64, 32, 16, 8, 4, 2, 1) if width % size == 0)
    mixer = {"key_dim": 1, "value_dim": each, "made": 3 * width, "scanned": 1}
    layer = {"kind": "rwkv", "heads": width // each, "mixer": mixer, "ffn_hidden": wide, "gated_mlp": False}
    return [{**layer, "adjoined": [_product(hidden, hidden)]}] * _layers(values, where)


def _windowed(values: Values, tokens: int, sliding: bool, *names: str) -> Layer:
    """The window of a layer that has one."""
    window = next((values[name] for name in names if values.get(name)), None)
    return {"attention_window": window} if sliding and isinstance(window, int) and 0 < window < tokens else {}


def _gemma3n(values: Values, where: str, tokens: int) -> list[Layer]:
    """Gemma 3n: streams (AltUp), a low-rank residual (LAuReL), embeddings of every layer, keys of earlier layers."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    each, rank = values.get("hidden_size_per_layer_input") or 0, whole_number(values, where, "laurel_rank", usual=64)
    streams, shared = values.get("altup_num_inputs") or 4, values.get("num_kv_shared_layers") or 0
    widths = values.get("intermediate_size")
    widths = widths if isinstance(widths, list) else [widths] * layers
    usual = ["full_attention" if (at + 1) % 5 == 0 else "sliding_attention" for at in range(layers)]
    listed = _list(values, where, layers, "layer_types", default=usual)
    own = [_product(hidden, rank), _product(rank, hidden), _product(hidden, streams), _product(streams, streams)]
    own += [_product(streams, streams**2), *([_product(hidden, each), _product(each, hidden)] if each else [])]
    for at, kind in enumerate(listed):
        layer = {**_attention(values, where), "qk_norm": True, "streams": streams, "ffn_hidden": widths[at]}
        layer |= _windowed(values, tokens, kind == "sliding_attention", "sliding_window")
        layer["kv_matrices"] = 0 if at >= layers - shared > 0 else 2
        layer["adjoined"] = own + _ends(hidden, at, layers, each * layers, streams - 1)
        found.append({"kind": _kind(kind, layer["kv_matrices"]), **layer})
    return found


def _ends(hidden: int, at: int, layers: int, inputs: int, streams: int) -> list[Layer]:
    """Products at both ends: the first layer makes ``inputs`` columns and ``streams`` streams, the last joins these."""
    edge = [_product(hidden, hidden)] * streams * ((at == 0) + (at == layers - 1))
    return edge + ([_product(hidden, inputs)] if at == 0 and inputs else [])


def _kind(kind: str, matrices: int) -> str:
    """The name of a layer by its attention, and by whether it has matrices of keys and values."""
    return f"{'window' if kind == 'sliding_attention' else 'full'}{'' if matrices else '-shared'}"


def _gemma4(values: Values, where: str, tokens: int) -> list[Layer]:
    """Gemma 4: wider heads in full attention, keys that are values or an earlier layer's, embeddings of every layer."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    each, shared = values.get("hidden_size_per_layer_input") or 0, values.get("num_kv_shared_layers") or 0
    usual = ["full_attention" if (at + 1) % 6 == 0 else "sliding_attention" for at in range(layers)]
    listed = [*_list(values, where, layers, "layer_types", default=usual)[:-1], "full_attention"]
    stated, alike = values.get("per_layer_config"), values.get("attention_k_eq_v")
    unified = str(values.get("model_type")).startswith("gemma4_unified")
    further = [_product(hidden, each), _product(each, hidden)] if each else []
    assistant = values.get("backbone_hidden_size")
    for at, kind in enumerate(listed):
        is_full = kind == "full_attention"
        apart = {"head_dim": values.get("global_head_dim") or 512} if is_full else {}
        heads = values.get("num_global_key_value_heads")
        apart |= {"kv_heads": heads} if is_full and heads and (alike or unified) else {}
        if isinstance(stated, dict):
            own = _apart(stated, at)
            apart = {"head_dim": own["head_dim"]} if "head_dim" in own else {}
            apart |= {"kv_heads": own["num_key_value_heads"]} if "num_key_value_heads" in own else {}
        reused = at >= layers - shared
        layer = {**_attention(values, where), **apart, "qk_norm": True}
        layer["kv_matrices"] = 0 if reused else 1 if is_full and alike and not unified else 2
        layer |= _windowed(values, tokens, not is_full, "sliding_window")
        wide = whole_number(values, where, "intermediate_size") * (
            2 if reused and values.get("use_double_wide_mlp") else 1
        )
        layer["adjoined"] = further + _ends(hidden, at, layers, each * layers, 0)
        if assistant and at in (0, layers - 1):
            layer["adjoined"] += [_product(*pair) for pair in _assisted(hidden, assistant, at, layers)]
        if values.get("enable_moe_block"):
            layer |= {**_experts(values, where), "beside": {"only": "feed_forward", "heads": 1, "ffn_hidden": wide}}
        else:
            layer["ffn_hidden"] = wide
        found.append({"kind": _kind(kind, layer["kv_matrices"]), **layer})
    return found


def _apart(stated: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """What a file states for one layer alone."""
    found = stated.get(f"{layer:02}", stated.get(str(layer)))
    return found if isinstance(found, dict) else {}


def _assisted(hidden: int, backbone: int, at: int, layers: int) -> list[tuple[int, int]]:
    """Products by which a drafting model takes its backbone's output and embedding, and gives its own."""
    return [(2 * backbone, hidden)] * (at == 0) + [(hidden, backbone)] * (at == layers - 1)


def _latent(values: Values) -> Layer:
    """Latent attention as most files state it."""
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {name: first(values, name) for name in names if first(values, name) is not None}


def _indexer(values: Values) -> Layer:
    """The indexer of latent attention."""
    return {"index_heads": values.get("index_n_heads") or 0, "index_dim": values.get("index_head_dim") or 0}


def _routed(values: Values, where: str, layers: int) -> list[bool]:
    """Whether each layer has experts, where a list names them or the first ones are dense."""
    dense = first(values, "dense_layers")
    usual = ["dense" if at < (1 if dense is None else dense) else "sparse" for at in range(layers)]
    listed = _list(values, where, layers, "mlp_layer_types", default=usual)
    return [kind not in ("dense", "mlp") for kind in listed]


def _shared_width(values: Values, where: str) -> int:
    """Width of all shared experts together, stated or their number times the width of one."""
    stated = first(values, "shared_width")
    number = first(values, "shared") or 0
    return stated if isinstance(stated, int) else number * whole_number(values, where, "moe_intermediate_size")


def _longcat(values: Values, where: str, _: int) -> list[Layer]:
    """LongCat: two latent attentions and two dense parts in a layer, and experts, some without work, (2)."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "num_attention_heads")
    count, zero = whole_number(values, where, "n_routed_experts"), values.get("zero_expert_num") or 0
    chosen = max(round(whole_number(values, where, "moe_topk", "num_experts_per_tok") * count / (count + zero)), 1)
    routed = _experts(values, where)["experts"] | {"num_experts": count, "experts_per_token": chosen}
    dense = {"ffn_hidden": whole_number(values, where, "ffn_hidden_size", "intermediate_size")}
    second = {
        "heads": heads,
        "latent": _latent(values),
        **dense,
        "beside": {"only": "feed_forward", "heads": 1, **dense},
    }
    layer = {"kind": "block", "heads": heads, "latent": _latent(values), "experts": routed, "beside": second}
    return [layer | ({"adjoined": [_product(hidden, zero)]} if zero else {})] * _layers(values, where)


def _mimo(values: Values, where: str, tokens: int) -> list[Layer]:
    """MiMo-V2: values narrower than keys, more key heads in layers with a window, experts behind a dense layer."""
    layers, found = _layers(values, where), []
    marks = values.get("hybrid_layer_pattern")
    if isinstance(marks, list) and not values.get("layer_types"):
        usual = ["sliding_attention" if mark else "full_attention" for mark in marks]
    else:
        usual = ["full_attention" if at == 0 or (at + 1) % 6 == 0 else "sliding_attention" for at in range(layers)]
    listed = _list(values, where, layers, "layer_types", default=usual)
    freq = values.get("moe_layer_freq")
    routed = [bool(each) for each in freq] if isinstance(freq, list) else _routed(values, where, layers)
    shared = (first(values, "shared") or 0) * whole_number(values, where, "moe_intermediate_size")
    for kind, routes in zip(listed, routed, strict=True):
        sliding = kind == "sliding_attention"
        layer = _attention(values, where, value_head_dim=values.get("v_head_dim"))
        if sliding:
            kv_heads = values.get("swa_num_key_value_heads") or 2 * layer["kv_heads"]
            layer |= {"kv_heads": kv_heads, "heads": values.get("swa_num_attention_heads") or layer["heads"]}
            layer |= {"head_dim": values.get("swa_head_dim") or layer["head_dim"]}
            layer |= {"value_head_dim": values.get("swa_v_head_dim") or layer["value_head_dim"]}
        layer |= _windowed(values, tokens, sliding, "sliding_window", "sliding_window_size")
        layer |= _experts(values, where, shared=shared) if routes else _dense(values, where)
        found.append({"kind": f"{'experts' if routes else 'dense'}{'-window' if sliding else ''}", **layer})
    return found


def _streams(hidden: int, number: int, columns: int, last: bool) -> list[Layer]:
    """Products that mix streams before attention, before the feed-forward part, and after the last layer."""
    mixing = [_product(number * hidden, columns)] * 2
    return mixing + ([_product(number * hidden, number)] if last else [])


def _deepseek_v4(values: Values, where: str, tokens: int) -> list[Layer]:
    """DeepSeek-V4: attention to a window and to compressed tokens, keys that are values, and an output of low rank."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    heads, each = whole_number(values, where, "num_attention_heads"), whole_number(values, where, "head_dim")
    rank, low = whole_number(values, where, "q_lora_rank"), whole_number(values, where, "o_lora_rank")
    groups, window = whole_number(values, where, "o_groups"), whole_number(values, where, "sliding_window")
    scorers, scored = whole_number(values, where, "index_n_heads"), whole_number(values, where, "index_head_dim")
    rates = values.get("compress_rates") or {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    ratios, names = values.get("compress_ratios"), {0: "sliding_attention", 4: "compressed_sparse_attention"}
    usual = ["heavily_compressed_attention", "compressed_sparse_attention"]
    default = [usual[0] if at < 2 else usual[at % 2] for at in range(layers)]
    if isinstance(ratios, list):
        default = [names.get(ratio, "heavily_compressed_attention") for ratio in ratios[:layers]]
    streams, shared = values.get("hc_mult") or 4, whole_number(values, where, "moe_intermediate_size")
    for at, kind in enumerate(_list(values, where, layers, "layer_types", default=default)):
        own = [_product(hidden, rank, mixes=True), _product(rank, heads * each, mixes=True, split=True)]
        own += [_product(heads * each // groups, groups * low, mixes=True, split=True)]
        own += [_product(groups * low, hidden, mixes=True, split=True)]
        attended = float(min(window, tokens))
        rate = rates.get(kind, 0)
        if kind == "heavily_compressed_attention":
            own += [_product(hidden, 2 * each, mixes=True)]
            attended += tokens / rate
        elif kind == "compressed_sparse_attention":
            own += [_product(hidden, 4 * each + 4 * scored + scorers, mixes=True)]
            own += [_product(rank, scorers * scored, mixes=True)]
            compressed = tokens / rate
            attended += min(compressed, whole_number(values, where, "index_topk"))
            attended += compressed * scorers * scored / (2 * heads * each)
        elif kind != "sliding_attention":
            raise DataError(f"{where}: layer_types names {shorten(kind)}, expected attention of DeepSeek-V4")
        sizes = {"key_dim": each, "value_dim": each, "made": each, "attends": max(round(attended), 1)}
        layer = {"kind": kind.partition("_")[0], "heads": heads, "mixer": {**sizes, "output": False}}
        layer |= {"streams": streams, **_experts(values, where, shared=shared)}
        own += _streams(hidden, streams, 2 * streams + streams**2, last=at == layers - 1)
        found.append({**layer, "adjoined": own})
    return found


def _hy_v4(values: Values, where: str, _: int) -> list[Layer]:
    """Hunyuan 4: gated latent attention, indexers in every fourth layer, and hyper-connections."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    heads, streams = whole_number(values, where, "num_attention_heads"), values.get("hc_mult") or 4
    usual = ["full" if at == 0 or (at - 1) % 4 == 0 else "shared" for at in range(layers)]
    indexed = _list(values, where, layers, "indexer_types", default=usual)
    for at, routes in enumerate(_routed(values, where, layers)):
        latent = _latent(values) | (_indexer(values) if indexed[at] == "full" else {})
        gate = heads * whole_number(values, where, "v_head_dim")
        layer = {"heads": heads, "latent": latent, "attention_gate": gate, "streams": streams}
        layer["adjoined"] = _streams(hidden, streams, 2 * streams, last=at == layers - 1)
        routed = _experts(values, where, shared=_shared_width(values, where)) if routes else _dense(values, where)
        kind = f"{'experts' if routes else 'dense'}{'-indexed' if indexed[at] == 'full' else ''}"
        found.append({"kind": kind, **layer, **routed})
    return found


def _axk2(values: Values, where: str, _: int) -> list[Layer]:
    """A.X-K2: latent attention with an indexer, a gate made with the queries, and gated norms."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "num_attention_heads")
    rank, gated = whole_number(values, where, "q_lora_rank"), values.get("gated_norm_rank") or 0
    latent, found, layers = _latent(values) | _indexer(values), [], _layers(values, where)
    key = latent["qk_nope_head_dim"] + latent["qk_rope_head_dim"]
    # A matrix from 2 rank columns makes queries and gate; LatentSpec counts rank x heads key of it.
    made = 2 * (heads * (key + latent["v_head_dim"])) - heads * key
    for routes in _routed(values, where, layers):
        norms = [_product(hidden, gated), _product(gated, hidden)] * (2 if routes else 1) if gated else []
        layer = {"heads": heads, "latent": latent, "adjoined": [_product(rank, made, mixes=True, split=True), *norms]}
        layer |= _experts(values, where, shared=_shared_width(values, where)) if routes else _dense(values, where)
        found.append({"kind": "experts" if routes else "dense", **layer})
    return found


def _dots3(values: Values, where: str, tokens: int) -> list[Layer]:
    """Dots 3: latent attention of two shapes, with an indexer or a window, and a gate for every head."""
    layers, found, stated = _layers(values, where), [], values.get("per_layer_config")
    listed = _list(values, where, layers, "layer_types")
    for at, routes in enumerate(_routed(values, where, layers)):
        apart = _apart(stated, at) if isinstance(stated, dict) else {}
        own, indexed = {**values, **apart}, listed[at] == "indexed_attention"
        heads = whole_number(own, where, "num_attention_heads")
        latent = _latent(own) | (_indexer(values) if indexed else {})
        layer = {"heads": heads, "latent": latent, "attention_gate": heads}
        layer |= _windowed(own, tokens, listed[at] == "sliding_attention", "sliding_window")
        layer |= _experts(values, where, shared=_shared_width(values, where)) if routes else _dense(values, where)
        found.append({"kind": f"{'experts' if routes else 'dense'}-{listed[at].partition('_')[0]}", **layer})
    return found


def _inkling(values: Values, where: str, tokens: int) -> list[Layer]:
    """Inkling: learned relative positions, short convolutions, and more key heads in layers with a window."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    if values.get("unpadded_vocab_size") not in (None, values.get("vocab_size")):
        words = f"expected vocab_size ({values.get('vocab_size')}), as of the embedding"
        raise DataError(f"{where}: unpadded_vocab_size is {values['unpadded_vocab_size']}, {words}")
    local = values.get("local_layer_ids")
    local = [at for at in range(layers) if (at + 1) % 6] if local is None else local
    usual = ["hybrid_sliding" if at in local else "hybrid" for at in range(layers)]
    listed = _list(values, where, layers, "layer_types", default=usual)
    named = values.get("mlp_layer_types") or ["sparse"] * layers
    taps = whole_number(values, where, "conv_kernel_size", "sconv_kernel_size", usual=4)
    for kind, part in zip(listed, named, strict=True):
        sliding = kind == "hybrid_sliding"
        layer = _attention(values, where, qk_norm=True)
        if sliding:
            names = (
                ("heads", "swa_num_attention_heads"),
                ("kv_heads", "swa_num_key_value_heads"),
                ("head_dim", "swa_head_dim"),
            )
            layer |= {ours: values[name] for ours, name in names if values.get(name)}
        reach = whole_number(values, where, "sliding_window_size") if sliding else values.get("rel_extent") or 1024
        relative = whole_number(values, where, "d_rel", usual=16)
        convolved = 2 * layer["kv_heads"] * (layer["head_dim"] or hidden // layer["heads"])
        own = [
            _product(hidden, layer["heads"] * relative, mixes=True, split=True),
            _product(relative, reach, mixes=True),
        ]
        own += [_product(taps, convolved, mixes=True, split=True), _product(taps, 2 * hidden)]
        layer |= _windowed(values, tokens, sliding, "sliding_window_size")
        routes = part != "dense"
        layer |= _experts(values, where, shared=_shared_width(values, where)) if routes else _dense(values, where)
        found.append(
            {"kind": f"{'experts' if routes else 'dense'}{'-window' if sliding else ''}", **layer, "adjoined": own}
        )
    return found


def _dory(values: Values, where: str, tokens: int) -> list[Layer]:
    """Dory: gated attention, and a middle of layers that runs several times with the same weights."""
    counts = [whole_number(values, where, f"n_{part}_layers") for part in ("input", "output")]
    layers, listed = _layers(values, where), values.get("layer_types")
    if isinstance(listed, list) and "mlp" in listed:
        listed, layers, counts = listed[::2], layers // 2, [count // 2 for count in counts]
    listed = _list({"layer_types": listed}, where, layers, "layer_types")
    plain = _attention(values, where)
    plain |= {"attention_gate": plain["heads"] * (plain["head_dim"] or values["hidden_size"] // plain["heads"])}

    def run(first_layer: int, end: int, again: bool) -> list[Layer]:
        found = []
        for kind in listed[first_layer:end]:
            sliding = kind == "sliding_attention"
            own = plain | _dense(values, where) | _windowed(values, tokens, sliding, "sliding_window")
            found.append(
                {"kind": f"{'window' if sliding else 'full'}{'-again' if again else ''}", **own, "reused": again}
            )
        return found

    if sum(counts) > layers:
        raise DataError(f"{where}: n_input_layers and n_output_layers are {sum(counts)}, expected at most {layers}")
    loops, end = whole_number(values, where, "n_recurrent_loops", usual=1), layers - counts[1]
    repeats = [layer for loop in range(loops) for layer in run(counts[0], end, loop > 0)]
    return [*run(0, counts[0], False), *repeats, *run(end, layers, False)]


def _hrm(values: Values, where: str, _: int) -> list[Layer]:
    """HRM: cycles of one stack of layers that runs several times, and of another; both have the same weights again."""
    stack = whole_number(values, where, "num_layers_per_stack", "num_hidden_layers")
    layer = {**_attention(values, where), **_dense(values, where)}
    layer["attention_gate"] = layer["heads"] * (layer["head_dim"] or values["hidden_size"] // layer["heads"])
    low, found = whole_number(values, where, "L_cycles", usual=3), []
    for cycle in range(whole_number(values, where, "H_cycles", usual=2)):
        for turn in range(low + 1):
            kind, used = ("high", cycle > 0) if turn == low else ("low", cycle + turn > 0)
            found += [{**layer, "kind": f"{kind}{'-again' if used else ''}", "reused": used}] * stack
    return found


def _qwen4(values: Values, where: str, tokens: int) -> list[Layer]:
    """Qwen4-Exp: gated DeltaNet, attention to blocks that an indexer chooses, and hyper-connections of low rank."""
    if values.get("ple_layer_ids"):
        words = "expected no layers with tables of tokens in a row"
        raise DataError(f"{where}: ple_layer_ids is {shorten(values['ple_layer_ids'])}, {words}")
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    plain, streams = _attention(values, where), whole_number(values, where, "hc_count", usual=4)
    heads, each = plain["heads"], plain["head_dim"] or hidden // plain["heads"]
    wide, rank = streams * hidden, whole_number(values, where, "hc_lowrank", usual=320)
    period = whole_number(values, where, "full_attention_interval", usual=4)
    usual = ["linear_attention" if (at + 1) % period else "indexed_attention" for at in range(layers)]
    shared = whole_number(values, where, "shared_expert_intermediate_size")
    linear_heads, linear = gated_delta_sizes(values, where)
    for at, kind in enumerate(_list(values, where, layers, "layer_types", default=usual)):
        mixed = [_product(wide, rank), _product(rank, wide)]
        own = 2 * [*mixed, _product(wide, streams)] + (mixed if at == layers - 1 else [])
        if kind == "linear_attention":
            layer = {"kind": "linear", "heads": linear_heads, "mixer": linear}
        elif kind in ("indexed_attention", "full_attention"):
            names = ("indexer_n_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")
            scorers, scored, budget, ratio = (whole_number(values, where, name) for name in names)
            attended = min(tokens, budget + ratio - 1) + tokens / ratio * scorers * scored / (2 * heads * each)
            sizes = {"key_dim": each, "value_dim": each, "made": 2 * (heads + plain["kv_heads"]) * each}
            layer = {"kind": "indexed", "heads": heads, "mixer": {**sizes, "attends": round(attended)}}
            own = [*own, _product(hidden, (scorers + 1) * scored, mixes=True)]
        else:
            raise DataError(f"{where}: layer_types names {shorten(kind)}, expected layers of Qwen4-Exp")
        found.append({**layer, **_experts(values, where, shared=shared), "streams": streams, "adjoined": own})
    return found


def _doge(values: Values, where: str, _: int) -> list[Layer]:
    """Doge: attention with a mask that a product makes from the values."""
    if values.get("is_moe"):
        raise DataError(f"{where}: is_moe is true, a model of experts without matrices, expected dense layers")
    plain = _attention(values, where, qk_norm=True)
    each = plain["head_dim"] or values["hidden_size"] // plain["heads"]
    mask = _product(plain["kv_heads"] * each, plain["kv_heads"], mixes=True)
    layer = {"kind": "block", **plain, **_dense(values, where), "adjoined": [mask]}
    return [layer] * _layers(values, where)


def _zaya(values: Values, where: str, tokens: int) -> list[Layer]:
    """ZAYA: attention in compressed channels with convolutions of queries and keys, and a router of several layers."""
    hidden, layers = whole_number(values, where, "hidden_size"), _layers(values, where)
    plain, rank = _attention(values, where), whole_number(values, where, "router_hidden_size", usual=256)
    each = plain["head_dim"] or hidden // plain["heads"]
    width, times = (plain["heads"] + plain["kv_heads"]) * each, [values.get(f"cca_time{at}") or 2 for at in (0, 1)]
    routed = _experts(values, where)
    outputs = first(values, "experts") + 1
    own = [_product(times[0] + each * times[1], width, mixes=True, split=True)]
    own += [_product(hidden, rank), _product(rank, 2 * rank + outputs)]
    listed = _list(values, where, layers, "layer_types", default=["hybrid"] * layers)
    found = []
    for kind in listed:
        reach = _windowed(values, tokens, kind == "hybrid_sliding", "sliding_window")
        found.append({"kind": "window" if reach else "block", **plain, **routed, **reach, "adjoined": own})
    return found


def _modernbert(values: Values, where: str, tokens: int) -> list[Layer]:
    """ModernBERT as a decoder: a window in two of three layers, and a product before the head."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    for name in ("attention_bias", "mlp_bias"):
        if values.get(name):
            raise DataError(f"{where}: {name} is true, expected products without biases")
    period = values.get("global_attn_every_n_layers") or 3
    usual = ["full_attention" if at % period == 0 else "sliding_attention" for at in range(layers)]
    for at, kind in enumerate(_list(values, where, layers, "layer_types", default=usual)):
        layer = {**_attention(values, where), **_dense(values, where)}
        layer |= _windowed(values, tokens, kind == "sliding_attention", "sliding_window", "local_attention")
        layer["adjoined"] = [_product(hidden, hidden)] if at == layers - 1 else []
        found.append({"kind": _kind(kind, 2), **layer})
    return found


def _hunyuan(values: Values, where: str, _: int) -> list[Layer]:
    """Hunyuan-Large: experts with a shared one, and keys and values that every second layer takes from the first."""
    layers, factor = _layers(values, where), 1
    if values.get("use_cla"):
        factor = whole_number(values, where, "cla_share_factor", usual=2)
    shared = int(bool(values.get("use_mixed_mlp_moe"))) * (first(values, "shared") or 1)
    width = whole_number(values, where, "moe_intermediate_size", "intermediate_size")
    routes = (first(values, "experts") or 1) > 1
    part = _experts(values, where, shared=shared * width) if routes else _dense(values, where)
    plain = {**_attention(values, where), **part, "qk_norm": bool(values.get("use_qk_norm"))}
    own, taken = {"kind": "block", **plain}, {"kind": "shared", **plain, "kv_matrices": 0}
    return [taken if at % factor else own for at in range(layers)]


def _minimax_m3(values: Values, where: str, tokens: int) -> list[Layer]:
    """MiniMax-M3: attention to blocks that an indexer chooses, in all but the first layers, and experts."""
    hidden, layers, found = whole_number(values, where, "hidden_size"), _layers(values, where), []
    apart = values.get("sparse_attention_config") or {}
    names = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim"}
    names |= {"index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks"}
    names |= {"index_local_blocks": "sparse_local_block"}
    stated = {**values, **{ours: apart[theirs] for ours, theirs in names.items() if theirs in apart}}
    scorers, scored, block, top, local = (whole_number(stated, where, name) for name in names)
    marks = _list(apart, where, layers, "sparse_attention_freq", default=[0] * layers)
    usual = ["minimax_m3_sparse" if mark else "full_attention" for mark in marks]
    listed = _list(values, where, layers, "layer_types", default=usual)
    if not values.get("mlp_layer_types"):
        freq = values.get("moe_layer_freq")
        marks = freq if isinstance(freq, list) else [1] * layers
        stated["mlp_layer_types"] = ["sparse" if mark else "dense" for mark in marks]
    heads = whole_number(values, where, "num_attention_heads")
    kv_heads = whole_number(values, where, "num_key_value_heads", usual=heads)
    each = whole_number(values, where, "head_dim", usual=hidden // heads)
    plain = {"heads": heads, "kv_heads": kv_heads, "head_dim": each, "qk_norm": True}
    attended = min(tokens, (top + local) * block) + tokens * scorers * scored / (2 * heads * each)
    sizes = {"key_dim": each, "value_dim": each, "made": (heads + 2 * kv_heads) * each}
    sizes["attends"] = round(attended)
    sparse = {"heads": heads, "mixer": sizes, "adjoined": [_product(hidden, (scorers + 1) * scored, mixes=True)]}
    width = first(values, "dense_width") or first(values, "ffn_hidden")
    for kind, routes in zip(listed, _routed(stated, where, layers), strict=True):
        layer = sparse if kind == "minimax_m3_sparse" else plain
        part = _experts(values, where, shared=_shared_width(values, where)) if routes else {"ffn_hidden": width}
        found.append({"kind": f"{'experts' if routes else 'dense'}{'-indexed' * (layer is sparse)}", **layer, **part})
    return found


def _jetmoe(values: Values, where: str, _: int) -> list[Layer]:
    """JetMoE: attention experts, each with queries and outputs of its own on shared keys and values; and experts."""
    hidden, count = whole_number(values, where, "hidden_size"), whole_number(values, where, *NAMES["experts"])
    chosen, kv_heads = whole_number(values, where, *NAMES["chosen"]), whole_number(values, where, "num_key_value_heads")
    each = whole_number(values, where, "kv_channels")
    own = {"num_experts": count, "experts_per_token": chosen}
    own["expert_ffn_hidden"] = whole_number(values, where, "intermediate_size", "ffn_hidden_size")
    others = {**_product(hidden, 2 * (count - chosen) * kv_heads * each, mixes=True, split=True), "idle": True}
    layer = {"heads": chosen * kv_heads, "kv_heads": kv_heads, "head_dim": each, "experts": own}
    return [{"kind": "block", **layer, "adjoined": [others]}] * _layers(values, where)


def _arctic(values: Values, where: str, _: int) -> list[Layer]:
    """Arctic: experts beside a dense part of the hidden size, which is read as a shared expert."""
    hidden = whole_number(values, where, "hidden_size")
    period, found = whole_number(values, where, "moe_layer_frequency", usual=1), []
    for at in range(_layers(values, where)):
        routes = (at + 1) % period == 0
        dense = {"ffn_hidden": hidden} if values.get("parallel_attn_mlp_res", True) and routes else {}
        part = _experts(values, where, shared=dense.get("ffn_hidden", 0)) if routes else _dense(values, where)
        found.append({"kind": "experts" if routes else "dense", **_attention(values, where), **part})
    return found


def _listed_experts(values: Values, where: str, layers: int) -> list[bool]:
    """Whether each layer has experts, by a text that lists the numbers of those layers."""
    stated = values.get("moe_layers_enum")
    if stated is None:
        raise DataError(f"{where}: moe_layers_enum: missing, expected the numbers of the layers with experts")
    numbers = {int(each) for each in str(stated).strip("[]() ").split(",") if each.strip().isdigit()}
    return [at in numbers for at in range(layers)]


def _step3(values: Values, where: str, tokens: int) -> list[Layer]:
    """Step-3: queries of low rank, one group of keys and values, experts with a shared one."""
    hidden, heads = whole_number(values, where, "hidden_size"), whole_number(values, where, "num_attention_heads")
    each, rank = whole_number(values, where, "head_dim"), whole_number(values, where, "share_q_dim")
    groups = whole_number(values, where, "num_attention_groups", usual=1)
    sizes = {"key_dim": each, "value_dim": each, "made": 2 * groups * each, "attends": tokens}
    own = [_product(hidden, rank, mixes=True), _product(rank, heads * each, mixes=True, split=True)]
    found = []
    for routes in _listed_experts(values, where, _layers(values, where)):
        shared = values.get("share_expert_dim") or 0
        part = _experts(values, where, shared=shared) if routes else _dense(values, where)
        layer = {"heads": heads, "mixer": sizes, "adjoined": own}
        found.append({"kind": "experts" if routes else "dense", **layer, **part})
    return found


def _step35(values: Values, where: str, tokens: int) -> list[Layer]:
    """Step-3.5 and 3.7: more heads in layers with a window, a gate for every head, experts with a shared one."""
    layers, found = _layers(values, where), []
    routed = _routed if values.get("moe_layers_enum") is None else _listed_experts
    listed = _list({"layer_types": (values.get("layer_types") or [])[:layers]}, where, layers, "layer_types")
    more = values.get("num_sliding_attention_heads")
    other = values.get("attention_other_setting") or ({"num_attention_heads": more} if more else None)
    for kind, routes in zip(listed, routed(values, where, layers), strict=True):
        sliding = kind == "sliding_attention"
        layer = _attention(values, where, qk_norm=bool(values.get("use_qk_norm", True)))
        if sliding and isinstance(other, dict):
            names = {"heads": "num_attention_heads", "kv_heads": "num_attention_groups", "head_dim": "head_dim"}
            layer |= {ours: other[name] for ours, name in names.items() if other.get(name)}
        gated = values.get("use_head_wise_attn_gate", more is not None)
        layer |= {"attention_gate": layer["heads"]} if gated else {}
        layer |= _windowed(values, tokens, sliding, "sliding_window")
        shared = first(values, "shared_width") or 0
        layer |= _experts(values, where, shared=shared) if routes else _dense(values, where)
        found.append({"kind": f"{'experts' if routes else 'dense'}{'-window' if sliding else ''}", **layer})
    return found


Reader = Callable[[Values, str, int], list[Layer]]
PARTS: dict[str, Reader] = {
    "nemotron_h": _nemotron_h,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    **dict.fromkeys(("mamba", "falcon_mamba"), _mamba),
    "mamba2": _mamba_2,
    "zamba": _zamba,
    "zamba2": _zamba2,
    "recurrent_gemma": _recurrent_gemma,
    "xlstm": _xlstm,
    "rwkv": _rwkv,
    "gemma3n_text": _gemma3n,
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _gemma4),
    "longcat_flash": _longcat,
    "mimo_v2_flash": _mimo,
    "deepseek_v4": _deepseek_v4,
    "hy_v4": _hy_v4,
    "axk2": _axk2,
    "dots3_note_text": _dots3,
    "inkling_text": _inkling,
    "dory": _dory,
    "hrm_text": _hrm,
    "qwen4_exp_text": _qwen4,
    "doge": _doge,
    "zaya": _zaya,
    "modernbert-decoder": _modernbert,
    "hunyuan": _hunyuan,
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl_text"), _minimax_m3),
    "jetmoe": _jetmoe,
    "arctic": _arctic,
    "step3_text": _step3,
    "step3p5": _step35,
}
"""Readers of layers by ``model_type``; a reader is given the file, its name for messages, and a sequence's tokens."""
_UNGATED = ("nemotron_h", "rwkv")
"""Types whose feed-forward parts have no gate."""


def layers_of_parts(values: Values, where: str, tokens: int) -> dict[str, Any]:
    """Fields of ``ModelSpec`` of a type in ``PARTS``, with Gemma's further embedding; ``DataError`` for wrong sizes."""
    family, hidden = str(values["model_type"]), whole_number(values, where, "hidden_size", "d_model", "embedding_dim")
    base = {"hidden": hidden, "seq": tokens, "gated_mlp": family not in _UNGATED}
    found: list[Layer] = []
    kinds: dict[str, Layer] = {}
    for layer in PARTS[family](values, where, tokens):
        shape = {**base, **{name: value for name, value in layer.items() if value is not None and name != "kind"}}
        if "beside" in shape:
            shape["beside"] = _with_base(shape["beside"], base)
        name, number = layer["kind"], 1
        while kinds.setdefault(name, shape) != shape:
            number += 1
            name = f"{layer['kind']}-{number}"
        if found and found[-1]["kind"] == name:
            found[-1]["count"] += 1
        else:
            found.append({"kind": name, "count": 1, **shape})
    own: dict[str, Any] = {"layers": found, "gated_mlp": base["gated_mlp"]}
    if each := family.startswith("gemma") and values.get("hidden_size_per_layer_input"):
        rows = whole_number(values, where, "vocab_size_per_layer_input", "vocab_size")
        own["further_embedding"] = rows * each * sum(layer["count"] for layer in found)
    return own


def _with_base(layer: Layer, base: Layer) -> Layer:
    """A layer beside another one, with the sizes that both have."""
    found = {**base, **{name: value for name, value in layer.items() if value is not None}}
    if "beside" in found:
        found["beside"] = _with_base(found["beside"], base)
    return found
