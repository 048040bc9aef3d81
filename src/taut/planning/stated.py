"""
The configuration that fixed values state, as a framework runs it without a plan.

Fixed values may leave choices open. Every candidate that holds them then has a simple plan: even stages, the quickest
recompute that fits the memory unless it is fixed, workers in the order of the devices
(``taut.solver.simple_plans``). The one of the least step time by the evaluator is meant, one that fits before any that
does not.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from taut.data.arrays import Ints
from taut.errors import DataError
from taut.formulations.latency import step_time, violations
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Rule, Strategy
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.planning.stack import closed_forms, stack_of
from taut.solver.result import Incumbent
from taut.solver.simple_plans import even_strategy, fitting, priced, rank_order

MOST_OPEN = 2000
"""Candidates whose simple plans are compared; on 128 devices that takes some ten seconds."""


class Stated(NamedTuple):
    """A problem, a strategy, and the device of every worker, (pp, dp, tp cp)."""

    problem: PlanningProblem
    strategy: Strategy
    devices: Ints

    @property
    def seconds(self) -> float:
        """Step time by the evaluator; infinite where a tensor group is torn apart."""
        return _seconds(self.problem, self.strategy, self.devices)


def stated_configuration(request: PlanRequest) -> Stated:
    """The strategy that fixed values state, in the order of the devices; ``DataError`` if none or several hold them."""
    if request.schedules is None:
        # A framework runs a closed form unless it is told otherwise.
        request = request.model_copy(update={"schedules": tuple(closed_forms(request, stack_of(request)))})
    problem = planning_problem(request)
    recompute = request.fix.get("recompute")
    even = [candidate for candidate in problem.candidates if not candidate.pipelines_by_type]
    if recompute == "full" and "recompute_layers" not in request.fix:
        even = [candidate for candidate in even if not in_part(candidate)]
    if not even:
        raise DataError("--fix: uneven_batch=true: the batch of a stated configuration is even, expected false")
    if len(even) > MOST_OPEN:
        count = len(even)
        raise DataError(f"--fix: {count} candidates hold the fixed values, expected at most {MOST_OPEN}: fix more")
    found = [_simple(problem, candidate, recompute) for candidate in even]
    _, _, strategy = min(found, key=lambda each: each[:2])
    return Stated(problem, strategy, rank_order(strategy.candidate))


def _simple(problem: PlanningProblem, candidate: Candidate, recompute: str | None) -> tuple[bool, float, Strategy]:
    """Whether a candidate's simple plan breaks a rule, its seconds, and the plan."""
    devices = rank_order(candidate)
    strategy = fitting(problem, candidate, recompute=recompute)
    fits = strategy is not None
    if strategy is None:
        strategy = even_strategy(problem, candidate, recompute or problem.recompute_of(candidate)[-1])
    return not fits, _seconds(problem, strategy, devices), strategy


def _seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> float:
    if any(broken.rule is Rule.GROUPS for broken in violations(problem, strategy, devices)):
        return math.inf
    return float(step_time(problem, strategy, devices).total)


def fastest(problem: PlanningProblem, starts: Sequence[Stated]) -> Incumbent | None:
    """The fastest of some configurations as a plan of the problem; None where none fits or lies in the space."""
    within = ((_in_space(problem, start.strategy), start.devices) for start in starts)
    found = (priced(problem, strategy, devices) for strategy, devices in within if strategy is not None)
    return min((each for each in found if each is not None), key=lambda each: each.seconds, default=None)


def _in_space(problem: PlanningProblem, strategy: Strategy) -> Strategy | None:
    """The strategy by the candidate that the space has it as: one recompute may be stated by the candidate or not."""
    kinds = set(strategy.recompute)
    for name in ("", *kinds) if len(kinds) == 1 else ("",):
        candidate = replace(strategy.candidate, uniform_recompute=name)
        if candidate in problem.candidates:
            return replace(strategy, candidate=candidate)
    return None
