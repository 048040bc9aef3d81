"""The output of nccl-tests as a run, and a run as a cluster."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.readers.nccl_tests import (
    NcclRow,
    NcclRun,
    _median_row,
    cluster_from_nccltests,
    latency_assumed,
    read_nccltests,
)
from taut.errors import DataError
from taut.reports.catalog import cluster_yaml

START = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 4 minBytes 8 maxBytes 64\n# Using devices\n"
RANK = "#  Rank {:2d} Group  0 Pid   1234 on {:>10} device {:2d} [0000:{:02x}:00] NVIDIA A100\n"
HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           0             0     float     sum      -1     0.10    0.00    0.00       0     0.10    0.00    0.00       0
        1024           256     float     sum      -1    12.00    0.09    0.13       0    11.00    0.09    0.14       0
    67108864      16777216     float     sum      -1    671.1  100.00  150.00     N/A    600.0  111.85  167.77     N/A
"""
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 75.065\n#\n"
READ = (
    NcclRow(size=1024, time_us=12.0, algbw=0.09, busbw=0.13),
    NcclRow(size=67108864, time_us=671.1, algbw=100.0, busbw=150.0),
)


def ranks(*hosts: str) -> str:
    return "".join(RANK.format(i, host, i, i) for i, host in enumerate(hosts))


FOUR = ("box",) * 4
TEXT = START + ranks(*FOUR) + HEADER + ROWS + FOOTER


def read(folder: Path, text: str, collective: str = "") -> NcclRun:
    path = folder / "run.txt"
    path.write_text(text, encoding="utf-8")
    return read_nccltests(path, collective)


def row_json(size: int, time: object, busbw: object, **changes: object) -> dict[str, Any]:
    side = {"time": time, "alg_bw": 1.5, "bus_bw": busbw, "nwrong": None}
    return {
        "size": size,
        "count": 1,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": side,
        **changes,
    }


def report(**changes: object) -> dict[str, Any]:
    """A report of two processes of two threads, of which the devices name the first rank each."""
    devices = [{"rank": rank, "group": 0, "hostname": "box", "device": rank} for rank in (0, 2)]
    config = {"nthreads": 2, "ngpus": 1, "devices": devices}
    rows = [row_json(1024, 12.0, 0.13), row_json(67108864, 671.1, 150.0)]
    return {"version": 2, "args": ["./build/all_reduce_perf", "-g", "1"], "config": config, "results": rows, **changes}


def cluster(run: NcclRun, **changes: Any) -> ClusterSpec:
    return cluster_from_nccltests(run, name="measured", device=catalog_devices()["a100-80gb"], **changes)


def run(collective: str = "all_reduce", hosts: tuple[str, ...] = FOUR, rows: tuple[NcclRow, ...] = READ) -> NcclRun:
    return NcclRun(collective=collective, hosts=hosts, rows=rows)


def test_text_is_read_out_of_place(tmp_path: Path) -> None:
    """Figures out of place, the hosts of the ranks and the collective; a message of no bytes is left out."""
    assert read(tmp_path, TEXT) == run()


def test_noise_of_the_launcher_is_not_read(tmp_path: Path) -> None:
    """Lines of other programs between comments and rows do no harm, nor does one that begins with digits before."""
    noise = "\n1 warning generated\nbox:12:12 [0] NCCL INFO comm 0x1 rank 0\n"
    assert read(tmp_path, noise + TEXT.replace("#  Rank  0", noise[9:] + "#  Rank  0")) == run()


@pytest.mark.parametrize("before", ["    ", "> ", "\t> "])
def test_quoted_logs_are_read(tmp_path: Path, before: str) -> None:
    """A log in a page is indented or quoted; results that were wrong are refused in every form."""
    quoted = "".join(f"{before}{line}\n" for line in TEXT.splitlines())
    assert read(tmp_path, quoted) == read(tmp_path, TEXT)
    with pytest.raises(DataError, match="Out of bounds values : 1 FAILED, expected 0 OK"):
        read(tmp_path, quoted.replace("0 OK", "1 FAILED"))


def test_timestamp_and_iteration_columns_are_read_past(tmp_path: Path) -> None:
    """A trailing timestamp has two words under one name; per-iteration columns follow each side's four."""
    lines = [f"{line}  2025-01-02 03:04:05" for line in ROWS.splitlines()]
    stamped = HEADER.replace("#wrong\n", "#wrong           timestamp\n")
    assert read(tmp_path, START + ranks(*FOUR) + stamped + "\n".join(lines)) == run()
    per_iteration = HEADER.replace("#wrong", "#wrong  i_min  i_max  i_p99  i_cv%")
    wide = "1024 256 float sum -1 12.00 0.09 0.13 0 11.5 13.0 12.9 0.1 11.00 0.09 0.14 0 10.0 12.0 11.9 0.2\n"
    assert read(tmp_path, START + ranks(*FOUR) + per_iteration + wide).rows == READ[:1]


