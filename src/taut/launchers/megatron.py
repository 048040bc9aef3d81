"""
Megatron-LM's words as values of a configuration: flags, however their launcher writes them.

What is not written is Megatron-LM's default: degrees of 1, experts on all tensor ranks, a gather of all tokens of
expert ranks, no distributed optimizer, no recompute, even stages. Of every flag one of these holds:

(1) it is read (``READ``);
(2) it says nothing of memory and time: data, learning rate, logs, checkpoints (``SILENT``);
(3) it states the model's shape, and is named where the model has another (``SHAPE``);
(4) it is named as priced the way a calibration's runs had it (``MEASURED``);
(5) it is named as not priced.

Where the model is known, the line is held to Megatron-LM's own rules (``taut.launchers.megatron_rules``).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, takewhile
from typing import Any

from taut.data.catalog.builtin import catalog_memory_models
from taut.data.loss import LOSSES
from taut.data.read import number_or_nan
from taut.errors import DataError
from taut.exports.architecture import (
    CHUNK,
    CHUNKS,
    EMBEDDING,
    FEATURES,
    FIRST,
    FORMAT,
    GROUPS,
    LAST,
    LAYOUT,
    LOSS,
    OVERLAP,
    SCORES,
    TYPE,
    Flags,
    count,
    stated_dispatch,
    stated_division,
)
from taut.launchers.megatron_rules import broken, layers_in
from taut.launchers.settings import DECIDING, Launch, Run, known, unpriced

COUNTS = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "micro_batch": "--micro-batch-size",
}
STRATEGY, COPIES = "--data-parallel-sharding-strategy", "--num-distributed-optimizer-instances"
OFFLOAD = "--optimizer-offload-fraction"
LAYERS_ON_HOSTS = "--cpu-offloading-num-layers"
MODULES, ON_HOSTS = "--recompute-modules", "--offload-modules"
CONTEXTS, SIZES = "--cp-comm-type", "--hierarchical-context-parallel-sizes"
SEVERAL = (MODULES, ON_HOSTS, CONTEXTS, SIZES)
"""Flags of several values."""
IN_NARROW, REUSED = "--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"
FUSION, IMPLEMENTATION = "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl"
OLD_RECOMPUTE = ("--checkpoint-activations", "--activations-checkpoint-method")
"""Flags of Megatron-LM of 2020 and 2021 for recompute of whole layers."""
DEEPSPEED, STAGE = "--deepspeed", "--zero-stage"
CHECKPOINTS, DIVIDED = "--checkpoint-in-cpu", "--partition-activations"
"""Megatron-DeepSpeed's flags for inputs of recomputed layers."""
FINE_GRAINED, SHARE = "--fine-grained-activation-offloading", "--activation-offload-fraction"
SHARDS = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
SHARDING = {"--use-distributed-optimizer", "--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2"}
ULYSSES = "--ds-sequence-parallel-size"
RECIPES = {"tensorwise": "fp8", "delayed": "fp8", "blockwise": "fp8-blockwise", "mxfp8": "mxfp8"}
"""Precisions by the recipe of fp8."""
KINDS, METHOD, EACH = "--recompute-granularity", "--recompute-method", "--recompute-num-layers"
READ = {
    *COUNTS.values(), STRATEGY, COPIES, OFFLOAD, LAYERS_ON_HOSTS, *SEVERAL, CHECKPOINTS, DIVIDED, FINE_GRAINED, SHARE,
    KINDS, METHOD, EACH, TYPE, FORMAT, SCORES, OVERLAP, *GROUPS.values(), LAYOUT, CHUNK, CHUNKS, FIRST, LAST, EMBEDDING,
    LOSS, "--global-batch-size", "--sequence-parallel", "--use-distributed-optimizer", "--use-megatron-fsdp",
    "--use-custom-fsdp", "--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward", "--expert-model-parallel-size",
    "--expert-tensor-parallel-size", "--recompute-activations", "--optimizer-cpu-offload", "--seq-length", "--bf16",
    "--fp16", "--fp8-format", "--fp8-recipe", "--fp4-format", "--grad-reduce-in-bf16", "--mtp-num-layers",
    "--accumulate-allreduce-grads-in-fp32", "--num-layers", "--deepspeed-activation-checkpointing", "--nnodes",
    "--nproc-per-node", "--world-size", FUSION, IMPLEMENTATION, IN_NARROW, REUSED, "--optimizer",
    *OLD_RECOMPUTE, DEEPSPEED, STAGE, "--deepspeed-config",
}  # fmt: skip
OPTIMIZER, BY_RANK, SHARED = "--optimizer", "--muon-tp-mode", "dist_muon"
USUAL = {
    "--accumulate-grad-batches": "1",
    BY_RANK: "duplicated", "--muon-num-ns-steps": "5", "--muon-fp32-matmul-prec": "medium",
    "--muon-scalar-optimizer": "adam", "--muon-coefficient-type": "quintic",
    "--main-params-dtype": "fp32", "--main-grads-dtype": "fp32",
}  # fmt: skip
"""Flags that decide a price, most of them Muon's, with the values that are priced."""
PRECISION_AWARE, MOMENTS = "--use-precision-aware-optimizer", ("--exp-avg-dtype", "--exp-avg-sq-dtype")
REPEATED = "--mtp-use-repeated-layer"
MEASURED = {
    "--tp-comm-overlap", "--overlap-grad-reduce", "--overlap-param-gather", *chain.from_iterable(FEATURES.values()),
}  # fmt: skip
"""Flags of what a calibration's runs had, whose part in the price cannot be told apart."""
UNFUSED = {
    "--transformer-impl": ("transformer_engine", "inference_optimized"),
    "--attention-backend": ("auto", "flash", "fused"),
}
"""Flags that choose kernels, with the values that are priced, the usual one first."""
SILENT = re.compile(f"--(no-)?({'|'.join(known('megatron_flags'))})")
WHATEVER = re.compile(f"--(no-)?({'|'.join(known('silent_flags'))})")
"""Flags without effect whose names may speak of memory or time."""
NEARLY = 0.92
"""Share of characters in common (``difflib``) with which a flag is a misspelt one; 6,000 public files have none."""
ADAPTERS = ("--tuner-type", "--train-type", "--finetuning-type", "--peft-scheme", "--peft-type", "--peft")
SHAPE: dict[str, str] = known("megatron_shape")
TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "none": False, "null": False}
"""Words for whether a switch is on."""
SWITCHES = {*known("megatron_switches")}
"""Flags without a value, which some launchers write with one (``TRUTHS``)."""


