"""mpiGraph's output as a cluster."""

import os
from pathlib import Path

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.readers.mpigraph import MpiGraph, cluster_from_mpigraph, read_mpigraph
from taut.errors import DataError
from taut.reports.catalog import cluster_yaml

SEND = """\
START mpiGraph v1.6
MsgSize\t16384
Times\t100
Window\t50
Procs\t3
Send        node1:0    node2:1    node3:2
node1:0 to\t0.000\t110.5\t120.5
node2:1 to\t210.5\t0.000\t230.5
node3:2 to\t310.5\t320.5\t0.000
"""
RECV = """\
Recv        node1:0    node2:1    node3:2
node1:0 from\t0.000\t210.5\t310.5
node2:1 from\t110.5\t0.000\t320.5
node3:2 from\t120.5\t230.5\t0.000
END mpiGraph
"""
CSV = "host,node1,node2,node3\nnode1,9,110.5,120.5\nnode2,210.5,9,230.5\nnode3,310.5,320.5,9\n"
ROWS = ((0.0, 110.5, 120.5), (210.5, 0.0, 230.5), (310.5, 320.5, 0.0))


def read(folder: Path, text: str) -> MpiGraph:
    path = folder / "graph.txt"
    path.write_text(text, encoding="utf-8")
    return read_mpigraph(path)


def cluster(graph: MpiGraph, **changes: float) -> ClusterSpec:
    return cluster_from_mpigraph(
        graph,
        name="measured",
        device=catalog_devices()["a100-80gb"],
        gpus_per_node=8,
        intra_bandwidth_gbps=changes.get("intra_bandwidth_gbps", 2400.0),
        latency_us=changes.get("latency_us", 5.0),
    )


def test_send_block_is_read_row_to_column(tmp_path: Path) -> None:
    """Row sends to column; the Recv block, which says the same from the other side, is not needed."""
    graph = read(tmp_path, SEND + RECV)
    assert graph.hosts == ("node1:0", "node2:1", "node3:2")
    assert graph.rows == ROWS
    assert read(tmp_path, SEND) == graph


def test_recv_block_alone_is_turned_over(tmp_path: Path) -> None:
    """Row receives from column, so the matrix is transposed to row sends to column."""
    assert read(tmp_path, RECV) == read(tmp_path, SEND)


def test_csv_matrix_is_read_row_to_column(tmp_path: Path) -> None:
    """A CSV matrix with a header of host names holds the same; its diagonal is loop-back."""
    graph = read(tmp_path, "# measured at night\n\n" + CSV)
    assert graph.hosts == ("node1", "node2", "node3")
    assert [[graph.rows[i][j] for j in range(3) if i != j] for i in range(3)] == [
        [ROWS[i][j] for j in range(3) if i != j] for i in range(3)
    ]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("0,110.5,120.5\n210.5,0,230.5\n310.5,320.5,0\n", ("node0", "node1", "node2")),
        ("a,b,c\n0,110.5,120.5\n210.5,0,230.5\n310.5,320.5,0\n", ("a", "b", "c")),
    ],
)
def test_plain_matrices_are_read(tmp_path: Path, text: str, hosts: tuple[str, ...]) -> None:
    """Without names the hosts are numbered; a header alone names them."""
    assert read(tmp_path, text) == MpiGraph(hosts, ROWS)


def test_diagonal_is_not_asked_for(tmp_path: Path) -> None:
    """What stands on the diagonal is ignored, even if it is no number."""
    graph = read(tmp_path, CSV.replace(",9", ",n/a"))
    assert [graph.rows[i][i] for i in range(3)] == [0.0, 0.0, 0.0]


def test_cluster_has_a_node_per_host_and_its_fastest_link_as_card(tmp_path: Path) -> None:
    """Every host is a node; the largest figure of its row is what its network cards send."""
    found = cluster(read(tmp_path, SEND))
    assert (found.num_nodes, found.num_devices) == (3, 24)
    # 120.5 MB/s are 120.5e6 x 8 / 1e9 = 0.964 Gb/s, 230.5 are 1.844 and 320.5 are 2.564; loop-back does not count.
    cards = [node.nic_bandwidth_gbps for node in found.node_list]
    assert cards == [pytest.approx(0.964), pytest.approx(1.844), pytest.approx(2.564)]
    assert found.bandwidth_matrix is not None
    assert found.bandwidth_matrix.unit == "MB/s"
    assert found.bandwidth_matrix.rows == [list(row) for row in ROWS]


