"""The verbs of ``taut import`` that read NVIDIA's tools: a cluster file that ``plan`` reads, or one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from taut.commands.app import app
from taut.data.load import load_cluster
from tests.taut.conftest import Outcome, Run

RANKS = "".join(f"#  Rank {i:2d} Group  0 Pid 1 on box device {i:2d} [0000:0{i}:00] GPU\n" for i in range(2))
HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
ROWS = "1024 256 float sum -1 12.0 0.1 0.1 0 12.0 0.1 0.1 0\n4096 1024 float sum -1 20.0 6.0 6.0 N/A 20.0 6.0 6.0 N/A\n"
NCCL = "# Collective test starting: all_reduce_perf\n" + RANKS + HEADER + ROWS
CASE = {
    "name": "device_to_device_memcpy_read_ce",
    "status": "Passed",
    "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
    "bandwidth_matrix": [["N/A", "10.5"], ["11.5", "N/A"]],
}
NVBANDWIDTH = json.dumps({"nvbandwidth": {"testcases": [CASE]}})
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n"
TEXTS = {"nccl-tests": NCCL, "nvbandwidth": NVBANDWIDTH, "topo": TOPO}


def call(run: Run, verb: str, folder: Path, text: str, *options: object, device: str = "t4-16gb") -> Outcome:
    path = folder / "box.txt"
    path.write_text(text, encoding="utf-8")
    return run("import", verb, path, "--device", device, "--out", folder / "cluster.yaml", *options)


@pytest.mark.parametrize(("verb", "inside"), [("nccl-tests", 48.0), ("nvbandwidth", 84.0), ("topo", 400.0)])
def test_import_writes_a_cluster_that_plan_reads(tmp_path: Path, run: Run, verb: str, inside: float) -> None:
    """Every verb writes one node of two devices, and says so on stderr."""
    outcome, out = call(run, verb, tmp_path, TEXTS[verb]), tmp_path / "cluster.yaml"
    assert outcome == Outcome(0, "", f"{out}: 1 nodes, 2 devices\n")
    cluster = load_cluster(str(out))
    # 6 GB/s are 48 Gb/s; the slower way, 10.5 GB/s, is 84 Gb/s; two links of 200 Gb/s are 400.
    assert cluster.name == "box"
    assert cluster.nodes[0].intra_bandwidth_gbps == pytest.approx(inside)
    assert run("plan", "gpt2-345m", out, "--global-batch", 4, "--work-limit", 5, "--quiet").code == 0


def test_cards_of_a_node_become_a_network(tmp_path: Path, run: Run) -> None:
    """The text says nothing of devices, which options state."""
    text = "".join(f"CA 'mlx5_{i}'\n Port 1:\n  State: Active\n  Physical state: LinkUp\n  Rate: 200\n"
                   "  Link layer: Ethernet\n" for i in range(2))  # fmt: skip
    options = ("--nodes", 2, "--gpus-per-node", 2, "--intra-bandwidth-gbps", 50)
    assert call(run, "ibstat", tmp_path, text, *options).code == 0
    found = load_cluster(str(tmp_path / "cluster.yaml"))
    assert (found.num_devices, found.nodes[0].nic_bandwidth_gbps, found.network.bandwidth_gbps) == (4, 400, 200)


def test_options_reach_the_cluster(tmp_path: Path, run: Run) -> None:
    """Node count, network, link rate, test and name are those of the command line."""
    options = ("--nodes", 2, "--gpus-per-node", 4, "--bandwidth-gbps", 50, "--nic-bandwidth-gbps", 100, "--name", "own")
    assert call(run, "nccl-tests", tmp_path, NCCL, *options).code == 0
    found = load_cluster(str(tmp_path / "cluster.yaml"))
    assert (found.name, found.num_nodes, found.num_devices, found.network.bandwidth_gbps) == ("own", 2, 8, 50.0)
    assert (found.nodes[0].nic_bandwidth_gbps, found.nodes[0].intra_latency_us) == (100.0, 6.0)
    assert call(run, "topo", tmp_path, TOPO, "--nvlink-gbps", 400, "--intra-latency-us", 2).code == 0
    found = load_cluster(str(tmp_path / "cluster.yaml"))
    assert (found.nodes[0].intra_bandwidth_gbps, found.nodes[0].intra_latency_us) == (800.0, 2.0)


@pytest.mark.parametrize(
    ("verb", "text", "options", "words"),
    [
        (
            "nccl-tests",
            NCCL.replace("12.0 0.1", "fast 0.1", 1),
            [],
            "box.txt line 5: time is 'fast', expected a number",
        ),
        (
            "nccl-tests",
            NCCL,
            ["--nodes", "2"],
            "box: network.bandwidth_gbps: missing, expected with more than one node",
        ),
        ("nccl-tests", NCCL, ["--collective", "sendrecv"], "has the collectives all_reduce, sendrecv, expected one"),
        ("nvbandwidth", NVBANDWIDTH, ["--test", "other"], "box.txt: other is missing, expected Passed"),
        ("nvbandwidth", NCCL, [], "expected the JSON of nvbandwidth -j"),
        ("topo", TOPO.replace("NV2", "NV?"), [], "box.txt line 2: GPU0 column 2 is 'NV?', expected one of PIX"),
        ("topo", TOPO, ["--nvlink-gbps", "nan"], "box: nodes.0.intra_bandwidth_gbps: is nan, expected a finite number"),
    ],
)
def test_wrong_input_is_one_line_and_no_file(
    tmp_path: Path, run: Run, verb: str, text: str, options: list[str], words: str
) -> None:
    """Exit code 2, one line on stderr that says where and what, and no cluster file."""
    outcome = call(run, verb, tmp_path, text, *options)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("taut: ")
    assert words in outcome.err
    assert not (tmp_path / "cluster.yaml").exists()


@pytest.mark.parametrize("verb", TEXTS)
def test_unknown_device_and_missing_file_are_refused(tmp_path: Path, run: Run, verb: str) -> None:
    """The device must be the catalog's, and the file must be there."""
    assert "--device: is 'b999', expected one of" in call(run, verb, tmp_path, TEXTS[verb], device="b999").err
    outcome = run("import", verb, tmp_path / "none", "--device", "t4-16gb", "--out", tmp_path / "cluster.yaml")
    assert outcome.code == 2
    assert "none: No such file or directory, expected" in outcome.err


