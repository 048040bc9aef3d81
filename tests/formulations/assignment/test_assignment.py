"""
Tests of the quadratic assignment problem's statement.

Tests of the grid that holds every cost.
"""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import FormulationError
from taut.formulations.assignment import QuadraticAssignment, cost_grid
from tests.support.assignments import KINDS, nug12, random_assignment


def test_cost_of_a_hand_computed_instance() -> None:
    """An asymmetric instance with filled diagonals is priced entry by entry."""
    problem = QuadraticAssignment(np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]]))
    # 1 * 5 + 2 * 6 + 3 * 7 + 4 * 8 = 5 + 12 + 21 + 32 = 70.
    assert problem.cost((0, 1)) == 70.0
    # d after the swap is [[8, 7], [6, 5]]: 1 * 8 + 2 * 7 + 3 * 6 + 4 * 5 = 8 + 14 + 18 + 20 = 60.
    assert problem.cost(np.array([1, 0])) == 60.0


def test_permutation_gives_the_location_of_each_item() -> None:
    """Flow from item 0 to item 1 travels from location p[0] to location p[1]."""
    flow, distance = np.zeros((3, 3)), np.zeros((3, 3))
    flow[0, 1] = 2.0
    distance[2, 0] = 7.0
    problem = QuadraticAssignment(flow, distance)
    # Only p with p[0] = 2 and p[1] = 0 pays: 2 * 7 = 14.
    assert [problem.cost(p) for p in permutations(range(3))] == [0.0, 0.0, 0.0, 0.0, 14.0, 0.0]


def test_one_item_pays_its_diagonal() -> None:
    """With one item and one location the cost is the product of the diagonals."""
    assert QuadraticAssignment(np.array([[-3.0]]), np.array([[0.5]])).cost([0]) == -1.5


@pytest.mark.parametrize(
    ("permutation", "message"),
    [
        ((0, 1), "shape (2,), expected (3,)"),
        ((0, 1, 2, 3), "shape (4,), expected (3,)"),
        ([[0, 1, 2]], "shape (1, 3), expected (3,)"),
        ((0, 1, 3), "location 3 does not exist"),
        ((0, 1, -1), "location -1 does not exist"),
        ((0, 1, 1), "location 1 is taken 2 times"),
        (np.array([0.0, 1.0, 2.0]), "holds float64, expected integers"),
    ],
)
def test_violations_name_what_is_wrong(permutation: list[int], message: str) -> None:
    """Whatever is not a permutation is named, and has no cost."""
    problem = QuadraticAssignment(np.eye(3), np.eye(3), "eye")
    violations = problem.violations(permutation)
    assert any(message in violation for violation in violations)
    with pytest.raises(FormulationError, match="eye: "):
        problem.cost(permutation)


def test_every_violation_is_named_and_a_permutation_has_none() -> None:
    """Two faults give two sentences, none gives none."""
    problem = QuadraticAssignment(np.eye(4), np.eye(4))
    assert problem.violations((3, 0, 2, 1)) == ()
    assert problem.violations((9, 0, 0, 1)) == ("location 9 does not exist", "location 0 is taken 2 times")


@pytest.mark.parametrize(
    ("flow", "distance", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 2)), "flow has shape (2, 3), expected (n, n) with n > 0"),
        (np.zeros((2, 2)), np.zeros(4), "distance has shape (4,)"),
        (np.zeros((0, 0)), np.zeros((0, 0)), "flow has shape (0, 0)"),
        (np.zeros((2, 2)), np.zeros((3, 3)), "flow is (2, 2) and distance (3, 3), expected equal sizes"),
        (np.full((2, 2), np.nan), np.zeros((2, 2)), "flow has entries that are not finite real numbers"),
        (np.zeros((2, 2)), np.full((2, 2), -np.inf), "distance has entries that are not finite real numbers"),
        (np.zeros((2, 2)), np.full((2, 2), 1j), "distance has entries that are not finite real numbers"),
        (np.full((2, 2), 1e200), np.full((2, 2), 1e200), "the cost overflows"),
    ],
)
def test_refuses_what_is_no_instance(flow: np.ndarray, distance: np.ndarray, message: str) -> None:
    """Wrong shapes and numbers are refused with the name of the instance and of the matrix."""
    with pytest.raises(FormulationError) as error:
        QuadraticAssignment(flow, distance, "some")
    assert message in str(error.value)
    assert str(error.value).startswith("some: ")


