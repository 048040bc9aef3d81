r"""
Maximise the Lagrangian dual of the division problem by cutting planes, stabilised by smoothing.

The dual function D of weights and prices :math:`w = (\lambda, \mu)` is concave and piecewise linear
(``taut.solver.order_priced.master_rows`` (5)). In every iteration

(1) the restricted master problem over the divisions found so far yields :math:`w^*` and its value
    :math:`Z \ge \max D` over those divisions and paths;
(2) the dual function is evaluated at

    .. math:: w = \begin{cases} (1 - \theta) w_{best} + \theta w^* & Z - D(w_{best}) > \epsilon |Z| \\
        w^* & \text{otherwise} \end{cases}

    since :math:`w^*` alone oscillates;
(3) the division that attains :math:`D(w)` joins the master problem as a column;
(4) where some path is longer than Z in the mean over the columns, with their weights in the solution of (1), the
    longest such path joins as a row (``taut.solver.order_priced.master_rows`` (4)), and (1) is solved again.

It begins with given weights, or equal ones of the devices' paths. It ends where :math:`Z - D(w_{best})` is rounding,
where the bound reaches the limit, or after ``MOST_ITERATIONS``. Every :math:`D(w)` is a lower bound, whenever it ends.

The duals of a restricted master problem are path weights and memory prices. Sets: divisions i found so far; paths k and
memory rows r (``taut.solver.order_priced.master_rows``). Data: :math:`S_{ki}` the seconds of path k in division i,
:math:`E_{ri}` its bytes beyond the budget by row r, as a share of the budget; :math:`\eta`, the penalty of missing
bytes. Variables: weights of the divisions :math:`\xi_i \ge 0`, seconds t, missing shares :math:`z_r \ge 0`.

.. math::
    \min t + \eta \sum_r z_r: & \quad \sum_i S_{ki} \xi_i \le t, \; \sum_i E_{ri} \xi_i \le z_r, \;
    \sum_i \xi_i = 1 \tag{5} \\
    \min t: & \quad \sum_i E_{ri} \xi_i \le t, \; \sum_i \xi_i = 1 \tag{6}

(5) is the Dantzig-Wolfe form of the Lagrangian dual (``taut.solver.order_priced.master_rows`` (5)) restricted to known
columns and rows: seen from the dual it maximises the least of the cutting planes of Kelley (The cutting-plane method
for solving convex programs, 1960). The duals of the paths are the weights :math:`\lambda`, those of the memory rows the
prices :math:`\mu`. The penalty keeps (5) feasible where no known division fits, and bounds the prices. (6) does the
same for missing memory, with prices that sum to one.

References
----------
Kelley (1960), The cutting-plane method for solving convex programs. Wentges (1997), Weighted Dantzig-Wolfe
decomposition for linear mixed-integer programming. Pessoa, Sadykov, Uchoa and Vanderbeck (2018), Automation and
combination of linear-programming based stabilization techniques in column generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.errors import SolverError
from taut.formulations.strategy import Division
from taut.solver.linear_program import LinearProgram, linear_program
from taut.solver.order_priced.master_rows import MasterRows, PricingOracle, dual_value

EXCESS_PENALTY = 20.0
"""Penalty eta in step times: a division that lacks a twentieth of the budget costs a step time more."""


class MasterSolution(NamedTuple):
    """
    An optimum of (5): its ``value``, at least the dual function over the known divisions, and weights xi of these.

    Its duals are of the paths, scaled to sum one, and of the memory rows in seconds for a byte.
    """

    value: float
    path_weights: Floats
    memory_prices: Floats
    column_weights: Floats


class RestrictedMaster:
    """Program (5), to which paths and divisions are added from iteration to iteration."""

    def __init__(self, rows: MasterRows) -> None:
        self._rows, self._scale = rows, 0.0
        self._paths = self._divisions = 0
        self._program = _convex(linear_program("glop"))
        memory = len(rows.memory_rows)
        penalty = np.full(memory, EXCESS_PENALTY)
        self._program.add_columns(penalty, np.zeros(memory), np.full(memory, np.inf), np.zeros((1, memory)))
        self._at_most_zero(np.column_stack([np.zeros(memory), -np.eye(memory)]))

    def _at_most_zero(self, coefficients: Floats) -> None:
        self._program.add_rows(coefficients, np.full(len(coefficients), -np.inf), np.zeros(len(coefficients)))

    def solve(self, found: Sequence[Division]) -> MasterSolution | None:
        """
        Solve (5) over all paths of the rows so far.

        ``found``: divisions, those of the last call first. Returns None where the solver finds no optimum.
        """
        self._add(found)
        answer = self._program.solve()
        if answer is None:
            return None
        memory = len(self._rows.memory_rows)
        duals = np.maximum(-answer.duals[1:], 0.0)
        prices, weights = duals[:memory], duals[memory:]
        return MasterSolution(
            value=answer.value * self._scale,
            path_weights=weights / weights.sum(),
            memory_prices=prices * self._scale / self._rows.given.budget,
            column_weights=answer.primal[1 + memory :],
        )

    def _add(self, found: Sequence[Division]) -> None:
        """Add new paths over the known divisions, then new divisions over all paths."""
        known, memory, every = self._divisions, len(self._rows.memory_rows), len(self._rows.paths)
        new = found[known:]
        seconds = self._rows.path_seconds(new)
        if not self._scale:
            self._scale = float(seconds.max(axis=0).min())
        later = self._rows.path_seconds(found[:known], self._paths) / self._scale
        slowest = np.column_stack([np.full(len(later), -1.0), np.zeros((len(later), memory))])
        self._at_most_zero(np.column_stack([slowest, later]))
        excess = _excess(self._rows, new)
        column = np.vstack([np.ones((1, len(new))), excess.reshape(memory, len(new)), seconds / self._scale])
        self._program.add_columns(np.zeros(len(new)), np.zeros(len(new)), np.full(len(new), np.inf), column)
        self._paths, self._divisions = every, len(found)


def _convex(program: LinearProgram) -> LinearProgram:
    """A program with the free column t of cost one, and the row of weights that sum to one."""
    program.add_columns(np.ones(1), np.full(1, -np.inf), np.full(1, np.inf), np.zeros((0, 1)))
    program.add_rows(np.zeros((1, 1)), np.ones(1), np.ones(1))
    return program


def least_excess(rows: MasterRows, found: Sequence[Division]) -> tuple[float, Floats]:
    """Least worst excess (6) of a mixture of divisions, a share of the budget, and prices (memory rows,) of sum one."""
    excess = _excess(rows, found)
    counts, size = excess.shape
    program = linear_program("highs")
    cost = np.append(np.zeros(size), 1.0)
    free = np.append(np.zeros(size), -np.inf)
    program.add_columns(cost, free, np.full(size + 1, np.inf), np.zeros((0, size + 1)))
    program.add_rows(np.column_stack([excess, -np.ones(counts)]), np.full(counts, -np.inf), np.zeros(counts))
    program.add_rows(np.append(np.ones(size), 0.0)[None], np.ones(1), np.ones(1))
    answer = program.solve()
    if answer is None:
        raise SolverError("HiGHS: finds no optimum of the least excess of memory, which always has one")
    prices = np.maximum(-answer.duals[:counts], 0.0)
    return answer.value, prices / max(prices.sum(), 1e-300)


def _excess(rows: MasterRows, found: Sequence[Division]) -> Floats:
    """Bytes beyond the budget as a share of the budget, (memory rows, divisions)."""
    if not rows.memory_rows:
        return np.zeros((0, len(found)))
    return np.array([rows.excess(division) for division in found]).T / rows.given.budget


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
    The best multipliers found, and the bound ``value`` in seconds without the constant; infinite without divisions.

    ``path_weights`` are of the first paths of the rows, ``divisions`` those found, the given ones first, and
    ``column_weights`` theirs in the last master problem; empty where it was not solved.
    """

    value: float
    path_weights: Floats
    memory_prices: Floats
    divisions: tuple[Division, ...]
    column_weights: Floats


def maximise_dual(
    rows: MasterRows, divisions: Sequence[Division], oracle: PricingOracle, limit: float, start: Floats | None = None
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
