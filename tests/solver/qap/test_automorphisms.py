"""Tests of the symmetries of matrices."""

from itertools import permutations

import numpy as np
import pytest

from taut.solver.qap.branch_and_bound import AutomorphismGroup
from tests.support.assignments import KINDS, random_assignment


def _grid(rows: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Manhattan distances on a grid."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    distance = abs(np.subtract.outer(row, row)) + abs(np.subtract.outer(column, column))
    return distance.astype(np.float64)


@pytest.mark.proof
@pytest.mark.parametrize(("rows", "columns", "listed", "orbits"), [(3, 4, 4, 4), (3, 3, 8, 3), (1, 5, 2, 3)])
def test_grids_have_their_reflections(rows: int, columns: int, listed: int, orbits: int) -> None:
    """A rectangle has four symmetries, a square eight, a path two; corners, edges and middles are orbits."""
    symmetries = AutomorphismGroup(_grid(rows, columns))
    assert symmetries.listed == listed
    assert symmetries.orbit_representatives(np.array([], dtype=np.int64)).sum() == orbits


def test_hypercube_has_384() -> None:
    """Four bits can be inverted, 2^4, and exchanged, 4!; with one vertex fixed the orbits are the numbers of bits."""
    bits = np.array([[bin(i ^ j).count("1") for j in range(16)] for i in range(16)], dtype=np.float64)
    symmetries = AutomorphismGroup(bits)
    assert symmetries.listed == 384
    assert symmetries.orbit_representatives(np.array([], dtype=np.int64)).nonzero()[0].tolist() == [0]
    # One vertex of one, two, three and four bits each: 1, 3, 7, 15.
    assert symmetries.orbit_representatives(np.array([0])).nonzero()[0].tolist() == [1, 3, 7, 15]


def test_twins_are_not_listed_one_by_one() -> None:
    """Thirty equal indices have 30! symmetries, one of which keeps their order; the first free one stands for all."""
    symmetries = AutomorphismGroup(np.ones((30, 30)))
    assert symmetries.listed == 1
    assert symmetries.orbit_representatives(np.array([0, 3])).nonzero()[0].tolist() == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_representatives_are_one_of_each_orbit(kind: str) -> None:
    """On random matrices with few values, representatives agree with all permutations that leave the matrix alone."""
    for seed in range(20):
        matrix = np.sign(random_assignment(kind, 5, seed).distance)
        matrix = matrix + matrix.T if seed % 2 else matrix
        fixed = np.arange(seed % 3)
        group = [g for g in map(list, permutations(range(5))) if np.array_equal(matrix[np.ix_(g, g)], matrix)]
        staying = [g for g in group if all(g[i] == i for i in fixed)]
        first = {min(g[i] for g in staying) for i in range(len(fixed), 5)}
        assert set(AutomorphismGroup(matrix).orbit_representatives(fixed).nonzero()[0].tolist()) == first
