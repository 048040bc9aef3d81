r"""
Best-first branch and bound over all candidates.

Every candidate c carries a lower bound LB(c) over its stages, recompute and placement together, first ``balance``, then
``relaxation``. What half of the time limit leaves without the latter gets it when its turn comes. The candidate with
the least bound is refined (``taut.solver.search.refinement``), step by step, until none with a bound below the
incumbent can be refined further. Candidates that are priced by their order, of which simple plans are the first
incumbents (``taut.solver.search.first_plans``), come after all others, whose incumbent they can be refuted by: first
the bounds of all, then their divisions, the shortest first, and their branches last. Before those, orders are adapted
to the times of what was found, as long as one may lead to a better plan (``taut.solver.search.order_adaptation``); each
joins the space, and its candidates the others. Those with too many options to branch on wait for a better plan.

Where all of that leaves no plan, or a limit comes before one, ``taut.solver.search.without_plan`` says what follows.

Global bound = min(incumbent, min over unsolved c of LB(c)). A limit or an interrupt leaves the incumbent with it.
"""

import heapq
import math
from collections.abc import Callable, Sequence

from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import GivenOrder
from taut.formulations.space import Candidate
from taut.solver.interrupt import interrupt_requested
from taut.solver.result import (
    Incumbent,
    Limits,
    Progress,
    SearchResult,
    Source,
    StoppedBy,
    relative_gap,
)
from taut.solver.search.conclusion import concluded
from taut.solver.search.first_plans import first_plans
from taut.solver.search.global_bound import Bounds
from taut.solver.search.history import History, Moment
from taut.solver.search.incumbent import Best
from taut.solver.search.priority import Priority, turn
from taut.solver.search.refinement import Refining, load_loops
from taut.solver.search.without_plan import decide_by_memory, look_for_any
from taut.solver.stopwatch import Stopwatch

RELAXING = 0.5
"""Share of the time limit after which candidates are refined: the least bound of any is known then, or soon after."""
RELAXED_AT_ONCE = 64
"""Bounds between two looks at limits: some hundredths of a second."""


def search(
    problem: PlanningProblem,
    limits: Limits,
    progress: Progress | None = None,
    *,
    incumbent: Incumbent | None = None,
    only: Sequence[Candidate] | None = None,
    relaxations: dict[Candidate, float] | None = None,
) -> SearchResult:
    """
    Best plan of a problem, with a bound on every candidate.

    Parameters
    ----------
    problem
        What is planned.
    limits
        When to stop; the time of compiling loops does not count, nor that of loading those of bound ``cover``.
    progress
        Called after every refinement, and before a loop is compiled.
    incumbent
        A plan of the problem that is known already.
    only
        Candidates of the problem that are searched; all of them without it.
    relaxations
        Bounds ``relaxation`` that are known already, by candidate.
    """
    with Stopwatch(progress and (lambda doing: progress(0.0, math.inf, -math.inf, doing))):
        load_loops(problem)
    every = problem.candidates if only is None else only
    return _Search(problem, limits, progress, incumbent, every, relaxations).run()


