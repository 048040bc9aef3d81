r"""
Bounds on every division of a candidate whose schedule is priced by its order, by weights and prices that are given.

Seconds of paths k and bytes of counts n of device d beyond its budget are linear in the figures of the chunks
(``taut.solver.order_priced.rows``). With weights :math:`\lambda_k \ge 0`, :math:`\sum_k \lambda_k = 1`, and prices
:math:`\mu_{dn} \ge 0` of memory,

(1) :math:`T \ge \min \sum_k \lambda_k \text{path}_k + \sum_{d, n} \mu_{dn} (\text{bytes}_{dn} - \text{budget})` over
    all divisions, which dynamic programming finds (``taut.solver.order_priced.division``): the makespan is at least
    each path, and a division that fits has no bytes above its budget;
    What large prices take and give back is lost to rounding by as much as is allowed for;
(2) if :math:`\min \sum \mu_{dn} (\text{bytes}_{dn} - \text{budget}) > 0` for some :math:`\mu` no division fits, and
    with :math:`\sum \mu = 1` some device lacks that many bytes.

(3) A division with a chunk that takes more than limit / m seconds for a micro-batch, less what the other chunks of its
    device take at least, takes more than the limit. So the lesser of the limit and (1) over all other divisions is a
    bound too, a better one where the limit is near the optimum.
(4) Where the devices' options within the limit are at hand (``taut.solver.order_priced.device_chain``) the least of
    them takes the place of dynamic programming over chunks: no device exceeds its memory or the limit, and there are no
    prices.
"""

from collections.abc import Callable

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.division import ROUNDING, Weights, least_division, room
from taut.solver.order_priced.rows import Rows

Least = Callable[[Weights], tuple[float, Division | None]]
"""Least cost of a division under weights, and one that has it."""
CANCELLING = 1e-12
"""Relative allowance for the rounding of bytes, below what rounds of better prices go on for."""


def dual_value(rows: Rows, shares: Floats, prices: Floats, least: Least) -> tuple[float, Division | None]:
    """The right side of (1) over the divisions that ``least`` looks at, (3) or (4), without the constant."""
    value, division = least(rows.weights(shares, prices))
    within = rows.given.budget - rows.given.always + CANCELLING * max(rows.given.budget, 1.0)
    return value - prices.sum() * within, division


def least_within(given: ChunkProblem, limit: float) -> Least:
    """Least cost over the divisions of (3)."""
    longest = longest_chunk(given, limit)
    return lambda weights: least_division(given, weights, longest)


def missing_by(rows: Rows, prices: Floats) -> tuple[float, Division | None]:
    """Bytes that some device lacks in every division, by (2) with shares of prices, and the one that lacks least."""
    prices = prices / max(prices.sum(), 1e-300)
    value, division = least_division(rows.given, rows.weights(np.zeros(0), prices))
    return (value - prices.sum() * room(rows.given) if division else np.inf), division


def longest_chunk(given: ChunkProblem, limit: float) -> float:
    """Seconds that a chunk may take for a micro-batch within the limit, (3)."""
    layers = np.arange(given.num_layers)
    least = float(given.passes.sum(axis=0)[:, layers, layers + 1].min())
    others = len(given.hosted(0)) - 1
    return (limit - given.constant) / given.micro_batches * (1 + ROUNDING) - others * least
