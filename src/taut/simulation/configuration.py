"""
Which strategy a simulation is asked for: a plan's, or the one that fixed values state.

Fixed values may leave choices open. Every candidate that holds them then has a simple plan: even stages, the quickest
recompute that fits the memory unless it is fixed, workers in the order of the devices
(``taut.solver.simple_plans``). The one of the least step time by the evaluator is simulated, one that fits before any
that does not.
"""

import math
from dataclasses import replace

from taut.data.arrays import Ints
from taut.errors import DataError
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.certificate.document import devices_of, problem_of, strategy_of
from taut.solver.simple_plans import even_strategy, fitting, rank_order

MOST_OPEN = 2000
"""Candidates whose simple plans are compared; on 128 devices that takes some ten seconds."""
Configuration = tuple[PlanningProblem, Strategy, Ints]
"""Problem in the latency model ``step``, strategy, and the device of every worker."""


def of_plan(plan: Plan) -> Configuration:
    """
    Strategy and placement of a plan.

    Raises
    ------
    DataError
        If an input of the plan is malformed, or the plan breaks its own rules.
    """
    problem, strategy = problem_of(plan.typed, plan.source), strategy_of(plan.typed.strategy, plan.source)
    devices = devices_of(plan.typed.placement, plan.source)
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{plan.source}: {faults[0]}")
    return _in_step(problem), strategy, devices


def of_request(request: PlanRequest) -> Configuration:
    """
    The strategy that a request's fixed values state, in the order of the devices.

    Raises
    ------
    DataError
        If no candidate holds the values, or too many do.
    """
    problem = planning_problem(request)
    recompute = request.fix.get("recompute")
    if len(problem.candidates) > MOST_OPEN:
        count = len(problem.candidates)
        raise DataError(f"--fix: {count} candidates hold the fixed values, expected at most {MOST_OPEN}: fix more")
    found = [_simple(problem, candidate, recompute) for candidate in problem.candidates]
    _, _, strategy = min(found, key=lambda each: each[:2])
    return _in_step(problem), strategy, rank_order(strategy.candidate)


def _simple(problem: PlanningProblem, candidate: Candidate, recompute: str | None) -> tuple[bool, float, Strategy]:
    """Whether a candidate's simple plan breaks a rule, its seconds, and the plan."""
    devices = rank_order(candidate)
    strategy = fitting(problem, candidate, recompute=recompute)
    if strategy is not None:
        return False, float(step_time(problem, strategy, devices).total), strategy
    last = recompute or problem.recompute_of(candidate)[-1]
    strategy = even_strategy(problem, candidate, last)
    torn = any("lies on" in line for line in violations(problem, strategy, devices))
    return True, math.inf if torn else float(step_time(problem, strategy, devices).total), strategy


def _in_step(problem: PlanningProblem) -> PlanningProblem:
    """The problem with the prices that are simulated; stated ones of the papers' latency models give way."""
    return problem if problem.latency_model == "step" else replace(problem, latency_model="step")
