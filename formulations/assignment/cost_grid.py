r"""
The grid on which the costs of a quadratic assignment of integers lie.

Write every off-diagonal flow as :math:`f_{ij} = f_0 + a h_{ij}` and every off-diagonal distance as
:math:`d_{kl} = d_0 + b e_{kl}`, with integers h and e and the greatest a and b that allow it, and likewise the
diagonals with a' and b'. Then

.. math:: \sum_{i, j} f_{ij} d_{\pi_i \pi_j} = \text{constant}
    + a b \sum_{i \ne j} h_{ij} e_{\pi_i \pi_j} + a' b' \sum_i h'_i e'_{\pi_i}, \tag{1}

since sums over all pairs of f_0 or d_0 times the rest do not depend on the permutation. All costs are therefore equal
modulo :math:`\gcd(a b, a' b')`, (2); if both matrices are symmetric every pair counts twice and a b is
doubled, (3). A lower bound may be raised to the next value that is equal to the cost of any one permutation modulo
this step.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.assignment.assignment import QuadraticAssignment

_EXACT = 2.0**51  # Floats hold the integers up to four times this.


@dataclass(frozen=True, slots=True)
class CostGrid:
    """
    Values that a cost can have.

    Parameters
    ----------
    step
        Difference (2) of neighbours. Zero if all permutations cost the same, None if the data are not integers or so
        large that floats do not hold every cost exactly: then any value is possible.
    anchor
        One of the values, in the unit of flow times distance.
    """

    step: int | None
    anchor: float

    def raised(self, bound: float) -> float:
        """
        Raise a lower bound to the next cost that is possible.

        ``bound``: valid lower bound, in the unit of flow times distance. Returns the least value on the grid that is
        not below the bound; the bound itself where there is no grid.
        """
        if self.step is None or not math.isfinite(bound):
            return bound
        if self.step == 0:
            return self.anchor
        anchor = int(self.anchor)
        return float(anchor + self.step * math.ceil((Fraction(bound) - anchor) / self.step))


def cost_grid(problem: QuadraticAssignment) -> CostGrid:
    """
    Find the grid (2) that holds every cost.

    ``problem``: flow and distance (n, n). Returns its step, and the cost of the identity on it.
    """
    anchor = problem.cost(range(problem.size))
    largest = float(np.abs(problem.flow).sum() * np.abs(problem.distance).max())
    entries = max(float(np.abs(matrix).max()) for matrix in (problem.flow, problem.distance))
    if not problem.integral or max(largest, entries) >= _EXACT:
        return CostGrid(None, anchor)
    pairs = _spacing(_off_diagonal(problem.flow)) * _spacing(_off_diagonal(problem.distance))
    loops = _spacing(problem.flow.diagonal()) * _spacing(problem.distance.diagonal())
    symmetric = all(np.array_equal(matrix, matrix.T) for matrix in (problem.flow, problem.distance))
    return CostGrid(math.gcd(2 * pairs if symmetric else pairs, loops), anchor)


def _spacing(entries: Floats) -> int:
    """Greatest integer that divides the differences of all entries, zero if they are equal."""
    if entries.size == 0:
        return 0
    return int(np.gcd.reduce((entries - entries[0]).astype(np.int64)))


def _off_diagonal(matrix: Floats) -> Floats:
    """Entries (n (n - 1),) apart from the diagonal."""
    kept: Floats = matrix[~np.eye(len(matrix), dtype=bool)]
    return kept
