r"""
Schedules by name of their policy, and the best that is found within a time.

===============================================================  =======================================================
``elasticflow``, ``fair-share``, ``first-come``,                 the event simulator under a policy that knows what has
``shortest-first``                                               arrived (``taut.solver.jobs.policies``)
``rolling``                                                      likewise, by the integer program of what has arrived,
                                                                 at every event (``rolling_horizon``)
``annealing``                                                    annealed list schedules, knowing all arrivals
``cp-sat``, ``cbc``                                              the same, and then the integer program on a grid up to
                                                                 the end of the best schedule, where it is small enough;
                                                                 of these and all policies the best is taken
===============================================================  =======================================================

Every schedule is judged by ``taut.formulations.jobs.check``, none is trusted.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from taut.data.arrays import Floats
from taut.errors import SolverError
from taut.formulations.jobs.check import Measures, measures, trimmed, violations
from taut.formulations.jobs.problem import JobsProblem, Objective, Schedule
from taut.formulations.jobs.program import grid_program
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import Stop
from taut.solver.jobs.anneal import anneal
from taut.solver.jobs.policies.named import POLICIES
from taut.solver.jobs.policies.rolling_horizon import RollingHorizon
from taut.solver.jobs.program import solve_grid
from taut.solver.jobs.simulate import Failures, simulate

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
ONLINE_JOBS = 300
"""Jobs up to which policies are run beside annealing; each takes seconds there."""


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
    stop: Stop,
    *,
    failures: Failures | None = None,
    target: float = 0.0,
    progress: Listener | None = None,
) -> Found:
    """
    A schedule by a policy.

    ``objective``: what is minimised; the policies of papers have their own and are only judged by it; ``policy``: one
    of ``NAMES``; ``stop``: when annealing and programs end, with the seed of the random moves and the threads of
    CP-SAT; a unit of work is a round of annealing, which then does not depend on the time; ``failures``: failures of
    nodes, for the policies of papers; ``target``: value at which nothing better is looked for, as a lower bound is;
    ``progress``: told of every better value and what found it.
    """
    return _Solving(problem, objective, stop, target, progress).run(policy, failures)


class _Solving:
    def __init__(
        self, problem: JobsProblem, objective: Objective, stop: Stop, target: float, progress: Listener | None
    ) -> None:
        self.problem, self.objective, self.stop = problem, objective, stop
        self.target, self.progress = target, progress
        self.best: Found | None = None

    @property
    def value(self) -> float:
        """The best objective so far."""
        return inf if self.best is None else self.best.measures.value(self.objective)

    def _ends(self, stop: Stop) -> bool:
        """Whether the time is over, or the target reached."""
        return stop() or self.value <= self.target

    def run(self, policy: str, failures: Failures | None) -> Found:
        """What the policy finds."""
        limits = self.stop.limits
        if policy in ONLINE:
            made = RollingHorizon(self.objective, limits.seed) if policy == ROLLING else POLICIES[policy]()
            return self._take(simulate(self.problem, made, failures), policy)
        first = self.stop.within(ANNEALED * self.stop.left)
        program = policy in PROGRAMS and self._intervals() > 0
        if policy in PROGRAMS and self.problem.num_jobs <= ONLINE_JOBS:
            for name, new in POLICIES.items():
                if not self._ends(first):
                    self._take(simulate(self.problem, new()), name)
        part = first if program else self.stop
        if self.best is None or not self._ends(self.stop):
            listed = anneal(
                self.problem,
                self.objective,
                seed=limits.seed,
                rounds=limits.work_limit,
                target=self.target,
                stop=lambda: self._ends(part),
            )
            self._take(listed, ANNEALING)
        if program and not self._ends(self.stop):
            self._solve_program(policy)
        assert self.best is not None
        return self.best

    def _take(self, schedule: Schedule, by: str) -> Found:
        """Judge a schedule, and keep it if it is the best; of equal values the smaller mean completion."""
        cut = trimmed(self.problem, schedule)
        if faults := violations(self.problem, cut):
            raise SolverError(f"jobs: {by} made a schedule that is not valid: {faults[0]}")
        found = Found(schedule=cut, measures=measures(self.problem, cut), by=by)
        if self.best is None or self._rank(found) < self._rank(self.best):
            self.best = found
            if self.progress is not None:
                self.progress(Progress(self.stop.seconds, found.measures.value(self.objective), -inf, by))
        return found

    def _rank(self, found: Found) -> tuple[float, float]:
        return found.measures.value(self.objective), found.measures.mean_completion_s

    def _intervals(self) -> int:
        """Intervals of a grid on which the program is small enough; 0 where none is."""
        count = MOST_HELD // max(len(self.problem.job), 1)
        return min(count, MANY_INTERVALS) if count >= FEW_INTERVALS else 0

    def _solve_program(self, backend: str) -> None:
        grid = self._grid()
        if grid is None:
            return
        found = solve_grid(
            grid_program(self.problem, self.objective, grid),
            backend="cbc" if backend == "cbc" else "cp-sat",
            time_limit=self.stop.left if self.stop.left < inf else None,
            workers=self.stop.limits.workers,
            seed=self.stop.limits.seed,
            stop=lambda: self._ends(self.stop),
        )
        if found.value is not None:
            self._take(found.schedule, backend)

    def _grid(self) -> Floats | None:
        """Even intervals from the first arrival to the end of the best schedule, or to the last deadline."""
        assert self.best is not None
        due = self.problem.deadline[np.isfinite(self.problem.deadline)]
        ends = [segment.end for segment in self.best.schedule]
        last = float(due.max()) if self.objective == "deadlines" and len(due) else max(ends, default=0.0)
        first = float(self.problem.arrival.min())
        count = self._intervals()
        if not first < last < inf or (last - first) / count <= self.problem.restart_s:
            return None
        return np.linspace(first, last, count + 1)
