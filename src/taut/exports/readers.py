"""
Settings of any known launcher, told apart by what they look like.

=====================  =====================================================
what                   is known by
=====================  =====================================================
Megatron-LM's flags    ``--tensor-model-parallel-size`` and its like
torchtitan's flags     ``--parallelism.`` or ``--training.``
torchtitan's TOML      a name that ends in ``.toml``
taut's torchtitan      a name that ends in ``.py``
DeepSpeed's JSON       a name that ends in ``.json``
=====================  =====================================================

Of a command line of Megatron-LM, flags that say nothing of the strategy are passed over, but
those of groups of experts that a router keeps to, which exchanges depend on. Of those that do, what is not written is
Megatron-LM's default: degrees of 1, experts on all tensor ranks, a gather of all tokens of expert ranks, no distributed
optimizer, no recompute, even stages.

A field of torchtitan is named by its section, ``parallelism.tensor_parallel_degree``. Batches are counted in sequences
(``training.local_batch_size``) or, in newer versions, in tokens.
"""

import ast
import json
import shlex
import tomllib
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from taut.data.read import read_json, read_text
from taut.errors import DataError
from taut.exports.architecture import GROUPS, Flags, stated_dispatch
from taut.exports.division import count, stated_division
from taut.exports.torchtitan import NAMES

SECTIONS = {"PARALLELISM": "parallelism", "TRAINING": "training"}
DEGREES = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
}
REPLICATE, SHARD = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"
PARTS = "parallelism.module_fqns_per_model_part"


def toml_fields(text: str) -> dict[str, Any]:
    """
    Fields of a TOML file.

    Raises ``DataError`` if it is no TOML.
    """
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"TOML: {error}, expected sections such as [parallelism]") from None
    given = {name: values for name, values in sections.items() if isinstance(values, dict)}
    return {f"{name}.{field}": value for name, values in given.items() for field, value in values.items()}


def flag_fields(text: str) -> dict[str, Any]:
    """Fields of flags such as ``--parallelism.tensor_parallel_degree 8``."""
    flags = {name[2:].replace("-", "_"): value for name, value in flags_of(text).items()}
    kinds = [word.partition(":")[2] for word in text.split() if word.startswith("activation_checkpoint:")]
    return flags | ({"activation_checkpoint.mode": kinds[-1]} if kinds else {})


def module_fields(text: str) -> dict[str, Any]:
    """
    Fields of a module that states them as dictionaries, as ``taut export`` writes it; nothing of it is run.

    Raises ``DataError`` if it is no Python, or a dictionary is not written out.
    """
    found: dict[str, Any] = {}
    try:
        for line in ast.parse(text).body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                name = line.targets[0].id
                values = ast.literal_eval(line.value) if name in (*SECTIONS, "CHUNKS") else {}
                found |= _section(name, values)
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError, MemoryError):
        raise DataError("Python file: expected PARALLELISM and TRAINING as dictionaries, written out") from None
    modes = {"SelectiveAC.Config()": "selective", "FullAC.Config()": "full"}
    mode = next((mode for words, mode in modes.items() if f"activation_checkpoint = {words}" in text), "none")
    return found | {"activation_checkpoint.mode": mode}


def _section(name: str, values: Any) -> dict[str, Any]:
    """Fields that a name of the module stands for."""
    if name == "CHUNKS":
        return {PARTS: [[f"layers.{layer}" for layer in range(first, end)] for first, end in values]}
    return {f"{SECTIONS.get(name)}.{field}": value for field, value in values.items()}


