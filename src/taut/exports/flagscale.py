"""
FlagScale: sections ``system`` and ``model`` of its training configuration, with meshes of devices of several types.

A mesh is a run of stages on devices of one type: [tp, cp, ep, dp, pp]. FlagScale numbers processes by device type, in
the order of ``hetero_device_types``, and those of a type as they were started. So stages of several types within, and
stages of one type before and after those of another, are refused. Its heterogeneous mode has neither context ranks nor
chunks. Its runner starts processes node by node, so a hostfile is written for plans that lie so; others are started by
Slurm's, Open MPI's or torchrun's files.

Of a plan whose degrees differ by type of device, the words for model, precision and sharding are those of the first
mesh as an ordinary plan of all stages, since FlagScale derives micro-batches of later meshes from the first one's. The
plan's orders of ranks are FlagScale's, over the nodes of a type as the hostfile lists them, which is not always the
cluster's order, so that no process is placed by hand.

Source: FlagScale of November 2025, examples/aquila/conf/train/hetero.yaml, flagscale/train/arguments.py,
flagscale/train/hetero and flagscale/runner.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from taut.exports.architecture import CHUNKS, DEEPEP, EMBEDDING, FIRST, LAST, LAYOUT, LOSS
from taut.exports.arguments import has_deepep, number_or_text
from taut.exports.deepspeed import is_in_order
from taut.exports.job import ExportError, Job
from taut.exports.megatron import megatron_flags
from taut.planning.plan import Plan
from taut.quoting import json_text, markdown_text, plain_word, yaml_text
from taut.solver.certificate.document import NAME
from taut.solver.meshes.search import ORDERS
from taut.words import percent

NO_TYPES = "nearest: export to megatron, which asks for no types"
REPLICA_MAJOR = "use_tp_pp_dp_mapping"
"""The word for FlagScale's second order of ranks."""


def stage_types(job: Job) -> list[str]:
    """Device type of every stage."""
    names = [node.device.name for node in job.machines]
    stages = job.nodes.reshape(job.strategy.pp, -1)
    kinds = [sorted({names[node] for node in stage}) for stage in stages.tolist()]
    words = {f"stage {x} has devices of {' and '.join(kind)}": len(kind) > 1 for x, kind in enumerate(kinds)}
    job.refuse({f"{each}, which FlagScale cannot; {NO_TYPES}": mixed for each, mixed in words.items()})
    return [kind[0] for kind in kinds]


def flagscale_config(job: Job) -> dict[str, Any]:
    """The two sections of a plan."""
    flags, chosen, types = plain_flags(job), job.strategy, stage_types(job)
    if len(set(types)) > 1:
        words = "mixed devices with context or expert ranks or several chunks a stage, which FlagScale refuses; plan "
        job.refuse({f"{words}with --fix cp=1,ep=1,schedule=1f1b": chosen.cp > 1 or chosen.vpp > 1 or chosen.ep > 1})
        runs = [(kind, len(list(run))) for kind, run in groupby(types)]
        kinds = [kind for kind, _ in runs]
        again = "lie before and after those on another type, which FlagScale numbers one after the other"
        job.refuse({f"stages on {kind} {again}; {NO_TYPES}": kind in kinds[:place] for place, kind in enumerate(kinds)})
        flags = with_meshes(flags, job.layers, [(kind, (chosen.tp, 1, 1, chosen.dp, pp)) for kind, pp in runs])
    return sections(flags)


def with_meshes(
    flags: dict[str, Any], layers: Sequence[int], meshes: Sequence[tuple[str, tuple[int, ...]]]
) -> dict[str, Any]:
    """The words of a plan with its meshes, device type and [tp, cp, ep, dp, pp] of each, in place of its division."""
    divided = {flag.removeprefix("--").replace("-", "_") for flag in (LAYOUT, CHUNKS, FIRST, LAST, EMBEDDING, LOSS)}
    hetero = {
        "enable_hetero": True,
        "hetero_pipeline_layer_split": list(layers),
        "hetero_process_meshes": [size for _, sizes in meshes for size in sizes],
        "hetero_device_types": [kind for kind, _ in meshes],
    }
    return {name: value for name, value in flags.items() if name not in divided} | {"hetero": hetero}


def sections(flags: dict[str, Any]) -> dict[str, Any]:
    """Words by the section that they stand in."""
    system = {name: value for name, value in flags.items() if name.startswith(SYSTEM)}
    return {"system": system, "model": {name: value for name, value in flags.items() if name not in system}}


def plain_flags(job: Job) -> dict[str, Any]:
    """
    The words of a plan as keys: switches as true, numbers as numbers.

    FlagScale's Megatron-LM has DeepEP as the only backend of the flex dispatcher.
    """
    flags = megatron_flags(job)
    flags |= {DEEPEP: None} if has_deepep(job, flags, "FlagScale's Megatron-LM has not") else {}
    values = {name[2:].replace("-", "_"): value for name, value in flags.items()}
    return {name: True if value is None else number_or_text(value) for name, value in values.items()}


