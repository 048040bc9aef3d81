r"""
The best schedule of a pipeline that can be found, with a lower bound on all of its schedules.

Sets, data and the makespan T are those of ``taut.formulations.schedules.schedule``. U is the makespan of the best
schedule found, L a lower bound on T:

(1) *Start.* U is that of the best of the known kinds, adapted to times and memory limits
    (``taut.solver.schedules.kinds``).
(2) *Bound.* L is a destructive bound (``taut.solver.schedules.lower_bound``), with U as its first target:
    if U is refuted as a target, the start is proven best.
(3) *Improve.* Rounds of large-neighbourhood search with CP-SAT alternate, three to one, with local search along
    critical paths (``taut.solver.schedules.disjunctive_graph``), which alone is used for very many passes.
(4) *Solve.* Where many rounds have not improved a schedule of few passes, CP-SAT solves the whole, and may claim a
    larger L.

The search ends when :math:`(U - L) / U` is small enough, on Ctrl-C or at a limit. Rounds and values do not depend on
the machine, so a limit of work alone gives the same schedule and bound everywhere (5). Where a schedule of another
placement is known, bounds are tried with its makespan if that is less, and the search ends once they reach it (6).
Compiled loops are loaded before any time limit begins.

A neighbourhood [1]_ frees the passes of one part (``taut.solver.schedules.exact``, (7)) and keeps the order of
all others. A part is a *time window*, all passes that start in an interval of time, or a *band*, all passes of
some neighbouring devices in such an interval. Intervals begin anywhere and hold about a given number of passes; the
number grows by 15 % when a part is solved to optimality and shrinks by 10 % when it is not (7). The choice follows from
the seed and the round alone, and so does the outcome as long as only the solver's own measure of work ends a round (8).

References
----------
.. [1] Shaw, P. (1998). Using constraint programming and local search methods to solve vehicle routing problems.
       Principles and Practice of Constraint Programming (CP): 417-431.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    Timetable,
    canonical_starts,
    timetable,
    v_shape,
)
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.result import OPTIMALITY_GAP, Status, relative_gap
from taut.solver.schedules.disjunctive_graph import (
    DisjunctiveGraph,
    disjunctive_graph,
    flat_order,
    improve,
    schedule_of,
)
from taut.solver.schedules.exact import Solved, solve
from taut.solver.schedules.kinds import Effort, fastest_kind, require_memory
from taut.solver.schedules.lower_bound import WORK_LIMIT, ScheduleBound, certificate, lower_bound
from taut.solver.signals import cut_short

_SMALLEST, _LARGEST = 24, 400
"""Passes of a part, (7): below, moves along critical paths find as much; above, CP-SAT seldom ends within its work."""
_WORK = 0.6
"""The solver's measure of work for one part: about half a second."""


