"""
The plan of a launcher's stack that is nearest to one which the launcher cannot run, and its price.

(1) It keeps pipeline, tensor, context, data and expert degrees and the micro-batch where a plan of the stack has them;
    schedule, sharding, recompute, division and placement are planned anew, at the layer costs, calibration and memory
    model of the plan.
(2) Where the stack has no plan with these degrees, it is the best that is found without them.
(3) On devices of several types FlagScale's limits are those of stack ``flagscale``, elsewhere those of its Megatron-LM.
    Without these degrees plans of meshes are searched too (``taut.planning.solve``), or alone where the better plan is
    one that it cannot run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from taut.data.catalog.builtin import catalog_stack
from taut.data.layers.experts import USUAL_DISPATCH, DispatchSpec
from taut.errors import DataError, InfeasibleError, NothingFoundError
from taut.exports.export import FRAMEWORKS
from taut.exports.flagscale import mesh_files
from taut.exports.job import Job
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.solve import plan_one_degree, plan_request
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.certificate.document import prices_of, problem_of
from taut.solver.methods.named import MESHES

STACKS = {
    "megatron": "megatron-core",
    "megatron-bridge": "megatron-core",
    "flagscale": "megatron-core",
    "primus": "megatron-core",
    "verl": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
}
"""The stack whose limits are a launcher's, on devices of one type."""
FLAGSCALE = "flagscale"
"""The launcher whose stack of the same name plans devices of several types, (3)."""
TIME_LIMIT = 10.0
"""Seconds of each of the two searches, as long as somebody waits for a message; most end sooner."""

Search = Callable[..., Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The nearest plan, the stack it is of, the values that it was held to, and how much slower it is as a share."""

    plan: Plan
    stack: str
    fix: dict[str, Any]
    slower: float

    def __str__(self) -> str:
        held = ",".join(f"{name}={value}" for name, value in self.fix.items())
        options = f"--stack {self.stack}" + (f" --fix {held}" if held else "")
        return f"the nearest plan that it can run ({options}) takes {self.plan.step_time_s:.4g} s, {self.slower:+.1%}"


def nearest_plan(plan: Plan, framework: str, *, progress: Listener | None = None) -> Nearest | None:
    """The nearest plan, (1) to (3); None where there is none, or tokens are routed as given layer costs do not tell."""
    stack, problem = STACKS.get(framework), problem_of(plan.typed, plan.source)
    dispatch = problem.space.dispatch
    if stack is None or dispatch.imbalance > 1 or dispatch.dispatcher not in catalog_stack(stack).dispatchers:
        return None
    ways: list[tuple[dict[str, Any], Search]] = [(_degrees(plan), plan_one_degree), ({}, plan_one_degree)]
    if framework == FLAGSCALE and len(problem.cluster.devices) > 1:
        stack, ways = FLAGSCALE, [ways[0], ({}, plan_request), ({}, partial(plan_request, method=MESHES))]
    for fix, search in ways:
        found = _planned(search, problem, stack, fix, progress)
        if found is not None and _runs(found, framework):
            return Nearest(plan=found, stack=stack, fix=fix, slower=found.step_time_s / plan.step_time_s - 1)
    return None


def _degrees(plan: Plan) -> dict[str, Any]:
    """Degrees and micro-batch, those that are 1 by default left out."""
    chosen = plan.strategy
    fix: dict[str, Any] = {"pp": chosen.pp, "tp": chosen.tp, "micro_batch": chosen.micro_batch}
    fix |= {"cp": chosen.cp} if chosen.cp > 1 else {}
    return fix | ({"ep": chosen.ep, "etp": chosen.etp} if chosen.ep > 1 else {})


def _planned(
    search: Search, problem: PlanningProblem, stack: str, fix: dict[str, Any], progress: Listener | None
) -> Plan | None:
    try:
        request = PlanRequest(
            problem.model,
            problem.cluster,
            global_batch=problem.space.global_batch,
            profile=problem.costs,
            calibration=problem.calibration,
            memory_model=problem.memory,
            **prices_of(problem),
            stack=stack,
            fix=fix,
            time_limit=TIME_LIMIT,
            **_exchanges(problem.space.dispatch, stack),
        )
        return search(request, progress=progress)
    except (DataError, InfeasibleError, NothingFoundError):
        return None


def _exchanges(dispatch: DispatchSpec, stack: str) -> dict[str, Any]:
    """How expert ranks exchange tokens where it is not the usual way, of a stack that has such ranks."""
    if dispatch == USUAL_DISPATCH or not catalog_stack(stack).expert_parallel:
        return {}
    return {
        "moe_token_dispatcher": dispatch.dispatcher,
        "fp8_dispatch": dispatch.fp8,
        "moe_router_dtype": dispatch.router_dtype,
        "overlap_moe_expert_parallel_comm": dispatch.overlap,
    }


def _runs(plan: Plan, framework: str) -> bool:
    """Whether the launcher's files can be made."""
    try:
        if plan.meshes:
            mesh_files(plan)
        else:
            FRAMEWORKS[framework](Job(plan))
    except DataError:
        return False
    return True
