"""
DeepSpeed's configuration, and the YAML of nanotron, Axolotl and Hugging Face's trainer, as values of a strategy.

The model decides tensor ranks and stages, so the user states them beside the file. With W devices,

(1) batch = micro-batch times steps of accumulation times W / (tp pp cp).

DeepSpeed derives from (1) what is not stated. ``"auto"`` leaves a setting to the script that starts DeepSpeed, and
counts as not stated. Source: deepspeed/runtime/config.py, _configure_train_batch_size, and
deepspeed/runtime/zero/config.py.

nanotron states degrees, micro-batch, steps of accumulation and ZeRO. Axolotl shards by PyTorch's FSDP, or by DeepSpeed
with a file of its own. Hugging Face's trainer is read as LLaMA-Factory and TRL state it; LLaMA-Factory recomputes
every layer unless told otherwise, and may train over Megatron-LM instead. With W devices,

(2) the global batch is micro-batch times steps of accumulation times dp, where nanotron has dp tp pp cp = W, and
    Axolotl has dp = W / (tp cp);
(3) PyTorch's FSDP shards weights as well (ZeRO-3) unless its strategy says less, or DeepSpeed shards; then the stage is
    read from the name of DeepSpeed's file.

Sources: nanotron, src/nanotron/config/config.py; Axolotl, src/axolotl/utils/schemas/config.py
and docs/nd_parallelism.qmd; LLaMA-Factory, src/llamafactory/hparams and model/model_utils/checkpointing.py; accelerate,
utils/dataclasses.py.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taut.errors import DataError
from taut.launchers.megatron import check_adapters, megatron_launch
from taut.launchers.paths import flags_of_settings, is_megatron
from taut.launchers.settings import Launch, Run, known, unpriced

NAMES = {"micro_batch": "train_micro_batch_size_per_gpu", "global_batch": "train_batch_size"}
STEPS, AUTO = "gradient_accumulation_steps", "auto"
READ = {
    *NAMES.values(), STEPS, "zero_optimization", "activation_checkpointing", "bf16", "bfloat16", "fp16", "data_types",
    "tensor_parallel", "sequence_parallel_size",
}  # fmt: skip
SILENT = {*known("deepspeed_sections")}
BUFFERS = {*known("zero_fields")}


def deepspeed_launch(config: Any, source: str, run: Run, beside: Mapping[str, Any]) -> Launch:
    """What DeepSpeed's configuration says, with values beside the file; a ``DataError`` refuses what has no price."""
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
    idle = [name for name in given if name not in READ | SILENT]
    idle += [f"zero_optimization.{name}" for name, value in zero.items() if name not in BUFFERS and _says(value)]
    checkpoints = given.get("activation_checkpointing")
    if isinstance(checkpoints, dict) and not checkpoints.get("cpu_checkpointing"):
        idle += [f"activation_checkpointing.{name}" for name, value in checkpoints.items() if _says(value)]
    if _says(zero.get("zero_hpz_partition_size", 1)) and zero.get("zero_hpz_partition_size", 1) != 1:
        idle.append("zero_optimization.zero_hpz_partition_size")
    yield from unpriced(idle)
    autos = [name for name in (*NAMES.values(), STEPS) if given.get(name) == AUTO]
    if autos:
        yield f'"auto", decided by the script: {", ".join(autos)}'


def _says(value: Any) -> bool:
    """Whether a setting turns something on."""
    return value not in (False, None, "auto", 0, "none", {})


SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe", "all-forward-all-backward": "gpipe"}
NANOTRON, NANOTRON_SILENT = {*known("nanotron_read")}, tuple(known("nanotron_silent"))
DECIDING = re.compile(
    r"batch|parallel|offload|shard|replic|pack|compile|lora|peft|8bit|4bit|quant|fp8|liger|cut_cross|unfrozen|freeze|"
    r"galore|badam|apollo|checkpointing|expert|context|tiled|chunk|mixture|zero|fsdp|tp_size|reshard|sequence_degree"
)
"""Words of trainers' settings that decide memory or time; a setting with one is read, or named."""
TRAINERS = {*known("trainers")}
FSDP = re.compile(r"^fsdp_config\.(fsdp_)?|^fsdp_(?!version|config)")
FSDP_READ = {"reshard_after_forward", "sharding_strategy", "activation_checkpointing", "offload_params"}
STRATEGIES = {"full_shard": 3, "1": 3, "shard_grad_op": 2, "2": 2, "no_shard": 0, "3": 0}
"""The ZeRO stage by FSDP's sharding strategy."""
LENGTHS = ("cutoff_len", "max_length", "max_seq_length", "model_max_length")
"""Settings of trainers for the tokens of a sequence."""
RANKS = ("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree", "expert_parallel_size")
"""Axolotl's ranks, which Hugging Face's trainer has not."""
ADAMS = ("adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_hf", "None")
"""Optimizers whose states are Adam's in fp32."""


