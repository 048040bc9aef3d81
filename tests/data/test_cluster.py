"""Clusters: nodes in order, links by level or measured, and what is refused."""

from typing import Any

import pytest

from taut.data.cluster import ClusterSpec
from taut.errors import DataError

DEVICE = {"name": "d", "memory_gib": 16, "peak_tflops": {"bf16": 100}, "memory_bandwidth_gbytes": 1000}
NODE: dict[str, Any] = {"count": 2, "device": DEVICE, "gpus_per_node": 4, "intra_bandwidth_gbps": 100}
VALUES: dict[str, Any] = {"name": "two", "nodes": [NODE], "network": {"bandwidth_gbps": 10, "latency_us": 5}}
NAN = float("nan")


def parse(**changes: Any) -> ClusterSpec:
    return ClusterSpec.parse({**VALUES, **changes}, "two.yaml")


def node(**changes: Any) -> list[dict[str, Any]]:
    return [{**NODE, **changes}]


def matrix(rows: list[list[float]], unit: str = "GB/s") -> dict[str, Any]:
    return {"unit": unit, "rows": rows}


def test_devices_are_counted_over_nodes_in_file_order() -> None:
    """Groups of nodes are unrolled in order, with their own sizes and device types."""
    other = {**DEVICE, "name": "e", "memory_gib": 32}
    cluster = parse(nodes=[NODE, {**NODE, "count": 3, "device": other, "gpus_per_node": 2}])
    assert (cluster.num_nodes, cluster.num_devices) == (5, 2 * 4 + 3 * 2)
    assert [group.device.name for group in cluster.node_list] == ["d", "d", "e", "e", "e"]
    assert list(cluster.devices) == ["d", "e"]


def test_racks_are_lists_or_ranges() -> None:
    """A rack names its nodes one by one, as a short list, or as a range, with rates of its own where it states them."""
    racks = [{"nodes": "0-2", "bandwidth_gbps": 50}, [3, 5], {"nodes": [4], "latency_us": 1}]
    network = {"bandwidth_gbps": 10, "racks": racks}
    cluster = parse(nodes=node(count=6), network=network)
    assert [rack.nodes for rack in cluster.network.racks] == [[0, 1, 2], [3, 5], [4]]
    assert [rack.bandwidth_gbps for rack in cluster.network.racks] == [50, None, None]


def test_matrix_is_measured_by_node_or_by_device() -> None:
    """The number of rows tells whether nodes or devices were measured; the network then needs no rate."""
    by_node = parse(bandwidth_matrix=matrix([[0, 1], [2, 0]]), network={})
    by_device = parse(bandwidth_matrix=matrix([[1.0] * 8] * 8), network={})
    assert not by_node.measured_by_device
    assert by_device.measured_by_device
    assert not parse().measured_by_device


def test_matrix_may_be_asymmetric_and_its_diagonal_is_ignored() -> None:
    """Row sends to column, so both directions are kept; nothing is asked of the diagonal but to be a number."""
    rows = [[0.0, 1.0], [2.0, -7.0]]
    cluster = parse(bandwidth_matrix=matrix(rows))
    assert cluster.bandwidth_matrix is not None
    assert cluster.bandwidth_matrix.rows == rows


def test_single_node_needs_no_network() -> None:
    """One node has no link to another, so no rate is asked for."""
    assert parse(nodes=node(count=1), network={}).num_devices == 4


