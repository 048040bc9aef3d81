"""Tests of branch and bound on quadratic assignment and of the bounds before it, against every permutation."""

import math
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment import QuadraticAssignment, cost_grid
from taut.solver.qap.branch_and_bound import BranchAndBound, cutoff
from taut.solver.qap.hahn_grant import lawler_form, scale_of
from taut.solver.qap.quadratic import PrimalDual, prove, root_bounds
from tests.support.assignments import KINDS, nug12, random_assignment
from tests.support.blocks import blocks

pytestmark = pytest.mark.proof

EXTREMES = ["no flow", "constant", "unlike units", "huge"]


@cache
def _every(size: int) -> Ints:
    """All permutations, one a row."""
    return np.array(list(permutations(range(size))), dtype=np.int64)


def _costs(problem: QuadraticAssignment) -> Floats:
    """Cost of every permutation."""
    every = _every(problem.size)
    seen: Floats = problem.distance[every[:, :, None], every[:, None, :]]
    return np.tensordot(seen, problem.flow, axes=2)


def _instance(kind: str, size: int, seed: int) -> QuadraticAssignment:
    """Random instance of any kind, extremes included."""
    rng = np.random.default_rng([seed, size])
    if kind == "no flow":
        return QuadraticAssignment(np.zeros((size, size)), rng.random((size, size)))
    if kind == "constant":
        return QuadraticAssignment(np.full((size, size), 3.0), rng.integers(-5, 5, (size, size)).astype(float))
    if kind == "unlike units":
        return QuadraticAssignment(1e-9 * rng.random((size, size)), 1e12 * rng.random((size, size)))
    if kind == "huge":
        return QuadraticAssignment(*rng.integers(0, 2**40, (2, size, size)).astype(float))
    return random_assignment(kind, size, seed)


@pytest.mark.parametrize("block", blocks(4))
@pytest.mark.parametrize("kind", [*KINDS, *EXTREMES])
def test_bounds_never_exceed_the_optimum_and_meet_it(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 100 instances of every kind, 1200 in all, each bound along the way is valid and the last one proves."""
    monkeypatch.setattr("taut.solver.qap.branch_and_bound._SMALL", 3)
    monkeypatch.setattr("taut.solver.qap.branch_and_bound._ROUNDS", 2)
    monkeypatch.setattr("taut.solver.qap.quadratic._WINDOW", 2)
    for seed in range(25 * block, 25 * block + 25):
        problem = _instance(kind, 2 + seed % 5, seed)
        costs = _costs(problem)
        # The same sum in another order may differ by units in the last place, as long as it is no sum of integers.
        optimum = float(costs.min()) + (0.0 if problem.integral and kind != "huge" else 1e-13 * np.abs(costs).max())
        first = _every(problem.size)[seed % len(costs)]
        proof = PrimalDual(lower_bound=-math.inf, source="none", best=first)
        for root in root_bounds(problem, first):
            assert proof.lower_bound <= root.lower_bound <= optimum, (kind, seed)
            proof = root
        for known in prove(problem, proof, seed):
            assert proof.lower_bound <= known.lower_bound <= optimum, (kind, seed)
            proof = known
        objective = problem.cost(proof.best)
        assert objective == pytest.approx(costs.min(), rel=1e-7, abs=1e-7 * np.abs(costs).max())
        assert proof.lower_bound >= objective - 1e-7 * np.abs(costs).max()


@pytest.mark.parametrize("kind", [*KINDS, "constant"])
def test_tree_corrects_a_bad_incumbent(kind: str) -> None:
    """From the dearest permutation of eight items the tree alone finds the cheapest one."""
    problem = random_assignment(kind, 7, 3) if kind != "constant" else _instance(kind, 7, 3)
    costs = _costs(problem)
    worst, scale = _every(7)[np.argmax(costs)], scale_of(problem)
    pairs = lawler_form(problem, scale)
    tree = BranchAndBound(problem, pairs, scale, worst, pairs.constant, 0)
    while not tree.done:
        tree.step()
    assert tree.objective == pytest.approx(costs.min(), rel=1e-9)
    assert tree.bound <= costs.min() + 1e-9 * abs(costs.min())


def test_order_of_work_is_that_of_the_seed() -> None:
    """The same incumbent and seed give the same bounds, node by node; they rise to the optimum 578 of nug12."""

    def bounds() -> list[float]:
        scale = scale_of(nug12())
        costs = lawler_form(nug12(), scale)
        tree = BranchAndBound(nug12(), costs, scale, np.arange(12), costs.constant, 5)
        found = [tree.bound]
        while not tree.done:
            tree.step()
            found.append(tree.bound)
        return found

    first = bounds()
    assert first == bounds()
    assert first == sorted(first)
    # The objective is a whole and even number, so that any bound above 576 proves 578.
    assert 576.0 < first[-1] <= 578.0
    # Which bound of the portfolio has the next turn is a matter of time; all of them rise to the optimum.
    portfolio = [proof.lower_bound for proof in prove(nug12(), next(root_bounds(nug12(), np.arange(12))), 5)]
    assert portfolio == sorted(portfolio)
    assert portfolio[-1] == 578.0


def test_memory_limit_changes_the_order_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where open nodes may hold no memory at all the tree goes depth first and proves the same."""
    monkeypatch.setattr("taut.solver.qap.branch_and_bound._MOST_BYTES", 0)
    proof = next(root_bounds(nug12(), np.arange(12)))
    for known in prove(nug12(), proof, 5):
        proof = known
    assert (proof.lower_bound, nug12().cost(proof.best)) == (578.0, 578.0)


def test_cutoff_is_one_step_below_the_incumbent() -> None:
    """A better permutation of nug12 costs at most 578 - 2 = 576, on the scale of the pair costs."""
    problem = nug12()
    scale = scale_of(problem)
    # 4 * 12^2 * 10 * 5 = 28800 < 2^15, so that the scale is 2^(46 - 15).
    assert scale == 2.0**31
    assert cutoff(problem, cost_grid(problem), scale, 578.0) == 576.0 * scale


@pytest.mark.parametrize("kind", ["integers", "signed floats"])
def test_pair_costs_price_every_permutation(kind: str) -> None:
    """Constant, single and pair costs sum to the scaled cost of every permutation, rounded down by a few units."""
    problem = random_assignment(kind, 5, 2)
    scale = scale_of(problem)
    pairs = lawler_form(problem, scale)
    assert min(pairs.linear.min(), pairs.quadratic.min()) >= 0
    for places in _every(5):
        rows = np.arange(5) * 5 + places
        total = (
            pairs.constant + pairs.linear.ravel()[rows].sum() + np.triu(pairs.quadratic[np.ix_(rows, rows)], 1).sum()
        )
        assert -100.0 <= total - scale * problem.cost(places) <= 1.0
        if kind == "integers":
            assert total == scale * problem.cost(places)
