r"""
The best candidates of the search, scored by simulating their plans.

(1) The branch and bound finds its best plan, and a bound b on the closed form of every candidate.
(2) Candidates whose b is within ``BAND`` of that plan are taken by ascending b, ``SCORED`` of them at the most; the
    search refines each alone for a plan of its own.
(3) All these plans are simulated (``taut.formulations.simulation.graph``), and the quickest is the method's. No plan of
    the space simulates faster than the least ``taut.solver.bounds.simulated`` over all candidates.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from taut.errors import FieldError
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import not_simulated
from taut.formulations.space import FIXES, Candidate, fixable_value
from taut.solver.bounds.simulated import least_simulated, simulated_seconds
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.methods.named import Outcome
from taut.solver.result import Incumbent, Limits, SearchResult, State, relative_gap
from taut.solver.search.search import search

SCORED, BAND = 8, 0.15
"""Plans that are simulated, and how far closed forms without overlap were from simulations at most."""
WORK = 4
"""Refinements of a candidate alone; a few give a plan whose placement is annealed."""


def simulated(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (3); each of the plans of (2) has a share of a second time limit for all of them."""
    began = perf_counter()
    for choice in problem.candidates:
        if unknown := not_simulated(problem, choice):
            raise FieldError("method", "simulated", f"does not know expert ranks with {unknown}, expected ep=1 fixed")
    first = search(problem, limits, progress)
    plans = [first.incumbent, *_others(problem, first, limits)] if first.incumbent else []
    known = set(problem.candidates)
    usable = [plan for plan in plans if plan is not None and plan.strategy.candidate in known]
    scored = [(simulated_seconds(problem, plan.strategy, plan.devices), plan) for plan in usable]
    best, plan = min(scored, key=lambda pair: pair[0], default=(math.inf, None))
    bound = least_simulated(problem)
    return Outcome(
        method="simulated",
        incumbent=plan,
        candidates=len(scored),
        wall_s=perf_counter() - began,
        figures={"simulated": _figures(best, bound, scored)} if plan is not None else {},
    )


def _others(problem: PlanningProblem, first: SearchResult, limits: Limits) -> Iterator[Incumbent | None]:
    """Plans of further candidates by ascending bound, (2)."""
    assert first.incumbent is not None
    taken = {_degrees(first.incumbent.strategy.candidate)}
    near = (1 + BAND) * first.incumbent.seconds
    alone = replace(limits, work_limit=WORK, time_limit=limits.time_limit and limits.time_limit / SCORED)
    for bound in sorted(first.bounds, key=lambda each: (each.lower_bound, each.candidate)):
        if bound.lower_bound > near or len(taken) >= SCORED:
            return
        key = _degrees(bound.candidate)
        if bound.state is not State.INFEASIBLE and key not in taken:
            taken.add(key)
            space = problem.space.model_copy(update={"fixed": dict(key)})
            yield search(replace(problem, space=space), alone).incumbent


def _degrees(candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """What is fixed to search a candidate alone."""
    values = ((name, fixable_value(candidate, name)) for name in FIXES)
    return tuple((name, value) for name, value in values if value is not None)


def _figures(best: float, bound: float, scored: list[tuple[float, Incumbent]]) -> dict[str, Any]:
    """Both figures of every plan, and the bound on the simulated one."""
    both = [
        {"strategy": plan.strategy.candidate.as_dict(), "step_time_s": plan.seconds, "simulated_s": figure}
        for figure, plan in sorted(scored, key=lambda pair: pair[0])
    ]
    known = bound if math.isfinite(bound) else None
    return {"step_time_s": best, "lower_bound_s": known, "gap": relative_gap(best, bound), "scored": both}
