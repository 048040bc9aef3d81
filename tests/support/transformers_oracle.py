"""
What transformers builds from a file, beside what taut reads from it.

Every causal type of transformers is built on PyTorch's meta device, where no parameter takes memory, from the
configuration that its class makes by default and from small changes of it. The parameters of the language model are
summed in all and by part. Parts are matrices alone; norms and biases count in all.

``python -m tests.support.transformers_oracle`` prints a line for every case; with ``table`` the page of the docs.
"""

import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from taut.data.model import ModelSpec
from taut.data.readers.config_families import REFUSED
from taut.data.readers.huggingface import read_config
from taut.errors import DataError

TOLERANCE = 1e-3
PARTS = ("total", "embedding", "attention", "experts", "shared", "head")
_BESIDE = re.compile(r"vision|audio|image|img|visual|projector|vqmodel|codec|patch|embed_tokens_extend")
_BIAS_OF_WORDS = re.compile(rf"{_BESIDE.pattern}|^(lm_head|decoder)\.bias$")
"""With the bias of a head, above one in a thousand of narrow models with many words; taut counts none."""
_NAMES = {
    "head": re.compile(r"^lm_head\.(?!dense)|^embed_out|^output_projection|^head\.|^decoder\.weight"),
    "shared": re.compile(r"shared_expert|shared_mlp|residual_mlp"),
    "experts": re.compile(r"(?<!self_attention\.)experts\.|moe\.(in|out)put_linear|mlp\.(in|out)put_linear"),
    "embedding": re.compile(
        r"embed_tokens|wte|wpe|word_embeddings|embed_positions|tok_embeddings|input_embedding|segment_embedding|"
        r"embed_in|tokens_embed|positions_embed|transformer\.w\.weight|embeddings\.weight"
    ),
    "attention": re.compile(
        r"attn(?!_hc|_hyper)|attention(?!_input|_convolution|_layernorm)|self_att\b|self_att\.|mamba|\.conv\.|temporal_block|mlstm|"
        r"(?<!connection_)mixer(?!\.(up_proj|down_proj|fc\d_latent|experts))"
    ),
}
_LANGUAGE = re.compile(
    r"^(?!.*(vision|visual|audio|talker|code2wav|token2wav|gen_|merger|aligner|projector)).*"
    r"(language_model|text_model|lm_head|thinker\.model|decoder|^model\.(layers|embed_tokens|norm))"
)
"""Parameters of the language model of a type that wraps one."""
_NEVER_USED = re.compile(r"experts\.gate_up_proj")
_ROUTER = re.compile(r"router|(?<![a-z_])gate\.weight|classifier|shared_expert_gate|gate\.wg")
_REQUIRED = frozenset(
    (
        *("model_type", "hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        *("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "vocab_size", "seq_length"),
        *("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length"),
    )
)


class Case(NamedTuple):
    """A configuration: its type, what was changed, and the file with every field, or without what is usual."""

    family: str
    change: str
    values: dict[str, Any]
    parts: dict[str, int]


class Outcome(NamedTuple):
    """What taut made of a case: ``read``, ``refused`` or ``misread``, and in which words."""

    case: Case
    kind: str
    words: str


