"""Weights that ZeRO-1 gathers in a format of their own: both evaluators, searches against enumeration, planted bugs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

import taut
from taut.data.memory import ParameterBytes, ParamGather
from taut.formulations.problem import PlanningProblem
from tests.solver.certificate.reference.test_reference import agree
from tests.solver.certificate.test_verify import resigned
from tests.support.instances import random_problem
from tests.support.searches import check_search

FORMATS: tuple[ParamGather, ...] = get_args(ParamGather)
ASKED: dict[str, Any] = {
    "global_batch": 32,
    "fix": {"pp": 1, "tp": 1, "zero": 1, "micro_batch": 1},
    "memory_model": taut.MemoryModel(param_gather="weights"),
}
"""A plan of one stage whose replicas gather weights in bf16."""


def drawn(first: int) -> Iterator[PlanningProblem]:
    """Random problems in ``step`` under ZeRO-1, half of them with two replicas to a copy, each in some format."""
    for seed in range(first, first + 100):
        given = random_problem(seed)
        memory = given.memory.model_copy(update={"param_gather": FORMATS[seed % 3]})
        fixed = {"zero": 1, "dp_shard": 2} if seed % 2 else {"zero": 1}
        space = given.space.model_copy(update={"zero": [1], "fixed": fixed, "max_cp": 1})
        found = replace(given, memory=memory, space=space, latency_model="step")
        if found.candidates:
            yield found


@pytest.mark.proof
def test_both_evaluators_gather_in_the_same_format() -> None:
    """Step times of random plans with one copy and with several are the checker's."""
    rng, checked = np.random.default_rng(4), 0
    for given in drawn(0):
        checked += agree(given, rng, 3)
    assert checked > 60


@pytest.mark.proof
def test_bounds_hold_and_searches_find_the_optimum() -> None:
    """Bound, optimum of an enumeration and plan in order, and a certificate that holds."""
    small = (given for given in drawn(100) if given.cluster.num_devices <= 4)
    for seed, given in zip(range(3), small, strict=False):
        check_search(given, seed)


def test_a_plan_that_gathers_for_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate whose prices leave the gather out does not hold; without the bug it does."""
    assert taut.verify(taut.plan("gpt2-345m", "dgx-a100", **ASKED)).holds
    right = ParameterBytes.exchanged_at_end

    def free(each: ParameterBytes, zero: int, **more: Any) -> float:
        return each.gradient / 2 if zero == 1 else right(each, zero, **more)

    monkeypatch.setattr(ParameterBytes, "exchanged_at_end", free)
    assert not taut.verify(taut.plan("gpt2-345m", "dgx-a100", **ASKED)).holds


def test_a_plan_with_another_format_is_refused() -> None:
    """A document that says fp8 in the place of the weights' format, or the gradients', has other prices."""
    made = json.loads(json.dumps(taut.plan("gpt2-345m", "dgx-a100", **ASKED).document))
    stated = made["inputs"]["memory_model"]["spec"]
    assert stated["param_gather"] == "weights"
    for other in ("fp8", "gradients"):
        stated["param_gather"] = other
        assert not taut.verify(resigned(made)).holds


def test_plans_gather_in_the_weights_format_unless_a_memory_model_states_another() -> None:
    """Plans state the format, so documents made before read as they were; the papers' models have none."""
    stated = {**ASKED, "memory_model": taut.MemoryModel(param_gather="fp8")}
    usual = {name: value for name, value in ASKED.items() if name != "memory_model"}
    made = [taut.plan("gpt2-345m", "dgx-a100", **each) for each in (usual, ASKED, stated)]
    formats = [one.document["inputs"]["memory_model"]["spec"].get("param_gather") for one in made]
    assert formats == ["weights", "weights", "fp8"]
    paper = taut.plan("gpt2-345m", "dgx-a100", **usual, latency_model="amp")
    assert "param_gather" not in paper.document["inputs"]["memory_model"]["spec"]
    assert made[2].step_time_s < made[1].step_time_s
