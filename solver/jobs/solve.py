r"""
Schedules by name of their policy, and the best that is found within a time.

===============================================================  =======================================================
``elasticflow``, ``fair-share``, ``first-come``,                 the event simulator under a policy that knows what has
``shortest-first``, ``rolling``                                  arrived (``taut.solver.jobs.policies``)
``annealing``                                                    annealed list schedules, knowing all arrivals
``cp-sat``, ``cbc``                                              the same, and then the integer program on a grid up to
                                                                 the end of the best schedule, where it is small enough;
                                                                 of these and all policies the best is taken
===============================================================  =======================================================

Every schedule is judged by ``taut.formulations.jobs.problem``, none is trusted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf

import numpy as np

from taut.data.arrays import Floats
from taut.errors import NothingFoundError, SolverError
from taut.formulations.jobs.problem import JobsProblem, Measures, Objective, Schedule, measures, trimmed, violations
from taut.formulations.jobs.program import grid_program
from taut.solver.jobs.anneal import anneal
from taut.solver.jobs.policies import ElasticFlow, FairShare, FirstCome, RollingHorizon, ShortestFirst
from taut.solver.jobs.program import solve_grid
from taut.solver.jobs.simulate import Failures, Policy, simulate
from taut.solver.signals import cut_short

POLICIES: dict[str, Callable[[], Policy]] = {
    "elasticflow": ElasticFlow,
    "first-come": FirstCome,
    "shortest-first": ShortestFirst,
    "fair-share": FairShare,
}


ANNEALING, PROGRAMS = "annealing", ("cp-sat", "cbc")
ROLLING = "rolling"
ONLINE = (*POLICIES, ROLLING)
"""Policies that know what has arrived alone."""
NAMES = (*ONLINE, ANNEALING, *PROGRAMS)
MOST_HELD = 12_000
"""Columns z of a program that is solved; beyond, CP-SAT finds nothing better than annealing within a minute."""
FEW_INTERVALS, MANY_INTERVALS = 6, 24
ANNEALED = 0.6
"""Share of the time that is for annealing where a program follows."""
ANNEALED_S = 60.0
"""Seconds of it where there is no limit."""
ONLINE_JOBS = 300
"""Jobs up to which policies are run beside annealing; each takes seconds there."""

Told = Callable[[float, str], None]
"""Called with the value of a better schedule, and what found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A valid schedule, what it achieves, and what found it."""

    schedule: Schedule
    measures: Measures
    by: str


def solve_jobs(
    problem: JobsProblem,
    objective: Objective,
    policy: str,
    *,
    time_limit: float | None = 60.0,
    seed: int = 0,
    workers: int = 1,
    rounds: int | None = None,
    failures: Failures | None = None,
    target: float = 0.0,
    stop: Callable[[], bool] = bool,
    told: Told | None = None,
) -> Found:
    """The schedule of a policy of ``NAMES``, within ``rounds`` or ``time_limit`` seconds, or until ``target``."""
    solving = _Solving(problem, objective, seed, inf if time_limit is None else time_limit, target, stop, told)
    with cut_short():
        if policy in ONLINE:
            return solving.simulate(policy, failures)
        solving.solve(policy, rounds, workers)
    if solving.best is None:
        raise NothingFoundError("interrupted before there was a schedule")
    return solving.best


@dataclass
class _Solving:
    """The best schedule so far, and what is left of the time."""

    problem: JobsProblem
    objective: Objective
    seed: int
    time_limit: float
    target: float
    asked: Callable[[], bool]
    told: Told | None
    best: Found | None = None
    began: float = field(default_factory=time.perf_counter)

    def simulate(self, policy: str, failures: Failures | None = None) -> Found:
        """What a policy makes that knows what has arrived."""
        made = RollingHorizon(self.objective, self.seed) if policy == ROLLING else POLICIES[policy]()
        return self._take(simulate(self.problem, made, failures), policy)

    def solve(self, policy: str, rounds: int | None, workers: int) -> None:
        """Anneal, knowing all arrivals; with one of ``PROGRAMS`` after the policies, and before the program."""
        is_program, intervals = policy in PROGRAMS, self._intervals()
        if is_program and self.problem.num_jobs <= ONLINE_JOBS:
            for name in POLICIES:
                if not self._is_over(ANNEALED):
                    self.simulate(name)
        ends = partial(self._is_over, ANNEALED if is_program and intervals else 1.0)
        if self.best is None or not self._stops():
            listed = anneal(self.problem, self.objective, seed=self.seed, rounds=rounds, target=self.target, stop=ends)
            self._take(listed, ANNEALING)
        left = self.time_limit - (time.perf_counter() - self.began)
        grid = self._grid(intervals) if is_program and intervals and left > 0 and not self._stops() else None
        if grid is not None:
            found = solve_grid(
                grid_program(self.problem, self.objective, grid),
                backend="cbc" if policy == "cbc" else "cp-sat",
                time_limit=None if left == inf else left,
                workers=workers,
                seed=self.seed,
                stop=self._stops,
            )
            if found.value is not None:
                self._take(found.schedule, policy)

    def _stops(self) -> bool:
        """Whether the caller wants no more, or has what it asked for."""
        return self.asked() or (self.best is not None and self.best.measures.value(self.objective) <= self.target)

    def _is_over(self, share: float) -> bool:
        """Whether a share of the time is over too."""
        # Without a limit the program would wait for ever.
        seconds = ANNEALED_S if share < 1 and self.time_limit == inf else share * self.time_limit
        return self._stops() or time.perf_counter() - self.began > seconds

    def _take(self, schedule: Schedule, by: str) -> Found:
        """Judge a schedule, and keep it if it is the best; of equal values the smaller mean completion."""
        cut = trimmed(self.problem, schedule)
        if faults := violations(self.problem, cut):
            raise SolverError(f"jobs: {by} made a schedule that is not valid: {faults[0]}")
        found = Found(schedule=cut, measures=measures(self.problem, cut), by=by)
        if self.best is None or self._rank(found) < self._rank(self.best):
            self.best = found
            if self.told is not None:
                self.told(found.measures.value(self.objective), by)
        return found

    def _rank(self, found: Found) -> tuple[float, float]:
        return found.measures.value(self.objective), found.measures.mean_completion_s

    def _intervals(self) -> int:
        """Intervals of a grid on which the program is small enough; 0 where none is."""
        count = MOST_HELD // max(len(self.problem.job), 1)
        return min(count, MANY_INTERVALS) if count >= FEW_INTERVALS else 0

    def _grid(self, intervals: int) -> Floats | None:
        """Even intervals from the first arrival to the end of the best schedule, or to the last deadline."""
        assert self.best is not None
        due = self.problem.deadline[np.isfinite(self.problem.deadline)]
        ends = [segment.end for segment in self.best.schedule]
        last = float(due.max()) if self.objective == "deadlines" and len(due) else max(ends, default=0.0)
        first = float(self.problem.arrival.min())
        if not first < last < inf or (last - first) / intervals <= self.problem.restart_s:
            return None
        return np.linspace(first, last, intervals + 1)
