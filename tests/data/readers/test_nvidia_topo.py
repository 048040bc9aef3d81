"""The table of nvidia-smi topo -m as a cluster of one node."""

from pathlib import Path

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.readers.nvidia_topo import PCIE_GBPS, Topology, cluster_from_topology, read_topology
from taut.errors import DataError
from taut.reports.catalog import cluster_yaml

TABLE = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tmlx5_1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tPIX\tSYS\tPXB\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tPXB\tSYS\tPIX\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU2\tPIX\tPHB\t X \tNODE\tSYS\tPIX\t16-31,48-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNODE\t X \tSYS\tPIX\t16-31,48-63\t1\t\tN/A\n"
    "NIC0\tPXB\tPIX\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "mlx5_1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \t\t\t\t\n"
)
LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = between sockets\n  NV#  = # links\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
KINDS = (
    ("X", "NV12", "PIX", "SYS"),
    ("NV12", "X", "PXB", "SYS"),
    ("PIX", "PHB", "X", "NODE"),
    ("SYS", "SYS", "NODE", "X"),
)


def read(folder: Path, text: str) -> Topology:
    path = folder / "topo.txt"
    path.write_text(text, encoding="utf-8")
    return read_topology(path)


def cluster(topology: Topology, **changes: float) -> ClusterSpec:
    return cluster_from_topology(topology, name="node", device=catalog_devices()["a100-80gb"], **changes)


def test_table_is_read_without_cards_affinities_and_legend(tmp_path: Path) -> None:
    """Only the columns and rows of devices count."""
    assert read(tmp_path, TABLE + LEGEND) == Topology(("GPU0", "GPU1", "GPU2", "GPU3"), KINDS)


def test_a_table_that_leaves_nvlink_out_is_said(tmp_path: Path) -> None:
    """The legend of ``nvidia-smi topo -mp`` has no NVLink: its cells name PCI Express where NVLinks are too."""
    with pytest.warns(UserWarning, match="the legend has no NVLink, which nvidia-smi topo -mp leaves out"):
        read(tmp_path, TABLE.replace("NV12", "PIX") + LEGEND.replace("  NV#  = # links\n", ""))
    read(tmp_path, TABLE.replace("NV12", "PIX"))  # Without a legend nothing tells.


def test_pasted_and_underlined_tables_are_read(tmp_path: Path) -> None:
    """Spaces for tabs, the terminal's underlining of the header, and a listing before the table do no harm."""
    header, _, rest = TABLE.partition("\n")
    underlined = "\t".join(f"\x1b[4m{name}\x1b[0m" for name in header.split("\t")) + "\n" + rest
    for text in (TABLE.expandtabs(8), underlined, "Driver 570\nGPU 0: NVIDIA A100 (UUID: GPU-1)\n" + TABLE):
        assert read(tmp_path, text).kinds == KINDS


def test_cluster_has_the_stated_rate_of_every_link(tmp_path: Path) -> None:
    """A bond of twelve links has twelve times the rate of one, other links have the table's, the node the slowest."""
    found = cluster(read(tmp_path, TABLE))
    assert (found.num_nodes, found.num_devices, found.measured_by_device) == (1, 4, True)
    assert found.bandwidth_matrix is not None
    # 12 x 200 Gb/s = 2400 Gb/s; PIX and PXB 252, PHB and NODE 210, SYS 176.
    assert found.bandwidth_matrix.rows == [
        [0, 2400, 252, 176],
        [2400, 0, 252, 176],
        [252, 210, 0, 210],
        [176, 176, 210, 0],
    ]
    assert found.nodes[0].intra_bandwidth_gbps == pytest.approx(PCIE_GBPS["SYS"])
    assert "SYS 176 Gb/s" in found.source
    faster = cluster(read(tmp_path, TABLE), nvlink_gbps=400.0).bandwidth_matrix
    assert faster is not None
    assert faster.rows[0] == [0, 4800, 252, 176]


