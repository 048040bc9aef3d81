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
"""

import json
from pathlib import Path
from typing import Any

from taut.data.read import read_json, read_text
from taut.errors import DataError
from taut.exports.readers.megatron_line import flags_of, megatron_values
from taut.exports.readers.torchtitan_fields import flag_fields, module_fields, toml_fields, torchtitan_values

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
