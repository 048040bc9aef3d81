"""The method that a plan is asked from: what it stands for, which problems it knows, and why it found nothing."""

import math
from dataclasses import replace

from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.mechanisms.latency_models import SIMULATED
from taut.formulations.problem import PlanningProblem
from taut.planning.request import PlanRequest
from taut.solver.methods.certified import Certified
from taut.solver.methods.named import NAMES, SEARCH, method_of
from taut.solver.methods.outcome import Method


def scored_by_simulation(request: PlanRequest, method: str) -> tuple[PlanRequest, str]:
    """
    The request and method that stand for latency model ``simulated``; any other request as it is.

    Raises ``FieldError`` if another method is asked for beside it.
    """
    if request.latency_model != SIMULATED:
        return request, method
    if method not in (SEARCH, SIMULATED):
        raise FieldError("method", method, f"given together with latency model {SIMULATED}, expected none")
    return request.model_copy(update={"latency_model": "step"}), SIMULATED


def of_even_batches(problem: PlanningProblem, method: str) -> PlanningProblem:
    """
    The problem of the methods that know no batches which replicas divide unevenly.

    Raises ``FieldError`` if such a one is asked for.
    """
    if problem.space.fixed.get("uneven_batch"):
        raise FieldError("method", method, "knows no uneven batch, expected none with uneven_batch=true")
    if not problem.space.uneven_batch:
        return problem
    return replace(problem, space=problem.space.model_copy(update={"uneven_batch": False}))


def named(name: str) -> Method:
    """
    The method of a name.

    Raises ``FieldError`` if there is none.
    """
    if name not in NAMES:
        raise FieldError("method", name, f"expected {one_of(name, NAMES)}")
    return method_of(name)


def found_nothing(tried: Certified, problem: PlanningProblem) -> str:
    """Why a method has no plan."""
    outcome = tried.outcome
    if outcome.candidates == 0:
        return f"none of the {len(problem.candidates)} candidates is one that {outcome.method} considers"
    known = f"; {SEARCH} has one of {tried.best_s:.6g} s" if math.isfinite(tried.best_s) else ""
    return f"{outcome.method} found none that fits among {outcome.candidates} candidates{known}"
