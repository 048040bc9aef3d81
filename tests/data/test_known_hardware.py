"""Figures that look like another unit are pointed out, and used as stated."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from taut.data.catalog.builtin import catalog_clusters
from taut.data.cluster import ClusterSpec
from taut.data.known_hardware import warn_of_units
from taut.data.load import load_cluster

FILE = """\
nodes: [{{count: 2, device: {device}, gpus_per_node: 8, intra_bandwidth_gbps: {intra}, nic_bandwidth_gbps: 400}}]
network: {{bandwidth_gbps: {network}}}
"""


def written(folder: Path, device: str, intra: float, network: float) -> str:
    path = folder / "mine.yaml"
    path.write_text(FILE.format(device=device, intra=intra, network=network), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("device", "intra", "network", "words"),
    [
        (
            "h100-80gb",
            450,
            400,
            "nodes.0.intra_bandwidth_gbps is 450, which looks like GB/s in one direction",
        ),
        ("h100-80gb", 900, 400, "is 900, which looks like GB/s of both directions: dgx-h100 has 3600 Gb/s"),
        ("a100-80gb", 4800, 200, "is 4800, which looks like Gb/s of both directions: dgx-a100 has 2400 Gb/s"),
        ("a100-80gb", 600, 200, "is 600, which looks like GB/s of both directions: dgx-a100 has 2400 Gb/s"),
        ("a100-80gb", 19200, 200, "is 19200, which looks like Gb/s of eight GPUs together"),
        ("gb200-186gb", 900, 400, "is 900, which looks like GB/s in one direction: gb200-nvl72 has 7200 Gb/s"),
        ("l40s-48gb", 32, 100, "is 32, which looks like GB/s in one direction: g6e.48xlarge has 256 Gb/s"),
        ("h100-80gb", 3600, 50, "network.bandwidth_gbps is 50, which looks like GB/s in one direction"),
    ],
)
def test_figures_of_data_sheets_are_pointed_out(
    tmp_path: Path, device: str, intra: float, network: float, words: str
) -> None:
    """GB/s for Gb/s, and both directions for one, warn in one line; the figure stays as it is."""
    with pytest.warns(UserWarning, match=words) as caught:
        cluster = load_cluster(written(tmp_path, device, intra, network))
    assert len(caught) == 1
    assert cluster.nodes[0].intra_bandwidth_gbps == intra


@pytest.mark.parametrize(("intra", "network"), [(3600, 400), (3600, 800), (3584, 200), (504, 100)])
def test_usual_and_other_rates_are_silent(tmp_path: Path, intra: float, network: float) -> None:
    """Faster and slower networks are somebody's hardware."""
    assert load_cluster(written(tmp_path, "h100-80gb", intra, network)).num_devices == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"memory_gib": 640},
            "device.memory_gib is 640, which looks like Gbit, or eight GPUs .* h100-80gb has 79.1 GiB",
        ),
        (
            {"host_link_gbytes": 126},
            "host_link_gbytes is 126, which looks like GB/s of both directions: h100-80gb has 63",
        ),
        ({"host_link_gbytes": 504}, "host_link_gbytes is 504, which looks like Gb/s: h100-80gb has 63 GB/s"),
        ({"memory_gib": 10}, "device.memory_gib is 10, which looks like an eighth"),
        ({"memory_gib": 81920}, "device.memory_gib is 81920, which looks like MB"),
        ({"memory_bandwidth_gbytes": 3350000}, "is 3.35e.06, which looks like MB/s"),
        ({"peak_tflops": {"bf16": 989000}}, "is 989000, which looks like GFLOP/s"),
        ({"memory_bandwidth_gbytes": 26800}, "looks like Gb/s, or eight GPUs together: h100-80gb has 3350 GB/s"),
        ({"memory_bandwidth_gbytes": 3.35}, "is 3.35, which looks like TB/s: h100-80gb has 3350 GB/s"),
        (
            {"peak_tflops": {"bf16": 1979}},
            "peak_tflops.bf16 is 1979, which looks like the rate with sparsity .* 989 TFLOP/s",
        ),
        ({"peak_tflops": {"bf16": 7916}}, "peak_tflops.bf16 is 7916, which looks like eight GPUs together"),
        ({"peak_tflops": {"bf16": 123.6}}, "peak_tflops.bf16 is 123.6, which looks like an eighth"),
        (
            {"peak_tflops": {"bf16": 989, "fp8": 3958}},
            "peak_tflops.fp8 is 3958, which looks like the rate with sparsity",
        ),
    ],
)
def test_figures_of_a_known_device_are_pointed_out(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """A device described in place under a known name is compared by the figures of one GPU."""
    with pytest.warns(UserWarning, match=words) as caught:
        load_cluster(described(tmp_path, change))
    assert len(caught) == 1


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "h100-94gb", "memory_gib": 94, "memory_bandwidth_gbytes": 3900},
        {"name": "h100-pcie", "memory_bandwidth_gbytes": 2000, "peak_tflops": {"bf16": 756}},
        {"name": "a100-80gb", "memory_bandwidth_gbytes": 2039, "peak_tflops": {"bf16": 312, "fp32": 156}},
        {"name": "cpu", "memory_gib": 32},
        {"name": "mine", "memory_gib": 640},
    ],
)
def test_variants_and_unknown_devices_are_silent(tmp_path: Path, change: dict[str, Any]) -> None:
    """Variants of a known GPU, TF32 rates in the place of fp32, and devices of other names are somebody's hardware."""
    assert load_cluster(described(tmp_path, change)).num_devices == 8


