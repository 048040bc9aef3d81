"""Exact placement by subsets against all permutations."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from taut.solver.placement.subset import SubsetSolver


def random_slots(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], int, float]:
    """Hop seconds, ring seconds per pair, nodes, pp and ring weight of a random instance of 6 slots."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(6) if seed % 2 else np.repeat(np.arange(3), 2)
    hops, ring = rng.uniform(0.5, 2, (6, 6)), rng.uniform(0.5, 2, (6, 6))
    if seed % 3:
        hops = hops + hops.T
    ring = np.maximum(ring, ring.T)
    # Slots of one node are interchangeable.
    hops, ring = hops[np.ix_(nodes, nodes)], ring[np.ix_(nodes, nodes)]
    return hops, ring, nodes, int(rng.choice([2, 3, 6])), float(rng.uniform(0, 3))


def ring_seconds(ring: NDArray[np.float64], starts: tuple[int, ...], weight: float) -> float:
    pairs = [ring[a, b] for a in starts for b in starts if a != b]
    return weight * max(pairs, default=0.0)


@pytest.mark.parametrize("seed", range(24))
def test_subset_placement_is_exact(seed: int) -> None:
    """Value equals the best of all 720 placements, and the slots returned attain it."""
    hops, ring, nodes, pp, weight = random_slots(seed)
    solver = SubsetSolver(hops, nodes, pp)
    rings = np.array([ring_seconds(ring, tuple(starts), weight) for starts in solver.start_sets])
    found = solver.solve(rings)
    wanted = min(_value(hops, ring, np.array(order).reshape(-1, pp), weight) for order in permutations(range(6)))
    assert found.seconds == pytest.approx(wanted, rel=1e-12)
    assert found.lower_bound == found.seconds
    assert _value(hops, ring, found.slots, weight) == pytest.approx(wanted, rel=1e-12)
    assert sorted(found.slots.ravel().tolist()) == list(range(6))


def _value(hops: NDArray[np.float64], ring: NDArray[np.float64], slots: NDArray[np.int64], weight: float) -> float:
    longest = max(sum(hops[a, b] for a, b in pairwise(row)) for row in slots.tolist())
    return float(longest) + ring_seconds(ring, tuple(slots[:, 0].tolist()), weight)


def test_stopping_early_leaves_a_valid_bound() -> None:
    """After one start set the bound is at most the optimum and the value at least."""
    for seed in range(12):
        hops, ring, nodes, pp, weight = random_slots(seed)
        solver = SubsetSolver(hops, nodes, pp)
        rings = np.array([ring_seconds(ring, tuple(starts), weight) for starts in solver.start_sets])
        optimum = solver.solve(rings).seconds
        early = solver.solve(rings, most_sets=1)
        assert early.lower_bound <= optimum + 1e-12
        assert early.seconds >= optimum - 1e-12


def test_sixteen_equal_nodes_are_solved() -> None:
    """On equal links every placement is optimal: 3 hops of 1 s and the ring."""
    hops = np.ones((16, 16))
    solver = SubsetSolver(hops, np.arange(16), 4)
    found = solver.solve(np.full(len(solver.start_sets), 0.5))
    assert found.seconds == pytest.approx(3.5)
    assert found.lower_bound == pytest.approx(3.5)
