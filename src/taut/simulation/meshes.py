"""
A step of a plan of meshes, pass by pass (``taut.formulations.meshes.timeline``), beside its closed form.

Every pipeline and stage is one device that stands for all its ranks. Its step is passes with tensor traffic, the
reduction of its gradients, the optimizer, the calibration's constant, and waiting, which is the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from taut.data.units import MICROSECOND
from taut.errors import FieldError
from taut.formulations.meshes.step_time import MeshPlan, mesh_step
from taut.formulations.meshes.timeline import MeshTimeline, mesh_timeline
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.schedule import FORWARD
from taut.planning.plan import Plan
from taut.simulation.result import named
from taut.solver.certificate.document import mesh_plan_of, problem_of


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

    plan: Plan
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
        ranks = np.array([stage["tp"] * stage["dp"] for stage in self.plan.stages], dtype=np.float64)
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
            "memory_bytes": self.plan.sections.predicted.memory_bytes,
            "capacity_bytes": self.plan.sections.predicted.capacity_bytes,
        }

    def trace_events(self) -> Iterator[dict[str, Any]]:
        """When every pass of every pipeline runs, as events of a trace."""
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

    def __repr__(self) -> str:
        """One line."""
        return f"<MeshSimulation {self.step_time_s:.4g} s a step, {self.tasks} passes>"


def simulate_meshes(plan: Plan, *, share_links: bool = False) -> MeshSimulation:
    """Run one step of a plan of meshes, pass by pass; a ``DataError`` refuses broken rules and shared links."""
    document = plan.meshed
    if share_links:
        reason = f"{plan.source} is a plan of meshes, expected a plan of one degree for all stages"
        raise FieldError("share_links", None, reason)
    began, problem = perf_counter(), problem_of(document, plan.source)
    chosen = mesh_plan_of(document, problem, plan.source)
    timeline = mesh_timeline(problem, chosen)
    return MeshSimulation(plan, problem, chosen, timeline, perf_counter() - began)
