r"""
Lower bound on quadratic assignment, after Gilmore and Lawler.

Sets, data and the cost :math:`z(\pi)` of a permutation are those of ``taut.formulations.assignment.assignment``.
Write
:math:`\langle u, v \rangle_-` for the smallest scalar product that two vectors have in any order of their entries; it
pairs one in ascending with the other in descending order, whatever the signs.

An item i at location k pays at least the smallest scalar product of what leaves i with what leaves k, the diagonals
apart, and the items take different locations, so that an assignment problem bounds the cost [1]_:

.. math:: z(\pi) \ge \min_\sigma \sum_i \ell_{i \sigma_i}, \qquad
    \ell_{ik} = f_{ii} d_{kk} + \langle f_{i \cdot}, d_{k \cdot} \rangle_-. \tag{1}

The cost is the same with both matrices transposed, and if one of them is symmetric, with both replaced by their means
with their transposes:

.. math:: z(\pi) = \sum_{i, j} f_{ji} \, d_{\pi_j \pi_i}
    = \sum_{i, j} \tfrac12 (f_{ij} + f_{ji}) \, \tfrac12 (d_{\pi_i \pi_j} + d_{\pi_j \pi_i})
    \text{ if } f = f^T \text{ or } d = d^T. \tag{2}

References
----------
.. [1] Gilmore, P.C. (1962). Optimal and suboptimal algorithms for the quadratic assignment problem. Journal of
       SIAM 10: 305-313. Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
"""

import math

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Floats
from taut.formulations.assignment.assignment import QuadraticAssignment


def gilmore_lawler(problem: QuadraticAssignment) -> float:
    """
    Bound the cost of every permutation from below by the assignment problem (1).

    ``problem``: flow and distance (n, n), of any sign. Returns bound, in the unit of flow times distance. If all data
    are integers it is rounded up to an integer, and to an even one if both matrices are symmetric with zero diagonals.
    What rounding errors may add is taken off.

    Notes
    -----
    O(n^3). If no matrix is symmetric, (1) is taken over rows and, by (2), over columns, and the larger value counts.
    Weak where the flow is dense.
    """
    flow, distance = problem.flow, problem.distance
    symmetric = [np.array_equal(matrix, matrix.T) for matrix in (flow, distance)]
    if any(symmetric):
        bound = _row_bound((flow + flow.T) / 2, (distance + distance.T) / 2)
    else:
        bound = max(_row_bound(flow, distance), _row_bound(flow.T, distance.T))
    bound -= _rounding(problem)
    if problem.integral:
        step = 2 if all(symmetric) and not flow.diagonal().any() and not distance.diagonal().any() else 1
        bound = float(step * math.ceil((bound - 1e-6) / step))
    return max(bound, 0.0) if flow.min() >= 0 and distance.min() >= 0 else bound


def _row_bound(flow: Floats, distance: Floats) -> float:
    """Value of the assignment problem (1), up to rounding errors."""
    size = len(flow)
    others = ~np.eye(size, dtype=bool)
    rising = np.sort(flow[others].reshape(size, size - 1), axis=1)
    falling = np.sort(distance[others].reshape(size, size - 1), axis=1)[:, ::-1]
    least = rising @ falling.T + np.outer(flow.diagonal(), distance.diagonal())
    return float(least[linear_sum_assignment(least)].sum())


def _rounding(problem: QuadraticAssignment) -> float:
    """Most that rounding errors can add to (1): nothing on integers that floats hold exactly."""
    size, largest = problem.size, float(np.abs(problem.distance).max())
    scale = float(np.abs(problem.flow).sum(axis=1).max()) * largest
    if problem.integral and 4 * size**2 * scale < 2**52:
        return 0.0
    # The assignment comes from n augmentations, each of which adds up to n entries to each of 2 n dual values.
    return 8 * size**3 * float(np.finfo(np.float64).eps) * scale