def torchtitan_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """
    What fields say of the strategy.

    ``fields``: values by section and name. Returns values that ``taut.plan`` may fix, ``layers`` of the stages,
    ``copies`` of what is sharded, and ``recompute``. Raises ``DataError`` if a degree is no number, or a schedule is
    unknown.
    """
    values: dict[str, Any] = {name: _count(fields, field, 1) for name, field in DEGREES.items()}
    parts = fields.get(PARTS) or []
    layers = [sum(str(name).startswith("layers.") for name in part) for part in parts]
    chunks = max(len(parts) // values["pp"], 1)
    values |= {"schedule": _schedule(fields) if values["pp"] > 1 else "1f1b"}
    if values["schedule"] == "interleaved-1f1b":
        values["vpp"] = chunks if parts else 2
    values |= {
        "zero": _zero_of_torchtitan(fields),
        "sequence_parallel": values["tp"] > 1,
        "recompute": _recompute(fields),
    }
    if len(layers) > 1:
        values["layers"] = "|".join(map(str, layers))
    if values["cp"] > 1:
        values["cp_comm"] = "all_gather"
    if values["ep"] > 1:
        values["etp"] = 1
    if values["zero"] and (copies := _count(fields, REPLICATE, 1)) > 1:
        values["copies"] = copies
    return values | _batch(fields, values["pp"])


def _count(fields: Mapping[str, Any], field: str, usual: int) -> int:
    text = str(fields.get(field, usual))
    if not text.removeprefix("-").isdecimal() or int(text) == 0:
        raise DataError(f"{field} {text:.60}: expected a whole number above 0")
    return int(text)


def _schedule(fields: Mapping[str, Any]) -> str:
    given = str(fields.get("parallelism.pipeline_parallel_schedule", "1F1B"))
    names = {theirs.lower(): ours for ours, theirs in NAMES.items()}
    if given.lower() not in names:
        raise DataError(f"parallelism.pipeline_parallel_schedule {given}: expected one of {', '.join(NAMES.values())}")
    return names[given.lower()]


def _zero_of_torchtitan(fields: Mapping[str, Any]) -> int:
    if _count(fields, SHARD, -1) == 1:
        return 0
    policy = fields.get("parallelism.fsdp_reshard_after_forward", "default")
    in_pipeline = _count(fields, DEGREES["pp"], 1) > 1
    return 2 if policy == "never" or (policy == "default" and in_pipeline) else 3


def _recompute(fields: Mapping[str, Any]) -> str:
    mode = str(fields.get("activation_checkpoint.mode", "selective"))
    return mode if mode in ("none", "full") else "selective"


def _batch(fields: Mapping[str, Any], pp: int) -> dict[str, Any]:
    """Micro-batch, from sequences or from tokens, where they are stated."""
    tokens, each = (
        fields.get(f"training.{name}") for name in ("num_tokens_per_microbatch_per_dp_rank", "max_context_length")
    )
    if tokens and each:
        step = fields.get("training.num_tokens_per_train_step", -1)
        whole = {"global_batch": int(step) // int(each)} if int(step) > 0 else {}
        return {"micro_batch": int(tokens) // int(each)} | whole
    field = "parallelism.pipeline_parallel_microbatch_size" if pp > 1 else "training.local_batch_size"
    usual = 1 if pp > 1 else 8
    sequences = _count(fields, "training.global_batch_size", -1)
    given = {"global_batch": sequences} if sequences > 0 else {}
    return {"micro_batch": _count(fields, field, usual)} | given


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


MOST_BYTES = 10_000_000
"""Bytes beyond which a file is no launcher's settings."""


def settings_of_file(path: Path) -> dict[str, Any]:
    """
    Values of a configuration from a launcher's file.

    ``path``: JSON of DeepSpeed, TOML or Python of torchtitan, or flags in a file of any other name. Raises
    ``DataError`` if the file cannot be read, or says nothing of a strategy.
    """
    if path.suffix == ".json":
        return deepspeed_values(read_json(path, "DeepSpeed's configuration"), str(path))
    text = read_text(path, "a launcher's settings", MOST_BYTES)
    try:
        if path.suffix == ".toml":
            return torchtitan_values(toml_fields(text))
        return torchtitan_values(module_fields(text)) if path.suffix == ".py" else settings_of_flags(text)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def settings_of_flags(text: str) -> dict[str, Any]:
    """
    Values of a configuration from flags of Megatron-LM or torchtitan.

    Raises ``DataError`` if there are none of them.
    """
    if "--parallelism." in text or "--training." in text:
        return torchtitan_values(flag_fields(text))
    flags = flags_of(text)
    if "--micro-batch-size" not in flags and not any(name.endswith("-parallel-size") for name in flags):
        raise DataError("no flag of Megatron-LM or torchtitan, expected --tensor-model-parallel-size 8 and its like")
    return megatron_values(flags)


def deepspeed_values(config: Any, source: str) -> dict[str, Any]:
    """
    Micro-batch, ZeRO stage and batch of DeepSpeed's configuration; degrees are not in it.

    Raises ``DataError`` if a value is no number, or checkpoints in the host's memory are divided among tensor ranks.
    """
    names = {"micro_batch": "train_micro_batch_size_per_gpu", "global_batch": "train_batch_size"}
    given = config if isinstance(config, dict) else {}
    found = {ours: given[theirs] for ours, theirs in names.items() if theirs in given}
    zero = given.get("zero_optimization", {})
    found["zero"] = zero.get("stage", 0) if isinstance(zero, dict) else zero
    if len(found) == 1:
        raise DataError(f"{source}: has no {names['micro_batch']}, expected DeepSpeed's configuration")
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise DataError(
                f"{source}: {names.get(name, 'zero_optimization.stage')} {json.dumps(value)}: expected a number"
            )
    return found | _offload(zero, source) | _checkpoints(given.get("activation_checkpointing"), source)


def _checkpoints(given: Any, source: str) -> dict[str, Any]:
    """Recompute of whole layers with their inputs in the host's memory, where it is stated."""
    if not isinstance(given, dict) or not given.get("cpu_checkpointing"):
        return {}
    if given.get("partition_activations"):
        words = "copies that compute waits for are not priced, expected one of both"
        raise DataError(f"{source}: activation_checkpointing.partition_activations with cpu_checkpointing: {words}")
    return {"activation_offload_fraction": 1.0, "recompute": "full"}


def _offload(zero: Any, source: str) -> dict[str, float]:
    """The share of the optimizer states in the host's memory, where it is stated."""
    given = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    if not isinstance(given, dict) or given.get("device", "none") == "none":
        return {}
    device, share = given["device"], given.get("ratio", 1.0)
    if device != "cpu":
        raise DataError(f'{source}: offload_optimizer.device {json.dumps(device)}: expected "cpu" or "none"')
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise DataError(f"{source}: offload_optimizer.ratio {json.dumps(share)}: expected a share from 0 to 1")
    return {"optimizer_offload_fraction": float(share)}
