"""Pipette's settings: published speed-ups and configuration times beside every method here, under one bound."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from taut.commands.app import app
from taut.data.load import load_model
from taut.papers import pipette
from taut.papers.pipette import SETTINGS, Table, drawn, reproduce_pipette
from taut.papers.published_rows import PAPERS, figure
from taut.solver.result import Limits

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def table() -> Table:
    """All settings, each method within a given number of refinements or trials."""
    return reproduce_pipette(Limits(work_limit=40, workers=1))


def test_models_have_the_published_size() -> None:
    """1.1, 3.1, 8.1 and 11.1 billion parameters to a tenth, as the paper rounds them and gives no shapes."""
    for setting in SETTINGS:
        stated = float(setting.model.removeprefix("gpt-").removesuffix("b")) * 1e9
        assert load_model(setting.model).parameters() == pytest.approx(stated, rel=0.1)


def test_drawn_rates_are_symmetric_and_at_most_nominal() -> None:
    """One rate for each pair of nodes, the same for the same seed, none above the cards'."""
    for setting in SETTINGS:
        matrix = drawn(setting, 3).bandwidth_matrix
        assert matrix is not None and matrix == drawn(setting, 3).bandwidth_matrix != drawn(setting, 4).bandwidth_matrix
        rates = np.array(matrix.rows)
        assert rates.shape == (setting.nodes, setting.nodes) and (rates == rates.T).all()
        assert rates.max() <= {"pipette-mid-range": 100, "pipette-high-end": 200}[setting.cluster]


def test_no_method_is_below_the_bound(table: Table) -> None:
    """Every plan is at or above its setting's bound, and Varuna is behind Pipette as published."""
    for row in table.rows:
        for name in row.step_s:
            distance = row.distance(name)
            assert distance is None or distance >= -1e-9
        behind = row.speed_up("varuna", "pipette")
        assert behind is not None and behind > 1.1


def test_figures_of_the_paper_are_computed(table: Table) -> None:
    """
    Every row of figures 5 and 6 and of the days saved has the figure of the run that is recorded for it.

    Annealing is cut short here, so Pipette's own plan and the days that it saves have none to compare.
    """
    figures, recorded = table.figures, {row.key: row for row in PAPERS["pipette"].rows}
    assert set(figures) <= set(recorded)
    of_pipette = ("figure 6: over", "table II")
    for key, ours in figures.items():
        if not key.startswith(of_pipette):
            found, known = figure(ours), figure(recorded[key].ours)
            assert found is not None and found == pytest.approx(known, rel=1e-3, abs=5e-3), key
    assert "table II: days saved of 300,000 steps, 16 nodes of high-end" in figures


def test_the_command_prints_both_sides(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words the published ratios, and as JSON every method's distance."""
    asked: list[bool] = []

    def priced(limits: Limits, *, whole_step: bool, seed: int, only: str, within: None, told: object) -> Table:
        asked.append(whole_step)
        return table

    monkeypatch.setattr(pipette, "reproduce_pipette", priced)
    runner = CliRunner()
    words = runner.invoke(app, ["reproduce", "pipette"]).stdout
    assert "1.46x" in words and "1.26x" in words and "1011 s" in words
    found = json.loads(runner.invoke(app, ["reproduce", "pipette", "--whole-step", "--json"]).stdout)
    assert set(found["rows"][0]["distance"]) == {"megatron", "varuna", "amp", "ppt-l", "pipette", "taut"}
    assert asked == [False, True]
