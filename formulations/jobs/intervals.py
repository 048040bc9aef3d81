"""
What the linear program of jobs keeps of the data: configurations on the hull, and boundaries of time.

A configuration below the concave hull of devices and rate is no better than a mixture of two of the hull and of rest.
Boundaries may be any (``taut.formulations.jobs.relaxation``); those here are at the moments at which something changes.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
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
    """
    Boundaries of intervals: when jobs may begin to work and are due, and for completions a grid up to a horizon.

    ``most``: intervals at most; beyond, boundaries are those of even counts of events; ``horizon``: moment by which a
    schedule is known to end; for ``completion`` alone.
    """
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
