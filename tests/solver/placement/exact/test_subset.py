"""Exact placement by subsets against all permutations."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.solver.placement.exact.subset import SecondPrice, SubsetSolver

pytestmark = pytest.mark.proof


def random_slots(seed: int) -> tuple[Floats, Floats, Ints, int, float]:
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


def ring_seconds(ring: Floats, starts: tuple[int, ...], weight: float) -> float:
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


def _value(hops: Floats, ring: Floats, slots: Ints, weight: float) -> float:
    longest = max(sum(hops[a, b] for a, b in pairwise(row)) for row in slots.tolist())
    return float(longest) + ring_seconds(ring, tuple(slots[:, 0].tolist()), weight)


def test_stopping_early_leaves_a_valid_bound() -> None:
    """After one start set the bound is at most the optimum and the value at least."""
    for seed in range(12):
        hops, ring, nodes, pp, weight = random_slots(seed)
        solver = SubsetSolver(hops, nodes, pp)
        rings = np.array([ring_seconds(ring, tuple(starts), weight) for starts in solver.start_sets])
        optimum = solver.solve(rings).seconds
        early = solver.solve(rings, most_pairs=0)
        assert early.lower_bound <= optimum + 1e-12
        assert early.seconds >= optimum - 1e-12


def test_the_larger_of_two_prices_is_minimised() -> None:
    """With a second price the value is the least, over start sets, of the larger price of the shortest pipelines."""
    for seed in range(24):
        hops, _, nodes, pp, _ = random_slots(seed)
        solver, rng = SubsetSolver(hops, nodes, pp), np.random.default_rng((seed, 1))
        ring, other = rng.uniform(0, 3, (2, len(solver.start_sets)))
        share = float(rng.uniform(0.3, 1.0))
        alone = np.where(np.eye(len(ring), dtype=bool), 0.0, 1e6)
        longest = np.array([solver.solve(rings).seconds for rings in alone])
        found = solver.solve(ring, second=SecondPrice(share, other))
        assert found.seconds == pytest.approx(np.maximum(longest + ring, share * longest + other).min(), rel=1e-12)
        assert found.lower_bound == found.seconds


def test_sixteen_equal_nodes_are_solved() -> None:
    """On equal links every placement is optimal: 3 hops of 1 s and the ring."""
    hops = np.ones((16, 16))
    solver = SubsetSolver(hops, np.arange(16), 4)
    found = solver.solve(np.full(len(solver.start_sets), 0.5))
    assert found.seconds == pytest.approx(3.5)
    assert found.lower_bound == pytest.approx(3.5)


def test_alike_slots_change_nothing() -> None:
    """Exchangeable slots as one kind have the value of slots taken one by one, on racks and nodes of several."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        pp, dp = [(2, 3), (3, 2), (4, 2), (3, 3), (2, 5), (5, 2), (4, 3)][seed % 7]
        kinds = rng.integers(0, int(rng.integers(1, 5)), pp * dp)
        kinds = np.unique(kinds, return_inverse=True)[1]
        hops, ring = rng.uniform(0.5, 2, (2, 4, 4))
        hops, ring = hops[np.ix_(kinds, kinds)], np.maximum(ring, ring.T)[np.ix_(kinds, kinds)]
        weight = float(rng.uniform(0, 2))
        found = []
        for slots in (kinds, np.arange(pp * dp)):
            solver = SubsetSolver(hops, slots, pp)
            rings = np.array([ring_seconds(ring, tuple(starts), weight) for starts in solver.start_sets])
            placed = solver.solve(rings)
            assert placed.lower_bound == placed.seconds
            assert _value(hops, ring, placed.slots, weight) == pytest.approx(placed.seconds, rel=1e-12)
            assert sorted(placed.slots.ravel().tolist()) == list(range(pp * dp))
            found.append(placed.seconds)
        assert found[0] == pytest.approx(found[1], rel=1e-12), seed


def test_many_slots_of_few_kinds() -> None:
    """Sixty-four nodes in four racks of 16, paths of eight: two racks more for some path, which starts in another."""
    rack = np.arange(64) // 16
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0)
    solver = SubsetSolver(hops, rack, 8)
    tight = np.array([len(set(rack[starts].tolist())) == 1 for starts in solver.start_sets])
    assert tight.sum() == 4
    found = solver.solve(np.where(tight, 0.0, 100.0))
    assert found.seconds == found.lower_bound == 5 * 1.0 + 2 * 4.0
    free = solver.solve(np.zeros(len(tight)))
    assert free.seconds == free.lower_bound == 7.0
