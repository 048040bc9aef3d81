"""Tests of the bound on sparse flow and of the constraint program on what it leaves, against every permutation."""

import math
from itertools import permutations

import numpy as np
import pytest

from taut.formulations.assignment import QuadraticAssignment, cost_grid
from taut.solver.qap.branch_and_bound import cutoff
from taut.solver.qap.forest_bound import (
    Bounded,
    Forest,
    Found,
    choices,
    forest_bounds,
    forest_of,
    is_sparse,
    least_places,
    slack_of,
    solutions,
)
from taut.solver.qap.quadratic import PrimalDual, place, prove
from tests.support.assignments import nug12
from tests.support.blocks import blocks

pytestmark = pytest.mark.proof

KINDS = ["path", "tree", "forest", "ring", "chords"]


def sparse_assignment(kind: str, size: int, seed: int) -> QuadraticAssignment:
    """At most n pairs with flow, in both directions or one; of any sign, fractional, with diagonals in some."""
    rng = np.random.default_rng([seed, size])
    flow = np.zeros((size, size))
    for item in range(1, size):
        if kind == "forest" and rng.random() < 0.3:
            continue
        above = item - 1 if kind in ("path", "ring") else rng.integers(item)
        flow[above, item], flow[item, above] = rng.integers(1, 9), rng.integers(9) * (seed % 2)
    if kind == "ring":
        flow[-1, 0] = rng.integers(1, 9)
    if kind == "chords":
        flow[0, -1] += 5.0
    distance = rng.integers(0, 20, (size, size)).astype(float)
    np.fill_diagonal(distance, 0.0)
    if seed % 3 == 0:
        flow += np.diag(rng.integers(0, 5, size))
        distance += np.diag(rng.integers(0, 9, size))
    if seed % 5 == 0:
        flow, distance = flow * rng.choice([-1, 1], (size, size)), distance - 5.0
    if seed % 7 == 0:
        flow, distance = flow * rng.random((size, size)), distance * rng.random((size, size))
    relabelled = rng.permutation(size)
    return QuadraticAssignment(flow[np.ix_(relabelled, relabelled)], distance, kind)


def forest_and_costs(problem: QuadraticAssignment) -> tuple[Forest, dict[tuple[int, ...], float]]:
    """The problem as a forest, and the cost of every permutation."""
    return forest_of(problem), {every: problem.cost(every) for every in permutations(range(problem.size))}


def bounded(forest: Forest, most: float) -> Bounded:
    """Where the ascent ends."""
    *_, last = forest_bounds(forest, most)
    return last


