"""
Which layers of a Hugging Face file attend to a window or have experts, and the sizes of experts and latent attention.

Windows stand as ``sliding_window`` or ``attention_chunk_size`` (Llama 4), for all layers or for all but every n-th:
``layer_types`` names every layer, ``sliding_window_pattern`` states n, and families without either have their own.
Experts stand under several names; ``_COUNT`` to ``_GROUPS`` list them. Groups that a router keeps to are left out where
the file says that it takes the best experts of all (``topk_method`` greedy in DeepSeek-V2-Lite). A pattern that is not
one of ``taut.data.model`` (1) and (2) is refused for experts, and for windows priced as attention to every token.
"""

from collections.abc import Mapping
from typing import Any

from taut.data.layers.sizes import MOST_LAYERS
from taut.data.spec import shorten
from taut.errors import DataError

_COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
_WIDTH = ("moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_GROUPS, _KEPT = ("n_group", "num_expert_group"), ("topk_group",)
_FIRST = ("first_k_dense_replace", "moe_layer_start_index")
_PERIOD = ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval")
_FULL_PERIOD = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "llama4_text": 4}
"""Every how many layers a family attends to all tokens, where its file does not say."""
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def windows(values: Mapping[str, Any], layers: Any, tokens: Any) -> tuple[dict[str, Any], str]:
    """
    Fields of a model whose layers attend to windows.

    ``layers``, ``tokens``: layers, and tokens of a sequence, if the file states numbers. Returns fields of
    ``ModelSpec``, none where every layer attends to every token; and what is priced as something else.
    """
    window: Any = values.get("sliding_window")
    window = values.get("attention_chunk_size") if window is None else window
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
    named = values.get("layer_types")
    if isinstance(named, list) and len(named) == layers:
        return [kind == "full_attention" for kind in named]
    first = values.get("max_window_layers")
    if isinstance(first, int) and values.get("use_sliding_window"):
        return [layer < first for layer in range(layers)]
    period = values.get("sliding_window_pattern") or _FULL_PERIOD.get(str(values.get("model_type")))
    return [isinstance(period, int) and (layer + 1) % period == 0 for layer in range(layers)]


def experts(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """
    Fields of a model with experts.

    ``where``: the file, for messages. Returns fields of ``ModelSpec``, none of a dense model. Raises ``DataError`` if a
    size is missing, or no rule says which layers have experts.
    """
    if isinstance(apart := values.get("ffn_config"), dict):
        values = {**values, **apart}
    count = _first(values, _COUNT)
    if count in (None, 0, 1):
        return {}
    width = _first(values, _WIDTH)
    llama4 = values.get("intermediate_size_mlp")
    shared = values.get("shared_expert_intermediate_size")
    if shared is None:
        number = _first(values, _SHARED) or (0 if llama4 is None else 1)
        shared = number * width if isinstance(number, int) and isinstance(width, int) else number
    chosen = {"num_experts": count, "experts_per_token": _first(values, _CHOSEN), "expert_ffn_hidden": width}
    for name, names in (("experts_per_token", _CHOSEN), ("expert_ffn_hidden", _WIDTH)):
        if chosen[name] is None:
            raise DataError(f"{where}: {names[0]}: missing, expected a value with {shorten(count)} experts")
    dense = {} if llama4 is None else {"ffn_hidden": llama4}
    biased = {"biased": True} if values.get("model_type") == "gpt_oss" else {}
    chosen |= {"shared_ffn_hidden": shared, **biased, **_groups(values)}
    return {"experts": chosen, **dense, **_places(values, where)}


def _groups(values: Mapping[str, Any]) -> dict[str, Any]:
    """Groups of experts and those that a token keeps to, where the router has some."""
    groups, kept = _first(values, _GROUPS), _first(values, _KEPT)
    unused = values.get("topk_method") == "greedy" or values.get("use_grouped_topk") is False
    if groups in (None, 0, 1) or kept in (None, 0, groups) or unused:
        return {}
    return {"router_num_groups": groups, "router_group_topk": kept}


def _places(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Which layers have experts."""
    first, listed = _first(values, _FIRST) or 0, values.get("mlp_only_layers") or []
    if listed:
        if not isinstance(listed, list) or listed != list(range(len(listed))):
            words = "expected the first layers, or none"
            raise DataError(f"{where}: mlp_only_layers is {shorten(listed)}, {words}")
        first = len(listed)
    period = _first(values, _PERIOD) or 1
    return {"dense_layers": first, "expert_period": period}


def latent(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a model with latent attention, none of one with plain attention."""
    if not values.get("kv_lora_rank"):
        return {}
    sizes = {name: values[name] for name in _LATENT if values.get(name) is not None}
    return {"latent": sizes, "kv_heads": None, "head_dim": None}


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)
