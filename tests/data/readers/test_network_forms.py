"""Forms in which tools' figures of links reach a user: prefixes, several runs, text and JSON, generations of cards."""

from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.load import load_device
from taut.data.read import plain_lines
from taut.data.readers.nccl_tests import NcclRun, cluster_from_nccltests, latency_assumed, read_nccltests
from taut.data.readers.nvbandwidth import read_nvbandwidth
from taut.data.readers.nvidia_topo import cluster_from_topology, read_topology
from taut.errors import DataError

HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


def run(hosts: dict[str, int], rows: list[tuple[int, float, float]]) -> str:
    """What all_reduce_perf prints of some ranks on every host, with bytes, microseconds and GB/s of bus bandwidth."""
    names = [name for name, count in hosts.items() for _ in range(count)]
    ranks = "".join(f"#  Rank {i:2d} Group  0 Pid 1 on {name} device  0 [0x18] GPU\n" for i, name in enumerate(names))
    figures = "".join(f"  {size}  256  float  sum  -1  {time}  1.0  {bus}  0\n" for size, time, bus in rows)
    return (
        f"# Collective test starting: all_reduce_perf\n# nThread 1\n{ranks}{HEADER}{figures}# Avg bus bandwidth : 1\n"
    )


def read(folder: Path, text: str) -> NcclRun:
    (folder / "run.txt").write_text(text)
    return read_nccltests(folder / "run.txt")


PLAIN = run({"a": 2, "b": 2}, [(1024, 60.0, 0.1), (2**30, 9000.0, 100.0)])


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[prterun-host-1@1,0]<stdout>: ",
        " 0: ",
        "12: ",
        "host-0: ",
        "worker.local| ",
        "2025-11-27T10:11:12.123456Z ",
        "[2025-11-27 10:11:12] ",
        "2025-11-27T10:11:12.123Z stdout F ",
        "Nov 27 10:11:12 host-0 nccl[123]: ",
        "[rank0]: ",
        "[12.345] ",
        "[pod/nccl-launcher/main] ",
        "\x1b[32m[1,0]<stdout>:\x1b[0m",
        "10:11:12.5 ",
        "(RayWorker pid=12, ip=10.0.0.1) ",
        "nccl-launcher-x: [2026-05-05 10:00:00,123] INFO ",
    ],
)
def test_prefixes_of_launchers_go(tmp_path: Path, prefix: str) -> None:
    """The same run with something before every line."""
    if "host-0 nccl" in prefix:
        prefix = prefix.replace("host-0 ", "")
    with_it = "".join(f"{prefix}{line}\n" for line in PLAIN.splitlines())
    assert read(tmp_path, with_it) == read(tmp_path, PLAIN)


def test_lines_of_tables_stay() -> None:
    """Rows and remarks have no prefix."""
    for line in ("  1024 256 float", "#  Rank  0 on a", " 0   N/A  26.3", "GPU0\tX", "memcpy CE GPU(row)", "a: b"):
        assert plain_lines(line) == [line]


def test_latency_is_of_small_messages_alone(tmp_path: Path) -> None:
    """Sixty microseconds over six steps; of half a gibibyte the usual latencies, and a line that says so."""
    device = catalog_devices()["h100-80gb"]
    found = cluster_from_nccltests(read(tmp_path, PLAIN), name="c", device=device, intra_bandwidth_gbps=3600.0)
    assert found.network.latency_us == pytest.approx(10.0)
    large = read(tmp_path, run({"a": 2, "b": 2}, [(2**29, 2000.0, 100.0), (2**30, 4000.0, 110.0)]))
    found = cluster_from_nccltests(large, name="c", device=device, intra_bandwidth_gbps=3600.0)
    assert found.network.latency_us == 5.0
    assert "536870912 bytes" in latency_assumed(large) and not latency_assumed(read(tmp_path, PLAIN))
    inside = read(tmp_path, run({"a": 8}, [(2**29, 2000.0, 400.0)]))
    assert cluster_from_nccltests(inside, name="c", device=device).nodes[0].intra_latency_us == 3.0


