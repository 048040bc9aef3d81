r"""
Policies that give a job one size, the knee of its curve of rates: first come and shortest first.

First come, first served: jobs start in order of arrival and keep what they have to the end. Where none of a job's sizes
fits what is free, everyone behind it waits.

Shortest remaining time first: at every event jobs in order of the seconds that they still need at their knee. A job
whose own configuration still fits keeps it, which saves a restart. Jobs without room rest.

(1) Of configurations with at least ``EFFICIENT`` of the best rate a device, the knee is the one with the largest rate.
(2) Of those that fit what is free, the largest rate up to the knee's.
"""

from collections.abc import Mapping
from math import inf

from taut.data.arrays import Ints
from taut.formulations.jobs.problem import JobsProblem
from taut.solver.jobs.simulate import View

EFFICIENT = 0.5
"""Share of the best rate a device: half, the usual rule for the knee of a speedup curve (Eager et al., 1989)."""


def knee(problem: JobsProblem, job: int) -> int | None:
    """The configuration (1), or None where none fits its pool."""
    own = [c for c in problem.columns(job) if problem.fits[c]]
    if not own:
        return None
    best = max(float(problem.rate[c] / problem.gpus[c]) for c in own)
    return max((c for c in own if problem.rate[c] / problem.gpus[c] >= EFFICIENT * best), key=lambda c: problem.rate[c])


def fitting(problem: JobsProblem, job: int, free: Ints) -> int | None:
    """The configuration (2), or None where none fits what is free."""
    most = knee(problem, job)
    if most is None:
        return None
    own = [c for c in problem.columns(job) if problem.gpus[c] <= free[problem.pool[c]]]
    return max((c for c in own if problem.rate[c] <= problem.rate[most]), key=lambda c: problem.rate[c], default=None)


class FirstCome:
    """The policy."""

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Keep who runs, and start the next ones while they fit."""
        free, held = view.capacity.copy(), {}
        for job in view.waiting:
            column = int(view.held[job])
            if column >= 0 and view.problem.gpus[column] <= free[view.problem.pool[column]]:
                held[job] = column
                free[view.problem.pool[column]] -= view.problem.gpus[column]
        for job in (job for job in view.waiting if job not in held):
            found = fitting(view.problem, job, free)
            if found is None:
                break
            held[job] = found
            free[view.problem.pool[found]] -= view.problem.gpus[found]
        return held, inf


class ShortestFirst:
    """The policy."""

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Fill the cluster, the shortest job first."""
        problem, free, held = view.problem, view.capacity.copy(), {}
        for job in sorted(view.waiting, key=lambda job: (_seconds(view, job), job)):
            own = int(view.held[job])
            kept = own >= 0 and problem.gpus[own] <= free[problem.pool[own]]
            column = own if kept else fitting(problem, job, free)
            if column is not None:
                held[job] = column
                free[problem.pool[column]] -= problem.gpus[column]
        return held, inf


def _seconds(view: View, job: int) -> float:
    column = knee(view.problem, job)
    return inf if column is None else float(view.left[job] / view.problem.rate[column])
