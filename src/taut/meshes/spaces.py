"""
The best plan of two spaces: one degree for all stages, and degrees of their own on each type of device.

Stacks whose stages may lie on meshes run both. The search of one degree comes first, then that of meshes; the better
plan is returned with the other's certificate beside its own (``taut.solver.meshes.spaces``). Of two equal plans it is
the one of one degree. Of a limit of time or work each search has a half, the second one also what the first left over.
"""

import warnings
from time import perf_counter
from typing import Any, Unpack, overload

from taut.data.load import load_cluster
from taut.errors import FieldError, InfeasibleError, NothingFoundError
from taut.meshes.plan import MeshedPlan, mesh_problem
from taut.planning.method import scored_by_simulation
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanOptions, PlanRequest, request_of
from taut.planning.solve import planned
from taut.planning.stack import stack_of
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.certificate.closeness import finite
from taut.solver.meshes.document import mesh_document
from taut.solver.meshes.search import MeshSearch, search_meshes
from taut.solver.meshes.spaces import with_other_space
from taut.solver.methods.named import SEARCH
from taut.solver.result import Status, StoppedBy


def runs_meshes(request: PlanRequest) -> bool:
    """Whether the request names a stack with meshes, on devices of several types, in the latency model ``step``."""
    if request.stack is None or not request.latency.prices_mechanisms or not stack_of(request).process_meshes:
        return False
    cluster = load_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
    return len(cluster.devices) > 1


@overload
def plan_with_meshes(
    model: PlanRequest, /, *, method: str = SEARCH, processes: int = 1, progress: Listener | None = None
) -> Plan | MeshedPlan: ...
@overload
def plan_with_meshes(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    method: str = SEARCH,
    processes: int = 1,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Plan | MeshedPlan: ...
def plan_with_meshes(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    method: str = SEARCH,
    processes: int = 1,
    progress: Listener | None = None,
    **options: Any,
) -> Plan | MeshedPlan:
    """
    Plan as ``taut plan`` does: with one degree for all stages, and on meshes where the stack has them.

    Meshes are searched where ``stack`` names one that runs them, the devices are of several types, and one process
    searches by the branch and bound; anything else is ``taut.plan``.

    Parameters
    ----------
    model, cluster, method, processes, progress, **options
        As of ``taut.plan``.

    Returns
    -------
    Plan or MeshedPlan
        The better plan, with a bound on both spaces.

    Raises
    ------
    DataError, InfeasibleError, NothingFoundError
        As ``taut.plan`` does, where neither space has a plan.

    Examples
    --------
    >>> import taut
    >>> found = taut.plan_with_meshes("gpt2-345m", "dgx-a100", global_batch=32, stack="flagscale", fix={"pp": 1})
    >>> found.status, found.other_space
    ('optimal', None)
    """
    request, method = scored_by_simulation(request_of(model, cluster, options), method)
    if method == SEARCH and processes == 1 and runs_meshes(request):
        return planned_in_both(request, progress)
    return planned(request, method=method, processes=processes, progress=progress)


def planned_in_both(request: PlanRequest, progress: Listener | None = None) -> Plan | MeshedPlan:
    """
    The better plan of the two spaces; of one degree alone, with a warning, where the request leaves out meshes.

    ``request``: what is asked; ``runs_meshes`` holds; ``progress``: as of ``taut.plan``, of one search after the other.
    Raises ``DataError, InfeasibleError, NothingFoundError``: as ``taut.plan`` does, where neither space has a plan.
    """
    try:
        problem = mesh_problem(request)
    except FieldError as error:
        warnings.warn(f"plans of meshes are not searched: {error}", UserWarning, stacklevel=2)
        return planned(request, progress=progress)
    began, plan, nothing = perf_counter(), None, None
    try:
        plan = planned(request.model_copy(update=_limits(request, 2, 0.0, 0)), progress=progress)
    except (InfeasibleError, NothingFoundError) as error:
        nothing = error
    spent = {} if plan is None else plan.typed.provenance
    left = _limits(request, 1, perf_counter() - began, spent.get("work", (request.work_limit or 0) // 2))
    if spent.get("stopped_by") == StoppedBy.INTERRUPT:
        left |= {"time_limit": 0.0}
    limits = request.model_copy(update=left).limits
    found = search_meshes(problem, limits, progress)
    meshed = None if found.incumbent is None else MeshedPlan(mesh_document(problem, found, limits))
    if plan is None and meshed is None:
        raise nothing or NothingFoundError("no plan found")
    return _better(plan, nothing, meshed, found)


def _limits(request: PlanRequest, searches: int, seconds: float, work: int) -> dict[str, Any]:
    """Limits of the next of some searches that are left, after so many seconds and so much work."""
    most, units = request.time_limit, request.work_limit
    return {
        "time_limit": None if most is None else max(most - seconds, 0.0) / searches,
        "work_limit": None if units is None else max(units - work, 0) // searches,
    }


def _better(
    plan: Plan | None, nothing: Exception | None, meshed: MeshedPlan | None, found: MeshSearch
) -> Plan | MeshedPlan:
    """The better plan, with the other space beside it."""
    if plan is None:
        assert meshed is not None
        state = "infeasible" if isinstance(nothing, InfeasibleError) else "unknown"
        return MeshedPlan(with_other_space(meshed.document, {"status": state, "lower_bound_s": None}))
    if meshed is None:
        return Plan(with_other_space(plan.document, _without_plan(found)))
    if meshed.step_time_s < plan.step_time_s:
        return MeshedPlan(with_other_space(meshed.document, plan.document))
    return Plan(with_other_space(plan.document, meshed.document))


def _without_plan(found: MeshSearch) -> dict[str, Any]:
    """What a search says that found no plan."""
    infeasible = found.status is Status.INFEASIBLE
    return {
        "status": "infeasible" if infeasible else "unknown",
        "lower_bound_s": None if infeasible else finite(found.lower_bound),
    }
