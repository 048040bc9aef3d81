"""
Settings of torchtitan as values of a configuration: flags, a TOML file of older versions, or our own ``taut_plan.py``.

A field is named by its section, ``parallelism.tensor_parallel_degree``. Batches are counted in sequences
(``training.local_batch_size``) or, in newer versions, in tokens.
"""

import ast
import tomllib
from collections.abc import Mapping
from typing import Any

from taut.errors import DataError
from taut.exports.readers.megatron_line import flags_of
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
    values |= {"zero": _zero(fields), "sequence_parallel": values["tp"] > 1, "recompute": _recompute(fields)}
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


def _zero(fields: Mapping[str, Any]) -> int:
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
