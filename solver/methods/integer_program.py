r"""
Strategy by the integer program, placement by quadratic assignment: logic-based Benders decomposition.

Let :math:`b_c` be the best bound known of candidate c, and J the step time of the best plan.

(0) The first J is the step time of HETHUB's plan (``taut.solver.methods.baselines``); of its tree the candidates
    are arranged by ascending bound, and none that cannot be better than what is at hand.
(1) Master: of the candidates with the least :math:`b_c` the strategy of least seconds z, whatever its placement
    (``taut.solver.methods.strategy_choice``); its memory rows hold a learned memory model as any other
    (``taut.formulations.tables.memory``). No plan of these candidates is faster than z, so z raises their
    :math:`b_c`.
(2) Cut: no plan of the candidate c that was chosen is faster than its bound over all divisions and placements together,
    where one applies (``taut.solver.ladder.computations``), which raises :math:`b_c` beyond z where no placement has
    the communication that (1) assumes. The placement of that bound is a plan.
(3) Subproblem: where :math:`b_c` is still below J, the placement of the strategy as a quadratic assignment, and
    annealing from there (``taut.solver.methods.quadratic_placement``); on devices of several types also plans by type
    (``taut.solver.search.typed_plans``), as (1) takes a stage's fastest replica.
(4) c is left out with its :math:`b_c`, and (1) repeated until no candidate has :math:`b_c < J`, less the gap asked for.

All candidates take at least :math:`\min(J, \min_c b_c)`: what the method itself proves, by the word of the backend
where (1) is larger than (2).

(5) Each solve of (1) has ``PROGRAM_SHARE`` of the time that is left before it. Candidates that a solve left undecided
    have programs of their own after all others, and have a cut (2) at once where these do not decide either, as all
    candidates have in the last quarter of a time limit.

References
----------
J. N. Hooker and G. Ottosson, Logic-based Benders decomposition, Mathematical Programming 96 (2003).
"""

import math
from dataclasses import replace
from typing import Any

from taut.formulations.placement import FoundPlacement, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.branch_and_bound.best_first import BestFirst
from taut.solver.branch_and_bound.stop import Listener, Stopping, never
from taut.solver.ladder.computations import strongest
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.baselines import arranged, considered, quickest
from taut.solver.methods.named import Outcome
from taut.solver.methods.quadratic_placement import SolvedAssignment, anneal_from, assign, place_quadratic
from taut.solver.methods.strategy_choice import MOST_CANDIDATES, Backend, Choice, StrategyPool, best_strategy
from taut.solver.placement.annealing.anneal import best_start
from taut.solver.result import CandidateBound, Limits, Source
from taut.solver.search.search import search
from taut.solver.search.standing import Best, placing
from taut.solver.search.typed_plans import typed_plans
from taut.solver.signals import cut_short