@dataclass
class LargeNeighbourhood:
    """Large-neighbourhood search on a pipeline; a part holds ``passes`` now, (7), in a ``round``."""

    problem: ScheduleProblem
    seed: int = 0
    passes: int = 64
    round: int = 0

    def improve(
        self,
        schedule: Schedule,
        *,
        lower_bound: float = 0.0,
        time_limit: float = 60.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Solved:
        """Solve one part of a schedule within ``time_limit`` seconds; the result is not longer."""
        draw = np.random.default_rng((self.seed, self.round))
        self.round += 1
        free = self._part(canonical_starts(self.problem, schedule), draw)
        solved = solve(
            self.problem,
            schedule,
            free=free,
            lower_bound=lower_bound,
            time_limit=time_limit,
            work_limit=_WORK,
            seed=self.round,
            stop=stop,
        )
        factor = 1.15 if solved.is_complete else 0.9
        self.passes = int(np.clip(factor * self.passes, _SMALLEST, _LARGEST))
        return solved

    def _part(self, begin: Floats, draw: np.random.Generator) -> Flags:
        """Passes of some devices that start in an interval; all if they are few."""
        problem = self.problem
        if begin.size <= self.passes:
            return np.ones(begin.shape, dtype=bool)
        wide = draw.random() < 0.5
        count = problem.num_devices if wide else int(draw.integers(1, max(problem.num_devices, 2)))
        first = int(draw.integers(problem.num_devices - count + 1))
        chosen = (problem.device >= first) & (problem.device < first + count)
        inside = np.broadcast_to(chosen[None, :, None], begin.shape)
        times = np.sort(begin[inside])
        at = int(draw.integers(-self.passes // 2, max(len(times) - self.passes // 2, 1)))
        low, high = times[max(at, 0)], times[min(at + self.passes, len(times) - 1)]
        return np.asarray(inside & (begin >= low) & (begin <= high))


_loaded = threading.Event()
LOADING = "loading loops, compiled in a first run"


def load(progress: Listener | None = None) -> None:
    """Load the compiled loops, or compile them, on a small pipeline: a first run would spend its time limit on that."""
    if not _loaded.is_set():
        began = time.monotonic()

        def beat() -> bool:
            if progress is not None:
                progress(Progress(time.monotonic() - began, math.inf, -math.inf, LOADING))
            return False

        _load(beat)
        _loaded.set()


def _load(beat: Callable[[], bool]) -> None:
    """Build, improve and bound a small pipeline, which runs every loop once."""
    times, chunks = np.ones(4), v_shape(2)
    small = ScheduleProblem(
        device=chunks,
        forward=times,
        input_gradient=times,
        weight_gradient=times,
        transfer=np.full(3, 0.5),
        num_micro_batches=4,
        activation=times,
        kept_for_weight=times,
        memory_limit=np.full(2, 3.0),
    )
    start = fastest_kind(small, work=Effort(lists=9, kept=1, trials=9), stop=beat)
    lower_bound(small, incumbent=timetable(small, start).makespan, work_limit=10_000, stop=beat)


SECONDS = 60.0
"""Time limit where neither time nor work is limited."""
VALUES_A_SECOND = 40_000_000
"""Values of labels that a bound may extend for each second that it has: what one core does, measured."""
_MANY, _FEW = 6000, 400
"""Passes above which a part's model takes longer to build than to solve, and up to which the whole goes to CP-SAT."""
_PATIENCE = 40
"""Rounds without improvement after which CP-SAT gets the whole: about half a minute."""
_NEAR = 1e-3
"""Relative gap at which a better schedule is tried as a target of the bound: within reach of its finest steps."""
_PART_SECONDS = 5.0
"""Time limit of one part. Work limits end parts after about half a second; this one is for slow machines."""
_BEAT = 1.0
"""Seconds between two reports of what is being done."""


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """
    A schedule and what is proven of it.

    ``schedule``, ``timetable``: the best schedule found, and when its passes run; ``lower_bound``, ``source``: seconds
    that no schedule is shorter than, and what says so; "cp-sat (claimed)" if only CP-SAT does; ``witness``: what
    derives the best other bound again; ``status``: optimal if makespan and bound differ by no more than 1e-6 of it;
    ``certificate``: all claims as plain JSON values; see ``taut.solver.schedules.lower_bound``.
    """

    schedule: Schedule
    timetable: Timetable
    lower_bound: float
    source: str
    witness: dict[str, Any]
    status: Status
    certificate: dict[str, Any]

    @property
    def gap(self) -> float | None:
        """Relative gap of the makespan."""
        return relative_gap(self.timetable.makespan, self.lower_bound)


def optimize(
    problem: ScheduleProblem,
    *,
    kinds: Sequence[str] | None = None,
    start: Schedule | None = None,
    known: float = math.inf,
    time_limit: float | None = None,
    work_limit: int | None = None,
    gap: float = OPTIMALITY_GAP,
    seed: int = 0,
    workers: int = 1,
    progress: Listener | None = None,
) -> ScheduleResult:
    """Find a schedule of small makespan, from ``start`` or the best of ``kinds``, and bound all; ``known``: (6)."""
    require_memory(problem)
    load(progress)
    with interrupt_requested() as asked:
        # Without a first schedule there is nothing to keep.
        limit = time_limit if time_limit is not None else SECONDS if work_limit is None else math.inf
        search = _Search(problem, Goal(known, gap), limit, asked, progress, seed)
        search.doing = "building schedules of known kinds"
        search.take(start or fastest_kind(problem, kinds=kinds, seed=seed, stop=search.is_over), "kinds")
        with cut_short():
            search.doing = "raising the lower bound"
            search.prove(WORK_LIMIT if math.isinf(limit) else min(WORK_LIMIT, int(VALUES_A_SECOND * (1 + limit))))
            search.doing = "improving the schedule"
            search.improve(math.inf if work_limit is None else work_limit)
            search.doing = "solving the whole by CP-SAT"
            if work_limit is None:
                search.solve(workers)
        return search.result()


@dataclass(frozen=True)
class Goal:
    """Makespan that is known elsewhere in seconds, (6), and the relative gap that is small enough."""

    known: float
    gap: float

    def is_reached(self, makespan: float, bound: float) -> bool:
        """Whether no schedule is better by more than the gap than a makespan or what is known."""
        least = min(makespan, self.known)
        return bound >= least * (1 - self.gap)


class _Search:
    """The incumbent, its bound, and what is left of the time."""

    def __init__(
        self,
        problem: ScheduleProblem,
        goal: Goal,
        limit: float,
        asked: Callable[[], bool],
        progress: Listener | None,
        seed: int,
    ) -> None:
        self.problem, self.goal, self.limit, self.began = problem, goal, limit, time.monotonic()
        self._asked, self.progress, self.seed = asked, progress, seed
        self.doing, self.reported = "", self.began
        self.makespan, self.claimed = math.inf, -math.inf
        self.passes = 3 * problem.num_chunks * problem.num_micro_batches
        self.schedule: Schedule
        self.bound = ScheduleBound(lower_bound=-math.inf, source="none")

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.began + self.limit - time.monotonic()

    def is_over(self) -> bool:
        """Whether there is no more time, or Ctrl-C was pressed."""
        return self.asked() or self.left <= 0

    def asked(self) -> bool:
        """Whether Ctrl-C was pressed; as this is asked all the time, what is being done is told once a second."""
        if time.monotonic() - self.reported > _BEAT:
            self.report(self.doing)
        return self._asked()

    def is_closed(self) -> bool:
        """Whether the incumbent, or what is known elsewhere, is proven to be as good as asked for."""
        return self.goal.is_reached(self.makespan, max(self.bound.lower_bound, self.claimed))

    def report(self, doing: str) -> None:
        """Tell how far the search is."""
        self.reported = time.monotonic()
        if self.progress is not None:
            bound = max(self.bound.lower_bound, self.claimed)
            self.progress(Progress(time.monotonic() - self.began, self.makespan, bound, doing))

    def take(self, schedule: Schedule, doing: str) -> bool:
        """Keep a schedule unless it is longer; say whether it is shorter."""
        makespan = timetable(self.problem, schedule).makespan
        is_shorter = makespan < self.makespan * (1 - 1e-12)
        if makespan <= self.makespan:
            self.schedule, self.makespan = schedule, makespan
        if is_shorter:
            self.report(doing)
        return is_shorter

    def prove(self, work_limit: int = VALUES_A_SECOND) -> None:
        """Bound all schedules, (2), with the incumbent as a target, and keep a larger bound."""
        least = min(self.makespan, self.goal.known)
        found = lower_bound(self.problem, incumbent=least, work_limit=work_limit, stop=self.is_over)
        if found.lower_bound > self.bound.lower_bound:
            self.bound = found
            self.report(found.source)

    def improve(self, rounds: float) -> None:
        """Improve the incumbent, (3), until it is proven, time is up, or whole by CP-SAT promises more."""
        parts, moves = LargeNeighbourhood(self.problem, self.seed), disjunctive_graph(self.problem)
        number, waited = 0, 0
        while number < rounds and not self.is_closed() and not self.is_over():
            if math.isfinite(self.limit) and self.passes <= _FEW and waited >= _PATIENCE:
                break
            if number % 4 == 3 or self.passes > _MANY:
                found = self._moved(moves, number)
            else:
                seconds = min(self.left, _PART_SECONDS) if math.isfinite(self.limit) else math.inf
                found = parts.improve(
                    self.schedule, lower_bound=self.bound.lower_bound, time_limit=seconds, stop=self.asked
                ).schedule
            waited = 0 if self.take(found, "improved") else waited + 1
            if waited == 0 and self.makespan <= self.bound.lower_bound * (1 + _NEAR):
                self.prove()
            number += 1

    def _moved(self, moves: DisjunctiveGraph, number: int) -> Schedule:
        """The incumbent after moves along its critical paths."""
        order = flat_order(self.problem, self.schedule)
        trials = int(min(max(7e7 / self.passes, 1000), 100_000))
        _, found = improve(moves, order, trials, seed=self.seed + 1000 + number, target=self.bound.lower_bound)
        return schedule_of(self.problem, found, "improved")

    def solve(self, workers: int) -> None:
        """Hand few passes to CP-SAT as a whole, (4)."""
        if self.passes > _FEW or self.is_closed() or self.is_over():
            return
        solved = solve(
            self.problem,
            self.schedule,
            lower_bound=self.bound.lower_bound,
            time_limit=self.left,
            seed=self.seed,
            workers=workers,
            stop=self.asked,
        )
        self.claimed = min(solved.claimed_bound, solved.makespan)
        if self.take(solved.schedule, "cp-sat"):
            self.prove()

    def result(self) -> ScheduleResult:
        """What was found and proven."""
        best = max(self.bound.lower_bound, self.claimed)
        is_claimed = self.claimed > self.bound.lower_bound
        gap = relative_gap(self.makespan, best)
        return ScheduleResult(
            schedule=self.schedule,
            timetable=timetable(self.problem, self.schedule),
            lower_bound=best,
            source="cp-sat (claimed)" if is_claimed else self.bound.source,
            witness=self.bound.witness,
            status=Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE,
            certificate=certificate(self.makespan, self.bound, self.claimed if is_claimed else None),
        )
