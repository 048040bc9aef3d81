r"""
Maximise the Lagrangian dual of the division problem by cutting planes, stabilised by smoothing.

The dual function D of weights and prices :math:`w = (\lambda, \mu)` is concave and piecewise linear
(``taut.solver.order_priced.lagrangian`` (1)). In every iteration

(1) the restricted master problem over the divisions found so far yields :math:`w^*` and its value
    :math:`Z \ge \max D` over those divisions and paths (``taut.solver.order_priced.master``);
(2) the dual function is evaluated at

    .. math:: w = \begin{cases} (1 - \theta) w_{best} + \theta w^* & Z - D(w_{best}) > \epsilon |Z| \\
        w^* & \text{otherwise} \end{cases}

    since :math:`w^*` alone oscillates;
(3) the division that attains :math:`D(w)` joins the master problem as a column;
(4) where some path is longer than Z in the mean over the columns, with their weights in the solution of (1), the
    longest such path joins as a row (``taut.solver.order_priced.master_rows`` (4)), and (1) is solved again.

It begins with given weights, or equal ones of the devices' paths. It ends where :math:`Z - D(w_{best})` is rounding,
where the bound reaches the limit, or after ``MOST_ITERATIONS``. Every :math:`D(w)` is a lower bound, whenever it ends.

References
----------
Kelley (1960), The cutting-plane method for solving convex programs. Wentges (1997), Weighted Dantzig-Wolfe
decomposition for linear mixed-integer programming. Pessoa, Sadykov, Uchoa and Vanderbeck (2018), Automation and
combination of linear-programming based stabilization techniques in column generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.strategy import Division
from taut.solver.order_priced.lagrangian import PricingOracle, dual_value
from taut.solver.order_priced.master import MasterSolution, RestrictedMaster
from taut.solver.order_priced.master_rows import MasterRows

MOST_ITERATIONS = 40
"""Most iterations; 1 of the 45 bounds of gpt2-345m on dgx-a100:1 (pp 4, all schedules) asks for as many."""
SMOOTHING = 0.3
"""Part theta of the way to the master's multipliers; at 0.2, 0.3, 0.5 those bounds take 442, 323, 230 iterations."""
NEARLY_CONVERGED = 1e-4
"""Relative distance epsilon to the master's value from which its multipliers are taken as they are."""
MOST_ADDED = 5
"""Most paths that join for a column before the master problem would count as converged: of eight devices with four
chunks each, 1, 3 and 5 end at 13.854, 13.921 and 13.921 s, in 0.05, 0.45 and 0.45 s."""
CONVERGED = 1e-7
"""Relative distance between the master's value and the bound at which iterations stop: a tenth of an optimal gap."""


@dataclass(frozen=True)
class DualSolution:
    """
    The best multipliers found.

    Parameters
    ----------
    value
        Lower bound in seconds, without the constant; infinite where no division is allowed.
    path_weights, memory_prices
        The multipliers that prove it: weights of the first paths of the rows, and prices of the memory rows.
    divisions
        Divisions found, the given ones first.
    column_weights
        Weights of the first divisions in the last solution of the master problem; empty where it was not solved.
    """

    value: float
    path_weights: Floats
    memory_prices: Floats
    divisions: tuple[Division, ...]
    column_weights: Floats


def maximise_dual(
    rows: MasterRows,
    divisions: Sequence[Division],
    oracle: PricingOracle,
    limit: float,
    start: Floats | None = None,
) -> DualSolution:
    """
    Maximise the dual function by (1) to (4).

    ``rows``: paths and memory rows; paths are added by (4); ``divisions``: columns to begin with; ``oracle``: solves
    the pricing problem; ``limit``: seconds, less the constant, at which a bound is as good as any; ``start``: weights
    of the rows to begin with (paths,), below whose value the bound never falls.
    """
    found = list(divisions)
    weights, prices = uniform_weights(rows) if start is None else start, np.zeros(len(rows.memory_rows))
    best, answer = dual_value(rows, weights, prices, oracle)
    master, column_weights = RestrictedMaster(rows), np.zeros(0)
    for _ in range(MOST_ITERATIONS):
        if answer is None or best >= limit:
            break
        found.append(answer)
        toward = _separated(master, rows, found, best)
        if toward is None:
            break
        column_weights = toward.column_weights
        if _is_converged(toward, best):
            break
        step = 1.0 if toward.value - best <= NEARLY_CONVERGED * abs(toward.value) else SMOOTHING
        known = np.pad(weights, (0, len(toward.path_weights) - len(weights)))
        tried = (1 - step) * known + step * toward.path_weights
        cost = (1 - step) * prices + step * toward.memory_prices
        value, answer = dual_value(rows, tried, cost, oracle)
        if value > best:
            best, weights, prices = value, tried, cost
    return DualSolution(best, weights, prices, tuple(found), column_weights)


def _separated(master: RestrictedMaster, rows: MasterRows, found: list[Division], best: float) -> MasterSolution | None:
    """The solution of (1) over the paths that (4) adds: some, or all where it would count as converged."""
    toward, added = master.solve(found), 0
    while toward is not None and (added < MOST_ADDED or _is_converged(toward, best)):
        if not rows.separate(found, toward.column_weights, toward.value * (1 + CONVERGED)):
            break
        toward, added = master.solve(found), added + 1
    return toward


def _is_converged(toward: MasterSolution, best: float) -> bool:
    return toward.value - best <= CONVERGED * abs(toward.value)


def uniform_weights(rows: MasterRows) -> Floats:
    """Equal weights of the devices' paths, and none of the others (paths,)."""
    weights = np.zeros(len(rows.paths))
    weights[: rows.of_devices] = 1.0 / rows.of_devices
    return weights
