"""
Which strategy a simulation is asked for: a plan's, or the one that fixed values state (``taut.planning.stated``).

Both are simulated by the prices of the latency model ``step``.
"""

from dataclasses import replace

from taut.data.arrays import Ints
from taut.errors import DataError
from taut.formulations.latency import violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.stated import stated_configuration
from taut.solver.certificate.devices import devices_of
from taut.solver.certificate.document import problem_of, strategy_of

Configuration = tuple[PlanningProblem, Strategy, Ints]
"""Problem in the latency model ``step``, strategy, and the device of every worker."""


def of_plan(plan: Plan) -> Configuration:
    """
    Strategy and placement of a plan.

    Raises ``DataError`` if an input of the plan is malformed, or the plan breaks its own rules.
    """
    problem, strategy = problem_of(plan.typed, plan.source), strategy_of(plan.typed.strategy, plan.source)
    devices = devices_of(plan.typed, plan.source)
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{plan.source}: {faults[0]}")
    return _in_step(problem), strategy, devices


def of_request(request: PlanRequest) -> Configuration:
    """
    The strategy that a request's fixed values state, in the order of the devices.

    Raises ``DataError`` if no candidate holds the values, or too many do.
    """
    stated = stated_configuration(request)
    return _in_step(stated.problem), stated.strategy, stated.devices


def _in_step(problem: PlanningProblem) -> PlanningProblem:
    """The problem with the prices that are simulated; stated ones of the papers' latency models give way."""
    return problem if problem.latency_model == "step" else replace(problem, latency_model="step")
