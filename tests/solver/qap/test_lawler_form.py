"""Tests of Gilmore and Lawler's bound on the quadratic assignment problem."""

import numpy as np
import pytest

from taut.formulations.assignment import QuadraticAssignment
from taut.solver.qap.hahn_grant import gilmore_lawler
from tests.support.assignments import KINDS, nug12, optimum, random_assignment


def test_bound_of_a_hand_computed_instance() -> None:
    """Gilmore and Lawler's bound on three items in a row, from the scalar products."""
    flow = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    distance = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]])
    # Rows without diagonals, f rising: (1, 5), (2, 5), (1, 2); d falling: (4, 1), (3, 1), (4, 3).
    # l = [[9, 8, 19], [13, 11, 23], [6, 5, 10]]. Least assignment: 9 + 11 + 10 = 30 (others 31, 8 + 13 + 10 = 31,
    # 19 + 11 + 6 = 36, 19 + 13 + 5 = 37, 9 + 23 + 5 = 37, 8 + 23 + 6 = 37).
    problem = QuadraticAssignment(flow, distance)
    assert gilmore_lawler(problem) == 30.0
    # The identity costs 2 (5 * 1 + 1 * 4 + 2 * 3) = 30, so the bound is tight.
    assert problem.cost((0, 1, 2)) == 30.0


def test_bound_on_integers_is_rounded_up_to_even() -> None:
    """On nug12 the assignment problem gives 493 or 494, and every cost is even."""
    assert gilmore_lawler(nug12()) == 494.0


@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_exceeds_theoptimum(kind: str) -> None:
    """On 48 random instances of every kind, 384 in all, the bound is at most the cost of every permutation."""
    for seed in range(48):
        problem = random_assignment(kind, 1 + seed % 6, seed)
        assert gilmore_lawler(problem) <= optimum(problem), (kind, seed)


def test_bound_is_tight_where_one_matrix_is_constant() -> None:
    """If all items exchange the same, every permutation costs the same and the bound says so."""
    distance = np.random.default_rng(1).integers(-9, 10, (7, 7)).astype(float)
    problem = QuadraticAssignment(np.ones((7, 7)), distance)
    assert gilmore_lawler(problem) == problem.cost(range(7)) == distance.sum()


def test_bound_of_huge_integers_stays_below() -> None:
    """Where floats no longer hold every integer, the bound gives way for the rounding errors."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        problem = QuadraticAssignment(*rng.integers(0, 2**45, (2, 5, 5)).astype(float))
        assert gilmore_lawler(problem) <= optimum(problem)
