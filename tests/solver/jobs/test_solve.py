"""List schedules, annealing, and the best of everything."""

from math import inf

import numpy as np
import pytest

from taut.formulations.jobs.problem import OBJECTIVES, JobsProblem, Pool, measures, violations
from taut.solver.jobs.anneal import anneal, as_schedule, list_data, list_schedule
from taut.solver.jobs.bounds import lower_bound
from taut.solver.jobs.solve import solve_jobs
from tests.support.jobs import enumerated, random_case

pytestmark = pytest.mark.proof


def test_list_schedules_are_valid() -> None:
    """In any order and with any thrift, on one pool or two."""
    rng = np.random.default_rng(0)
    for seed in range(60):
        problem, _ = random_case(seed, jobs=8)
        for objective in OBJECTIVES:
            data = list_data(problem, objective)
            order, thrift = rng.permutation(problem.num_jobs), rng.uniform(0, 8, problem.num_jobs)
            schedule = as_schedule(data, *list_schedule(data, order, thrift))
            assert violations(problem, schedule) == [], (seed, objective)
            if objective in ("deadlines", "cost"):
                placed = {segment.job for segment in schedule}
                late = measures(problem, schedule).completion > problem.deadline * (1 + 1e-9)
                assert not any(late[job] for job in placed)


def test_annealing_is_the_same_for_one_seed_and_never_below_the_bound() -> None:
    """One round of moves, twice."""
    for seed in range(4):
        problem, grid = random_case(seed, jobs=8)
        for objective in OBJECTIVES:
            first, second = (anneal(problem, objective, seed=3, rounds=1) for _ in range(2))
            assert first == second
            bound = lower_bound(problem, objective, horizon=float(grid[-1])).value
            assert bound <= measures(problem, first).value(objective) * (1 + 1e-12)


def test_a_thrifty_order_is_found() -> None:
    """Two jobs on two nodes: side by side on one each ends at 100 s; one after the other on both, at 120 s."""
    problem = JobsProblem(
        pools=(Pool("a", 2, 4),),
        arrival=np.zeros(2),
        work=np.full(2, 100.0),
        deadline=np.full(2, inf),
        weight=np.ones(2),
        job=np.array([0, 0, 1, 1]),
        pool=np.zeros(4, dtype=np.int64),
        gpus=np.array([4, 8, 4, 8]),
        rate=np.array([1.0, 5 / 3, 1.0, 5 / 3]),
    )
    found = solve_jobs(problem, "makespan", "annealing", rounds=1)
    assert found.measures.makespan_s == pytest.approx(100)
    assert lower_bound(problem, "makespan").value == pytest.approx(100, rel=1e-6)


@pytest.mark.parametrize("policy", ["cp-sat", "cbc"])
def test_the_best_of_everything_is_near_the_enumerated_optimum(policy: str) -> None:
    """On small cases it meets as many deadlines as the best schedule of the grid, or more."""
    for seed in range(8):
        problem, grid = random_case(seed)
        found = solve_jobs(problem, "deadlines", policy, rounds=1, time_limit=10)
        assert found.measures.missed <= enumerated(problem, "deadlines", grid)[1] + 1e-9, seed
