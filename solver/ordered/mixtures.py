r"""
Mixtures of divisions: linear programs whose duals are good weights and prices.

With :math:`S_{ki}` the seconds of path k of division i, :math:`E_{ri}` its bytes beyond the budget by count r, as a
share of the budget (``taut.solver.ordered.rows``), and a mixture :math:`\xi \ge 0, \sum_i \xi_i = 1`,

.. math::
    \min t + \eta \sum_r z_r: & \quad \sum_i S_{ki} \xi_i \le t, \; \sum_i E_{ri} \xi_i \le z_r, \; z \ge 0 \tag{1} \\
    \min t: & \quad \sum_i E_{ri} \xi_i \le t \tag{2}

over the divisions found so far. The duals of the paths are their shares, those of the counts prices of memory; the
price :math:`\eta` of missing bytes lets (1) be solved where none of the divisions fits yet.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from taut.solver.ordered.division import Division
from taut.solver.ordered.rows import Rows

Floats = NDArray[np.float64]
ELASTIC = 20.0
"""Price of a budget's worth of missing bytes, as a multiple of the step time."""


class Mixture(NamedTuple):
    """Seconds t of the best mixture, shares of the paths, prices of memory, and the divisions' parts xi."""

    seconds: float
    shares: Floats
    prices: Floats
    parts: Floats


def fastest_mixture(rows: Rows, found: Sequence[Division]) -> Mixture:
    """Best mixture of the divisions by (1)."""
    seconds = rows.seconds(found)
    excess = _excess(rows, found)
    scale = seconds.max(axis=0).min()
    (paths, size), counts = seconds.shape, len(excess)
    above = [seconds / scale, -np.ones((paths, 1)), np.zeros((paths, counts))]
    answer = linprog(
        np.r_[np.zeros(size), 1.0, np.full(counts, ELASTIC)],
        A_ub=np.block([above, [excess, np.zeros((counts, 1)), -np.eye(counts)]]),
        b_ub=np.zeros(paths + counts),
        A_eq=np.r_[np.ones(size), np.zeros(1 + counts)][None],
        b_eq=[1.0],
        bounds=[(0, None)] * size + [(None, None)] + [(0, None)] * counts,
        method="highs",
    )
    duals = np.maximum(-answer.ineqlin.marginals, 0.0)
    shares = duals[:paths] / duals[:paths].sum()
    prices = duals[paths:] * scale / rows.given.budget
    return Mixture(float(answer.fun) * scale, shares, prices, answer.x[:size])


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
    excess = np.array([rows.excess(division) for division in found]).reshape(len(found), -1)
    return np.asarray(excess.T / rows.given.budget)
