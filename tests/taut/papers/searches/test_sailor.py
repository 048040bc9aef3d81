"""Sailor's runs: what is read of them, their prices, and one line for a missing profile."""

import json
from pathlib import Path

import pytest

from taut.data.cluster import ClusterSpec
from taut.errors import DataError
from taut.papers.searches.published_plans import PROFILE, RUNS, sailor_runs
from taut.papers.searches.table import reproduce_searches

LINES = """# a comment
campaign,nodes,gbs,dp,pp,mbs,stage,time
memory,1,8,1,1,1,0,900.0
time,1,8,1,1,1,0,80.0
time,2,8,1,2,1,0,50.0
time,2,8,1,2,1,1,60.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three layers of 1 ms forward and 2 ms backward, a quarter of it at tensor degree 4, at 1, 2 and 4 samples."""
    (tmp_path / RUNS).write_text(LINES, encoding="utf-8")
    profile = {
        str(b): {str(tp): {str(k): [b * 1e-3 / tp, b * 2e-3 / tp, 0.0] for k in range(26)} for tp in (1, 2, 4)}
        for b in (1, 2, 4)
    }
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / PROFILE).write_text(json.dumps(profile), encoding="utf-8")
    return tmp_path


def test_runs_are_read_with_their_slowest_stage(folder: Path) -> None:
    """Lines of times alone, each run once, on nodes of four GPUs at tensor degree 4."""
    first, second = sailor_runs(folder)
    assert first.measured_s == pytest.approx(0.08) and (first.gpus, first.fixed["pp"]) == (4, 1)
    assert second.measured_s == pytest.approx(0.06) and (second.gpus, second.fixed["tp"]) == (8, 4)
    assert isinstance(second.cluster, ClusterSpec) and second.cluster.nodes[0].count == 2


def test_a_missing_profile_is_named(folder: Path) -> None:
    """One line says which file is missing."""
    (folder / "profiles" / PROFILE).unlink()
    with pytest.raises(DataError, match=f"no file {PROFILE}"):
        list(sailor_runs(folder))
    with pytest.raises(DataError, match=f"no file {PROFILE}"):
        reproduce_searches(folder)
    assert not list(sailor_runs(folder, only="llama3-8b"))


def test_runs_without_prices_are_left_out_beside_other_plans(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder has other plans the runs are left out and told; asked for by name they are an error."""
    (folder / "profiles" / PROFILE).unlink()
    monkeypatch.setattr("taut.papers.searches.table.has_plans", lambda _: True)
    told: list[str] = []
    assert not reproduce_searches(folder, told=told.append).rows
    assert told == [f"{RUNS}: left out, there is no {PROFILE} below {folder}"]
    with pytest.raises(DataError, match=f"no file {PROFILE}"):
        reproduce_searches(folder, only="sailor")


def test_runs_are_priced_by_the_profile(folder: Path) -> None:
    """The degrees of the run, at 25 layers of 0.75 ms and 8 micro-batches, beside the best plan of the profile."""
    table = reproduce_searches(folder, only="sailor opt-350m on 4", time_limit=5.0)
    (row,) = table.rows
    assert row.predicted_s is not None and 8 * 25 * 0.75e-3 < row.predicted_s < 2 * 8 * 25 * 0.75e-3
    assert row.distance is not None and row.distance >= -1e-9
    assert "--only 'Sailor opt-350m on 4'" in row.command
    assert json.dumps(table.as_dict()) and table.as_dict()["rows"][0]["published"]["cluster"] == "gh200"
