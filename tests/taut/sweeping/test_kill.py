"""A sweep that is killed, as a whole or in part, ends in the table of an undisturbed one."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import taut

pytestmark = pytest.mark.proof

SPEC = """
global_batch: [16, 32]
model: gpt2-345m
cluster: dgx-a100
points:
  - {kind: predict, fix: {tp: [1, 2, 3, 4], pp: [1, 2, 4], recompute: [none, full]}}
  - {fix: {tp: [1, 2], pp: [1, 2], schedule: 1f1b, micro_batch: [1, 2]}, gap: 0.01}
"""
POINTS = 2 * (4 * 3 * 2 + 2 * 2 * 2)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a table without wall time."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def lines_of(journal: Path) -> int:
    """Whole lines of a journal."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def started(spec: Path, out: Path) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own."""
    words = ["-m", "taut", "sweep", str(spec), "--out", str(out), "--jobs", "2", "--quiet"]
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children(process: int) -> list[int]:
    """Processes whose parent is the given one."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def is_there(process: int) -> bool:
    """Whether a process runs."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(holds: Any, seconds: float = 120.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_kill_at_a_random_time_and_resume(tmp_path: Path) -> None:
    """Killed twice after random numbers of points: none is lost or repeated, and the table is the undisturbed one."""
    spec, out, whole = tmp_path / "s.yaml", tmp_path / "out.csv", tmp_path / "whole.csv"
    spec.write_text(SPEC, encoding="utf-8")
    taut.sweep(spec, out=whole, jobs=2)
    chance, journal = random.Random(time.time_ns()), tmp_path / "out.csv.journal"
    stops = sorted(chance.sample(range(1, POINTS), 2))
    for stop in stops:
        process = started(spec, out)
        wait_until(lambda stop=stop, process=process: lines_of(journal) > stop or process.poll() is not None)
        held = children(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda held=held: not any(map(is_there, held)))
    assert started(spec, out).wait() == 0
    assert rows_of(out) == rows_of(whole), stops
    keys = [json.loads(line)["key"] for line in journal.read_text(encoding="utf-8").splitlines()[1:]]
    assert len(keys) == len(set(keys)) == POINTS, stops


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler of Dask and two workers, each a process of its own."""
    address_file = tmp_path / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    given = [sys.executable, "-m", "distributed.cli.dask_scheduler", *local, "--port", "0"]
    processes = [subprocess.Popen([*given, "--scheduler-file", str(address_file)], **quiet)]
    try:
        wait_until(lambda: address_file.exists() and address_file.read_text(encoding="utf-8").strip().endswith("}"))
        address = json.loads(address_file.read_text(encoding="utf-8"))["address"]
        once = ["--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path), *local]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, *once]
        processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_dask_worker_is_killed_and_the_sweep_ends_all_the_same(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    """Of two workers one is killed in the middle: the other does its points, and the table is the undisturbed one."""
    address, workers = cluster
    spec, out, whole = tmp_path / "s.yaml", tmp_path / "out.csv", tmp_path / "whole.csv"
    spec.write_text(SPEC, encoding="utf-8")
    taut.sweep(spec, out=whole, jobs=2)
    words = ["sweep", str(spec), "--out", str(out), "--executor", "dask", "--scheduler", address, "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "taut", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: lines_of(tmp_path / "out.csv.journal") > POINTS // 3 or process.poll() is not None)
    assert process.poll() is None
    os.kill(workers[0].pid, signal.SIGKILL)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert f"{POINTS} points".encode() in printed
    assert rows_of(out) == rows_of(whole)
