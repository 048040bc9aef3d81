"""
From a request to a plan of meshes: stages on each type of device with degrees of their own.

The problem is that of ``taut.plan`` for the same request, with costs for every tensor degree that suits the nodes of
some type. What a choice of meshes is stands in ``taut.formulations.meshes.choice``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

from taut.data.load import load_cluster, load_model
from taut.errors import FieldError, InfeasibleError, NothingFoundError
from taut.formulations.degrees import divisors
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.meshes.report import mesh_stage_records, mesh_summary
from taut.planning.request import ClusterInput, ModelInput, PlanOptions, PlanRequest, request_of
from taut.planning.resolve import resolved_problem
from taut.planning.stack import stack_of
from taut.planning.written import WrittenPlan
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.meshes.document import MeshDocument, mesh_document, parse_meshes
from taut.solver.meshes.search import search_meshes
from taut.solver.result import Status
from taut.words import percent

DEFAULT_STACK = "flagscale"
FIXABLE = ("pp", "zero", "recompute", "schedule")
"""What ``fix`` may name: the other degrees differ by mesh."""


@dataclass(frozen=True, repr=False, eq=False)
class MeshedPlan(WrittenPlan[MeshDocument]):
    """A plan of meshes in the format ``taut-meshes/1``, with its certificate; ``taut.Plan`` says what it is made of."""

    kind: ClassVar[str] = "a plan of meshes"

    @property
    def stages(self) -> list[dict[str, Any]]:
        """One record a stage: layers, recompute, kind of device, bytes predicted, kept free and there, devices."""
        return mesh_stage_records(self.typed)

    def __str__(self) -> str:
        """The plan in words."""
        return mesh_summary(self.typed, self.spaces)

    @property
    def _figures(self) -> Mapping[str, str]:
        chosen = self.typed.strategy
        meshes = "; ".join(f"{m.device}: tp={m.tp} dp={m.dp} pp={m.pp}" for m in chosen.meshes)
        return {
            "plan": f"{self.model} on {self.cluster}",
            "strategy": meshes + (f"; zero={chosen.zero}" if chosen.zero else ""),
            "step time": f"{self.step_time_s:.4g} s a step",
            "gap": f"gap {percent(self.gap)}",
        }

    def _parsed(self) -> MeshDocument:
        return parse_meshes(self.document, self.source)


def plan_meshes(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> MeshedPlan:
    """
    Plan the training of a model on devices of several types, stages on each type with degrees of their own.

    Parameters
    ----------
    model, cluster
        As of ``taut.plan``.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent``, ``lower_bound``, and in ``doing`` what was just found.
    **options
        As of ``taut.plan``. The stack is ``flagscale`` by default, the latency model ``step``; ``fix`` may name ``pp``
        (stages of all meshes), ``zero`` and ``recompute``.

    Raises
    ------
    DataError
        If an input is wrong or no choice of meshes exists; a ``FieldError`` names the argument.
    InfeasibleError
        If no plan of meshes fits the devices' memory.
    NothingFoundError
        If a limit or an interrupt came before the first plan.

    Examples
    --------
    >>> import taut
    >>> taut.plan_meshes("gpt2-345m", "dgx-a100", global_batch=32)
    Traceback (most recent call last):
    taut.errors.FieldError: cluster: dgx-a100, has one type of device, expected several; taut plan plans it
    """
    return planned_meshes(request_of(model, cluster, options), progress)


def planned_meshes(request: PlanRequest, progress: Listener | None = None) -> MeshedPlan:
    """
    What ``plan_meshes`` finds for a request.

    Raises ``DataError, InfeasibleError, NothingFoundError``: as ``plan_meshes`` does.
    """
    if request.stack is None:
        request = request.model_copy(update={"stack": DEFAULT_STACK})
    problem = mesh_problem(request)
    result = search_meshes(problem, request.limits, progress)
    if result.choices == 0 and result.status is Status.INFEASIBLE:
        raise FieldError("cluster", problem.cluster.name, _rule(problem))
    if result.status is Status.INFEASIBLE:
        raise InfeasibleError(f"infeasible: none of {result.choices} choices of meshes fits the devices' memory", {})
    if result.incumbent is None:
        bound = f"; none is below {result.lower_bound:.6g} s" if math.isfinite(result.lower_bound) else ""
        raise NothingFoundError(f"no plan of meshes found within the limit{bound}")
    return MeshedPlan(mesh_document(problem, result, request.limits))


def mesh_problem(request: PlanRequest) -> PlanningProblem:
    """
    The problem of a request, with costs for every tensor degree that suits some type's nodes.

    Raises ``FieldError`` if the request asks for what meshes do not have.
    """
    model = load_model(request.model, seq=request.seq) if isinstance(request.model, str) else request.model
    cluster = load_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
    if len(cluster.devices) < 2:
        raise FieldError("cluster", cluster.name, "has one type of device, expected several; taut plan plans it")
    if not request.latency.prices_mechanisms:
        raise FieldError("latency_model", request.latency_model, "does not price meshes, expected step")
    stack = stack_of(request)
    if not stack.process_meshes:
        raise FieldError("stack", stack.name, "has one degree for all stages, expected flagscale or any")
    for name, value in request.fix.items():
        if name not in FIXABLE or (name == "schedule" and value != "1f1b"):
            reason = "differs by mesh or is none of meshes, expected pp, zero or recompute"
            raise FieldError("fix", f"{name}={value}", reason)
    if isinstance(shares := request.optimizer_offload_fraction, tuple):
        shown = ",".join(f"{share:g}" for share in shares)
        raise FieldError("optimizer_offload_fraction", shown, "is chosen by taut plan alone, expected one number")
    if request.activation_offload_fraction:
        raise FieldError("activation_offload_fraction", "given", "is no part of meshes, expected none")
    most = request.max_tp or max(group.gpus_per_node for group in cluster.nodes)
    degrees = {tp for group in cluster.nodes for tp in divisors(group.gpus_per_node)}
    fix = {name: value for name, value in request.fix.items() if name != "pp"}
    asked = request.model_copy(update={"fix": fix})
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
