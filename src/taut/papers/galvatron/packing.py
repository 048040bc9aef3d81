r"""
Layers of one stage at the least cost within its memory, by dynamic programming.

Layers are alike, so what is chosen is how many of them are spread in which way. With :math:`w_s` whole MiB and the cost
:math:`c_s` of a layer that is spread as s, the least cost of k layers within u MiB is

(1) :math:`D_0(u) = 0, \quad D_k(u) = \min_{s: w_s \le u} D_{k-1}(u - w_s) + c_s`.
"""

import numpy as np

from taut.data.arrays import Floats, Ints


def least_costs(mib: Ints, costs: Floats, layers: int, capacity: int) -> Floats:
    """
    D of (1), by layers and by MiB.

    ``mib``, ``costs``: of a layer, by the way it is spread.
    """
    found = np.full((layers + 1, capacity + 1), np.inf)
    found[0] = 0.0
    for k in range(1, layers + 1):
        for size, cost in zip(mib, costs, strict=True):
            if size <= capacity:
                np.minimum(found[k, size:], found[k - 1, : capacity + 1 - size] + cost, out=found[k, size:])
    return found


def counts_of(found: Floats, mib: Ints, costs: Floats, layers: int, capacity: int) -> Ints | None:
    """
    How many layers are spread in which way at the least cost within a capacity, or None where none fits.

    ``found``: what ``least_costs`` returned for these layers; ``mib``, ``costs``, ``layers``, ``capacity``: as given to
    it, or a smaller capacity.
    """
    if capacity < 0 or not np.isfinite(found[layers, capacity]):
        return None
    counts, left = np.zeros(len(mib), dtype=np.int64), capacity
    for k in range(layers, 0, -1):
        rest = [
            found[k - 1, left - size] + cost if size <= left else np.inf for size, cost in zip(mib, costs, strict=True)
        ]
        chosen = int(np.argmin(rest))
        counts[chosen] += 1
        left -= int(mib[chosen])
    return counts
