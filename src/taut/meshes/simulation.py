"""
A step of a plan of meshes, pass by pass (``taut.formulations.meshes.timeline``), beside its closed form.

Every pipeline and stage is one device that stands for all its ranks. Its step is passes with tensor traffic, the
reduction of its gradients, the optimizer, the calibration's constant, and waiting, which is the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from taut.data.units import GIB, MICROSECOND
from taut.formulations.meshes.step_time import MeshPlan, mesh_step
from taut.formulations.meshes.timeline import MeshTimeline, mesh_timeline
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.schedule import FORWARD
from taut.meshes.plan import MeshedPlan
from taut.simulation.trace import named, write_events
from taut.solver.certificate.document import problem_of
from taut.solver.meshes.document import mesh_plan_of
from taut.words import text_table

WORDS = {"passes": "passes", "data_parallel": "gradients", "optimizer": "optimizer", "constant": "constant",
         "waiting": "bubble and messages"}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class MeshSimulation:
    """
    One step of a plan of meshes, pass by pass.

    Parameters
    ----------
    plan, problem, chosen
        What was simulated.
    timeline
        When every pass runs.
    wall_s
        Seconds that it took.
    """

    plan: MeshedPlan
    problem: PlanningProblem
    chosen: MeshPlan
    timeline: MeshTimeline
    wall_s: float

    @property
    def step_time_s(self) -> float:
        """Seconds of the step."""
        return self.timeline.total

    @cached_property
    def closed_form_s(self) -> float:
        """Seconds of the step by the evaluator that plans are made with."""
        return mesh_step(self.problem, self.chosen).total

    @property
    def tasks(self) -> int:
        """Passes of all pipelines and stages."""
        return 2 * len(self.timeline.pipelines) * self.chosen.choice.pp * self.chosen.choice.num_micro_batches

    @cached_property
    def breakdown_s(self) -> dict[str, float]:
        """Seconds of the average device of the job by part."""
        ranks = np.array([len(stage["devices"]) for stage in self.plan.stages], dtype=np.float64)
        of = ranks / ranks.sum()
        m, after = self.chosen.choice.num_micro_batches, self.timeline.after
        passes = [m * (each.forward + each.input_gradient + each.weight_gradient) for each in self.timeline.pipelines]
        parts = {
            "passes": float(of @ np.mean(passes, axis=0)),
            "data_parallel": float(of @ after.reductions),
            "optimizer": float(of @ after.optimizer),
            "constant": self.problem.constant_seconds,
        }
        return {**parts, "waiting": self.step_time_s - sum(parts.values())}

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "step_time_s": self.step_time_s,
            "closed_form_s": self.closed_form_s,
            "tasks": self.tasks,
            "wall_s": self.wall_s,
            "bubble": self.breakdown_s["waiting"] / self.step_time_s,
            "breakdown_s": self.breakdown_s,
            "passes_end_s": self.timeline.ended.tolist(),
            "memory_bytes": self.plan.typed.predicted.memory_bytes,
            "capacity_bytes": self.plan.typed.predicted.capacity_bytes,
        }

    def write_trace(self, path: str | Path) -> None:
        """Write when every pass of every pipeline runs, for ui.perfetto.dev and chrome://tracing."""
        write_events(path, self.tasks, self._events())

    def _events(self) -> Iterator[dict[str, Any]]:
        stages, several = self.plan.stages, len(self.timeline.pipelines) > 1
        for c, times in enumerate(self.timeline.times):
            for x, stage in enumerate(stages):
                device = c * len(stages) + x
                words = f"stage {x} on {stage['device']}" + (f", pipeline {c}" if several else "")
                yield named("process_name", device, 0, words)
                rows = zip(self.timeline.schedule.orders[x].tolist(), times.start[x], times.end[x], strict=True)
                for (kind, _, batch), start, end in rows:
                    name = "forward" if kind == FORWARD else "backward"
                    span = {"ts": float(start) / MICROSECOND, "dur": float(end - start) / MICROSECOND}
                    yield {"name": f"{name} {batch}", "cat": name, "ph": "X", **span, "pid": device, "tid": 0}

    def __str__(self) -> str:
        """The step in words."""
        step, closed, count = self.step_time_s, self.closed_form_s, len(self.timeline.pipelines)
        parts = ", ".join(f"{WORDS[name]} {part / step:.1%}" for name, part in self.breakdown_s.items() if part > 0)
        rows = [
            (
                f"stage {stage['stage']}", stage["device"], f"{ended:.6g} s",
                f"{stage['memory_bytes'] / GIB:.1f} of {stage['capacity_bytes'] / GIB:.0f}",
            )
            for stage, ended in zip(self.plan.stages, self.timeline.ended, strict=True)
        ]  # fmt: skip
        return "\n".join(
            [
                f"{self.plan.model} on {self.plan.cluster}: {self.chosen.choice.words(self.problem.device_types)}",
                f"step        {step:.6g} s; closed form {closed:.6g} s ({step / closed - 1:+.2%})",
                f"time        {parts}",
                f"passes      {self.tasks} on {count} pipeline{'s' if count > 1 else ''} of 1F1B",
                "",
                text_table([("device", "kind", "passes end", "GiB"), *rows]),
            ]
        )

    def __repr__(self) -> str:
        """One line."""
        return f"<MeshSimulation {self.step_time_s:.4g} s a step, {self.tasks} passes>"


def simulate_meshes(plan: MeshedPlan | str | PathLike[str] | Mapping[str, Any]) -> MeshSimulation:
    """
    Run one step of a plan of meshes, pass by pass.

    Parameters
    ----------
    plan
        The plan, its file or its values.

    Raises
    ------
    DataError
        If it is no plan of meshes, or breaks a rule.

    Examples
    --------
    >>> import taut
    >>> taut.simulate_meshes("nowhere.json")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.json: No such file or directory, expected a plan of meshes
    """
    if not isinstance(plan, MeshedPlan):
        plan = MeshedPlan(dict(plan)) if isinstance(plan, Mapping) else MeshedPlan.read(Path(plan))
    began, problem = perf_counter(), problem_of(plan.typed, plan.source)
    chosen = mesh_plan_of(plan.typed, problem, plan.source)
    timeline = mesh_timeline(problem, chosen)
    return MeshSimulation(plan, problem, chosen, timeline, perf_counter() - began)
