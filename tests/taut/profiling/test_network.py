"""Rounds, figures, nodes and clusters by hand, and real runs of processes on this machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import device_named
from taut.data.load import load_cluster
from taut.errors import DataError
from taut.formulations.links import links
from taut.profiling.network import Seat, cluster_from_matrices, device_order, link_figures, profile_network, rounds

pytestmark = pytest.mark.proof

T4 = device_named("t4-16gb", "test")
LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
CALL = """
import sys
from pathlib import Path
from taut.errors import DataError
from taut.profiling import network
from taut.profiling.network import profile_network
assert "torch" not in sys.modules
network.TIMEOUT_S = int(sys.argv[2])
try:
    profile_network(
        out=Path(sys.argv[1]), device="cpu", gpu="t4-16gb", processes=9, gpus_per_node=None, name="two", quiet=True
    )
except DataError as error:
    sys.exit(str(error))
"""


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LAUNCHER:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("size", range(2, 18))
def test_rounds_hold_every_pair_once_and_disjoint_ones_at_a_time(size: int) -> None:
    """There are n - 1 rounds (n where n is odd), each of n // 2 pairs without a common member."""
    schedule = rounds(size)
    assert len(schedule) == size - 1 + size % 2
    for pairs in schedule:
        members = [member for pair in pairs for member in pair]
        assert len(pairs) == size // 2
        assert len(set(members)) == len(members)
    every = [pair for pairs in schedule for pair in pairs]
    assert sorted(every) == [(i, j) for i in range(size) for j in range(i + 1, size)]


