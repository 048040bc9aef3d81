"""The best number of nodes against planning every number of nodes, its bounds, and what is refused."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

import taut
from taut.errors import DataError, InfeasibleError, NothingFoundError
from taut.provisioning import Goal, steps_of
from tests.taut.conftest import Run, refused

MODEL, CLUSTER, NODES, STEPS = "gpt2-345m", "dgx-a100:3", 3, 100_000
FIX = {"tp": 1, "schedule": "1f1b", "micro_batch": 1}
GIVEN: dict[str, Any] = {"global_batch": 48, "fix": FIX, "workers": 1}


@pytest.fixture(scope="module")
def each() -> dict[int, float]:
    """Least seconds of a step on 1, 2 and 3 nodes, each planned alone to the end."""
    plans = {k: taut.plan(MODEL, f"dgx-a100:{k}", **GIVEN) for k in range(1, NODES + 1)}
    assert all(plan.status == "optimal" for plan in plans.values())
    return {k: plan.step_time_s for k, plan in plans.items()}


def optimum(each: dict[int, float], objective: str, price: float, days: float) -> float:
    """Least value over the numbers of nodes that are in time; infinity where none is."""
    in_time = [k for k in each if STEPS * each[k] / 86400 <= days * (1 + 1e-12)]
    values = {
        "time": [each[k] for k in in_time],
        "gpus": [8.0 * k for k in in_time],
        "cost": [price * 8 * k * STEPS * each[k] / 3600 for k in in_time],
    }
    return min(values[objective], default=math.inf)


def deadlines(each: dict[int, float]) -> list[float]:
    """Days just below and at those of every number of nodes."""
    return [STEPS * t / 86400 * share for t in each.values() for share in (0.99, 1.0001)]


@pytest.mark.proof
@pytest.mark.parametrize("objective", ["time", "cost", "gpus"])
def test_the_best_number_of_nodes_is_that_of_enumeration(each: dict[int, float], objective: str) -> None:
    """Whatever the deadline, value and bound are the least value over all numbers of nodes, if there is one."""
    for days in deadlines(each):
        expected = optimum(each, objective, 2.0, days)
        given = {"objective": objective, "steps": STEPS, "price": 2.0, "deadline_days": days, **GIVEN}
        if math.isinf(expected):
            with pytest.raises(InfeasibleError, match="no plan ends in"):
                taut.provision(MODEL, CLUSTER, **given)
            continue
        found = taut.provision(MODEL, CLUSTER, **given)
        assert found.value == pytest.approx(expected, rel=1e-6)
        assert found.lower_bound <= expected * (1 + 1e-9)
        assert found.gap is not None and found.gap <= 1e-6
        assert found.plan.verify().holds
        assert STEPS * found.plan.step_time_s / 86400 <= days * (1 + 1e-9)


@pytest.mark.proof
@pytest.mark.parametrize("work", [1, 2, 5])
@pytest.mark.parametrize("objective", ["time", "cost", "gpus"])
def test_bounds_hold_however_soon_the_search_stops(each: dict[int, float], objective: str, work: int) -> None:
    """With a few refinements of each number of nodes, the bound is at most the optimum, and the value at least."""
    for days in deadlines(each):
        expected = optimum(each, objective, 2.0, days)
        given = {"objective": objective, "steps": STEPS, "price": 2.0, "deadline_days": days, **GIVEN}
        try:
            found = taut.provision(MODEL, CLUSTER, work_limit=work, **given)
        except NothingFoundError:
            continue
        except InfeasibleError:
            assert math.isinf(expected)
            continue
        assert found.lower_bound <= expected * (1 + 1e-9) and found.value >= expected * (1 - 1e-6)
        for point in found.points:
            assert point.lower_bound_s is not None and point.lower_bound_s <= each[point.nodes] * (1 + 1e-9)


@pytest.mark.proof
def test_a_model_that_fits_no_number_of_nodes_is_proven_so() -> None:
    """GPT-3 175B holds 2.8 TB of states, and two nodes have 1.3."""
    with pytest.raises(InfeasibleError, match="no plan fits the memory on 1 to 2 nodes"):
        taut.provision("gpt3-175b", "dgx-a100:2", objective="time", global_batch=16, fix={"tp": 8})


def test_numbers_of_nodes_without_a_candidate_take_no_part() -> None:
    """Where sixteen replicas are fixed, one and three nodes have no plan, and two are the best of all."""
    fix = {"tp": 1, "pp": 1, "dp": 16, "micro_batch": 1}
    found = taut.provision(MODEL, CLUSTER, objective="cost", steps=10, price=1.0, global_batch=48, fix=fix)
    assert found.nodes == 2 and [point.state for point in found.points] == ["no candidate", "in time", "no candidate"]


def test_steps_and_days() -> None:
    """270 billion tokens in steps of 1,920 sequences of 2,048 are 68,665 steps, rounded up from 68,664.6."""
    steps = steps_of(270e9, None, 1920 * 2048)
    assert steps == 68_665
    goal = Goal(objective="cost", steps=steps, price=5.0)
    assert goal.days(1.0) == pytest.approx(68_665 / 86_400)
    assert goal.dollars(2240, 1.0) == pytest.approx(5 * 2240 * 68_665 / 3600)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"objective": "costs"}, "objective: costs, expected one of time, cost, gpus; did you mean cost?"),
        ({"objective": "cost", "steps": 3}, "price: missing, expected dollars"),
        ({"objective": "cost", "price": 3}, "tokens: missing, expected tokens or steps"),
        ({"objective": "gpus", "steps": 3}, "deadline_days: missing"),
        ({"objective": "gpus", "steps": 3, "deadline_days": -1}, "deadline_days: -1, expected a number above 0"),
        ({"objective": "time", "steps": 3, "tokens": 4}, "steps: 3, given together with tokens"),
        ({"objective": "time", "tokens": 0}, "tokens: 0, expected a number above 0"),
    ],
)
def test_a_wrong_goal_is_one_line(given: dict[str, Any], words: str) -> None:
    """Field, value, and what was expected."""
    with pytest.raises(DataError) as refusal:
        taut.provision(MODEL, CLUSTER, **GIVEN, **given)
    assert words in str(refusal.value)


def test_numbers_that_were_not_searched_are_counted() -> None:
    """They leave no bound, which a line says beside the option that goes on."""
    found = taut.provision(MODEL, CLUSTER, objective="cost", steps=STEPS, price=2.0, **GIVEN)
    assert "not searched" not in str(found)
    unsearched = tuple(replace(point, lower_bound_s=0.0) for point in found.points)
    words = str(replace(found, lower_bound=0.0, points=unsearched))
    assert f"{len(unsearched)} of these numbers were not searched; a longer --time-limit goes on" in words


def test_nodes_that_are_not_alike_are_refused() -> None:
    """Of nodes of several kinds a number does not say which."""
    with pytest.raises(DataError, match="expected a cluster of one kind"):
        taut.provision(MODEL, "hethub-12n96d", objective="time", **GIVEN)


def test_the_command(run: Run) -> None:
    """The plan of the best number of nodes stands below what is known of all, in words and in JSON."""
    words = ["plan", MODEL, "dgx-a100:2", "--global-batch", 48, "--fix", "tp=1,schedule=1f1b,micro_batch=1", "--quiet"]
    asked = ["--objective", "cost", "--steps", 1000, "--price", 2]
    outcome = run(*words, *asked)
    assert outcome.code == 0
    assert outcome.out.startswith("objective   cost, 1,000 steps, $ 2 an hour of a GPU\nbest        1 node, 8 GPUs")
    assert "strategy" in outcome.out and "in time" not in outcome.out
    found = json.loads(run(*words, *asked, "--json").out)
    assert found["objective"]["nodes"] == 1 and found["format"] == "taut-plan/1"
    refused(run(*words, *asked, "--method", "megatron"), "--method megatron: is of one plan, expected none")
    refused(run(*words, "--deadline-days", 3), "--tokens: missing")
