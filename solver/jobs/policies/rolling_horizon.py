r"""
Rolling horizon: at every event the integer program of what has arrived, of which the first interval is carried out.

(1) The jobs that wait, with the work that they have left, are planned from now on by list schedules of constructed
    orders; running jobs keep their configuration there.
(2) On a grid of ``INTERVALS`` intervals up to the end of that schedule, each ``GROWTH`` times as long as the one
    before, the integer program (``taut.formulations.jobs.program``) is solved within ``WORK`` of CP-SAT's deterministic
    time, if it has at most ``MOST_HELD`` columns. Going on with a configuration is no start.
(3) Who holds what at the beginning of the better schedule holds it now, until the next event or until that schedule
    changes. What is left goes to the others in order of arrival.

It knows nothing of what will arrive. One seed gives one schedule.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.jobs.check import measures
from taut.formulations.jobs.problem import JobsProblem, Objective, Schedule
from taut.formulations.jobs.program import grid_program
from taut.solver.jobs.anneal import anneal
from taut.solver.jobs.bounds import subproblem
from taut.solver.jobs.policies.first_come import fitting
from taut.solver.jobs.program import solve_grid
from taut.solver.jobs.simulate import View

INTERVALS, GROWTH = 6, 1.5
WORK, MOST_HELD = 0.3, 3_000
"""A decision takes about a third of a second at most; larger programs find nothing in it."""


class RollingHorizon:
    """The policy for an objective."""

    def __init__(self, objective: Objective, seed: int = 0) -> None:
        self._objective, self._seed = objective, seed

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Plan what waits, and carry out the beginning."""
        jobs = np.array(sorted(view.waiting), dtype=np.int64)
        if not len(jobs):
            return {}, inf
        problem = _remaining(view, jobs)
        schedule = self._planned(view, problem, jobs)
        first = np.flatnonzero(np.isin(view.problem.job, jobs))
        held = {int(jobs[each.job]): int(first[each.column]) for each in schedule if each.start <= 0}
        ends = [moment for each in schedule for moment in (each.start, each.end) if moment > 0]
        free = view.capacity.copy()
        for column in held.values():
            free[view.problem.pool[column]] -= view.problem.gpus[column]
        for job in view.waiting:
            found = None if job in held else _left_over(view, job, free)
            if found is not None:
                held[job] = found
                free[view.problem.pool[found]] -= view.problem.gpus[found]
        return held, view.now + min(ends, default=inf)

    def _planned(self, view: View, problem: JobsProblem, jobs: np.ndarray) -> Schedule:
        """The better of list schedule (1) and program (2)."""
        kept, numbers = _kept(view, problem, jobs)
        listed = anneal(kept, self._objective, seed=self._seed, rounds=0)
        best = tuple(segment._replace(column=int(numbers[segment.column])) for segment in listed)
        grid = self._grid(problem, best)
        if grid is None or len(problem.job) * INTERVALS > MOST_HELD:
            return best
        going = np.full(len(jobs), -1)
        places = np.flatnonzero(np.isin(view.problem.job, jobs))
        for number, job in enumerate(jobs.tolist()):
            if view.held[job] >= 0:
                going[number] = int(np.searchsorted(places, view.held[job]))
        program = grid_program(problem, self._objective, grid, going)
        found = solve_grid(program, work_limit=WORK, seed=self._seed)
        values = [measures(problem, each).value(self._objective) for each in (best, found.schedule)]
        return found.schedule if found.value is not None and values[1] < values[0] else best

    def _grid(self, problem: JobsProblem, schedule: Schedule) -> Floats | None:
        due = problem.deadline[np.isfinite(problem.deadline)]
        last = max((segment.end for segment in schedule), default=0.0)
        if self._objective == "deadlines":
            last = max(last, float(due.max(initial=0.0)))
        lengths = GROWTH ** np.arange(INTERVALS)
        grid = np.concatenate([[0.0], np.cumsum(lengths)]) * last / lengths.sum()
        return grid if grid[1] > problem.restart_s else None


def _remaining(view: View, jobs: np.ndarray) -> JobsProblem:
    """What is left of the jobs that wait, from now on, on the devices that are up."""
    problem = subproblem(view.problem, jobs)
    pools = tuple(
        pool._replace(nodes=int(up) // pool.gpus_per_node)
        for pool, up in zip(problem.pools, view.capacity, strict=True)
    )
    return replace(
        problem,
        pools=pools,
        arrival=np.zeros(len(jobs)),
        work=np.maximum(view.left[jobs], 1e-9 * problem.work),
        deadline=problem.deadline - view.now,
    )


def _kept(view: View, problem: JobsProblem, jobs: np.ndarray) -> tuple[JobsProblem, Ints]:
    """The problem in which running jobs have their own configuration alone, with the numbers that those left have."""
    places = np.flatnonzero(np.isin(view.problem.job, jobs))
    own = view.held[view.problem.job[places]]
    stays = (own < 0) | (own == places)
    rows = {name: getattr(problem, name)[stays] for name in ("job", "pool", "gpus", "rate")}
    return replace(problem, **rows), np.flatnonzero(stays)


def _left_over(view: View, job: int, free: np.ndarray) -> int | None:
    """What a job gets that is not planned: its own configuration if it fits, or the knee's share of what is free."""
    column = int(view.held[job])
    if column >= 0 and view.problem.gpus[column] <= free[view.problem.pool[column]]:
        return column
    return fitting(view.problem, job, free)
