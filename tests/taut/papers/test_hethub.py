"""HETHUB's mixed clusters: published shares beside even stages, its rule, the best plan and the bound."""

import json

import pytest
from typer.testing import CliRunner

from taut.commands.app import app
from taut.papers import hethub
from taut.papers.hethub import SETTINGS, Table, reproduce_hethub
from taut.papers.published_rows import PAPERS, figure
from taut.solver.result import Limits

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def table() -> Table:
    """All settings, each searched for a given number of refinements."""
    return reproduce_hethub(Limits(work_limit=12, workers=1))


def test_batches_suit_every_setting() -> None:
    """2048 sequences for every six nodes, and 680 for two, which six does not divide."""
    assert [each.global_batch for each in SETTINGS] == [4096, 32768, 680, 680, 40960]


def test_ideals_are_the_published_ones() -> None:
    """The means over devices: 55.70 TFLOP/s, and utilisations of 50.85, 33.85 and 35.90 %."""
    apart = [each.apart_tflops for each in SETTINGS]
    assert apart[0] == pytest.approx(55.70, abs=0.01)
    assert [share / hethub.PEAK for share in apart[2:]] == pytest.approx([0.5085, 0.3385, 0.3590], abs=1e-4)


def test_layers_by_speed_beat_even_stages(table: Table) -> None:
    """As published, stages by the devices' speed are faster than even ones, and no plan is above its bound."""
    for row in table.rows:
        assert row.even is not None and row.rule is not None and row.best is not None
        assert row.even <= row.rule * (1 + 1e-9)
        assert row.rule <= row.best * (1 + 1e-9)
        assert row.best <= row.at_most * (1 + 1e-9)
    gains = [row.rule / row.even for row in table.rows[:4] if row.rule and row.even]
    assert min(gains) > 1.03


def test_figures_of_the_paper_are_computed(table: Table) -> None:
    """Every row that the command computes has the figure that is recorded for it."""
    recorded = {row.key: row for row in PAPERS["hethub"].rows}
    assert set(table.figures) == {
        row.key for row in recorded.values() if row.command == "reproduce hethub" and row.ours
    }
    for key, ours in table.figures.items():
        assert figure(ours) == pytest.approx(figure(recorded[key].ours), rel=1e-3), key


def test_the_split_of_amd_and_c_is_the_published_one(table: Table) -> None:
    """HETHUB's rule has eight stages of seven layers and four of six, as the paper states; every split has 80."""
    assert sorted(table.rows[4].layers[1]) == sorted(SETTINGS[4].layers)
    assert {sum(split) for row in table.rows for split in row.layers} == {80}


def test_the_command_prints_both_sides(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table in words has the published shares, and as JSON every setting."""
    monkeypatch.setattr(hethub, "reproduce_hethub", lambda limits, only, within, told: table)
    runner = CliRunner()
    words = runner.invoke(app, ["reproduce", "hethub"]).stdout
    assert "97.54%" in words and "91.75%" in words and "at most" in words
    found = json.loads(runner.invoke(app, ["reproduce", "hethub", "--json"]).stdout)
    assert [row["setting"]["published"] for row in found["rows"]][:2] == [0.9175, 0.9175]
