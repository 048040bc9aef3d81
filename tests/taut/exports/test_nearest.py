"""The nearest plan that a launcher can run, with its price."""

from pathlib import Path
from typing import Any

import pytest

import taut
from taut.exports.nearest import nearest_plan
from taut.planning.plan import Plan
from taut.planning.solve import plan_one_degree
from tests.taut.conftest import Run, refused
from tests.taut.planning.test_meshes import CLUSTER

FIX = {"pp": 4, "tp": 1, "micro_batch": 2}


@pytest.fixture(scope="module")
def zero_bubble() -> Plan:
    """A V schedule, which Megatron-LM and DeepSpeed have not."""
    return taut.plan("gpt2-345m", "dgx-a100", global_batch=32, stack="any", fix=FIX | {"schedule": "zb-v"})


@pytest.mark.proof
@pytest.mark.parametrize(
    ("framework", "stack", "schedule"),
    [("megatron", "megatron-core", "interleaved-1f1b"), ("deepspeed", "deepspeed", "1f1b")],
)
def test_the_nearest_plan_keeps_degrees_and_prices(
    zero_bubble: Plan, framework: str, stack: str, schedule: str
) -> None:
    """Its step is what the stack's best plan takes with these degrees at the plan's layer costs, and no less."""
    found = nearest_plan(zero_bubble, framework)
    assert found is not None and found.stack == stack and found.fix == FIX
    assert isinstance(found.plan, Plan)
    chosen = found.plan.strategy
    assert (chosen.pp, chosen.tp, chosen.micro_batch, chosen.schedule) == (4, 1, 2, schedule)
    costs = [each.document["inputs"]["costs"]["sha256"] for each in (found.plan, zero_bubble)]
    assert costs[0] == costs[1]
    assert found.slower == found.plan.step_time_s / zero_bubble.step_time_s - 1 > 0


def test_without_a_plan_of_these_degrees_it_is_the_best() -> None:
    """Two context ranks, which DeepSpeed has not, leave nothing to hold the plan to."""
    given = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "cp": 2, "recompute": "none"})
    found = nearest_plan(given, "deepspeed")
    assert found is not None and not found.fix and isinstance(found.plan, Plan) and found.plan.strategy.cp == 1
    assert str(found).startswith("the nearest plan that it can run (--stack deepspeed) takes")


def test_what_has_no_stack_has_no_nearest_plan(zero_bubble: Plan) -> None:
    """An order of passes alone is of no framework."""
    assert nearest_plan(zero_bubble, "torch-csv") is None


@pytest.mark.parametrize(
    ("cluster", "stack"), [("dgx-a100", "megatron-core"), (CLUSTER, "flagscale")], ids=["one type", "two types"]
)
@pytest.mark.proof
def test_flagscale_has_limits_of_its_own_on_several_types(cluster: Any, stack: str) -> None:
    """On two types the nearest plan is of FlagScale's stack and layer costs, on one of its Megatron-LM's."""
    fix: dict[str, int | str] = {**FIX, "schedule": "zb-h1"}
    given = plan_one_degree(taut.PlanRequest("gpt2-345m", cluster, global_batch=16, stack="any", fix=fix))
    found = nearest_plan(given, "flagscale")
    assert found is not None and found.stack == stack
    assert found.plan.sections.certificate.space["stack"] == stack
    assert found.plan.document["inputs"]["costs"]["sha256"] == given.document["inputs"]["costs"]["sha256"]


@pytest.mark.proof
def test_flagscale_runs_meshes_where_it_cannot_run_the_degrees(tmp_path: Path) -> None:
    """Two context ranks on two types, which FlagScale has not, leave a plan that its files can be made of."""
    fix: dict[str, int | str] = {"pp": 1, "tp": 1, "cp": 2, "recompute": "none"}
    given = plan_one_degree(taut.PlanRequest("gpt2-345m", CLUSTER, global_batch=16, stack="any", fix=fix))
    found = nearest_plan(given, "flagscale")
    assert found is not None and not found.fix and found.stack == "flagscale"
    assert taut.export(found.plan, "flagscale", tmp_path / "launch")


def test_the_command_names_it(zero_bubble: Plan, run: Run, tmp_path: Path) -> None:
    """One line has the reason, the options of the nearest plan and its seconds; nothing is written."""
    path, out = tmp_path / "plan.json", tmp_path / "launch"
    zero_bubble.write(path)
    outcome = run("export", path, "--to", "megatron", "--out", out)
    refused(outcome, "schedule zb-v, expected 1f1b or interleaved-1f1b for Megatron-LM")
    assert "(--stack megatron-core --fix pp=4,tp=1,micro_batch=2) takes 0.0" in outcome.err
    assert not out.exists()
