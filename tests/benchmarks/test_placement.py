"""Rows of the placement benchmark: kept, resumed, summed up and drawn."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import placement
from benchmarks.placement_figure import plot_rows
from benchmarks.placement_rows import Row, Setting, append_row, markdown, read_rows, verdict
from taut.errors import DataError

ROW = Row(
    nodes=16,
    stages=4,
    tp=8,
    kind="racks",
    model="pipette",
    time_limit_s=5.0,
    pipette_limit_s=10.0,
    times_own=10.0,
    seed=1,
    wall_s=0.5,
    step_s=4.0,
    bound_s=3.96,
    gap=0.01,
    communication_gap=0.05,
    verify_s=0.02,
    identity_s=5.0,
    scipy_s=4.2,
    scipy_wall_s=0.1,
    annealing_s=4.1,
    restarted_s=4.04,
    long_annealing_s=4.02,
    long_restarted_s=4.04,
)


def test_rows_come_back_as_they_were_kept(tmp_path: Path) -> None:
    """Appended one by one, whole numbers, floats and words keep their types and values."""
    path = tmp_path / "rows.csv"
    rows = [ROW, replace(ROW, seed=2, step_s=1 / 3)]
    for row in rows:
        append_row(path, row)
    assert read_rows(path) == rows


def test_what_was_not_run_comes_back_as_nan(tmp_path: Path) -> None:
    """A peer that was not run is not a number, before and after."""
    append_row(tmp_path / "rows.csv", replace(ROW, scipy_s=math.nan))
    assert math.isnan(read_rows(tmp_path / "rows.csv")[0].scipy_s)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nodes,kind\n", "header"),
        ("{header}\n1,2\n", "line 2: has 2 values"),
        ("{header}\n{broken}\n", "line 2: .*'x'"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str, named: str) -> None:
    """A table of other columns, a torn line and a word where a number stands are named."""
    path = tmp_path / "rows.csv"
    append_row(path, ROW)
    header, line = path.read_text().splitlines()
    path.write_text(text.format(header=header, broken=line.replace("16", "x", 1)))
    with pytest.raises(DataError, match=named):
        read_rows(path)


def test_runs_resume_where_they_were_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three seeds the second is interrupted: one row is kept, and the next run measures the other two alone."""
    asked: list[int] = []

    def measure(setting: Setting, seed: int, measured: object) -> Row:
        asked.append(seed)
        if asked == [1, 2]:
            raise KeyboardInterrupt
        return replace(ROW, seed=seed)

    monkeypatch.setattr(placement, "measure", measure)
    monkeypatch.setattr(placement, "_warm_up", lambda degrees: None)
    cases, path = [(ROW.setting, seed) for seed in (1, 2, 3)], tmp_path / "rows.csv"
    assert [row.seed for row in placement.run(cases, None, path)] == [1]
    assert [row.seed for row in placement.run(cases, None, path)] == [1, 2, 3]
    assert asked == [1, 2, 2, 3]
    assert placement.run(cases, None, path) == read_rows(path)


def test_other_limits_are_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row kept under one time limit does not answer for another."""
    monkeypatch.setattr(placement, "measure", lambda setting, seed, measured: replace(ROW, time_limit_s=7.0))
    monkeypatch.setattr(placement, "_warm_up", lambda degrees: None)
    append_row(tmp_path / "rows.csv", ROW)
    longer = replace(ROW, time_limit_s=7.0)
    assert placement.run([(longer.setting, 1)], None, tmp_path / "rows.csv") == [longer]


def test_table_holds_medians_and_the_worst_seed() -> None:
    """
    Three seeds of steps of 4 s.

    Gaps 1, 2 and 6 %: median 2, worst 6. Identity 5 s: 25 %. scipy 4.2 s: 5 %. Pipette min(4.1, 4.04): 1 %. Its long
    run min(4.02, 4.04): 0.5 %, and 3.96 s on one seed: -1 % is the least, while the median stays.
    """
    rows = [ROW, replace(ROW, seed=2, gap=0.02), replace(ROW, seed=3, gap=0.06, long_annealing_s=3.96)]
    *_, line = markdown(rows)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:6] == ["16", "4", "8", "racks", "pipette", "3"]
    assert cells[6:] == ["0.50", "2.00", "6.00", "5.00", "5.00", "25.00", "5.00", "1.00", "0.50", "-1.00", "0.10", "20"]
    assert [*verdict(rows)][-1] == "Pipette, long: faster than the plan in 1 of 3 runs, by at most 1.000 %."


def test_measured_clusters_are_only_as_large_as_measured() -> None:
    """A matrix of 16 nodes gives no setting at 32, and none at all without a matrix."""
    options = argparse.Namespace(
        tp=[8],
        nodes=[16, 32],
        stages=[4],
        kinds=["racks", "mpigraph"],
        models=["pipette"],
        seconds=None,
        pipette_seconds=10.0,
        times_own=10.0,
    )
    found = [(s.nodes, s.kind) for s in placement.settings(options, np.ones((16, 16)))]
    assert found == [(16, "racks"), (16, "mpigraph"), (32, "racks")]
    assert {s.kind for s in placement.settings(options, None)} == {"racks"}


def test_figure_is_drawn_with_and_without_every_peer(tmp_path: Path) -> None:
    """Two latency models, proven and open gaps, a faster peer and one that was not run."""
    pytest.importorskip("matplotlib").use("Agg")
    rows = [ROW, replace(ROW, seed=2, gap=0.0), replace(ROW, nodes=32, scipy_s=math.nan, long_annealing_s=3.9)]
    plot_rows([*rows, replace(ROW, model="pipette-printed")], tmp_path / "gap.png")
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")
