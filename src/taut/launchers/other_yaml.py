"""
YAML of nanotron and Axolotl as values of a configuration.

nanotron states degrees, micro-batch, steps of accumulation and ZeRO. Axolotl shards by PyTorch's FSDP, or by DeepSpeed
with a file of its own. With W devices,

(1) the global batch is micro-batch times steps of accumulation times dp, where nanotron has dp tp pp cp = W, and
    Axolotl has dp = W / (tp cp);
(2) Axolotl has ZeRO-3 if it shards, unless DeepSpeed does; then the stage is read from the name of DeepSpeed's file.

Sources: nanotron, src/nanotron/config/config.py; Axolotl, src/axolotl/utils/schemas/config.py
and docs/nd_parallelism.qmd.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taut.errors import DataError
from taut.launchers.settings import Launch, Run

SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe", "all-forward-all-backward": "gpipe"}
NANOTRON = {
    "parallelism.dp", "parallelism.tp", "parallelism.pp", "parallelism.pp_engine", "parallelism.tp_mode",
    "parallelism.context_parallel_size", "parallelism.expert_parallel_size", "parallelism.recompute_layer",
    "tokens.micro_batch_size", "tokens.batch_accumulation_per_replica", "tokens.sequence_length", "model.dtype",
    "optimizer.zero_stage", "optimizer.accumulate_grad_in_fp32",
}  # fmt: skip
NANOTRON_SILENT = ("general", "data_stages", "checkpoints", "logging", "tokenizer", "profiler", "lighteval", "tokens.")
AXOLOTL_UNPRICED = (
    "adapter", "lora_r", "load_in_8bit", "load_in_4bit", "sample_packing", "activation_offloading", "fp8", "qlora",
    "optimizer_cpu_offload", "torch_compile", "liger", "cut_cross_entropy", "unfrozen_parameters",
)  # fmt: skip
"""Beginnings of Axolotl's settings that decide memory or time and are not read; the others are read or decide none."""


def nanotron_launch(fields: Mapping[str, Any], run: Run) -> Launch:
    """
    What settings by path of nanotron say.

    Raises ``DataError`` if a value is no number, a schedule is unknown, or the degrees are not the devices, (1).
    """
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
    """
    What settings of Axolotl say.

    Raises ``DataError`` if a value is no number, or weights lie on hosts.
    """
    if fields.get("fsdp_config.offload_params") in (True, "true"):
        raise DataError("fsdp_config.offload_params: weights in the host's memory are not priced, expected false")
    if fields.get("adapter"):
        raise DataError(f"adapter {fields['adapter']}: training of adapters alone is not priced, expected none")
    tp = _count(fields, "tensor_parallel_size", 1)
    cp = _count(fields, "context_parallel_size", _count(fields, "sequence_parallel_degree", 1))
    found: dict[str, Any] = {"tp": tp, "pp": 1, "cp": cp, "micro_batch": _count(fields, "micro_batch_size", 1)}
    found["ep"] = _count(fields, "expert_parallel_size", 1)
    sharded = any(name.startswith("fsdp") for name in fields) or _count(fields, "dp_shard_size", 1) > 1
    named = list(_unread(fields, lambda name: not name.startswith(AXOLOTL_UNPRICED)))
    if deepspeed := fields.get("deepspeed"):
        stage = re.search(r"z(?:ero)?[_-]?([0-3])(?!\d)", str(deepspeed))
        found |= {"zero": int(stage[1])} if stage is not None else {}
        read = "is read from its name" if stage is not None else "is not in its name, zero=3 beside the file states it"
        named.append(f"deepspeed {deepspeed}: its ZeRO stage {read}")
    else:
        found["zero"] = 3 if sharded else 0
    if (copies := _count(fields, "dp_replicate_size", 1)) > 1 and found.get("zero"):
        found["copies"] = copies
    found["recompute"] = "full" if fields.get("gradient_checkpointing") not in (None, False, "false") else "none"
    if cp > 1:
        found["cp_comm"] = "p2p"
    steps, ranks = _count(fields, "gradient_accumulation_steps", 1), tp * cp
    if run.devices and run.devices % ranks == 0:
        found["global_batch"] = found["micro_batch"] * steps * (run.devices // ranks)
    options = {"seq": _count(fields, "sequence_len", 1)} if "sequence_len" in fields else {}
    return Launch(found, options, tuple(named))


def _count(fields: Mapping[str, Any], field: str, usual: int) -> int:
    value = fields.get(field)
    text = str(usual if value is None else value)
    if not text.isdecimal() or int(text) == 0:
        raise DataError(f"{field} {text:.60}: expected a whole number above 0")
    return int(text)


def _unread(fields: Mapping[str, Any], is_known: Callable[[str], bool]) -> Iterator[str]:
    """The sentence on settings that are on and not priced."""
    unpriced = [name for name, value in fields.items() if value not in (False, None, "") and not is_known(name)]
    if unpriced:
        yield f"not priced: {', '.join(unpriced)}"