@pytest.mark.parametrize(
    "row",
    [
        "1024 256 float sum 12.00 0.09 0.13 4e-07 11.00 0.09 0.14 4e-07",
        "1024 256 float 12.00 0.09 0.13 4e-07 11.00 0.09 0.14 4e-07",
    ],
)
def test_older_text_has_fewer_columns_and_no_name(tmp_path: Path, row: str) -> None:
    """Twelve columns with an error in place of #wrong, or eleven with a blank operation; the collective is stated."""
    header = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
    lines = ranks(*FOUR).replace("Group  0 ", "") + header + row + "\n"
    assert read(tmp_path, lines, "all_reduce") == run(rows=READ[:1])
    with pytest.raises(DataError, match=r"run\.txt: names no collective, expected one; --collective states it"):
        read(tmp_path, lines)


def test_json_is_read_with_every_rank_of_a_process(tmp_path: Path) -> None:
    """The devices name the first rank of each process, so two processes of two threads are four ranks."""
    assert [(row.size, row.time_us, row.busbw) for row in read(tmp_path, json.dumps(report())).rows] == [
        (row.size, row.time_us, row.busbw) for row in READ
    ]
    assert read(tmp_path, json.dumps(report())).hosts == FOUR
    listed = [{"rank": rank, "hostname": host} for rank, host in enumerate("aabb")]
    full = report(config={"nthreads": 2, "ngpus": 1}, devices=listed)
    assert read(tmp_path, json.dumps(full)).ranks_per_host == {"a": 2, "b": 2}


def test_json_of_a_run_that_ended_early_is_refused(tmp_path: Path) -> None:
    """The file is closed after an error too, without a summary; with one the sizes may end where memory ended."""
    early = report(config={**report()["config"], "maximum_bytes": 2**33, "step_factor": 2})
    words = "ends at 67108864 bytes without out_of_bounds, expected messages up to 8589934592 as config.maximum_bytes"
    with pytest.raises(DataError, match=words):
        read(tmp_path, json.dumps(early))
    assert read(tmp_path, json.dumps({**early, "out_of_bounds": {"count": 0, "okay": True}})).hosts == FOUR
    with pytest.raises(DataError, match=r"out_of_bounds.okay is false \(3 values\), expected true, as wrong results"):
        read(tmp_path, json.dumps({**early, "out_of_bounds": {"count": 3, "okay": False}}))
    with pytest.raises(DataError, match=r"out_of_bounds.okay is None"):
        read(tmp_path, json.dumps({**early, "out_of_bounds": {}}))
    with pytest.raises(DataError, match=r"bitwise_mismatches.okay is false \(2 values\)"):
        read(tmp_path, json.dumps({**report(), "bitwise_mismatches": {"count": 2, "okay": False}}))


@pytest.mark.parametrize(
    ("first", "most", "step", "is_whole"),
    [
        # 1024 x 2^16 is 67108864: the next size is that announced, and was not reached; or beyond it.
        (1024, 134217728, ("factor", 2), False),
        (1024, 134217727, ("factor", 2), True),
        # 1048576 bytes apart, the last size up to 68157439 is 67108864, up to 68157440 one more.
        (1048576, 68157439, ("bytes", 1048576), True),
        (1048576, 68157440, ("bytes", 1048576), False),
    ],
)
def test_last_size_follows_from_the_step(
    tmp_path: Path, first: int, most: int, step: tuple[str, int], is_whole: bool
) -> None:
    """Text without its end and JSON without its summary are whole if the last size of the step is there."""
    kind, value = step
    sizes = {"minimum_bytes": first, "maximum_bytes": most, f"step_{kind}": value}
    head = START.replace("minBytes 8 maxBytes 64", f"minBytes {first} maxBytes {most} step: {value}({kind}) warmup")
    for text in (json.dumps(report(config={**report()["config"], **sizes})), head + ranks(*FOUR) + HEADER + ROWS):
        if is_whole:
            assert read(tmp_path, text).rows[-1].size == 67108864
        else:
            with pytest.raises(DataError, match=f"ends at 67108864 bytes.*, expected messages up to {most} as"):
                read(tmp_path, text)


