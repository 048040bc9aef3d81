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

References
----------
.. [1] Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
"""

import math
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.assignment.assignment import QuadraticAssignment
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
    """
    Write a problem as (1), scaled and rounded down.

    ``problem``: flow and distance (n, n). Takes 8 n^4 bytes; ``scale``: power of two S. Returns integers, l and q not
    negative. Equation (3) holds for every bound on them.
    """
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
