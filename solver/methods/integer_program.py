r"""
Strategy by the integer program, placement by quadratic assignment: the two in turn, until nothing better is left.

(0) The first J is the step time of HETHUB's plan (``taut.solver.methods.baselines.hethub``); of its tree the candidates
    are arranged by ascending bound, and none that cannot be better than what is at hand.
(1) The strategy of least seconds over all candidates, whatever its placement (``taut.solver.methods.strategy_choice``);
    its memory rows hold a learned memory model as any other (``taut.formulations.tables.memory``).
(2) Its placement as a quadratic assignment, and annealing from there (``taut.solver.methods.quadratic_placement``); on
    devices of several types that of the division too that fits any placement, as (1) takes a stage's fastest replica.
(3) The candidate is left out and (1) repeated among divisions below the best step time J so far, as a logic-based
    Benders decomposition does, until there is none, or for ``ROUNDS`` rounds.

With :math:`z_1, z_2, \dots` the optima of (1), all candidates take at least :math:`\min(J, z_1)`: what the method
itself proves, by the word of the backend. Candidates that are priced by their order have no place in the program: the
method says nothing of them.

(4) Each solve of (1) has ``PROGRAM_SHARE`` of the time that is left before it, and (2) ends with the time limit.

References
----------
J. N. Hooker and G. Ottosson, Logic-based Benders decomposition, Mathematical Programming 96 (2003).
"""

import math
from dataclasses import replace
from typing import Any

from taut.formulations.placement import FoundPlacement, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.branch_and_bound.best_first import BestFirst
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.baselines.hethub import arranged, considered
from taut.solver.methods.baselines.trials import quickest
from taut.solver.methods.named import Outcome
from taut.solver.methods.quadratic_placement import SolvedAssignment, anneal_from, assign, place_quadratic
from taut.solver.methods.strategy_choice import (
    Backend,
    Choice,
    StrategyPool,
    best_strategy,
    cautious_strategy,
)
from taut.solver.placement.annealing.anneal import best_start
from taut.solver.result import CandidateBound, Limits, Source
from taut.solver.search.standing import Best

ROUNDS = 32
"""Candidates that are placed: later ones are seldom better, as each begins at a larger optimum."""
PROGRAM_SHARE = 0.6
"""Of the time left, for one choice of a strategy; the rest is for its placement and for further rounds."""
PLACING_SHARE, MOST_PLACING = 0.1, 5.0
"""Share of the time left, and most seconds, for the quadratic assignment of one candidate."""
LAST_PLACING = 1.0
"""Most seconds for the assignment of the best plan, where nothing is left to be found but its bound."""


def by_program(
    name: str, backend: Backend, problem: PlanningProblem, limits: Limits, progress: Listener | None = None
) -> Outcome:
    """Plan by (0) to (4) with one of the backends; ``progress`` is called after every round."""
    return _Rounds(backend, problem, limits, progress).run(name)


class _Rounds:
    """Program and placement in turn: the best plan so far, the bound, and the time that is left."""

    def __init__(self, backend: Backend, problem: PlanningProblem, limits: Limits, progress: Listener | None) -> None:
        self._backend, self._problem, self._limits = backend, problem, limits
        # A round is no unit of work as the search counts it.
        self._loop = BestFirst(self, replace(limits, work_limit=None), progress)
        self._stop, self._best = self._loop.stop, Best(problem)
        self._proven, self._solver, self._is_done = math.inf, "", False
        self._assignment: SolvedAssignment | None = None

    def run(self, name: str) -> Outcome:
        """Rounds until a limit, or until nothing better is left."""
        with self._stop:
            self._ladder = Ladder(self._problem)
            self._pool = StrategyPool(self._ladder, self._problem.closed_forms)
            count = len(self._pool.bounds)
            self._begin()
            self._is_done = count == 0
            self._loop.run()
            return self._outcome(name, count)

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return self._best.seconds

    @property
    def lower_bound(self) -> float:
        """What the choices so far prove, nothing before the first one."""
        return -math.inf if math.isinf(self._proven) else min(self._proven, self._best.seconds)

    @property
    def is_open(self) -> bool:
        """Whether another round may find more."""
        return not self._is_done and self._loop.work < ROUNDS

    def _begin(self) -> None:
        """Take HETHUB's plan, (0)."""
        known = set(considered(self._problem))
        for candidate in self._pool.below(math.inf):
            bound = self._pool.bounds[candidate]
            if bound >= self._best.seconds or self._stop():
                return
            plan = quickest(arranged(self._problem, candidate)) if candidate in known else None
            if plan is not None and plan.seconds < self._best.seconds:
                self._best.incumbent = plan

    def refine(self) -> str | None:
        """A round of (1) to (3)."""
        choice = best_strategy(
            self._pool, self._backend, below=self._best.seconds, time_limit=self._share(), seed=self._limits.seed
        )
        self._solver, self._proven = choice.solver or self._solver, min(self._proven, choice.lower_bound)
        if choice.strategy is None:
            self._is_done = True
            return None
        candidate = choice.strategy.candidate
        self._place(choice.strategy, choice)
        if len(self._problem.device_types) > 1 and not self._stop():
            cautious = cautious_strategy(self._ladder, candidate, self._backend, time_limit=self._share())
            if cautious is not None:
                self._place(cautious, choice)
        self._pool.leave_out(candidate)
        return str(candidate)

    def _share(self) -> float | None:
        """Seconds of one choice, (4)."""
        left = self._stop.left
        return PROGRAM_SHARE * left if math.isfinite(left) else None

    def _place(self, strategy: Strategy, choice: Choice) -> None:
        """Offer the placements of a strategy, (2)."""
        given, best = placement_problem(self._problem, strategy), self._best
        bound = CandidateBound(candidate=strategy.candidate, lower_bound=choice.seconds, source=Source.PARTITION)
        start, before = best_start(given, choice.patterns), best.seconds
        best.offer(bound, given, start)
        if best.seconds < before:
            self._assignment = None
        if best.seconds - choice.seconds <= self._limits.gap * best.seconds or self._stop():
            return
        seconds = min(PLACING_SHARE * self._stop.left, MOST_PLACING)
        found = place_quadratic(given, choice.patterns, self._limits, seconds, stopping=self._stop)
        if found is None:
            best.offer(bound, given, anneal_from(given, [start], self._limits, self._stop))
            return
        best.offer(bound, given, FoundPlacement(seconds=found.seconds, positions=given.slots[found.assignment.slots]))
        best.offer(bound, given, found.placed)
        if best.seconds < before:
            self._assignment = found.assignment

    def _outcome(self, name: str, candidates: int) -> Outcome:
        """What was found; before the first choice the bound is that of the pool."""
        least = min(self._pool.bounds.values(), default=-math.inf)
        bound = least if math.isinf(self._proven) else self._proven
        return Outcome(
            method=name,
            incumbent=self._best.incumbent,
            lower_bound=min(bound, self._best.seconds),
            candidates=candidates,
            solver=self._solver,
            wall_s=self._stop.seconds,
            figures=self._figures(),
        )

    def _figures(self) -> dict[str, Any]:
        """The quadratic assignment of the best plan, posed now where its placement was met without one."""
        plan, found = self._best.incumbent, self._assignment
        if plan is not None and found is None:
            given = placement_problem(self._problem, plan.strategy)
            found = assign(given, self._limits, min(PLACING_SHARE * max(self._stop.left, 0.0), LAST_PLACING))
        return {} if found is None else {"assignment": found.figures}
