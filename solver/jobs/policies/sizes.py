r"""
Sizes of jobs, for policies that give a job one size: the knee of its curve of rates.

(1) Of configurations with at least ``EFFICIENT`` of the best rate a device, the knee is the one with the largest rate.
(2) Of those that fit what is free, the largest rate up to the knee's.
"""

from taut.data.arrays import Ints
from taut.formulations.jobs.problem import JobsProblem

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