def test_single_host_has_no_card(tmp_path: Path) -> None:
    """One host has no link to measure, so nothing is said of its cards."""
    found = cluster(read(tmp_path, "host,node1\nnode1,9\n"))
    assert found.node_list[0].nic_bandwidth_gbps is None


def test_cluster_survives_its_file(tmp_path: Path) -> None:
    """The cluster written as YAML is read back equal, with the catalog's device by name."""
    found = cluster(read(tmp_path, SEND))
    path = tmp_path / "measured.yaml"
    path.write_text(cluster_yaml(found), encoding="utf-8")
    assert "device: a100-80gb" in path.read_text(encoding="utf-8")
    assert load_cluster(str(path)) == found


def test_clusters_of_every_kind_survive_their_files(tmp_path: Path) -> None:
    """Racks, two device types and devices that the catalog does not know are written so that they read back equal."""
    own = catalog_devices()["t4-16gb"].model_copy(update={"name": "own", "memory_gib": 3.0})
    path = tmp_path / "again.yaml"
    for name in ("hethub-12n96d", "amp-heterogeneous", "dgx-a100:3"):
        known = load_cluster(name)
        groups = [group.model_copy(update={"device": own}) for group in known.nodes]
        for given in (known, known.model_copy(update={"nodes": groups})):
            path.write_text(cluster_yaml(given), encoding="utf-8")
            assert load_cluster(str(path)) == given


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no Send or Recv block and no CSV matrix, expected mpiGraph output"),
        ("hello\n", "has no Send or Recv block"),
        (SEND.replace("230.5", "fast"), "row 2 column 3: is 'fast', expected MB/s > 0"),
        (SEND.replace("230.5", "nan"), "row 2 column 3: is 'nan', expected MB/s > 0"),
        (SEND.replace("230.5", "0"), "row 2 column 3: is '0', expected MB/s > 0"),
        (SEND.replace("230.5", "-1"), "row 2 column 3: is '-1', expected MB/s > 0"),
        (SEND.replace("\t230.5", ""), "row 2: has 2 figures, expected 3 as there are rows"),
        (RECV.replace("\t230.5", ""), "the Recv block is not square, expected 3 figures a row"),
        (CSV.replace(",230.5", ""), "row 2: has 2 figures, expected 3"),
        (CSV.replace("230.5", "inf"), "row 2 column 3: is 'inf', expected MB/s > 0"),
        (CSV.replace("node3,310.5,320.5,9\n", ""), "the header does not name the hosts of the rows"),
        (CSV.replace("host,node1,node2", "host,node2,node1"), "the header does not name the hosts of the rows"),
        ("0,1.5\n2.5\n", "row 2: has 1 figures, expected 2 as there are rows"),
    ],
)
def test_wrong_output_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, row, column and figure; columns in another order than the rows are not guessed."""
    with pytest.raises(DataError, match=f"graph.txt:? ?{words}") as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_host_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Two processes of one host would be two nodes, so one process per host is asked for."""
    graph = read(tmp_path, SEND.replace("node3:2", "node1:2"))
    with pytest.raises(DataError, match="measured: host node1 stands 2 times, expected one process per host"):
        cluster(graph)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"intra_bandwidth_gbps": -1.0}, "measured: nodes.0.intra_bandwidth_gbps: is -1.0, expected"),
        ({"intra_bandwidth_gbps": float("nan")}, "measured: nodes.0.intra_bandwidth_gbps: is nan, expected a finite"),
        ({"latency_us": -1.0}, "measured: network.latency_us: is -1.0, expected"),
    ],
)
def test_figures_out_of_range_are_refused(tmp_path: Path, changes: dict[str, float], words: str) -> None:
    """What the caller adds to the measurement is checked as in a cluster file."""
    with pytest.raises(DataError, match=words):
        cluster(read(tmp_path, SEND), **changes)


def test_public_measurement_of_sixteen_nodes() -> None:
    """The send and receive files of one measurement agree to within a few per cent, as transposes of each other."""
    folder = Path(os.environ.get("TAUT_SHARED_DATA", "/nonexistent")) / "bandwidth"
    if not folder.is_dir():
        pytest.skip("TAUT_SHARED_DATA does not name a folder with a bandwidth measurement")
    send = read_mpigraph(folder / "mpigraph_16node_send_MBps.csv")
    received = read_mpigraph(folder / "mpigraph_16node_recv_MBps.csv")
    assert len(send.hosts) == 16
    ratios = [send.rows[i][j] / received.rows[j][i] for i in range(16) for j in range(16) if i != j]
    assert max(ratios) < 1.1
    assert min(ratios) > 0.9
    assert cluster(send).num_devices == 128
