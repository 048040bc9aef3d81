"""The best links of clusters described by levels: those of the same clusters with matrices."""

import numpy as np
import pytest

from taut.formulations.links import links
from taut.formulations.rings import ring_factor, ring_rates
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.placement.exact.joint import slot_kinds
from tests.support.racked import measured, racked


@pytest.mark.parametrize("seed", range(30))
def test_blocks_give_the_bounds_of_a_matrix(seed: int) -> None:
    """Cores, hops and spanning trees by blocks of nodes are those of single nodes."""
    rng = np.random.default_rng(seed)
    spec = racked(rng, int(rng.integers(2, 10)))
    blocks, single = (
        BestLinks(each, ring_rates(each, by_members=seed % 2 == 0)) for each in (links(spec), links(measured(spec)))
    )
    for k in range(1, blocks.links.num_nodes + 1):
        assert blocks.core(k) == pytest.approx(single.core(k), rel=1e-12)
    for tp, message in ((1, 1e6), (2, 1e3)):
        assert blocks.hops(tp, message, True) == pytest.approx(single.hops(tp, message, True), rel=1e-12)
        np.testing.assert_allclose(blocks.tree(tp, message, True), single.tree(tp, message, True), rtol=1e-12)
        for alone in (False, True):
            found = [each.hops_before(tp, message, 2.0, 0.5, single=alone) for each in (blocks, single)]
            assert found[0] == pytest.approx(found[1], rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_have_the_kinds_of_their_nodes(seed: int) -> None:
    """Slots can be exchanged in a cluster described by levels as in the same one with a matrix."""
    rng = np.random.default_rng(seed)
    spec = racked(rng, int(rng.integers(2, 10)), kinds=1 + seed % 2)
    for tp in (1, 2):
        rates = links(spec), links(measured(spec))
        blocks, single = (slot_kinds(each, ring_rates(each, by_members=True), tp) for each in rates)
        assert (blocks is None) == (single is None)
        np.testing.assert_array_equal([] if blocks is None else blocks, [] if single is None else single)


@pytest.mark.parametrize("seed", range(30))
def test_some_numbers_of_nodes_tell_the_best_ring(seed: int) -> None:
    """The least ring over the telling numbers of nodes, of any members, is the least over all numbers."""
    rng = np.random.default_rng(seed)
    given = links(racked(rng, int(rng.integers(4, 10))))
    best = BestLinks(given, ring_rates(given, by_members=True))
    for dp in range(2, 2 * given.num_nodes + 1):
        numbers = range(-(-dp // 2), min(dp, given.num_nodes) + 1)
        telling = best.telling(dp, numbers)
        assert set(telling) <= set(numbers)
        for fullest in {-(-dp // k) for k in numbers}:
            rings = {k: ring_factor(k) * best.between(dp, k) for k in numbers if -(-dp // k) == fullest}
            assert min(rings.values()) == min(ring for k, ring in rings.items() if k in telling)
