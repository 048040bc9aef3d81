"""GPUs, dollars, memory and time: points, the front, and what is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import taut
from taut.commands.app import app
from taut.errors import DataError, FieldError, InfeasibleError
from taut.frontier.resources import ResourceFront
from taut.plots.frontier import plot_resources

FIX: dict[str, int | str] = {"tp": 1, "pp": 1}
SMALL = ("pareto", "gpt2-345m", "dgx-a100:2", "--global-batch", "64", "--fix", "tp=1,pp=1", "--quiet")


@pytest.fixture(scope="module")
def found() -> ResourceFront:
    """GPT-2 on one and two nodes, within 8 and 80 GiB."""
    return taut.resource_front(
        "gpt2-345m", "dgx-a100:2", global_batch=64, limits=[8, 80], steps=1000, price=2.0, fix=FIX
    )


@pytest.mark.proof
def test_every_point_is_the_plan_of_its_nodes(found: ResourceFront) -> None:
    """Step time and bound are those of ``taut.plan``, dollars those of price, GPUs and steps."""
    assert [(point.nodes, point.gpus, point.at.limit_gib) for point in found.points] == [
        (1, 8, 8), (1, 8, 80), (2, 16, 8), (2, 16, 80),
    ]  # fmt: skip
    for point, cluster in ((found.points[1], "dgx-a100"), (found.points[3], "dgx-a100:2")):
        plan = taut.plan("gpt2-345m", cluster, global_batch=64, fix=FIX)
        assert point.at.step_time_s == pytest.approx(plan.step_time_s)
        assert point.dollars == pytest.approx(2.0 * point.gpus * 1000 * plan.step_time_s / 3600)
    for point in found.points:
        assert point.least_dollars is not None and point.dollars is not None
        assert point.least_dollars <= point.dollars * (1 + 1e-9)
        assert point.at.plan is not None and point.at.plan.verify().holds


def test_the_front_has_what_no_other_point_dominates(found: ResourceFront) -> None:
    """By definition, pair by pair."""
    for point in found.points:
        own = point.criteria
        assert own is not None
        better = [
            other
            for other in found.points
            if other.criteria is not None
            and other.criteria != own
            and max(map(float.__sub__, other.criteria, own)) <= 0
        ]
        assert point.on_front == (not better)


def test_numbers_of_nodes_without_a_plan_are_said() -> None:
    """Three nodes cannot be divided into replicas of eight stages; one and two can."""
    fix: dict[str, int | str] = {"tp": 1, "pp": 8, "micro_batch": 1, "recompute": "none"}
    front = taut.resource_front("gpt2-345m", "dgx-a100:4", global_batch=16, nodes=[1, 3], fix=fix)
    assert list(front.complaints) == [3]
    assert [point.nodes for point in front.points] == [1]
    assert "3 nodes: " in str(front)


def test_without_a_plan_the_first_reason_is_raised() -> None:
    """GPT-3 175B fits no single node of V100."""
    with pytest.raises(InfeasibleError):
        taut.resource_front("gpt3-175b", "g4dn.12xlarge:2", global_batch=16, nodes=[1])


def test_unlike_nodes_and_wrong_numbers_are_refused() -> None:
    """One line with the field and what was expected."""
    with pytest.raises(FieldError, match="nodes: 3, expected numbers from 1 to 2"):
        taut.resource_front("gpt2-345m", "dgx-a100:2", global_batch=64, nodes=[3])
    with pytest.raises(DataError, match="chooses among equal nodes"):
        taut.resource_front("gpt2-345m", "amp-heterogeneous", global_batch=64)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--price", "3"), "--price 3: stands without --nodes, expected both"),
        (("--nodes", "1,x"), "--nodes x: expected numbers of nodes, such as 1,2,4, or usual"),
    ],
)
def test_the_command_refuses_in_one_line(more: tuple[str, ...], words: str) -> None:
    """The flag, its value and what was expected."""
    done = CliRunner().invoke(app, [*SMALL, *more])
    assert isinstance(done.exception, DataError)
    assert str(done.exception) == words


def test_the_command_writes_rows_plans_and_a_picture(tmp_path: Path) -> None:
    """A row a point, a folder of plans a number of nodes, and JSON with the front."""
    out, plot, plans = tmp_path / "front.csv", tmp_path / "front.png", tmp_path / "plans"
    words = ["--nodes", "usual", "--out", str(out), "--plot", str(plot), "--out-plans", str(plans), "--json"]
    done = CliRunner().invoke(app, [*SMALL, *words])
    assert done.exit_code == 0, done.output
    points = json.loads(done.stdout)["points"]
    assert [point["gpus"] for point in points] == [8, 16]
    assert all(point["dollars"] is None and point["gpu_seconds"] > 0 for point in points)
    assert len(out.read_text().splitlines()) == 3
    assert sorted(path.parent.name for path in plans.glob("*/*.json")) == ["0001-nodes", "0002-nodes"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_a_line_a_limit(found: ResourceFront) -> None:
    """Two limits, and days beside the discs of the larger."""
    ax = plot_resources(found)
    assert len(ax.lines) == 2
    assert [text.get_text() for text in ax.texts] == [f"{point.days:.3g} days" for point in found.points[1::2]]
