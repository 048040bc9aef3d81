"""Rates and latencies between sites, from levels and from matrices."""

from itertools import combinations

import numpy as np
import pytest

from taut.data.cluster import ClusterSpec
from taut.formulations.degrees import BlockShape
from taut.formulations.links import links
from taut.formulations.tables.block_traffic import block_link
from tests.support.small import cluster


def test_levels_give_one_site_per_node() -> None:
    """Inside 10 GB/s, between 1 GB/s; latencies in seconds."""
    found = links(cluster(2, 2, latency_us=50, intra_latency_us=3))
    assert found.by_node
    assert found.rate.dense().tolist() == [[10e9, 1e9], [1e9, 10e9]]
    assert found.latency.dense() == pytest.approx(np.array([[3e-6, 50e-6], [50e-6, 3e-6]]))
    assert found.site_of.tolist() == [0, 0, 1, 1]


def test_racks_override_the_network_inside() -> None:
    """Nodes of a rack use its figures where it states them, others the network's."""
    values = cluster(4, 1).model_dump()
    values["network"]["racks"] = [{"nodes": "0-1", "bandwidth_gbps": 16}, {"nodes": [2, 3], "latency_us": 7}]
    found = links(ClusterSpec.parse(values, "racks"))
    assert found.rate[0, 1] == 2e9
    assert found.rate[2, 3] == 1e9
    assert found.rate[1, 2] == 1e9
    assert found.latency[2, 3] == pytest.approx(7e-6)
    assert found.latency[0, 1] == 0.0


def test_node_matrix_keeps_the_nodes_own_figure_inside() -> None:
    """Row sends to column; the diagonal of the matrix is ignored."""
    found = links(cluster(2, 2, rows=[[99.0, 2.0], [0.5, 99.0]]))
    assert found.rate.dense().tolist() == [[10e9, 2e9], [0.5e9, 10e9]]


def test_device_matrix_gives_one_site_per_device() -> None:
    """A matrix with one row per device makes devices of a node distinguishable."""
    found = links(cluster(2, 2, rows=np.arange(1.0, 17.0).reshape(4, 4).tolist()))
    assert not found.by_node
    assert found.node_of_site.tolist() == [0, 0, 1, 1]
    assert found.rate[1, 2] == 7e9


def test_cards_cap_links_that_leave_a_node() -> None:
    """Rings divide a node's cards by its devices, pipeline transfers by the tensor group; inside nothing changes."""
    # Cards of 1 GB/s, two devices: rings 0.5 GB/s, tp = 1 transfers 1 GB/s, tp = 4 no more than the two devices.
    found = links(cluster(2, 2, nic_gbps=8))
    assert found.data_rate.dense().tolist() == [[10e9, 0.5e9], [0.5e9, 10e9]]
    assert found.pipeline_rate(1)[0, 1] == 1e9
    assert found.pipeline_rate(4)[0, 1] == 0.5e9


def test_hop_goes_there_and_back_unless_one_way() -> None:
    """A hop of 1 MB at 2 GB/s there and 0.5 GB/s back."""
    found = links(cluster(2, 1, rows=[[0.0, 2.0], [0.5, 0.0]]))
    assert found.hop_seconds(1, 1e6, both_ways=True)[0, 1] == pytest.approx(0.5e-3 + 2e-3)
    assert found.hop_seconds(1, 1e6, both_ways=False)[0, 1] == pytest.approx(0.5e-3)


def test_measured_latency_may_be_asymmetric_and_by_node_or_device() -> None:
    """By node the node's own latency holds inside; by device every pair has its own, and rates are repeated."""
    values = cluster(2, 2, intra_latency_us=3).model_dump()
    by_node = links(ClusterSpec.parse({**values, "latency_matrix": {"rows_us": [[9, 50], [70, 9]]}}, "c"))
    assert by_node.latency.dense() == pytest.approx(np.array([[3e-6, 50e-6], [70e-6, 3e-6]]))
    rows = np.arange(16.0).reshape(4, 4).tolist()
    by_device = links(ClusterSpec.parse({**values, "latency_matrix": {"rows_us": rows}}, "c"))
    assert not by_device.by_node
    assert by_device.latency[1, 2] == pytest.approx(6e-6)
    assert by_device.latency[2, 1] == pytest.approx(9e-6)
    assert by_device.rate.dense()[0].tolist() == [np.inf, 10e9, 1e9, 1e9]


def test_no_tensor_group_beats_the_best_of_its_node() -> None:
    """Pairs and whole nodes of measured devices are bounded by the best there is, other groups by no more than it."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = links(cluster(2, 5, rows=rng.uniform(0.1, 1, (10, 10)).tolist()))
        for tp in (2, 3, 4, 5):
            inverse, _ = found.best_groups(tp)
            for node in range(2):
                groups = np.array(list(combinations(range(5 * node, 5 * node + 5), tp)))
                best = np.min(block_link(found, groups, BlockShape(tp)).inverse)
                assert inverse[node] <= best
                assert tp in (3, 4) or inverse[node] == best


def test_no_tensor_group_on_several_nodes_beats_the_best() -> None:
    """Groups of two nodes, of interchangeable devices or measured ones, and the group of all four nodes."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for size in (4, 8):
            found = links(cluster(4, 2, rows=rng.uniform(0.1, 20, (size, size)).tolist()))
            pairs = np.array([[2 * a, 2 * a + 1, 2 * b, 2 * b + 1] for a, b in combinations(range(4), 2)])
            assert found.best_spanning_group(4)[0] == np.min(block_link(found, pairs, BlockShape(4)).inverse)
            assert found.best_spanning_group(8)[0] == block_link(found, np.arange(8), BlockShape(8)).inverse
