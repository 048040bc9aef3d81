"""Tests of the grid that holds every cost."""

from itertools import permutations

import numpy as np
import pytest

from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.formulations.assignment.cost_grid import cost_grid
from tests.support.assignments import KINDS, nug12, random_assignment


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
