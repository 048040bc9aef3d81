"""A simulated step in words: its time beside the closed form's, where it goes, and memory."""

from typing import TYPE_CHECKING

from taut.data.units import GIB
from taut.formulations.simulation.operators import STREAMS
from taut.simulation.meshes import MeshSimulation
from taut.words import grid, report

if TYPE_CHECKING:
    from rich.table import Table

    from taut.simulation.result import Simulation

WORDS = {
    "compute": "computation",
    "tensor_parallel": "tensor groups",
    "context_parallel": "context rings",
    "expert_parallel": "expert ranks",
    "sharding": "shards",
    "data_parallel": "gradients",
    "pipeline_transfers": "messages",
    "bubble": "bubble",
    "passes": "passes",
    "optimizer": "optimizer",
    "waiting": "bubble and messages",
    "constant": "constant",
}
"""Parts of a step in words; communication counts where nothing hides it."""
MOST_ROWS = 16
"""Devices that are listed one by one."""


def summary(found: "Simulation | MeshSimulation", *, width: int = 110) -> str:
    """Text of a simulation."""
    table = _mesh_table(found) if isinstance(found, MeshSimulation) else _table(found)
    return report("\n".join(_lines(found)), "", table, width=width)


def _lines(found: "Simulation | MeshSimulation") -> list[str]:
    problem, step = found.problem, found.step_time_s
    parts = ", ".join(f"{WORDS[name]} {part / step:.1%}" for name, part in found.breakdown_s.items() if part > 0)
    if isinstance(found, MeshSimulation):
        words, counted = found.chosen.choice.words(problem.device_types), _passes(found)
    else:
        words, counted = str(found.strategy.candidate), _graph(found)
    return [
        f"{problem.model.name} on {problem.cluster.name}: {words}",
        f"step        {step:.6g} s; closed form {found.closed_form_s:.6g} s ({step / found.closed_form_s - 1:+.2%})",
        f"time        {parts}",
        *counted,
    ]


def _passes(found: MeshSimulation) -> list[str]:
    """How many passes and pipelines a plan of meshes has."""
    count = len(found.timeline.pipelines)
    return [f"passes      {found.tasks} on {count} pipeline{'s' if count > 1 else ''} of 1F1B"]


def _graph(found: "Simulation") -> list[str]:
    """How many tasks the graph has, and of which replicas; what else is to be known of the step."""
    chosen, simulated = found.strategy.candidate, len(found.graph.replicas.simulated)
    what = "replicas" if chosen.pipelines == chosen.dp else "expert groups"
    alike = f"; {simulated} of {chosen.pipelines} {what} simulated, the others are alike"
    alike = alike if simulated < chosen.pipelines else ""
    return [
        f"graph       {found.tasks} tasks{alike}",
        *(["links       flows that meet on a node's network cards slow each other"] if found.share_links else []),
        *([] if found.fits else ["memory      does not fit"]),
    ]


def _mesh_table(found: MeshSimulation) -> "Table":
    """When every stage ends its passes, and its memory."""
    table = grid("device", "kind", "passes end", "GiB")
    for stage, ended in zip(found.plan.stages, found.timeline.ended, strict=True):
        memory = f"{stage['memory_bytes'] / GIB:.1f} of {stage['capacity_bytes'] / GIB:.0f}"
        table.add_row(f"stage {stage['stage']}", stage["device"], f"{ended:.6g} s", memory)
    return table


def _table(found: "Simulation") -> "Table":
    """Share of the step in which each stream is busy, bubble and memory, by device of the first simulated pipeline."""
    shown = [name for name in STREAMS if max(found.utilisation[name]) > 0]
    table = grid("device", *(f">{name}" for name in (*shown, "bubble", "peak GiB", "of")))
    ranks = found.graph.ranks
    for rank in range(min(ranks, MOST_ROWS)):
        busy = [f"{found.utilisation[name][rank]:.1%}" for name in shown]
        bubble = f"{found.activity_s[rank, -1] / found.step_time_s:.1%}"
        memory = (f"{figure[rank] / GIB:.1f}" for figure in (found.memory_bytes, found.capacity_bytes))
        table.add_row(f"stage {rank}", *busy, bubble, *memory)
    if ranks > MOST_ROWS:
        table.add_row(f"... and {ranks - MOST_ROWS} more")
    return table
