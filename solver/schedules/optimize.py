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

A neighbourhood [1]_ frees the passes of one part (15) and keeps the order of all others. A part is a *time window*, all
passes that start in an interval of time, or a *band*, all passes of some neighbouring devices in such an interval.
Intervals begin anywhere and hold about a given number of passes; the number grows by 15 % when a part is solved to
optimality and shrinks by 10 % when it is not (7). The choice follows from the seed and the round alone, and so does the
outcome as long as only the solver's own measure of work ends a round (8).

The constraint program of CP-SAT, (11) to (15), is in whole numbers. Rounding moves a makespan by at most r units of 1 /
scale seconds, so where all passes are free

    makespan >= (bound of the model - r) / scale  (9)

is what the solver claims of every schedule. Its own schedule is priced by the evaluator again, and the known one is
returned where that is not longer (10).

Times are rounded to whole numbers :math:`p` of about 1e-7 of the makespan. A pass B is never needed and micro-batches
may run in order (rules 1 and 2 of ``taut.formulations.schedules.schedule``), so

.. math::
    \min T: \quad & s_x + p_x + t_{xy} \le s_y && \text{x before y in the formulation, or in order} \tag{11} \\
    & [s_x, s_x + p_x) \text{ disjoint} && x \in d \tag{12} \\
    & \sum_{c \in d, i} (a_c - k_c) [s(F_{ci}) \le s < e(I_{ci})] + k_c [s(F_{ci}) \le s < e(W_{ci})] \le M_d
        && \text{at any time s} \tag{13} \\
    & s_x + p_x \le T \tag{14}

A *part* is some passes that are free to change places: of each device, all that start in one interval. The order of
the others on the device stays that of the known schedule; what starts before all of the part starts when it did (15).

References
----------
.. [1] Shaw, P. (1998). Using constraint programming and local search methods to solve vehicle routing problems.
       Principles and Practice of Constraint Programming (CP): 417-431.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    Timetable,
    canonical_schedule,
    canonical_starts,
    timetable,
    v_shape,
    violations,
)
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.cp_sat import run
from taut.solver.result import OPTIMALITY_GAP, Status, relative_gap
from taut.solver.schedules.disjunctive_graph import (
    DisjunctiveGraph,
    disjunctive_graph,
    flat_order,
    improve,
    schedule_of,
)
from taut.solver.schedules.kinds import Effort, fastest_kind, require_memory
from taut.solver.schedules.lower_bound import WORK_LIMIT, ScheduleBound, certificate, lower_bound
from taut.solver.signals import cut_short

_RESOLUTION = 1e7
"""Whole units of time in a makespan: rounding is far below any gap of interest, and sums stay small for CP-SAT."""
_UNITS = 1 << 20
"""Whole units of memory that the largest limit has, so rounding up takes less than a millionth of it a pass."""

Key = tuple[int, int, int]


