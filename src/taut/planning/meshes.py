"""
Planning with meshes: stages on each type of device with degrees of their own.

The problem is that of one degree for the same request, with costs for every tensor degree that suits the nodes of some
type. What a choice of meshes is stands in ``taut.formulations.meshes.choice``.
"""

import math
from dataclasses import replace

from taut.data.load import load_model
from taut.errors import FieldError, InfeasibleError, NothingFoundError
from taut.formulations.degrees import divisors
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.planning.offload import check_meshes
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.resolve import resolved_problem
from taut.planning.stack import stack_of
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.certificate.write import mesh_document
from taut.solver.meshes.search import search_meshes
from taut.solver.result import Status

FIXABLE = ("pp", "zero", "recompute", "schedule")
"""What ``fix`` may name: the other degrees differ by mesh."""


def has_meshes(request: PlanRequest) -> bool:
    """Whether the request names a stack with meshes, on devices of several types, in the latency model ``step``."""
    if request.stack is None or not request.latency.prices_mechanisms or not stack_of(request).process_meshes:
        return False
    return len(request.cluster_spec.devices) > 1


def on_flagscale(request: PlanRequest) -> PlanRequest:
    """The request for the stack ``flagscale``, unless it names another stack."""
    return request.model_copy(update={"stack": "flagscale"}) if request.stack is None else request


def plan_meshes(problem: PlanningProblem, request: PlanRequest, *, progress: Listener | None = None) -> Plan:
    """The best plan of meshes of a problem, within the limits of a request."""
    result = search_meshes(problem, request.limits, progress)
    if result.status is Status.INFEASIBLE:
        if result.choices == 0:
            raise FieldError("cluster", problem.cluster.name, _rule(problem))
        raise InfeasibleError(f"infeasible: none of {result.choices} choices of meshes fits the devices' memory", {})
    if result.incumbent is None:
        bound = result.lower_bound if math.isfinite(result.lower_bound) else None
        known = "" if bound is None else f"; none is below {bound:.6g} s"
        raise NothingFoundError(f"no plan of meshes found within the limit{known}", bound)
    return Plan(mesh_document(problem, result, request.limits))


def mesh_problem(request: PlanRequest) -> PlanningProblem:
    """The problem of a request, with costs for every tensor degree that suits some type's nodes."""
    model = load_model(request.model, seq=request.seq) if isinstance(request.model, str) else request.model
    cluster = request.cluster_spec
    if len(cluster.devices) < 2:
        raise FieldError("cluster", cluster.name, "has one type of device, expected several; plan it without meshes")
    request.latency.check_mechanism("meshes")
    stack = stack_of(request)
    if not stack.process_meshes:
        raise FieldError("stack", stack.name, "runs no plans of meshes, expected flagscale or any")
    for name, value in request.fix.items():
        if name not in FIXABLE or (name == "schedule" and value != "1f1b"):
            reason = "differs by mesh or is none of meshes, expected pp, zero or recompute"
            raise FieldError("fix", f"{name}={value}", reason)
    check_meshes(request)
    most = request.max_tp or max(group.gpus_per_node for group in cluster.nodes)
    degrees = {tp for group in cluster.nodes for tp in divisors(group.gpus_per_node)}
    fix = {name: value for name, value in request.fix.items() if name != "pp"}
    asked = request.model_copy(update={"fix": fix, "schedules": ("1f1b",)})
    problem = resolved_problem(asked, sorted(tp for tp in degrees if tp <= most and model.splits(tp)))
    if "pp" in request.fix:
        fixed = {**problem.space.fixed, "pp": request.fix["pp"]}
        problem = replace(problem, space=StrategySpace.model_validate(problem.space.model_dump() | {"fixed": fixed}))
    if not problem.memory.is_sum_of_terms:
        raise FieldError("memory_model", problem.memory.name, "this network does not know meshes, expected terms")
    return problem


def _rule(problem: PlanningProblem) -> str:
    """Why there is no choice, in one line."""
    counts = [
        f"{int(problem.links.gpus_per_node[problem.type_of_node == kind].sum())} {name}"
        for kind, name in enumerate(problem.device_types)
    ]
    return (
        f"has no choice of meshes, expected tp*dp*pp = devices for each of {', '.join(counts)}, at most "
        f"{len(problem.model.blocks)} stages, and dp that divide the global batch {problem.space.global_batch}"
    )
