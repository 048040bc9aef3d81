"""Plans scored by simulating: the least of those that were, under a bound on all."""

import json
import math
from dataclasses import replace
from functools import cache

import pytest

import taut
from taut.errors import FieldError
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.simulated import least_simulated, simulated_seconds
from taut.solver.methods.simulated import simulated
from taut.solver.result import Limits
from tests.formulations.simulation.test_expert_ranks import long_layers
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof


def problem(**options: int) -> PlanningProblem:
    """GPT-2 on eight A100."""
    return taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix=options))


@cache
def made() -> taut.Plan:
    """A plan that was scored by simulation."""
    return taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 2}, method="simulated")


def test_the_quickest_simulated_plan_is_taken() -> None:
    """Among several candidates, with both figures of each; no other plan simulates below the bound."""
    given = problem(pp=4)
    found = simulated(given, Limits(work_limit=50))
    assert found.incumbent is not None
    figures = found.figures["simulated"]
    assert found.candidates == len(figures["scored"]) > 1
    assert figures["step_time_s"] == min(each["simulated_s"] for each in figures["scored"])
    assert figures["step_time_s"] == pytest.approx(
        simulated_seconds(given, found.incumbent.strategy, found.incumbent.devices)
    )
    assert 0 < figures["lower_bound_s"] <= figures["step_time_s"]
    assert figures["gap"] == pytest.approx(1 - figures["lower_bound_s"] / figures["step_time_s"])
    priced = step_time(given, found.incumbent.strategy, found.incumbent.devices).total
    assert found.incumbent.seconds == pytest.approx(float(priced))


def test_the_plan_carries_both_figures_and_holds() -> None:
    """In its document, in words, and under ``verify``."""
    plan = made()
    figures = plan.document["provenance"]["method"]["simulated"]
    assert taut.simulate(plan).step_time_s == pytest.approx(figures["step_time_s"])
    assert "no plan of the space simulates faster than" in str(plan)
    assert plan.verify().holds


@pytest.mark.parametrize("name", ["step_time_s", "lower_bound_s", "gap"])
@pytest.mark.parametrize("value", [0.2, None, "0.1"])
def test_corrupted_figures_are_refused(name: str, value: object) -> None:
    """``verify`` simulates the step and derives its bound again."""
    plan = made()
    document = json.loads(json.dumps(plan.document))
    document["provenance"]["method"]["simulated"][name] = value
    found = taut.verify(document)
    assert [fault for fault in found.faults if f"simulated.{name} is" in fault]


def test_nothing_fits_nothing_is_scored() -> None:
    """Without a plan there are no figures, and the bound is infinite where nothing fits."""
    given = random_problem(0)
    tight = replace(given, memory=given.memory.model_copy(update={"overhead_gib": 1e3}))
    found = simulated(tight, Limits())
    assert (found.incumbent, found.figures) == (None, {})
    assert least_simulated(tight) == math.inf


def test_the_latency_model_is_the_method() -> None:
    """``simulated`` as the latency model gives the plan of the method, at the prices of ``step``."""
    plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 2}, latency_model="simulated")
    assert plan.certificate.latency_model == "step"
    assert plan.document["provenance"]["method"] == made().document["provenance"]["method"] | {
        "wall_s": plan.document["provenance"]["method"]["wall_s"]
    }
    assert plan.strategy == made().strategy


def test_the_latency_model_stands_beside_no_other_method() -> None:
    """A method with plans of its own is refused, and so is a verb that does not score plans."""
    with pytest.raises(FieldError, match="method: amp, given together with latency model simulated, expected none"):
        taut.plan("gpt2-345m", "dgx-a100", global_batch=32, latency_model="simulated", method="amp")
    with pytest.raises(FieldError, match=r"latency_model: simulated, scores plans of taut.plan alone, expected one of"):
        taut.pareto("gpt2-345m", "dgx-a100", global_batch=32, latency_model="simulated")


def test_plans_with_expert_ranks_are_scored() -> None:
    """Two expert ranks or more, weights sharded or not: several plans simulated, none below the bound."""
    given = next(
        each
        for each in (long_layers(seed) for seed in range(60))
        if any(choice.ep > 1 and choice.pp > 1 for choice in each.candidates)
    )
    given = replace(given, space=given.space.model_copy(update={"fixed": {"ep": 2}}))
    found = simulated(given, Limits(work_limit=20))
    assert found.incumbent is not None and found.incumbent.strategy.candidate.ep == 2
    figures = found.figures["simulated"]
    assert figures["lower_bound_s"] <= figures["step_time_s"] * (1 + 1e-12)


def test_overlap_beside_expert_ranks_is_refused() -> None:
    """Reductions that overlap have two rings of buckets beside expert ranks."""
    given = next(
        each
        for each in (replace(long_layers(seed), overlap_grad_reduce=True) for seed in range(60))
        if any(choice.ep > 1 for choice in each.candidates)
    )
    given = replace(given, space=given.space.model_copy(update={"zero": [1], "fixed": {"ep": 2}}))
    with pytest.raises(FieldError, match="does not know expert ranks with gradient reductions that overlap"):
        simulated(given, Limits(work_limit=1))