def types() -> list[str]:
    """Causal types that this release of transformers has."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def cases(family: str) -> Iterator[Case]:
    """The default configuration of a type and small changes of it; what its class refuses is left out."""
    from transformers import CONFIG_MAPPING

    config_class, needed = CONFIG_MAPPING[family], _NEEDED.get(family, {})
    changes: dict[str, dict[str, Any]] = {"as it is": needed}
    try:
        usual = config_class(**needed)
        heads, kv_heads, experts = (getattr(usual, name, None) for name in _CHANGED)
    except Exception:  # The class has no default, or layers of several shapes; nothing small to change.
        usual, heads, kv_heads, experts = None, None, None, None
    base: dict[str, Any] = {} if usual is None or _is_nested(usual) else {**needed, "num_hidden_layers": 4}
    if base:
        changes["4 layers"] = base
        if isinstance(heads, int) and isinstance(kv_heads, int) and not getattr(usual, "kv_lora_rank", None):
            changes["grouped heads"] = {**base, "num_key_value_heads": max(heads // 4, 1)}
        tied = bool(getattr(usual, "tie_word_embeddings", False))
        changes["untied" if tied else "tied"] = {**base, "tie_word_embeddings": not tied}
        if isinstance(experts, int) and experts > 8:
            changes["half the experts"] = {**base, "num_local_experts": experts // 2}
        changes |= {words: {**base, **change} for words, change in _other_sizes(usual)}
    for words, change in changes.items():
        try:
            config = config_class(**change)
            parts = _parts_of(config)
        except Exception:  # The class refuses the change, or its model cannot be built without a device.
            continue
        full = json.loads(json.dumps(config.to_dict(), default=str))
        yield Case(family, words, full, parts)
        if change and words == "4 layers":
            yield Case(family, f"{words}, usual fields left out", _without_usual(full, config_class), parts)
            listed = {name: value for name, value in full.items() if name not in _LISTS}
            yield Case(family, f"{words}, without lists of layers", listed, parts)


def field_cases(family: str) -> Iterator[Case]:
    """
    A small configuration of a type with one field changed, in a file with every field and in one with few.

    Types that wrap a language model are left out: theirs is a type of its own. What the class refuses is left out too.
    """
    from transformers import CONFIG_MAPPING, PretrainedConfig

    config_class, needed = CONFIG_MAPPING[family], _NEEDED.get(family, {})
    base, built = dict[str, Any](), dict[str, dict[str, int]]()

    def case(words: str, values: dict[str, Any]) -> Case | None:
        try:
            config = config_class.from_dict(json.loads(json.dumps(values)))
            same = json.dumps(config.to_dict(), default=str, sort_keys=True)
            if same not in built:
                built[same] = _parts_of(config, beside=_BIAS_OF_WORDS)
        except Exception:
            return None
        return Case(family, words, values, built[same])

    for few in ({"num_hidden_layers": 4}, {"num_hidden_layers": 12}, {}):
        try:
            config = config_class(**{**needed, **few})
        except Exception:
            continue
        base = json.loads(json.dumps(config.to_dict(), default=str))
        if _is_nested(config) and "hidden_size" not in base:
            return
        found = case("as it is", base)
        if found is not None and outcome(found).kind == "read":
            break
    else:
        return
    sparse = {name: value for name, value in base.items() if name in _REQUIRED} | needed
    of_all = {"model_type", *PretrainedConfig().to_dict()} - {"tie_word_embeddings"}
    for name in (name for name in base if name not in of_all):
        for value in _other_values(name, base.get(name)):
            for kind, values in (("", base), (" in a file of few fields", sparse)):
                if (found := case(f"{name} {value!s:.60}{kind}", {**values, name: value})) is not None:
                    yield found


_WORDS = {"gating": ("per-head", "per-element"), "sliding_window_pattern": ("LG",), "weight_mode": ("fused",)}
_WORDS |= dict.fromkeys(("mamba_d_head", "mamba_dt_rank", "time_step_rank"), ("auto",))
"""Words that fields take beside numbers."""


def _other_values(name: str, value: Any) -> Iterator[Any]:
    """Other values of a field: more, fewer, the other truth, a list turned, of one entry again and again, or empty."""
    yield from _WORDS.get(name, ())
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from {2 * value, value + 1, value // 2} - {value} if value else (1, 2, 64)
    elif isinstance(value, float):
        yield 2 * value
    elif value is None:
        yield from (True, 2, 64)
    elif isinstance(value, list):
        doubled = [2 * each for each in value] if all(isinstance(each, int) for each in value) else value
        turned = [value[::-1], *([each] * len(value) for each in value[:1] + value[-1:]), doubled, [], [0], [1]]
        yield from (other for at, other in enumerate(turned) if other != value and other not in turned[:at])
    elif isinstance(value, dict) and not re.search(rf"^rope|decoder|{_BESIDE.pattern}", name):
        for inner, own in value.items():
            yield from ({**value, inner: other} for other in _other_values(inner, own))


_INDEXER: dict[str, Any] = {"indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 128}
_INDEXER |= {"indexer_budget": 2048, "indexer_compress_ratio": 16}
_INDEXER["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_NEEDED: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 32, "n_shared_experts": 2, "num_experts_per_tok": 4, "first_k_dense_replace": 1},
    "glm4_moe": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128, "num_key_value_heads": 8},
    "hunyuan_v1_moe": {"head_dim": 128, "num_key_value_heads": 8, "num_experts": 16, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8, "num_hidden_layers": 32},
    "ministral": {"head_dim": 128},
    "qwen4_exp": {"text_config": _INDEXER},
    "qwen4_exp_text": _INDEXER,
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
}
"""What a type's configuration must state, because its class builds no model from its own defaults."""
_LISTS = ("layer_types", "mlp_layer_types", "layers_block_type")
_CHANGED = ("num_attention_heads", "num_key_value_heads", "num_local_experts")