def test_scaled_repeats_every_node() -> None:
    """A scaled cluster has more of the same nodes at the slowest stated network rate, without racks or matrix."""
    cluster = parse(bandwidth_matrix=matrix([[0, 1], [2, 0]])).scaled(4)
    assert (cluster.num_nodes, cluster.num_devices) == (8, 32)
    assert cluster.network.bandwidth_gbps == 10
    assert cluster.bandwidth_matrix is None
    assert cluster.network.racks == []
    assert cluster.name == "two x4"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": []}, "two.yaml: nodes: is an empty list, expected at least one node"),
        ({"network": {}}, "network.bandwidth_gbps: missing, expected with more than one node"),
        ({"network": {"bandwidth_gbps": 0}}, "network.bandwidth_gbps: is 0, expected to be greater than 0"),
        ({"network": {"bandwidth_gbps": -3}}, "network.bandwidth_gbps: is -3, expected to be greater than 0"),
        ({"network": {"bandwidth_gbps": NAN}}, "network.bandwidth_gbps: is nan, expected a finite number"),
        ({"network": {"bandwidth_gbps": 1, "latency_us": -1}}, "network.latency_us: is -1, expected"),
        ({"nodes": node(intra_bandwidth_gbps=0)}, r"nodes.0.intra_bandwidth_gbps: is 0, expected"),
        (
            {"nodes": node(intra_bandwidth_gbps=float("inf"))},
            r"nodes.0.intra_bandwidth_gbps: is inf, expected a finite",
        ),
        ({"nodes": node(nic_bandwidth_gbps=-1)}, r"nodes.0.nic_bandwidth_gbps: is -1, expected"),
        ({"nodes": node(gpus_per_node=0)}, r"nodes.0.gpus_per_node: is 0, expected"),
        ({"nodes": node(count=1.5)}, r"nodes.0.count: is 1.5, expected to be a valid integer"),
        ({"nodes": node(colour="red")}, "nodes.0.colour: unknown field"),
        ({"nodes": node(device={**DEVICE, "memory_gib": 0})}, "nodes.0.device.memory_gib: is 0, expected"),
        ({"nodes": node(device={**DEVICE, "memory_gib": 1e30})}, r"nodes.0.device.memory_gib: is 1e\+30, expected"),
        ({"nodes": node(device={**DEVICE, "gemm_efficiency": 1.5})}, "gemm_efficiency: is 1.5, expected"),
        ({"nodes": node(device={**DEVICE, "peak_tflops": {"int8": 1}})}, "peak_tflops.int8"),
        ({"colour": "red"}, "two.yaml: colour: unknown field"),
        ({"nodes": [NODE, {**NODE, "device": {**DEVICE, "memory_gib": 1}}]}, "'d' is described in two ways"),
    ],
)
def test_impossible_clusters_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    """The message names the file, the field, its value and what was expected."""
    with pytest.raises(DataError, match=words) as caught:
        parse(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0, 1, 1], [1, 0, 1], [1, 1, 0]], r"has 3 rows, expected 2 \(one per node\) or 8 \(one per device\)"),
        ([], "has 0 rows, expected 2"),
        ([[0, 1], [1]], "rows: row 1 has 1 entries, expected 2 as there are rows"),
        ([[0, 0], [1, 0]], "rows: row 0 column 1 is 0.0, expected a bandwidth > 0"),
        ([[0, 1], [-1, 0]], "rows: row 1 column 0 is -1.0, expected a bandwidth > 0"),
        ([[0, 1], [NAN, 0]], "rows.1.0: is nan, expected a finite number"),
        ([[0, "x"], [1, 0]], "rows.0.1: is 'x', expected to be a valid number"),
    ],
)
def test_impossible_matrices_are_refused(rows: list[list[float]], words: str) -> None:
    """A matrix is square, has a row per node or per device, and positive entries off the diagonal."""
    with pytest.raises(DataError, match=f"two.yaml: bandwidth_matrix.*{words}"):
        parse(bandwidth_matrix=matrix(rows))


def test_unknown_unit_is_refused() -> None:
    """A matrix says its unit in one of the known words."""
    with pytest.raises(DataError, match=r"bandwidth_matrix.unit: is 'furlongs', expected to be 'B/s', 'MB/s'"):
        parse(bandwidth_matrix=matrix([[0, 1], [1, 0]], unit="furlongs"))


@pytest.mark.parametrize(
    ("racks", "words"),
    [
        ([[0, 2]], "network.racks.0: node 2, expected below 2"),
        ([[0], [1, 0]], "network.racks.1: node 0, named twice"),
        ([[0, 0]], "network.racks.0: node 0, named twice"),
        ([{"nodes": "1-0"}], "network.racks.0.nodes: is '1-0', expected a list of node numbers or a range"),
        ([{"nodes": "a-b"}], "network.racks.0.nodes: is 'a-b', expected"),
        ([{"nodes": [0], "bandwidth_gbps": 0}], "network.racks.0.bandwidth_gbps: is 0, expected"),
        (7, "network.racks: is 7, expected to be a valid list"),
    ],
)
def test_impossible_racks_are_refused(racks: object, words: str) -> None:
    """Racks name existing nodes, each at most once."""
    with pytest.raises(DataError, match=words):
        parse(network={"bandwidth_gbps": 10, "racks": racks})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0, 1], [1]], "row 1 has 1 entries"),
        ([[0, -1], [1, 0]], "row 0 column 1 is -1"),
        ([[0, 1, 2], [1, 0, 2], [1, 2, 0]], "latency_matrix: has 3 rows"),
    ],
)
def test_wrong_latency_matrices_are_refused(rows: list[list[float]], words: str) -> None:
    """A ragged, negative or wrongly sized latency matrix is one line that names the entry or the size."""
    device = {"name": "d", "memory_gib": 1, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}
    node = {"count": 2, "device": device, "gpus_per_node": 2, "intra_bandwidth_gbps": 10}
    values = {"name": "c", "nodes": [node], "network": {"bandwidth_gbps": 1}, "latency_matrix": {"rows_us": rows}}
    with pytest.raises(DataError, match=words) as refusal:
        ClusterSpec.parse(values, "c.yaml")
    assert "\n" not in str(refusal.value)