def test_four_players_meet_around_a_circle() -> None:
    """The last of four stays; 0, 1 and 2 move around it."""
    # Turn r: (r, 3) and, one step to either side on the circle of three, (r + 1, r - 1).
    assert rounds(4) == [[(1, 2), (0, 3)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]


def test_latency_is_half_the_fastest_small_trip_and_bandwidth_leaves_it_out() -> None:
    """Half the smallest median round trip; bytes over what a large message takes beyond that trip, the best size."""
    # Small: min(20, 24) us, half of it 10 us. Large: 1e6 B / (1020 - 20) us = 1e9 B/s, 4e6 B / (2020 - 20) us = 2e9.
    bandwidth, latency = link_figures({8: 20e-6, 1024: 24e-6, 10**6: 1020e-6, 4 * 10**6: 2020e-6})
    assert latency == pytest.approx(10e-6)
    assert bandwidth == pytest.approx(2e9)


def test_noise_in_the_latency_at_most_doubles_a_rate() -> None:
    """Where small trips took longer than a large one, half of the large one counts."""
    # 1e6 B / (1 ms / 2) = 2e9 B/s.
    assert link_figures({8: 5e-3, 10**6: 1e-3})[0] == pytest.approx(2e9)


def test_matrices_become_nodes_and_one_figure_a_level() -> None:
    """Both matrices device by device; beside them the lowest rate and the longest latency inside and between nodes."""
    bandwidth = [[9e9, 4e9, 1e9, 1.5e9], [3e9, 0, 1e9, 1e9], [2e9, 1e9, 0, 5e9], [1e9, 0.5e9, 6e9, 0]]
    latency = [[7.0, 2e-6, 9e-6, 9e-6], [3e-6, 0, 9e-6, 9e-6], [8e-6, 9e-6, 0, 1e-6], [9e-6, 12e-6, 1e-6, 0]]
    cluster = cluster_from_matrices(bandwidth, latency, gpus_per_node=2, name="c", device=T4, source="test")
    # Inside: rates 4, 3, 5, 6 GB/s, the lowest 3 GB/s = 24 Gb/s; latencies 2, 3, 1, 1 us. Between: 0.5 GB/s = 4 Gb/s.
    node = cluster.nodes[0]
    assert (cluster.num_nodes, node.gpus_per_node, node.nic_bandwidth_gbps) == (2, 2, None)
    assert (node.intra_bandwidth_gbps, node.intra_latency_us) == (24.0, 3.0)
    assert (cluster.network.bandwidth_gbps, cluster.network.latency_us) == (4.0, 12.0)
    assert cluster.bandwidth_matrix is not None
    assert (cluster.bandwidth_matrix.unit, cluster.bandwidth_matrix.rows[0]) == ("GB/s", [0.0, 4.0, 1.0, 1.5])
    found = links(cluster)
    assert found.rate[3, 1] == pytest.approx(0.5e9)
    assert found.latency[3, 1] == pytest.approx(12e-6)
    assert (found.rate[0, 1], found.rate[1, 0]) == pytest.approx((4e9, 3e9))


def test_nodes_of_one_device_have_the_figures_of_the_whole_cluster() -> None:
    """Without a link inside a node, the lowest rate of all stands where a figure is needed."""
    cluster = cluster_from_matrices(
        [[0, 2e9], [1e9, 0]], [[0, 1e-6]] * 2, gpus_per_node=1, name="c", device=T4, source=""
    )
    assert (cluster.num_nodes, cluster.nodes[0].intra_bandwidth_gbps) == (2, 8.0)


@pytest.mark.parametrize(
    ("bandwidth", "gpus_per_node", "words"),
    [
        ([[0.0]], 1, "c: has 1 devices, expected two or more that fill nodes of 1"),
        ([[0.0, 1e9], [1e9, 0.0]], 3, "c: has 2 devices, expected two or more that fill nodes of 3"),
        ([[0.0, 0.0], [1e9, 0.0]], 2, "expected"),
    ],
)
def test_impossible_matrices_are_refused(bandwidth: list[list[float]], gpus_per_node: int, words: str) -> None:
    """At least two devices that fill the nodes, and positive rates."""
    latency = [[1e-6] * len(bandwidth)] * len(bandwidth)
    with pytest.raises(DataError, match=words):
        cluster_from_matrices(bandwidth, latency, gpus_per_node=gpus_per_node, name="c", device=T4, source="")


def test_devices_are_numbered_node_by_node() -> None:
    """What is stated wins, then a launcher that numbers node by node, then hosts in order of their first process."""
    told = [Seat("a", 0, 2), Seat("a", 1, 2), Seat("a", 0, 2), Seat("a", 1, 2)]
    assert device_order(told) == ([0, 1, 2, 3], 2)
    assert device_order(told, 4) == ([0, 1, 2, 3], 4)
    assert device_order([Seat("b"), Seat("a"), Seat("b"), Seat("a")]) == ([0, 2, 1, 3], 2)
    # Numbered in turns, host by host: process 1 is number 0 of its host, so the hosts decide.
    assert device_order([Seat("b", 0, 2), Seat("a", 0, 2), Seat("b", 1, 2), Seat("a", 1, 2)]) == ([0, 2, 1, 3], 2)


def test_unequal_nodes_are_refused() -> None:
    """Every node has as many processes, and a stated number divides them all."""
    with pytest.raises(DataError, match=r"nodes have \[2, 1\] processes, expected as many on each"):
        device_order([Seat("a"), Seat("a"), Seat("b")])
    for wrong in (0, 2):
        with pytest.raises(DataError, match=f"gpus_per_node: {wrong}, expected a divisor of the 3 processes"):
            device_order([Seat("a")] * 3, wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"processes": 1}, "processes: 1, expected at least 2, with a link between them"),
        ({"gpus_per_node": 3}, "gpus_per_node: 3, expected a divisor of the 4 processes"),
        ({"device": "cuda", "processes": 4096}, "processes: 4096, expected at most"),
        ({"device": "tpu"}, "device: tpu, expected one of cpu, cuda"),
        ({"gpu": "b999"}, "gpu: b999, expected one of"),
        ({"out": Path("nowhere") / "c.yaml"}, "c.yaml: cannot be written"),
    ],
)
def test_wrong_requests_are_refused_before_anything_starts(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """One line that names the option."""
    asked: dict[str, Any] = {"out": tmp_path / "c.yaml", "device": "cpu", "gpu": "t4-16gb", "processes": 4}
    with pytest.raises(DataError, match=words) as refusal:
        profile_network(**{**asked, "gpus_per_node": None, "name": "", "quiet": True, **changes})
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x': expected a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "WORLD_SIZE=1: expected at least 2 processes"),
    ],
)
def test_wrong_launchers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    """A launcher sets whole numbers, and starts at least two processes."""
    for variable, value in {**variables, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(DataError, match=words):
        profile_network(
            out=tmp_path / "c.yaml", device="cpu", gpu="t4-16gb", processes=2, gpus_per_node=None, name="", quiet=True
        )


# Processes of one machine may have any rate, such as one that looks like another unit's.
@pytest.mark.filterwarnings("ignore:.*looks like:UserWarning")
def test_four_processes_write_a_cluster_of_two_nodes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Four processes as two nodes of two: every link positive, a line a round on stderr, nothing on stdout."""
    out = tmp_path / "here.yaml"
    profile_network(out=out, device="cpu", gpu="t4-16gb", processes=4, gpus_per_node=2, name="", quiet=False)
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert [line[8:] for line in lines[:-1]] == [f"  round {turn} of 3  pairs 2" for turn in (1, 2, 3)]
    assert said.err.endswith(f"{out}: 2 nodes, 4 devices\n")
    cluster = load_cluster(str(out))
    assert (cluster.name, cluster.num_nodes, cluster.num_devices) == ("here", 2, 4)
    assert (cluster.nodes[0].device, cluster.measured_by_device) == (T4, True)
    assert cluster.bandwidth_matrix is not None
    assert cluster.latency_matrix is not None
    for rows in (cluster.bandwidth_matrix.rows, cluster.latency_matrix.rows_us):
        assert [len(row) for row in rows] == [4] * 4
        assert all((entry > 0) is (i != j) for i, row in enumerate(rows) for j, entry in enumerate(row))
    assert list(tmp_path.iterdir()) == [out]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(out: Path, ranks: int, timeout: int) -> list[tuple[str, str, int]]:
    """The streams and exit codes of so many processes of the two that a launcher would start, as two nodes of one."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CALL, str(out), str(timeout)],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    return [(*process.communicate(timeout=100), process.returncode) for process in started]


def test_processes_of_a_launcher_meet_and_the_first_writes(tmp_path: Path) -> None:
    """Two processes write one file, in silence; neither loads PyTorch before it measures."""
    out = tmp_path / "c.yaml"
    assert launch(out, 2, 60) == [("", "", 0)] * 2
    cluster = load_cluster(str(out))
    assert (cluster.name, cluster.num_nodes, cluster.nodes[0].gpus_per_node) == ("two", 2, 1)
    assert "gloo" in cluster.source


def test_who_does_not_come_is_given_up(tmp_path: Path) -> None:
    """One process of two waits for as long as it should, and says so in one line."""
    [(out, err, code)] = launch(tmp_path / "c.yaml", 1, 2)
    assert (out, code, err.count("\n")) == ("", 1, 1)
    assert err.startswith("network profile: process 0: ")
    assert err.endswith("expected every process to answer within 2 s\n")
    assert list(tmp_path.iterdir()) == []