SYSTEM = (
    "tensor_model", "pipeline_model", "context_parallel", "sequence_parallel", "use_", "data_parallel", "overlap",
    "num_layers_per", "num_virtual", "num_distributed", "recompute", "ckpt", "expert_model", "expert_tensor",
    "accumulate", "grad_reduce", "bf16", "fp16", "fp8", "fp4", "decoder_first", "decoder_last", "account_for",
    "optimizer_", "activation_", "cpu_offloading", "fine_grained", "offload_modules", "hetero", "tp_comm",
)  # fmt: skip
"""Beginnings of the names that stand under ``system``."""


def flagscale_files(job: Job) -> dict[str, str]:
    """The configuration, and the hostfile with the type of every host where its runner can place the processes."""
    files = {"train.yaml": yaml_text(flagscale_config(job))}
    if not is_in_order(job):
        return files
    counts = {node: int((job.nodes == node).sum()) for node in job.node_order()}
    return files | {"hostfile": "".join(_host_line(job, node, count) for node, count in counts.items())}


def _host_line(job: Job, machine: int, slots: int) -> str:
    """The line of a machine in a hostfile, with its type of device as a word."""
    kind = plain_word(job.machines[machine].device.name, "hostfile: device type")
    return f"{job.host_names[machine]} slots={slots} type={kind}\n"


def mesh_files(plan: Plan, hosts: Sequence[str] = ()) -> dict[str, str]:
    """Texts by file name; ``hosts`` names the cluster's machines in its order, ``node-0`` and so on without them."""
    job = Job(_first_mesh(plan), tuple(hosts))
    strategy, flags = plan.meshed.strategy, plain_flags(job)
    meshes = [(mesh.device, (mesh.tp, 1, 1, mesh.dp, mesh.pp)) for mesh in strategy.meshes]
    flags = with_meshes(flags, job.layers, meshes)
    if strategy.rank_order != ORDERS[0]:
        flags[REPLICA_MAJOR] = True
    order = _hosts_in_order(plan)
    return {
        "train.yaml": yaml_text(sections(flags)),
        "hostfile": "".join(_host_line(job, node, job.machines[node].machine_size) for node in order),
        "plan.json": json_text(plan.document),
        "launch.md": _notes(plan),
    }


def _hosts_in_order(plan: Plan) -> list[int]:
    """Machines as the hostfile lists them: those of a type in the order of their ranks; refuses any other order."""
    cluster = plan.cluster_spec.machine_list
    node_of = np.repeat(np.arange(len(cluster)), [node.machine_size for node in cluster])
    found, by_stage = list(range(len(cluster))), plan.meshed.strategy.rank_order == ORDERS[0]
    for devices in plan.meshed.mesh_devices(plan.source):
        ranks = (devices if by_stage else devices.swapaxes(0, 1)).ravel()
        nodes = list(dict.fromkeys(node_of[ranks].tolist()))
        if ranks.tolist() != [device for node in nodes for device in np.flatnonzero(node_of == node).tolist()]:
            raise ExportError(
                f"{plan.source}: devices are not in the order {plan.meshed.strategy.rank_order} over nodes"
            )
        for place, node in zip(sorted(nodes), nodes, strict=True):
            found[place] = node
    return found


def _first_mesh(plan: Plan) -> Plan:
    """The first mesh as an ordinary plan of all stages, for the words that all meshes share; devices mean nothing."""
    typed, document = plan.meshed, plan.document
    strategy, mesh = typed.strategy, typed.strategy.meshes[0]
    pp = sum(each.pp for each in strategy.meshes)
    degrees = {"pp": pp, "tp": mesh.tp, "dp": mesh.dp, "vpp": 1, "micro_batch": mesh.micro_batch}
    shared = {"schedule": "1f1b", "sequence_parallel": any(each.tp > 1 for each in strategy.meshes)}
    unknown = ("communication_gap", "verified_gap", "lower_bound_no_margin_s")
    return Plan(
        {
            **{name: value for name, value in document.items() if name != NAME},
            "format": "taut-plan/1",
            "strategy": {**document["strategy"], **degrees, **shared},
            "placement": {"order": "pp,dp,tp", "devices": [[[0] * mesh.tp] * mesh.dp] * pp},
            "predicted": {**document["predicted"], "margin_bytes": [0] * pp, "mfu": None},
            "certificate": {**document["certificate"], **dict.fromkeys(unknown), "candidates": []},
        },
        plan.source,
    )


def _notes(plan: Plan) -> str:
    """What to run and what to check."""
    work, strategy = plan.meshed.workload, plan.meshed.strategy
    lines = [
        f"# {markdown_text(f'{work.model} on {work.cluster}')}: {len(strategy.meshes)} meshes, "
        f"{work.num_devices} processes",
        "",
        f"Predicted: {plan.step_time_s:.4g} s a step, gap {percent(plan.gap)}.",
        "",
        "- merge train.yaml into your configuration of FlagScale, and name hostfile in its experiment's runner",
        "- the order of the hostfile decides the ranks: keep it",
        "- FlagScale numbers processes by device type; no process is placed by hand",
        "- tokenizer, data and learning rate are yours to add",
    ]
    return "\n".join(lines) + "\n"
