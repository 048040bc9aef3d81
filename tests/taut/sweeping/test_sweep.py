"""Sweeps in this process and in others: rows, the journal, and what goes wrong on the way."""

import csv
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.errors import DataError, NothingFoundError, SolverError
from taut.sweeping import executors
from taut.sweeping.executors import INTERRUPTED, lost
from taut.sweeping.point import Point
from taut.sweeping.sweep import Journal, journal_path
from tests.taut.conftest import Run, refused

PREDICTIONS = {
    "kind": "predict",
    "gpu": "A100",
    "hidden": 2048,
    "layers": [24, 48],
    "n_gpus": 8,
    "tp": [1, 2, 3],
    "global_batch": 64,
}
YAML = "kind: predict\ngpu: A100\nhidden: 2048\nlayers: [24, 48]\nn_gpus: 8\ntp: [1, 2, 3]\nglobal_batch: 64\n"


def sweep(values: Any, **options: Any) -> list[dict[str, Any]]:
    """A sweep on one thread of this process."""
    with ThreadPoolExecutor(1) as executor:
        return taut.sweep(values, executor=executor, **options)


def without_seconds(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file without wall time."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def test_rows_are_those_of_predict_and_a_wrong_point_is_one_of_them() -> None:
    """Every point has its row in order; a wrong one has words and no figure."""
    rows = sweep(PREDICTIONS)
    given = {name: value for name, value in PREDICTIONS.items() if name != "kind"}
    direct = taut.predict([{**given, "layers": n, "tp": tp, "dp": 8 // tp} for n in (24, 48) for tp in (1, 2, 3)])
    assert [row["point"] for row in rows] == list(range(6))
    assert [row["step_time_s"] for row in rows] == [row["step_time_s"] for row in direct]
    assert [row["status"] for row in rows] == ["predicted", "predicted", "error"] * 2
    assert "expected tp*pp*dp*cp = 6" in rows[2]["error"] and rows[2]["step_time_s"] is None


def test_a_plan_has_its_strategy_bound_and_gap() -> None:
    """A planned point is the plan of ``taut.plan`` in a row, and one that cannot be is a row with its reason."""
    fixed = [{"tp": 1, "pp": 2, "micro_batch": 4}, {"tp": 5}]
    given: dict[str, Any] = {"global_batch": 32, "schedules": "1f1b", "gap": 1e-6}
    good, bad = sweep({"model": "gpt2-345m", "cluster": "dgx-a100", "fix": fixed, **given})
    plan = taut.plan("gpt2-345m", "dgx-a100", fix=fixed[0], workers=1, **given)
    assert good["fix"] == "tp=1,pp=2,micro_batch=4" and good["status"] == "optimal"
    assert (good["step_time_s"], good["lower_bound_s"], good["gap"]) == (plan.step_time_s, plan.lower_bound_s, plan.gap)
    assert (good["pp"], good["dp"], good["stages"]) == (2, 4, "13|11")
    assert good["memory_bytes"] == max(plan.predicted.memory_bytes)
    assert bad["status"] == "error" and "tp=5" in bad["error"]


def test_a_simulated_point_is_the_simulation_in_a_row() -> None:
    """Step time, memory, bubble and tasks are those of ``taut.simulate``."""
    given: dict[str, Any] = {"global_batch": 32, "fix": {"pp": 2, "tp": 1, "micro_batch": 4, "zero": 0}}
    row = sweep({"kind": "simulate", "model": "gpt2-345m", "cluster": "dgx-a100", **given})[0]
    found = taut.simulate("gpt2-345m", "dgx-a100", **given)
    assert (row["status"], row["stages"], row["dp"]) == ("simulated", "12|12", 4)
    assert (row["step_time_s"], row["bubble"], row["tasks"]) == (found.step_time_s, found.bubble, found.tasks)
    assert (row["memory_bytes"], row["fits"]) == (max(found.memory_bytes), found.fits)


def test_a_second_run_reads_what_the_first_has_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished points are not solved again, more points are, and the same point twice is solved once."""
    out = tmp_path / "out.csv"
    sweep({**PREDICTIONS, "layers": 24}, out=out)
    solved: list[Point] = []

    def solve(point: Point) -> dict[str, Any]:
        solved.append(point)
        return lost("not solved here")

    monkeypatch.setattr(executors, "solved", solve)
    rows = sweep({**PREDICTIONS, "points": [{}, {"layers": 48}]}, out=out)
    assert len(rows) == 9 and [point.given["layers"] for point in solved] == [48] * 3
    assert [row["status"] for row in rows] == ["predicted", "predicted", "error", *["lost"] * 6]


def test_a_journal_that_was_cut_anywhere_goes_on_to_the_same_result(tmp_path: Path) -> None:
    """Whatever part of the last line a kill left, the sweep goes on and writes the file of an undisturbed one."""
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    sweep(PREDICTIONS, out=whole)
    text = journal_path(whole).read_bytes()
    for cut in (0, 1, 20, text.index(b"\n"), text.index(b"\n") + 1, len(text) // 2, len(text) - 1):
        journal_path(out).write_bytes(text[:cut])
        sweep(PREDICTIONS, out=out)
        assert without_seconds(out) == without_seconds(whole)
        keys = [json.loads(line)["key"] for line in journal_path(out).read_text(encoding="utf-8").splitlines()[1:]]
        assert len(keys) == len(set(keys)) == 6


@pytest.mark.parametrize("text", ["a file of one's own", "one\ntwo\n", '{"format": "taut-sweep-journal/1"}\n{}\n'])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, text: str) -> None:
    """It is refused in one line, and not changed."""
    path = tmp_path / "out.csv.journal"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"out\.csv\.journal"):
        sweep(PREDICTIONS, out=tmp_path / "out.csv")
    assert path.read_text(encoding="utf-8") == text and not (tmp_path / "out.csv").exists()


def test_two_sweeps_do_not_write_one_journal(tmp_path: Path) -> None:
    """The second is refused while the first runs."""
    with Journal(tmp_path / "out.csv.journal"), pytest.raises(DataError, match="another sweep is writing it"):
        sweep(PREDICTIONS, out=tmp_path / "out.csv")


def test_parquet_holds_the_same_rows(tmp_path: Path) -> None:
    """Numbers are numbers, and what a point lacks is null."""
    from pyarrow import parquet

    rows = sweep(PREDICTIONS, out=tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.to_pylist() == rows
    assert {str(table.schema.field(name).type) for name in ("step_time_s", "memory_bytes", "fits")} == {
        "double",
        "int64",
        "bool",
    }


@pytest.mark.proof
def test_processes_of_this_machine_give_the_same_rows() -> None:
    """Without an executor points run on processes, and their rows are the same."""
    rows = taut.sweep(PREDICTIONS, jobs=2)
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in sweep(PREDICTIONS)]


def die(point: Point) -> dict[str, Any]:
    """Kill the process at one point, and give the others a row."""
    if point.given["tp"] == 2:
        os._exit(9)
    return lost("") | {"status": "predicted"}


@pytest.mark.proof
def test_a_point_that_kills_its_process_is_a_row_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three points the second ends its process whenever it runs; it is not kept, so that another run tries again."""
    monkeypatch.setattr(executors, "solved", die)
    rows = taut.sweep({**PREDICTIONS, "layers": 24}, out=tmp_path / "out.csv", jobs=2)
    assert [row["status"] for row in rows] == ["predicted", "lost", "predicted"]
    assert "killed or out of memory" in rows[1]["error"]
    assert len(journal_path(tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 3


class Broken(ThreadPoolExecutor):
    """An executor whose third task breaks it."""

    count = 0

    def submit(self, *given: Any, **named: Any) -> Future[Any]:
        """Run two tasks."""
        self.count += 1
        if self.count < 3:
            return super().submit(*given, **named)
        future = Future[Any]()
        future.set_exception(BrokenProcessPool("gone"))
        return future


def test_a_broken_executor_ends_the_sweep_and_keeps_what_is_done(tmp_path: Path) -> None:
    """The two points before are in the journal, and no table is written."""
    with pytest.raises(SolverError, match="4 of 6 points left"), Broken(1) as executor:
        taut.sweep(PREDICTIONS, out=tmp_path / "out.csv", executor=executor)
    assert len(journal_path(tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 3
    assert not (tmp_path / "out.csv").exists()


def test_an_interrupted_search_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a worker ends the sweep without the plan that it had so far."""
    monkeypatch.setattr(executors, "solved", lambda point: lost("") | {"status": INTERRUPTED})
    with pytest.raises(NothingFoundError, match=r"interrupted after 0 of 6 points, kept in .*out\.csv\.journal"):
        sweep(PREDICTIONS, out=tmp_path / "out.csv")
    assert len(journal_path(tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 1


def test_the_command_writes_the_table_and_counts(run: Run, tmp_path: Path) -> None:
    """One line says how many points ended how, and the first error."""
    (tmp_path / "s.yaml").write_text(YAML, encoding="utf-8")
    outcome = run("sweep", tmp_path / "s.yaml", "--out", tmp_path / "out.csv", "--jobs", 1, "--quiet")
    assert outcome.code == 0 and outcome.err == ""
    assert "6 points, 2 error, 4 predicted; first error: n_gpus is 8" in outcome.out
    assert len(without_seconds(tmp_path / "out.csv")) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "out.txt"], "expected a name that ends in .csv, .parquet, .pq"),
        (["--out", "out.csv", "--executor", "dusk"], "--executor dusk: expected one of local, dask, mpi"),
        (["--out", "out.csv", "--executor", "dask"], "--scheduler: missing, expected the address"),
        (["--out", "out.csv", "--scheduler", "tcp://a:1"], "--scheduler tcp://a:1: expected none without"),
        (["--out", "nowhere/out.csv"], "there is no folder nowhere"),
    ],
)
def test_wrong_options_are_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    """Nothing is written, not even a journal."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(YAML, encoding="utf-8")
    refused(run("sweep", "s.yaml", *options), words)
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
