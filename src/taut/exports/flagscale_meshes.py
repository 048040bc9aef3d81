"""
FlagScale: the configuration and hostfile of a plan of meshes.

The words for model, precision and sharding are those of the first mesh as an ordinary plan of all stages, since
FlagScale derives micro-batches of later meshes from the first one's. The plan's orders of ranks are FlagScale's, over
the nodes of a type as the hostfile lists them, which is not always the cluster's order, so that no process is placed by
hand. Source: FlagScale of November 2025, flagscale/train/arguments.py and flagscale/train/hetero/parallel_context.py.
"""

import json
from collections.abc import Sequence

import numpy as np
import yaml

from taut.exports.flagscale import plain_flags, sections, with_meshes
from taut.exports.job import ExportError, Job
from taut.meshes.plan import MeshedPlan
from taut.planning.plan import Plan
from taut.solver.meshes.search import ORDERS
from taut.solver.meshes.spaces import NAME
from taut.words import percent

REPLICA_MAJOR = "use_tp_pp_dp_mapping"


def mesh_files(plan: MeshedPlan, hosts: Sequence[str] = ()) -> dict[str, str]:
    """
    Texts by file name.

    ``hosts``: names of the cluster's nodes in its order; ``node-0`` and so on where none are known. Raises
    ``DataError`` if FlagScale cannot run the plan, or the hosts are not those of the cluster.
    """
    job = Job(_first_mesh(plan), tuple(hosts))
    strategy, flags = plan.typed.strategy, plain_flags(job)
    meshes = [(mesh.device, (mesh.tp, 1, 1, mesh.dp, mesh.pp)) for mesh in strategy.meshes]
    flags = with_meshes(flags, job.layers, meshes)
    if strategy.rank_order != ORDERS[0]:
        flags[REPLICA_MAJOR] = True
    nodes = [(job.host_names[node], job.cluster.node_list[node]) for node in _hosts_in_order(plan)]
    return {
        "train.yaml": yaml.safe_dump(sections(flags), sort_keys=False, default_flow_style=None),
        "hostfile": "".join(f"{name} slots={node.gpus_per_node} type={node.device.name}\n" for name, node in nodes),
        "plan.json": json.dumps(plan.document) + "\n",
        "launch.md": _notes(plan),
    }


def _hosts_in_order(plan: MeshedPlan) -> list[int]:
    """
    Nodes of the cluster as the hostfile lists them: those of a type in the order of their ranks, else as they stand.

    Raises ``ExportError`` if the devices of a mesh are not in the plan's order of ranks over some order of nodes.
    """
    cluster = plan.cluster_spec.node_list
    node_of = np.repeat(np.arange(len(cluster)), [node.gpus_per_node for node in cluster])
    found, by_stage = list(range(len(cluster))), plan.typed.strategy.rank_order == ORDERS[0]
    for devices in plan.typed.mesh_devices(plan.source):
        ranks = (devices if by_stage else devices.swapaxes(0, 1)).ravel()
        nodes = list(dict.fromkeys(node_of[ranks].tolist()))
        if ranks.tolist() != [device for node in nodes for device in np.flatnonzero(node_of == node).tolist()]:
            raise ExportError(
                f"{plan.source}: devices are not in the order {plan.typed.strategy.rank_order} over nodes"
            )
        for place, node in zip(sorted(nodes), nodes, strict=True):
            found[place] = node
    return found


def _first_mesh(plan: MeshedPlan) -> Plan:
    """The first mesh as an ordinary plan of all stages, for the words that all meshes share; devices mean nothing."""
    typed, document = plan.typed, plan.document
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


def _notes(plan: MeshedPlan) -> str:
    """What to run and what to check."""
    work, strategy = plan.typed.workload, plan.typed.strategy
    lines = [
        f"# {work.model} on {work.cluster}: {len(strategy.meshes)} meshes, {work.num_devices} processes",
        "",
        f"Predicted: {plan.step_time_s:.4g} s a step, gap {percent(plan.gap)}.",
        "",
        "- merge train.yaml into your configuration of FlagScale, and name hostfile in its experiment's runner",
        "- the order of the hostfile decides the ranks: keep it",
        "- FlagScale numbers processes by device type; no process is placed by hand",
        "- tokenizer, data and learning rate are yours to add",
    ]
    return "\n".join(lines) + "\n"
