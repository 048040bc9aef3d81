r"""
Layer partition of one pipeline whose stages have seconds of their own, for every end of stage 0.

Sets: pp stages x, layers 0..L-1. Data: seconds[x, i, j] of stage x on layers i..j-1, infinite where it does not fit;
edge[j] seconds of a cut before layer j; m micro-batches. Variables: the ends of the stages.

(1) A[j] = least over divisions with stage 0 ending at j of sum_x seconds + (m - 1) max_x seconds + sum of edges.
(2) For a threshold :math:`\theta` on every stage, let :math:`D_\theta[j]` be the least sum of stages that take at most
    :math:`\theta` each, found backwards over x; then :math:`A[j] = \min_\theta (m - 1) \theta + D_\theta[j]` over the
    distinct seconds.
(3) Thresholds ascend from the least at which anything fits until :math:`(m - 1) \theta + D_\infty[j]` is no better
    than what was found or than a cutoff, for every j. So what is not below its cutoff may be left above (1).

References
----------
Li et al. (2022), AMP: Finding model parallel strategies with heterogeneity awareness: the dynamic program over the
slowest stage, (2).
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit


def thresholds_of(seconds: Floats) -> Floats:
    """Distinct finite entries of ``seconds``, of any shape, ascending: the thresholds of (2)."""
    return np.unique(seconds[np.isfinite(seconds)])


def ends_of(seconds: Floats, edge: Floats, threshold: float, first: int) -> list[int]:
    """
    Recover a least division.

    ``seconds``, ``edge``: the pipeline, (pp, L+1, L+1) and (L+1,); ``threshold``: seconds that no stage exceeds;
    ``first``: end of stage 0. Returns ends of all stages.
    """
    value = _values(seconds, edge, threshold)
    ends = [first]
    for x in range(1, len(seconds)):
        one = seconds[x, ends[-1]]
        # The last stage has one end alone, so that there is no cut behind it does not matter.
        ends.append(int(np.argmin(np.where(one <= threshold, one + edge, np.inf) + value[x + 1])))
    return ends


@jit
def _values(seconds: Floats, edge: Floats, threshold: float) -> Floats:
    """Least seconds of stages x.. on layers i.., none above the threshold, (pp + 1, L + 1); row 0 by its end, (2)."""
    pp, size = seconds.shape[0], seconds.shape[1]
    value = np.full((pp + 1, size), np.inf)
    value[pp, size - 1] = 0.0
    for x in range(pp - 1, 0, -1):
        for i in range(x, size - pp + x):
            for j in range(i + 1, size):
                one = seconds[x, i, j]
                if one <= threshold and value[x + 1, j] < np.inf:
                    total = one + value[x + 1, j] + (edge[j] if x < pp - 1 else 0.0)
                    value[x, i] = min(value[x, i], total)
    for j in range(1, size):
        if seconds[0, 0, j] <= threshold:
            value[0, j] = seconds[0, 0, j] + value[1, j] + (edge[j] if pp > 1 else 0.0)
    return value


@jit
def least_by_first(seconds: Floats, edge: Floats, m: int, thresholds: Floats, cutoff: Floats) -> tuple[Floats, Floats]:
    """
    Compute A[j] of (1) for every j, by (3).

    ``seconds``, ``edge``, ``m``: the pipeline: (pp, L+1, L+1), (L+1,) and micro-batches; ``thresholds``: distinct
    finite entries of ``seconds``, ascending; ``cutoff``: what A[j] must be below to matter, (L+1,). Returns A (L+1,) in
    seconds, and the thresholds that attain it; infinite where nothing fits.
    """
    size = seconds.shape[1]
    best, at = np.full(size, np.inf), np.full(size, np.inf)
    count = len(thresholds)
    if count == 0:
        return best, at
    least = _values(seconds, edge, thresholds[count - 1])[0]
    if least.min() == np.inf:
        return best, at
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if _values(seconds, edge, thresholds[middle])[0].min() < np.inf:
            high = middle
        else:
            low = middle + 1
    for t in range(low, count):
        straggler = (m - 1) * thresholds[t]
        if (straggler + least >= np.minimum(best, cutoff)).all():
            break
        value = straggler + _values(seconds, edge, thresholds[t])[0]
        for j in range(size):
            if value[j] < best[j]:
                best[j], at[j] = value[j], thresholds[t]
    return best, at
