r"""
First plans of candidates that are priced by their order: simple ones (``taut.solver.simple_plans``).

A good plan shortens the bounds of all candidates, which are of no use beyond it.

On unlike devices rank order says nothing of which stage suits which, so that there are none. Of the candidates with the
least bounds whose weights fit ``MOST_TRIED`` are looked at, and the first ``MOST_PRICED`` that fit are priced.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import HELD, budgets, held_bytes, weighed
from taut.solver.result import CandidateBound
from taut.solver.simple_plans import fitting, rank_order

MOST_TRIED, MOST_PRICED = 400, 24
"""Candidates whose memory is computed, and plans that are priced: on 576 devices together about a second."""


Plan = tuple[CandidateBound, Strategy, Ints]
"""A candidate's bound, its strategy, and the device of every worker."""


def first_plans(problem: PlanningProblem, bounds: Iterable[CandidateBound]) -> Iterator[Plan]:
    """Simple plans that break no rule, by ascending bound of their candidate; none on unlike devices."""
    if len(problem.device_types) > 1:
        return iter(())
    ordered = [bound for bound in bounds if bound.candidate.is_order_priced]
    ordered.sort(key=lambda bound: (bound.lower_bound, bound.candidate))
    tried = islice((bound for bound in ordered if _may_fit(problem, bound.candidate)), MOST_TRIED)
    return islice((plan for bound in tried if (plan := _plan(problem, bound)) is not None), MOST_PRICED)


def _may_fit(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether weights, gradients and states of an even share of the layers fit some device."""
    share = problem.tables(candidate).parameters[0, -1] // candidate.pp
    held = held_bytes(np.array(share), np.array(0), problem.memory.held_parameter_bytes, candidate)
    needed = sum(float(weighed(problem.memory, term, figure)) for term, figure in zip(HELD, held, strict=True))
    return bool(needed <= budgets(problem.memory, problem.capacity_kib).max())


def _plan(problem: PlanningProblem, bound: CandidateBound) -> Plan | None:
    strategy = fitting(problem, bound.candidate)
    return None if strategy is None else (bound, strategy, rank_order(bound.candidate))
