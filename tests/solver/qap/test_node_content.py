"""Bound of chains and rings on nodes: contents by enumeration, below every permutation, and where it is met."""

from itertools import permutations, product

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.formulations.assignment import QuadraticAssignment
from taut.solver.methods.quadratic_placement import ChainsAndRings, _border, _content, content_bound, node_classes
from taut.solver.qap.quadratic import place


def assignment(flow: ChainsAndRings, distance: Floats) -> QuadraticAssignment:
    """Chains there and back, rings from a replica to the next, position chain * pp + stage."""
    pp, dp = len(flow.rings), flow.chains
    matrix, position = np.zeros((pp * dp, pp * dp)), np.arange(pp * dp).reshape(dp, pp)
    matrix[position[:, :-1], position[:, 1:]] = matrix[position[:, 1:], position[:, :-1]] = flow.hops
    if dp > 1:
        matrix[position, np.roll(position, -1, axis=0)] += flow.rings
    return QuadraticAssignment(flow=matrix, distance=distance)


def nodes_apart(rng: np.random.Generator, rooms: list[int], *, uniform: bool) -> tuple[Floats, np.ndarray]:
    """Distances of slots on nodes, 1 to 2 inside and 3 to 6 between, and the node of every slot."""
    node_of = np.repeat(np.arange(len(rooms)), rooms)
    size = len(rooms)
    between = np.full((size, size), 4.0) if uniform else rng.uniform(3.0, 6.0, (size, size))
    inside = np.full(size, 1.0) if uniform else rng.uniform(1.0, 2.0, size)
    between[np.arange(size), np.arange(size)] = inside
    distance = between[np.ix_(node_of, node_of)]
    np.fill_diagonal(distance, 0.0)
    return distance, node_of


@pytest.mark.parametrize("seed", range(20))
def test_the_content_is_the_best_of_all(seed: int) -> None:
    """The shortest path finds the least border less prices among all contents."""
    rng = np.random.default_rng(seed)
    stages, chains, room = 4, 3, int(rng.integers(1, 7))
    hops, rings, prices = rng.uniform(0, 2, stages - 1), rng.uniform(0, 2, stages), rng.uniform(-1, 2, stages)
    found = _content(hops, rings, prices, room, chains)
    every = [np.array(each) for each in product(range(chains + 1), repeat=stages) if sum(each) == room]
    least = min(_border(hops, rings, each, chains) - prices @ each for each in every)
    assert found.sum() == room and found.max() <= chains
    assert _border(hops, rings, found, chains) - prices @ found == pytest.approx(least)


@pytest.mark.parametrize("seed", range(24))
def test_no_permutation_is_below_the_bound(seed: int) -> None:
    """Nodes of equal and of unequal room and rates, one or several chains, against all permutations."""
    rng = np.random.default_rng(seed)
    pp, dp, rooms = [(3, 2, [3, 3]), (2, 3, [2, 2, 2]), (6, 1, [2, 4]), (1, 6, [1, 2, 3]), (2, 3, [1] * 6)][seed % 5]
    flow = ChainsAndRings(dp, rng.uniform(0, 3, pp - 1), rng.uniform(0, 3, pp) * rng.integers(0, 2, pp))
    distance, node_of = nodes_apart(rng, rooms, uniform=seed % 2 == 0)
    problem = assignment(flow, distance)
    assert flow.total == pytest.approx(problem.flow.sum())
    least = min(problem.cost(np.array(each)) for each in permutations(range(pp * dp)))
    assert content_bound(flow, distance, node_of) <= least * (1 + 1e-9)


@pytest.mark.parametrize(("pp", "dp", "whole"), [(16, 8, False), (8, 16, True), (16, 8, True)])
def test_the_bound_is_met_at_the_size_of_the_papers(pp: int, dp: int, whole: bool) -> None:
    """128 positions on 16 nodes at two distances: a permutation is near the bound, rings of all stages or one."""
    hops, rings = np.full(pp - 1, 1.0), np.full(pp, 30.0) * (1.0 if whole else np.eye(pp)[0])
    flow = ChainsAndRings(dp, hops, rings)
    distance, node_of = nodes_apart(np.random.default_rng(0), [8] * 16, uniform=True)
    bound = content_bound(flow, distance, node_of)
    chain_by_chain, stage_by_stage = np.arange(pp * dp), np.arange(pp * dp).reshape(pp, dp).T.ravel()
    start = stage_by_stage if whole else chain_by_chain
    found = place(assignment(flow, distance), time_limit=5.0, bound=(bound, "contents"), start=start)
    assert found.lower_bound == pytest.approx(bound) and found.gap is not None and found.gap < 0.05


def test_one_node_and_no_flow_are_bounded() -> None:
    """All inside one node costs its distance; without flow the bound is 0; classes count nodes."""
    distance, node_of = nodes_apart(np.random.default_rng(0), [6], uniform=True)
    flow = ChainsAndRings(2, np.ones(2), np.ones(3))
    assert content_bound(flow, distance, node_of) == pytest.approx(flow.total)
    assert content_bound(ChainsAndRings(2, np.zeros(2), np.zeros(3)), distance, node_of) == 0.0
    two, nodes = nodes_apart(np.random.default_rng(0), [2, 2, 3], uniform=True)
    assert node_classes(two, nodes) == (1.0, [(2, 3.0, 2), (3, 3.0, 1)])
