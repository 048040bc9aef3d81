"""Nodes that lie near together, on a tree of switches whose clusters are known."""

import numpy as np

from taut.solver.placement.slots import fast_link_sets, linkage_order


def _tree(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pod of each of 24 nodes, in random order, and inverse rates: 1 in a leaf of 4, 2 in a pod of 8, else 4."""
    where = rng.permutation(24)
    leaf, pod = (np.equal.outer(where // size, where // size) for size in (4, 8))
    noise = np.triu(rng.uniform(0.9, 1.1, (24, 24)), 1)
    return where // 8, np.where(leaf, 1.0, np.where(pod, 2.0, 4.0)) * (noise + noise.T)


def test_pods_stand_together() -> None:
    """In the order of near nodes every pod is one stretch."""
    for seed in range(20):
        pod, inverse = _tree(np.random.default_rng(seed))
        ordered = pod[linkage_order(inverse)]
        assert (np.diff(ordered) != 0).sum() == 2, seed


def test_tight_sets_are_pods() -> None:
    """Sets of eight nodes with the fastest slowest link are the pods, best first, and of 24 all nodes."""
    for seed in range(20):
        pod, inverse = _tree(np.random.default_rng(seed))
        sets = fast_link_sets(inverse, 8)
        assert sorted(pod[nodes].tolist() for nodes in sets[:3]) == [[0] * 8, [1] * 8, [2] * 8]
        apart = ~np.eye(8, dtype=bool)
        slowest = [inverse[np.ix_(nodes, nodes)][apart].max() for nodes in sets]
        assert slowest == sorted(slowest)
        assert fast_link_sets(inverse, 24).tolist() == [list(range(24))]
        assert sorted(fast_link_sets(inverse, 1).tolist()) == [[v] for v in range(24)]
