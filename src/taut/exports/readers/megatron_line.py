"""
A command line of Megatron-LM as values of a configuration.

Flags that say nothing of the strategy are passed over, but those of groups of experts that a router keeps to, which
exchanges depend on. Of those that do, what is not written is Megatron-LM's default: degrees of 1, experts on all tensor
ranks, a gather of all tokens of expert ranks, no distributed optimizer, no recompute, even stages.
"""

import shlex
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from taut.errors import DataError
from taut.exports.architecture import GROUPS, Flags, stated_dispatch
from taut.exports.division import count, stated_division

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
"""Flags of several values."""
CHECKPOINTS, DIVIDED = "--checkpoint-in-cpu", "--partition-activations"
"""Megatron-DeepSpeed's flags for inputs of recomputed layers."""
FINE_GRAINED, SHARE = "--fine-grained-activation-offloading", "--activation-offload-fraction"
SHARDS = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def flags_of(text: str) -> Flags:
    """
    Flags and their values of a command line, ``--name value`` or ``--name=value``; of a flag twice the last.

    Raises ``DataError`` if quotes are not closed.
    """
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise DataError(f"command line: {error}, expected flags such as --tensor-model-parallel-size 8") from None
    found: Flags = {}
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        after = words[place + 1] if place + 1 < len(words) else "--"
        if name in (MODULES, ON_HOSTS) and not equals:
            after = " ".join(takewhile(lambda word: not word.startswith("--"), words[place + 1 :])) or "--"
        found[name] = value if equals else None if after.startswith("--") else after
    return found


def megatron_values(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """
    What a command line says of the strategy.

    ``flags``: flags and their values. Returns values that ``taut.plan`` may fix, ``layers`` of the stages, ``copies``
    of what is sharded, ``recompute``, groups of the router, and ``global_batch``. Raises ``DataError`` if a value is no
    number or no layout, or chunks do not divide the layers.
    """
    values: dict[str, Any] = {name: count(flags, flag) for name, flag in COUNTS.items()}
    chunks, layers = stated_division(flags, values["pp"])
    values |= {"vpp": chunks, "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b"}
    if values["cp"] > 1:
        values["cp_comm"] = flags.get("--cp-comm-type") or "p2p"
    values |= {"sequence_parallel": "--sequence-parallel" in flags and values["tp"] > 1, "zero": _zero(flags)}
    if values["zero"] and (copies := count(flags, COPIES)) > 1:
        values["copies"] = copies
    values["ep"] = count(flags, "--expert-model-parallel-size")
    if values["ep"] > 1:
        values["etp"] = count(flags, "--expert-tensor-parallel-size", values["tp"])
        values |= stated_dispatch(flags)
        values |= {name: count(flags, flag) for name, flag in GROUPS.items() if flag in flags}
    values["recompute"] = flags.get("--recompute-granularity") or "none"
    if "--recompute-activations" in flags:
        values["recompute"] = "selective"
    if values["recompute"] == "selective" and flags.get(MODULES):
        values["recompute_modules"] = "+".join(str(flags[MODULES]).split())
    if "--optimizer-cpu-offload" in flags:
        values["optimizer_offload_fraction"] = _fraction(flags.get(OFFLOAD) or "1", OFFLOAD)
    if flags.get(LAYERS_ON_HOSTS) not in (None, "0"):
        values["activation_offload_fraction"] = _share_of_layers(flags)
    if FINE_GRAINED in flags:
        values |= _modules_on_hosts(flags)
    if CHECKPOINTS in flags:
        values |= _checkpoints_on_hosts(flags)
    if layers:
        values["layers"] = "|".join(map(str, layers))
    if "--global-batch-size" in flags:
        values["global_batch"] = count(flags, "--global-batch-size")
    return values


def _checkpoints_on_hosts(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """Recompute of whole layers with their inputs in the host's memory."""
    if DIVIDED in flags:
        raise DataError(f"{DIVIDED} with {CHECKPOINTS}: copies that compute waits for are not priced, expected one")
    return {"activation_offload_fraction": 1.0, "recompute": "full"}


def _modules_on_hosts(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """Modules whose inputs are in the host's memory, and the share of them."""
    if not flags.get(ON_HOSTS):
        raise DataError(f"{FINE_GRAINED}: expected {ON_HOSTS} with it, such as core_attn attn_proj")
    share = _fraction(flags.get(SHARE) or "1", SHARE)
    return {"offload_modules": "+".join(str(flags[ON_HOSTS]).split()), "activation_offload_fraction": share}


def _share_of_layers(flags: Mapping[str, str | None]) -> float:
    """The share of the layers whose activations are in the host's memory."""
    moved, layers = count(flags, LAYERS_ON_HOSTS), count(flags, "--num-layers", 0)
    if not moved < layers:
        shown = f"{LAYERS_ON_HOSTS} {moved}"
        raise DataError(f"{shown}: expected fewer than the model's layers, which --num-layers states")
    return moved / layers


def _fraction(text: str, flag: str) -> float:
    """The share in the host's memory that a flag states."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise DataError(f"{flag} {text}: expected a share from 0 to 1")
    return share


def _zero(flags: Mapping[str, str | None]) -> int:
    if "--use-torch-fsdp2" in flags:
        return 2 if "--torch-fsdp2-no-reshard-after-forward" in flags else 3
    if "--use-megatron-fsdp" not in flags and "--use-custom-fsdp" not in flags:
        return int("--use-distributed-optimizer" in flags)
    named = flags.get(STRATEGY) or "optim_grads_params"
    if named not in SHARDS:
        raise DataError(f"{STRATEGY} {named}: expected one of {', '.join(SHARDS)}")
    return SHARDS[named]
