"""Plainer plans in words: what each costs, what it costs at least, and what it has otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.planning.proof import plainer_words
from taut.planning.summary import summary
from taut.reports.page.page import plan_page
from tests.support.plans import made_plan
from tests.taut.conftest import Run, refused

FIX: dict[str, int | str] = {"schedule": "1f1b", "pp": 4, "tp": 1, "micro_batch": 1}


def near_tie(**changes: Any) -> dict[str, Any]:
    """A near-tie of the plan by hand with two stages, which takes 2 s."""
    made = made_plan(pp=2).document
    tie = {"restriction": "even-stages", "step_time_s": 2.02, "lower_bound_s": 2.01, "stopped_by": "gap", "bounds": []}
    return {**tie, "strategy": made["strategy"], "placement": made["placement"], **changes}


def words(*ties: dict[str, Any]) -> list[str]:
    """The lines of a plan with some near-ties."""
    return plainer_words(taut.Plan({**made_plan(pp=2).document, "plainer": [*ties]}).typed)


def test_a_line_says_what_a_plainer_plan_costs() -> None:
    """Per cent beside the plan, of the plan and of its bound; whether a limit came first; what differs; plans once."""
    other = {**near_tie()["strategy"], "micro_batch": 2, "zero": 1}
    assert words(
        near_tie(),
        near_tie(restriction="no-context-ranks", stopped_by="time", lower_bound_s=1.9),
        near_tie(restriction="at-most-5-chunks", lower_bound_s=2.02, strategy=other),
        near_tie(restriction="of-another-version", stopped_by="exhausted"),
    ) == [
        "the best with even stages and the best of-another-version: +1.00 % (at least +0.50 %)",
        "the best without context ranks: +1.00 % (at least +0.00 %, cut off)",
        "the best with at most 5 chunks a device: +1.00 % (proven), by micro_batch=2 zero=1",
    ]
    assert words() == []


@pytest.mark.proof
def test_plainer_plans_are_searched_where_they_are_asked_for() -> None:
    """From Python on demand; the plan is the same, and the document holds with them."""
    options: dict[str, Any] = {"global_batch": 32, "fix": FIX}
    alone = taut.plan("gpt2-345m", "dgx-a100", **options)
    plan = taut.plan("gpt2-345m", "dgx-a100", plainer=True, **options)
    assert alone.plainer == [] and plan.step_time_s == alone.step_time_s
    # The plan is within the runs of its calibration, so none like them is searched.
    assert [tie.restriction for tie in plan.plainer] == ["even-stages"]
    (even,) = plan.plainer
    sizes = {end - first for first, end in even.strategy.stages}
    assert sizes == {6} and even.step_time_s > plan.step_time_s
    assert plan.verify().holds
    assert "plainer     the best with even stages: +" in summary(plan.sections)
    assert "the best with even stages" in plan_page(plan)
    assert "<h2>Plainer plans" not in plan_page(alone)


@pytest.fixture(scope="module")
def chunked() -> taut.Plan:
    """A plan of several chunks a device with its near-ties."""
    options: dict[str, Any] = {"fix": {**FIX, "schedule": "interleaved-1f1b"}, "time_limit": 10}
    return taut.plan("gpt2-345m", "dgx-a100", global_batch=32, plainer=True, **options)


@pytest.mark.proof
def test_a_plainer_plan_is_a_plan_of_its_own(chunked: taut.Plan) -> None:
    """It takes the seconds that the list says, it holds, and it says how much faster the best plan is."""
    assert chunked.plainer
    for tie in chunked.plainer:
        plan = chunked.plainer_plan(tie.restriction)
        assert plan.step_time_s == pytest.approx(tie.step_time_s, rel=1e-12)
        assert plan.stages and plan.strategy.stages == tie.strategy.stages
        assert plan.lower_bound_s is not None and plan.lower_bound_s <= chunked.step_time_s
        assert plan.verify().faults == ()
        assert f"method      {tie.restriction}; by itself it claims that none of the" in str(plan)
        assert plan.plainer == []


@pytest.mark.proof
def test_a_plainer_plan_is_exported_by_its_name(run: Run, tmp_path: Path) -> None:
    """Even stages need no layout; other names are refused with those that the plan lists."""
    out, flags = tmp_path / "plan.json", tmp_path / "even" / "megatron.args"
    taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX, plainer=True).write(out)
    asked = ("export", out, "--to", "megatron", "--out")
    assert run(*asked, flags.parent, "--plainer", "even-stages").code == 0
    assert run(*asked, tmp_path / "best").code == 0
    layout = "--pipeline-model-parallel-layout"
    assert layout not in flags.read_text() and layout in (tmp_path / "best" / "megatron.args").read_text()
    refused(run(*asked, tmp_path / "none", "--plainer", "even"), "plainer 'even': expected")


@pytest.mark.proof
def test_other_methods_and_latency_models_have_no_plainer_plans() -> None:
    """What no framework runs, and plans that are not the best, have none."""
    options: dict[str, Any] = {"global_batch": 32, "fix": FIX, "plainer": True}
    assert taut.plan("gpt2-345m", "dgx-a100", method="megatron", **options).plainer == []
    assert taut.plan("gpt2-345m", "dgx-a100", latency_model="pipette", **options).plainer == []


@pytest.mark.proof
def test_the_command_lists_plainer_plans_unless_told_otherwise(run: Run, tmp_path: Path) -> None:
    """In words, in the file, and when the plan is shown again."""
    out = tmp_path / "plan.json"
    asked = (
        "plan",
        "gpt2-345m",
        "dgx-a100",
        "--global-batch",
        32,
        "--fix",
        "pp=4,tp=1,micro_batch=1,schedule=1f1b",
        "--quiet",
    )
    assert "plainer     the best with even stages: +" in run(*asked, "--out", out).out
    assert [tie["restriction"] for tie in json.loads(out.read_text())["plainer"]] == ["even-stages"]
    assert "plainer     the best with even stages: +" in run("show", out).out
    assert "1 plainer plan, exact bounds included" in run("verify", out).out
    assert "plainer" not in run(*asked, "--no-plainer").out


def test_a_fixed_recompute_that_no_run_had_leaves_no_plan_within_the_runs() -> None:
    """The runs of the calibration recomputed nothing, so that no candidate of the restriction has a recompute."""
    plan = taut.plan("llama3-8b", "dgx-h100", global_batch=128, fix={"recompute": "full"}, plainer=True)
    assert set(plan.strategy.recompute) == {"full"}
