"""
A plan of meshes as a document: ``taut-meshes/1``, with inputs, space, strategy, devices, predictions and certificate.

The certificate states how many choices of meshes the space has, unless a limit came before they were enumerated, and a
lower bound of the step time over all of them;
``examined`` are those that the search found plans of, with their own bounds, for readers. A check enumerates and bounds
all choices again (``taut.solver.meshes.verify``).
"""

import platform
from importlib.metadata import version
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.data.spec import Whole, first_complaint
from taut.data.units import KIB
from taut.errors import DataError, SolverError
from taut.formulations.meshes.choice import Mesh, MeshChoice
from taut.formulations.meshes.step_time import MeshPlan, mesh_memory, mesh_step, mesh_violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division
from taut.solver.certificate.closeness import finite
from taut.solver.certificate.document import (
    MESHES,
    DocumentFrame,
    Section,
    StatedSection,
    WorkloadSection,
    inputs_of,
    workload_of,
)
from taut.solver.certificate.figures import status_of
from taut.solver.certificate.write import digest_of
from taut.solver.meshes.search import MeshSearch
from taut.solver.result import Limits, relative_gap

MOST_EXAMINED = 20
"""Examined choices that a document lists."""
Positive = Annotated[int, Field(gt=0, lt=2**31)]


class MeshSection(Section):
    """Degrees of the stages on one type of device."""

    device: str
    tp: Positive
    dp: Positive
    pp: Positive
    micro_batch: Positive


class StrategySection(Section):
    """Meshes in the order of the stages, and what the stages are; ``all_recompute`` is one for all, or empty."""

    meshes: Annotated[list[MeshSection], Field(min_length=1)]
    num_micro_batches: Positive
    zero: int
    all_recompute: str = ""
    stages: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]]
    recompute: list[str]
    rank_order: str


class PredictedSection(Section):
    """What the plan is predicted to take."""

    step_time_s: float
    breakdown_s: dict[str, float]
    memory_bytes: list[Whole]
    capacity_bytes: list[Whole]
    tokens_per_s: float


class ExaminedSection(Section):
    """A choice with its bound and the step time of its best plan."""

    strategy: dict[str, Any]
    lower_bound_s: float
    step_time_s: float


class MeshCertificate(StatedSection):
    """Objective, bound over all choices, and the space."""

    latency_model: Literal["step"]
    choices: Whole | None
    examined: list[ExaminedSection]


class MeshDocument(DocumentFrame):
    """The whole plan; ``devices[stage][replica][tensor rank]``."""

    format: Literal["taut-meshes/1"]
    workload: WorkloadSection
    strategy: StrategySection
    devices: list[list[list[Whole]]]
    predicted: PredictedSection
    certificate: MeshCertificate

    def mesh_devices(self, source: str) -> tuple[Ints, ...]:
        """
        Devices of every mesh, (pp, dp, tp) each.

        Raises ``DataError`` if stages have other shapes than their meshes.
        """
        found, x = list[Ints](), 0
        for mesh in self.strategy.meshes:
            stages = self.devices[x : x + mesh.pp]
            x += mesh.pp
            ranks = [len(rank) for stage in stages for rank in stage]
            if [len(stage) for stage in stages] != [mesh.dp] * mesh.pp or ranks != [mesh.tp] * (mesh.dp * mesh.pp):
                raise DataError(
                    f"{source}: devices: are not {mesh.pp} stages of {mesh.dp} x {mesh.tp} on {mesh.device}"
                )
            found.append(np.array(stages, dtype=np.int64))
        if x != len(self.devices):
            raise DataError(f"{source}: devices: {len(self.devices)} stages, expected {x}")
        return tuple(found)


def parse_meshes(values: object, source: str) -> MeshDocument:
    """
    Document from plain values.

    Raises ``DataError``: one line: source, field, what was expected.
    """
    try:
        return MeshDocument.model_validate(values)
    except ValidationError as error:
        raise DataError(f"{source}: {first_complaint(error)}, expected a {MESHES} document") from None


