"""Six schedules on a 98.5B model at sequence 16384 beside the published grid search."""

import json
import math
from dataclasses import replace
from itertools import pairwise, product

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from taut.commands.app import app
from taut.data.model import ModelSpec
from taut.papers import vschedules
from taut.papers.published_rows import PAPERS
from taut.papers.vschedules import (
    ADAPTIVE,
    MODEL,
    RATIOS,
    STAGES,
    Table,
    _point,
    plot_memory_frontier,
    reproduce_vschedules,
)

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def table() -> Table:
    """All methods, priced once, with bounds within three per cent."""
    return reproduce_vschedules(gap=0.03)


def test_the_assumed_shape_has_the_published_size() -> None:
    """78 x (12 h^2 + 13 h) + 32000 h + 2 h parameters for h = 10240: 98.48B, 98.5B as published."""
    assert ModelSpec.parse(MODEL, "model").parameters() == 78 * (12 * 10240**2 + 13 * 10240) + 32000 * 10240 + 2 * 10240


def test_the_published_methods_run_out_of_memory(table: Table) -> None:
    """With even stages 1F1B, ZB-1P and V-ZB exceed 80 GiB at every degree; 1F1B-R, V-Half and V-Min fit."""
    assert table.same_methods_fit
    assert [row.method.name for row in table.rows if row.even is None] == ["1F1B", "ZB-1P", "V-ZB"]


def test_v_half_is_fastest_at_the_published_degrees(table: Table) -> None:
    """V-Half leads by at least a tenth, at dp=1 tp=8 pp=5, as published; V-Min runs at the same degrees."""
    even = {row.method.name: row.even for row in table.rows if row.even}
    assert max(even, key=lambda name: even[name].mfu) == "V-Half"
    assert even["V-Half"].mfu > 1.1 * max(even["V-Min"].mfu, even["1F1B-R"].mfu)
    assert even["V-Half"].degrees == even["V-Min"].degrees == "dp=1 tp=8 pp=5"


def test_free_stages_are_no_slower_and_bounded(table: Table) -> None:
    """Stages that are free to choose never lose to even ones, and no plan is better than the bound."""
    for row in table.rows:
        if row.even is not None:
            assert row.free is not None and row.mfu_at_most is not None
            assert row.even.mfu <= row.free.mfu * (1 + 1e-9) <= row.mfu_at_most * (1 + 2e-9)


def test_the_frontier_has_a_third_of_the_bubble_at_two_thirds_of_the_memory(table: Table) -> None:
    """With 32 stages as stated, within 5 %; memory falls as the bubble grows, and no bubble is below its bound."""
    recorded = {row.key: row.ours for row in PAPERS["vschedules"].rows}
    for key in ("rebuttal: bubble at 2/3 of the memory, of 1F1B's", "figures 9-10: memory against bubble"):
        assert table.figures[key] == recorded[key]
    for ratio, stages in product(RATIOS, STAGES):
        points = [point for point in table.points if (point.ratio, point.stages) == (ratio, stages)]
        points.sort(key=lambda point: (point.memory, -point.bubble))
        assert all(point.least <= point.bubble + 1e-9 for point in points)
        assert all(one.bubble >= other.bubble - 1e-9 for one, other in pairwise(points))
        assert ratio != RATIOS[0] or points[-1].bubble == pytest.approx(1 / 6) == points[-1].least
    adaptive = [point for point in table.points if point.name == ADAPTIVE and point.ratio == RATIOS[0]]
    exact = {point.stages: point.least for point in adaptive if point.memory > 0.6}
    assert exact[4] == pytest.approx(4 / 9)
    assert exact[8] == pytest.approx(17 / 42)


def test_the_picture_has_every_schedule_and_bound(table: Table) -> None:
    """Three panels with two marks and a line for each point, a curve for each pipeline, the statement; one legend."""
    axes = Figure().subplots(1, 3)
    plot_memory_frontier(table.points, axes)
    assert [len(axis.lines) for axis in axes] == [
        len(STAGES) * (1 + 3 * 5) + 1 + 5,
        *[len(STAGES) * (1 + 3 * 5) + 1] * 2,
    ]


def test_what_a_time_limit_cut_off_is_marked(table: Table) -> None:
    """A search without time has a larger gap, which stands in table and picture with a mark; so do the grid's rows."""
    late = _point(8, RATIOS[0], "V-Min", "v-min", math.inf, 0.0)
    known = next(point for point in table.points if (point.name, point.stages, point.ratio) == ("V-Min", 8, RATIOS[0]))
    assert late.is_cut_off and late.gap > known.gap
    rows = [replace(table.rows[0], is_cut_off=True), replace(table.rows[1], is_cut_off=True, free=None)]
    words = str(Table(tuple(rows), (late, known)))
    assert (
        f"{100 * late.gap:.2f} %*" in words
        and "none so far*" in words
        and words.endswith("* a limit ended this search")
    )
    axes = Figure().subplots(1, 3)
    plot_memory_frontier([late], axes)
    assert [line.get_marker() for line in axes[0].lines].count("*") == 3


def test_parts_are_asked_for_by_name() -> None:
    """A part that there is not is refused in one line, and so is a picture of the grid."""
    runner = CliRunner()
    assert runner.invoke(app, ["reproduce", "vschedules", "--only", "grids"]).exception is not None
    assert runner.invoke(app, ["reproduce", "vschedules", "--only", "grid", "--plot", "a.png"]).exception is not None


def test_the_command_prints_both_sides(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table in words has published and own figures, and as JSON the orders."""
    monkeypatch.setattr(vschedules, "reproduce_vschedules", lambda only, time_limit, told: table)
    runner = CliRunner()
    words = runner.invoke(app, ["reproduce", "vschedules"]).stdout
    assert "57.85% dp=1 tp=8 pp=5" in words and "with even stages the same methods fit as published" in words
    found = json.loads(runner.invoke(app, ["reproduce", "vschedules", "--json"]).stdout)
    assert found["order_published"] == ["V-Half", "V-Min", "1F1B-R"]
    assert found["order_even"][0] == "V-Half"
