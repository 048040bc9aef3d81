r"""
The linear program whose optimum no schedule beats: work of jobs by configuration and interval of time.

Sets: intervals t between boundaries :math:`b_0 < \dots < b_T`, and a last one from :math:`b_T` on. Data of
``taut.formulations.jobs.problem``; :math:`f_c = r_c / W_j` is the share of its job that a configuration does in a
second, and :math:`o_{jt}` the seconds of interval t between :math:`a_j + \rho` and, where work after the deadline
counts for nothing, :math:`d_j`. Variables: :math:`v_{ct} \in [0, 1]`, the share of its job that is done by c in t.
Every schedule in continuous time, with any number of resizings, gives values that satisfy

(1) :math:`\sum_{ct} v_{ct} = y_j`, where :math:`y_j` is 1, or under ``deadlines`` 1 if the job meets it, 0 if not;
(2) :math:`\sum_c v_{ct} / f_c \le o_{jt} y_j`, since a job is in one configuration at a time, and no work is done
    within :math:`\rho` of its arrival;
(3) :math:`\sum_c g_c v_{ct} / f_c \le N_p G_p (b_{t+1} - b_t)` for every pool.

Boundaries may be any: coarse ones give a weaker bound, and still a bound. The value of the linear program is one for

- ``deadlines``: :math:`\sum_j w_j (1 - y_j)` with :math:`0 \le y_j \le 1`;
- ``cost``: :math:`\sum_{ct} \pi_p g_c v_{ct} / f_c`, deadlines being kept;
- ``makespan``: the last interval has a length :math:`h \ge 0`, which takes the place of :math:`o_{jt}` and of the
  length in (3); the makespan is :math:`b_T - \min_j a_j + h` for :math:`b_T \ge \max_j a_j + \rho`;
- ``completion``: :math:`C_j \ge M_j + e_j`, with the mean moment of work
  :math:`M_j \ge \sum_{ct} \max(b_t, a_j + \rho) v_{ct}`, and for every rate :math:`\theta` among the :math:`f_c`

  (4) :math:`e_j \ge \frac{1}{2\theta} - \frac{1}{\theta} \sum_{ct} (f_c - \theta)^+ v_{ct} / f_c`.

(4) holds because, with :math:`\tau` the time before completion and :math:`f(\tau)` the rate then,
:math:`C_j - M_j = \int \tau f = D - \int (D - \tau) f \ge D - \int_0^D (D - \tau) f` for every D, where
:math:`f \le \theta + (f - \theta)^+`; take :math:`D = 1 / \theta`.

Configurations below the concave hull of :math:`(g_c, f_c)` and the origin are left out: mixtures of two of the hull
and of rest do the same work in the same seconds on fewer devices, and (4) asks no more of them, being convex.

For any multipliers of the rows the value of ``dual_value`` is a bound, so none of a solver's claims is trusted.

Boundaries lie at the moments at which something changes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.jobs.problem import JobsProblem, Objective


def hull(problem: JobsProblem, job: int) -> Ints:
    """Configurations of a job on the concave hull of devices and rate with the origin, pool by pool."""
    kept: list[int] = []
    for pool in range(len(problem.pools)):
        own = [c for c in problem.columns(job) if problem.pool[c] == pool and problem.fits[c]]
        chain: list[int] = []
        for column in sorted(own, key=lambda c: (int(problem.gpus[c]), -float(problem.rate[c]))):
            if chain and problem.rate[column] <= problem.rate[chain[-1]]:
                continue
            while chain and not _rises_less(problem, chain, column):
                chain.pop()
            chain.append(column)
        kept += chain
    return np.array(sorted(kept), dtype=np.int64)


def _rises_less(problem: JobsProblem, chain: list[int], column: int) -> bool:
    """Whether the last of a chain lies above the line from what stands before it to a column."""
    gpus, rate = float(problem.gpus[chain[-1]]), float(problem.rate[chain[-1]])
    before = (float(problem.gpus[chain[-2]]), float(problem.rate[chain[-2]])) if len(chain) > 1 else (0.0, 0.0)
    further = (float(problem.gpus[column]) - before[0], float(problem.rate[column]) - before[1])
    return (rate - before[1]) * further[0] > further[1] * (gpus - before[0])


def boundaries(problem: JobsProblem, objective: Objective, most: int, horizon: float | None = None) -> Floats:
    """When jobs may begin to work and are due, at most ``most`` moments, and for completions a grid up to a horizon."""
    released = problem.arrival + problem.restart_s
    due = problem.deadline[np.isfinite(problem.deadline)]
    if objective == "completion":
        last = max(horizon or 0.0, float(released.max()) + float(np.median(problem.least_seconds)))
        return _thinned(np.union1d(_thinned(released, most // 2), np.linspace(released.min(), last, most // 2)), most)
    events = released if objective == "makespan" else np.concatenate([released, due])
    return _thinned(events, most)


def _thinned(events: Floats, most: int) -> Floats:
    times = np.unique(events[np.isfinite(events)])
    if len(times) <= most:
        return times
    return np.asarray(np.unique(times[np.linspace(0, len(times) - 1, most).round().astype(int)]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """
    Minimise ``constant`` + cost x, where rows lie between ``least`` and ``most`` and columns between 0 and ``upper``.

    The matrix is ``values`` at (``row``, ``column``), at most one entry at a place. The first columns are the
    :math:`v_{ct}`, of configuration ``configuration`` in interval ``interval``.
    """

    constant: float
    cost: Floats
    upper: Floats
    least: Floats
    most: Floats
    row: Ints
    column: Ints
    values: Floats
    configuration: Ints
    interval: Ints


class SparseRows:
    """Rows of a sparse matrix with their sides, collected in blocks."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, Ints, Any]] = []
        self.sides: list[tuple[Any, Any]] = []
        self.count = 0

    def add(self, least: Any, most: Any) -> int:
        """Add rows by their sides (n,); returns the number of the first."""
        first, self.count = self.count, self.count + len(least)
        self.sides.append((least, most))
        return first

    def put(self, row: Ints, column: Ints, values: Any) -> None:
        """Add entries, of which one number may stand for all values."""
        row, column = np.asarray(row, dtype=np.int64), np.asarray(column, dtype=np.int64)
        self.parts.append((row, column, np.broadcast_to(values, row.shape)))

    def joined(self) -> tuple[Ints, Ints, Any, Any, Any]:
        """Row, column and value of every entry, and least and most of every row."""
        entries, sides = zip(*self.parts, strict=True), zip(*self.sides, strict=True)
        row, column, values, least, most = (np.concatenate(part) for part in (*entries, *sides))
        return row, column, values, least, most


