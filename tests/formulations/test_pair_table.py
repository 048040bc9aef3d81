"""Figures by blocks of sites: they are those of the matrices, in all that is computed from them."""

import numpy as np
import pytest

from taut.formulations.links import Blocks, PairTable, links, slowest_pair
from taut.formulations.rings import ring_by_byte, ring_rates
from tests.support.racked import measured, racked


def test_a_site_has_a_figure_of_its_own() -> None:
    """Sites 0 and 2 are one block: 5 between them, 1 for either alone, and 7 or 8 towards site 1."""
    table = PairTable(Blocks(np.array([0, 1, 0])), np.array([[5.0, 7.0], [8.0, 9.0]]), np.array([1.0, 2.0]))
    assert table.dense().tolist() == [[1, 7, 5], [8, 2, 8], [5, 7, 1]]
    assert (2.0 * table + table.T).dense().tolist() == [[3, 22, 15], [23, 6, 23], [15, 22, 3]]
    assert table[np.array([0, 2]), np.array([2, 2])].tolist() == [5, 1]
    assert sorted(table.present().tolist()) == [5, 7, 8]
    assert table.by_site().tolist() == [1, 2, 1]


def test_arithmetic_takes_numbers_and_tables_alone() -> None:
    """A matrix has no place in a table of blocks."""
    with pytest.raises(TypeError):
        PairTable.of_matrix(np.ones((2, 2))) + np.ones((2, 2))


@pytest.mark.parametrize("seed", range(30))
def test_levels_give_the_figures_of_a_matrix(seed: int) -> None:
    """Rates, hops and rings of a cluster described by levels are those of the same cluster with matrices."""
    rng = np.random.default_rng(seed)
    spec = racked(rng, int(rng.integers(2, 9)))
    given, dense = links(spec), links(measured(spec))
    assert dense.rate.blocks.are_sites
    for table, matrix in (
        (given.rate, dense.rate),
        (given.data_rate, dense.data_rate),
        (given.ring_inverse, dense.ring_inverse),
        (given.same_node, dense.same_node),
        (given.hop_seconds(1, 1e6, both_ways=True), dense.hop_seconds(1, 1e6, both_ways=True)),
    ):
        np.testing.assert_allclose(table.dense(), matrix.dense(), rtol=1e-12)
    for tp in (4, 6):
        if tp <= 2 * given.num_nodes:
            assert given.best_spanning_group(tp) == pytest.approx(dense.best_spanning_group(tp))
    np.testing.assert_allclose(given.best_groups(2), dense.best_groups(2))
    sites = rng.integers(0, given.num_sites, (5, 4))
    for by_members in (False, True):
        one, other = (ring_by_byte(ring_rates(each, by_members=by_members), sites, sites) for each in (given, dense))
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_core_has_all_of_a_block_or_none() -> None:
    """Three members at 1 from each other and two others at 2 from all: 1 for three, 2 for four and five."""
    figures, copies = np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([3, 2])
    assert [slowest_pair(figures, k, copies) for k in (2, 3, 4, 5)] == [1, 1, 2, 2]