RANKS = {kind: f"--{kind}-model-parallel-size" for kind in ("tensor", "pipeline", "expert")} | dict.fromkeys(
    ("context", "ulysses", "sequence"), "--context-parallel-size"
)
"""Megatron-LM's flags of ranks, by words that other frameworks have for them."""
DEGREE = re.compile(
    rf"(?i)--(?:moe-)?({'|'.join(RANKS)})(?:-model|-sequence)?(?:-parall\w*(?:-size|-degree)?|-size|-degree)"
)


def flags_of(words: list[str]) -> Flags:
    """Flags and values of words ``--name value`` or ``--na_me=value``: the last counts; false switches are left out."""
    found: Flags = {}
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        after = words[place + 1] if place + 1 < len(words) else "--"
        if name in SEVERAL and not equals:
            after = " ".join(takewhile(lambda word: not word.startswith("--"), words[place + 1 :])) or "--"
        stated = value if equals else None if after.startswith("--") else after
        stated = stated.strip("'\"") if stated is not None else None
        found.pop(name, None)
        if name not in SWITCHES:
            found[name] = stated
        elif TRUTHS.get(str(stated).lower(), True) or stated is None:
            found[name] = None
    return found


def megatron_launch(flags: Mapping[str, str | None], run: Run, stated: Collection[str] | None = None) -> Launch:
    """What flags say of a run; ``stated``: what the words mention, on or off, where a recipe decides the rest."""
    _check_weights(flags)
    check_adapters(flags)
    if stated is None:
        _check_spelling(flags)
    if count(flags, ULYSSES) > 1:
        words = "sequence ranks of DeepSpeed are none of Megatron-LM, expected 1, or --context-parallel-size"
        raise DataError(f"{ULYSSES} {flags[ULYSSES]}: {words}")
    for flag, value in flags.items():
        degree = DEGREE.fullmatch(flag)
        own = degree and RANKS[degree[1].lower()]
        if own and flag != own and own not in flags and str(value).isdecimal() and int(str(value)) > 1:
            raise DataError(f"{flag} {value}: a degree under a name that is not read, expected {own}")
    if run.model is not None and (rule := next(broken(flags, run), None)):
        raise DataError(f"Megatron-LM refuses it: {rule}")
    values = megatron_values(flags, run)
    if stated is not None:
        deciding = {"zero": SHARDING, "recompute": {KINDS, "--recompute-activations"}}
        values = {name: value for name, value in values.items() if name not in deciding or deciding[name] & set(stated)}
    named = (*_named(flags, run), *(_single_precision(flags) if stated is None else ()))
    return Launch(values, _options(flags), named, frozenset(flags) if stated is None else None)


