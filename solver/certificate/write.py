r"""
From a finished search to a plan document with its certificate.

(1) gap = (objective - lower bound) / objective;
(2) communication gap = min(1, (objective - lower bound) / (objective - compute)), compute being what every placement
    of this strategy pays: its computation and tensor-parallel all-reduces, and the optimizer; the bound on the rest is
    never below zero, though other strategies may pay less;
(3) verified gap: the gap to the part of the bound that ``verify`` derives again. All bounds here are, so it equals (1);
(4) the lower bound without a memory margin is work of its own, so after Ctrl-C it is left out.
"""

import math
import platform
from importlib.metadata import version
from typing import Any

from taut.data.units import KIB
from taut.errors import SolverError
from taut.formulations.latency import StepTime, memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.bounds.margin_free import bound_without_margin
from taut.solver.certificate.document import FORMAT, finite, inputs_of, problem_digest, strategy_values
from taut.solver.interrupt import interrupt_requested
from taut.solver.result import CandidateBound, Incumbent, Limits, SearchResult, relative_gap

BREAKDOWN = ("compute", "tensor_parallel", "pipeline_transfers", "data_parallel", "optimizer", "constant")


def plan_document(problem: PlanningProblem, result: SearchResult, limits: Limits) -> dict[str, Any]:
    """
    The plan as plain JSON values.

    Raises
    ------
    SolverError
        If the search has no incumbent.
    """
    if result.incumbent is None:
        raise SolverError("the search found no plan to write down")
    incumbent, problem = result.incumbent, problem.with_orders(result.orders)
    time = step_time(problem, incumbent.strategy, incumbent.devices)
    inputs = inputs_of(problem)
    space = problem.space.model_dump(mode="json")
    gap = relative_gap(incumbent.seconds, result.lower_bound)
    return {
        "format": FORMAT,
        "status": str(result.status),
        "strategy": strategy_values(incumbent.strategy),
        "placement": {"order": "pp,dp,tp", "devices": incumbent.devices.tolist()},
        "predicted": predicted(problem, incumbent.strategy, incumbent, time),
        "certificate": {
            "objective_s": incumbent.seconds,
            "lower_bound_s": finite(result.lower_bound),
            "gap": gap,
            "communication_gap": communication_gap(time, result.lower_bound),
            "verified_gap": gap,
            "lower_bound_no_margin_s": _no_margin(problem, result),
            "latency_model": problem.latency_model,
            "problem_sha256": problem_digest(inputs, space, problem.latency_model),
            "space": space,
            "candidates": [_candidate(bound) for bound in result.bounds],
        },
        "inputs": inputs,
        "provenance": _provenance(result, limits),
    }


def _no_margin(problem: PlanningProblem, result: SearchResult) -> float | None:
    """Seconds that no plan is faster than without a memory margin, or None, (4)."""
    if result.stopped_by == "interrupt":
        return None
    with interrupt_requested() as asked:
        return finite(bound_without_margin(problem, asked))


def predicted(problem: PlanningProblem, strategy: Strategy, incumbent: Incumbent, time: StepTime) -> dict[str, Any]:
    """The ``predicted`` section: times, memory of the worst device of each stage, throughput."""
    capacity = _stage_capacity(problem, incumbent)
    flops = problem.model.training_flops() * problem.space.global_batch
    peak = sum(
        node.gpus_per_node * (node.device.peak_flops(problem.memory.precision) or math.inf)
        for node in problem.cluster.node_list
    )
    seconds = float(time.total)
    return {
        "step_time_s": seconds,
        "breakdown_s": {part: float(getattr(time, part)) for part in BREAKDOWN},
        "memory_bytes": memory_bytes(problem, strategy),
        "margin_bytes": [problem.memory.margin_kib(kib) * KIB for kib in capacity],
        "capacity_bytes": [kib * KIB for kib in capacity],
        "tokens_per_s": problem.space.global_batch * problem.model.tokens / seconds,
        "mfu": flops / seconds / peak,
    }


def _stage_capacity(problem: PlanningProblem, incumbent: Incumbent) -> list[int]:
    """KiB of the smallest device that runs each stage."""
    types = problem.type_of_node[problem.links.node_of[incumbent.devices]]
    return [min(problem.capacity_kib[kind] for kind in set(stage.ravel().tolist())) for stage in types]


def communication_gap(time: StepTime, lower_bound: float) -> float | None:
    """Gap of the communication part, (2); None where it is not defined."""
    paid = float(time.compute + time.tensor_parallel + time.optimizer + time.constant)
    communication = float(time.total) - paid
    slack = float(time.total) - lower_bound
    if slack <= 0.0:
        return 0.0
    return min(slack / communication, 1.0) if communication > 0.0 and math.isfinite(slack) else None


def _candidate(bound: CandidateBound) -> dict[str, Any]:
    return {
        "strategy": bound.candidate.as_dict(),
        "state": str(bound.state),
        "lower_bound_s": finite(bound.lower_bound),
        "source": bound.source,
        "witness": bound.witness,
    }


def _provenance(result: SearchResult, limits: Limits) -> dict[str, Any]:
    return {
        "taut": version("taut"),
        "python": platform.python_version(),
        "solvers": {name: version(name) for name in ("numpy", "numba", "scipy")},
        "seed": limits.seed,
        "limits": {"time_s": limits.time_limit, "work": limits.work_limit, "gap": limits.gap},
        "stopped_by": result.stopped_by,
        "work": result.work,
        "wall_s": result.wall_s,
    }
