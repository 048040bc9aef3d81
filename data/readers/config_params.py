r"""
Model files beside a ``config.json``: ``params.json`` of Llama and Mistral, and what DeepSeek's and OpenAI's code reads.

They state no ``model_type``. All but OpenAI's have names of their own, and gated feed-forward parts; experts of
Mistral's models stand in a section ``moe``. Llama's files state no width of feed-forward parts. With h the hidden size,
m the ``multiple_of`` and x the ``ffn_dim_multiplier`` (llama/model.py of meta-llama/llama) it is

(1) :math:`m \lceil \lfloor x \lfloor 8 h / 3 \rfloor \rfloor / m \rceil`.
"""

from collections.abc import Mapping
from typing import Any

from taut.data.spec import shorten
from taut.errors import DataError

_NAMES = {
    "dim": "hidden_size",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "inter_dim": "intermediate_size",
    "moe_inter_dim": "moe_intermediate_size",
    "n_dense_layers": "first_k_dense_replace",
    "n_activated_experts": "num_experts_per_tok",
    "n_expert_groups": "n_group",
    "n_limited_groups": "topk_group",
    "tied_embeddings": "tie_word_embeddings",
}
"""What these files call fields of a ``config.json``; names such as ``n_layers`` are known there too."""
_OF_EXPERTS = {
    **{"expert_hidden_dim": "moe_intermediate_size", "route_every_n": "moe_layer_freq"},
    **{"num_expert_groups": "n_group", "num_expert_groups_per_tok": "topk_group"},
}
_UNUSED = ("expert_parallel", "expert_model_parallel")
"""Degrees with which a model is run."""
_GPT_OSS = frozenset(("experts_per_token", "initial_context_length", "swiglu_limit"))
"""Fields of OpenAI's files, whose other names are those of a ``config.json``."""


def of_params(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values as a ``config.json`` has them, if the file is one of these, else as they are."""
    if values.get("model_type") is None and values.keys() >= _GPT_OSS:
        return {"model_type": "gpt_oss", **{name: value for name, value in values.items() if name != "model_type"}}
    if values.get("model_type") is not None or not {"dim", "n_layers", "n_heads"} <= values.keys():
        return dict(values)
    section: Any = values.get("moe") or {}
    if not isinstance(section, Mapping):
        raise DataError(f"{where}: moe is {shorten(section)}, expected a section")
    found = {_NAMES.get(name, name): value for name, value in values.items() if name != "moe"}
    found |= {_OF_EXPERTS.get(str(name), str(name)): each for name, each in section.items() if name not in _UNUSED}
    if found.get("intermediate_size") is None:
        found["intermediate_size"] = _llama_width(values, where)
    for name in ("multiple_of", "ffn_dim_multiplier"):
        found.pop(name, None)
    return found | {"hidden_act": "silu"}


def _llama_width(values: Mapping[str, Any], where: str) -> int:
    """Width of Llama's feed-forward parts, (1)."""
    hidden, multiple, factor = (values.get(name, 1) for name in ("dim", "multiple_of", "ffn_dim_multiplier"))
    factor = 1 if factor is None else factor
    if "multiple_of" not in values or not all(_is_number(each) for each in (hidden, multiple, factor)):
        raise DataError(f"{where}: hidden_dim: missing, expected it, or multiple_of of Llama's params.json")
    return int(multiple) * -(-int(factor * int(8 * hidden / 3)) // int(multiple))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-6 < value < 1e9