PROGRAMS_END = 0.75
"""Share of the time limit after which candidates have cuts alone."""
PROGRAM_SHARE = 0.5
"""Of the time left, for one program; the rest is for placements and for further rounds."""
PLACING_SHARE = 0.2
"""Of the time left, for the placement of one candidate beyond its constructed start."""
ASSIGNMENT_SHARE, MOST_ASSIGNING = 0.1, 5.0
"""Share of the time left, and most seconds, for the quadratic assignment of one candidate."""
ORDER_SHARE = 0.5
"""Share of the time left for the candidates of (6)."""
BY_ORDER = "branch and bound over orders, with glop of OR-Tools"
"""Who found a strategy that is priced by its order."""
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
        self._solver, self._pool = "", StrategyPool(Ladder(problem), [])
        self._undecided = set[Candidate]()
        self._by_order: list[CandidateBound] = []
        self._is_late: Stopping = never
        self._assignment: SolvedAssignment | None = None

    def run(self, name: str) -> Outcome:
        """Rounds until a limit, or until nothing better is left."""
        with self._stop:
            self._ladder, self._is_late = Ladder(self._problem), self._stop.share(PROGRAMS_END)
            self._pool = StrategyPool(self._ladder, self._problem.closed_forms)
            with cut_short():
                self._begin()
                self._search_orders()
                self._loop.run()
            return self._outcome(name)

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return self._best.seconds

    @property
    def lower_bound(self) -> float:
        """What the choices so far prove."""
        return min([self._pool.lower_bound, self._best.seconds, *(bound.lower_bound for bound in self._by_order)])

    @property
    def is_open(self) -> bool:
        """Whether a candidate may be better than the best plan by more than the gap."""
        return bool(self._open)

    @property
    def _open(self) -> list[Candidate]:
        return self._pool.below(self._best.seconds * (1 - self._limits.gap))

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

    def _search_orders(self) -> None:
        """Search the candidates that are priced by their order, (6)."""
        orders = [each for each in self._problem.candidates if each.is_order_priced]
        if not orders or self._stop():
            return
        left = self._stop.left
        limits = replace(self._limits, time_limit=ORDER_SHARE * left if math.isfinite(left) else None)
        found = search(self._problem, limits, only=orders, incumbent=self._best.incumbent, adapts=False)
        self._best.incumbent, self._by_order = found.incumbent, found.bounds

    def refine(self) -> str | None:
        """A round of (1) to (4)."""
        left = self._open
        if self._is_late():
            self._cut(left[0])
            return str(left[0])
        batch = [each for each in left if each not in self._undecided][:MOST_CANDIDATES] or left[:1]
        share = PROGRAM_SHARE if batch[0] not in self._undecided else PROGRAM_SHARE / len(left)
        seconds = share * self._stop.left if math.isfinite(self._stop.left) else None
        choice = best_strategy(
            self._pool, self._backend, below=self._best.seconds, time_limit=seconds, seed=self._limits.seed, only=batch
        )
        self._solver = choice.solver or self._solver
        if choice.strategy is not None:
            candidate = choice.strategy.candidate
            self._pool.leave_out(candidate, self._place(choice.strategy, choice))
            return str(candidate)
        if batch[0] in self._undecided and batch[0] in self._open:
            self._cut(batch[0])
        self._undecided.update(batch)
        return str(batch[0])

    def _cut(self, candidate: Candidate) -> None:
        """Leave a candidate out with its bound (2) alone."""
        self._pool.leave_out(candidate, strongest(self._ladder, candidate, self._best.seconds).seconds)

    def _place(self, strategy: Strategy, choice: Choice) -> float:
        """Offer the placements of a strategy, (2) and (3); returns the bound of its candidate."""
        candidate, best, gap = strategy.candidate, self._best, self._limits.gap
        known = max(choice.lower_bound, self._pool.bounds[candidate])
        bound = CandidateBound(candidate=candidate, lower_bound=known, source=Source.PARTITION)
        given, before = placement_problem(self._problem, strategy), best.seconds
        start = best_start(given, choice.patterns)
        best.offer(bound, given, start)
        cut = strongest(self._ladder, candidate, best.seconds)
        bound.lower_bound = max(known, cut.seconds)
        if cut.placed is not None and cut.placed.partition.feasible:
            exact = placing(self._problem, candidate, cut.placed.partition)
            best.offer(bound, exact, FoundPlacement(seconds=cut.seconds, positions=cut.placed.positions))
        if best.seconds < before:
            self._assignment = None
        if bound.lower_bound >= best.seconds * (1 - gap) or self._stop():
            return bound.lower_bound
        stop = self._stop.within(PLACING_SHARE * self._stop.left)
        if len(self._problem.device_types) > 1:
            for plan in typed_plans(self._problem, candidate, self._limits, stop):
                best.take(bound, plan.strategy, plan.devices)
        before, seconds = best.seconds, min(ASSIGNMENT_SHARE * self._stop.left, MOST_ASSIGNING)
        found = place_quadratic(given, choice.patterns, self._limits, seconds, stopping=stop)
        if found is None:
            best.offer(bound, given, anneal_from(given, [start], self._limits, stop))
            return bound.lower_bound
        best.offer(bound, given, FoundPlacement(seconds=found.seconds, positions=given.slots[found.assignment.slots]))
        best.offer(bound, given, found.placed)
        if best.seconds < before:
            self._assignment = found.assignment
        return bound.lower_bound

    def _outcome(self, name: str) -> Outcome:
        """What was found, with (4)."""
        candidates = len(self._pool.bounds) + len(self._pool.left_out) + len(self._by_order)
        enough = self._best.seconds * (1 - self._limits.gap)
        return Outcome(
            method=name,
            incumbent=self._best.incumbent,
            lower_bound=self.lower_bound if candidates else -math.inf,
            candidates=candidates,
            solver=self._solver,
            wall_s=self._stop.seconds,
            is_cut_off=self.lower_bound < enough,
            figures=self._figures(),
            bounds=tuple(self._by_order),
        )

    def _figures(self) -> dict[str, Any]:
        """Who found the best plan, and its quadratic assignment, posed now where it was met without one."""
        plan, found = self._best.incumbent, self._assignment
        by_order = plan is not None and plan.strategy.candidate.is_order_priced
        if plan is not None and found is None:
            given = placement_problem(self._problem, plan.strategy)
            found = assign(given, self._limits, min(ASSIGNMENT_SHARE * max(self._stop.left, 0.0), LAST_PLACING))
        figures = {} if found is None else {"assignment": found.figures}
        return figures | ({"strategy_by": BY_ORDER} if by_order else {})