def _other_sizes(usual: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Changes of single fields that a type's configuration has: activations, widths, experts, dense layers."""
    stated = usual.to_dict()
    for name in ("hidden_act", "hidden_activation", "activation_function"):
        if name in stated:
            yield f"{name} changed", {name: "gelu" if stated[name] == "silu" else "silu"}
    for name in ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "head_dim"):
        if isinstance(stated.get(name), int) and stated[name]:
            yield f"{name} doubled", {name: 2 * stated[name]}
    for name in ("n_shared_experts", "num_shared_experts", "shared_intermediate_size"):
        if isinstance(stated.get(name), int):
            yield f"{name} changed", {name: stated[name] * 3 if stated[name] else 1024 if "size" in name else 1}
    for name in ("first_k_dense_replace", "decoder_sparse_step", "num_dense_layers", "moe_layer_start_index"):
        if isinstance(stated.get(name), int):
            yield f"{name} 2", {name: 2}
    for name in (
        "attention_bias",
        "mlp_bias",
        "use_qk_norm",
        "use_bias",
        "qk_layernorm",
        "multi_query",
        "parallel_attn",
    ):
        if isinstance(stated.get(name), bool):
            yield f"{name} changed", {name: not stated[name]}


def _is_nested(config: Any) -> bool:
    return any(isinstance(value, dict) and "vocab_size" in value for value in config.to_dict().values())


def _without_usual(values: Mapping[str, Any], config_class: Any) -> dict[str, Any]:
    """A file without optional fields that have the default of its class, as files are published."""
    usual = {name: getattr(config_class, name, None) for name in values}
    return {name: value for name, value in values.items() if name in _REQUIRED or value != usual[name]}


