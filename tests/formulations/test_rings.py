"""Ring factors: their closed forms, and the kernels' and evaluators' prices against each other."""

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.catalog.devices import catalog_device
from taut.data.cluster import ClusterSpec
from taut.formulations.links import PairTable, links
from taut.formulations.rings import RingRates, inside_factor, ring_by_byte, ring_factor, ring_rates, ring_steps
from taut.solver.placement.annealing import paths as path_prices


def test_factors_are_those_of_the_literature() -> None:
    """A ring of n members sends 2 (n - 1) / n of the message a link in 2 (n - 1) steps, two rings twice as much."""
    assert [ring_factor(n) for n in (1, 2, 4)] == [0.0, 1.0, 1.5]
    assert [inside_factor(n) for n in (1, 2, 4)] == [0.0, 2.0, 3.0]
    assert [ring_steps(n) for n in (1, 2, 4)] == [0, 2, 6]
    np.testing.assert_array_equal(ring_factor(np.array([1, 2, 4])), [0.0, 1.0, 1.5])
    np.testing.assert_array_equal(inside_factor(np.array([1, 2, 4])), [0.0, 2.0, 3.0])


@pytest.mark.parametrize("seed", range(20))
def test_compiled_ring_equals_the_evaluators(seed: int) -> None:
    """The compiled ring over random nodes of either stage, with cards or without, takes what the evaluator's takes."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 6))
    inverse = rng.uniform(0.1, 2.0, (nodes, nodes))
    inverse = np.maximum(inverse, inverse.T)
    paths, cards = rng.integers(0, nodes, (int(rng.integers(1, 8)), 2)), rng.uniform(0.0, 4.0, nodes) * (seed % 2)
    rates = RingRates(PairTable.of_matrix(inverse), cards)
    for x in range(2):
        members = np.ascontiguousarray(paths.T)
        slowest = path_prices.slowest_link(inverse, members, x)
        compiled = path_prices.ring_by_byte(inverse, cards, members, x, slowest, np.zeros(nodes, np.int64))
        wanted = float(ring_by_byte(rates, paths[:, x], paths[:, x]))
        assert compiled == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_cards_are_shared_by_rings_and_not_by_members() -> None:
    """
    Three members on a node and one on another, cards of 8 s per byte for a ring with one member, links of 1 s per byte.

    The lone member has 8 s per byte; two on either node have 4; without cards the link counts.
    """
    inverse, cards = np.array([[0.5, 1.0], [1.0, 0.5]]), np.array([8.0, 8.0])
    nodes = np.array([[0, 0, 0, 1], [0, 0, 1, 1]])
    uneven, even = ring_by_byte(RingRates(PairTable.of_matrix(inverse), cards), nodes, nodes)
    # 4 (g - 1) / g inside, and one ring of factor 1 between two nodes.
    assert uneven == pytest.approx(8 / 3 * 0.5 + 8.0)
    assert even == pytest.approx(2 * 0.5 + 4.0)
    assert ring_by_byte(RingRates(PairTable.of_matrix(inverse), 0 * cards), nodes[1], nodes[1]) == pytest.approx(
        2 * 0.5 + 1.0
    )


def test_ring_runs_through_the_cards_of_its_members() -> None:
    """
    Nodes of 8 devices with cards of 1600 Gb/s in two racks: 200 Gb/s for a pair inside a rack, 100 between racks.

    One member has 200 Gb/s, four have 800; to the other rack no ring gets more than a pair does. Without stated cards
    all rings have what a pair has.
    """
    group = {
        "count": 4,
        "device": catalog_device("a100-80gb"),
        "gpus_per_node": 8,
        "intra_bandwidth_gbps": 2400,
        "intra_latency_us": 1,
    }
    racks = [{"nodes": pair, "bandwidth_gbps": 200.0, "latency_us": 1.0} for pair in ([0, 1], [2, 3])]
    network = {"bandwidth_gbps": 100.0, "latency_us": 1.0, "racks": racks}
    near, far = np.array([[0] * 4 + [1] * 4]), np.array([[0] * 4 + [2] * 4])

    def between(nodes: Ints, **cards: float) -> float:
        cluster = ClusterSpec.parse({"name": "c", "nodes": [group | cards], "network": network}, "c")
        rates = ring_rates(links(cluster), by_members=True)
        whole = float(ring_by_byte(rates, nodes, nodes)[0])
        inside = inside_factor(int((nodes[0] == 0).sum())) / 300e9
        return 1 / (whole - inside) / 0.125e9

    assert between(near, nic_bandwidth_gbps=1600.0) == pytest.approx(800)
    assert between(near[:, [0, 4]], nic_bandwidth_gbps=1600.0) == pytest.approx(200)
    assert between(far, nic_bandwidth_gbps=1600.0) == pytest.approx(100)
    assert between(near) == pytest.approx(200)