def test_repeats_have_medians_of_bandwidths_and_of_the_times_that_are_known() -> None:
    """A run whose time is unknown says nothing of latency, and its bandwidth counts like any other."""
    rows = [replace(READ[0], time_us=time, busbw=busbw) for time, busbw in ((math.inf, 50.0), (8.0, 44.0), (9.0, 40.0))]
    found = _median_row(rows)
    assert (found.time_us, found.busbw) == (8.5, 44.0)
    assert _median_row(rows[:1]).time_us == math.inf


def test_times_of_the_host_give_no_latency(tmp_path: Path) -> None:
    """With option -C the time is the host's, under another name; bandwidths stand as ever."""
    hosted = replace(READ[0], time_us=math.inf)
    found = read(tmp_path, START + ranks(*FOUR) + HEADER.replace(" time ", " cputime ") + ROWS)
    assert found.rows == (hosted, replace(READ[1], time_us=math.inf))
    assert latency_assumed(found).startswith(
        "the times are the host's (-C) or of operations together (-m), which tell no latency: 3 us inside"
    )
    device = catalog_devices()["a100-80gb"]
    assert cluster_from_nccltests(found, name="c", device=device).nodes[0].intra_latency_us == 3.0
    between = replace(found, rows=READ, inside=found)
    assert latency_assumed(between).startswith("inside a node the times are the host's (-C)")
    side = {"cpu_time": 12.0, "alg_bw": 0.09, "bus_bw": 0.13, "nwrong": 0}
    assert read(tmp_path, json.dumps(report(results=[row_json(1024, 0, 0, out_of_place=side)]))).rows == (hosted,)


def test_times_of_operations_together_give_no_latency(tmp_path: Path) -> None:
    """With -m 20 a time is a twentieth of what twenty operations take; with 1 it is that of one."""
    for count, least in ((1, 12.0), (20, math.inf)):
        head = START.replace(
            "maxBytes 64", f"maxBytes 64 step: 2(factor) warmup iters: 1 iters: 20 agg iters: {count} graph: 0"
        )
        assert read(tmp_path, head + ranks(*FOUR) + HEADER + ROWS).rows[0].time_us == least
        config = {**report()["config"], "aggregated_iterations": count}
        assert read(tmp_path, json.dumps(report(config=config))).rows[0].time_us == least


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"run.txt: names the ranks \[\], expected 0, 1"),
        (START + ranks(*FOUR) + HEADER + FOOTER, "run.txt: has no row of figures, expected nccl-tests output"),
        (START + HEADER + ROWS, r"run.txt: names the ranks \[\], expected 0, 1, ... and their hosts"),
        (TEXT.replace("#  Rank  1", "#  Bank  1"), r"run.txt: names the ranks \[0, 2, 3\], expected 0, 1"),
        (TEXT.replace("Group  0", "Group  1", 1), "run.txt: has 2 groups of ranks, expected one communicator"),
        (START.replace("all_reduce", "sendrecv") + TEXT, "has the collectives all_reduce, sendrecv, expected one"),
        (TEXT.replace("  671.1  100.00  150.00     N/A", ""), "run.txt line 13: has 9 columns, expected 13"),
        (TEXT.replace("12.00", "fast"), "run.txt line 12: time is 'fast', expected a number from 0 on"),
        (TEXT.replace("12.00", " 0.00"), "run.txt line 12: time is '0.00', expected microseconds > 0"),
        (TEXT.replace("150.00", "   nan"), "run.txt line 13: busbw is 'nan', expected a number from 0 on"),
        (TEXT.replace("0.13       0", "0.13       3"), "run.txt line 12: #wrong is '3', expected 0 or N/A"),
        (json.dumps(report(results=None)), "run.txt: results: is None, expected a list of rows"),
        (json.dumps(report(results=[row_json(8, 1.0, "nan")])), "results.0: busbw is 'nan', expected a number"),
        (json.dumps(report(results=[row_json(8, 1, 1, out_of_place=None)])), "results.0: out_of_place: is None"),
        (json.dumps(report(config={"ngpus": 0})), "config.ngpus: is 0, expected a whole number from 1"),
        (json.dumps(report(config={})), "devices: is None, expected a rank and a hostname of each"),
        (json.dumps(report())[:-9], "run.txt line 1: .*, expected nccl-tests output"),
    ],
)
def test_wrong_output_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, the line or row, the figure and what was expected."""
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("collective", "steps"), [("all_reduce", 6), ("all_gather", 3), ("sendrecv", 1)])
def test_run_inside_a_host_measures_the_node(collective: str, steps: int) -> None:
    """Bus bandwidth of the largest message, and the smallest's time per step of a ring of four."""
    found = cluster(run(collective), nodes=2, bandwidth_gbps=100.0)
    node = found.nodes[0]
    assert (found.num_nodes, found.num_devices) == (2, 8)
    # 150 GB/s are 1200 Gb/s; 12 us over 2 (4 - 1) = 6, 4 - 1 = 3 or 1 steps.
    assert node.intra_bandwidth_gbps == pytest.approx(1200.0)
    assert node.intra_latency_us == pytest.approx(12.0 / steps)
    assert (found.network.bandwidth_gbps, found.network.latency_us, node.nic_bandwidth_gbps) == (100.0, 5.0, None)


