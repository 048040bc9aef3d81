"""
First come, first served: jobs start in order of arrival and keep what they have to the end.

A job has the configuration at the knee of its rates, or the fastest below it that fits what is free. Where none fits,
everyone behind it waits.
"""

from collections.abc import Mapping
from math import inf

from taut.solver.jobs.policies.sizes import fitting
from taut.solver.jobs.simulate import View


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
