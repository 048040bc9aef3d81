"""
The best plan of two spaces: one degree for all stages, and degrees of their own on each type of device.

Stacks whose stages may lie on meshes run both. The search of one degree comes first, then that of meshes; the better
plan is returned with the other's certificate beside its own (``taut.solver.meshes.spaces``). Of two equal plans it is
the one of one degree. Of a time limit each search has a half, the second one also what the first left over.
"""

import warnings
from time import perf_counter
from typing import Any

from taut.data.load import load_cluster
from taut.errors import FieldError, InfeasibleError, NothingFoundError
from taut.meshes.plan import MeshedPlan, mesh_problem
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.solve import planned
from taut.planning.stack import stack_of
from taut.solver.certificate.closeness import finite
from taut.solver.meshes.document import mesh_document
from taut.solver.meshes.search import MeshSearch, search_meshes
from taut.solver.meshes.spaces import NAME
from taut.solver.result import Progress, Status, StoppedBy


def runs_meshes(request: PlanRequest) -> bool:
    """Whether the request names a stack with meshes, on devices of several types, in the latency model ``step``."""
    if request.stack is None or request.latency_model != "step" or not stack_of(request).process_meshes:
        return False
    cluster = load_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
    return len(cluster.devices) > 1


def planned_in_both(request: PlanRequest, progress: Progress | None = None) -> Plan | MeshedPlan:
    """
    The better plan of the two spaces; of one degree alone, with a warning, where the request leaves out meshes.

    Parameters
    ----------
    request
        What is asked; ``runs_meshes`` holds.
    progress
        As of ``taut.plan``, of one search after the other.

    Raises
    ------
    DataError, InfeasibleError, NothingFoundError
        As ``taut.plan`` does, where neither space has a plan.
    """
    try:
        problem = mesh_problem(request)
    except FieldError as error:
        warnings.warn(f"plans of meshes are not searched: {error}", UserWarning, stacklevel=2)
        return planned(request, progress=progress)
    began, most, nothing = perf_counter(), request.time_limit, None
    half = request if most is None else request.model_copy(update={"time_limit": most / 2})
    plan, interrupted = None, False
    try:
        plan = planned(half, progress=progress)
        interrupted = plan.typed.provenance.get("stopped_by") == StoppedBy.INTERRUPT
    except (InfeasibleError, NothingFoundError) as error:
        nothing = error
    left = 0.0 if interrupted else None if most is None else max(most - (perf_counter() - began), 0.0)
    limits = request.model_copy(update={"time_limit": left}).limits
    found = search_meshes(problem, limits, progress)
    meshed = None if found.incumbent is None else MeshedPlan(mesh_document(problem, found, limits))
    if plan is None and meshed is None:
        raise nothing or NothingFoundError("no plan found")
    return _better(plan, nothing, meshed, found)


def _better(
    plan: Plan | None, nothing: Exception | None, meshed: MeshedPlan | None, found: MeshSearch
) -> Plan | MeshedPlan:
    """The better plan, with the other space beside it."""
    if plan is None:
        assert meshed is not None
        state = "infeasible" if isinstance(nothing, InfeasibleError) else "unknown"
        return MeshedPlan(meshed.document | {NAME: {"status": state, "lower_bound_s": None}})
    if meshed is None:
        return Plan(plan.document | {NAME: _without_plan(found)})
    if meshed.step_time_s < plan.step_time_s:
        return MeshedPlan(meshed.document | {NAME: plan.document})
    return Plan(plan.document | {NAME: meshed.document})


def _without_plan(found: MeshSearch) -> dict[str, Any]:
    """What a search says that found no plan."""
    infeasible = found.status is Status.INFEASIBLE
    return {
        "status": "infeasible" if infeasible else "unknown",
        "lower_bound_s": None if infeasible else finite(found.lower_bound),
    }
