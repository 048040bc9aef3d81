r"""
Lower bound on symmetric quadratic assignment from a convex quadratic program, after Anstreicher and Brixius.

If one matrix is symmetric, the other may be replaced by its mean with its transpose, so that both are. Without their
diagonals, which go into :math:`\ell_{ik} = f_{ii} d_{kk}`, call them F and D; X is the permutation matrix,

.. math:: z = \operatorname{tr} F X D X^T + \operatorname{tr} \ell X^T. \tag{1}

Let the columns of V be an orthonormal basis of the vectors whose entries sum to zero, and
:math:`V^T F V = W \operatorname{diag}(\alpha) W^T`, :math:`V^T D V = U \operatorname{diag}(\beta) U^T`,
:math:`\alpha` ascending, :math:`\beta` descending. Any s and t with

.. math:: s_i + t_j \le \alpha_i \beta_j \quad \text{for all } i, j \tag{2}

make :math:`q(X) = \operatorname{tr} F X D X^T - \operatorname{tr} S X X^T - \operatorname{tr} T X^T X` with
:math:`S = V W \operatorname{diag}(s) W^T V^T` and :math:`T = V U \operatorname{diag}(t) U^T V^T` convex on matrices
whose rows and columns sum to one [1]_. On permutations the last two terms are :math:`\sum s_i + \sum t_j`, so that

.. math:: z \ge \sum_i s_i + \sum_j t_j + \min_X \{ q(X) + \operatorname{tr} \ell X^T \}
    \ge \dots + q(Y) + \operatorname{tr} \ell Y^T + \min_X \langle G(Y), X - Y \rangle, \tag{3}

with the gradient G of the bracket at any doubly stochastic Y: a linear assignment problem. The largest sum of s and t
is the least scalar product of :math:`\alpha` and :math:`\beta`. Y comes from the method of Frank and Wolfe. The
projection bound [2]_ is what (3) gives with s and t for q; it never exceeds the minimum in (3).

References
----------
.. [1] Anstreicher, K.M. and Brixius, N.W. (2001). A new bound for the quadratic assignment problem based on convex
       quadratic programming. Mathematical Programming 89: 341-357.
.. [2] Hadley, S.W., Rendl, F. and Wolkowicz, H. (1992). A new lower bound via projection for the quadratic assignment
       problem. Mathematics of Operations Research 17: 727-739.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Floats
from taut.formulations.assignment import QuadraticAssignment


def convex_bounds(problem: QuadraticAssignment, steps: int = 1000) -> Iterator[float]:
    """
    Bounds by (3) in the unit of flow times distance, the best after each step of :math:`O(n^3)`.

    Rounding is taken off. There are none if neither matrix is symmetric; the bound is weak where one is mostly zeros.
    """
    parts = _parts(problem)
    if parts is None:
        return
    flow, distance, loops = parts
    values, shift_rows, shift_columns = _shifts(flow, distance)
    size, best = len(flow), -math.inf
    margin = 64 * size**2 * float(np.finfo(np.float64).eps) * _scale(flow, distance, loops)
    point = np.full((size, size), 1 / size)
    for _ in range(steps):
        curved = flow @ point @ distance - shift_rows @ point - point @ shift_columns
        gradient = 2 * curved + loops
        rows, columns = linear_sum_assignment(gradient)
        value = float(np.sum((curved + loops) * point))
        descent = float(gradient[rows, columns].sum() - np.sum(gradient * point))
        best = max(best, values + value + descent - margin)
        yield best
        if descent >= 0:
            return
        toward = -point
        toward[rows, columns] += 1
        curvature = float(np.sum((flow @ toward @ distance - shift_rows @ toward - toward @ shift_columns) * toward))
        point += toward * (1.0 if 2 * curvature <= -descent else -descent / (2 * curvature))


def _parts(problem: QuadraticAssignment) -> tuple[Floats, Floats, Floats] | None:
    """Matrices F and D of (1), symmetric with zero diagonals, and l; None if there are none."""
    flow, distance = problem.flow, problem.distance
    if problem.size < 3 or not any(np.array_equal(matrix, matrix.T) for matrix in (flow, distance)):
        return None
    loops = np.outer(flow.diagonal(), distance.diagonal())
    flow, distance = (flow + flow.T) / 2, (distance + distance.T) / 2
    for matrix in (flow, distance):
        np.fill_diagonal(matrix, 0.0)
    return flow, distance, loops


def _shifts(flow: Floats, distance: Floats) -> tuple[float, Floats, Floats]:
    """Sum of s and t, and the matrices S and T."""
    size = len(flow)
    basis = np.linalg.qr(np.hstack((np.ones((size, 1)), np.eye(size)[:, : size - 1])))[0][:, 1:]
    alpha, w = np.linalg.eigh(basis.T @ flow @ basis)
    beta, u = np.linalg.eigh(basis.T @ distance @ basis)
    beta, u = beta[::-1], u[:, ::-1]
    # Between neighbours the mean of both differences that the products allow is feasible and tight; what rounding
    # leaves above (2) is taken off t.
    products = np.outer(alpha, beta)
    diagonal = products.diagonal()
    rises = (diagonal[1:] - np.diag(products, 1) + np.diag(products, -1) - diagonal[:-1]) / 2
    s = np.concatenate(([0.0], np.cumsum(rises)))
    t = (products - s[:, None]).min(axis=0)
    rows, columns = basis @ w, basis @ u
    return float(s.sum() + t.sum()), (rows * s) @ rows.T, (columns * t) @ columns.T


def _scale(flow: Floats, distance: Floats, loops: Floats) -> float:
    """Size of the numbers whose rounding counts: norms of both matrices, and l."""
    norms = float(np.linalg.norm(flow)) * float(np.linalg.norm(distance))
    return norms * math.sqrt(len(flow)) + float(np.abs(loops).sum())
