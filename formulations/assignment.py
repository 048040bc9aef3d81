r"""
Quadratic assignment after Koopmans and Beckmann: items go to locations, and pairs of items pay for distance.

Sets
    Items and locations, both :math:`0, \dots, n - 1`.

Data
    - :math:`f_{ij}`: flow from item i to item j, for instance in bytes per step.
    - :math:`d_{kl}`: distance from location k to location l, for instance in seconds per byte.

    Either may be asymmetric, negative, and non-zero on its diagonal.

Variables
    :math:`\pi`: location :math:`\pi_i` of every item i.

Objective
    In the unit of flow times distance,

    .. math:: \min_\pi \sum_{i, j} f_{ij} \, d_{\pi_i \pi_j}. \tag{1}

Constraints
    .. math:: \pi \text{ is a permutation of } 0, \dots, n - 1. \tag{2}

Costs of integers lie on a grid. Write every off-diagonal flow as :math:`f_{ij} =
f_0 + a h_{ij}` and every off-diagonal distance as :math:`d_{kl} = d_0 + b e_{kl}`, with integers h and e and the
greatest a and b that allow it, and likewise the diagonals with a' and b'. Then

.. math:: \sum_{i, j} f_{ij} d_{\pi_i \pi_j} = \text{constant}
    + a b \sum_{i \ne j} h_{ij} e_{\pi_i \pi_j} + a' b' \sum_i h'_i e'_{\pi_i}, \tag{3}

since sums over all pairs of f_0 or d_0 times the rest do not depend on the permutation. All costs are therefore equal
modulo :math:`\gcd(a b, a' b')`, (4); if both matrices are symmetric every pair counts twice and a b is
doubled, (5). A lower bound may be raised to the next value that is equal to the cost of any one permutation modulo
this step.

References
----------
.. [1] Koopmans, T.C. and Beckmann, M. (1957). Assignment problems and the location of economic activities.
       Econometrica 25: 53-76.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Floats
from taut.errors import FormulationError


@dataclass(frozen=True, slots=True, eq=False)
class QuadraticAssignment:
    """
    An instance of the quadratic assignment problem.

    Parameters
    ----------
    flow, distance
        Flow between items and distance between locations, (n, n) each; both are copied.
    name
        What to call the instance in messages.

    Raises
    ------
    FormulationError
        If a matrix is not square, empty or not of finite real numbers, sizes differ, or (1) would overflow.
    """

    flow: Floats
    distance: Floats
    name: str = "quadratic assignment"

    def __post_init__(self) -> None:
        object.__setattr__(self, "flow", _square(self.flow, f"{self.name}: flow"))
        object.__setattr__(self, "distance", _square(self.distance, f"{self.name}: distance"))
        if self.flow.shape != self.distance.shape:
            sizes = f"flow is {self.flow.shape} and distance {self.distance.shape}"
            raise FormulationError(f"{self.name}: {sizes}, expected equal sizes")
        largest = [float(np.abs(matrix).max()) for matrix in (self.flow, self.distance)]
        if self.size**2 * largest[0] * largest[1] > np.finfo(np.float64).max / 16:
            raise FormulationError(f"{self.name}: entries up to {largest[0]:g} and {largest[1]:g}, the cost overflows")

    @property
    def size(self) -> int:
        """Number n of items and of locations."""
        return len(self.flow)

    @property
    def integral(self) -> bool:
        """Whether every flow and every distance is an integer, and so every cost."""
        return all(bool(np.all(matrix == np.rint(matrix))) for matrix in (self.flow, self.distance))

    def cost(self, permutation: Sequence[int] | npt.NDArray[np.integer]) -> float:
        """Price (1) of a permutation, the location of every item (n,); ``FormulationError`` where (2) is violated."""
        broken = self.violations(permutation)
        if broken:
            raise FormulationError(f"{self.name}: {broken[0]}")
        places = np.asarray(permutation)
        return float(np.sum(self.flow * self.distance[np.ix_(places, places)]))

    def violations(self, permutation: Sequence[int] | npt.NDArray[np.integer]) -> tuple[str, ...]:
        """How a permutation, the location of every item (n,) from zero on, violates (2), a sentence for each."""
        places = np.asarray(permutation)
        if places.shape != (self.size,):
            return (f"the permutation has shape {places.shape}, expected ({self.size},)",)
        if not np.issubdtype(places.dtype, np.integer):
            return (f"the permutation holds {places.dtype}, expected integers",)
        times = Counter(places.tolist())
        outside = [f"location {k} does not exist" for k in times if not 0 <= k < self.size]
        return (*outside, *(f"location {k} is taken {count} times" for k, count in times.items() if count > 1))


def _square(matrix: npt.ArrayLike, what: str) -> Floats:
    """Read-only copy of a matrix, which must be square, not empty, finite and real."""
    entries = np.asarray(matrix)
    if entries.ndim != 2 or entries.shape[0] != entries.shape[1] or entries.size == 0:
        raise FormulationError(f"{what} has shape {entries.shape}, expected (n, n) with n > 0")
    if entries.dtype.kind not in "biuf" or not np.all(np.isfinite(entries)):
        raise FormulationError(f"{what} has entries that are not finite real numbers")
    copy = entries.astype(np.float64)
    copy.setflags(write=False)
    return copy


_EXACT = 2.0**51  # Floats hold the integers up to four times this.


@dataclass(frozen=True, slots=True)
class CostGrid:
    """
    Values that a cost can have: their ``step`` (4), zero if all are equal, and one of them, ``anchor``.

    The step is None if data are not integers, or so large that floats do not hold every cost: any value is then
    possible.
    """

    step: int | None
    anchor: float

    def raised(self, bound: float) -> float:
        """The least value on the grid that is not below a lower bound; the bound itself where there is no grid."""
        if self.step is None or not math.isfinite(bound):
            return bound
        if self.step == 0:
            return self.anchor
        anchor = int(self.anchor)
        return float(anchor + self.step * math.ceil((Fraction(bound) - anchor) / self.step))


def cost_grid(problem: QuadraticAssignment) -> CostGrid:
    """The grid (4) that holds every cost, with the cost of the identity on it."""
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
