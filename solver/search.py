r"""
Best-first branch and bound over all candidates.

Every candidate c carries a lower bound LB(c) over its stages, recompute and placement together. The candidate with
the least bound is refined (``taut.solver.refine``), step by step, until none with a bound below the incumbent can be
refined further. Candidates that are priced by their order come after all others, whose incumbent they can be refuted
by.

Global bound = min(incumbent, min over unsolved c of LB(c)). A limit or an interrupt leaves the incumbent with it.
"""

import heapq
import math
import time

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.solver.best import Best
from taut.solver.interrupt import interrupt_requested
from taut.solver.refine import Refining, load_loops
from taut.solver.result import (
    OPTIMALITY_GAP,
    CandidateBound,
    Incumbent,
    Limits,
    Progress,
    SearchResult,
    State,
    Status,
    relative_gap,
)


def search(
    problem: PlanningProblem,
    limits: Limits,
    progress: Progress | None = None,
    *,
    incumbent: Incumbent | None = None,
) -> SearchResult:
    """
    Best plan of a problem, with a bound on every candidate.

    Parameters
    ----------
    problem
        What is planned.
    limits
        When to stop; the time counts from when the compiled loops of the staircase are loaded.
    progress
        Called after every refinement.
    incumbent
        A plan of the problem that is known already.
    """
    load_loops(problem)
    return _Search(problem, limits, progress, incumbent).run()


class _Search:
    """One run of the branch and bound: the heap and the bounds so far."""

    def __init__(
        self, problem: PlanningProblem, limits: Limits, progress: Progress | None, incumbent: Incumbent | None
    ) -> None:
        self._problem, self._limits, self._progress = problem, limits, progress
        self._best = Best(problem, incumbent)
        self._refining = Refining(problem, limits, self._best)
        self._bounds: list[CandidateBound] = []
        self._unsolved = np.full(len(problem.candidates), np.inf)
        self._heap: list[tuple[bool, float, int]] = []
        self._work = 0
        self._started = time.perf_counter()

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        stopped: str | None = None
        with interrupt_requested() as interrupted:
            for candidate in self._problem.candidates:
                self._bounds.append(self._refining.relaxed(candidate))
                self._note(len(self._bounds) - 1)
                self._push(len(self._bounds) - 1)
            while self._heap and stopped is None:
                stopped = "interrupt" if interrupted() else self._step()
        return self._result(stopped)

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def _lower_bound(self) -> float:
        """Global bound, valid at any moment."""
        return min(self._best.seconds, float(self._unsolved.min(initial=math.inf)))

    def _note(self, index: int) -> None:
        """Keep the bound of a candidate that is not solved where the global bound is taken from."""
        bound = self._bounds[index]
        self._unsolved[index] = bound.lower_bound if bound.state in (State.OPEN, State.PRUNED) else math.inf

    def _push(self, index: int) -> None:
        """Take a candidate up again; those that are priced by their order come last, as a good plan shortens them."""
        bound = self._bounds[index]
        heapq.heappush(self._heap, (bound.candidate.is_ordered, bound.lower_bound, index))

    def _step(self) -> str | None:
        """Refine the candidate with the least bound; returns why to stop, or None."""
        if reason := self._reason_to_stop():
            return reason
        last, _, index = heapq.heappop(self._heap)
        bound = self._bounds[index]
        if bound.lower_bound >= self._best.seconds:
            self._heap = [entry for entry in self._heap if entry[0] != last]
            heapq.heapify(self._heap)
            return None
        self._work += 1
        more = self._refining.refine(bound)
        self._note(index)
        if more:
            self._push(index)
        if self._progress is not None:
            self._progress(self._elapsed, self._best.seconds, self._lower_bound(), str(bound.candidate))
        return None

    def _reason_to_stop(self) -> str | None:
        limits = self._limits
        gap = relative_gap(self._best.seconds, self._lower_bound()) if self._best.incumbent else None
        if gap is not None and gap <= limits.gap:
            return "gap"
        if limits.time_limit is not None and self._elapsed >= limits.time_limit:
            return "time"
        if limits.work_limit is not None and self._work >= limits.work_limit:
            return "work"
        return None

    def _result(self, stopped: str | None) -> SearchResult:
        for bound in self._bounds:
            if bound.state is State.OPEN and bound.lower_bound >= self._best.seconds:
                bound.state = State.PRUNED
        incumbent, lower_bound = self._best.incumbent, self._lower_bound()
        if incumbent is None:
            done = stopped is None and all(b.state is State.INFEASIBLE for b in self._bounds)
            status = Status.INFEASIBLE if done else Status.UNKNOWN
        else:
            gap = relative_gap(incumbent.seconds, lower_bound)
            status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
        return SearchResult(
            status=status,
            stopped_by=stopped,
            incumbent=incumbent,
            lower_bound=lower_bound,
            bounds=self._bounds,
            work=self._work,
            wall_s=self._elapsed,
        )
