"""
DeepSpeed's configuration as values: micro-batch, accumulation, batch, ZeRO and what lies on hosts.

The model decides tensor ranks and stages, so the user states them beside the file. With W devices,

(1) batch = micro-batch times steps of accumulation times W / (tp pp cp).

DeepSpeed derives from (1) what is not stated. ``"auto"`` leaves a setting to the script that starts DeepSpeed, and
counts as not stated. Source: deepspeed/runtime/config.py, _configure_train_batch_size, and
deepspeed/runtime/zero/config.py.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from taut.errors import DataError
from taut.launchers.settings import Launch, Run

NAMES = {"micro_batch": "train_micro_batch_size_per_gpu", "global_batch": "train_batch_size"}
STEPS, AUTO = "gradient_accumulation_steps", "auto"
READ = {
    *NAMES.values(), STEPS, "zero_optimization", "activation_checkpointing", "bf16", "bfloat16", "fp16", "data_types",
    "tensor_parallel", "sequence_parallel_size",
}  # fmt: skip
SILENT = {
    "optimizer", "scheduler", "steps_per_print", "wall_clock_breakdown", "gradient_clipping", "tensorboard", "wandb",
    "csv_monitor", "comet", "flops_profiler", "dump_state", "memory_breakdown", "checkpoint", "data_efficiency",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "comms_logger", "prescale_gradients", "elasticity",
    "gradient_predivide_factor", "disable_allgather", "autotuning", "hybrid_engine", "amp", "seed", "comment",
}  # fmt: skip
"""Sections that say nothing of memory and time here, or only repeat another section."""
BUFFERS = {
    "stage", "offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_params", "contiguous_gradients",
    "allgather_partitions", "allgather_bucket_size", "reduce_bucket_size", "reduce_scatter", "sub_group_size",
    "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_prefetch_bucket_size", "round_robin_gradients",
    "stage3_param_persistence_threshold", "stage3_gather_16bit_weights_on_model_save", "elastic_checkpoint",
    "stage3_gather_fp16_weights_on_model_save", "load_from_fp32_weights", "ignore_unused_parameters", "mics_shard_size",
    "stage3_model_persistence_threshold", "memory_efficient_linear", "zero_hpz_partition_size",
}  # fmt: skip
"""Fields of ZeRO that are read, or are sizes of buffers and other details that nothing prices or names."""


def deepspeed_launch(config: Any, source: str, run: Run, beside: Mapping[str, Any]) -> Launch:
    """
    What DeepSpeed's configuration says, with values that stand beside the file.

    Raises ``DataError`` if a value is no number, the batch is not (1), weights lie on hosts, or checkpoints on hosts
    are divided among tensor ranks.
    """
    given = {name: value for name, value in config.items()} if isinstance(config, dict) else {}
    zero = given.get("zero_optimization", {})
    zero = zero if isinstance(zero, dict) else {"stage": zero}
    _check_weights(zero, source)
    stated = {ours: given[theirs] for ours, theirs in NAMES.items() if theirs in given}
    accumulated = given.get(STEPS)
    if not stated and accumulated is None:
        raise DataError(f"{source}: has no {NAMES['micro_batch']}, expected DeepSpeed's configuration")
    values = {name: value for name, value in stated.items() if value != AUTO} | {"zero": zero.get("stage", 0)}
    if values["zero"] == AUTO:
        values.pop("zero")
    for name, value in (values | ({"steps": accumulated} if accumulated not in (None, AUTO) else {})).items():
        least = 0 if name == "zero" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            field = {"zero": "zero_optimization.stage", "steps": STEPS}.get(name) or NAMES[name]
            raise DataError(f"{source}: {field} {json.dumps(value)}: expected a number")
    if "micro_batch" not in values | dict(beside) and stated.get("micro_batch") == AUTO:
        raise DataError(f'{source}: {NAMES["micro_batch"]} "auto": expected a number, or micro_batch=1 beside the file')
    values |= _offload(zero, source) | _checkpoints(given.get("activation_checkpointing"), source)
    values |= _ranks(given, zero, run, beside)
    values |= _batch(values | dict(beside), accumulated, source, run)
    return Launch(values, _precision(given), tuple(_named(given, zero)))


def _check_weights(zero: Mapping[str, Any], source: str) -> None:
    """Refuse weights on hosts or disks, which nothing prices."""
    given = zero.get("offload_param")
    device = given.get("device", "none") if isinstance(given, dict) else None
    if device not in (None, "none") or zero.get("cpu_offload_params") is True:
        raise DataError(
            f"{source}: zero_optimization.offload_param.device {json.dumps(device or 'cpu')}: weights in the host's "
            'memory are not priced, expected "none"'
        )


def _ranks(given: Mapping[str, Any], zero: Mapping[str, Any], run: Run, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Tensor and sequence ranks, and copies of the sharded states (MiCS), where the file states them."""
    found: dict[str, Any] = {}
    tensor = given.get("tensor_parallel")
    size = tensor.get("autotp_size") if isinstance(tensor, dict) else None
    if isinstance(size, int) and size > 1:
        found["tp"] = size
    sequence = given.get("sequence_parallel_size")
    if isinstance(sequence, int) and sequence > 1:
        found |= {"cp": sequence, "cp_comm": "a2a"}
    shard = zero.get("mics_shard_size")
    ranks = _inside(found | dict(beside))
    if isinstance(shard, int) and shard > 0 and run.devices and (run.devices // ranks) % shard == 0:
        found["copies"] = run.devices // ranks // shard
    return {name: value for name, value in found.items() if value != 1}


def _inside(values: Mapping[str, Any]) -> int:
    """Devices of a replica, which share a micro-batch: tp pp cp."""
    found = 1
    for name in ("tp", "pp", "cp"):
        found *= value if isinstance(value := values.get(name, 1), int) and value > 0 else 1
    return found


def _batch(values: Mapping[str, Any], accumulated: Any, source: str, run: Run) -> dict[str, Any]:
    """The batch or the micro-batch that follows from the others, (1)."""
    ranks = _inside(values)
    if not run.devices or run.devices % ranks:
        return {}
    replicas = run.devices // ranks
    each, whole = values.get("micro_batch"), values.get("global_batch")
    each, whole = (value if isinstance(value, int) else None for value in (each, whole))
    steps = accumulated if isinstance(accumulated, int) else None if accumulated == AUTO else 1
    if each and whole and accumulated is None:
        steps = max(whole // (each * replicas), 1)
    if each and whole and steps and whole != each * steps * replicas:
        raise DataError(
            f"{source}: {NAMES['global_batch']} {whole}: expected micro-batch {each} x {steps} steps x {replicas} "
            f"replicas = {each * steps * replicas}"
        )
    if each and not whole:
        return {"global_batch": each * (steps or 1) * replicas} if steps else {}
    if whole and not each:
        if whole % (replicas * (steps or 1)):
            raise DataError(
                f"{source}: {NAMES['global_batch']} {whole}: expected a multiple of {replicas} replicas x "
                f"{steps or 1} steps"
            )
        return {"micro_batch": whole // replicas // steps} if steps else {}
    return {}


def _checkpoints(given: Any, source: str) -> dict[str, Any]:
    """Recompute of whole layers with their inputs in the host's memory, where it is stated."""
    if not isinstance(given, dict) or not given.get("cpu_checkpointing"):
        return {}
    if given.get("partition_activations"):
        words = "copies that compute waits for are not priced, expected one of both"
        raise DataError(f"{source}: activation_checkpointing.partition_activations with cpu_checkpointing: {words}")
    return {"activation_offload_fraction": 1.0, "recompute": "full"}


def _offload(zero: Mapping[str, Any], source: str) -> dict[str, float]:
    """The share of the optimizer states in the host's memory, where it is stated."""
    given = zero.get("offload_optimizer")
    if zero.get("cpu_offload") is True:
        given = {"device": "cpu"}
    if not isinstance(given, dict) or given.get("device", "none") in ("none", None):
        return {}
    device, share = given["device"], given.get("ratio", 1.0)
    if device != "cpu":
        raise DataError(f'{source}: offload_optimizer.device {json.dumps(device)}: expected "cpu" or "none"')
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise DataError(f"{source}: offload_optimizer.ratio {json.dumps(share)}: expected a share from 0 to 1")
    return {"optimizer_offload_fraction": float(share)}


def _precision(given: Mapping[str, Any]) -> dict[str, Any]:
    """The number format, where the file turns one on, and that of the sums of gradients."""
    found: dict[str, Any] = {}
    for name, section in (("bf16", given.get("bf16", given.get("bfloat16"))), ("fp16", given.get("fp16"))):
        if isinstance(section, dict) and section.get("enabled") is True:
            found["precision"] = name
    types = given.get("data_types")
    if isinstance(types, dict) and types.get("grad_accum_dtype") in ("fp32", "bf16", "fp16"):
        found["grad_precision"] = types["grad_accum_dtype"]
    return found


def _named(given: Mapping[str, Any], zero: Mapping[str, Any]) -> Iterator[str]:
    """Settings that nothing prices."""
    unpriced = [name for name in given if name not in READ | SILENT]
    unpriced += [f"zero_optimization.{name}" for name, value in zero.items() if name not in BUFFERS and _says(value)]
    checkpoints = given.get("activation_checkpointing")
    if isinstance(checkpoints, dict) and not checkpoints.get("cpu_checkpointing"):
        unpriced += [f"activation_checkpointing.{name}" for name, value in checkpoints.items() if _says(value)]
    if _says(zero.get("zero_hpz_partition_size", 1)) and zero.get("zero_hpz_partition_size", 1) != 1:
        unpriced.append("zero_optimization.zero_hpz_partition_size")
    if unpriced:
        yield f"not priced: {', '.join(unpriced)}"
    autos = [name for name in (*NAMES.values(), STEPS) if given.get(name) == AUTO]
    if autos:
        yield f'"auto", decided by the script: {", ".join(autos)}'


def _says(value: Any) -> bool:
    """Whether a setting turns something on."""
    return value not in (False, None, "auto", 0, "none", {})
