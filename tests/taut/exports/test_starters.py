"""What starts processes: each puts every process on the GPU that the plan says."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from taut.errors import DataError
from taut.exports.job import Job, rank_files, rank_table, slurm_files, torchrun_script
from tests.support.launches import launched, shuffled

HOSTS = ("alpha", "beta")
Made = Callable[[], Job]
JOBS: dict[str, Made] = {
    "in order": lambda: launched(hosts=HOSTS, pp=2, tp=2, micro_batch=1),
    "shuffled": lambda: shuffled(launched(hosts=HOSTS, pp=2, tp=2, micro_batch=1), 3),
    "contexts": lambda: launched(hosts=HOSTS, pp=1, tp=2, cp=2, micro_batch=1),
}
by_job = pytest.mark.parametrize("made", JOBS.values(), ids=JOBS)


def places(job: Job) -> list[tuple[str, int]]:
    """Host and GPU of every process, straight from the plan: devices 0 to 3 are on the first host."""
    flat = [device for stage in job.plan.devices for block in stage for device in block]
    return [(HOSTS[device // 4], device % 4) for device in flat]


@by_job
def test_ranks_are_stages_then_replicas_then_context_then_tensor_ranks(made: Made) -> None:
    """The table has the plan's devices, and each rank's coordinates give the same number by (1)."""
    job = made()
    table, chosen = rank_table(job), job.strategy
    rows = [line.split(",") for line in table.splitlines()[1:]]
    assert [int(row[3]) for row in rows] == job.devices.tolist()
    for rank, _, _, _, x, z, c, t in rows:
        assert int(rank) == ((int(x) * chosen.dp + int(z)) * chosen.cp + int(c)) * chosen.tp + int(t)


@by_job
def test_the_rankfile_has_the_placement(made: Made) -> None:
    """Hosts and slots of all ranks; the file of GPUs agrees."""
    job = made()
    files = rank_files(job)
    lines = [f"rank {rank}={host} slot={gpu}" for rank, (host, gpu) in enumerate(places(job))]
    assert files["rankfile"].splitlines() == lines
    assert [int(line) for line in files["gpus.txt"].split()] == [gpu for _, gpu in places(job)]
    assert "-n 8 " in files["mpirun.sh"]


@by_job
def test_slurms_hosts_have_the_placement(made: Made) -> None:
    """Line i is the host of process i; without names it is the node's place in the allocation."""
    job = made()
    files = slurm_files(job)
    assert files["hosts.txt"].split() == [host for host, _ in places(job)]
    assert "#SBATCH --ntasks=8" in files["slurm.sh"] and "--nodelist=alpha,beta" in files["slurm.sh"]
    unnamed = slurm_files(Job(job.plan))
    assert [HOSTS[int(node)] for node in unnamed["nodes.txt"].split()] == [host for host, _ in places(job)]
    assert "scontrol show hostnames" in unnamed["slurm.sh"]


def bound(job: Job, folder: Path, tools: dict[str, str]) -> list[str]:
    """What each process of a job runs under Slurm with some tools beside those of the host."""
    for name, content in {**slurm_files(job), "env.sh": ""}.items():
        (folder / name).write_text(content)
    for name, content in tools.items():
        (folder / name).write_text(f"#!/bin/bash\n{content}\n")
        (folder / name).chmod(0o755)
    found = list[str]()
    for rank in range(8):
        variables = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "8"}
        command = ["bash", str(folder / "process.sh"), "sh", "-c", 'echo "$RANK $LOCAL_RANK"']
        found.append(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip())
    return found


def test_processes_run_on_the_cores_of_their_gpu(tmp_path: Path) -> None:
    """GPUs 0 and 1 are at NUMA node 0, 2 and 3 at 1; where nothing says so, or may bind, a process has all cores."""
    job = JOBS["shuffled"]()
    plain = [f"{rank} {gpu}" for rank, (_, gpu) in enumerate(places(job))]
    tools = {
        "nvidia-smi": 'echo "00000000:0${@: -1}:0A.0"',
        "cat": "case $1 in /sys/bus/pci/devices/0000:0[01]:0a.0/numa_node) echo 0;; */0000:0[23]:0a.0/*) echo 1;; esac",
        "numactl": '[[ $3 == true ]] && exit; echo "${@:1:2}" $("${@:3}")',
    }
    assert bound(job, tmp_path, {name: "exit 1" for name in tools}) == plain
    assert bound(job, tmp_path, {**tools, "numactl": "exit 1"}) == plain
    assert bound(job, tmp_path, {**tools, "cat": "echo -1"}) == plain
    nodes = [gpu // 2 for _, gpu in places(job)]
    assert bound(job, tmp_path, tools) == [
        f"--cpunodebind={node} --membind={node} {words}" for node, words in zip(nodes, plain, strict=True)
    ]
    # Slurm's own binding may leave a process one core.
    assert "srun --cpu-bind=none " in slurm_files(job)["slurm.sh"]


def started(job: Job, folder: Path) -> list[tuple[str, int]]:
    """Run the script on both hosts with a torchrun that prints its arguments; host and GPU of every process."""
    (folder / "torchrun.sh").write_text(torchrun_script(job))
    (folder / "env.sh").write_text("")
    (folder / "torchrun").write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$@"\n')
    (folder / "torchrun").chmod(0o755)
    found: dict[int, tuple[str, int]] = {}
    for host in HOSTS:
        variables = {"PATH": f"{folder}:/usr/bin:/bin", "NODE": host}
        done = subprocess.run(
            ["bash", folder / "torchrun.sh", "train.py"], env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            gpus, words = line.split()[0].split(","), re.sub(r"\s+", " ", line)
            number, count = (int(re.findall(rf"--{name} (\d+)", words)[0]) for name in ("node-rank", "nproc-per-node"))
            assert count == len(gpus) and words.endswith("train.py")
            found |= {number * count + place: (host, int(gpu)) for place, gpu in enumerate(gpus)}
    return [found[rank] for rank in range(8)]


@by_job
def test_torchrun_has_the_placement(made: Made, tmp_path: Path) -> None:
    """The script runs: node numbers times processes plus places in the list of GPUs are the plan's ranks."""
    job = made()
    assert started(job, tmp_path) == places(job)


def test_an_unknown_host_is_told(tmp_path: Path) -> None:
    """The script ends with 2 and names the hosts that it knows."""
    (tmp_path / "torchrun.sh").write_text(torchrun_script(JOBS["in order"]()))
    (tmp_path / "env.sh").write_text("")
    variables = {"NODE": "gamma", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", tmp_path / "torchrun.sh"], env=variables, capture_output=True, text=True)
    assert done.returncode == 2 and "alpha to beta" in done.stderr


@pytest.mark.parametrize("hosts", [("alpha",), ("alpha", "alpha")])
def test_wrong_names_are_refused(hosts: tuple[str, ...]) -> None:
    """Too few, and one twice."""
    with pytest.raises(DataError, match="hosts"):
        launched(hosts=hosts, pp=2, tp=2, micro_batch=1)
