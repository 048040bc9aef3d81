"""Launch files of NVLink domains that span machines: processes start machine by machine, GPUs are counted in each."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import taut
from taut.data.load import load_cluster
from taut.errors import DataError
from taut.exports.job import Job, rank_files, slurm_files, torchrun_script
from tests.support.launches import MODEL, asked, launched_on, shuffled


def rack(machines: int = 18, gpus: int = 4) -> taut.ClusterSpec:
    """One domain of so many machines."""
    device = {"name": "gpu", "memory_gib": 16, "peak_tflops": {"bf16": 100}, "memory_bandwidth_gbytes": 1000}
    node = {"device": device, "gpus_per_node": machines * gpus, "gpus_per_machine": gpus, "intra_bandwidth_gbps": 7200}
    return taut.ClusterSpec.parse({"name": "rack", "nodes": [node]}, "rack")


def test_a_rack_of_72_starts_on_18_machines() -> None:
    """Slurm gets 18 nodes of 4 GPUs, torchrun 18 machines of 4 processes, Open MPI 18 hosts with the slots 0 to 3."""
    job = launched_on(rack(6, 4), MODEL, pp=3, tp=4, dp=2)
    script = slurm_files(job)["slurm.sh"]
    assert "#SBATCH --nodes=6\n" in script and "#SBATCH --gpus-per-node=4\n" in script
    assert "#SBATCH --ntasks=24\n" in script
    assert Counter(job.gpus.tolist()) == {gpu: 6 for gpu in range(4)}
    start = torchrun_script(job)
    assert "--nnodes 6 --nproc-per-node" in start and start.count("count=4; gpus=") == 6
    lines = re.findall(r"rank \d+=(\S+) slot=(\d+)", rank_files(job)["rankfile"])
    assert Counter(host for host, _ in lines) == {f"node-{number}": 4 for number in range(6)}
    assert {slot for _, slot in lines} == set("0123")


@pytest.mark.proof
def test_torchruns_own_parser_starts_every_machine_of_a_rack(tmp_path: Path) -> None:
    """All 18 scripts by the parser of torchrun: four processes each, on the GPUs 0 to 3, and a number of its own."""
    job = launched_on(rack(), MODEL, pp=9, tp=8, dp=1)
    (tmp_path / "torchrun.sh").write_text(torchrun_script(job))
    (tmp_path / "env.sh").write_text("")
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    cases = []
    for host in job.host_names:
        variables = {**os.environ, "NODE": host, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = ["bash", str(tmp_path / "torchrun.sh"), "train.py"]
        said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
        assert said[0] == "0,1,2,3"
        cases.append({"arguments": said[1:]})
    found = asked("torchrun", cases)
    assert [each["rank"] for each in found] == [*range(18)]
    assert {(each["nodes"], each["processes"]) for each in found} == {(18, 4)}


def test_any_placement_on_machines_is_started() -> None:
    """A device is on the machine and the GPU that its number says, whatever process it has."""
    job = shuffled(launched_on(rack(6, 4), MODEL, pp=3, tp=4, dp=2), 1)
    assert job.nodes.tolist() == [device // 4 for device in job.devices.tolist()]
    assert job.gpus.tolist() == [device % 4 for device in job.devices.tolist()]


def test_hosts_are_machines() -> None:
    """A name for every machine; one for the rack is refused."""
    job = launched_on(rack(6, 4), MODEL, pp=3, tp=4, dp=2)
    names = tuple(f"tray{number}" for number in range(6))
    assert Job(job.plan, names).host_names == names
    with pytest.raises(DataError, match="1 names, expected one for each of 6 machines"):
        Job(job.plan, ("rack0",))


@pytest.mark.parametrize(("name", "machines"), [("gb200-nvl72", 18), ("gb300-nvl64:2", 32), ("dgx-h100:2", 2)])
def test_racks_of_the_catalog_have_machines_of_four(name: str, machines: int) -> None:
    """Of an NVL72 18, of 64 GPUs 16; other nodes are machines."""
    assert len(load_cluster(name).machine_list) == machines


def test_machines_fill_their_node() -> None:
    """Machines of 5 GPUs do not divide a domain of 72."""
    with pytest.raises(DataError, match="gpus_per_machine: is 5, expected a divisor of gpus_per_node = 72"):
        values = rack().model_dump(exclude_none=True)
        values["nodes"][0]["gpus_per_machine"] = 5
        taut.ClusterSpec.parse(values, "rack")