def test_later_changes_of_the_arguments_have_no_effect() -> None:
    """The instance keeps copies, which nobody can write to."""
    flow = np.array([[0.0, 1.0], [1.0, 0.0]])
    problem = QuadraticAssignment(flow, flow)
    flow[0, 1] = 9.0
    # 1 * 1 + 1 * 1 = 2.
    assert problem.cost((0, 1)) == 2.0
    assert not problem.flow.flags.writeable
    assert flow.flags.writeable


def test_integral_means_both_matrices() -> None:
    """One fraction in either matrix is enough to lose it."""
    whole, half = np.array([[0.0, -2.0], [1.0, 0.0]]), np.array([[0.0, 0.5], [1.0, 0.0]])
    assert QuadraticAssignment(whole, whole).integral
    assert not QuadraticAssignment(whole, half).integral
    assert not QuadraticAssignment(half, whole).integral


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_cost_survives_relabelling(size: int, seed: int) -> None:
    """New names for items and locations change the permutation, not its cost."""
    rng = np.random.default_rng(seed)
    flow, distance = rng.integers(-9, 10, (2, size, size))
    items, locations, permutation = (rng.permutation(size) for _ in range(3))
    renamed = QuadraticAssignment(flow[np.ix_(items, items)], distance[np.ix_(locations, locations)])
    # Item i of the new instance is items[i] of the old; the old location k is argsort(locations)[k] of the new.
    moved = np.argsort(locations)[permutation[items]]
    assert renamed.cost(moved) == QuadraticAssignment(flow, distance).cost(permutation)


def test_symmetric_integers_have_even_steps() -> None:
    """Costs of nug12 are even: 494 stays, 493.5 and 494.1 are raised to 494 and 496."""
    grid = cost_grid(nug12())
    assert grid.step == 2
    assert [grid.raised(bound) for bound in (493.5, 494.0, 494.1)] == [494.0, 494.0, 496.0]


def test_common_factors_and_offsets_widen_the_step() -> None:
    """Flow 1 or 4 (differences of 3), distance 5 or 15 (differences of 10), symmetric: steps of 2 * 3 * 10 = 60."""
    flow = np.array([[0, 1, 4, 4], [1, 0, 1, 4], [4, 1, 0, 1], [4, 4, 1, 0]], dtype=float)
    distance = np.array([[0, 5, 15, 5], [5, 0, 5, 15], [15, 5, 0, 5], [5, 15, 5, 0]], dtype=float)
    problem = QuadraticAssignment(flow, distance)
    assert cost_grid(problem).step == 60
    assert {problem.cost(p) % 60 for p in permutations(range(4))} == {problem.cost(range(4)) % 60}


def test_equal_costs_have_step_zero_and_floats_have_none() -> None:
    """Constant flow without loops leaves one cost; fractions leave no grid."""
    constant = QuadraticAssignment(np.ones((3, 3)), np.arange(9.0).reshape(3, 3))
    assert (cost_grid(constant).step, cost_grid(constant).raised(-1.0)) == (0, 36.0)
    floats = cost_grid(QuadraticAssignment(np.full((2, 2), 0.5), np.ones((2, 2))))
    assert (floats.step, floats.raised(0.3)) == (None, 0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_cost_lies_on_the_grid(kind: str) -> None:
    """On 20 instances of every kind each permutation's cost is left as it is by raising it."""
    for seed in range(20):
        problem = random_assignment(kind, 1 + seed % 5, seed)
        grid = cost_grid(problem)
        assert all(grid.raised(cost) == cost for cost in map(problem.cost, permutations(range(problem.size))))
