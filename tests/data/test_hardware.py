"""The catalog's hardware: figures of a GPU, a pair and a node agree with each other and with the page listing them."""

import re
from pathlib import Path

import pytest

from taut.data.catalog.builtin import catalog_clusters
from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "clusters.md"
LISTED = re.compile(
    r"^\| `(?P<name>\S+)` \| (?P<gpus>\d+) (?P<device>\S+) "
    r"\| (?P<inside>\d+) Gb/s \| (?P<pair>\d+) Gb/s \| (?P<cards>\d+) Gb/s \|$",
    re.MULTILINE,
)


def listed() -> list[re.Match[str]]:
    return list(LISTED.finditer(PAGE.read_text(encoding="utf-8")))


def test_the_page_lists_the_systems_of_today() -> None:
    """NVIDIA's systems of 8 GPUs and of racks as one NVLink domain, and the instances of two clouds, have a line."""
    names = {line["name"] for line in listed()}
    assert {"dgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72", "gb300-nvl64"} <= names
    assert {"p4d.24xlarge", "p5.48xlarge", "g5.48xlarge", "g6e.48xlarge", "a3-highgpu-8g", "a3-megagpu-8g"} <= names


@pytest.mark.parametrize("line", listed(), ids=lambda line: line["name"])
def test_the_page_states_the_catalogs_figures(line: re.Match[str]) -> None:
    """GPUs, device and the three rates of a listed system are those of the catalog."""
    cluster = load_cluster(line["name"])
    (node,) = cluster.nodes
    assert (node.gpus_per_node, node.device.name) == (int(line["gpus"]), line["device"])
    rates = node.intra_bandwidth_gbps, cluster.network.bandwidth_gbps, node.nic_bandwidth_gbps
    assert rates == tuple(float(line[column]) for column in ("inside", "pair", "cards"))


def one_node() -> list[ClusterSpec]:
    return [cluster for cluster in catalog_clusters().values() if cluster.num_nodes == 1]


@pytest.mark.parametrize("cluster", one_node(), ids=lambda cluster: cluster.name)
def test_cards_of_a_node_carry_whole_pairs(cluster: ClusterSpec) -> None:
    """All cards of a node together are a whole number of times what one pair can use."""
    cards, pair = cluster.nodes[0].nic_bandwidth_gbps, cluster.network.bandwidth_gbps
    assert cards is None or (pair is not None and cards % pair == 0)


def test_a_rack_is_one_node_and_can_be_repeated_or_used_in_part() -> None:
    """An NVL72 is a node of 72 GPUs; a count repeats racks; 64 of the 72 have cards of their own."""
    racks, part = load_cluster("gb200-nvl72:8"), load_cluster("gb200-nvl64:2")
    assert (racks.num_nodes, racks.num_devices, part.num_devices) == (8, 576, 128)
    for cluster in (racks, part):
        cards = cluster.nodes[0].nic_bandwidth_gbps
        assert cards is not None and cards / cluster.nodes[0].gpus_per_node == racks.network.bandwidth_gbps


@pytest.mark.parametrize("name", sorted(catalog_devices()))
def test_rates_are_without_sparsity(name: str) -> None:
    """A format of half the width runs twice as fast in tensor cores: a sparse figure among dense ones would show."""
    peaks = catalog_devices()[name].peak_tflops
    half = peaks.get("bf16") or peaks.get("fp16")
    if half is not None and "fp8" in peaks:
        assert peaks["fp8"] / half == pytest.approx(2, rel=0.02)
    if "bf16" in peaks and "fp16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
