r"""
torchtitan's words as values of a configuration: flags, TOML, and modules.

A field of torchtitan is named by its section, ``parallelism.tensor_parallel_degree``. Batches are counted in sequences
(``training.local_batch_size``) or, in newer versions, in tokens. With W devices, c copies of the sharded states, and s
ranks that share a copy (-1: as many as W allows),

(1) :math:`tp \cdot pp \cdot cp \cdot c \cdot s = W`, and ep divides :math:`s \cdot cp \cdot tp`;
(2) where no division is stated, the L layers are dealt to X chunks: a chunk has
    :math:`\lfloor (L + a + b) / X \rfloor` layers, and one more while some are left over, first chunks first. The
    embedding counts as a layers of the first chunk and the head as b layers of the last (1 each unless stated), so
    these chunks have a and b layers less;
(3) states are sharded as ZeRO-0 if s = 1. Otherwise they are sharded as ZeRO-2 if weights stay gathered between the
    passes (policy ``never``, or ``default`` in pipelines), and else as ZeRO-3;
(4) of a known model, tp divides the heads and the key-value heads, ep divides the experts, and an embedding that is
    tied to the head asks for pp = 1. Layers without attention ask for cp = 1.

Sources: torchtitan/config/configs.py, torchtitan/config/job_config.py of 2025, torchtitan/models/common/decoder.py,
torchtitan/models/qwen3_5/parallelize.py, and torchtitan/distributed/pipeline_parallel.py,
_generate_llm_fqn_per_model_part.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.exports.torchtitan import NAMES
from taut.launchers.settings import Launch, Run, known, nearest, unpriced

DEGREES = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
}
REPLICATE, SHARD = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"
ETP = "parallelism.expert_tensor_parallel_degree"
PARTS = "parallelism.module_fqns_per_model_part"
SPLITS = "parallelism.pipeline_parallel_split_points"
SCHEDULE = "parallelism.pipeline_parallel_schedule"
FIRST, LAST = (f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
EACH = "parallelism.pipeline_parallel_layers_per_stage"
RESHARD = "parallelism.fsdp_reshard_after_forward"
AT_ONCE, TOKENS = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
CONTEXT, SEQUENCE = "training.max_context_length", "training.seq_len"
LOCAL, BATCH = "training.local_batch_size", "training.global_batch_size"
OLD_LOCAL = "training.batch_size"
PIPELINED = "parallelism.pipeline_parallel_microbatch_size"
PIPELINE_BATCHES = "parallelism.num_pp_microbatches"
COMPILE = "compile.enable"
MODE, HOSTS = "activation_checkpoint.mode", "training.enable_cpu_offload"
READ = {
    *DEGREES.values(), REPLICATE, SHARD, ETP, PARTS, SPLITS, SCHEDULE, FIRST, LAST, EACH, RESHARD, AT_ONCE, TOKENS,
    CONTEXT, SEQUENCE, LOCAL, BATCH, OLD_LOCAL, PIPELINED, PIPELINE_BATCHES, MODE, HOSTS,
    "parallelism.pipeline_parallel_schedule_csv", "activation_checkpoint.selective_ac_option",
    "training.mixed_precision_reduce", "training.mixed_precision_param", "parallelism.enable_sequence_parallel",
    "parallelism.disable_loss_parallel", "training.disable_cuda_graphs", "optimizer.name",
    COMPILE,
}  # fmt: skip
SILENT = re.compile("|".join(known("torchtitan_fields")))
OLD_SECTIONS = {"experimental.", "training."}
"""Sections in which older versions had degrees."""


def is_torchtitan(fields: Mapping[str, Any]) -> bool:
    """Whether fields by section and name are torchtitan's."""
    return any(name.startswith("parallelism.") or name in (LOCAL, AT_ONCE, SEQUENCE) for name in fields)