def test_one_pair_has_its_share_of_the_cards(tmp_path: Path) -> None:
    """488 GB/s over eight devices are 61 for one pair; stated cards of 3200 Gb/s are 400 each."""
    device = catalog_devices()["h100-80gb"]
    text = run({"a": 8, "b": 8}, [(1024, 60.0, 0.1), (2**33, 33000.0, 488.0)])
    found = cluster_from_nccltests(read(tmp_path, text), name="c", device=device, intra_bandwidth_gbps=3600.0)
    assert (found.network.bandwidth_gbps, found.nodes[0].nic_bandwidth_gbps) == (488.0, 3904.0)
    stated: dict[str, Any] = {"intra_bandwidth_gbps": 3600.0, "nic_bandwidth_gbps": 3200.0}
    found = cluster_from_nccltests(read(tmp_path, text), name="c", device=device, **stated)
    assert (found.network.bandwidth_gbps, found.nodes[0].nic_bandwidth_gbps) == (400.0, 3200.0)


def test_several_runs_are_one_cluster(tmp_path: Path) -> None:
    """A run inside a host gives the node, one over two the network; of three repeats the median counts."""
    device = catalog_devices()["a100-80gb"]
    node = run({"a": 4}, [(1024, 18.0, 0.1), (2**30, 8000.0, 230.0)])
    wide = [run({"a": 4, "b": 4}, [(1024, 70.0, 0.1), (2**30, time, bus)]) for time, bus in ((1, 9), (2, 12), (3, 8))]
    with pytest.warns(UserWarning, match="3 runs alike have 8 to 12 GB/s of bus bandwidth, their median is taken"):
        measured = read(tmp_path, node + "".join(wide))
    found = cluster_from_nccltests(measured, name="c", device=device)
    assert (found.num_nodes, found.nodes[0].gpus_per_node) == (2, 4)
    assert (found.nodes[0].intra_bandwidth_gbps, found.nodes[0].intra_latency_us) == (1840.0, 3.0)
    assert (found.nodes[0].nic_bandwidth_gbps, found.network.bandwidth_gbps) == (96.0, 24.0)
    other = PLAIN.replace("all_reduce_perf", "all_gather_perf")
    with pytest.raises(DataError, match="has the collectives all_gather, all_reduce, expected one in a file"):
        read(tmp_path, PLAIN + other)


HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20"


def test_an_aborted_run_is_refused(tmp_path: Path) -> None:
    """Sizes end before those that the head announces, unless memory cut them; rounding to ranks is no end."""
    text = run({"a": 3}, [(1024, 20.0, 0.1), (2**20, 80.0, 40.0)]).replace("# nThread 1", HEAD)
    with pytest.raises(DataError, match="ends at 1048576 bytes, expected messages up to 8589934592 as its head says"):
        read(tmp_path, text)
    assert read(tmp_path, text + "# Reducing maxBytes to 1500000 due to memory limitation\n").rows[-1].size == 2**20
    for head, last in ((HEAD, 8589934584), (HEAD.replace("2(factor)", "1048576(bytes)"), 2**33 - 2**20)):
        whole = run({"a": 3}, [(1024, 20.0, 0.1), (last, 8e4, 100.0)]).replace("# nThread 1", head)
        assert read(tmp_path, whole).rows[-1].size == last


def test_two_repeats_are_their_mean(tmp_path: Path) -> None:
    """Of 9 and 12 GB/s of two repeats the median is 10.5, of 60 and 80 us 70; beyond noise, a line says so."""
    one, other, alike = (
        run({"a": 4, "b": 4}, [(1024, time, bus)]) for time, bus in ((60.0, 12), (80.0, 9), (60.0, 11))
    )
    with pytest.warns(UserWarning, match="2 runs alike have 9 to 12 GB/s of bus bandwidth, their median is taken"):
        (row,) = read(tmp_path, one + other).rows
    assert (row.time_us, row.busbw) == (70.0, 10.5)
    assert read(tmp_path, one + alike).rows[0].busbw == 11.5


