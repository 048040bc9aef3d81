r"""
Restricted master problems over the divisions found so far; their duals are path weights and memory prices.

Sets: divisions i found so far; paths k and memory rows r (``taut.solver.order_priced.master_rows``).
Data: :math:`S_{ki}` the seconds of path k in division i, :math:`E_{ri}` its bytes beyond the budget by row r, as a
share of the budget; :math:`\eta`, the penalty of missing bytes.
Variables: weights of the divisions :math:`\xi_i \ge 0`, seconds t, missing shares :math:`z_r \ge 0`.

.. math::
    \min t + \eta \sum_r z_r: & \quad \sum_i S_{ki} \xi_i \le t, \; \sum_i E_{ri} \xi_i \le z_r, \;
    \sum_i \xi_i = 1 \tag{1} \\
    \min t: & \quad \sum_i E_{ri} \xi_i \le t, \; \sum_i \xi_i = 1 \tag{2}

(1) is the Dantzig-Wolfe form of the Lagrangian dual (``taut.solver.order_priced.lagrangian`` (1)) restricted to known
columns and rows: seen from the dual it maximises the least of the cutting planes of Kelley (The cutting-plane method
for solving convex programs, 1960). The duals of the paths are the weights :math:`\lambda`, those of the memory rows the
prices :math:`\mu`. The penalty keeps (1) feasible where no known division fits, and bounds the prices. (2) does the
same for missing memory, with prices that sum to one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.errors import SolverError
from taut.formulations.strategy import Division
from taut.solver.linear_program import LinearProgram, linear_program
from taut.solver.order_priced.master_rows import MasterRows

EXCESS_PENALTY = 20.0
"""Penalty eta in step times: a division that lacks a twentieth of the budget costs a step time more."""


class MasterSolution(NamedTuple):
    """
    An optimum of (1).

    Parameters
    ----------
    value
        Its value in seconds, an upper bound on the dual function over the known divisions.
    path_weights, memory_prices
        Duals of the paths, scaled to sum one, and of the memory rows in seconds for a byte.
    column_weights
        Weights xi of the divisions.
    """

    value: float
    path_weights: Floats
    memory_prices: Floats
    column_weights: Floats


class RestrictedMaster:
    """Program (1), to which paths and divisions are added from iteration to iteration."""

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
        Solve (1) over all paths of the rows so far.

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
    """
    Solve (2).

    ``found``: divisions, at least one. Returns the least worst excess of a convex combination of the divisions, as a
    share of the budget, and the prices (memory rows,) that prove it, which sum to one. Raises ``SolverError`` if the
    solver finds no optimum.
    """
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
