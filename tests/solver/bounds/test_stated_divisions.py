"""Where divisions are limited to what a framework states, bounds hold and plans obey, against enumeration."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.stack import SCHEDULES, Form
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.ladder.computations import order, partition
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.integer_program import by_program
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates
from tests.support.oracle import enumerate_all, enumerate_candidate

pytestmark = pytest.mark.proof

MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated: each placement runs its order."""
FORMS: tuple[list[Form], ...] = (
    ["even"],
    ["with-ends"],
    ["balanced"],
    ["first-last"],
    ["even", "with-ends"],
    ["balanced", "first-last"],
)


def stated(seed: int) -> PlanningProblem:
    """A random problem whose space states some divisions alone; every third has every schedule."""
    given = random_problem(seed, measured=seed % 5 == 0)
    space = given.space.model_copy(update={"divisions": FORMS[seed % len(FORMS)]})
    if seed % 3 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2})
    latency_model = "step" if seed % 4 else given.latency_model
    return replace(given, space=space, latency_model=latency_model, overlap_grad_reduce=seed % 8 == 1)


def piped(given: PlanningProblem) -> list[Candidate]:
    """Candidates with several stages, whose divisions differ."""
    return [each for each in given.candidates if each.pp > 1]


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_is_above_the_optimum_of_stated_divisions(block: int) -> None:
    """A thousand candidates, a hundred a block: every form, schedule, latency model; infinite where nothing fits."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        given = stated(seed)
        checked += len(check_candidates(given, piped(given), seed, 5))
        seed += 1


@pytest.mark.parametrize("block", blocks(4))
def test_plans_divide_as_stated_and_close_on_the_optimum(block: int) -> None:
    """The search's plan is one that enumeration has, its bound is no larger, and a program's plan is no faster."""
    found = 0
    for seed in range(1_000 * block, 1_000 * block + 12):
        given = stated(seed)
        optimum = enumerate_all(given).seconds
        result = search(given, Limits(work_limit=60))
        assert result.lower_bound <= optimum * (1 + 1e-9), seed
        if result.incumbent is not None:
            found += 1
            assert result.incumbent.seconds >= optimum * (1 - 1e-9), seed
        programmed = by_program("cp-sat", solve_cpsat, given, Limits(time_limit=5.0))
        if programmed.incumbent is not None:
            assert programmed.incumbent.seconds >= optimum * (1 - 1e-9), seed
    assert found


def test_one_stated_division_raises_the_bound_to_its_own() -> None:
    """With even stages alone the bound of the division is at least that of all divisions, and somewhere above it."""
    above = 0
    for seed in range(120):
        given = stated(len(FORMS) * seed)
        free = replace(given, space=given.space.model_copy(update={"divisions": ["layout"]}))
        for candidate in piped(given)[:3]:
            if candidate.is_order_priced:
                continue
            tight, loose = (partition(Ladder(one), candidate).seconds for one in (given, free))
            assert tight >= loose * (1 - 1e-9)
            above += tight > loose * (1 + 1e-6)
    assert above >= 5


def test_the_optimum_of_few_stated_divisions_of_an_order_is_met() -> None:
    """On one node of like devices, with one recompute, the bound of an order is the optimum of its divisions."""
    met = checked = 0
    for seed in range(0, 400, 3):
        given = stated(seed)
        space = given.space.model_copy(update={"recompute_by_stage": False})
        given = replace(given, space=space, latency_model="step")
        for candidate in [each for each in piped(given) if each.is_order_priced and each.of_tensor_groups][:2]:
            optimum = enumerate_candidate(given, candidate).seconds
            seconds = order(Ladder(given), candidate).seconds
            assert seconds <= optimum * (1 + 1e-9), (seed, candidate)
            checked += 1
            met += bool(np.isclose(seconds, optimum)) if np.isfinite(optimum) else bool(np.isinf(seconds))
        if checked >= 60:
            break
    assert checked >= 20 and met >= checked // 5, (met, checked)
