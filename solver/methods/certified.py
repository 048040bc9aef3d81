r"""
The plan of a method under the bounds of the branch and bound.

The search runs with the plan as its first incumbent, and may find a better one, :math:`J^* \le J`. What it proves of
each candidate holds whatever plan was found, so the method's plan keeps the bounds b of all candidates:

(1) the least b of candidates that are not infeasible, and J, bound the step time of every plan;
(2) a feasible candidate with :math:`b \ge J` is pruned, with :math:`b \ge J (1 - 10^{-9})` solved, any other open.

(3) Of a time limit T the method has ``METHOD_SHARE``, and the search the rest of T, at least the other share of it.

A search that ends proves :math:`J^*` optimal up to its gap: (1) is then the distance of the method from the optimum.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.stop import Listener, Stopwatch
from taut.solver.methods.named import Method, Outcome
from taut.solver.result import (
    OPTIMALITY_GAP,
    SOLVED,
    CandidateBound,
    Incumbent,
    Limits,
    SearchResult,
    State,
    Status,
    relative_gap,
)
from taut.solver.search.search import search

METHOD_SHARE = 0.75
"""Of a time limit, the method's, whose plan is what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """A method's plan with the bounds of a search, and the seconds of the plan that the search found, J*."""

    outcome: Outcome
    result: SearchResult
    best_s: float

    @property
    def figures(self) -> dict[str, Any]:
        """What a document says of the method; unknown figures are None."""
        bound = self.outcome.lower_bound
        return {
            "name": self.outcome.method,
            "solver": self.outcome.solver,
            "candidates": self.outcome.candidates,
            "lower_bound_s": bound if math.isfinite(bound) else None,
            "best_s": self.best_s if math.isfinite(self.best_s) else None,
            "wall_s": self.outcome.wall_s,
            **self.outcome.figures,
        }


def planned_within(
    problem: PlanningProblem, method: Method, limits: Limits, progress: Listener | None = None
) -> Certified:
    """A method's plan against the bounds of a search, both within the time limit, (3)."""
    total = math.inf if limits.time_limit is None else limits.time_limit
    with Stopwatch() as watch:
        outcome = method(problem, _of_seconds(limits, METHOD_SHARE * total), progress)
        taken = watch.seconds
    rest = max(total - taken, (1 - METHOD_SHARE) * total)
    found = certified(problem, outcome, _of_seconds(limits, rest), progress)
    return replace(found, result=_after(found.result, taken))


def _after(result: SearchResult, taken: float) -> SearchResult:
    """The result with the seconds of a method before it, as the moments of its history have them."""
    moments = (moment | {"wall_s": taken + (moment["wall_s"] or 0.0)} for moment in result.history)
    return replace(result, wall_s=taken + result.wall_s, history=tuple(moments))


def _of_seconds(limits: Limits, seconds: float) -> Limits:
    """The limits with another time limit, infinite for none."""
    return replace(limits, time_limit=seconds if math.isfinite(seconds) else None)


def certified(
    problem: PlanningProblem, outcome: Outcome, limits: Limits, progress: Listener | None = None
) -> Certified:
    """What a method found, held against the bounds of a search."""
    known = {bound.candidate: bound for bound in outcome.bounds}
    found = search(problem, limits, progress, incumbent=outcome.incumbent, known=known)
    best_s = math.inf if found.incumbent is None else found.incumbent.seconds
    if outcome.incumbent is None:
        return Certified(outcome=outcome, result=replace(found, incumbent=None), best_s=best_s)
    return Certified(outcome=outcome, result=_of_plan(found, outcome.incumbent), best_s=best_s)


def _of_plan(found: SearchResult, plan: Incumbent) -> SearchResult:
    """The search's bounds around another plan, (1) and (2)."""
    bounds = [_around(bound, plan.seconds) for bound in found.bounds]
    least = min((bound.lower_bound for bound in bounds if bound.state is State.OPEN), default=math.inf)
    lower_bound = min(plan.seconds, least)
    gap = relative_gap(plan.seconds, lower_bound)
    status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return replace(found, status=status, incumbent=plan, lower_bound=lower_bound, bounds=bounds)


def _around(bound: CandidateBound, seconds: float) -> CandidateBound:
    """A candidate's bound with its state beside a plan of so many seconds, (2)."""
    if bound.state is State.INFEASIBLE:
        return bound
    if bound.lower_bound >= seconds:
        return replace(bound, state=State.PRUNED)
    return replace(bound, state=State.SOLVED if bound.lower_bound >= seconds * (1 - SOLVED) else State.OPEN)