def mesh_plan_of(document: MeshDocument, problem: PlanningProblem, source: str) -> MeshPlan:
    """
    The plan that a document states.

    ``document``, ``problem``: the document and its problem. Raises ``DataError`` if a mesh is on no device of the
    cluster, or the plan breaks a rule.
    """
    stated, types = document.strategy, problem.device_types
    if unknown := [mesh.device for mesh in stated.meshes if mesh.device not in types]:
        raise DataError(f"{source}: strategy.meshes: {unknown[0]} is no device of the cluster")
    meshes = tuple(Mesh(types.index(m.device), m.tp, m.dp, m.pp, m.micro_batch) for m in stated.meshes)
    choice = MeshChoice(meshes, stated.num_micro_batches, stated.zero, stated.all_recompute)
    division = Division(tuple((first, end) for first, end in stated.stages), tuple(stated.recompute))
    if len(stated.stages) != choice.pp or len(stated.recompute) != choice.pp or set(stated.recompute) - {*RECOMPUTE}:
        raise DataError(f"{source}: strategy: stages and recompute are not of {choice.pp} stages")
    plan = MeshPlan(choice, division, document.mesh_devices(source))
    if faults := mesh_violations(problem, plan):
        raise DataError(f"{source}: {faults[0]}")
    return plan


def mesh_document(problem: PlanningProblem, result: MeshSearch, limits: Limits) -> dict[str, Any]:
    """
    The plan as plain JSON values.

    ``problem``, ``result``, ``limits``: what was planned, what was found, and when the search stopped. Raises
    ``SolverError`` if the search has no incumbent.
    """
    if result.incumbent is None:
        raise SolverError("the search found no plan to write down")
    plan, types = result.incumbent.plan, problem.device_types
    gap = relative_gap(result.incumbent.seconds, result.lower_bound)
    inputs = inputs_of(problem)
    return {
        "format": MESHES,
        "status": str(status_of(gap)),
        "workload": workload_of(problem),
        "strategy": {
            **choice_values(plan.choice, types),
            "stages": [list(stage) for stage in plan.division.stages],
            "recompute": list(plan.division.recompute),
            "rank_order": result.incumbent.order,
        },
        "devices": [stage for devices in plan.devices for stage in devices.tolist()],
        "predicted": _predicted(problem, result),
        "certificate": {
            "objective_s": result.incumbent.seconds,
            "lower_bound_s": finite(result.lower_bound),
            "gap": gap,
            "latency_model": problem.latency_model,
            "overlap_grad_reduce": problem.overlap_grad_reduce,
            "problem_sha256": digest_of(problem, inputs),
            "space": problem.space.model_dump(mode="json"),
            "choices": result.choices,
            "examined": [
                {"strategy": choice_values(choice, types), "lower_bound_s": bound, "step_time_s": seconds}
                for choice, bound, seconds in result.examined[:MOST_EXAMINED]
            ],
        },
        "inputs": inputs,
        "provenance": {
            "taut": version("taut"),
            "python": platform.python_version(),
            "limits": {"time_s": limits.time_limit, "work": limits.work_limit, "gap": limits.gap},
            "stopped_by": str(result.stopped_by),
            "work": result.work,
            "wall_s": result.wall_s,
        },
    }


def choice_values(choice: MeshChoice, types: list[str]) -> dict[str, Any]:
    """A choice as the document states it."""
    names = ("tp", "dp", "pp", "micro_batch")
    meshes = [{"device": types[mesh.kind], **{name: getattr(mesh, name) for name in names}} for mesh in choice.meshes]
    shared = {"num_micro_batches": choice.num_micro_batches, "zero": choice.zero}
    return {"meshes": meshes, **shared, **({"all_recompute": choice.recompute} if choice.recompute else {})}


def _predicted(problem: PlanningProblem, result: MeshSearch) -> dict[str, Any]:
    """Seconds with their parts, bytes by stage, and throughput."""
    assert result.incumbent is not None
    plan, choice = result.incumbent.plan, result.incumbent.plan.choice
    step = mesh_step(problem, plan)
    parts = ("passes", "pipeline_transfers", "data_parallel", "optimizer", "constant")
    return {
        "step_time_s": step.total,
        "breakdown_s": {name: getattr(step, name) for name in parts},
        "memory_bytes": mesh_memory(problem, plan),
        "capacity_bytes": [KIB * problem.capacity_kib[choice.meshes[k].kind] for k in choice.mesh_of_stage],
        "tokens_per_s": problem.space.global_batch * problem.model.tokens / step.total,
    }