class Model:
    """Variables and constraints (11) to (15); passes that are not ``free`` (3, C, m) stay as in ``known``, the hint."""

    def __init__(
        self, problem: ScheduleProblem, known: Schedule, makespan: float, free: Flags | None, bound: float
    ) -> None:
        is_whole = makespan <= _RESOLUTION and all(np.all(times == np.round(times)) for times in _times(problem))
        self.scale = 1.0 if is_whole else _RESOLUTION / makespan
        rounded = [np.round(times * self.scale) for times in _times(problem)]
        forward, input_gradient, weight_gradient, transfer = rounded
        self.problem = problem = replace(
            problem, forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient, transfer=transfer
        )
        self.begin = begin = canonical_starts(problem, known)
        self.free = np.ones(begin.shape, dtype=bool) if free is None else free
        self.opens = begin[self.free].min(initial=np.inf)
        self.seconds, self.delay = problem.seconds.astype(np.int64), problem.transfer.astype(np.int64)
        self.horizon = int((begin + problem.seconds[:3, :, None]).max())
        # Rounding moves each pass and transfer by half a unit at most.
        self.rounding = 0 if is_whole else 3 * begin.size
        self.model = cp_model.CpModel()
        least = max(0, int(np.floor(bound * self.scale)) - self.rounding)
        self.end = self.model.new_int_var(min(least, self.horizon), self.horizon, "")
        self.start = {
            (kind, c, i): self._variable(kind, c, i)
            for kind in range(3)
            for c in range(problem.num_chunks)
            for i in range(problem.num_micro_batches)
        }
        for key, variable in self.start.items():
            self.model.add_hint(variable, int(begin[key]))
        self._precedences()
        for d in range(problem.num_devices):
            self._device(np.flatnonzero(problem.device == d), float(problem.allowed[d]))
        self.model.minimize(self.end)

    def _variable(self, kind: int, c: int, i: int) -> cp_model.IntVar:
        """Start of a pass; what starts before all free passes starts as it did."""
        if self.begin[kind, c, i] < self.opens:
            begin = int(self.begin[kind, c, i])
            return self.model.new_int_var(begin, begin, "")
        return self.model.new_int_var(0, self.horizon - int(self.seconds[kind, c]), "")

    def _after(self, first: Key, then: Key, delay: int = 0) -> None:
        """Constraint (11)."""
        self.model.add(self.start[then] >= self.start[first] + int(self.seconds[first[0], first[1]]) + delay)

    def _precedences(self) -> None:
        """Constraints (11) and (14)."""
        chunks, m = self.problem.num_chunks, self.problem.num_micro_batches
        for c in range(chunks):
            for i in range(m):
                if c:
                    self._after((FORWARD, c - 1, i), (FORWARD, c, i), int(self.delay[c - 1]))
                    self._after((INPUT_GRADIENT, c, i), (INPUT_GRADIENT, c - 1, i), int(self.delay[c - 1]))
                self._after((FORWARD, c, i), (INPUT_GRADIENT, c, i))
                self._after((INPUT_GRADIENT, c, i), (WEIGHT_GRADIENT, c, i))
                for kind in range(3) if i else ():
                    self._after((kind, c, i - 1), (kind, c, i))
            self.model.add(self.end >= self.start[WEIGHT_GRADIENT, c, m - 1] + int(self.seconds[WEIGHT_GRADIENT, c]))

    def _device(self, chunks: Ints, limit: float) -> None:
        """Constraints (12), (13) and (15) of one device."""
        m = self.problem.num_micro_batches
        keys = [(kind, int(c), i) for kind in range(3) for c in chunks for i in range(m)]
        keys.sort(key=lambda key: (float(self.begin[key]), *self._rank(key)))
        places = [place for place, key in enumerate(keys) if self.free[key]]
        first, last = (places[0], places[-1]) if places else (len(keys), len(keys))
        block = keys[first : last + 1]
        for one, other in pairwise(keys[: first + 1]):
            self._after(one, other)
        for one, other in pairwise(keys[last:]):
            self._after(one, other)
        for key in block:
            if first:
                self._after(keys[first - 1], key)
            if last + 1 < len(keys):
                self._after(key, keys[last + 1])
        self.model.add_no_overlap(
            [self.model.new_fixed_size_interval_var(self.start[key], int(self.seconds[key[:2]]), "") for key in block]
        )
        if np.isfinite(limit) and block:
            self._memory(set(block), set(keys[:first]), chunks, limit)

    def _memory(self, block: set[Key], earlier: set[Key], chunks: Ints, limit: float) -> None:
        """Constraint (13) in a block; amounts are rounded up where they are not whole, so schedules stay feasible."""
        problem = self.problem
        amounts = np.stack((problem.activation - problem.kept_for_weight, problem.kept_for_weight))
        unit = 1.0 if np.all(amounts == np.round(amounts)) else limit / _UNITS
        demands, room = np.ceil(amounts / unit - 1e-9).astype(np.int64), int(np.floor(limit / unit))
        intervals, sizes = [], []
        for c in chunks.tolist():
            for i in range(problem.num_micro_batches):
                taken = (FORWARD, c, i)
                for kind in (INPUT_GRADIENT, WEIGHT_GRADIENT):
                    given, size = (kind, c, i), int(demands[kind - 1, c])
                    if size == 0 or given in earlier or not (taken in block or taken in earlier):
                        continue
                    if taken in earlier and given not in block:
                        room -= size
                        continue
                    begin = self.start[taken] if taken in block else 0
                    end = self.start[given] + int(self.seconds[kind, c]) if given in block else self.horizon
                    length = self.model.new_int_var(0, self.horizon, "")
                    intervals.append(self.model.new_interval_var(begin, length, end, ""))
                    sizes.append(size)
        self.model.add_cumulative(intervals, sizes, room)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """Orders by the solver's starts; passes of no duration come after those that they wait for."""
        orders = []
        for d in range(self.problem.num_devices):
            keys = [key for key in self.start if self.problem.device[key[1]] == d]
            keys.sort(key=lambda key: (solver.value(self.start[key]), *self._rank(key)))
            orders.append(np.array(keys, dtype=np.int64))
        return Schedule("improved", tuple(orders))

    def _rank(self, key: Key) -> tuple[bool, int, int]:
        """Order of passes that start together: those of no duration first, then as they follow each other."""
        kind, c, i = key
        chunks = self.problem.num_chunks
        return bool(self.seconds[kind, c] > 0), (c, 2 * chunks - c, 3 * chunks)[kind], i


