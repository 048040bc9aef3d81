r"""
Schedules on a grid of intervals as an integer program: job by configuration by interval.

Sets: intervals t = 0..T-1 between boundaries :math:`b_0 < \dots < b_T`; jobs j and configurations c of
``taut.formulations.jobs.problem``. Let :math:`o_{jt}` be the seconds of interval t in which job j may work, from its
arrival and, under ``deadlines`` and ``cost``, to its deadline, and F = ``WHOLE`` the work of every job, scaled.

Variables, all 0 or 1: :math:`z_{ct}`, job j(c) holds configuration c throughout t; :math:`n_{ct}`, it starts so in t;
:math:`h_{jt}`, j holds nothing from t on; :math:`y_j`, j is completed (``deadlines``); :math:`H_t`, no job holds
anything from t on (``makespan``).

(1) :math:`\sum_c z_{ct} + h_{jt} \le 1` (+ :math:`H_t` in place of h under ``makespan``; none under ``deadlines``);
(2) :math:`\sum_c g_c z_{ct} \le N_p G_p` for every pool and interval;
(3) :math:`n_{ct} \ge z_{ct} - z_{c,t-1}`;
(4) :math:`\sum_{ct} \lfloor F f_c o_{jt} \rfloor z_{ct} - \sum_{ct} \lceil F f_c \rho \rceil n_{ct} \ge F y_j`, with
    :math:`y_j = 1` where all jobs are completed;
(5) :math:`h_{j,t+1} \ge h_{jt}`, and likewise H.

Minimised: :math:`\sum_j w_j (1 - y_j)`; :math:`\sum_{jt} w_j (b_{t+1} - b_t) (1 - h_{jt})`;
:math:`\sum_t (b_{t+1} - b_t) (1 - H_t)`; or :math:`\sum_{ct} \pi_p g_c (b_{t+1} - b_t) z_{ct}`, in whole units of
``UNITS`` of the largest value, without constants.

Rounding in (4) is against the schedule, so what a choice decodes to is a schedule of the problem, which ends jobs when
they are complete and is therefore no worse than the program says. The program is a restriction of the problem: its
optimum is no bound.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.jobs.problem import JobsProblem, Objective, Schedule, Segment, completion_times, trimmed
from taut.formulations.jobs.relaxation import SparseRows

WHOLE = 10**6
"""Work of a job in (4): rounding costs a job at most a millionth of its work for each interval it holds."""
UNITS = 10**9
"""Whole units of the objective; sums stay below 2**53, where CBC's floats are whole numbers still."""
MOST_WORK = 100 * WHOLE
"""Work that an interval is taken to do at most: more than a job needs in any case."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GridProgram:
    """Minimise objective x over 0-1 columns, z_ct first, where ``values`` sum to ``least`` by row; 1 is ``unit``."""

    problem: JobsProblem
    grid: Floats
    objective: Ints
    unit: float
    constant: float
    row: Ints
    column: Ints
    values: Ints
    least: Ints
    configuration: Ints
    interval: Ints

    def value(self, choice: Ints) -> int:
        """Objective of a choice of columns."""
        return int(self.objective @ choice)

    def holds(self, choice: Ints) -> bool:
        """Whether a choice of columns satisfies every row."""
        sums = np.zeros(len(self.least), dtype=np.int64)
        np.add.at(sums, self.row, self.values * choice[self.column])
        return bool(np.all(sums >= self.least))

    def schedule(self, choice: Ints) -> Schedule:
        """The segments of a choice from arrival to completion, without those of jobs that are not completed."""
        held = np.flatnonzero(choice[: len(self.configuration)])
        order = held[np.lexsort((self.interval[held], self.configuration[held]))]
        segments: list[Segment] = []
        for c, t in zip(self.configuration[order].tolist(), self.interval[order].tolist(), strict=True):
            job, end = int(self.problem.job[c]), float(self.grid[t + 1])
            start = max(float(self.grid[t]), float(self.problem.arrival[job]))
            if segments and segments[-1].column == c and segments[-1].end == start:
                segments[-1] = segments[-1]._replace(end=end)
            else:
                segments.append(Segment(job, c, start, end))
        complete = np.isfinite(completion_times(self.problem, segments))
        return trimmed(self.problem, [segment for segment in segments if complete[segment.job]])


def grid_program(problem: JobsProblem, objective: Objective, grid: Floats, held: Ints | None = None) -> GridProgram:
    """The integer program (1) to (5) on ascending boundaries (T + 1,); going on with ``held`` is no start."""
    if len(grid) < 2 or np.any(np.diff(grid) <= 0):
        raise FormulationError("jobs: expected a grid of ascending boundaries, two at least")
    return _Program(problem, objective, np.asarray(grid, dtype=np.float64), held).built()


class _Program:
    def __init__(self, problem: JobsProblem, objective: Objective, grid: Floats, goes_on: Ints | None) -> None:
        self.problem, self.kind, self.grid = problem, objective, grid
        self.goes_on = np.full(problem.num_jobs, -1) if goes_on is None else goes_on
        jobs, self.intervals = problem.num_jobs, len(grid) - 1
        until = problem.deadline if objective in ("deadlines", "cost") else np.full(jobs, np.inf)
        begin = np.maximum(grid[None, :-1], problem.arrival[:, None])
        self.overlap = np.maximum(np.minimum(grid[None, 1:], until[:, None]) - begin, 0.0)
        allowed = (self.overlap[problem.job] > 0) & problem.fits[:, None]
        if objective == "deadlines":
            allowed &= np.isfinite(problem.deadline)[problem.job][:, None]
        self.configuration, self.interval = np.nonzero(allowed)
        self.number = np.full(allowed.shape, -1)
        self.number[allowed] = np.arange(len(self.configuration))
        self.held = len(self.configuration)
        self.matrix = SparseRows()
        self.put = self.matrix.put

    def rows(self, least: Ints | int, count: int) -> int:
        """Add rows by their right sides; returns the number of the first."""
        sides = np.broadcast_to(np.asarray(least, dtype=np.int64), (count,))
        return self.matrix.add(sides, sides)

    def built(self) -> GridProgram:
        cost, constant = self._objective()
        largest = float(np.abs(cost).sum())
        unit = largest / UNITS if largest else 1.0
        row, column, values, least, _ = self.matrix.joined()
        return GridProgram(
            problem=self.problem,
            grid=self.grid,
            objective=np.rint(cost / unit).astype(np.int64),
            unit=unit,
            constant=constant,
            row=row,
            column=column,
            values=values,
            least=least,
            configuration=self.configuration,
            interval=self.interval,
        )

    def _objective(self) -> tuple[Floats, float]:
        """Costs of all columns: z, n, and those of the objective; rows on the way."""
        jobs, lengths, weight = self.problem.num_jobs, np.diff(self.grid), self.problem.weight
        plain, first = np.zeros(2 * self.held), 2 * self.held
        self._shared(first if self.kind == "deadlines" else None)
        if self.kind == "deadlines":
            self._one_at_a_time(None)
            due = np.where(np.isfinite(self.problem.deadline), weight, 0.0)
            return np.append(plain, -due), float(due.sum())
        if self.kind == "cost":
            self._one_at_a_time(None)
            plain[: self.held] = self.problem.price[self.configuration] * lengths[self.interval]
            return plain, 0.0
        common = self.kind == "makespan"
        ended = np.zeros(jobs, dtype=np.int64) if common else np.arange(jobs)
        count = 1 if common else jobs
        idle = first + ended[:, None] * self.intervals + np.arange(self.intervals)[None, :]
        self._one_at_a_time(idle)
        ends = first + np.arange(count * self.intervals).reshape(count, self.intervals)
        row = self.rows(0, count * (self.intervals - 1)) + np.arange(count * (self.intervals - 1))
        self.put(row, ends[:, 1:].ravel(), 1)
        self.put(row, ends[:, :-1].ravel(), -1)
        price = np.ones(1) if common else weight / weight.sum()
        # A job counts from its arrival on; earlier intervals are the same for every schedule.
        counted = (
            lengths[None, :] if common else np.clip(self.grid[None, 1:] - self.problem.arrival[:, None], 0, lengths)
        )
        cost = price[:, None] * counted
        origin = float(self.problem.arrival.min())
        return np.append(plain, -cost.ravel()), float(cost.sum()) + (self.grid[0] - origin if common else 0.0)

    def _one_at_a_time(self, idle: Ints | None) -> None:
        """Rows (1), with the columns h or H (J, T) if there are any."""
        jobs, intervals = self.problem.num_jobs, self.intervals
        first = self.rows(-1, jobs * intervals)
        self.put(first + self.problem.job[self.configuration] * intervals + self.interval, np.arange(self.held), -1)
        if idle is not None:
            self.put(first + np.arange(jobs * intervals), idle.ravel(), -1)

    def _shared(self, met: int | None) -> None:
        """Rows (2) to (4); ``met`` is the first of the columns y."""
        problem, intervals, held = self.problem, self.intervals, np.arange(self.held)
        pool = problem.pool[self.configuration]
        first = self.rows(-np.repeat(problem.capacity, intervals), len(problem.pools) * intervals)
        self.put(first + pool * intervals + self.interval, held, -problem.gpus[self.configuration])
        first = self.rows(0, self.held)
        self.put(first + held, self.held + held, 1)
        self.put(first + held, held, -1)
        before = np.where(self.interval > 0, self.number[self.configuration, self.interval - 1], -1)
        self.put(first + held[before >= 0], before[before >= 0], 1)
        job = problem.job[self.configuration]
        share = WHOLE * problem.rate[self.configuration] / problem.work[job]
        done = np.minimum(np.floor(share * self.overlap[job, self.interval]), MOST_WORK).astype(np.int64)
        lost = np.minimum(np.ceil(share * problem.restart_s), MOST_WORK).astype(np.int64)
        lost[(self.interval == 0) & (self.configuration == self.goes_on[job])] = 0
        first = self.rows(0 if met is not None else WHOLE, problem.num_jobs)
        self.put(first + job, held, done)
        self.put(first + job, self.held + held, -lost)
        if met is not None:
            self.put(first + np.arange(problem.num_jobs), met + np.arange(problem.num_jobs), -WHOLE)