def test_run_over_hosts_measures_the_network() -> None:
    """A collective over two hosts is the rate of a node's cards, one pair has its share; the inside is stated."""
    found = cluster(run(hosts=("a", "a", "b", "b")), intra_bandwidth_gbps=2400.0)
    node = found.nodes[0]
    assert (found.num_nodes, node.gpus_per_node) == (2, 2)
    assert (node.intra_bandwidth_gbps, node.intra_latency_us) == (2400.0, 3.0)
    assert found.network.bandwidth_gbps == pytest.approx(600.0)
    assert node.nic_bandwidth_gbps == pytest.approx(1200.0)
    assert found.network.latency_us == pytest.approx(12.0 / 6)
    alone = cluster(run("sendrecv", hosts=("a", "a", "b", "b")), intra_bandwidth_gbps=2400.0)
    assert alone.nodes[0].nic_bandwidth_gbps is None


def test_what_is_stated_wins() -> None:
    """A stated figure replaces the measured one."""
    found = cluster(
        run(), gpus_per_node=8, intra_bandwidth_gbps=9.0, intra_latency_us=0.0, latency_us=7.0, nic_bandwidth_gbps=8.0
    )
    node = found.nodes[0]
    assert (node.gpus_per_node, node.intra_bandwidth_gbps, node.intra_latency_us) == (8, 9.0, 0.0)
    assert (found.network.latency_us, node.nic_bandwidth_gbps) == (7.0, 8.0)


def test_cluster_survives_its_file(tmp_path: Path) -> None:
    """The cluster written as YAML is read back equal."""
    path = tmp_path / "measured.yaml"
    for found in (cluster(run()), cluster(run(hosts=("a", "b")), intra_bandwidth_gbps=50.0)):
        path.write_text(cluster_yaml(found), encoding="utf-8")
        assert load_cluster(str(path)) == found


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        (run("broadcast"), {}, "measured: collective is 'broadcast', expected one of all_reduce, all_gather"),
        (run(hosts=("a",)), {}, "measured: the run has one rank, expected at least two"),
        (
            run(rows=(NcclRow(size=8, time_us=1.0, algbw=0.0, busbw=0.0),)),
            {},
            "bus bandwidth of 8 bytes is 0, expected",
        ),
        (run(hosts=("a", "b")), {}, "intra_bandwidth_gbps: missing, expected with a run over 2 hosts"),
        (run(hosts=("a", "a", "b")), {"intra_bandwidth_gbps": 1.0}, r"hosts have \[1, 2\] ranks, expected as many"),
        (run(), {"nodes": 2}, "network.bandwidth_gbps: missing, expected with more than one node"),
        (run(), {"nodes": 0}, "measured: nodes.0.count: is 0, expected"),
        (run(), {"intra_bandwidth_gbps": -1.0}, "measured: nodes.0.intra_bandwidth_gbps: is -1.0, expected"),
    ],
)
def test_run_that_makes_no_cluster_is_refused(given: NcclRun, changes: dict[str, Any], words: str) -> None:
    """What the run does not measure must be stated, and what it is must be known."""
    with pytest.raises(DataError, match=words):
        cluster(given, **changes)


def test_hosts_of_one_rack_are_one_node() -> None:
    """A run over hosts of one NVLink domain measures the links inside it, where one node is asked for."""
    rack = cluster(run(hosts=("one",) * 4 + ("two",) * 4), nodes=1)
    (node,) = rack.nodes
    assert (node.count, node.gpus_per_node, node.intra_bandwidth_gbps) == (1, 8, 1200)
    assert node.nic_bandwidth_gbps is None and rack.network.bandwidth_gbps is None
    assert "8 ranks on 2 hosts: links inside a node measured" in rack.source
    part = cluster(run(hosts=("one",) * 4 + ("two",) * 4), nodes=1, gpus_per_node=72)
    assert part.num_devices == 72