def test_racks_of_slurm(tmp_path: Path, run: Run) -> None:
    """Two leaf switches of two and three nodes, at stated rates, on a device that is described in place."""
    path, out = tmp_path / "topology.conf", tmp_path / "c.yaml"
    path.write_text("SwitchName=s1 Nodes=n[0-1]\nSwitchName=s2 Nodes=n[2-3],m\nSwitchName=top Switches=s[1-2]\n")
    device = "{name: own, memory_gib: 80, peak_tflops: {bf16: 300}, memory_bandwidth_gbytes: 2000}"
    options = ("--device", device, "--gpus-per-node", 8, "--intra-bandwidth-gbps", 2400, "--bandwidth-gbps", 100)
    assert run("import", "slurm", path, *options, "--rack-bandwidth-gbps", 200, "--out", out).code == 0
    found = load_cluster(str(out))
    assert (found.num_nodes, found.num_devices, found.network.bandwidth_gbps) == (5, 40, 100.0)
    assert [(rack.nodes, rack.bandwidth_gbps) for rack in found.network.racks] == [([0, 1], 200.0), ([2, 3, 4], 200.0)]


CARDS = "".join(
    f"CA 'mlx5_{i}'\n Port 1:\n  State: Active\n  Physical state: LinkUp\n  Rate: 200\n  Link layer: {layer}\n"
    for i, layer in enumerate(("Ethernet", "InfiniBand"))
)
SITES = "host,node1,node2\nnode1,9,110.5\nnode2,210.5,9\n"
SWITCHES = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=s Switches=a,b\n"
HOSTS = NCCL.replace("box device  1", "bay device  0")
SECOND = CASE | {"name": "device_to_device_memcpy_write_ce", "bandwidth_matrix": [["N/A", "3"], ["4", "N/A"]]}
TESTS = json.dumps({"nvbandwidth": {"testcases": [CASE, SECOND]}})
INSIDE = ("--gpus-per-node", 2, "--intra-bandwidth-gbps", 50)
LATENCY = {"--intra-latency-us": 7, "--name": "own"}
OPTIONS: dict[str, tuple[str, tuple[object, ...], dict[str, object]]] = {
    "mpigraph": (SITES, INSIDE, {"--gpus-per-node": 4, "--intra-bandwidth-gbps": 60, "--latency-us": 9, **LATENCY}),
    "nccl-tests": (HOSTS, ("--intra-bandwidth-gbps", 50), {
        "--nodes": 4, "--gpus-per-node": 2, "--intra-bandwidth-gbps": 60, "--bandwidth-gbps": 5, "--latency-us": 9,
        "--nic-bandwidth-gbps": 100, "--collective": "all_gather", **LATENCY}),
    "nvbandwidth": (TESTS, (), {"--test": SECOND["name"], **LATENCY}),
    "topo": (TOPO, (), {"--nvlink-gbps": 100, **LATENCY}),
    "ibstat": (CARDS, (*INSIDE, "--nodes", 2, "--link-layer", "Ethernet"), {
        "--gpus-per-node": 4, "--intra-bandwidth-gbps": 60, "--nodes": 4, "--link-layer": "InfiniBand",
        "--latency-us": 9, **LATENCY}),
    "slurm": (SWITCHES, (*INSIDE, "--bandwidth-gbps", 100), {
        "--gpus-per-node": 4, "--intra-bandwidth-gbps": 60, "--bandwidth-gbps": 90, "--rack-bandwidth-gbps": 200,
        "--nic-bandwidth-gbps": 300, "--latency-us": 9, **LATENCY}),
}  # fmt: skip
"""By verb a text, the options that it needs, and another value of every option."""


@pytest.mark.parametrize("verb", OPTIONS)
def test_every_option_has_an_effect(tmp_path: Path, run: Run, verb: str) -> None:
    """Another value of an option gives another cluster, or is refused; no option is without a case."""
    group: Any = typer.main.get_command(app)
    every = {param.opts[-1] for param in group.commands["import"].commands[verb].params}
    text, usual, changes = OPTIONS[verb]
    assert every == {*changes, "path", "--device", "--out"}
    out = tmp_path / "cluster.yaml"
    assert call(run, verb, tmp_path, text, *usual).code == 0
    before = out.read_text()
    for name, value in {**changes, "--device": "v100-16gb"}.items():
        out.unlink(missing_ok=True)
        kept = [each for at in range(0, len(usual), 2) if usual[at] != name for each in usual[at : at + 2]]
        given = {} if name == "--device" else {name: value}
        device = str(value) if name == "--device" else "t4-16gb"
        options = [*kept, *(each for pair in given.items() for each in pair)]
        outcome = call(run, verb, tmp_path, text, *options, device=device)
        assert outcome.code == 2 or out.read_text() != before, name
