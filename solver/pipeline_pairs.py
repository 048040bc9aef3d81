r"""
Division of the layers for two pipelines together, one of which passes slow blocks alone.

Let the second pass just f stages on fast blocks, and no pipeline that has both classes fewer. As one pipeline is all
slow, every stage that the second passes on a fast block is mixed; and as all pipelines with fast blocks have f of them
at least, they are F / f, rounded down, at most, F the fast blocks. So many fast blocks has a stage at the most, and
its ring runs over at least as many nodes as its other blocks ask for (``taut.solver.bounds.least_rings`` (6)).

(1) Both pipelines have one division of the layers. Each takes at least what
    ``taut.solver.pipeline_division`` (1) to (3) say of it, and the step takes the longer of both.
(2) For thresholds :math:`\theta` on the stages of the first, ascending, the least of that over the divisions that keep
    to one is found by labels. Where the first has a slowest stage of :math:`\theta_1` to :math:`\theta_2` seconds, it
    waits for the lesser; such an interval is halved until it is no better than the best found.
(3) The second waits for its own slowest stage. Of it is known alone whether it takes as many seconds as the least
    feasible threshold, and these are counted.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.solver.pair_labels import Pair, least_pair
from taut.solver.pipeline_labels import Passages


def least_of_pair(given: Passages, fast: int, m: int, thresholds: Floats, limit: float) -> float:
    """
    Least seconds of a step with two such pipelines, at most the limit.

    ``fast``: stages that the second pipeline passes on fast blocks; ``m``: micro-batches; ``thresholds``: seconds of
    ranges on slow blocks, ascending; ``limit``: seconds beyond which the least is of no use.
    """
    least = _least_feasible(given, fast, m, thresholds)
    if least == len(thresholds):
        return limit
    best, open_ones = limit, [(least, len(thresholds) - 1)]
    while open_ones:
        low, high = open_ones.pop()
        pair = Pair(given, fast, float(thresholds[high]), float(thresholds[low]), float(thresholds[least]))
        found = least_pair(pair, m)
        if found >= best:
            continue
        if low == high:
            best = found
        else:
            middle = (low + high) // 2
            open_ones += [(middle + 1, high), (low, middle)]
    return best


def _least_feasible(given: Passages, fast: int, m: int, thresholds: Floats) -> int:
    """The place of the least threshold to which a division keeps; their number where none does."""
    low, high = 0, len(thresholds)
    while low < high:
        middle = (low + high) // 2
        if np.isfinite(least_pair(Pair(given, fast, float(thresholds[middle]), 0.0, np.inf), m)):
            high = middle
        else:
            low = middle + 1
    return low