def described(folder: Path, change: dict[str, Any]) -> str:
    device = {"name": "h100-sxm", "memory_gib": 80, "peak_tflops": {"bf16": 989}, "memory_bandwidth_gbytes": 3350}
    node = {"device": {**device, **change}, "gpus_per_node": 8, "intra_bandwidth_gbps": 3000}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"nodes": [node]}), encoding="utf-8")
    return str(path)


def test_all_cards_in_the_place_of_one_pair_are_pointed_out(tmp_path: Path) -> None:
    """Eight cards of 400 Gb/s are no rate of one pair; a rack that states as much is taken to mean it."""
    path = tmp_path / "mine.yaml"
    node = "{count: 2, device: h100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 3600, nic_bandwidth_gbps: 3200}"
    path.write_text(f"nodes: [{node}]\nnetwork: {{bandwidth_gbps: 3200}}\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"network.bandwidth_gbps is 3200, .* all cards of a node: dgx-h100 has 400"):
        load_cluster(str(path))
    racks = "{bandwidth_gbps: 400, racks: [{nodes: 0-1, bandwidth_gbps: 3200}]}"
    path.write_text(f"nodes: [{node}]\nnetwork: {racks}\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_cluster(str(path)).num_devices == 16


def test_cards_of_a_node_in_bytes_are_pointed_out(tmp_path: Path) -> None:
    """All cards of a node are not an eighth of what one pair can use."""
    path = tmp_path / "mine.yaml"
    node = "{count: 2, device: h100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 3600, nic_bandwidth_gbps: 50}"
    path.write_text(f"nodes: [{node}]\nnetwork: {{bandwidth_gbps: 400}}\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"nodes\.0\.nic_bandwidth_gbps is 50, .*; expected .* of all cards of a node"):
        load_cluster(str(path))


def test_measured_links_are_silent() -> None:
    """Rates inside a node that nccl-tests or a matrix between devices measured are no figures of a data sheet."""
    node = {"device": "h100-80gb", "gpus_per_node": 2, "intra_bandwidth_gbps": 450}
    measured = {"bandwidth_matrix": {"unit": "Gb/s", "rows": [[0, 450], [450, 0]]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_units(ClusterSpec.parse({"name": "m", "nodes": [node], **measured}, "m"), "m")
        warn_of_units(ClusterSpec.parse({"name": "m", "nodes": [node], "source": "nccl-tests run"}, "m"), "m")
    with pytest.warns(UserWarning, match="is 450, which looks like GB/s"):
        warn_of_units(ClusterSpec.parse({"name": "m", "nodes": [node]}, "m"), "m")


def test_the_catalogs_clusters_are_silent() -> None:
    """No shipped cluster looks mistaken but the one whose source says that it takes both directions for one."""
    for name, cluster in catalog_clusters().items():
        if name != "pipette-high-end":
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warn_of_units(cluster, name)


def test_networks_between_racks_may_be_oversubscribed(tmp_path: Path) -> None:
    """With racks, the rate inside them is compared, and an eighth of it between them is silent."""
    path = tmp_path / "racks.yaml"
    path.write_text(
        "nodes:\n  - {count: 2, device: h100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 3600}\n"
        "network:\n  bandwidth_gbps: 50\n"
        "  racks: [{nodes: [0], bandwidth_gbps: 400}, {nodes: [1], bandwidth_gbps: 400}]\n",
        encoding="utf-8",
    )
    assert load_cluster(str(path)).num_nodes == 2


def test_measured_rates_inside_nodes_are_silent(tmp_path: Path) -> None:
    """A rate that was measured is what it is, though it be a quarter of a known one."""
    path = tmp_path / "measured.yaml"
    path.write_text(
        "source: measured pair by pair\n"
        "nodes:\n  - {count: 2, device: h100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 900}\n"
        "network: {bandwidth_gbps: 400}\n",
        encoding="utf-8",
    )
    assert load_cluster(str(path)).num_nodes == 2