def test_cluster_survives_its_file(tmp_path: Path) -> None:
    """The cluster written as YAML is read back equal."""
    found = cluster(read(tmp_path, TABLE))
    path = tmp_path / "node.yaml"
    path.write_text(cluster_yaml(found), encoding="utf-8")
    assert load_cluster(str(path)) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "topo.txt: has no table of devices, expected nvidia-smi topo -m output"),
        (LEGEND, "topo.txt: has no table of devices"),
        (TABLE.replace("NODE\t X ", "NODE\tNV4"), "topo.txt line 5: GPU3 column 4 is 'NV4', expected X"),
        (TABLE.replace("PHB", "OK"), "topo.txt line 4: GPU2 column 2 is 'OK', expected one of PIX, .*, or NV and a"),
        (TABLE.replace("PHB", "X"), "topo.txt line 4: GPU2 column 2 is 'X', expected one of PIX"),
        (TABLE.replace("PHB", "NV0"), "topo.txt line 4: GPU2 column 2 is 'NV0', expected one of PIX"),
        (TABLE.partition("GPU3\tSYS")[0], "the rows of devices are GPU0, GPU1, GPU2, expected GPU0, GPU1, GPU2, GPU3"),
        (TABLE.partition("\n")[0], "the rows of devices are missing, expected GPU0"),
        ("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\n", "topo.txt line 3: GPU1 has 1 cells, expected at least 2"),
    ],
)
def test_wrong_table_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, line, device and cell."""
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_one_device_and_a_wrong_rate_are_refused(tmp_path: Path) -> None:
    """One device has no link, and a link has a rate above zero."""
    alone = read(tmp_path, "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t0\t\tN/A\n")
    with pytest.raises(DataError, match="node: has 1 devices, expected at least two"):
        cluster(alone)
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(DataError, match="node: "):
            cluster(read(tmp_path, TABLE), nvlink_gbps=rate)


def gpu(number: int, bus: str, links: str) -> str:
    return f'<pci busid="{bus}" class="0x030200" link_speed="32.0 GT/s"><gpu dev="{number}" sm="90">{links}</gpu></pci>'


def link(target: str, count: int, kind: str = "0x068000") -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{kind}"/>'


def xml(parts: str) -> str:
    return f'<system version="1">{parts}</system>'


NET = '<nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>'
SWITCHED = link("0000:05:00.0", 4) + link("0000:06:00.0", 5)
SYSTEM = xml(
    '<cpu numaid="0" host_hash="0x1"><pci busid="0000:15:00.0">'
    + gpu(0, "0000:19:00.0", SWITCHED)
    + gpu(2, "0000:1a:00.0", link("0000:9a:00.0", 4, "0x030200"))
    + f'<pci busid="0000:18:00.0">{NET}</pci></pci></cpu><cpu numaid="1" host_hash="0x1">'
    + gpu(1, "0000:9a:00.0", SWITCHED)
    + gpu(3, "0000:9b:00.0", "")
    + "</cpu>"
)


def test_nccls_tree_is_read(tmp_path: Path) -> None:
    """Links to switches reach what has some, direct ones their end; else bridges and processors decide; cards add."""
    found = read(tmp_path, SYSTEM)
    assert found.devices == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert found.kinds == (
        ("X", "NV9", "PIX", "SYS"),
        ("NV9", "X", "NV4", "PHB"),
        ("PIX", "NV4", "X", "SYS"),
        ("SYS", "PHB", "SYS", "X"),
    )
    node = cluster(found)
    assert node.nodes[0].nic_bandwidth_gbps == 400
    assert node.source.startswith("NCCL's XML; rates and latency assumed")


def net(name: str, speed: object = 400_000, **fields: object) -> str:
    """A port as NCCL writes it."""
    all_fields = {"name": name, "dev": 0, "speed": speed, "port": 1, "gdr": 1, **fields}
    return f"<net {' '.join(f'{key}={str(value)!r}' for key, value in all_fields.items() if value is not None)}/>"


ETH0 = net("eth0", 100_000, port=0, guid="0x0", gdr=0)


@pytest.mark.parametrize(
    ("nets", "gbps", "words"),
    [
        (net("mlx5_0", guid="0xa1") + net("mlx5_1", guid="0xa1", port=2) + net("mlx5_0", guid="0xa1"), 800, ""),
        (net("mlx5_bond_0", 200_000, gdr=0) + net("rocep1s0", 200_000), 400, ""),
        (net("eth1", 200_000, port=0) + net("eth2", 200_000, port=0), 400, ""),
        (net("mlx5_0") + ETH0, 400, r"\['eth0'\] \(sockets\)"),
        (net("mlx5_0") + net("ib0", gdr=None) + net("enp1s0f0", gdr=0), 400, r"\['ib0', 'enp1s0f0'\] \(sockets\)"),
        (ETH0, None, r"\['eth0'\] \(sockets\)"),
        (net("mlx5_0") + net("mlx5_1", 25_000), 400, r"\['mlx5_1'\] \(slower than others\)"),
        *(
            (net("mlx5_0") + net("mlx5_1", speed), 400, r"\['mlx5_1'\] \(no speed of a port from 10000 to 2400000 Mb/s")
            for speed in (0, 10, -1, "", None, 4_294_967_295)
        ),
        *(
            (net("mlx5_0") + other, 400, r"\(no name or number of a device of the network")
            for other in (net("mlx5_1", dev=None), net("mlx5_1", net=0), net(""))
        ),
    ],
)
def test_the_network_of_a_node_is_what_nccl_would_use(tmp_path: Path, nets: str, gbps: int | None, words: str) -> None:
    """The fastest ports with RDMA, or of sockets that reach devices, count once each; a line names the others."""
    text = SYSTEM.replace(NET, f"<nic>{nets}</nic>")
    if not words:
        assert read(tmp_path, text).nic_gbps == gbps
        return
    with pytest.warns(UserWarning, match=f"topo.txt: the node's network leaves out .*{words}"):
        assert read(tmp_path, text).nic_gbps == gbps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<system><cpu></system>", "mismatched tag: line 1, column 15, expected the XML that NCCL writes"),
        ("<graphs/>", "begins with <graphs>, expected the XML"),
        (xml("<cpu/>"), "names no device"),
        (SYSTEM.replace('count="4"', 'count="four"'), "<nvlink> has count 'four', expected a whole number"),
        (SYSTEM.replace('"400000"', '"fast"'), "<net> has speed 'fast', expected a whole number"),
        (SYSTEM.replace('dev="3"', ""), "<gpu> has dev '', expected a whole number"),
        (SYSTEM.replace('"1" host_hash="0x1"', '"1" host_hash="0x2"'), "has processors of 2 hosts, expected one"),
    ],
)
def test_other_trees_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)
