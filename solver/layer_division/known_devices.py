r"""
Division of the layers over stages whose devices are known.

With t[x, i, j] the seconds of stage x on layers [i, j) on its own devices, and e[x, j] those of its transfer to the
next, the division minimises

(1) :math:`\sum_x t + \sum_x e + (m - 1) \max_x t`.

For a tolerance :math:`\mu` on every stage, :math:`D_\mu[x, j]` is the least sum of stages 0 to x on layers [0, j),
found stage by stage over the last cut. The optimum is the least of :math:`(m - 1) \mu + D_\mu[pp - 1, L]` over all
values that t takes. Tolerances ascend from the least with a division, the bottleneck
:math:`\min \max_x t`, and end where :math:`(m - 1) \mu + D_\infty` is no better than what was found.

It is the dynamic program of AMP (Li et al. 2022, section 3.5, equation 5), which tries all tolerances. Where stages are
alike ``taut.solver.layer_division.divide`` solves the same problem, with memory and what later stages wait for.
"""

import numpy as np

from taut.data.arrays import Floats, Ints


def divide(seconds: Floats, transfers: Floats, micro_batches: int, added: Floats | None = None) -> Ints | None:
    """Ends (pp,) of stages of least (1), or None; t is ``seconds`` (pp, L+1, L+1), e ``transfers`` (pp - 1, L+1)."""
    first, end = np.triu_indices(seconds.shape[1], 1)
    tolerances = np.unique(seconds[:, first, end])
    tolerances = tolerances[tolerances >= bottleneck(seconds)]
    least, ends = _sums(seconds, transfers, np.inf, added)
    if not np.isfinite(least):
        return None
    best = least + (micro_batches - 1) * _longest(seconds, ends)
    for tolerance in tolerances:
        if least + (micro_batches - 1) * tolerance >= best:
            break
        total, found = _sums(seconds, transfers, float(tolerance), added)
        if np.isfinite(total):
            value = total + (micro_batches - 1) * _longest(seconds, found)
            best, ends = min((best, ends), (value, found), key=lambda pair: pair[0])
    return ends


def bottleneck(seconds: Floats) -> float:
    """Least seconds of the slowest stage over all divisions; infinite where none has all stages finite."""
    inner = np.triu(np.ones(seconds.shape[1:], dtype=bool), 1)
    slowest = np.where(np.arange(seconds.shape[1]) == 0, 0.0, np.inf)
    for stage in seconds:
        slowest = np.maximum(slowest[:, None], np.where(inner, stage, np.inf)).min(axis=0)
    return float(slowest[-1])


def least_sum(seconds: Floats, transfers: Floats, added: Floats | None = None) -> float:
    """Least sum of stages and transfers over all divisions, infinite where none has all stages finite."""
    return _sums(seconds, transfers, np.inf, added)[0]


def _sums(seconds: Floats, transfers: Floats, tolerance: float, added: Floats | None) -> tuple[float, Ints]:
    """D[pp - 1, L] under a tolerance, and the ends that attain it."""
    pp, size = seconds.shape[0], seconds.shape[1]
    inner = np.triu(np.ones((size, size), dtype=bool), 1)
    fits = inner & np.isfinite(seconds) & (seconds <= tolerance)
    allowed = np.where(fits, seconds if added is None else added, np.inf)
    sums, cuts = np.where(np.arange(size) == 0, 0.0, np.inf), np.zeros((pp, size), dtype=np.int64)
    for x in range(pp):
        through = sums[:, None] + allowed[x]
        cuts[x] = through.argmin(axis=0)
        sums = through.min(axis=0) + (transfers[x] if x < pp - 1 else 0.0)
    ends = np.zeros(pp, dtype=np.int64)
    ends[-1] = size - 1
    for x in range(pp - 1, 0, -1):
        ends[x - 1] = cuts[x, ends[x]]
    return float(sums[-1]), ends


def _longest(seconds: Floats, ends: Ints) -> float:
    """Seconds of the slowest stage."""
    return float(seconds[np.arange(len(ends)), np.concatenate([[0], ends[:-1]]), ends].max())