def test_repeats_with_other_orders_of_ranks_are_refused(tmp_path: Path) -> None:
    """A ring takes hosts in the order of their ranks, so another order is another measurement."""
    rows = [(1024, 60.0, 0.1), (2**30, 9000.0, 100.0)]
    for other in ({"b": 2, "a": 2}, {"a": 3, "b": 1}):
        words = r"has rank \d on a in one run and on b in another|on b in one run and on a in another"
        with pytest.raises(DataError, match=words):
            read(tmp_path, run({"a": 2, "b": 2}, rows) + run(other, rows))


def test_runs_of_other_hosts_are_refused(tmp_path: Path) -> None:
    """Pairs of hosts in turn, and a run that every host started by itself, without MPI."""
    rows = [(1024, 60.0, 0.1), (2**30, 9000.0, 100.0)]
    with pytest.raises(
        DataError, match=r"has runs over \['a', 'b'\] and over \['a', 'c'\], expected those of the same"
    ):
        read(tmp_path, run({"a": 2, "b": 2}, rows) + run({"a": 2, "c": 2}, rows))
    one, other = (run({host: 2}, rows) for host in "ab")
    with pytest.raises(DataError, match=r"has rank 0 on a and on b, expected one run \(nccl-tests without MPI"):
        read(tmp_path, one.partition(HEADER)[0] + other)


def test_hosts_with_few_ranks_tell_nothing_of_all_cards(tmp_path: Path) -> None:
    """One rank a host keeps one card busy, so the cards of eight devices must be stated."""
    device = catalog_devices()["h100-80gb"]
    found = read(tmp_path, run({"a": 1, "b": 1}, [(1024, 60.0, 0.1), (2**30, 9000.0, 48.0)]))
    stated: dict[str, Any] = {"gpus_per_node": 8, "intra_bandwidth_gbps": 3600.0}
    with pytest.raises(DataError, match=r"c: hosts have \[1\] ranks of 8 devices, .* expected nic_bandwidth_gbps"):
        cluster_from_nccltests(found, name="c", device=device, **stated)
    cluster = cluster_from_nccltests(found, name="c", device=device, nic_bandwidth_gbps=3200.0, **stated)
    assert (cluster.network.bandwidth_gbps, cluster.nodes[0].nic_bandwidth_gbps) == (384.0, 3200.0)


MATRIX = (
    "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A     26.34\n"
    " 1     25.35       N/A\nSUM device_to_device_memcpy_read_ce 51.69\n"
)


@pytest.mark.parametrize("before", ["", "nvbandwidth Version: v0.8\nRunning device_to_device_memcpy_read_ce.\n"])
@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:"])
def test_text_of_nvbandwidth(tmp_path: Path, before: str, prefix: str) -> None:
    """The matrix under its description, with and without the line that names the test."""
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{prefix}{line}\n" for line in (before + MATRIX).splitlines()))
    found = read_nvbandwidth(path)
    assert (found.test, found.rows) == ("device_to_device_memcpy_read_ce", ((0.0, 26.34), (25.35, 0.0)))
    path.write_text((before + MATRIX).replace("->", "<-"))
    assert read_nvbandwidth(path).rows == ((0.0, 25.35), (26.34, 0.0))