def _times(problem: ScheduleProblem) -> list[Floats]:
    return [problem.forward, problem.input_gradient, problem.weight_gradient, problem.transfer]


@dataclass(frozen=True)
class Solved:
    """The best schedule, its makespan, the bound that the solver claims (-inf: none), whether that is an optimum."""

    schedule: Schedule
    makespan: float
    claimed_bound: float
    is_complete: bool


def solve(
    problem: ScheduleProblem,
    known: Schedule,
    *,
    free: Flags | None = None,
    lower_bound: float = 0.0,
    time_limit: float = 60.0,
    work_limit: float | None = None,
    seed: int = 0,
    workers: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Solved:
    """
    Improve a feasible schedule, or prove it best; the result is not longer.

    ``free``: passes of the part (3, C, m), all by default; ``lower_bound``: seconds that no schedule is shorter than;
    ``time_limit``, ``work_limit``: seconds, and the solver's own measure of work. With one worker and a work limit
    alone the answer does not vary; ``stop``: asked several times a second.
    """
    table = timetable(problem, canonical_schedule(problem, known))
    if table.makespan <= 0:
        return Solved(known, table.makespan, table.makespan, True)
    model = Model(problem, known, table.makespan, free, lower_bound)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Linear relaxations say little of disjunctions, and cost most of the time.
    solver.parameters.linearization_level = 0
    solver.parameters.max_time_in_seconds = time_limit
    if work_limit is not None:
        solver.parameters.max_deterministic_time = work_limit
    status = run(solver, model.model, stop)
    claimed = -np.inf
    if free is None:
        claimed = (solver.best_objective_bound - model.rounding) / model.scale
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(known, table.makespan, claimed, False)
    found = model.schedule(solver)
    # Passes of no duration may change memory in an order that starts do not tell.
    sound = not violations(problem, found)
    makespan = timetable(problem, found).makespan if sound else np.inf
    if makespan >= table.makespan:
        found, makespan = known, table.makespan
    return Solved(found, makespan, claimed, sound and status == cp_model.OPTIMAL)


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
    start: Schedule | None = None,
    known: float = math.inf,
    time_limit: float | None = None,
    work_limit: int | None = None,
    gap: float = OPTIMALITY_GAP,
    seed: int = 0,
    workers: int = 1,
    progress: Listener | None = None,
) -> ScheduleResult:
    """Find a schedule of small makespan, from ``start`` or the best kind, and bound all; ``known``: (6)."""
    require_memory(problem)
    load(progress)
    with interrupt_requested() as asked:
        # Without a first schedule there is nothing to keep.
        limit = time_limit if time_limit is not None else SECONDS if work_limit is None else math.inf
        search = _Search(problem, known, gap, limit, asked, progress, seed)
        search.doing = "building schedules of known kinds"
        search.take(start or fastest_kind(problem, seed=seed, stop=search.is_over), "kinds")
        with cut_short():
            search.doing = "raising the lower bound"
            search.prove(WORK_LIMIT if math.isinf(limit) else min(WORK_LIMIT, int(VALUES_A_SECOND * (1 + limit))))
            search.doing = "improving the schedule"
            search.improve(math.inf if work_limit is None else work_limit)
            search.doing = "solving the whole by CP-SAT"
            if work_limit is None:
                search.solve(workers)
        return search.result()


class _Search:
    """The incumbent, its bound, and what is left of the time; ``known`` elsewhere, (6), and a ``gap`` small enough."""

    def __init__(
        self,
        problem: ScheduleProblem,
        known: float,
        gap: float,
        limit: float,
        asked: Callable[[], bool],
        progress: Listener | None,
        seed: int,
    ) -> None:
        self.problem, self.limit, self.began = problem, limit, time.monotonic()
        self.known, self.gap = known, gap
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
        least = min(self.makespan, self.known)
        return max(self.bound.lower_bound, self.claimed) >= least * (1 - self.gap)

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
        least = min(self.makespan, self.known)
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
