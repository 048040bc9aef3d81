"""Tests of the convex quadratic bound and of the dual ascent on quadratic assignment."""

from itertools import islice

import numpy as np
import pytest

from taut.formulations.assignment import QuadraticAssignment
from taut.solver.qap.hahn_grant import ascent, gilmore_lawler, lawler_form, scale_of
from taut.solver.qap.quadratic import convex_bounds
from tests.support.assignments import KINDS, nug12, optimum, random_assignment

pytestmark = pytest.mark.proof


def test_convex_bound_of_nug12_rises_to_480() -> None:
    """Steps of Frank and Wolfe never lose, and end 17 % below the optimum of 578 (480 / 578 = 0.83)."""
    values = list(convex_bounds(nug12()))
    assert values == sorted(values)
    assert 478.0 <= values[-1] <= 481.0


@pytest.mark.parametrize("kind", ["symmetric", "half symmetric", "clones"])
def test_convex_bound_never_exceeds_the_optimum(kind: str) -> None:
    """On 60 instances of the kinds with a symmetric matrix every step is at most the least cost."""
    for seed in range(60):
        problem = random_assignment(kind, 3 + seed % 4, seed)
        assert max(convex_bounds(problem, 30), default=-np.inf) <= optimum(problem)


def test_convex_bound_needs_a_symmetric_matrix() -> None:
    """Without one there is no bound, and for two items neither."""
    assert list(convex_bounds(random_assignment("integers", 6, 0))) == []
    assert list(convex_bounds(QuadraticAssignment(np.ones((2, 2)), np.ones((2, 2))))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_ascent_never_exceeds_the_optimum(kind: str) -> None:
    """On 20 instances of every kind each of 40 bounds holds for all permutations if the cutoff is out of reach."""
    for seed in range(20):
        problem = random_assignment(kind, 2 + seed % 4, seed)
        scale, least = scale_of(problem), optimum(problem)
        bounds = [costs.constant / scale for costs in islice(ascent(lawler_form(problem, scale), 2.0**45, seed), 40)]
        assert max(bounds) <= least + 1e-12 * abs(least)


def test_ascent_beats_gilmore_and_lawler_on_nug12() -> None:
    """The first level of the reformulation-linearisation technique gives nug12 522.9 (optimum 578), the ascent 515."""
    problem = nug12()
    scale = scale_of(problem)
    best = max(costs.constant for costs in islice(ascent(lawler_form(problem, scale), 2.0**45, 1), 1000)) / scale
    assert gilmore_lawler(problem) < 512.0 < best < 522.9