def current_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the names of today, where an older version had a degree in another section."""
    names = {
        field.rpartition(".")[2]: field for field in (*DEGREES.values(), REPLICATE, SHARD, SCHEDULE, PIPELINED, SPLITS)
    }
    found = dict(fields)
    for field, value in fields.items():
        section, _, name = field.rpartition(".")
        if f"{section}." in OLD_SECTIONS and name in names:
            found.pop(field)
            found.setdefault(names[name], value)
    return found


def torchtitan_launch(stated: Mapping[str, Any], run: Run) -> Launch:
    """What fields by section and name say of a run; a ``DataError`` if they break a rule or have no price."""
    fields = current_names(stated)
    if not is_torchtitan(fields):
        raise DataError("no setting of torchtitan, expected [parallelism] and [training] with its names")
    if str(fields.get(HOSTS, False)).lower() == "true":
        raise DataError(f"{HOSTS}: weights in the host's memory are not priced, expected false")
    values = torchtitan_values(fields, run)
    _check(fields, values, run)
    sequence = fields.get(CONTEXT, fields.get(SEQUENCE))
    options = {"seq": _count(fields, CONTEXT if CONTEXT in fields else SEQUENCE, 1)} if sequence else {}
    switched = frozenset(name for name, value in fields.items() if str(value).lower() != "false")
    return Launch(values, options, tuple(_named(fields, values)), switched)


def torchtitan_values(fields: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """What ``taut.plan`` may fix, ``layers`` of the chunks, ``copies`` of the sharded states and ``recompute``."""
    values: dict[str, Any] = {name: _count(fields, field, 1) for name, field in DEGREES.items()}
    values |= {"schedule": _schedule(fields) if values["pp"] > 1 else "1f1b"}
    chunks = 2 if values["schedule"] in ("interleaved-1f1b", "zb-v") else 1
    layers = _layers(fields, values["pp"], chunks, run)
    if values["schedule"] == "interleaved-1f1b":
        values["vpp"] = max(len(layers) // values["pp"], 1) if layers else 2
    values |= {"zero": _zero(fields), "sequence_parallel": values["tp"] > 1, "recompute": _recompute(fields)}
    if len(layers) > 1:
        values["layers"] = "|".join(map(str, layers))
    if values["cp"] > 1:
        values["cp_comm"] = "all_gather"
    if values["ep"] > 1:
        values["etp"] = _count(fields, ETP, 1)
    if values["zero"] and (copies := _count(fields, REPLICATE, 1)) > 1:
        values["copies"] = copies
    return values | _batch(fields, values, run)


def _count(fields: Mapping[str, Any], field: str, usual: int) -> int:
    """A whole number but 0 that a field states; negative ones leave it to torchtitan."""
    text = str(fields.get(field, usual))
    if not text.removeprefix("-").isdecimal() or int(text) == 0:
        raise DataError(f"{field} {text:.60}: expected a whole number above 0")
    return int(text)


def _schedule(fields: Mapping[str, Any]) -> str:
    given = str(fields.get(SCHEDULE, "1F1B"))
    names = {theirs.lower(): ours for ours, theirs in NAMES.items()}
    if given.lower() not in names:
        raise DataError(f"{SCHEDULE} {given}: expected one of {', '.join(NAMES.values())}")
    return names[given.lower()]


def _layers(fields: Mapping[str, Any], pp: int, chunks: int, run: Run) -> list[int]:
    """Layers of every chunk, as stated or by (2); none where neither tells. ``chunks``: of a stage unless stated."""
    parts = fields.get(PARTS) or []
    if isinstance(parts, str):
        raise DataError(f"{PARTS} {parts:.40}: expected lists of names")
    if parts:
        return [sum(str(name).startswith("layers.") for name in part) for part in parts]
    total = run.layers
    if fields.get(SPLITS) and total:
        points = fields[SPLITS]
        names = points if isinstance(points, list) else str(points).split(",")
        starts = [0, *(int(str(name).rpartition(".")[2]) for name in names if str(name).rpartition(".")[2].isdecimal())]
        return [end - start for start, end in zip(starts, [*starts[1:], total], strict=True)]
    if pp == 1 or not total:
        return []
    ends = [_ends(fields, FIRST), _ends(fields, LAST)]
    if EACH in fields and fields[EACH] not in (None, "None"):
        each = _count(fields, EACH, 1)
        parts_of_all = math.ceil((total + sum(ends)) / each)
        if parts_of_all % pp:
            raise DataError(f"{EACH} {each}: {parts_of_all} chunks, expected a multiple of {pp} stages")
        chunks = parts_of_all // pp
    whole = [(total + sum(ends) + pp * chunks - 1 - chunk) // (pp * chunks) for chunk in range(pp * chunks)]
    whole[0] -= ends[0]
    whole[-1] -= ends[1]
    if min(whole) < 0:
        raise DataError(f"{DEGREES['pp']} {pp}: {total} layers in {pp * chunks} chunks, expected one in each")
    return whole


def _ends(fields: Mapping[str, Any], field: str) -> int:
    text = str(fields.get(field, 1))
    if not text.isdecimal():
        raise DataError(f"{field} {text:.60}: expected a whole number from 0")
    return int(text)


def _zero(fields: Mapping[str, Any]) -> int:
    """The ZeRO stage, (3)."""
    if _count(fields, SHARD, -1) == 1:
        return 0
    policy = fields.get(RESHARD, "default")
    in_pipeline = _count(fields, DEGREES["pp"], 1) > 1
    return 2 if policy == "never" or (policy == "default" and in_pipeline) else 3


def _recompute(fields: Mapping[str, Any]) -> str:
    mode = str(fields.get(MODE, "selective"))
    return mode if mode in ("none", "full") else "selective"


def _replicas(fields: Mapping[str, Any], values: Mapping[str, Any], run: Run) -> int:
    """Data-parallel replicas c s, 0 where they are not known."""
    shard = _count(fields, SHARD, -1)
    if shard > 0:
        return shard * _count(fields, REPLICATE, 1)
    ranks = values["tp"] * values["pp"] * values["cp"]
    return run.devices // ranks if run.devices and run.devices % ranks == 0 else 0


def _batch(fields: Mapping[str, Any], values: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Micro-batch and batch, from sequences or from tokens, where they are stated or follow."""
    replicas = _replicas(fields, values, run)
    if fields.get(AT_ONCE) and fields.get(CONTEXT):
        each = _count(fields, AT_ONCE, 1) // _count(fields, CONTEXT, 1)
        step = _count(fields, TOKENS, -1)
        if step > 0:
            return {"micro_batch": each, "global_batch": step // _count(fields, CONTEXT, 1)}
        whole = each * replicas * _count(fields, PIPELINE_BATCHES, 1)
        return {"micro_batch": each} | ({"global_batch": whole} if whole else {})
    local = LOCAL if LOCAL in fields else OLD_LOCAL
    field, usual = (PIPELINED, 1) if values["pp"] > 1 else (local, 8)
    sequences = _count(fields, BATCH, -1)
    if sequences < 0 and local in fields:
        sequences = _count(fields, local, 8) * replicas
    given = {"global_batch": sequences} if sequences > 0 else {}
    return {"micro_batch": _count(fields, field, usual)} | given


def _check(fields: Mapping[str, Any], values: Mapping[str, Any], run: Run) -> None:
    """Refuse degrees that do not make up the devices, (1), or do not suit the model, (4)."""
    if run.model is not None:
        _check_model(run.model, values)
    if not run.devices:
        return
    degrees = values["tp"] * values["pp"] * values["cp"]
    shard, copies = _count(fields, SHARD, -1), _count(fields, REPLICATE, 1)
    whole = degrees * copies * max(shard, 1)
    if run.devices % whole or (shard > 0 and whole != run.devices):
        parts = f"tp {values['tp']} x pp {values['pp']} x cp {values['cp']} x copies {copies}"
        shown = f"{parts} x shards {shard}" if shard > 0 else parts
        sign = "is not" if shard > 0 else "does not divide"
        raise DataError(f"torchtitan refuses it: {shown} = {whole} {sign} {run.devices} devices")
    if values["ep"] > 1 and (run.devices // values["pp"] // copies) % values["ep"]:
        region = run.devices // values["pp"] // copies
        raise DataError(
            f"torchtitan refuses it: {DEGREES['ep']} {values['ep']}: expected a divisor of shards x cp x tp = {region}"
        )


def _check_model(model: ModelSpec, values: Mapping[str, Any]) -> None:
    """Refuse degrees that do not divide heads or experts, and tied embeddings in pipelines, (4)."""
    tp, ep = values["tp"], values["ep"]
    for layer in model.kinds.values():
        if values["cp"] > 1 and any(part.mixer for part in layer.together):
            raise DataError(
                f"torchtitan refuses it: {DEGREES['cp']} {values['cp']} with layers {layer.kind!r} without attention, "
                "expected 1"
            )
        for count, what in ((layer.heads, "heads"), (layer.key_value_heads, "key-value heads")):
            if layer.mixes and count % tp:
                raise DataError(
                    f"torchtitan refuses it: {DEGREES['tp']} {tp} does not divide {count} {what}, expected "
                    f"{nearest(count, tp)}"
                )
        if layer.experts is not None and layer.experts.num_experts % ep:
            count = layer.experts.num_experts
            raise DataError(
                f"torchtitan refuses it: {DEGREES['ep']} {ep} does not divide {count} experts, expected "
                f"{nearest(count, ep)}"
            )
    if model.tied_embedding and values["pp"] > 1:
        raise DataError(f"torchtitan refuses it: {DEGREES['pp']} {values['pp']} with a tied embedding, expected 1")


def _named(fields: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Fields that nothing prices."""
    yield from unpriced(
        [name for name, value in fields.items() if _says(value) and not (name in READ or SILENT.match(name))]
    )
    if str(fields.get(COMPILE, False)).lower() == "true":
        yield f"priced as the calibration's runs had it: {COMPILE}"
    if values["tp"] > 1 and str(fields.get("parallelism.enable_sequence_parallel", True)).lower() == "false":
        yield "parallelism.enable_sequence_parallel false: tensor ranks are priced with sequence parallelism"
    if str(fields.get("training.mixed_precision_param", "bfloat16")) != "bfloat16":
        yield f"training.mixed_precision_param {fields['training.mixed_precision_param']}: priced as --precision says"
    option = str(fields.get("activation_checkpoint.selective_ac_option", "op"))
    if values["recompute"] == "selective" and option != "op":
        yield f"activation_checkpoint.selective_ac_option {option}: priced as op"
    if LOCAL not in fields and OLD_LOCAL not in fields and AT_ONCE not in fields and values["pp"] == 1:
        yield f"{LOCAL}: not stated, {values['micro_batch']} is taken"
    optimizer = str(fields.get("optimizer.name", "AdamW"))
    if optimizer not in ("Adam", "AdamW"):
        yield f"optimizer.name {optimizer}: priced as AdamW"
    if str(fields.get(MODE, "selective")) not in ("none", "full", "selective"):
        yield f"{MODE} {fields[MODE]}: priced as selective"


def _says(value: Any) -> bool:
    """Whether a field turns something on."""
    return value not in (False, None, "", "false", "False", [], "none")
