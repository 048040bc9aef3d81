r"""
Least sum and bottleneck together: search over thresholds, ``taut.solver.layer_partition`` (2) and (3).

:math:`D_\theta` falls as :math:`\theta` rises. The least feasible threshold is found by bisection, and larger ones are
tried in order until :math:`(m - 1) \theta + D_\infty` is no better than the best found or a limit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints


class Within(NamedTuple):
    """Seconds D of a division that keeps to a threshold, its slowest stage's, and end, recompute, pattern of stages."""

    total: float
    highest: float
    picks: Ints


def least_by_threshold(
    within: Callable[[float], Within], m: int, thresholds: Floats, limit: float, known: float = -np.inf
) -> tuple[float, Ints | None]:
    """
    The least (m - 1) highest + total, or the limit if that is less, with the picks of a division.

    ``within``: the least total of divisions that keep to a threshold; infinite where none does; ``m``: micro-batches;
    ``thresholds``: values that the slowest stage may take, ascending; ``limit``: seconds beyond which the least is of
    no use; ``known``: seconds that are needed in any case: a division that takes no more ends the search. Returns
    infinity and None where no division keeps to the largest threshold.
    """
    widest = within(float(thresholds[-1])) if len(thresholds) else None
    if widest is None or not np.isfinite(widest.total):
        return np.inf, None
    least, best, picks = widest.total, (m - 1) * widest.highest + widest.total, widest.picks
    # Larger thresholds are no better than the best or the limit, so an optimum of interest has a smaller one.
    above = int(np.searchsorted((m - 1) * thresholds + least, min(best, limit))) - 1
    if best <= known or above < 0 or not np.isfinite(within(float(thresholds[above])).total):
        return min(best, limit), picks
    below, count, climbing = 0, above + 1, False
    while True:
        climbing = climbing or below >= above
        t = below if climbing else (below + above) // 2
        ended = best <= known or (climbing and (t == count or (m - 1) * thresholds[t] + least >= best))
        if ended:
            return min(best, limit), picks
        found = within(float(thresholds[t]))
        feasible = np.isfinite(found.total)
        if feasible and (m - 1) * found.highest + found.total < best:
            best, picks = (m - 1) * found.highest + found.total, found.picks
        if climbing or not feasible:
            below = t + 1
        else:
            above = t