def megatron_values(flags: Mapping[str, str | None], run: Run) -> dict[str, Any]:
    """What flags say of the strategy: what ``taut.plan`` may fix, with ``layers``, ``copies`` and ``global_batch``."""
    values: dict[str, Any] = {name: count(flags, flag) for name, flag in COUNTS.items()}
    total = layers_in(flags, run)
    chunks, layers = stated_division(flags, values["pp"], total)
    values |= {"vpp": chunks, "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b"}
    if values["cp"] > 1:
        values["cp_comm"] = _context_kind(flags)
    values |= {"sequence_parallel": "--sequence-parallel" in flags and values["tp"] > 1, "zero": _zero(flags)}
    if values["zero"] and (copies := count(flags, COPIES)) > 1:
        values["copies"] = copies
    values["ep"] = count(flags, "--expert-model-parallel-size")
    if values["ep"] > 1:
        values["etp"] = count(flags, "--expert-tensor-parallel-size", values["tp"])
        values |= stated_dispatch(flags)
        values |= {name: count(flags, flag) for name, flag in GROUPS.items() if flag in flags}
    values["recompute"] = _recompute(flags)
    if values["recompute"] == "full" and flags.get(METHOD) == "block":
        values |= _first_layers(count(flags, EACH), total, values, layers)
    if values["recompute"] == "selective" and flags.get(MODULES):
        values["recompute_modules"] = "+".join(str(flags[MODULES]).split())
    values |= _on_hosts(flags, total)
    if layers:
        values["layers"] = "|".join(map(str, layers))
    if "--global-batch-size" in flags:
        values["global_batch"] = count(flags, "--global-batch-size")
    return values


def _context_kind(flags: Mapping[str, str | None]) -> str:
    """How context ranks share attention (``cp_comm``), one kind for all layers."""
    kinds = set((flags.get(CONTEXTS) or "p2p").split())
    if len(kinds) > 1:
        raise DataError(f"{CONTEXTS} {flags[CONTEXTS]}: expected one kind for all layers")
    return kinds.pop()


def _recompute(flags: Mapping[str, str | None]) -> str:
    """The kind of recompute; none as well where method ``block`` recomputes 0 layers."""
    if "--recompute-activations" in flags:
        return "selective"
    if any(flag in flags for flag in OLD_RECOMPUTE):
        return "full"
    kind = flags.get(KINDS) or "none"
    return "none" if kind == "full" and flags.get(METHOD) == "block" and flags.get(EACH) == "0" else kind


