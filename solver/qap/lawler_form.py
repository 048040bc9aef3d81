r"""
Lawler's form of quadratic assignment: costs of assignments and of pairs of assignments [1]_.

With :math:`x_{ik} = 1` where item i takes location k, every cost is, for a constant c,

.. math:: z = c + \sum_{i, k} \ell_{ik} x_{ik} + \sum_{\{(i, k), (j, l)\}} q_{ikjl} \, x_{ik} x_{jl},
    \qquad i \ne j, \; k \ne l, \tag{1}

at first with :math:`c = 0`, :math:`\ell_{ik} = f_{ii} d_{kk}` and :math:`q_{ikjl} = f_{ij} d_{kl} + f_{ji} d_{lk}`, one
entry for each unordered pair, held twice. Negative entries are avoided: every permutation pays for n single assignments
and n (n - 1) / 2 pairs, so that a constant may be moved from all of either to c. All of it is scaled by a power of two
S and rounded down to integers that floats hold exactly, with room for sums:

.. math:: 4 S n^2 \max_{i, j} |f_{ij}| \, \max_{k, l} |d_{kl}| \le 2^{46}. \tag{2}

Bounds on the rounded problem are then free of rounding errors, and :math:`z \ge L / S`, (3), for any bound L of it.
On data of integers that leave room for it nothing is rounded down, S times a cost is an integer.

Fixing item i at location k leaves a problem of one item less, with :math:`c + \ell_{ik}` for c and
:math:`\ell_{jl} + q_{ikjl}` for :math:`\ell_{jl}`, (4).

The bound of Gilmore and Lawler takes no ascent. Sets, data and the cost :math:`z(\pi)` of a permutation are those of
``taut.formulations.assignment``. Write :math:`\langle u, v \rangle_-` for the smallest scalar product that
two vectors have in any order of their entries; it pairs one in ascending with the other in descending order, whatever
the signs.

An item i at location k pays at least the smallest scalar product of what leaves i with what leaves k, the diagonals
apart, and the items take different locations, so that an assignment problem bounds the cost [2]_:

.. math:: z(\pi) \ge \min_\sigma \sum_i \ell_{i \sigma_i}, \qquad
    \ell_{ik} = f_{ii} d_{kk} + \langle f_{i \cdot}, d_{k \cdot} \rangle_-. \tag{5}

The cost is the same with both matrices transposed, and if one of them is symmetric, with both replaced by their means
with their transposes:

.. math:: z(\pi) = \sum_{i, j} f_{ji} \, d_{\pi_j \pi_i}
    = \sum_{i, j} \tfrac12 (f_{ij} + f_{ji}) \, \tfrac12 (d_{\pi_i \pi_j} + d_{\pi_j \pi_i})
    \text{ if } f = f^T \text{ or } d = d^T. \tag{6}

References
----------
.. [1] Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
.. [2] Gilmore, P.C. (1962). Optimal and suboptimal algorithms for the quadratic assignment problem. Journal of
       SIAM 10: 305-313. Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Floats
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.compiled import jit


class LawlerForm(NamedTuple):
    """The costs (1) of m items on m locations: c, l (m, m) and q (m^2, m^2) with (i, k) in row i m + k."""

    constant: float
    linear: Floats
    quadratic: Floats


def scale_of(problem: QuadraticAssignment) -> float:
    """Largest power of two S that keeps (2)."""
    largest = 4 * problem.size**2 * float(np.abs(problem.flow).max()) * float(np.abs(problem.distance).max())
    return 2.0 ** min(math.floor(46 - math.log2(largest)), 1000) if largest > 0 else 1.0


def is_exact(problem: QuadraticAssignment, scale: float) -> bool:
    """Whether S times every product of two entries is an integer, so that (1) is the cost itself."""
    return problem.integral and scale >= 1


def rounding(problem: QuadraticAssignment, scale: float) -> float:
    """Most that (1) falls below S times the cost of a permutation: two units for each product."""
    return 0.0 if is_exact(problem, scale) else 4.0 * problem.size**2


def lawler_form(problem: QuadraticAssignment, scale: float) -> LawlerForm:
    """A problem as (1), scaled by S and rounded down: 8 n^4 bytes of integers that are not negative; (3) holds."""
    size = problem.size
    less = 0.0 if is_exact(problem, scale) else 1.0
    flow, distance = problem.flow * scale, problem.distance
    linear = np.floor(np.outer(flow.diagonal(), distance.diagonal())) - less
    quadratic = np.empty((size, size, size, size))
    _fill(quadratic, flow.copy(), distance.copy(), less)
    least_single, least_pair = min(0.0, float(linear.min())), min(0.0, float(quadratic.min()))
    linear -= least_single
    # Entries with i = j or k = l are never read for what they are.
    quadratic -= least_pair
    constant = size * least_single + size * (size - 1) / 2 * least_pair
    return LawlerForm(constant, linear, quadratic.reshape(size * size, size * size))


@jit
def _fill(quadratic: Floats, flow: Floats, distance: Floats, less: float) -> None:
    """Fill q of (1), with zeros where i = j or k = l."""
    size = len(flow)
    for i in range(size):
        for k in range(size):
            for j in range(size):
                out, there, back = quadratic[i, k, j], flow[i, j], flow[j, i]
                if i == j:
                    out[:] = 0.0
                    continue
                for other in range(size):
                    out[other] = np.floor(there * distance[k, other]) + np.floor(back * distance[other, k]) - 2 * less
                out[k] = 0.0


@jit
def fix(linear: Floats, quadratic: Floats, item: int, location: int, less_single: Floats, less_paired: Floats) -> None:
    """Fill the costs of one item less, (4): the item at the location, the others in their order."""
    size = len(linear)
    fixed = quadratic[item * size + location]
    for i in range(size - 1):
        whole_i = i + (i >= item)
        for k in range(size - 1):
            whole_k = k + (k >= location)
            less_single[i, k] = linear[whole_i, whole_k] + fixed[whole_i * size + whole_k]
            row, out = quadratic[whole_i * size + whole_k], less_paired[i * (size - 1) + k]
            for j in range(size - 1):
                begin, whole = j * (size - 1), (j + (j >= item)) * size
                for other in range(location):
                    out[begin + other] = row[whole + other]
                for other in range(location, size - 1):
                    out[begin + other] = row[whole + other + 1]


def gilmore_lawler(problem: QuadraticAssignment) -> float:
    """
    Bound the cost of every permutation from below by the assignment problem (5).

    ``problem``: flow and distance (n, n), of any sign. Returns bound, in the unit of flow times distance. If all data
    are integers it is rounded up to an integer, and to an even one if both matrices are symmetric with zero diagonals.
    What rounding errors may add is taken off.

    Notes
    -----
    O(n^3). If no matrix is symmetric, (5) is taken over rows and, by (6), over columns, and the larger value counts.
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
    """Value of the assignment problem (5), up to rounding errors."""
    size = len(flow)
    others = ~np.eye(size, dtype=bool)
    rising = np.sort(flow[others].reshape(size, size - 1), axis=1)
    falling = np.sort(distance[others].reshape(size, size - 1), axis=1)[:, ::-1]
    least = rising @ falling.T + np.outer(flow.diagonal(), distance.diagonal())
    return float(least[linear_sum_assignment(least)].sum())


def _rounding(problem: QuadraticAssignment) -> float:
    """Most that rounding errors can add to (5): nothing on integers that floats hold exactly."""
    size, largest = problem.size, float(np.abs(problem.distance).max())
    scale = float(np.abs(problem.flow).sum(axis=1).max()) * largest
    if problem.integral and 4 * size**2 * scale < 2**52:
        return 0.0
    # The assignment comes from n augmentations, each of which adds up to n entries to each of 2 n dual values.
    return 8 * size**3 * float(np.finfo(np.float64).eps) * scale
