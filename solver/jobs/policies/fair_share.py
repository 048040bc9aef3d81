r"""
Max-min fair shares by Gavel's linear program and its rounds (Narayanan et al., OSDI 2020, sections 4.1 and 5).

With :math:`X_c` the share of time that a job spends in configuration c,

(1) maximise :math:`\min_j \frac{1}{w_j} \sum_{c \in j} X_c r_c / \bar{r}_j`, where :math:`\bar{r}_j` is the job's best
    rate alone, so that :math:`\sum_{c \in j} X_c \le 1` and :math:`\sum_c g_c X_c \le N_p G_p`;
(2) every ``ROUND_S`` seconds, and when jobs come or go, configurations are handed out in order of
    :math:`X_c / f_c`, with :math:`f_c` the share of time that the job has spent in c since (1) was solved, while they
    fit and their job has none.

Shares of time are what Gavel divides; a job of ours also divides its devices, since its configurations differ in size.
"""

from collections.abc import Mapping
from math import inf

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.jobs.problem import JobsProblem
from taut.solver.jobs.simulate import View
from taut.solver.linear_program import linear_program

ROUND_S = 360.0
"""Seconds of a round: Gavel's own, six minutes."""
LITTLE = 1e-6
"""Shares below are none; and a configuration that has had no time counts as having had so much."""


class FairShare:
    """The policy."""

    def __init__(self) -> None:
        self._jobs: tuple[int, ...] = ()
        self._shares: dict[int, float] = {}
        self._spent: dict[int, float] = {}
        self._solved = self._last = 0.0

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Solve (1) where jobs have come or gone, and hand out a round (2)."""
        for column in view.held[view.held >= 0].tolist():
            self._spent[column] = self._spent.get(column, 0.0) + view.now - self._last
        self._last = view.now
        if view.waiting != self._jobs:
            self._jobs, self._solved, self._spent = view.waiting, view.now, {}
            self._shares = shares(view.problem, view.waiting)
        passed = max(view.now - self._solved, LITTLE)
        free, held = view.capacity.copy(), {}
        order = sorted(self._shares, key=lambda c: (-self._shares[c] / max(self._spent.get(c, 0) / passed, LITTLE), c))
        for column in order:
            job, pool, gpus = (int(part[column]) for part in (view.problem.job, view.problem.pool, view.problem.gpus))
            if job not in held and gpus <= free[pool]:
                held[job] = column
                free[pool] -= gpus
        return held, view.now + ROUND_S if view.waiting else inf


def shares(problem: JobsProblem, jobs: tuple[int, ...]) -> dict[int, float]:
    """The shares (1) of some jobs by configuration, without those that are nothing."""
    columns = [c for job in jobs for c in problem.columns(job) if problem.fits[c]]
    if not columns:
        return {}
    row = {job: number for number, job in enumerate(jobs)}
    owner = np.array([row[int(problem.job[c])] for c in columns])
    count, pools = len(columns), len(problem.pools)
    rates = _normalised(problem, columns, jobs, owner)
    matrix = np.zeros((2 * len(jobs) + pools, count + 1))
    # The fairness rows of jobs that fit nowhere would hold everyone at 0.
    runs = np.isin(np.arange(len(jobs)), owner)
    matrix[owner, np.arange(count)] = rates
    matrix[: len(jobs), count] = -1.0 * runs
    matrix[len(jobs) + owner, np.arange(count)] = 1.0
    matrix[2 * len(jobs) + problem.pool[columns], np.arange(count)] = problem.gpus[columns]
    least = np.concatenate([np.zeros(len(jobs)), np.full(len(jobs) + pools, -inf)])
    most = np.concatenate([np.full(len(jobs), inf), np.ones(len(jobs)), problem.capacity])
    program = linear_program("highs")
    # A little for everyone's rate: what is left over after the least share is handed out as well.
    cost = np.append(-LITTLE * rates, -1.0)
    program.add_columns(cost, np.zeros(count + 1), np.append(np.ones(count), inf), np.zeros((0, count + 1)))
    program.add_rows(matrix, least, most)
    solution = program.solve()
    values = np.zeros(count) if solution is None else solution.primal[:count]
    return {column: value for column, value in zip(columns, values.tolist(), strict=True) if value > LITTLE}


def _normalised(problem: JobsProblem, columns: list[int], jobs: tuple[int, ...], owner: np.ndarray) -> Floats:
    """Rates over the job's best and its weight."""
    best = np.zeros(len(jobs))
    np.maximum.at(best, owner, problem.rate[columns])
    return np.asarray(problem.rate[columns] / best[owner] / problem.weight[np.array(jobs)][owner])
