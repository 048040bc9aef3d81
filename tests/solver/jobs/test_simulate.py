"""The event simulator under every policy: valid schedules, above the bounds, the same for one seed."""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pytest

from taut.errors import SolverError
from taut.formulations.jobs.problem import OBJECTIVES, JobsProblem, Pool, Segment, measures, violations
from taut.solver.jobs.bounds import lower_bound
from taut.solver.jobs.simulate import Failures, View, simulate
from taut.solver.jobs.solve import POLICIES, ElasticFlow, RollingHorizon, ShortestFirst, shares
from tests.support.jobs import random_case


def cluster(jobs: int = 2, **change: Any) -> JobsProblem:
    """Jobs of 100 steps on four nodes of four; 1, 2 and 3 steps a second on 4, 8 and 16 GPUs."""
    fields: dict[str, Any] = {
        "pools": (Pool("a", 4, 4),),
        "arrival": np.zeros(jobs),
        "work": np.full(jobs, 100.0),
        "deadline": np.full(jobs, inf),
        "weight": np.ones(jobs),
        "job": np.repeat(np.arange(jobs), 3),
        "pool": np.zeros(3 * jobs, dtype=np.int64),
        "gpus": np.tile([4, 8, 16], jobs),
        "rate": np.tile([1.0, 2.0, 3.0], jobs),
    }
    return JobsProblem(**{**fields, **change})


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_make_valid_schedules_above_the_bounds(policy: str) -> None:
    """On random cases, with failures in half of them, nothing is violated and no bound is above what is achieved."""
    for seed in range(12):
        problem, grid = random_case(seed, jobs=8)
        failures = Failures(mean_seconds_between_failures=200.0, repair_s=5.0, seed=seed) if seed % 2 else None
        schedule = simulate(problem, POLICIES[policy](), failures)
        assert violations(problem, schedule) == [], (policy, seed)
        found = measures(problem, schedule)
        for objective in OBJECTIVES:
            bound = lower_bound(problem, objective, horizon=float(grid[-1])).value
            assert bound <= found.value(objective) * (1 + 1e-12), (policy, seed, objective)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_seed_gives_one_schedule(policy: str) -> None:
    """Twice the same segments with one seed of failures, and others with another."""
    problem = cluster(6, work=np.full(6, 1000.0))

    def run(seed: int) -> tuple[Segment, ...]:
        return simulate(
            problem, POLICIES[policy](), Failures(mean_seconds_between_failures=400.0, repair_s=50.0, seed=seed)
        )

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.proof
def test_a_rolling_horizon_makes_valid_schedules_above_the_bounds() -> None:
    """For every objective, the same twice, with failures in half of the cases."""
    for seed in range(8):
        problem, grid = random_case(seed, jobs=8)
        failures = Failures(mean_seconds_between_failures=200.0, repair_s=5.0, seed=seed) if seed % 2 else None
        for objective in OBJECTIVES:
            schedule = simulate(problem, RollingHorizon(objective), failures)
            assert schedule == simulate(problem, RollingHorizon(objective), failures)
            assert violations(problem, schedule) == [], (seed, objective)
            bound = lower_bound(problem, objective, horizon=float(grid[-1])).value
            assert bound <= measures(problem, schedule).value(objective) * (1 + 1e-12), (seed, objective)


def test_first_come_gives_the_knee_and_makes_the_others_wait() -> None:
    """16 GPUs have 3/16 steps a second each, above half of 1/4: 33 s a job, one after the other."""
    schedule = simulate(cluster(), POLICIES["first-come"]())
    assert schedule == (Segment(0, 2, 0.0, 100 / 3), Segment(1, 5, 100 / 3, 200 / 3))


def test_resizing_costs_a_restart() -> None:
    """A job that grows at 50 s works from 10 to 50 s, and from 60 s on: 40 + 2 t = 100, done at 90 s."""

    class Growing:
        def decide(self, view: View) -> tuple[Mapping[int, int], float]:
            if not view.waiting:
                return {}, inf
            return ({0: 0}, 50.0) if view.now < 50 else ({0: 1}, inf)

    problem = cluster(1, restart_s=10.0)
    schedule = simulate(problem, Growing())
    assert schedule == (Segment(0, 0, 0.0, 50.0), Segment(0, 1, 50.0, 90.0))
    assert measures(problem, schedule).completion.tolist() == [90.0]


def test_a_policy_that_hands_out_too_much_is_refused() -> None:
    """Two jobs on 16 GPUs each, where there are 16."""

    class Greedy:
        def decide(self, view: View) -> tuple[Mapping[int, int], float]:
            return {0: 2, 1: 5}, inf

    with pytest.raises(SolverError, match=r"hands out \[32\] of \[16\] devices"):
        simulate(cluster(), Greedy())


def test_a_failed_node_is_away_until_it_is_repaired() -> None:
    """While nodes are down a policy sees fewer devices, and jobs still end."""
    seen: list[int] = []

    class Watching(ShortestFirst):
        def decide(self, view: View) -> tuple[Mapping[int, int], float]:
            seen.append(int(view.capacity[0]))
            return super().decide(view)

    problem = cluster(4, work=np.full(4, 1000.0))
    rates = Failures(mean_seconds_between_failures=500.0, repair_s=100.0)
    schedule = simulate(problem, Watching(), rates)
    assert set(seen) >= {12, 16}
    assert np.all(np.isfinite(measures(problem, schedule).completion))


def test_elastic_flow_admits_what_can_be_met_and_no_more() -> None:
    """Three jobs due at 40 s need 8 GPUs or more each, for 50 s or 33 s: only with 16 GPUs, so one of them is taken."""
    problem = cluster(3, deadline=np.full(3, 40.0))
    found = measures(problem, simulate(problem, ElasticFlow()))
    assert found.missed == 2
    assert found.completion.tolist() == [100 / 3, inf, inf]


def test_elastic_flow_gives_the_least_share_and_the_rest_by_return() -> None:
    """Due at 100 s, each job needs 4 GPUs; doubling costs no device-seconds, so both have 8 and end at 50 s."""
    problem = cluster(2, deadline=np.full(2, 100.0))
    assert simulate(problem, ElasticFlow()) == (Segment(0, 1, 0.0, 50.0), Segment(1, 4, 0.0, 50.0))


def test_fair_shares_are_equal_for_equal_jobs() -> None:
    """Four equal jobs on four nodes have the same share of their best rate, which cannot be more than 2/3."""
    problem = cluster(4)
    found = shares(problem, (0, 1, 2, 3))
    rates = np.zeros(4)
    for column, share in found.items():
        rates[problem.job[column]] += share * problem.rate[column] / 3.0
    assert rates == pytest.approx(np.full(4, rates[0]))
    assert rates[0] == pytest.approx(1 / 3, rel=1e-4)
