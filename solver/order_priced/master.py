r"""
Mixtures of divisions: linear programs whose duals are good weights and prices.

With :math:`S_{ki}` the seconds of path k of division i, :math:`E_{ri}` its bytes beyond the budget by count r, as a
share of the budget (``taut.solver.order_priced.rows``), and a mixture :math:`\xi \ge 0, \sum_i \xi_i = 1`,

.. math::
    \min t + \eta \sum_r z_r: & \quad \sum_i S_{ki} \xi_i \le t, \; \sum_i E_{ri} \xi_i \le z_r, \; z \ge 0 \tag{1} \\
    \min t: & \quad \sum_i E_{ri} \xi_i \le t \tag{2}

over the divisions found so far. The duals of the paths are their shares, those of the counts prices of memory; the
price :math:`\eta` of missing bytes lets (1) be solved where none of the divisions fits yet.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.linear_solver import pywraplp
from scipy.optimize import linprog

from taut.data.arrays import Floats
from taut.formulations.strategy import Division
from taut.solver.order_priced.rows import Rows

ELASTIC = 20.0
"""Price of a budget's worth of missing bytes, as a multiple of the step time."""


class Mixture(NamedTuple):
    """Seconds t of the best mixture, shares of the paths, prices of memory, and the divisions' parts xi."""

    seconds: float
    shares: Floats
    prices: Floats
    parts: Floats


class FastestMixture:
    """Program (1), to which paths and divisions are added from round to round; each solution starts from the last."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._scale = rows, 0.0
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._slowest = self._solver.NumVar(-self._solver.infinity(), self._solver.infinity(), "t")
        self._solver.Objective().SetCoefficient(self._slowest, 1.0)
        self._whole = self._solver.Constraint(1.0, 1.0)
        self._counts = [self._count() for _ in rows.counts]
        self._paths: list[pywraplp.Constraint] = []
        self._parts: list[pywraplp.Variable] = []

    def _count(self) -> pywraplp.Constraint:
        missing = self._solver.NumVar(0.0, self._solver.infinity(), "z")
        self._solver.Objective().SetCoefficient(missing, ELASTIC)
        return self._at_most(missing)

    def _at_most(self, variable: pywraplp.Variable) -> pywraplp.Constraint:
        """A row that is at most a variable."""
        row = self._solver.Constraint(-self._solver.infinity(), 0.0)
        row.SetCoefficient(variable, -1.0)
        return row

    def solve(self, found: Sequence[Division]) -> Mixture | None:
        """Best mixture of the divisions, those of the last time first; None where the solver gives up."""
        self._add(found)
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        shares, prices = (
            np.array([max(-row.dual_value(), 0.0) for row in rows]) for rows in (self._paths, self._counts)
        )
        return Mixture(
            seconds=self._solver.Objective().Value() * self._scale,
            shares=shares / shares.sum(),
            prices=prices * self._scale / self._rows.given.budget,
            parts=np.array([part.solution_value() for part in self._parts]),
        )

    def _add(self, found: Sequence[Division]) -> None:
        """The rows of new paths, and the columns of new divisions."""
        seconds, known = self._rows.seconds(found), (len(self._paths), len(self._parts))
        self._scale = self._scale or float(seconds.max(axis=0).min())
        self._paths += [self._at_most(self._slowest) for _ in range(known[0], len(seconds))]
        for division in found[known[1] :]:
            part = self._solver.NumVar(0.0, self._solver.infinity(), "")
            self._whole.SetCoefficient(part, 1.0)
            for row, excess in zip(self._counts, _excess(self._rows, [division])[:, 0].tolist(), strict=True):
                row.SetCoefficient(part, excess)
            self._parts.append(part)
        shares = seconds / self._scale
        for k, row in enumerate(self._paths):
            first = known[1] if k < known[0] else 0
            for part, share in zip(self._parts[first:], shares[k, first:].tolist(), strict=True):
                row.SetCoefficient(part, share)


def leanest_mixture(rows: Rows, found: Sequence[Division]) -> tuple[float, Floats]:
    """Least worst excess of a mixture of the divisions by (2), and the prices that prove it."""
    excess = _excess(rows, found)
    counts, size = excess.shape
    answer = linprog(
        np.r_[np.zeros(size), 1.0],
        A_ub=np.c_[excess, -np.ones(counts)],
        b_ub=np.zeros(counts),
        A_eq=np.r_[np.ones(size), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * size + [(None, None)],
        method="highs",
    )
    prices = np.maximum(-answer.ineqlin.marginals, 0.0)
    return float(answer.fun), prices / max(prices.sum(), 1e-300)


def _excess(rows: Rows, found: Sequence[Division]) -> Floats:
    """Bytes beyond the budget by count and division, as a share of the budget."""
    if not rows.counts:
        return np.zeros((0, len(found)))
    return np.array([rows.excess(division) for division in found]).T / rows.given.budget
