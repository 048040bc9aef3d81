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

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from taut.data.readers.config_fields import NAMES, first, latent_sizes, router_groups
from taut.data.readers.config_mixers import gated_delta_sizes, mamba2_sizes, whole_number
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.errors import DataError

Layer = dict[str, Any]
_WINDOWS = ("sliding_attention", "full_attention")


@dataclass(frozen=True)
class _File:
    """A model's file: its ``values``, its name for messages, and the tokens of a sequence."""

    values: Mapping[str, Any]
    where: str
    tokens: int

    def get(self, name: str, usual: Any = None) -> Any:
        return self.values.get(name, usual)

    def first(self, concept: str) -> Any:
        return first(self.values, concept)

    def number(self, *names: str, usual: int | None = None) -> int:
        """A whole number under one of some names."""
        return whole_number(self.values, self.where, *names, usual=usual)

    def over(self, values: Mapping[str, Any]) -> "_File":
        """The file with some values in place of its own."""
        return replace(self, values={**self.values, **values})

    def stated(self, names: Mapping[str, str]) -> Layer:
        """Fields of a layer by our name, where the file has something under its own."""
        return {ours: self.values[theirs] for ours, theirs in names.items() if self.get(theirs)}

    @property
    def hidden(self) -> int:
        return self.number("hidden_size")

    @property
    def heads(self) -> int:
        return self.number("num_attention_heads")

    @property
    def layers(self) -> int:
        return self.number("num_hidden_layers", "num_layers", "n_layer")

    def expect(self, name: str, value: object, why: str = "as its class builds") -> None:
        """Refuse a file that states another value under a name; ``why``: for the message."""
        if self.get(name) not in (None, value):
            raise DataError(f"{self.where}: {name} is {shorten(self.values[name])}, expected {shorten(value)}, {why}")

    def listed(self, *names: str, default: list[Any] | None = None, entries: int | None = None) -> list[Any]:
        """So many entries under one of some names, one a layer unless it is said."""
        found = next((self.values[name] for name in names if self.get(name) is not None), default)
        number = self.layers if entries is None else entries
        if isinstance(found, str):
            found = list(found)
        if not isinstance(found, list) or len(found) != number:
            said = "missing" if found is None else f"is {shorten(found)}"
            expected = f"expected a list with one entry for each of {number} layers"
            raise DataError(f"{self.where}: {names[0]}: {said}, {expected}")
        return found

    def attention(self, **more: Any) -> Layer:
        """Plain attention as most files state it."""
        heads, kv_heads = self.heads, self.first("kv_heads")
        kv_heads = heads if kv_heads is None else kv_heads
        return {"heads": heads, "kv_heads": kv_heads, "head_dim": self.first("head_dim"), **more}

    def gated_attention(self) -> Layer:
        """Plain attention with a gate of every channel."""
        plain = self.attention()
        return plain | {"attention_gate": plain["heads"] * (plain["head_dim"] or self.hidden // plain["heads"])}

    def window(self, sliding: bool, *names: str) -> Layer:
        """The window of a layer that has one."""
        window = next((self.values[name] for name in names if self.get(name)), None)
        short = sliding and isinstance(window, int) and 0 < window < self.tokens
        return {"attention_window": window} if short else {}

    def windows(self, marks: Iterable[object]) -> list[Any]:
        """Kinds of attention by layer; ``marks``: whether it has a window where no list names them."""
        usual = ["sliding_attention" if mark else "full_attention" for mark in marks]
        return self.known("layer_types", self.listed("layer_types", default=usual), _WINDOWS)

    def known(self, name: str, found: list[Any], kinds: Iterable[str]) -> list[Any]:
        """Entries that a list has under a name, if all are of some kinds."""
        if others := [kind for kind in found if kind not in [*kinds]]:
            raise DataError(
                f"{self.where}: {name} names {shorten(others[0])}, expected {one_of(str(others[0]), kinds)}"
            )
        return found

    def latent(self) -> Layer:
        """Latent attention as most files state it."""
        return latent_sizes(self.values, self.where)

    def indexer(self) -> Layer:
        """The indexer of latent attention."""
        return {"index_heads": self.get("index_n_heads") or 0, "index_dim": self.get("index_head_dim") or 0}

    def dense(self) -> Layer:
        """A dense feed-forward part as most files state it."""
        return {"ffn_hidden": self.number("intermediate_size")}

    def experts(self, *, shared: int = 0, **more: Any) -> Layer:
        """Experts as most files state them; ``shared``: width of all shared experts together."""
        routed = {"num_experts": self.first("experts"), "experts_per_token": self.first("chosen")}
        width = self.number("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
        sizes = {"expert_ffn_hidden": width, "shared_ffn_hidden": shared}
        return {"experts": {**routed, **sizes, **more, **router_groups(self.values)}}

    def part(self, routes: bool) -> Layer:
        """Experts with the shared ones that most files state, or a dense part."""
        return self.experts(shared=self.shared_width()) if routes else self.dense()

    def shared_width(self) -> int:
        """Width of all shared experts together, stated or their number times the width of one."""
        stated, number = self.first("shared_width"), self.first("shared") or 0
        return stated if isinstance(stated, int) else number * self.number("moe_intermediate_size")

    def routed(self) -> list[bool]:
        """Whether each layer has experts, where a list names them or the first ones are dense."""
        dense = self.first("dense_layers")
        usual = ["dense" if at < (1 if dense is None else dense) else "sparse" for at in range(self.layers)]
        return [kind not in ("dense", "mlp") for kind in self.listed("mlp_layer_types", default=usual)]


def _named(routes: bool, more: str = "") -> str:
    """The name of a layer with experts, or with a dense part."""
    return f"{'experts' if routes else 'dense'}{more}"


def _product(sums: int, columns: int, *, mixes: bool = False, split: bool = False) -> Layer:
    """A further product with ``sums`` columns in and ``columns`` out, ``ProductSpec``."""
    return {"sums": sums, "columns": columns, "mixes": mixes, "split": split}


def _divided(sums: int, columns: int) -> Layer:
    """A product of the mixing part that tensor ranks share."""
    return _product(sums, columns, mixes=True, split=True)


def _through(width: int, rank: int) -> list[Layer]:
    """Products to a rank and back."""
    return [_product(width, rank), _product(rank, width)]


def _mamba2(heads: int, each: int, groups: int, state: int, taps: int, chunk: int) -> Layer:
    """Mamba-2, ``taut.data.readers.config_mixers`` (4)."""
    return {"heads": heads, "mixer": mamba2_sizes(heads, each, groups, state, taps, chunk)}


def _mamba1(inner: int, state: int, rank: int, taps: int) -> Layer:
    """Mamba-1, (1): gate and input; from the convolved input keys, queries and, through low rank, steps of channels."""
    each = next(width for width in (64, 32, 16, 8, 4, 2, 1) if inner % width == 0)
    sizes = {"key_dim": state, "value_dim": each, "made": 2 * inner, "convolved": inner, "taps": taps, "scanned": state}
    further = [_divided(inner, rank + 2 * state), _divided(rank, inner)]
    return {"heads": inner // each, "mixer": sizes, "adjoined": further}


def _mamba1_of(file: _File) -> Layer:
    """Mamba-1 as files of other layers state it."""
    inner, rank = file.hidden * file.number("mamba_expand", usual=2), _rank(file, file.hidden, "mamba_dt_rank")
    return _mamba1(inner, file.number("mamba_d_state"), rank, file.number("mamba_d_conv"))


def _rank(file: _File, hidden: int, name: str) -> int:
    """The rank of Mamba-1's steps; ``auto`` is a sixteenth of the hidden size, rounded up."""
    stated = file.get(name)
    return stated if isinstance(stated, int) else -(-hidden // 16)


def _nemotron_h(file: _File) -> Iterator[Layer]:
    """Nemotron-H and 3: layers of Mamba-2, attention, a dense feed-forward part or experts alone."""
    pattern = file.get("hybrid_override_pattern")
    named = next(
        (file.values[name] for name in ("layers_block_type", "layer_types") if file.get(name) is not None), None
    )
    listed = list(pattern) if isinstance(pattern, str | list) and named is None else named
    listed = ["linear_attention", "moe", "full_attention", "mlp"] if listed is None else listed
    if not listed or (layers := file.get("num_hidden_layers")) not in (None, len(listed)):
        words = f"expected one for each of num_hidden_layers ({shorten(layers)})" if listed else "expected some"
        name = "hybrid_override_pattern" if pattern and named is None else "layers_block_type"
        raise DataError(f"{file.where}: {name} has {len(listed)} entries, {words}")
    sizes = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel", "chunk_size")
    mamba, hidden = _mamba2(*map(file.number, sizes)), file.hidden
    for kind in _nemotron_kinds(file, "layers_block_type", listed):
        if kind == "mamba":
            yield {"kind": "mamba", "only": "attention", **mamba}
        elif kind == "attention":
            windowed = file.window(True, "sliding_window")
            yield {"kind": "attention", "only": "attention", **file.attention(), **windowed}
        elif kind == "dense":
            yield {"kind": "dense", "only": "feed_forward", "heads": 1, **file.dense()}
        else:
            file.number("n_shared_experts", usual=1)  # The class has one, whatever the number is.
            width, latent = file.number("moe_shared_expert_intermediate_size"), file.get("moe_latent_size")
            routed = file.experts(shared=width, **({"latent_hidden": latent} if latent else {}))
            routed |= {"adjoined": _through(hidden, latent)} if latent else {}
            yield {"kind": "experts", "only": "feed_forward", "heads": 1, **routed}


def _nemotron_kinds(file: _File, name: str, listed: list[Any]) -> list[str]:
    """Kinds of the layers that letters or words name."""
    kinds = {"M": "mamba", "*": "attention", "-": "dense", "E": "experts", "linear_attention": "mamba", "mlp": "dense"}
    kinds |= {"mamba": "mamba", "attention": "attention", "full_attention": "attention", "moe": "experts"}
    return [kinds[each] for each in file.known(name, listed, kinds)]


def _further_of_nemotron(file: _File, known: Collection[str]) -> dict[str, Any]:
    """Layers for further tokens, one token's for all, as in NVIDIA's runs, unless the file says otherwise."""
    names = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    name = next((name for name in names if file.get(name)), names[1])
    listed = list(file.get(name) or ("attention", "moe"))
    try:
        kinds = _nemotron_kinds(file, name, listed)
    except DataError as error:
        if not all(isinstance(each, str) for each in listed):
            raise
        warnings.warn(f"{error}, so layers of further tokens are not read", UserWarning, stacklevel=2)
        return {}
    repeated = file.get("mtp_use_repeated_layer")
    own = {"mtp_kinds": kinds, "mtp_repeated": True if repeated is None else repeated}
    return own if set(kinds) <= set(known) else {}


def _falcon_h1(file: _File) -> list[Layer]:
    """Falcon-H1: Mamba-2 beside attention in every layer, and a feed-forward part."""
    hidden, heads = file.hidden, file.number("mamba_n_heads")
    inner = file.get("mamba_d_ssm") or hidden * file.number("mamba_expand", usual=2)
    each = stated if isinstance(stated := file.get("mamba_d_head"), int) else inner // heads
    names = ("mamba_n_groups", "mamba_d_state", "mamba_d_conv", "mamba_chunk_size")
    mamba = _mamba2(heads, each, *map(file.number, names))
    layer = {"kind": "hybrid", **file.attention(), **file.dense()}
    return [{**layer, "beside": {"only": "attention", **mamba}}] * file.layers


def _jamba(file: _File) -> Iterator[Layer]:
    """Jamba: attention in every eighth layer and Mamba-1 in the others, experts in every second."""
    mamba = _mamba1_of(file)
    periods = [file.number(f"{part}_layer_period") for part in ("attn", "expert")]
    offsets = [file.get(f"{part}_layer_offset") or 0 for part in ("attn", "expert")]
    for layer in range(file.layers):
        attends, routes = (layer % period == at % period for period, at in zip(periods, offsets, strict=True))
        routes = routes and (file.first("experts") or 1) > 1
        own = file.attention() if attends else dict(mamba)
        own |= file.experts() if routes else file.dense()
        yield {"kind": f"{'attention' if attends else 'mamba'}-{_named(routes)}", **own}


def _mamba1_alone(file: _File) -> list[Layer]:
    """Mamba and Falcon Mamba: Mamba-1 alone."""
    hidden = file.number("hidden_size", "d_model")
    inner = file.get("intermediate_size") or hidden * file.number("expand", usual=2)
    state, taps = file.number("state_size"), file.number("conv_kernel", usual=4)
    layer = _mamba1(inner, state, _rank(file, hidden, "time_step_rank"), taps)
    return [{"kind": "mamba", "only": "attention", **layer}] * file.layers


def _mamba2_alone(file: _File) -> list[Layer]:
    """Mamba-2 alone."""
    names = ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "chunk_size")
    return [{"kind": "mamba", "only": "attention", **_mamba2(*map(file.number, names))}] * file.layers


def _has_shared_block(file: _File, default: list[str]) -> list[bool]:
    """Whether a shared block stands beside the Mamba of each layer."""
    return [kind in ("hybrid", "g") for kind in file.listed("layers_block_type", "layer_types", default=default)]


def _shared_block(file: _File, hidden: int, width: int) -> Layer:
    """Zamba's block: queries, keys and values of 2 h columns each, from a layer's input and the embedding together."""
    file.expect("attention_hidden_size", 2 * hidden)
    file.expect("attention_head_dim", 2 * hidden // file.heads)
    file.expect("num_key_value_heads", file.heads)
    file.expect("tie_word_embeddings", True, "without which its class makes every block anew")
    # The layer counts the h columns of its input; this product adds the h columns of the embedding.
    wide = _divided(hidden, 3 * 2 * hidden)
    return {"heads": file.heads, "head_dim": 2 * hidden // file.heads, "ffn_hidden": width, "adjoined": [wide]}


def _zamba(file: _File) -> Iterator[Layer]:
    """Zamba: Mamba-1, and beside every sixth layer one block of attention and feed-forward part, always the same."""
    hidden, layers, mamba = file.hidden, file.layers, _mamba1_of(file)
    period, offset = file.get("attn_layer_period") or 6, file.get("attn_layer_offset")
    offset = 4 if offset is None else offset
    rest = ["hybrid" if at % period == offset else "linear_attention" for at in range(layers - 3)]
    default = ["linear_attention", "linear_attention", "hybrid", *rest][:layers]
    block = _shared_block(file, hidden, file.number("intermediate_size"))
    used = False
    for hybrid in _has_shared_block(file, default):
        layer = {"kind": "mamba", "only": "attention", **mamba}
        if hybrid:
            layer["adjoined"] = [*mamba["adjoined"], _product(hidden, hidden)]
            layer |= {"kind": f"hybrid{'-again' if used else ''}", "beside": {**block, "reused": used}}
            used = True
        yield layer


def _zamba2(file: _File) -> Iterator[Layer]:
    """Zamba 2: Mamba-2, and beside some layers one of a few shared blocks, with adapters of the layer's own."""
    hidden, layers, used = file.hidden, file.layers, 0
    inner, heads = hidden * file.number("mamba_expand", usual=2), file.number("n_mamba_heads")
    if inner % heads:
        raise DataError(f"{file.where}: n_mamba_heads is {heads}, expected a divisor of {inner} channels")
    names = (("mamba_ngroups", 1), ("mamba_d_state", None), ("mamba_d_conv", None), ("chunk_size", 256))
    sizes = (file.number(name, usual=usual) for name, usual in names)
    mamba = _mamba2(heads, inner // heads, *sizes)
    width = file.get("intermediate_size") or 4 * hidden
    block, rank = _shared_block(file, hidden, width), file.number("adapter_rank", usual=128)
    adapters = [_product(hidden, rank), _product(rank, 2 * width, split=True)]
    if file.get("use_shared_attention_adapter"):
        own = [_product(2 * hidden, rank, mixes=True), _divided(rank, 2 * hidden)]
        adapters += 3 * own
    ids, number = file.get("hybrid_layer_ids"), file.get("num_mem_blocks") or 1
    usual = _ZAMBA2_HYBRID if layers == 54 else ids or ()
    listed = _has_shared_block(file, ["hybrid" if at in usual else "linear_attention" for at in range(layers)])
    file.expect("use_shared_mlp_adapter", True)
    file.expect("hybrid_layer_ids", [at for at, hybrid in enumerate(listed) if hybrid], "as in layers_block_type")
    for hybrid in listed:
        layer = {"kind": "mamba", "only": "attention", **mamba}
        if hybrid:
            again, used = used >= number, used + 1
            layer["adjoined"] = [_product(hidden, hidden), *adapters]
            layer |= {"kind": f"hybrid{'-again' if again else ''}", "beside": {**block, "reused": again}}
        yield layer


_ZAMBA2_HYBRID = (*range(6, 48, 6), 47, 51)
"""Layers of Zamba 2's 54 with a shared block, where a file does not say."""


def _recurrent_gemma(file: _File) -> list[Layer]:
    """RecurrentGemma (Griffin): two layers with a gated linear recurrence, then one with attention to a window."""
    heads, width = file.heads, file.get("lru_width") or file.hidden
    sizes = {"key_dim": 1, "value_dim": width // heads, "made": 2 * width, "convolved": width, "scanned": 1}
    gate = _divided(width // heads, width)
    taps = file.number("conv1d_width", usual=4)
    recurrent = {"heads": heads, "mixer": {**sizes, "taps": taps}, "adjoined": [gate, gate]}
    window = file.number("attention_window_size", usual=2048)
    attention = file.attention(**({"attention_window": window} if window < file.tokens else {}))
    types = file.get("block_types") or file.get("_block_types") or ["recurrent", "recurrent", "attention"]
    if not isinstance(types, list):
        raise DataError(f"{file.where}: block_types is {shorten(types)}, expected a list of recurrent and attention")
    file.known("block_types", types, ("recurrent", "attention"))
    dense = {"ffn_hidden": file.number("intermediate_size") // 2}
    kinds = [types[layer % len(types)] for layer in range(file.layers)]
    return [{"kind": kind, **(attention if kind == "attention" else recurrent), **dense} for kind in kinds]


def _xlstm(file: _File) -> list[Layer]:
    """xLSTM: matrix memories, and a gated feed-forward part."""
    hidden, heads = file.number("hidden_size", "embedding_dim"), file.number("num_heads")
    file.expect("embedding_dim", hidden)
    whole = file.number("mlstm_round_up_to_multiple_of", usual=1)
    factors = (("qk_dim_factor", 0.5), ("v_dim_factor", 1.0))
    keys, width = (whole * -(-int(hidden * (file.get(name) or usual)) // whole) for name, usual in factors)
    rounded = file.number("ffn_round_up_to_multiple_of", usual=64)
    wide = rounded * -(-int(hidden * (file.get("ffn_proj_factor") or 2.667)) // rounded)
    sizes = {"key_dim": keys // heads, "value_dim": width // heads, "made": 2 * keys + 2 * width + 2 * heads}
    mixer = {**sizes, "chunk": file.number("chunk_size", usual=64)}
    layers = file.number("num_blocks", "num_hidden_layers")
    return [{"kind": "mlstm", "heads": heads, "mixer": mixer, "ffn_hidden": wide}] * layers


def _rwkv(file: _File) -> list[Layer]:
    """RWKV-4: decays by channel, and a feed-forward part with a gate of its output."""
    hidden = file.hidden
    width, wide = file.get("attention_hidden_size") or hidden, file.get("intermediate_size") or 4 * hidden
    each = next(size for size in (64, 32, 16, 8, 4, 2, 1) if width % size == 0)
    mixer = {"key_dim": 1, "value_dim": each, "made": 3 * width, "scanned": 1}
    layer = {"kind": "rwkv", "heads": width // each, "mixer": mixer, "ffn_hidden": wide, "gated_mlp": False}
    return [{**layer, "adjoined": [_product(hidden, hidden)]}] * file.layers


def _gemma3n(file: _File) -> Iterator[Layer]:
    """Gemma 3n: streams (AltUp), a low-rank residual (LAuReL), embeddings of every layer, keys of earlier layers."""
    hidden, layers = file.hidden, file.layers
    each, rank = file.get("hidden_size_per_layer_input") or 0, file.number("laurel_rank", usual=64)
    streams, shared = file.get("altup_num_inputs") or 4, file.get("num_kv_shared_layers") or 0
    if shared >= layers:
        raise DataError(f"{file.where}: num_kv_shared_layers is {shared}, expected fewer than the {layers} layers")
    widths = file.get("intermediate_size")
    widths = file.listed("intermediate_size") if isinstance(widths, list) else [widths] * layers
    listed = file.windows((at + 1) % 5 for at in range(layers))
    _refuse_keys_of_none(file, listed, layers - shared)
    own = [*_through(hidden, rank), _product(hidden, streams), _product(streams, streams)]
    own += [_product(streams, streams**2), *(_through(hidden, each) if each else [])]
    for at, kind in enumerate(listed):
        layer = {**file.attention(), "qk_norm": True, "streams": streams, "ffn_hidden": widths[at]}
        layer |= file.window(kind == "sliding_attention", "sliding_window")
        layer["kv_matrices"] = 0 if at >= layers - shared else 2
        layer["adjoined"] = own + _ends(hidden, at, layers, each * layers, streams - 1)
        yield {"kind": _kind(kind, layer["kv_matrices"]), **layer}


def _refuse_keys_of_none(file: _File, listed: list[str], own: int) -> None:
    """Refuse a file with layers that take keys of an earlier one of their kind where none of the first ``own`` is."""
    if own and (lacking := sorted({*listed} - {*listed[:own]})):
        words = f"expected a layer with {lacking[0]} among the first {own}, which have keys of their own"
        raise DataError(f"{file.where}: num_kv_shared_layers is {file.get('num_kv_shared_layers')}, {words}")


def _ends(hidden: int, at: int, layers: int, inputs: int, streams: int) -> list[Layer]:
    """Products at both ends: the first layer makes ``inputs`` columns and ``streams`` streams, the last joins these."""
    edge = [_product(hidden, hidden)] * streams * ((at == 0) + (at == layers - 1))
    return edge + ([_product(hidden, inputs)] if at == 0 and inputs else [])


def _kind(kind: str, matrices: int) -> str:
    """The name of a layer by its attention, and by whether it has matrices of keys and values."""
    return f"{'window' if kind == 'sliding_attention' else 'full'}{'' if matrices else '-shared'}"


def _gemma4(file: _File) -> Iterator[Layer]:
    """Gemma 4: wider heads in full attention, keys that are values or an earlier layer's, embeddings of every layer."""
    hidden, layers = file.hidden, file.layers
    each, shared = file.get("hidden_size_per_layer_input") or 0, file.get("num_kv_shared_layers") or 0
    listed = [*file.windows((at + 1) % 6 for at in range(layers))[:-1], "full_attention"]
    if shared > layers:
        raise DataError(f"{file.where}: num_kv_shared_layers is {shared}, expected at most {layers} layers")
    _refuse_keys_of_none(file, listed, layers - shared)
    stated, alike = file.get("per_layer_config"), file.get("attention_k_eq_v")
    further = _through(hidden, each) if each else []
    assistant = file.get("backbone_hidden_size")
    centroids = file.number("num_centroids", usual=2048) if file.get("use_ordered_embeddings") else 0
    for at, kind in enumerate(listed):
        is_full = kind == "full_attention"
        apart = {"head_dim": file.get("global_head_dim") or 512} if is_full else {}
        heads = file.get("num_global_key_value_heads")
        apart |= {"kv_heads": heads} if is_full and heads and alike else {}
        if isinstance(stated, dict):
            own = _apart(stated, at)
            apart = {"head_dim": own["head_dim"]} if "head_dim" in own else {}
            apart |= {"kv_heads": own["num_key_value_heads"]} if "num_key_value_heads" in own else {}
        reused = at >= layers - shared
        layer = {**file.attention(), **apart, "qk_norm": True}
        layer["kv_matrices"] = 0 if reused else 1 if is_full and alike else 2
        layer |= file.window(not is_full, "sliding_window")
        wide = file.number("intermediate_size") * (2 if reused and file.get("use_double_wide_mlp") else 1)
        layer["adjoined"] = further + _ends(hidden, at, layers, each * layers, 0)
        if assistant and at in (0, layers - 1):
            layer["adjoined"] += [_product(*pair) for pair in _assisted(hidden, assistant, at, layers)]
            layer["adjoined"] += [_product(hidden, centroids)] if at and centroids else []
        if file.get("enable_moe_block"):
            layer |= {**file.experts(), "beside": {"only": "feed_forward", "heads": 1, "ffn_hidden": wide}}
        else:
            layer["ffn_hidden"] = wide
        yield {"kind": _kind(kind, layer["kv_matrices"]), **layer}


def _apart(stated: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """What a file states for one layer alone."""
    found = stated.get(f"{layer:02}", stated.get(str(layer)))
    return found if isinstance(found, dict) else {}


def _assisted(hidden: int, backbone: int, at: int, layers: int) -> list[tuple[int, int]]:
    """Products by which a drafting model takes its backbone's output and embedding, and gives its own."""
    return [(2 * backbone, hidden)] * (at == 0) + [(hidden, backbone)] * (at == layers - 1)


def _longcat(file: _File) -> list[Layer]:
    """LongCat: two latent attentions and two dense parts in a layer, and experts, some without work, (2)."""
    hidden, heads = file.hidden, file.heads
    count, zero = file.number("n_routed_experts"), file.get("zero_expert_num") or 0
    chosen = max(round(file.number("moe_topk", "num_experts_per_tok") * count / (count + zero)), 1)
    routed = file.experts()["experts"] | {"num_experts": count, "experts_per_token": chosen}
    dense = {"ffn_hidden": file.number("ffn_hidden_size", "intermediate_size")}
    attention = {"heads": heads, "latent": file.latent()}
    second = {**attention, **dense, "beside": {"only": "feed_forward", "heads": 1, **dense}}
    layer = {"kind": "block", **attention, "experts": routed, "beside": second}
    return [layer | ({"adjoined": [_product(hidden, zero)]} if zero else {})] * file.layers


_SLIDING = {"heads": "swa_num_attention_heads", "kv_heads": "swa_num_key_value_heads", "head_dim": "swa_head_dim"}
"""What layers with a window have of their own."""


def _mimo(file: _File) -> Iterator[Layer]:
    """MiMo-V2: values narrower than keys, more key heads in layers with a window, experts behind a dense layer."""
    marks = file.get("hybrid_layer_pattern")
    if not isinstance(marks, list) or file.get("layer_types"):
        marks = [at > 0 and (at + 1) % 6 > 0 for at in range(file.layers)]
    listed = file.windows(marks)
    freq = file.get("moe_layer_freq")
    routed = [bool(each) for each in freq] if isinstance(freq, list) else file.routed()
    shared = (file.first("shared") or 0) * file.number("moe_intermediate_size")
    for kind, routes in zip(listed, routed, strict=True):
        sliding = kind == "sliding_attention"
        layer = file.attention(value_head_dim=file.get("v_head_dim"))
        if sliding:
            layer |= {"kv_heads": 2 * layer["kv_heads"]} | file.stated(_SLIDING | {"value_head_dim": "swa_v_head_dim"})
        layer |= file.window(sliding, "sliding_window", "sliding_window_size")
        layer |= file.experts(shared=shared) if routes else file.dense()
        yield {"kind": _named(routes, "-window" * sliding), **layer}


def _streams(hidden: int, number: int, columns: int, last: bool) -> list[Layer]:
    """Products that mix streams before attention, before the feed-forward part, and after the last layer."""
    mixing = [_product(number * hidden, columns)] * 2
    return mixing + ([_product(number * hidden, number)] if last else [])


def _deepseek_v4(file: _File) -> Iterator[Layer]:
    """DeepSeek-V4: attention to a window and to compressed tokens, keys that are values, and an output of low rank."""
    hidden, layers = file.hidden, file.layers
    heads, each = file.heads, file.number("head_dim")
    rank, low = file.number("q_lora_rank"), file.number("o_lora_rank")
    groups, window = file.number("o_groups"), file.number("sliding_window")
    scorers, scored = file.number("index_n_heads"), file.number("index_head_dim")
    rates = file.get("compress_rates") or {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    ratios, names = file.get("compress_ratios"), {0: "sliding_attention", 4: "compressed_sparse_attention"}
    usual = ["heavily_compressed_attention", "compressed_sparse_attention"]
    default = [usual[0] if at < 2 else usual[at % 2] for at in range(layers)]
    if isinstance(ratios, list):
        default = [names.get(ratio, "heavily_compressed_attention") for ratio in ratios[:layers]]
    streams, shared = file.get("hc_mult") or 4, file.number("moe_intermediate_size")
    for at, kind in enumerate(file.listed("layer_types", default=default)):
        own = [_product(hidden, rank, mixes=True), _divided(rank, heads * each)]
        own += [_divided(heads * each // groups, groups * low)]
        own += [_divided(groups * low, hidden)]
        attended = float(min(window, file.tokens))
        rate = rates.get(kind, 0)
        if kind in usual and not rate:
            raise DataError(f"{file.where}: compress_rates: has none of {shorten(kind)}, which layers use")
        if kind == "heavily_compressed_attention":
            own += [_product(hidden, 2 * each, mixes=True)]
            attended += file.tokens / rate
        elif kind == "compressed_sparse_attention":
            own += [_product(hidden, 4 * each + 4 * scored + scorers, mixes=True)]
            own += [_product(rank, scorers * scored, mixes=True)]
            compressed = file.tokens / rate
            attended += min(compressed, file.number("index_topk"))
            attended += compressed * scorers * scored / (2 * heads * each)
        elif kind != "sliding_attention":
            raise DataError(f"{file.where}: layer_types names {shorten(kind)}, expected attention of DeepSeek-V4")
        sizes = {"key_dim": each, "value_dim": each, "made": each, "attends": max(round(attended), 1)}
        layer = {"kind": kind.partition("_")[0], "heads": heads, "mixer": {**sizes, "output": False}}
        layer |= {"streams": streams, **file.experts(shared=shared)}
        own += _streams(hidden, streams, 2 * streams + streams**2, last=at == layers - 1)
        yield {**layer, "adjoined": own}


def _hy_v4(file: _File) -> Iterator[Layer]:
    """Hunyuan 4: gated latent attention, indexers in every fourth layer, and hyper-connections."""
    hidden, layers = file.hidden, file.layers
    heads, streams = file.heads, file.get("hc_mult") or 4
    usual = ["full" if at == 0 or (at - 1) % 4 == 0 else "shared" for at in range(layers)]
    indexed = file.listed("indexer_types", default=usual)
    for at, routes in enumerate(file.routed()):
        latent = file.latent() | (file.indexer() if indexed[at] == "full" else {})
        gate = heads * file.number("v_head_dim")
        layer = {"heads": heads, "latent": latent, "attention_gate": gate, "streams": streams}
        layer["adjoined"] = _streams(hidden, streams, 2 * streams, last=at == layers - 1)
        yield {"kind": _named(routes, "-indexed" * (indexed[at] == "full")), **layer, **file.part(routes)}


def _axk2(file: _File) -> Iterator[Layer]:
    """A.X-K2: latent attention with an indexer, a gate made with the queries, and gated norms."""
    hidden, heads = file.hidden, file.heads
    rank, gated = file.number("q_lora_rank"), file.get("gated_norm_rank") or 0
    latent = file.latent() | file.indexer()
    key = latent["qk_nope_head_dim"] + latent["qk_rope_head_dim"]
    # A matrix from 2 rank columns makes queries and gate; LatentSpec counts rank x heads key of it.
    made = 2 * (heads * (key + latent["v_head_dim"])) - heads * key
    for routes in file.routed():
        norms = _through(hidden, gated) * (2 if routes else 1) if gated else []
        layer = {"heads": heads, "latent": latent, "adjoined": [_divided(rank, made), *norms]}
        yield {"kind": _named(routes), **layer, **file.part(routes)}


def _dots3(file: _File) -> Iterator[Layer]:
    """Dots 3: latent attention of two shapes, with an indexer or a window, and a gate for every head."""
    listed, stated = file.listed("layer_types"), file.get("per_layer_config")
    file.expect("use_dsa", True)
    # Older files have their windows' sizes under names of their own, and call indexed attention full.
    older = {name: file.get(f"swa_{name}", usual) for name, usual in _DOTS3_SLIDING.items()}
    older["qk_rope_head_dim"] = file.get("swa_qk_rope_head_dim", older["head_dim"] - older["qk_nope_head_dim"])
    for at, (kind, routes) in enumerate(zip(listed, file.routed(), strict=True)):
        sliding = kind == "sliding_attention"
        apart = _apart(stated, at) if isinstance(stated, dict) else older if sliding else {}
        own, indexed = file.over(apart), kind == "indexed_attention" or (stated is None and not sliding)
        latent = own.latent() | (file.indexer() if indexed else {})
        layer = {"heads": own.heads, "latent": latent, "attention_gate": own.heads}
        layer |= own.window(sliding, "sliding_window")
        shared = file.shared_width() * file.number("n_shared_experts", usual=1)
        part = file.experts(shared=shared) if routes else file.dense()
        yield {"kind": _named(routes, f"-{kind.partition('_')[0]}"), **layer, **part}


_DOTS3_SLIDING = {"num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "head_dim": 256}
_DOTS3_SLIDING |= {"qk_nope_head_dim": 192, "v_head_dim": 128}
"""Sizes of Dots 3 in layers with a window, where neither ``per_layer_config`` nor a field states them."""


def _inkling(file: _File) -> Iterator[Layer]:
    """Inkling: learned relative positions, short convolutions, and more key heads in layers with a window."""
    hidden, layers = file.hidden, file.layers
    if file.get("unpadded_vocab_size") not in (None, file.get("vocab_size")):
        words = f"expected vocab_size ({file.get('vocab_size')}), as of the embedding"
        raise DataError(f"{file.where}: unpadded_vocab_size is {file.values['unpadded_vocab_size']}, {words}")
    local = file.get("local_layer_ids")
    local = [at for at in range(layers) if (at + 1) % 6] if local is None else local
    usual = ["hybrid_sliding" if at in local else "hybrid" for at in range(layers)]
    listed = file.listed("layer_types", default=usual)
    named = file.get("mlp_layer_types") or ["sparse"] * layers
    taps = file.number("conv_kernel_size", "sconv_kernel_size", usual=4)
    for kind, part in zip(listed, named, strict=True):
        sliding = kind == "hybrid_sliding"
        layer = file.attention(qk_norm=True)
        layer |= file.stated(_SLIDING) if sliding else {}
        reach = file.number("sliding_window_size") if sliding else file.get("rel_extent") or 1024
        relative = file.number("d_rel", usual=16)
        convolved = 2 * layer["kv_heads"] * (layer["head_dim"] or hidden // layer["heads"])
        own = [_divided(hidden, layer["heads"] * relative), _product(relative, reach, mixes=True)]
        own += [_divided(taps, convolved), _product(taps, 2 * hidden)]
        layer |= file.window(sliding, "sliding_window_size")
        routes = part != "dense"
        layer |= file.part(routes)
        yield {"kind": _named(routes, "-window" * sliding), **layer, "adjoined": own}


def _dory(file: _File) -> list[Layer]:
    """Dory: gated attention, and a middle of layers that runs several times with the same weights."""
    counts = [file.number(f"n_{part}_layers") for part in ("input", "output")]
    layers, listed = file.layers, file.get("layer_types")
    if isinstance(listed, list) and "mlp" in listed:
        listed, layers, counts = listed[::2], layers // 2, [count // 2 for count in counts]
    listed = file.over({"layer_types": listed}).listed("layer_types", entries=layers)
    plain = file.gated_attention()

    def run(first_layer: int, end: int, again: bool) -> Iterator[Layer]:
        for kind in listed[first_layer:end]:
            sliding = kind == "sliding_attention"
            own = plain | file.dense() | file.window(sliding, "sliding_window")
            yield {"kind": _kind(kind, 2) + "-again" * again, **own, "reused": again}

    if sum(counts) > layers:
        raise DataError(
            f"{file.where}: n_input_layers and n_output_layers are {sum(counts)}, expected at most {layers}"
        )
    loops, end = file.number("n_recurrent_loops", usual=1), layers - counts[1]
    repeats = [layer for loop in range(loops) for layer in run(counts[0], end, loop > 0)]
    return [*run(0, counts[0], False), *repeats, *run(end, layers, False)]


def _hrm(file: _File) -> Iterator[Layer]:
    """HRM: cycles of one stack of layers that runs several times, and of another; both have the same weights again."""
    stack = file.number("num_layers_per_stack", "num_hidden_layers")
    layer = {**file.gated_attention(), **file.dense()}
    low = file.number("L_cycles", usual=3)
    for cycle in range(file.number("H_cycles", usual=2)):
        for turn in range(low + 1):
            kind, used = ("high", cycle > 0) if turn == low else ("low", cycle + turn > 0)
            yield from [{**layer, "kind": f"{kind}{'-again' if used else ''}", "reused": used}] * stack


def _qwen4(file: _File) -> Iterator[Layer]:
    """Qwen4-Exp: gated DeltaNet, attention to blocks that an indexer chooses, and hyper-connections of low rank."""
    if file.get("ple_layer_ids"):
        words = "expected no layers with tables of tokens in a row"
        raise DataError(f"{file.where}: ple_layer_ids is {shorten(file.values['ple_layer_ids'])}, {words}")
    hidden, layers = file.hidden, file.layers
    plain, streams = file.attention(), file.number("hc_count", usual=4)
    heads, each = plain["heads"], plain["head_dim"] or hidden // plain["heads"]
    wide, rank = streams * hidden, file.number("hc_lowrank", usual=320)
    period = file.number("full_attention_interval", usual=4)
    usual = ["linear_attention" if (at + 1) % period else "indexed_attention" for at in range(layers)]
    shared = file.number("shared_expert_intermediate_size")
    linear_heads, linear = gated_delta_sizes(file.values, file.where)
    for at, kind in enumerate(file.listed("layer_types", default=usual)):
        mixed = _through(wide, rank)
        own = 2 * [*mixed, _product(wide, streams)] + (mixed if at == layers - 1 else [])
        if kind == "linear_attention":
            layer = {"kind": "linear", "heads": linear_heads, "mixer": linear}
        elif kind in ("indexed_attention", "full_attention"):
            names = ("indexer_n_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")
            scorers, scored, budget, ratio = map(file.number, names)
            attended = min(file.tokens, budget + ratio - 1)
            attended += file.tokens / ratio * scorers * scored / (2 * heads * each)
            sizes = {"key_dim": each, "value_dim": each, "made": 2 * (heads + plain["kv_heads"]) * each}
            layer = {"kind": "indexed", "heads": heads, "mixer": {**sizes, "attends": round(attended)}}
            own = [*own, _product(hidden, (scorers + 1) * scored, mixes=True)]
        else:
            raise DataError(f"{file.where}: layer_types names {shorten(kind)}, expected layers of Qwen4-Exp")
        yield {**layer, **file.experts(shared=shared), "streams": streams, "adjoined": own}


def _doge(file: _File) -> list[Layer]:
    """Doge: attention with a mask that a product makes from the values."""
    if file.get("is_moe"):
        raise DataError(f"{file.where}: is_moe is true, a model of experts without matrices, expected dense layers")
    plain = file.attention(qk_norm=True)
    each = plain["head_dim"] or file.hidden // plain["heads"]
    mask = _product(plain["kv_heads"] * each, plain["kv_heads"], mixes=True)
    layer = {"kind": "block", **plain, **file.dense(), "adjoined": [mask]}
    return [layer] * file.layers


def _zaya(file: _File) -> Iterator[Layer]:
    """ZAYA: attention in compressed channels with convolutions of queries and keys, and a router of several layers."""
    hidden, layers = file.hidden, file.layers
    plain, rank = file.attention(), file.number("router_hidden_size", usual=256)
    each = plain["head_dim"] or hidden // plain["heads"]
    width, times = (plain["heads"] + plain["kv_heads"]) * each, [file.get(f"cca_time{at}") or 2 for at in (0, 1)]
    outputs = file.first("experts") + 1
    own = [_divided(times[0] + each * times[1], width)]
    own += [_product(hidden, rank), _product(rank, 2 * rank + outputs)]
    for kind in file.listed("layer_types", default=["hybrid"] * layers):
        reach = file.window(kind == "hybrid_sliding", "sliding_window")
        yield {"kind": "window" if reach else "block", **plain, **file.experts(), **reach, "adjoined": own}


def _modernbert(file: _File) -> Iterator[Layer]:
    """ModernBERT as a decoder: a window in two of three layers, and a product before the head."""
    hidden, layers = file.hidden, file.layers
    for name in ("attention_bias", "mlp_bias"):
        if file.get(name):
            raise DataError(f"{file.where}: {name} is true, expected products without biases")
    period = file.get("global_attn_every_n_layers") or 3
    for at, kind in enumerate(file.windows(at % period for at in range(layers))):
        layer = {**file.attention(), **file.dense()}
        layer |= file.window(kind == "sliding_attention", "sliding_window", "local_attention")
        layer["adjoined"] = [_product(hidden, hidden)] if at == layers - 1 else []
        yield {"kind": _kind(kind, 2), **layer}


def _hunyuan(file: _File) -> list[Layer]:
    """Hunyuan-Large: experts with a shared one, and keys and values that every second layer takes from the first."""
    factor = file.number("cla_share_factor", usual=2) if file.get("use_cla") else 1
    shared = int(bool(file.get("use_mixed_mlp_moe"))) * (file.first("shared") or 1)
    width = file.number("moe_intermediate_size", "intermediate_size")
    routes = (file.first("experts") or 1) > 1
    part = file.experts(shared=shared * width) if routes else file.dense()
    plain = {**file.attention(), **part, "qk_norm": bool(file.get("use_qk_norm"))}
    own, taken = {"kind": "block", **plain}, {"kind": "shared", **plain, "kv_matrices": 0}
    return [taken if at % factor else own for at in range(file.layers)]


def _minimax_m3(file: _File) -> Iterator[Layer]:
    """MiniMax-M3: attention to blocks that an indexer chooses, in all but the first layers, and experts."""
    hidden, layers = file.hidden, file.layers
    apart = file.get("sparse_attention_config") or {}
    names = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim"}
    names |= {"index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks"}
    names |= {"index_local_blocks": "sparse_local_block"}
    stated = file.over({ours: apart[theirs] for ours, theirs in names.items() if theirs in apart})
    scorers, scored, block, top, local = map(stated.number, names)
    marks = replace(file, values=apart).listed("sparse_attention_freq", default=[0] * layers, entries=layers)
    usual = ["minimax_m3_sparse" if mark else "full_attention" for mark in marks]
    listed = file.listed("layer_types", default=usual)
    if not file.get("mlp_layer_types"):
        freq = file.get("moe_layer_freq")
        marks = freq if isinstance(freq, list) else [1] * layers
        stated = stated.over({"mlp_layer_types": ["sparse" if mark else "dense" for mark in marks]})
    heads = file.heads
    kv_heads = file.number("num_key_value_heads", usual=heads)
    each = file.number("head_dim", usual=hidden // heads)
    plain = {"heads": heads, "kv_heads": kv_heads, "head_dim": each, "qk_norm": True}
    attended = min(file.tokens, (top + local) * block) + file.tokens * scorers * scored / (2 * heads * each)
    sizes = {"key_dim": each, "value_dim": each, "made": (heads + 2 * kv_heads) * each, "attends": round(attended)}
    sparse = {"heads": heads, "mixer": sizes, "adjoined": [_product(hidden, (scorers + 1) * scored, mixes=True)]}
    width = file.first("dense_width") or file.first("ffn_hidden")
    for kind, routes in zip(listed, stated.routed(), strict=True):
        layer = sparse if kind == "minimax_m3_sparse" else plain
        part = file.experts(shared=file.shared_width()) if routes else {"ffn_hidden": width}
        yield {"kind": _named(routes, "-indexed" * (layer is sparse)), **layer, **part}


def _jetmoe(file: _File) -> list[Layer]:
    """JetMoE: attention experts, each with queries and outputs of its own on shared keys and values; and experts."""
    hidden, count = file.hidden, file.number(*NAMES["experts"])
    chosen, kv_heads = file.number(*NAMES["chosen"]), file.number("num_key_value_heads")
    each, width = file.number("kv_channels"), file.number("intermediate_size", "ffn_hidden_size")
    own = {"num_experts": count, "experts_per_token": chosen, "expert_ffn_hidden": width}
    others = {**_divided(hidden, 2 * (count - chosen) * kv_heads * each), "idle": True}
    layer = {"heads": chosen * kv_heads, "kv_heads": kv_heads, "head_dim": each, "experts": own}
    return [{"kind": "block", **layer, "adjoined": [others]}] * file.layers


def _arctic(file: _File) -> Iterator[Layer]:
    """Arctic: experts beside a dense part of the hidden size, which is read as a shared expert."""
    period = file.number("moe_layer_frequency", usual=1)
    shared = file.hidden if file.get("parallel_attn_mlp_res", True) else 0
    for at in range(file.layers):
        routes = (at + 1) % period == 0
        part = file.experts(shared=shared) if routes else file.dense()
        yield {"kind": _named(routes), **file.attention(), **part}


def _listed_experts(file: _File) -> list[bool]:
    """Whether each layer has experts, by a text that lists the numbers of those layers."""
    stated = file.get("moe_layers_enum")
    if stated is None:
        raise DataError(f"{file.where}: moe_layers_enum: missing, expected the numbers of the layers with experts")
    said = [each.strip() for each in str(stated).strip("[]() ").split(",") if each.strip()]
    if not all(map(str.isdecimal, said)):
        raise DataError(f"{file.where}: moe_layers_enum: is {shorten(stated)}, expected numbers such as 3,4,5")
    numbers = set(map(int, said))
    return [at in numbers for at in range(file.layers)]


def _step3(file: _File) -> Iterator[Layer]:
    """Step-3: queries of low rank, one group of keys and values, experts with a shared one."""
    hidden, heads = file.hidden, file.heads
    each, rank = file.number("head_dim"), file.number("share_q_dim")
    groups = file.number("num_attention_groups", usual=1)
    sizes = {"key_dim": each, "value_dim": each, "made": 2 * groups * each, "attends": file.tokens}
    own = [_product(hidden, rank, mixes=True), _divided(rank, heads * each)]
    layer, shared = {"heads": heads, "mixer": sizes, "adjoined": own}, file.get("share_expert_dim") or 0
    for routes in _listed_experts(file):
        part = file.experts(shared=shared) if routes else file.dense()
        yield {"kind": _named(routes), **layer, **part}


def _step35(file: _File) -> Iterator[Layer]:
    """Step-3.5 and 3.7: more heads in layers with a window, a gate for every head, experts with a shared one."""
    routed = file.routed() if file.get("moe_layers_enum") is None else _listed_experts(file)
    listed = file.over({"layer_types": (file.get("layer_types") or [])[: file.layers]}).listed("layer_types")
    more = file.get("num_sliding_attention_heads")
    other = file.get("attention_other_setting") or ({"num_attention_heads": more} if more else None)
    for kind, routes in zip(listed, routed, strict=True):
        sliding = kind == "sliding_attention"
        layer = file.attention(qk_norm=bool(file.get("use_qk_norm", True)))
        if sliding and isinstance(other, dict):
            names = {"heads": "num_attention_heads", "kv_heads": "num_attention_groups", "head_dim": "head_dim"}
            layer |= replace(file, values=other).stated(names)
        gated = file.get("use_head_wise_attn_gate", more is not None)
        layer |= {"attention_gate": layer["heads"]} if gated else {}
        layer |= file.window(sliding, "sliding_window")
        shared = file.first("shared_width") or 0
        layer |= file.experts(shared=shared) if routes else file.dense()
        yield {"kind": _named(routes, "-window" * sliding), **layer}


PARTS: dict[str, Callable[[_File], Iterable[Layer]]] = {
    "nemotron_h": _nemotron_h,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    **dict.fromkeys(("mamba", "falcon_mamba"), _mamba1_alone),
    "mamba2": _mamba2_alone,
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
    **dict.fromkeys(("hy_v4", "hy_v4_vl_text"), _hy_v4),
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
"""Readers of layers by ``model_type``."""
_UNGATED = ("nemotron_h", "rwkv")
"""Types whose feed-forward parts have no gate; no layer of theirs has dropout."""


def layers_of_parts(values: Mapping[str, Any], where: str, tokens: int) -> dict[str, Any]:
    """Fields of ``ModelSpec`` of a type in ``PARTS``, with Gemma's further embedding; ``DataError`` for wrong sizes."""
    family, file = str(values["model_type"]), _File(values, where, tokens)
    hidden = file.number("hidden_size", "d_model", "embedding_dim")
    base = {"hidden": hidden, "seq": tokens, "gated_mlp": family not in _UNGATED}
    base |= {} if base["gated_mlp"] else {"dropout": False}
    found: list[Layer] = []
    kinds: dict[str, Layer] = {}
    for layer in PARTS[family](file):
        shape = _with_base({name: value for name, value in layer.items() if name != "kind"}, base)
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
        rows = file.number("vocab_size_per_layer_input", "vocab_size")
        own["further_embedding"] = rows * each * sum(layer["count"] for layer in found)
    if family == "nemotron_h":
        own |= _further_of_nemotron(file, kinds)
    return own


def _with_base(layer: Layer, base: Layer) -> Layer:
    """A layer, and what stands beside it, with the sizes that all layers have."""
    found = {**base, **{name: value for name, value in layer.items() if value is not None}}
    if "beside" in found:
        found["beside"] = _with_base(found["beside"], base)
    return found