def nanotron_launch(fields: Mapping[str, Any], run: Run) -> Launch:
    """What settings by path of nanotron say; a ``DataError`` if a value is wrong or (2) does not hold."""
    names = {"tp": "tp", "pp": "pp", "cp": "context_parallel_size", "ep": "expert_parallel_size"}
    values = {ours: _count(fields, f"parallelism.{theirs}", 1) for ours, theirs in names.items()}
    if "parallelism.dp" in fields:
        values["dp"] = _count(fields, "parallelism.dp", 1)
    found: dict[str, Any] = dict(values)
    engine = str(fields.get("parallelism.pp_engine", "1f1b")).lower()
    if engine not in SCHEDULES:
        raise DataError(f"parallelism.pp_engine {engine}: expected one of {', '.join(SCHEDULES)}")
    found["schedule"] = SCHEDULES[engine]
    found["sequence_parallel"] = values["tp"] > 1 and fields.get("parallelism.tp_mode") == "REDUCE_SCATTER"
    found["recompute"] = "full" if fields.get("parallelism.recompute_layer") is True else "none"
    found["micro_batch"] = _count(fields, "tokens.micro_batch_size", 1)
    zero = fields.get("optimizer.zero_stage", 0)
    if zero not in (0, 1, 2, 3):
        raise DataError(f"optimizer.zero_stage {zero}: expected 0, 1, 2 or 3")
    found["zero"] = zero
    ranks = values["tp"] * values["pp"] * values["cp"]
    replicas = values.get("dp") or (run.devices // ranks if run.devices and run.devices % ranks == 0 else 0)
    steps = _count(fields, "tokens.batch_accumulation_per_replica", 1)
    if replicas:
        found["global_batch"] = found["micro_batch"] * steps * replicas
    if run.devices and values.get("dp") and values["dp"] * ranks != run.devices:
        raise DataError(
            f"nanotron refuses it: dp {values['dp']} x tp {values['tp']} x pp {values['pp']} x cp {values['cp']} = "
            f"{values['dp'] * ranks}, expected {run.devices} devices"
        )
    options = {"seq": _count(fields, "tokens.sequence_length", 1)} if "tokens.sequence_length" in fields else {}
    return Launch(found, options, tuple(_unread(fields, lambda name: name in NANOTRON or _of_nanotron(name))))


def _of_nanotron(name: str) -> bool:
    """Whether a setting of nanotron that is not read says nothing of memory and time, or repeats the model."""
    model = name.startswith(("model.", "optimizer.")) and not name.endswith("offload")
    return name.startswith(NANOTRON_SILENT) or model or name.startswith("parallelism.tp_linear_async")


def axolotl_launch(fields: Mapping[str, Any], run: Run) -> Launch:
    """What settings of Axolotl say; a ``DataError`` if a value is no number, or not all weights are trained or kept."""
    if fields.get("adapter"):
        raise DataError(f"adapter {fields['adapter']}: training of adapters alone is not priced, expected none")
    tp = _count(fields, "tensor_parallel_size", 1)
    cp = _count(fields, "context_parallel_size", _count(fields, "sequence_parallel_degree", 1))
    found: dict[str, Any] = {"tp": tp, "pp": 1, "cp": cp, "micro_batch": _count(fields, "micro_batch_size", 1)}
    found["ep"] = _count(fields, "expert_parallel_size", 1)
    if cp > 1:
        found["cp_comm"] = "p2p"
    return _trained(fields, found, run, "sequence_len", recompute=_is_on(fields, "gradient_checkpointing"))


def trainer_launch(fields: Mapping[str, Any], run: Run) -> Launch:
    """What settings of Hugging Face's trainer say, as LLaMA-Factory and TRL state them."""
    check_adapters({"--" + name.replace("_", "-"): value for name, value in fields.items() if name.endswith("_type")})
    if on := next((name for name in ("use_peft", "use_lora", "use_qlora") if _is_on(fields, name)), None):
        check_adapters({"--peft": on})
    if is_megatron(fields):
        flags, stated = flags_of_settings(fields)
        launch = megatron_launch(flags, run, stated)
        return launch._replace(values=_whole_batch(fields, launch.values, run))
    if ranks := next((name for name in RANKS if _count(fields, name, 1) > 1), None):
        raise DataError(f"{ranks} {fields[ranks]}: ranks that the trainer has not are not read, expected 1")
    cp, each = _count(fields, "sequence_parallel_size", 1), _count(fields, "per_device_train_batch_size", 8)
    found: dict[str, Any] = {"tp": 1, "pp": 1, "cp": cp, "ep": 1, "micro_batch": each}
    found |= {"cp_comm": "a2a"} if cp > 1 else {}  # ms-swift: swift/sequence_parallel, Ulysses
    factory = "finetuning_type" in fields
    recompute = _is_on(
        fields, "gradient_checkpointing", usual=factory or bool({"tuner_type", "train_type"} & set(fields))
    )
    recompute = recompute and not _is_on(fields, "disable_gradient_checkpointing")
    length = next((name for name in LENGTHS if name in fields), "cutoff_len")
    return _trained(fields, found, run, length, recompute=recompute)


def _trained(fields: Mapping[str, Any], values: Mapping[str, Any], run: Run, length: str, *, recompute: bool) -> Launch:
    """What trainers over FSDP or DeepSpeed have in common, (2) and (3); ``length``: where a sequence's tokens stand."""
    fsdp = {FSDP.sub("", name): value for name, value in fields.items() if FSDP.search(name)}
    if _is_on(fsdp, "offload_params"):
        raise DataError("fsdp_config.offload_params: weights in the host's memory are not priced, expected false")
    found, named = dict(values), list(_unread(fields, _decides_nothing_else))
    if deepspeed := fields.get("deepspeed", fields.get("deepspeed_config_file")):
        stage = re.search(r"z(?:ero)?[_-]?([0-3])(?!\d)", str(deepspeed))
        found |= {"zero": int(stage[1])} if stage is not None else {}
        read = "is read from its name" if stage is not None else "is not in its name, zero=3 beside the file states it"
        hosts = ", its settings for hosts are not read" if "offload" in str(deepspeed) else ""
        named.append(f"deepspeed {deepspeed}: its ZeRO stage {read}{hosts}")
    else:
        strategy = str(fsdp.get("sharding_strategy", "full_shard")).lower()
        if strategy not in STRATEGIES:
            raise DataError(f"sharding_strategy {strategy}: expected one of {', '.join(STRATEGIES)}")
        sharded = bool(fields.get("fsdp") or fsdp) or _count(fields, "dp_shard_size", 1) > 1
        kept = str(fsdp.get("reshard_after_forward", True)).lower() in ("false", "shard_grad_op")
        found["zero"] = min(STRATEGIES[strategy], 2 if kept else 3) if sharded else 0
    if (copies := _count(fields, "dp_replicate_size", 1)) > 1 and found.get("zero"):
        found["copies"] = copies
    found["recompute"] = "full" if recompute or _is_on(fsdp, "activation_checkpointing") else "none"
    optimizer = str(fields.get("optimizer", fields.get("optim")))
    if optimizer not in ADAMS:
        named.append(f"optimizer {optimizer}: priced as adamw_torch, with states in fp32")
    options: dict[str, Any] = {"seq": _count(fields, length, 1)} if length in fields else {}
    options |= {"precision": "fp16"} if _is_on(fields, "fp16") else {}
    return Launch(_whole_batch(fields, found, run), options, tuple(named))


def _whole_batch(fields: Mapping[str, Any], values: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """The values with the global batch, (2), where the devices are known."""
    steps, ranks = _count(fields, STEPS, 1), values["tp"] * values["pp"] * values["cp"]
    if not run.devices or run.devices % ranks:
        return dict(values)
    return {**values, "global_batch": values["micro_batch"] * steps * (run.devices // ranks)}


def _decides_nothing_else(name: str) -> bool:
    """Whether a trainer's setting is read, or decides neither memory nor time."""
    inner = FSDP.sub("", name)
    if name.startswith(("vllm_", "sglang_")) or name in LENGTHS:
        return True
    return name in TRAINERS or (inner != name and inner in FSDP_READ) or not DECIDING.search(inner)


def _is_on(fields: Mapping[str, Any], field: str, *, usual: bool = False) -> bool:
    """Whether a setting is on; texts such as ``unsloth`` name a way of doing it."""
    value = fields.get(field)
    return usual if value is None else str(value).lower() not in ("false", "0", "no")


def _count(fields: Mapping[str, Any], field: str, usual: int) -> int:
    value = fields.get(field)
    text = str(usual if value is None else value)
    if not text.isdecimal() or int(text) == 0:
        raise DataError(f"{field} {text:.60}: expected a whole number above 0")
    return int(text)


def _unread(fields: Mapping[str, Any], is_known: Callable[[str], bool]) -> Iterator[str]:
    """The sentence on settings that are on and not priced."""
    idle = [name for name, value in fields.items() if value not in (False, None, "") and not is_known(name)]
    yield from unpriced(idle)
