"""Least weights of walks that stop at so many nodes, against enumeration."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.solver.bounds.racks import FEW, least_walks, tree_edges


def by_enumeration(weights: Floats, stops: int) -> float:
    """Least weight of a path through any nodes, each step as the shortest walk between the two."""
    distances = np.minimum(weights, weights.T)
    for k in range(len(weights)):
        distances = np.minimum(distances, distances[:, k, None] + distances[k])
    every = permutations(range(len(weights)), stops)
    return min(float(sum(distances[a, b] for a, b in pairwise(path))) for path in every)


def random_weights(seed: int) -> tuple[Floats, Ints]:
    """Weights between two or three blocks of up to three nodes, some of them zero."""
    rng = np.random.default_rng(seed)
    copies = rng.integers(1, 4, int(rng.integers(2, 4)))
    weights = rng.uniform(0.0, 1.0, (len(copies), len(copies))) * (rng.random((len(copies), len(copies))) < 0.8)
    weights[np.diag(copies == 1)] = np.inf
    return weights, copies


@pytest.mark.parametrize("seed", range(30))
def test_few_nodes_have_their_least_walks(seed: int) -> None:
    """Up to nine nodes in blocks: the least walks that enumeration finds, weights of zero included."""
    weights, copies = random_weights(seed)
    each = np.repeat(np.repeat(weights, copies, axis=0), copies, axis=1)
    np.fill_diagonal(each, 0.0)
    found = least_walks(weights, copies)
    stops = range(2, min(len(each), 5) + 1)
    assert found[stops] == pytest.approx([by_enumeration(each, d) for d in stops], rel=1e-12, abs=1e-14)
    assert found[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(10))
def test_trees_bound_walks_from_below(seed: int) -> None:
    """The lightest edges of a spanning tree, which count for many nodes, are no more than the exact figure of few."""
    weights, copies = random_weights(seed)
    exact, tree = least_walks(weights, copies), tree_edges(weights, copies).cumsum()
    assert (tree <= exact[2:] * (1 + 1e-12) + 1e-14).all()


def test_many_nodes_are_bounded_by_a_tree() -> None:
    """Of more nodes than are enumerated, on a line with one long step, three stops take the two shortest steps."""
    at = np.cumsum([0.0, 5.0, *[1.0] * (FEW - 1)])
    found = least_walks(np.abs(at[:, None] - at), np.ones(len(at), np.int64))
    assert found[[2, 3, len(at)]] == pytest.approx([1.0, 2.0, at[-1]])