class _Search:
    """One run of the branch and bound: the heap and the bounds so far."""

    def __init__(
        self,
        problem: PlanningProblem,
        limits: Limits,
        progress: Progress | None,
        incumbent: Incumbent | None,
        every: Sequence[Candidate],
        relaxations: dict[Candidate, float] | None,
    ) -> None:
        self._problem, self._limits, self._progress, self._every = problem, limits, progress, every
        self._best = Best(problem, incumbent)
        self._refining = Refining(problem, limits, self._best, self._is_stopping, relaxations)
        self._bounds = Bounds(len(every))
        self._heap: list[tuple[Priority, float, bool, int]] = []
        self._orders, self._waiting = list[GivenOrder](), list[int]()
        self._interrupted: Callable[[], bool] = lambda: False
        self._work = 0
        self._history = History()
        self._watch = Stopwatch(self._tell)

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        stopped: StoppedBy | None = None
        with self._watch, interrupt_requested() as self._interrupted:
            for candidate in self._every:
                self._bounds.add(self._refining.first(candidate))
            self._relax()
            for index in range(len(self._bounds.each)):
                self._push(index)
            for plan in first_plans(self._problem, self._bounds.each, self._is_stopping):
                self._best.take(*plan)
            self._keep()
            while (self._heap or self._refining.orders.has_pending) and stopped is None:
                stopped = self._step()
            if stopped is None and self._best.incumbent is None:
                found = self._bounds, self._refining, self._best
                stopped = decide_by_memory(*found, self._reason_to_stop, self._report)
            if stopped is not None and self._best.incumbent is None:
                look_for_any(self._problem, self._bounds, self._refining, self._best)
                self._keep()
                stopped = None if self._bounds.all_infeasible else stopped
        return self._result(stopped)

    def _relax(self) -> None:
        """Bound ``relaxation`` of as many candidates as half of the time limit allows."""
        limit = self._limits.time_limit
        last = math.inf if limit is None else RELAXING * limit
        for count, index in enumerate(self._refining.ladder.turns(self._every)):
            if count % RELAXED_AT_ONCE == 0:
                if self._interrupted() or self._elapsed >= last:
                    return
                self._tell(f"bounds of {count} of {len(self._every)} candidates")
            self._refining.relax(self._bounds.each[index])
            self._bounds.note(index)

    @property
    def _elapsed(self) -> float:
        return self._watch.seconds

    def _lower_bound(self) -> float:
        """Global bound, valid at any moment."""
        return min(self._best.seconds, self._bounds.least)

    def _push(self, index: int) -> None:
        """Take a candidate up again."""
        bound = self._bounds.each[index]
        # Of equal bounds the one with sequence parallelism goes first, since it bounds the other.
        priority, key = turn(bound, self._refining.standing(bound.candidate))
        heapq.heappush(self._heap, (priority, key, not bound.candidate.sequence_parallel, index))

    def _step(self) -> StoppedBy | None:
        """Adapt an order where that comes first, or refine the candidate with the least bound; returns why to stop."""
        if reason := self._reason_to_stop():
            return reason
        if (not self._heap or self._heap[0][0] is Priority.BRANCHING) and self._refining.orders.has_pending:
            self._adapt()
            return None
        priority, key, _, index = heapq.heappop(self._heap)
        bound = self._bounds.each[index]
        if bound.lower_bound >= self._best.seconds:
            if key == bound.lower_bound:
                self._heap = [entry for entry in self._heap if entry[0] is not priority]
                heapq.heapify(self._heap)
            return None
        if bound.source is Source.BALANCE:
            self._refining.relax(bound)
            self._bounds.note(index)
            self._push(index)
            return None
        more = self._refining.refine(bound)
        self._bounds.note(index)
        if more:
            self._push(index)
        elif self._refining.awaits_plan(bound):
            self._waiting.append(index)
        self._take_up()
        self._report(str(bound.candidate))
        return None

    def _take_up(self) -> None:
        """Take up again candidates that a better plan lets branch."""
        for index in [each for each in self._waiting if self._refining.has_lower_limit(self._bounds.each[each])]:
            self._waiting.remove(index)
            self._push(index)

    def _adapt(self) -> None:
        """Adapt an order to the most promising division; its candidates join the others."""
        order = self._refining.orders.adapt_next(self._is_stopping)
        if order is not None:
            self._orders.append(order)
            known = set(self._problem.candidates)
            self._problem = self._problem.with_orders([order])
            more = [candidate for candidate in self._problem.candidates if candidate not in known]
            self._bounds.make_room(len(more))
            self._refining.ladder.relax(more)
            for candidate in more:
                self._push(self._bounds.add(self._refining.first(candidate)))
        self._report("an order adapted to its times" if order else "no order found that is quicker")

    def _report(self, doing: str) -> None:
        self._work += 1
        self._keep()
        self._tell(doing)

    def _keep(self) -> None:
        self._history.note(Moment(self._work, self._elapsed, self._best.seconds, self._lower_bound()))

    def _tell(self, doing: str) -> None:
        if self._progress is not None:
            self._progress(self._elapsed, self._best.seconds, self._lower_bound(), doing)

    def _is_stopping(self) -> bool:
        return self._reason_to_stop() is not None

    def _reason_to_stop(self) -> StoppedBy | None:
        if self._interrupted():
            return StoppedBy.INTERRUPT
        limits = self._limits
        gap = relative_gap(self._best.seconds, self._lower_bound()) if self._best.incumbent else None
        if gap is not None and gap <= limits.gap:
            return StoppedBy.GAP
        if limits.time_limit is not None and self._elapsed >= limits.time_limit:
            return StoppedBy.TIME
        if limits.work_limit is not None and self._work >= limits.work_limit:
            return StoppedBy.WORK
        return None

    def _result(self, stopped: StoppedBy | None) -> SearchResult:
        return concluded(
            self._bounds.each,
            self._best.incumbent,
            self._lower_bound(),
            stopped,
            orders=tuple(self._orders),
            work=self._work,
            wall_s=self._elapsed,
            relaxations=self._refining.ladder.relaxations,
            history=tuple(moment.as_dict() for moment in self._history.moments),
        )
