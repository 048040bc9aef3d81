r"""
Strategy by the integer program, placement by quadratic assignment: the two in turn, until nothing better is left.

(1) The strategy of least seconds over all candidates, whatever its placement (``taut.solver.methods.strategy_choice``);
    its memory rows hold a learned memory model as any other (``taut.formulations.tables.learned_memory``).
(2) Its placement as a quadratic assignment, and annealing from there (``taut.solver.methods.quadratic_placement``); on
    devices of several types that of the division too that fits any placement, as (1) takes a stage's fastest replica.
(3) The candidate is left out and (1) repeated among divisions below the best step time J so far, as a logic-based
    Benders decomposition does, until there is none, or for ``ROUNDS`` rounds.

With :math:`z_1, z_2, \dots` the optima of (1), all candidates take at least :math:`\min(J, z_1)`: what the method
itself proves, by the word of the backend. Candidates that are priced by their order have no place in the program: the
method says nothing of them.

References
----------
J. N. Hooker and G. Ottosson, Logic-based Benders decomposition, Mathematical Programming 96 (2003).
"""

import math
from time import perf_counter

from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.bounds.ladder import Ladder
from taut.solver.interrupt import interrupt_requested
from taut.solver.methods.outcome import Outcome
from taut.solver.methods.quadratic_placement import anneal_from, place_quadratic
from taut.solver.methods.strategy_choice import (
    Backend,
    Choice,
    StrategyPool,
    best_strategy,
    cautious_strategy,
)
from taut.solver.placement.annealing.anneal import best_start
from taut.solver.placement.result import FoundPlacement
from taut.solver.result import CandidateBound, Limits, Progress, Source, relative_gap
from taut.solver.search.incumbent import Best

ROUNDS = 32
"""Candidates that are placed: later ones are seldom better, as each begins at a larger optimum."""
PLACING_SHARE, MOST_PLACING = 0.1, 5.0
"""Share of the time limit, and most seconds, for the quadratic assignment of one candidate."""


def by_program(
    name: str, backend: Backend, problem: PlanningProblem, limits: Limits, progress: Progress | None = None
) -> Outcome:
    """
    Plan by (1) to (3).

    Parameters
    ----------
    name
        Of the method.
    backend
        Who solves the program.
    problem, limits
        What is planned, and when to stop.
    progress
        Called after every round.
    """
    started, ladder, best = perf_counter(), Ladder(problem), Best(problem)
    pool = StrategyPool(ladder, (each for each in problem.candidates if not each.is_order_priced))
    looked_at, lower_bound, solver = len(pool.bounds), math.inf, ""
    with interrupt_requested() as asked:
        for _ in range(ROUNDS if looked_at else 0):
            seconds = None if limits.time_limit is None else limits.time_limit - (perf_counter() - started)
            if asked() or (seconds is not None and seconds <= 0.0):
                break
            choice = best_strategy(pool, backend, below=best.seconds, time_limit=seconds, seed=limits.seed)
            solver, lower_bound = choice.solver or solver, min(lower_bound, choice.lower_bound)
            if choice.strategy is None:
                break
            _place(problem, choice.strategy, choice, limits, best)
            if len(problem.device_types) > 1:
                cautious = cautious_strategy(ladder, choice.strategy.candidate, backend, time_limit=seconds)
                if cautious is not None:
                    _place(problem, cautious, choice, limits, best)
            pool.leave_out(choice.strategy.candidate)
            if progress is not None:
                progress(perf_counter() - started, best.seconds, lower_bound, str(choice.strategy.candidate))
            gap = relative_gap(best.seconds, min(lower_bound, best.seconds))
            if gap is not None and gap <= limits.gap:
                break
    return Outcome(
        method=name,
        incumbent=best.incumbent,
        lower_bound=min(lower_bound, best.seconds) if looked_at else -math.inf,
        candidates=looked_at,
        solver=solver,
        wall_s=perf_counter() - started,
    )


def _place(problem: PlanningProblem, strategy: Strategy, choice: Choice, limits: Limits, best: Best) -> None:
    """Offer the placements of a strategy, (2)."""
    given = placement_problem(problem, strategy)
    bound = CandidateBound(candidate=strategy.candidate, lower_bound=choice.seconds, source=Source.PARTITION)
    start = best_start(given, choice.patterns)
    best.offer(bound, given, start)
    if best.seconds - choice.seconds <= limits.gap * best.seconds:
        return
    seconds = MOST_PLACING if limits.time_limit is None else min(PLACING_SHARE * limits.time_limit, MOST_PLACING)
    found = place_quadratic(given, choice.patterns, limits, seconds)
    if found is not None:
        best.offer(bound, given, FoundPlacement(seconds=found.seconds, positions=given.slots[found.slots]))
    best.offer(bound, given, anneal_from(given, [start], limits) if found is None else found.placed)
