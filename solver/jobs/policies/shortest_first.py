"""
Shortest remaining time first: at every event jobs in order of the seconds that they still need at their knee.

Each has the configuration at the knee of its rates, or the fastest below it that fits what is left; a job whose own
configuration still fits keeps it, which saves a restart. Jobs without room rest.
"""

from collections.abc import Mapping
from math import inf

from taut.solver.jobs.policies.sizes import fitting, knee
from taut.solver.jobs.simulate import View


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