def _parts_of(config: Any, beside: re.Pattern[str] = _BESIDE) -> dict[str, int]:
    """Parameters of the language model in all and by part, without those whose names are ``beside``."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    found, seen = dict.fromkeys(PARTS, 0), set[int]()
    has_idle = bool(getattr(config, "zero_expert_num", 0))
    for name, parameter in model.named_parameters():
        if id(parameter) in seen or beside.search(name):
            continue
        seen.add(id(parameter))
        numbers = parameter.numel()
        if has_idle and _NEVER_USED.search(name):
            # The class makes a first product for experts without work too, which it never uses.
            numbers = numbers // parameter.shape[0] * config.n_routed_experts
        found["total"] += numbers
        if parameter.dim() < 2 or _ROUTER.search(name):
            continue
        part = next((part for part, pattern in _NAMES.items() if pattern.search(name)), None)
        if part is not None:
            found[part] += numbers
    return found


def parts_of(model: ModelSpec) -> dict[str, int]:
    """Parameters that taut counts, in all and by part."""
    every = [part for layer in model.blocks for part in layer.together]
    table = (model.vocab or 0) * model.blocks[0].hidden
    shared = [
        layer.ffn_matrices * layer.hidden * layer.experts.shared_ffn_hidden for layer in model.blocks if layer.experts
    ]
    return {
        "total": model.parameters(),
        "embedding": table + model.position_parameters,
        "attention": sum(part.attention_parameters() for part in every if not part.reused),
        "experts": sum(layer.routed_parameters for layer in model.blocks),
        "shared": sum(shared),
        "head": 0 if model.tied_embedding else table,
    }


def outcome(case: Case) -> Outcome:
    """What taut makes of a case."""
    try:
        model = _read(case.values, 512)
    except DataError as error:
        return Outcome(case, "refused", str(error).partition("config.json: ")[2])
    counted = parts_of(model)
    off = {part: counted[part] / case.parts[part] - 1 if case.parts[part] else float(counted[part]) for part in PARTS}
    wrong = [f"{part} {100 * error:+.2f} %" for part, error in off.items() if abs(error) > TOLERANCE]
    return Outcome(case, "misread" if wrong else "read", ", ".join(wrong))


def windows() -> Iterator[tuple[str, list[bool], list[bool]]]:
    """Types that list their layers, with the layers that have a window in the class and in what taut reads."""
    from transformers import CONFIG_MAPPING

    for family in types():
        try:
            values = json.loads(json.dumps(CONFIG_MAPPING[family](**_NEEDED.get(family, {})).to_dict(), default=str))
            listed = values["layer_types"]
            model = _read({name: value for name, value in values.items() if name not in _LISTS}, 10**6)
        except Exception:  # No default, no list, or refused.
            continue
        stated = [kind in ("sliding_attention", "chunked_attention", "hybrid_sliding") for kind in listed]
        read = [layer.attention_window is not None for layer in model.blocks]
        # Patterns without a period are priced as attention to every token, and said.
        if any(read) or not any(stated) or values.get("use_sliding_window") is False:
            yield family, stated, read


def wrappers() -> Iterator[tuple[str, str]]:
    """
    Types that wrap a language model for images or sound, as they are, with what taut makes of them.

    ``read`` if the parameters are those of the class's language model within ``TOLERANCE``, else why not.
    """
    import torch
    import transformers
    from transformers.models.auto import modeling_auto

    named = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    for family, name in named.items():
        if family in types():
            continue
        try:
            config = transformers.CONFIG_MAPPING[family]()
            with torch.device("meta"):
                model = getattr(transformers, name)(config)
            model.tie_weights()
        except Exception:  # The class has no default of its own, or cannot be built without further packages.
            continue
        own = {id(each): each.numel() for part, each in model.named_parameters() if _LANGUAGE.search(part)}
        values = json.loads(json.dumps(config.to_dict(), default=str))
        try:
            off = _read(values, 512).parameters() / max(sum(own.values()), 1) - 1
        except DataError as error:
            yield family, f"refused: {str(error).partition('config.json: ')[2]}"
            continue
        yield family, "read" if abs(off) <= TOLERANCE else f"{100 * off:+.2f} %"


def _read(values: Mapping[str, Any], tokens: int) -> ModelSpec:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        return read_config(path, seq=tokens)


def outcomes(of: Callable[[str], Iterator[Case]] = cases, families: Iterable[str] | None = None) -> Iterator[Outcome]:
    """Outcomes of all cases of some types, or of all."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in types() if families is None else families:
            yield from (outcome(case) for case in of(family))


def table() -> str:
    """The page of the docs: which types are read, and which refused and why."""
    kinds: dict[str, dict[str, str]] = {}
    for found in outcomes():
        kinds.setdefault(found.case.family, {}).setdefault(found.kind, found.words)
    read, misread = ([name for name, of in kinds.items() if kind in of] for kind in ("read", "misread"))
    reasons: dict[str, list[str]] = {}
    for family in types():
        if family not in read:
            known = next((words for words, families in REFUSED.items() if family in families), "")
            said = kinds.get(family, {}).get("refused", "read by its fields, as its class builds no model here")
            reasons.setdefault(known or said.partition(", expected")[0], []).append(family)
    lines = [
        f"| read within 0.1 % | {len(read)} | {', '.join(read)} |",
        *(f"| refused: {words} | {len(names)} | {', '.join(names)} |" for words, names in reasons.items()),
        f"| misread | {len(misread)} | {', '.join(misread)} |",
    ]
    return "\n".join(["| outcome | types | by name |", "|---|---|---|", *lines])


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        sys.stdout.write(table() + "\n")
    else:
        for found in outcomes():
            sys.stdout.write(f"{found.kind:8} {found.case.family}, {found.case.change}: {found.words}\n")