def test_repeats_of_nvbandwidth_are_their_mean(tmp_path: Path) -> None:
    """26.34 and 25.34 GB/s are 25.84; a cell that differs by more than a tenth is refused, with its hosts."""
    path = tmp_path / "a.txt"
    path.write_text(MATRIX + MATRIX.replace("26.34", "25.34"))
    with pytest.warns(UserWarning, match="has the matrix of .*_read_ce 2 times, within 10%: their mean is taken"):
        found = read_nvbandwidth(path)
    assert found.rows[0] == pytest.approx((0.0, 25.84)) and found.rows[1] == (25.35, 0.0)
    other = MATRIX.replace("26.34", "20.34")
    path.write_text(MATRIX + other)
    with pytest.raises(
        DataError, match=r"2 times, from device 0 to 1 20.34 and 26.34 GB/s, expected repeats within 10%"
    ):
        read_nvbandwidth(path)
    path.write_text(MATRIX + MATRIX.partition(" 1     25")[0].replace("     26.34", "") + MATRIX[MATRIX.index("SUM") :])
    with pytest.raises(DataError, match=r"2 times, of \[1, 2\] devices, expected repeats of one run"):
        read_nvbandwidth(path)
    lines = zip(MATRIX.splitlines(), other.splitlines(), strict=True)
    path.write_text("".join(f"n1: {one}\nn2: {two}\n" for one, two in lines))
    with pytest.raises(DataError, match=r"20.34 and 26.34 GB/s on n2 and n1, expected repeats within 10%"):
        read_nvbandwidth(path)


def test_hosts_that_ran_alone_are_a_node(tmp_path: Path) -> None:
    """Of 380, 390 and 400 GB/s of three hosts the median counts; a host of 300 is named, hosts in turn are parted."""
    device = catalog_devices()["h100-80gb"]
    texts = [run({name: 8}, [(1024, 28.0, 0.1), (2**30, 5.0 - i, 380.0 + 10 * i)]) for i, name in enumerate("abc")]
    in_turn = "".join(
        f"{name}: {line}\n"
        for lines in zip(*map(str.splitlines, texts), strict=True)
        for name, line in zip("abc", lines, strict=True)
    )
    for text in ("".join(texts), in_turn):
        with pytest.warns(UserWarning, match="run.txt: the median of 3 hosts alike is taken for a node"):
            found = cluster_from_nccltests(read(tmp_path, text), name="c", device=device)
        assert (found.num_nodes, found.nodes[0].gpus_per_node, found.nodes[0].intra_bandwidth_gbps) == (1, 8, 3120.0)
    wide = run({"a": 8, "b": 8}, [(1024, 70.0, 0.1), (2**30, 9.0, 300.0)])
    with pytest.warns(UserWarning, match="3 hosts alike"):
        found = cluster_from_nccltests(read(tmp_path, wide + "".join(texts)), name="c", device=device)
    assert (found.num_nodes, found.nodes[0].intra_bandwidth_gbps) == (2, 3120.0)
    for before in ("", wide):
        with pytest.raises(
            DataError, match="b has 300 GB/s of bus bandwidth and c 400, expected hosts within 10%, or one"
        ):
            read(tmp_path, before + "".join(texts).replace("390.0", "300.0"))
    with pytest.raises(
        DataError, match="hosts alone have other numbers of ranks, a 8, b 8, c 8, d 7; expected as many"
    ):
        read(tmp_path, "".join(texts) + run({"d": 7}, [(1024, 28.0, 0.1), (2**30, 5.0, 380.0)]))
    assert len(read(tmp_path, run({"a": 2}, [(2**30, 5.0, 300.0)]) + texts[0]).hosts) == 8


def test_devices_without_peer_access_are_named(tmp_path: Path) -> None:
    """Tests between devices are waived, and those to the host are there."""
    path = tmp_path / "a.txt"
    path.write_text(
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n  0  1\n0  25.5  24.2\n"
        "SUM host_to_device_memcpy_ce 49.7\nWaiving device_to_device_memcpy_read_ce.\n"
    )
    with pytest.raises(DataError, match="read_ce is Waived, as there is no peer access between these devices"):
        read_nvbandwidth(path)
    path.write_text("1: Running device_to_device_memcpy_read_ce.\n1: Waived: \n")  # As newer versions print it.
    with pytest.raises(DataError, match="read_ce is Waived, as there is no peer access between these devices"):
        read_nvbandwidth(path)
    path.write_text("Waiving device_to_device_memcpy_read_ce.\n" + MATRIX)
    with pytest.raises(DataError, match="read_ce is Waived in one run and Passed in another, expected runs on nodes"):
        read_nvbandwidth(path)
    path.write_text("Running host_to_device_memcpy_ce.\n")
    with pytest.raises(DataError, match="has no matrix between devices"):
        read_nvbandwidth(path)


