"""
Records of a plan document: one for each stage, and one for each worker; devices and micro-batches in words.

Stage x of a schedule with several chunks a device is device x of the pipeline and holds all chunks on it.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.units import KIB
from taut.formulations.schedules.orders import device_of_chunk
from taut.solver.certificate.document import AnyDocument, DocumentFrame, MeshDocument, PlanDocument, StrategySection

#: Ranges of devices equally far apart that are written out: a table of 80 columns has room for four.
MOST_LIKE_RANGES = 4


def described_cluster(document: DocumentFrame) -> ClusterSpec:
    """Read the cluster that a plan document describes."""
    return ClusterSpec.parse(document.inputs["cluster"].spec, "inputs.cluster")


def described_model(document: DocumentFrame) -> ModelSpec:
    """Read the model that a plan document describes."""
    return ModelSpec.parse(document.inputs["model"].spec, "inputs.model")


def nodes_of_expert_groups(document: PlanDocument) -> int:
    """Most nodes on which the GPUs of one expert group lie, ``etp * ep`` consecutive ranks of a stage."""
    node_of = [k for k, node in enumerate(described_cluster(document).node_list) for _ in range(node.gpus_per_node)]
    size = document.strategy.ep * max(document.strategy.etp, 1)
    stages = [[device for ranks in stage for device in ranks] for stage in document.placement.devices]
    groups = (stage[first : first + size] for stage in stages for first in range(0, len(stage), size))
    return max(len({node_of[device] for device in group}) for group in groups)


def stage_records(document: AnyDocument) -> list[dict[str, Any]]:
    """List the stages: layers, recompute, kind of device, bytes predicted, kept free and there, unlike degrees."""
    return _of_meshes(document) if isinstance(document, MeshDocument) else _of_one_degree(document)


def _of_meshes(document: MeshDocument) -> list[dict[str, Any]]:
    """The stages of a plan of meshes, each with its own degrees."""
    chosen, predicted = document.strategy, document.predicted
    memory = MemoryModel.parse(document.inputs["memory_model"].spec, "inputs.memory_model")
    meshes = [mesh for mesh in chosen.meshes for _ in range(mesh.pp)]
    return [
        {
            "stage": x,
            "layers": _layers(chosen.stages[x], at_first=False),
            "num_layers": chosen.stages[x][1] - chosen.stages[x][0],
            "recompute": chosen.recompute[x],
            "device": mesh.device,
            "tp": mesh.tp,
            "dp": mesh.dp,
            "micro_batch": mesh.micro_batch,
            "first_device": document.devices[x][0][0],
            "memory_bytes": predicted.memory_bytes[x],
            "margin_bytes": memory.margin_kib(predicted.capacity_bytes[x] // KIB) * KIB,
            "capacity_bytes": predicted.capacity_bytes[x],
        }
        for x, mesh in enumerate(meshes)
    ]


def _of_one_degree(document: PlanDocument) -> list[dict[str, Any]]:
    """The stages of a plan of one degree for all of them; a stage of several chunks names the layers of each."""
    modules = "+".join(document.certificate.space.get("recompute_modules", ()))
    chosen, predicted = document.strategy, document.predicted
    named = {"selective": f"selective:{modules}"} if modules else {}
    named |= {"full": f"full:{chosen.recompute_layers}"} if chosen.recompute_layers else {}
    devices = document.placement.devices
    rank = device_of_chunk(chosen.schedule, chosen.pp, chosen.vpp).tolist()
    kinds = [node.device.name for node in described_cluster(document).node_list for _ in range(node.gpus_per_node)]
    return [
        {
            "stage": x,
            "layers": ", ".join(_layers(chosen.stages[c], at_first=c == 0) for c in chunks),
            "num_layers": sum(chosen.stages[c][1] - chosen.stages[c][0] for c in chunks),
            "recompute": ", ".join(
                dict.fromkeys(named.get(kind, kind) for kind in (chosen.recompute[c] for c in chunks))
            ),
            "device": ", ".join(sorted({kinds[d] for group in devices[x] for d in group})),
            "first_device": devices[x][0][0],
            "memory_bytes": predicted.memory_bytes[x],
            "margin_bytes": predicted.margin_bytes[x],
            "capacity_bytes": predicted.capacity_bytes[x],
        }
        for x in range(chosen.pp)
        for chunks in [[c for c, d in enumerate(rank) if d == x]]
    ]


def _layers(stage: list[int], *, at_first: bool) -> str:
    """The layers of a chunk in words; an end chunk may have none."""
    first, end = stage
    if end - first < 2:
        return str(first) if first < end else "embedding" if at_first else "head"
    return f"{first}-{end - 1}"


def worker_records(document: PlanDocument) -> list[dict[str, Any]]:
    """List the workers, tensor ranks fastest, then context ranks and replicas: ranks, device, node, place in it."""
    sizes = [node.gpus_per_node for node in described_cluster(document).node_list]
    seats = [(node, local) for node, size in enumerate(sizes) for local in range(size)]
    return [
        {
            "stage": x,
            "replica": z,
            "context_rank": y // document.strategy.tp,
            "tensor_rank": y % document.strategy.tp,
            "device": device,
            "node": seats[device][0],
            "local": seats[device][1],
        }
        for x, stage in enumerate(document.placement.devices)
        for z, group in enumerate(stage)
        for y, device in enumerate(group)
    ]


def device_ranges(devices: Iterable[int]) -> str:
    """
    Name devices in a few characters: of more than four like ranges equally far apart the first two and the last.

    Examples
    --------
    >>> device_ranges([0, 1, 2, 3, 64, 65, 9])
    '0-3,9,64-65'
    >>> device_ranges(64 * k + i for k in range(16) for i in range(8))
    '0-7,64-71,...,960-967'
    """
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    steps = {(first - before, last - end) for (before, end), (first, last) in pairwise(runs)}
    if len(runs) > MOST_LIKE_RANGES and len(steps) == 1:
        words[2:-1] = ["..."]
    return ",".join(words)


def batch_words(strategy: StrategySection, each: str = "a pipeline and step") -> str:
    """
    How many micro-batches replicas run, those that run as many together.

    Examples
    --------
    >>> import taut
    >>> batch_words(taut.plan("gpt2-345m", "dgx-a100", global_batch=64, fix={"dp": 8, "micro_batch": 2}).strategy)
    '4 of them a pipeline and step'
    """
    if not strategy.micro_batches:
        return f"{strategy.num_micro_batches} of them {each}"
    replicas: dict[int, list[int]] = {}
    for replica, count in enumerate(strategy.micro_batches):
        replicas.setdefault(count, []).append(replica)
    parts = [f"{count} in replicas {device_ranges(held)}" for count, held in sorted(replicas.items())]
    return f"of them {each}: {', '.join(parts)}"
