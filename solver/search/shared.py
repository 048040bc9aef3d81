r"""
The branch and bound on several processes, which share incumbent and bounds.

(1) The relaxations of all candidates are computed in parts, one a process, within half of the time limit.
(2) Candidates are searched in groups by ascending bound, those priced by their order last, a group a task
    (``taut.solver.search.search``). A task begins with the best plan so far, and returns its plan and its bounds.
(3) A group is sent out only while its least bound is below the incumbent. With b(c) the best bound returned so far of
    candidate c, a relaxation where it was not sent out, and J the incumbent, :math:`\min(J, \min_c b(c))` over the
    candidates that are neither solved nor infeasible bounds every plan at any moment, as in one process.
(4) So the search ends where that of one process does: when (3) has closed to the gap, or no candidate below J is left.
    Where both prove their plan optimal their bounds are equal up to the gap; which of several equal plans is found, and
    bounds of candidates that a better incumbent would have cut short, depend on which task is done first.

The processes may be any ``concurrent.futures.Executor``. Each keeps the tables of the problem from task to task.
"""

import math
import pickle
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace

from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import GivenOrder
from taut.formulations.space import Candidate
from taut.solver.branch_and_bound.best_first import BestFirst
from taut.solver.branch_and_bound.stop import Listener, Stopwatch
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import CandidateBound, Incumbent, Limits, SearchResult, Source, State
from taut.solver.search.conclusion import concluded
from taut.solver.search.refinement import load_loops
from taut.solver.search.search import RELAXING, search

FIRST_GROUP, LARGEST_GROUP = 4, 64
"""Candidates of a group: few while every plan helps the others, more once most are refuted at their first bound."""
PARTS = 8
"""Parts of (1) for each process: candidates of large degrees take longer than others."""
FIRST = Source.BALANCE, Source.RELAXATION
"""What bounds rest on until a candidate was sent out."""
LOOK_S = 0.2
"""Seconds between two looks at limits while tasks run."""

_known: dict[bytes, PlanningProblem] = {}


def search_on(
    executor: Executor, processes: int, problem: PlanningProblem, limits: Limits, progress: Listener | None = None
) -> SearchResult:
    """Best plan, with a bound on every candidate, by ``processes``; a work limit is one of each group of candidates."""
    # Compiled here once, loaded there.
    load_loops(problem)
    return _Shared(executor, processes, problem, limits, progress).run()