@pytest.mark.parametrize(
    ("device", "kind", "gbps"),
    [
        ("v100-16gb", "PIX", 126.0),
        ("v100-16gb", "PHB", 105.0),
        ("v100-16gb", "SYS", 105.0),
        ("a100-80gb", "PIX", 252.0),
        ("a100-80gb", "SYS", 176.0),
        ("h100-80gb", "PIX", 504.0),
        ("h100-80gb", "NODE", 420.0),
        ("gh200-96gb", "PIX", 504.0),
        ("a100-80gb", "NV12", 2400.0),
        ("b200-180gb", "NV18", 7200.0),
        ("{name: rtx-a6000, memory_gib: 48, peak_tflops: {bf16: 155}, memory_bandwidth_gbytes: 768}", "NV4", 450.0),
    ],
)
def test_rates_are_of_the_cards_generation(tmp_path: Path, device: str, kind: str, gbps: float) -> None:
    """PCI Express 3.0, 4.0 and 5.0, and NVLink by its generation."""
    path = tmp_path / "topo.txt"
    path.write_text(f"\tGPU0\tGPU1\nGPU0\t X \t{kind}\nGPU1\t{kind}\t X \n")
    found = cluster_from_topology(read_topology(path), name="n", device=load_device(device, "--device"))
    assert found.nodes[0].intra_bandwidth_gbps == pytest.approx(gbps)


def test_amds_tool(tmp_path: Path) -> None:
    """Link types of rocm-smi, of a device that is described in place."""
    path = tmp_path / "topo.txt"
    path.write_text(
        "==== Hops between two GPUs ====\n       GPU0         GPU1\nGPU0   0            1\nGPU1   1            0\n"
        "==== Link Type between two GPUs ====\n       GPU0         GPU1         GPU2\n"
        "GPU0   0            XGMI         PCIE\nGPU1   XGMI         0            XGMI\nGPU2   PCIE  XGMI  0\n"
        "==== Numa Nodes ====\nGPU[0] : (Topology) Numa Node: 0\n"
    )
    text = "{name: mi300x, memory_gib: 192, peak_tflops: {bf16: 1307}, memory_bandwidth_gbytes: 5300}"
    found = cluster_from_topology(read_topology(path), name="n", device=load_device(text, "--device"))
    assert found.bandwidth_matrix is not None
    assert found.bandwidth_matrix.rows == [[0, 512, 210], [512, 0, 512], [210, 512, 0]]
    path.write_text(
        "HOPS TABLE:\n   0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 0 1\n0000:22:00.0 1 0\nLINK TYPE TABLE:\n"
        "   0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF XGMI\n0000:22:00.0 XGMI SELF\n\nNUMA BW TABLE:\n"
    )
    topology = read_topology(path)
    assert (topology.kinds, topology.tool) == ((("X", "XGMI"), ("XGMI", "X")), "amd-smi topology")
    path.write_text("==== Link Type between two GPUs ====\n  GPU0  GPU1\nGPU0  0  ABC\nGPU1  ABC  0\n")
    with pytest.raises(DataError, match="a link of type 'ABC', expected XGMI or PCIE"):
        read_topology(path)


def test_devices_in_place(tmp_path: Path) -> None:
    """A file of a device, one with its section, and wrong ones."""
    path = tmp_path / "gb10.yaml"
    path.write_text("memory_gib: 119\npeak_tflops: {bf16: 125}\nmemory_bandwidth_gbytes: 273\n")
    assert load_device(str(path), "--device").name == "gb10"
    path.write_text("device: {name: own, memory_gib: 119, peak_tflops: {bf16: 125}, memory_bandwidth_gbytes: 273}\n")
    assert load_device(str(path), "--device").name == "own"
    for wrong, words in (("{a", "is no YAML"), ("{name: a}", "missing"), ("b999", "expected one of")):
        with pytest.raises(DataError, match=words):
            load_device(wrong, "--device")
