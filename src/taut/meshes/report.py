"""A plan of meshes in words: degrees by type of device, layers and memory by mesh, where the time goes, the bound."""

from collections.abc import Sequence
from typing import Any

from taut.data.units import GIB
from taut.reports.proof import prices, status_label, unchecked
from taut.solver.certificate.document import problem_of
from taut.solver.meshes.document import MeshDocument
from taut.words import percent, text_table

HEADS = ("device", "stages", "tp", "dp", "micro-batch", "layers of the stages", "recompute", "GiB of each")


def mesh_summary(document: MeshDocument, spaces: Sequence[str] = ()) -> str:
    """
    The plan in words.

    ``spaces``: lines of the status of several spaces, where the plan's own is one of them.
    """
    strategy, predicted = document.strategy, document.predicted
    work, times = document.workload, predicted.breakdown_s
    shared = f"{strategy.num_micro_batches} micro-batches of 1F1B" + (
        f", zero={strategy.zero}" if strategy.zero else ""
    )
    return "\n".join(
        [
            f"{work.model} on {work.cluster}, {work.num_devices} devices, global batch {work.global_batch}",
            "",
            text_table([HEADS, *mesh_rows(document)]),
            "",
            f"step time   {predicted.step_time_s:.6g} s, {predicted.tokens_per_s:.4g} tokens/s; {shared}, "
            f"ranks in the order {strategy.rank_order}",
            f"of it       {times['passes']:.4g} s passes with tensor traffic, {times['pipeline_transfers']:.4g} s "
            f"between stages, {times['data_parallel']:.4g} s gradients, {times['optimizer']:.4g} s optimizer",
            *proof_lines(document, spaces),
        ]
    )


def proof_lines(document: MeshDocument, spaces: Sequence[str] = ()) -> list[str]:
    """Status, bound and space, after lines of several spaces, and what the prices rest on."""
    stated = document.certificate
    bound = "unknown" if stated.lower_bound_s is None else f"{stated.lower_bound_s:.6g} s"
    return [
        *spaces,
        f"{status_label(spaces)}{document.status}: lower bound {bound}, gap {percent(stated.gap)}",
        f"space       {_counted(stated.choices)}, one a type of device, all bounded",
        *prices(document.inputs, unchecked(document.inputs)),
    ]


def mesh_stage_records(document: MeshDocument) -> list[dict[str, Any]]:
    """
    List the stages: layers, recompute, kind of device, bytes predicted, kept free and there, and the devices.

    ``document``: a plan of meshes.
    """
    chosen, predicted, problem = document.strategy, document.predicted, problem_of(document, "a plan of meshes")
    kinds = [mesh.device for mesh in chosen.meshes for _ in range(mesh.pp)]
    return [
        {
            "stage": x,
            "layers": f"{first}-{end - 1}",
            "num_layers": end - first,
            "recompute": chosen.recompute[x],
            "device": kinds[x],
            "memory_bytes": predicted.memory_bytes[x],
            "margin_bytes": predicted.capacity_bytes[x] - int(problem.budget[problem.device_types.index(kinds[x])]),
            "capacity_bytes": predicted.capacity_bytes[x],
            "devices": [device for replica in document.devices[x] for device in replica],
        }
        for x, (first, end) in enumerate(chosen.stages)
    ]


def _counted(choices: int | None) -> str:
    """How many choices there are in words."""
    return f"{choices} choices of meshes" if choices is not None else "choices of meshes not counted within the limit"


def mesh_rows(document: MeshDocument) -> list[tuple[str, ...]]:
    """One row a mesh."""
    strategy, predicted, found, start = document.strategy, document.predicted, list[tuple[str, ...]](), 0
    for mesh in strategy.meshes:
        own = slice(start, start + mesh.pp)
        start += mesh.pp
        layers = " ".join(str(end - first) for first, end in strategy.stages[own])
        kinds = " ".join(dict.fromkeys(strategy.recompute[own]))
        pairs = zip(predicted.memory_bytes[own], predicted.capacity_bytes[own], strict=True)
        need, room = max(pairs)
        memory = f"{need / GIB:.1f} of {room / GIB:.0f}"
        degrees = (mesh.pp, mesh.tp, mesh.dp, mesh.micro_batch)
        found.append((mesh.device, *map(str, degrees), layers, kinds, memory))
    return found