@pytest.mark.parametrize("block", blocks(10))
@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_exceeds_the_optimum(kind: str, block: int) -> None:
    """On 20 instances a block, 1000 in all, every bound of the ascent is valid, and permutations that meet it best."""
    for seed in range(20 * block, 20 * block + 20):
        forest, costs = forest_and_costs(sparse_assignment(kind, 2 + seed % 5, seed))
        least = min(costs.values())
        before = -math.inf
        for found in forest_bounds(forest, forest.scale * (least + 1.0)):
            assert before <= found.bound <= forest.scale * least + 1e-12 * abs(forest.scale * least)
            before = found.bound
        if found.permutation is not None and not forest.outside:
            assert costs[tuple(found.permutation)] == pytest.approx(least, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_slacks_sum_to_what_a_permutation_costs_above_the_bound(kind: str) -> None:
    """Of every permutation of six items: finite where it costs at most the limit, and exact on integers."""
    for seed in (1, 2, 3, 5, 7):
        problem = sparse_assignment(kind, 6, seed)
        forest, costs = forest_and_costs(problem)
        limit = math.floor(forest.scale * float(np.median(list(costs.values()))))
        slack = slack_of(forest, bounded(forest, limit).multipliers, limit)
        for places, cost in costs.items():
            total = slack.bound
            for i in forest.order:
                above = forest.parent[i]
                two = above if above < 0 else forest.parent[above]
                at = (places[two] if two >= 0 else places[above], places[above], places[i])
                total += slack.places[i][places[i]] if above < 0 else slack.places[i][at]
            for i, j, outside in forest.outside:
                total += outside[places[i], places[j]] - outside.min()
            if problem.integral and forest.scale * cost <= limit:
                assert total == forest.scale * cost
            assert total >= forest.scale * cost - 100.0


@pytest.mark.parametrize("block", blocks(10))
@pytest.mark.parametrize("kind", KINDS)
def test_constraint_program_finds_the_optimum_or_refutes_the_limit(kind: str, block: int) -> None:
    """From the dearest permutation on CP-SAT finds the best; below the best it finds none, and its bounds are valid."""
    for seed in range(4 * block, 4 * block + 4):
        problem = sparse_assignment(kind, 4 + seed % 3, seed)
        forest, costs = forest_and_costs(problem)
        least, every = min(costs.values()), np.ones(problem.size, dtype=bool)
        for known in (max(costs.values()), least):
            most = cutoff(problem, cost_grid(problem), forest.scale, known)
            slack = slack_of(forest, bounded(forest, most).multipliers, most)
            found = [*solutions(forest, slack, most, every, seed)] if slack.bound <= most else [Found(most + 1, None)]
            assert max(one.bound for one in found) <= forest.scale * least + 1e-9 * abs(forest.scale * least)
            places = found[-1].places
            assert (places is None) == (known <= least + 1e-7 * abs(least))
            if places is not None:
                assert problem.cost(places) == pytest.approx(least, rel=1e-7, abs=1e-7)


def test_more_pairs_than_items_are_no_sparse_flow() -> None:
    """nug12 has 47 pairs with flow."""
    assert not is_sparse(nug12())
    assert all(is_sparse(sparse_assignment(kind, 9, 1)) for kind in KINDS)


def test_bound_of_a_path_of_three_by_hand() -> None:
    """The path a - b - c on a triangle with sides 1, 2 and 4 costs 1 + 2; a twice beside b would cost 2."""
    distance = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])
    forest = forest_of(QuadraticAssignment(np.eye(3, k=1), distance))
    _, least, _ = least_places(forest.order, forest.parent, forest.linear, forest.quadratic, np.zeros(3))
    assert least == 2.0 * forest.scale
    assert 2.999 * forest.scale < bounded(forest, 10.0 * forest.scale).bound <= 3.0 * forest.scale


def test_pipelines_on_racks_are_proven() -> None:
    """
    Three pipelines of eight stages on three racks of eight, one link of them slow, cost 3 * 7 * 10.

    Distances are 10 inside, 50 outside; the slow link costs 90 in both directions and is avoided.
    """
    rack = np.arange(24) // 8
    distance = np.where(np.equal.outer(rack, rack), 10.0, 50.0)
    distance[0, 1] = distance[1, 0] = 90.0
    np.fill_diagonal(distance, 0.0)
    stage = np.arange(24) % 8
    flow = np.where((np.subtract.outer(stage, stage) == -1) & np.equal.outer(rack, rack), 1.0, 0.0)
    result = place(QuadraticAssignment(flow, distance), time_limit=30.0)
    assert (result.objective, result.lower_bound, result.status) == (210.0, 210.0, "optimal")


def test_a_tree_beyond_enumeration_is_solved_by_cp_sat() -> None:
    """On nine items CP-SAT's last bound is its permutation's cost, and that of branch and bound on a dense flow."""
    problem = sparse_assignment("tree", 9, 4)
    forest = forest_of(problem)
    most = cutoff(problem, cost_grid(problem), forest.scale, problem.cost(np.arange(9)))
    slack = slack_of(forest, bounded(forest, most).multipliers, most)
    assert choices(slack) > 100
    *_, found = solutions(forest, slack, most, np.ones(9, dtype=bool), 0)
    assert found.places is not None
    assert found.bound == forest.scale * problem.cost(found.places)
    # A constant distance to pay for every pair leaves the problem what it is, but its flow is dense.
    dense = QuadraticAssignment(problem.flow + 1.0, problem.distance)
    *_, proof = prove(dense, PrimalDual(lower_bound=-math.inf, source="none", best=np.arange(9)), 0)
    assert proof.lower_bound - problem.distance.sum() == problem.cost(found.places)


@pytest.mark.parametrize("kind", KINDS)
def test_no_time_gives_a_valid_result_and_enough_the_optimum(kind: str) -> None:
    """Nine items: with a limit of zero the bound is at most the optimum, and with ten seconds both are proven equal."""
    problem = sparse_assignment(kind, 9, 4)
    at_once, later = place(problem, time_limit=0.0), place(problem, time_limit=10.0)
    assert problem.violations(at_once.permutation) == ()
    assert at_once.lower_bound <= later.lower_bound == later.objective <= at_once.objective
    assert later.status == "optimal"
