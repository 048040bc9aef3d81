r"""
Lagrangian relaxation of the division of layers into chunks: lower bounds for given multipliers.

Sets: divisions x; paths k through the order; memory rows (d, n) (``taut.solver.order_priced.master_rows``).
Data: seconds :math:`s_k(x)` of every path and bytes :math:`b_{dn}(x)` beyond the budget, linear in the chunks' figures.
Variables: weights of paths :math:`\lambda_k \ge 0`, :math:`\sum_k \lambda_k = 1`, and prices of memory
:math:`\mu_{dn} \ge 0` in seconds for a byte.

(1) The makespan of a division is at least :math:`\max_k s_k(x)`, and a division that fits has :math:`b(x) \le 0`. So
    for all multipliers the least makespan is at least the dual function
    :math:`D(\lambda, \mu) = \min_x \sum_k \lambda_k s_k(x) + \sum_{d, n} \mu_{dn} b_{dn}(x)`, which the pricing problem
    evaluates (``taut.solver.order_priced.pricing``).
(2) If :math:`\min_x \sum \mu_{dn} b_{dn}(x) > 0` for some :math:`\mu` no division fits, and with :math:`\sum \mu = 1`
    some device lacks that many bytes in every division (a Farkas certificate).
(3) A division with a chunk that takes more than limit / m seconds for a micro-batch, less what the other chunks of its
    device take at least, exceeds the limit. So the lesser of the limit and of (1) over all other divisions is a bound
    too, a better one where the limit is near the optimum.
(4) Where the options of every device within the limit are enumerated (``taut.solver.order_priced.device_chain``) they
    are the domain of x in (1): no device exceeds its memory or the limit, so memory needs no price.

Sources: M. Held and R. M. Karp, The traveling-salesman problem and minimum spanning trees, part II, Mathematical
Programming 1 (1971); A. M. Geoffrion, Lagrangean relaxation for integer programming, Mathematical Programming Study 2
(1974).
"""

from collections.abc import Callable

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.master_rows import MasterRows
from taut.solver.order_priced.pricing import ChunkCosts, least_division, room

PricingOracle = Callable[[ChunkCosts], tuple[float, Division | None]]
"""Least cost of a division under costs of its chunks' figures, in seconds, and a division that has it."""
CANCELLATION = 1e-12
"""Relative allowance for the cancellation of bytes in (1): some thousand roundings, and less than iterations gain."""


def dual_value(
    rows: MasterRows, path_weights: Floats, memory_prices: Floats, oracle: PricingOracle
) -> tuple[float, Division | None]:
    r"""
    The dual function (1), without the constant seconds.

    ``rows``: paths and memory rows; ``path_weights``, ``memory_prices``: multipliers :math:`\lambda` of the first paths
    and :math:`\mu` of the memory rows; ``oracle``: solves the pricing problem, over the divisions of (3) or of (4).
    Returns a lower bound in seconds, and the division that attains the minimum; None where no division is allowed.
    """
    value, division = oracle(rows.chunk_costs(path_weights, memory_prices))
    within = rows.given.budget - rows.given.always + CANCELLATION * max(rows.given.budget, 1.0)
    return value - memory_prices.sum() * within, division


def bounded_pricing(given: ChunkProblem, limit: float) -> PricingOracle:
    """The pricing problem over the divisions of (3), for a limit in seconds."""
    longest = longest_chunk(given, limit)
    return lambda costs: least_division(given, costs, longest)


def memory_dual(rows: MasterRows, memory_prices: Floats) -> tuple[float, Division | None]:
    """Bytes that some device lacks in every division, by (2) at prices mu, and the minimising division, if any."""
    memory_prices = memory_prices / max(memory_prices.sum(), 1e-300)
    value, division = least_division(rows.given, rows.chunk_costs(np.zeros(0), memory_prices))
    return (value - memory_prices.sum() * room(rows.given) if division else np.inf), division


def longest_chunk(given: ChunkProblem, limit: float) -> float:
    """Seconds that a chunk may take for the passes of a micro-batch within the limit, (3)."""
    layers = np.arange(given.num_layers)
    least = float(given.passes.sum(axis=0)[:, layers, layers + 1].min())
    others = len(given.hosted(0)) - 1
    return (limit - given.constant) / given.micro_batches * (1 + ROUNDING) - others * least