class _Shared:
    def __init__(
        self, executor: Executor, processes: int, problem: PlanningProblem, limits: Limits, progress: Listener | None
    ) -> None:
        self._executor, self._processes, self._limits = executor, processes, limits
        # A work limit is each group's own.
        self._loop = BestFirst(self, replace(limits, work_limit=None), progress)
        self._problem, self._packed = problem, pickle.dumps(replace(problem))
        self._bounds: dict[Candidate, CandidateBound] = {}
        self._waiting: list[Candidate] = []
        self._incumbent: Incumbent | None = None
        self._orders: list[GivenOrder] = []
        self._groups, self._running = 0, set[Future[SearchResult]]()

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        with self._loop.stop:
            self._relax()
            stopped = self._loop.run() or self._loop.reason()
            while self._running:
                self._wait()
        relaxations = {c: b.lower_bound for c, b in self._bounds.items() if b.source is Source.RELAXATION}
        return concluded(
            list(self._bounds.values()),
            self._incumbent,
            self.lower_bound,
            stopped,
            orders=tuple(self._orders),
            work=self._loop.work,
            wall_s=self._loop.stop.seconds,
            relaxations=relaxations,
            history=self._loop.history.as_dicts(),
        )

    def _relax(self) -> None:
        """Relaxations of all candidates, (1)."""
        every = self._problem.candidates
        count = min(PARTS * self._processes, len(every)) or 1
        parts = [every[k::count] for k in range(count)]
        limit = self._limits.time_limit
        each = math.inf if limit is None else RELAXING * limit * self._processes / count
        futures = [self._executor.submit(_relaxed, self._packed, part, each) for part in parts]
        for part, future in zip(parts, futures, strict=True):
            for candidate, (seconds, source) in zip(part, future.result(), strict=True):
                self._bounds[candidate] = CandidateBound(candidate=candidate, lower_bound=seconds, source=source)
        self._waiting = sorted(every, key=self._priority, reverse=True)
        self._loop.report("relaxations", work=0)

    def _priority(self, candidate: Candidate) -> tuple[int, float, bool]:
        """Order in which candidates are sent out, (2); of equal bounds that with sequence parallelism first."""
        return candidate.effort, self._bounds[candidate].lower_bound, not candidate.sequence_parallel

    @property
    def is_open(self) -> bool:
        """Whether tasks run, or candidates wait."""
        return bool(self._running or self._waiting)

    def refine(self) -> None:
        """Send out groups by ascending bound, (2) and (3), and take what is done."""
        while len(self._running) < self._processes and (group := self._next_group()):
            self._running.add(self._executor.submit(_searched, *self._task(group)))
        self._wait()

    def _wait(self) -> None:
        """Take the tasks that are done within a moment."""
        done, self._running = wait(self._running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(future.result())

    def _next_group(self) -> list[Candidate]:
        """The next candidates below the incumbent; none where no candidate is."""
        size = min(FIRST_GROUP << (self._groups // self._processes), LARGEST_GROUP)
        group: list[Candidate] = []
        while self._waiting and len(group) < size:
            candidate = self._waiting.pop()
            if self._bounds[candidate].lower_bound < self.incumbent_value:
                group.append(candidate)
        self._groups += 1
        return group

    def _task(
        self, group: list[Candidate]
    ) -> tuple[bytes, list[Candidate], dict[Candidate, CandidateBound], Incumbent | None, Limits]:
        """What a process needs to search a group."""
        left = None if self._limits.time_limit is None else max(self._loop.stop.left, 0.0)
        known = {c: bound for c in group if (bound := self._bounds[c]).source is Source.RELAXATION}
        return self._packed, group, known, self._incumbent, replace(self._limits, time_limit=left, workers=1)

    def _take(self, found: SearchResult) -> None:
        """Keep a group's bounds, orders, and plan."""
        for bound in found.bounds:
            known = self._bounds.get(bound.candidate)
            if known is None or known.lower_bound <= bound.lower_bound:
                self._bounds[bound.candidate] = bound
        self._orders += [order for order in found.orders if order not in self._orders]
        if found.incumbent is not None and found.incumbent.seconds < self.incumbent_value:
            self._incumbent = found.incumbent
        count = sum(bound.source not in FIRST for bound in self._bounds.values())
        self._loop.report(f"{count} candidates", found.work)

    @property
    def incumbent_value(self) -> float:
        """Seconds of the best plan."""
        return math.inf if self._incumbent is None else self._incumbent.seconds

    @property
    def lower_bound(self) -> float:
        """Global bound (3)."""
        left = (b.lower_bound for b in self._bounds.values() if b.state in (State.OPEN, State.PRUNED))
        return min(self.incumbent_value, min(left, default=math.inf))


def _unpacked(packed: bytes) -> PlanningProblem:
    """The problem, with the tables that earlier tasks of this process made."""
    if packed not in _known:
        _known.clear()
        _known[packed] = pickle.loads(packed)
    return _known[packed]


def _relaxed(packed: bytes, candidates: Sequence[Candidate], limit: float) -> list[tuple[float, Source]]:
    """Task: first bounds of some candidates, relaxations as far as the seconds go."""
    ladder = Ladder(_unpacked(packed))
    with Stopwatch() as watch:
        for index in ladder.turns(candidates):
            if watch.seconds >= limit:
                break
            ladder.relaxation(candidates[index])
    return [ladder.first(candidate) for candidate in candidates]


def _searched(
    packed: bytes,
    group: list[Candidate],
    known: dict[Candidate, CandidateBound],
    incumbent: Incumbent | None,
    limits: Limits,
) -> SearchResult:
    """Task: the search of a group."""
    return search(_unpacked(packed), limits, incumbent=incumbent, only=group, known=known)