def relaxation(problem: JobsProblem, objective: Objective, bounds: Floats) -> Relaxation:
    """The linear program (1) to (4) on ascending boundaries; ``FormulationError`` if a job cannot run."""
    if np.any(np.diff(bounds) <= 0) or not len(bounds):
        raise FormulationError("jobs: boundaries are not ascending")
    if not np.all(np.isfinite(problem.least_seconds)):
        raise FormulationError("jobs: a job has no configuration that fits its pool")
    return _Builder(problem, objective, bounds).built()


class _Builder:
    """Columns v first, then one a job (y or e) or one in all (h)."""

    def __init__(self, problem: JobsProblem, objective: Objective, bounds: Floats) -> None:
        self.problem, self.objective, self.bounds = problem, objective, bounds
        released = problem.arrival + problem.restart_s
        until = problem.deadline if objective in ("deadlines", "cost") else np.full(problem.num_jobs, np.inf)
        ends = np.append(bounds[1:], np.inf)
        # Work before the first boundary belongs to the first interval.
        starts = np.append(min(float(bounds[0]), float(released.min())), bounds[1:])
        self.lengths = ends - starts
        self.begin = np.maximum(starts[None, :], released[:, None])
        self.overlap = np.minimum(ends[None, :], until[:, None]) - self.begin
        chosen = np.isfinite(problem.deadline) if objective == "deadlines" else np.ones(problem.num_jobs, dtype=bool)
        self.jobs = np.flatnonzero(chosen)
        self.pair_job, self.pair_interval = np.nonzero((self.overlap > 0) & chosen[:, None])
        hulls = [hull(problem, job) for job in range(problem.num_jobs)]
        sizes = np.array([len(each) for each in hulls])[self.pair_job]
        self.pair = np.repeat(np.arange(len(self.pair_job)), sizes)
        parts = [hulls[job] for job in self.pair_job.tolist()]
        self.configuration = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        self.share = problem.rate / problem.work[problem.job]
        self.seconds = 1 / self.share[self.configuration]
        self.count = len(self.pair)
        self.hulls = hulls
        self.rows = SparseRows()

    def built(self) -> Relaxation:
        stated = {
            "deadlines": self._deadlines,
            "completion": self._completion,
            "makespan": self._makespan,
            "cost": self._cost,
        }
        cost, upper, constant = stated[self.objective]()
        self._capacity()
        row, column, values, least, most = self.rows.joined()
        return Relaxation(
            constant=constant,
            cost=cost,
            upper=upper,
            least=least,
            most=most,
            row=row,
            column=column,
            values=values,
            configuration=self.configuration,
            interval=self.pair_interval[self.pair],
        )

    def _work_and_time(self, met: bool, length: int | None = None) -> None:
        """Rows (1) and (2); of jobs with a column y each if ``met``, and with the last length as column ``length``."""
        position = np.full(self.problem.num_jobs, -1)
        position[self.jobs] = np.arange(len(self.jobs))
        one = np.zeros(len(self.jobs)) if met else np.ones(len(self.jobs))
        first = self.rows.add(one, one)
        columns = np.arange(self.count)
        self.rows.put(first + position[self.pair_job[self.pair]], columns, np.ones(self.count))
        if met:
            self.rows.put(first + np.arange(len(self.jobs)), self.count + np.arange(len(self.jobs)), -one - 1)
        overlap = self.overlap[self.pair_job, self.pair_interval]
        # Rows of an unbounded interval hold nothing, unless its length is a column.
        scale = np.where(np.isfinite(overlap), overlap, 1.0)
        side = np.where(np.isfinite(overlap), 0.0 if met else 1.0, np.inf if length is None else 0.0)
        first = self.rows.add(np.full(len(overlap), -np.inf), side)
        self.rows.put(first + self.pair, columns, self.seconds / scale[self.pair])
        pairs = np.arange(len(overlap))
        if met:
            self.rows.put(first + pairs, self.count + position[self.pair_job], -np.ones(len(overlap)))
        if length is not None:
            last = np.flatnonzero(~np.isfinite(overlap))
            self.rows.put(first + last, np.full(len(last), length), -np.ones(len(last)))

    def _capacity(self) -> None:
        """Rows (3)."""
        pools, intervals = len(self.problem.pools), len(self.lengths)
        room = (self.problem.capacity[:, None] * self.lengths[None, :]).ravel()
        bounded = np.isfinite(room)
        makespan = self.objective == "makespan"
        side = np.where(bounded, 1.0, 0.0 if makespan else np.inf)
        scale = np.where(bounded, room, np.repeat(self.problem.capacity, intervals) if makespan else 1.0)
        first = self.rows.add(np.full(len(room), -np.inf), side)
        place = self.problem.pool[self.configuration] * intervals + self.pair_interval[self.pair]
        used = self.problem.gpus[self.configuration] * self.seconds / scale[place]
        self.rows.put(first + place, np.arange(self.count), used)
        if makespan:
            last = np.flatnonzero(~bounded)
            self.rows.put(first + last, np.full(pools, self.count), -np.ones(pools))

    def _deadlines(self) -> tuple[Floats, Floats, float]:
        self._work_and_time(met=True)
        weight = self.problem.weight[self.jobs]
        size = self.count + len(self.jobs)
        return np.append(np.zeros(self.count), -weight), np.ones(size), float(weight.sum())

    def _cost(self) -> tuple[Floats, Floats, float]:
        self._work_and_time(met=False)
        return self.problem.price[self.configuration] * self.seconds, np.ones(self.count), 0.0

    def _makespan(self) -> tuple[Floats, Floats, float]:
        released = self.problem.arrival + self.problem.restart_s
        if self.bounds[-1] < released.max():
            raise FormulationError("jobs: the last boundary lies before the last arrival")
        self._work_and_time(met=False, length=self.count)
        # One job after the other, each alone, is a schedule.
        longest = float(self.problem.least_seconds.sum())
        upper = np.append(np.ones(self.count), longest)
        cost = np.append(np.zeros(self.count), 1.0)
        return cost, upper, float(self.bounds[-1] - self.problem.arrival.min())

    def _completion(self) -> tuple[Floats, Floats, float]:
        self._work_and_time(met=False)
        weight = self.problem.weight / self.problem.weight.sum()
        since = self.begin - self.problem.arrival[:, None]
        mean = since[self.pair_job, self.pair_interval][self.pair] * weight[self.pair_job[self.pair]]
        for job in range(self.problem.num_jobs):
            self._tails(job)
        slowest = np.array([1 / self.share[own].min() for own in self.hulls])
        return np.append(mean, weight), np.append(np.ones(self.count), slowest / 2), 0.0

    def _tails(self, job: int) -> None:
        """Rows (4) of a job, each divided by its right side."""
        own = np.flatnonzero(self.pair_job[self.pair] == job)
        shares = self.share[self.configuration[own]]
        for theta in np.unique(self.share[self.hulls[job]]):
            row = np.array([self.rows.add(np.ones(1), np.full(1, np.inf))])
            faster = own[shares > theta]
            excess = 2 * (shares[shares > theta] - theta) * self.seconds[faster]
            self.rows.put(np.repeat(row, len(faster)), faster, excess)
            self.rows.put(row, np.array([self.count + job]), np.array([2 * theta]))


def dual_value(program: Relaxation, duals: Floats) -> float:
    """Bound by weak duality for any multipliers (m,); one that needs an infinite side counts as 0."""
    side = np.where(duals > 0, program.least, program.most)
    usable = np.where(np.isfinite(side), duals, 0.0)
    reduced = program.cost.copy()
    np.subtract.at(reduced, program.column, usable[program.row] * program.values)
    held = float(usable @ np.where(np.isfinite(side), side, 0.0))
    return program.constant + held + float(np.minimum(reduced, 0.0) @ program.upper)
