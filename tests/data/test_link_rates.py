"""Rates that look like another unit are pointed out, and used as stated."""

import warnings
from pathlib import Path

import pytest

from taut.data.catalog.builtin import catalog_clusters
from taut.data.link_rates import warn_of_units
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


def test_the_catalogs_clusters_of_one_node_are_silent() -> None:
    """What the rates are compared with does not stand out itself."""
    for name, cluster in catalog_clusters().items():
        if cluster.num_nodes == 1:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warn_of_units(cluster, name)
