"""Bounds and both solvers of jobs on a cluster against enumeration."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from taut.formulations.jobs.problem import OBJECTIVES, JobsProblem, Objective, Pool, measures, violations
from taut.formulations.jobs.program import grid_program
from taut.formulations.jobs.relaxation import dual_value
from taut.solver.jobs.bounds import lower_bound
from taut.solver.jobs.program import Backend, solve_grid
from tests.support.blocks import blocks
from tests.support.jobs import enumerated, random_case

BACKENDS: tuple[Backend, ...] = ("cp-sat", "cbc")


def check_case(seed: int, objective: Objective, **size: int) -> float:
    """Compare bound and solvers with the enumerated optimum; returns what the bound leaves open, or 0."""
    problem, grid = random_case(seed, **size)
    on_grid, true = enumerated(problem, objective, grid)
    bound = lower_bound(problem, objective, horizon=float(grid[-1])).value
    assert bound <= true * (1 + 1e-12), (seed, objective)
    program = grid_program(problem, objective, grid)
    for backend in BACKENDS:
        found = solve_grid(program, backend=backend)
        assert (found.value is None) == (on_grid == inf), (seed, objective, backend)
        if found.value is not None:
            assert found.value == pytest.approx(on_grid, rel=1e-6, abs=1e-6), (seed, objective, backend)
            assert violations(problem, found.schedule) == [], (seed, objective, backend)
            value = measures(problem, found.schedule).value(objective)
            assert true - 1e-6 <= value <= on_grid + 1e-6, (seed, objective, backend)
    return true - bound if true < inf else 0.0


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(20))
def test_bounds_and_solvers_against_enumeration(block: int) -> None:
    """On 500 random cases the program is the enumeration in both solvers, and no bound is above the true optimum."""
    for seed in range(25 * block, 25 * block + 25):
        for objective in OBJECTIVES:
            check_case(seed, objective)


@pytest.mark.long
@pytest.mark.parametrize(("size", "seeds"), [((6, 4, 5), range(1000, 1004)), ((4, 2, 8), range(1010, 1014))])
def test_larger_cases_against_enumeration(size: tuple[int, int, int], seeds: range) -> None:
    """The same with six jobs of four configurations, and with eight intervals."""
    for seed in seeds:
        for objective in OBJECTIVES:
            check_case(seed, objective, jobs=size[0], counts=size[1], intervals=size[2])


def one_job(**change: Any) -> JobsProblem:
    """A job of 100 steps at 1 a second on one node of four, due at 100 s."""
    fields: dict[str, Any] = {
        "pools": (Pool("a", 1, 4, price=1.0),),
        "arrival": np.zeros(1),
        "work": np.array([100.0]),
        "deadline": np.array([100.0]),
        "weight": np.ones(1),
        "job": np.zeros(1, dtype=np.int64),
        "pool": np.zeros(1, dtype=np.int64),
        "gpus": np.array([4]),
        "rate": np.array([1.0]),
    }
    return JobsProblem(**{**fields, **change})


def test_bounds_of_one_job_are_its_own_seconds() -> None:
    """100 s of mean and makespan, 400 dollars, no deadline missed; with starts of 10 s 110 s and a miss."""
    values = {kind: lower_bound(one_job(), kind).value for kind in OBJECTIVES}
    assert values == pytest.approx({"deadlines": 0, "completion": 100, "makespan": 100, "cost": 400}, rel=1e-6)
    later = one_job(restart_s=10.0)
    assert lower_bound(later, "deadlines").value == 1
    assert lower_bound(later, "makespan").value == pytest.approx(110, rel=1e-6)


def test_a_job_that_fits_nowhere_makes_objectives_infinite() -> None:
    """It is missed by every schedule, and the others are never completed."""
    large = one_job(gpus=np.array([8]))
    assert lower_bound(large, "deadlines").value == 1
    assert {kind: lower_bound(large, kind).value for kind in OBJECTIVES[1:]} == dict.fromkeys(OBJECTIVES[1:], inf)


def test_half_a_deadline_is_a_whole_one() -> None:
    """Two jobs that each need the node for 60 of 100 s: one is missed, though only 20 s are lacking."""
    pair = one_job(
        arrival=np.zeros(2),
        work=np.array([60.0, 60.0]),
        deadline=np.array([100.0, 100.0]),
        weight=np.ones(2),
        job=np.array([0, 1]),
        pool=np.zeros(2, dtype=np.int64),
        gpus=np.array([4, 4]),
        rate=np.ones(2),
    )
    assert lower_bound(pair, "deadlines").value == 1
    heavy = replace(pair, weight=np.array([1.0, 2.5]))
    assert lower_bound(heavy, "deadlines").value == pytest.approx(20 / 60, rel=1e-6)


def test_any_multipliers_give_a_bound() -> None:
    """Random multipliers of the rows never bound by more than the best ones."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        problem, grid = random_case(seed)
        best = lower_bound(problem, "completion", horizon=float(grid[-1]))
        if best.program is not None and best.duals is not None:
            for _ in range(5):
                other = best.duals * rng.uniform(0.5, 1.5, len(best.duals)) + rng.normal(0, 0.1, len(best.duals))
                assert dual_value(best.program, other) <= best.value * (1 + 1e-6)


def test_one_machine_serves_the_shortest_remaining_job() -> None:
    """
    Jobs of 100 and 20 s of the whole node, the second from 10 s on: it ends at 30 s, the first at 120 s.

    From their arrivals they take 120 and 20 s, 70 s on average; each alone would take 60 s.
    """
    pair = one_job(
        arrival=np.array([0.0, 10.0]),
        work=np.array([100.0, 20.0]),
        deadline=np.full(2, inf),
        weight=np.ones(2),
        job=np.array([0, 1]),
        pool=np.zeros(2, dtype=np.int64),
        gpus=np.array([4, 4]),
        rate=np.ones(2),
    )
    found = lower_bound(pair, "completion", horizon=120.0)
    assert found.value == pytest.approx(70, rel=1e-6)
    assert found.source == "one machine, shortest remaining time first"
    heavy = replace(pair, weight=np.array([1.0, 2.0]))
    assert lower_bound(heavy, "completion", horizon=120.0).source != found.source
