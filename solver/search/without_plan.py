"""
What a search does that has no plan once its candidates are refined, or once a limit came.

(1) Memory alone decides (``taut.solver.placement.exact.memory_assignment``): an open candidate has a plan that fits, or
    a proof that it has none, with the bytes that it lacks at least. Where all have such proofs nothing fits.
(2) Where a limit came first, simple plans are looked at, and then the first divisions of a few candidates, by bound.
"""

import math

from taut.data.units import KIB
from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.best_first import BestFirst
from taut.solver.result import CandidateBound, Source, State, StoppedBy
from taut.solver.search.conclusion import Bounds
from taut.solver.search.first_plans import simplest_plans
from taut.solver.search.incumbent import Best
from taut.solver.search.refinement import Refining
from taut.solver.search.standing import Stage

MOST_RESORTED = 200
"""Divisions that are tried once a limit came without a plan: a second or two, as each takes some milliseconds."""


def decide_by_memory(bounds: Bounds, refining: Refining, best: Best, loop: BestFirst) -> StoppedBy | None:
    """
    Find a plan of an open candidate, or the proof that none has any, (1).

    ``bounds``, ``refining``, ``best``: the candidates, what is known of them, and the best plan, of which there is
    none; ``loop``: asked before every candidate whether to stop, and told after it. Returns why to stop.
    """
    lacking: dict[int, int] = {}
    left = bounds.left
    for index in sorted(left, key=lambda i: bounds.each[i].lower_bound):
        if reason := loop.reason():
            return reason
        found = refining.decide(bounds.each[index])
        loop.report(str(bounds.each[index].candidate))
        if best.incumbent is not None:
            return None
        if found is not None:
            lacking[index] = found.missing
    if len(lacking) == len(left):
        for index, missing in lacking.items():
            bound = bounds.each[index]
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, Source.MEMORY
            bound.witness = {"missing_kib": -(-missing // KIB)}
            bounds.note(index)
    return None


def look_for_any(problem: PlanningProblem, bounds: Bounds, refining: Refining, best: Best) -> None:
    """Find a plan where a limit came before one, (2): ``best`` has it, and the bounds what was proven on the way."""
    for plan in simplest_plans(problem, [bounds.each[index] for index in bounds.left]):
        best.take(*plan)
    undivided = [index for index in bounds.left if _awaits_division(bounds.each[index], refining)]
    undivided.sort(key=lambda index: bounds.each[index].lower_bound)
    for index in undivided[:MOST_RESORTED]:
        if best.incumbent is not None:
            break
        refining.refine(bounds.each[index])
        bounds.note(index)


def _awaits_division(bound: CandidateBound, refining: Refining) -> bool:
    return not bound.candidate.is_order_priced and refining.standing(bound.candidate).stage is Stage.DIVIDE