def _first_layers(each: int, total: int, values: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """Layers that every chunk recomputes, where some chunk has more."""
    longest = max(layers, default=-(-total // (values["pp"] * values["vpp"])))
    return {"recompute_layers": each} if each < longest or not total else {}


def _on_hosts(flags: Mapping[str, str | None], layers: int) -> dict[str, Any]:
    """What is in the host's memory: optimizer states, activations of layers, of modules, or inputs of whole layers."""
    found: dict[str, Any] = {}
    if "--optimizer-cpu-offload" in flags:
        found["optimizer_offload_fraction"] = _fraction(flags.get(OFFLOAD) or "1", OFFLOAD)
    if flags.get(LAYERS_ON_HOSTS) not in (None, "0"):
        shown = f"{LAYERS_ON_HOSTS} {(moved := count(flags, LAYERS_ON_HOSTS))}"
        if not moved < layers:
            raise DataError(f"{shown}: expected fewer than the model's layers, which --num-layers states")
        found["activation_offload_fraction"] = moved / layers
    if FINE_GRAINED in flags:
        if not flags.get(ON_HOSTS):
            raise DataError(f"{FINE_GRAINED}: expected {ON_HOSTS} with it, such as core_attn attn_proj")
        found["offload_modules"] = "+".join(str(flags[ON_HOSTS]).split())
        found["activation_offload_fraction"] = _fraction(flags.get(SHARE) or "1", SHARE)
    if CHECKPOINTS in flags:
        if DIVIDED in flags:
            raise DataError(f"{DIVIDED} with {CHECKPOINTS}: copies that compute waits for are not priced, expected one")
        found |= {"activation_offload_fraction": 1.0, "recompute": "full"}
    return found


def _fraction(text: str, flag: str) -> float:
    """The share in the host's memory that a flag states."""
    share = number_or_nan(text)
    if not 0 <= share <= 1:
        raise DataError(f"{flag} {text}: expected a share from 0 to 1")
    return share


def _zero(flags: Mapping[str, str | None]) -> int:
    if "--use-torch-fsdp2" in flags:
        return 2 if "--torch-fsdp2-no-reshard-after-forward" in flags else 3
    if DEEPSPEED in flags and STAGE in flags:
        stage = flags[STAGE] or "0"
        if stage not in ("0", "1", "2", "3"):
            raise DataError(f"{STAGE} {stage}: expected 0, 1, 2 or 3")
        # DeepSpeed's optimizer for bf16 shards its states over all replicas (deepspeed/runtime/bf16_optimizer.py).
        return max(int(stage), int("--bf16" in flags))
    if "--use-megatron-fsdp" not in flags and "--use-custom-fsdp" not in flags:
        return int("--use-distributed-optimizer" in flags or flags.get(OPTIMIZER) == SHARED)
    named = flags.get(STRATEGY) or "optim_grads_params"
    if named not in SHARDS:
        raise DataError(f"{STRATEGY} {named}: expected one of {', '.join(SHARDS)}")
    return SHARDS[named]


def _check_weights(flags: Mapping[str, str | None]) -> None:
    """Refuse weights in the host's memory, which nothing prices."""
    for flag in ("--cpu-offloading-weights", "--zero-stage3-offload-param", "--remote-device"):
        if flag in flags and (flags[flag] is None or TRUTHS.get(str(flags[flag]).lower(), True)):
            raise DataError(f"{flag}: weights in the host's memory are not priced, expected none")


def _check_spelling(flags: Mapping[str, str | None]) -> None:
    """Refuse a flag that is nearly one that is read, as Megatron-LM refuses any that it has not."""
    for flag in flags:
        if flag in known_flags() or _is_silent(flag):
            continue
        near = get_close_matches(flag, known_flags() - flags.keys(), n=1, cutoff=NEARLY)
        if near and re.sub(r"\d", "", near[0]) != re.sub(r"\d", "", flag):
            raise DataError(f"{flag}: no flag of Megatron-LM, expected {near[0]}")


def known_flags() -> set[str]:
    """Flags that are read, compared or named as measured."""
    return READ | SHAPE.keys() | MEASURED


def check_adapters(flags: Mapping[str, Any]) -> None:
    """Refuse training of a part of the weights, which nothing prices."""
    kinds = {flag: str(flags[flag]) for flag in ADAPTERS if flags.get(flag) is not None}
    kinds = kinds or {"--lora-rank": "none" if (rank := str(flags.get("--lora-rank") or 0)) in ("0", "-1") else rank}
    for flag, kind in kinds.items():
        if kind.lower() not in ("full", "none", "null", "false", ""):
            words = "training of a part of the weights is not priced, expected full"
            raise DataError(f"{flag} {kind:.60}: {words}")


def _options(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """Options of ``taut.plan`` that flags state: sequence, formats, the loss, layers that predict further tokens."""
    found: dict[str, Any] = {}
    if flags.get("--seq-length"):
        found["seq"] = count(flags, "--seq-length")
    if flags.get("--fp4-format"):
        found["precision"] = "nvfp4"
    elif "--fp8-format" in flags:
        recipe = flags.get("--fp8-recipe") or "delayed"
        if recipe not in RECIPES:
            raise DataError(f"--fp8-recipe {recipe}: expected one of {', '.join(RECIPES)}, which are priced")
        found["precision"] = RECIPES[recipe]
    elif "--fp16" in flags:
        found["precision"] = "fp16"
    if "--grad-reduce-in-bf16" in flags and "--accumulate-allreduce-grads-in-fp32" not in flags:
        found["grad_precision"] = "bf16"
    if FUSION in flags:
        implementation = flags.get(IMPLEMENTATION) or "native"
        if implementation not in LOSSES[1:]:
            raise DataError(f"{IMPLEMENTATION} {implementation}: expected one of {', '.join(LOSSES[1:])}")
        found["fused_loss"] = implementation
    if flags.get(OPTIMIZER) in ("muon", SHARED):
        found["optimizer"] = "muon"
    elif kept := _states(flags):
        found["memory_model"] = catalog_memory_models()["megatron-core"].model_copy(update=kept)
    if flags.get("--mtp-num-layers") not in (None, "0"):
        found["mtp_layers"] = count(flags, "--mtp-num-layers")
    return found


def _states(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """What a precision-aware optimizer on the device keeps: remainders of fp32 weights, and moments in bf16 or fp32."""
    kinds = {flags.get(flag) or "fp32" for flag in MOMENTS}
    if PRECISION_AWARE not in flags or "--optimizer-cpu-offload" in flags or kinds not in ({"bf16"}, {"fp32"}):
        return {}
    return {"weight_remainders": True, "half_moments": kinds == {"bf16"}}


def _named(flags: Mapping[str, str | None], run: Run) -> Iterator[str]:
    """Sentences on flags that are not priced as written, (3) to (5), and on processes that the cluster has not."""
    if as_measured := [flag for flag in flags if flag in MEASURED]:
        yield f"priced as the calibration's runs had them, given or not: {', '.join(as_measured)}"
    known = known_flags()
    if "--optimizer-cpu-offload" in flags:
        known |= {PRECISION_AWARE}  # a condition of states on hosts, and without effect on what the device keeps then
    elif _states(flags) and "memory_model" in _options(flags):
        known |= {PRECISION_AWARE, *MOMENTS}
    known |= {flag for flag, usual in USUAL.items() if flags.get(flag) == usual}
    known |= {REPEATED} if run.model is not None else set()
    yield from unpriced([flag for flag in flags if not (flag in known or _is_silent(flag))])
    optimizer = flags.get(OPTIMIZER) or "adam"
    if optimizer not in ("muon", SHARED) and "adam" not in optimizer:
        yield f"{OPTIMIZER} {optimizer}: priced as adam"
    held = (IN_NARROW, REUSED) if flags.get("--fp8-recipe") == "mxfp8" and _zero(flags) == 1 else (IN_NARROW,)
    if ("--fp8-format" in flags and not all(flag in flags for flag in held)) or "--fp4-format" in flags:
        yield "copies of the weights in a narrow format, up to 2 bytes a parameter beside bf16, are not priced"
    if DEEPSPEED in flags and "--deepspeed-config" in flags:
        yield f"--deepspeed-config {flags['--deepspeed-config']}: not read, its sharding and its host settings neither"
    for flag, usual in UNFUSED.items():
        if (stated := flags.get(flag) or usual[0]) not in usual:
            yield f"{flag} {stated}: priced with fused kernels of Transformer Engine"
    if "--use-tp-pp-dp-mapping" in flags:
        yield "--use-tp-pp-dp-mapping: ranks are priced in the order tensor, context, replicas, stages"
    if "--micro-batch-size" not in flags:
        yield "--micro-batch-size: not stated, 1 is taken"
    if "--tensor-model-parallel-size" in flags and "--expert-tensor-parallel-size" in flags:
        tp, etp = count(flags, "--tensor-model-parallel-size"), count(flags, "--expert-tensor-parallel-size")
        if count(flags, "--expert-model-parallel-size") == 1 and etp != tp and run.model and run.model.has_experts:
            yield f"--expert-tensor-parallel-size {etp} without expert ranks: experts are priced on {tp} tensor ranks"
    if flags.get(KINDS) == "full" and flags.get(METHOD) != "block" and flags.get(EACH) not in (None, "0", "1"):
        yield f"{EACH} {count(flags, EACH)}: every layer is priced as recomputed by itself"
    if run.model is not None:
        yield from _other_shape(flags, run)
    yield from _other_devices(flags, run)


def _single_precision(flags: Mapping[str, str | None]) -> Iterator[str]:
    """A sentence on a whole command that Megatron-LM would run in fp32; DeepSpeed's file may say otherwise."""
    halves = ("--bf16", "--fp16", "--fp8-format", "--fp4-format", DEEPSPEED)
    if {"--num-layers", "--hidden-size"} <= flags.keys() and not any(flag in flags for flag in halves):
        yield "neither --bf16 nor --fp16: Megatron-LM trains in fp32 then, which --precision fp32 prices"


def _is_silent(flag: str) -> bool:
    """Whether a flag says nothing of memory and time, (2)."""
    return bool(WHATEVER.match(flag) or (SILENT.match(flag) and not DECIDING.search(flag)))


def _other_shape(flags: Mapping[str, str | None], run: Run) -> Iterator[str]:
    """Flags of the model's shape that the model has otherwise."""
    assert run.model is not None
    last = run.model.blocks[-1]
    own = {"layers": run.layers, "hidden": last.hidden, "heads": last.heads, "kv_heads": last.key_value_heads}
    if last.experts is not None:
        names = ("num_experts", "experts_per_token", "expert_ffn_hidden", "shared_ffn_hidden")
        own |= {name: getattr(last.experts, name) for name in names}
    else:
        own["ffn"] = last.ffn
    for flag, name in SHAPE.items():
        value = flags.get(flag)
        if value and value.isdecimal() and name in own and int(value) != own[name]:
            yield f"{flag} {value}: {run.model.name} has {own[name]}, which is priced"
    if flags.get("--mtp-num-layers") not in (None, "0", "1") and (REPEATED in flags) != run.model.mtp_repeated:
        given, weights = ("", "layers of its own") if REPEATED in flags else (" not given", "the same layers")
        yield f"{REPEATED}{given}: {run.model.name} has {weights} for each further token, and is priced so"


def _other_devices(flags: Mapping[str, str | None], run: Run) -> Iterator[str]:
    """Processes that a line starts where the cluster has another number of devices."""
    texts = [flags.get(flag) or "" for flag in ("--nnodes", "--nproc-per-node")]
    if run.devices and all(text.isdecimal() for text in texts) and int(texts[0]) * int(texts[1]) != run.devices:
        yield f"{texts[0]} x {texts[1]} processes are started: {run.devices} devices are priced"
