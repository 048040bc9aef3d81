"""Tests of the linear assignment kernel."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from taut.solver.qap.hahn_grant import reduce_costs, workspace


@pytest.mark.proof
def test_a_hand_computed_assignment() -> None:
    """Row minima 1, 2, 1 leave column minima 0, 0, 1, and a zero for every row: 5 in all."""
    # Rows (1 2 4), (2 5 3), (1 1 6) less their minima: (0 1 3), (0 3 1), (0 0 5); the third column less 1: 2, 0, 4.
    # Zeros at (0, 0), (1, 2), (2, 1): cost 1 + 3 + 1 = 5.
    costs = np.array([[1.0, 2.0, 4.0], [2.0, 5.0, 3.0], [1.0, 1.0, 6.0]])
    reals, marks = workspace(3)
    assert reduce_costs(costs, 3, reals, marks) == 5.0
    assert marks[0].tolist() == [0, 2, 1]


@pytest.mark.proof
def test_agrees_with_scipy_and_leaves_reduced_costs() -> None:
    """On 300 random integer matrices the value is scipy's, and what is left is non-negative, zero on the assignment."""
    rng = np.random.default_rng(4)
    for turn in range(300):
        size = 1 + turn % 12
        before = rng.integers(-20, 20 if turn % 2 else 2**44, (size, size)).astype(float)
        costs, (reals, marks) = before.copy(), workspace(size)
        value = reduce_costs(costs, size, reals, marks)
        rows, columns = linear_sum_assignment(before)
        assert value == before[rows, columns].sum()
        assert costs.min() >= 0
        assert not costs[np.arange(size), marks[0]].any()
        # What was taken away is a number for each row plus one for each column: no matrix of that form has curvature.
        taken = before - costs
        assert not (taken - taken[:1] - taken[:, :1] + taken[0, 0]).any()
