"""Regret bounds of single terms against enumeration at prices in the box."""

import math
from functools import cache

import numpy as np
import pytest

from taut.errors import DataError
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.sensitivity import Box, Points, at_prices, box_regret
from taut.solver.result import Limits, SearchResult
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem, with_offload
from tests.support.oracle import enumerate_all

SECONDS = 0.1
"""Seconds of a search: its bound holds wherever it stops."""


def problem_of(seed: int) -> PlanningProblem:
    """A small random problem, every third with overlapped reductions, every fourth with optimizer states on hosts."""
    given = random_problem(seed, measured=seed % 2 == 0, experts=seed % 5 == 0)
    given = with_offload(seed, given) if seed % 4 == 3 else given
    return PlanningProblem(
        given.model, given.cluster, given.costs, given.memory, given.space, given.latency_model, given.calibration,
        overlap_grad_reduce=seed % 3 == 0 and given.latency_model == "step",
    )  # fmt: skip


@cache
def found(seed: int) -> SearchResult:
    """Its plan after little work, so that many are not the best."""
    return search(problem_of(seed), Limits(work_limit=6 if seed % 3 else None, workers=1))


@cache
def least(seed: int, links: float, memory: float) -> float:
    """Seconds of the enumerated best plan at other prices."""
    return enumerate_all(at_prices(problem_of(seed), links=links, memory=memory)).seconds


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
def test_no_prices_in_the_box_cost_more_than_the_regret(block: int) -> None:
    """At factors in the box P is at most so much slower than the enumerated best plan there."""
    rng, tried = np.random.default_rng(block), 0
    for seed in range(5 * block, 5 * block + 5):
        plan = found(seed).incumbent
        if plan is None:
            continue
        tried += 1
        box = Box(**dict(zip(("links", "layers", "memory"), rng.uniform(0.0, 0.6, 3).tolist(), strict=True)))
        points = Points(problem_of(seed), plan.strategy, plan.devices, SECONDS)
        regret = box_regret(points, box)
        at_most = math.inf if regret.at_most is None else regret.at_most
        assert at_most >= regret.at_least - 1e-9, seed
        for _ in range(2):
            k, x = 1 + rng.choice([-1, 1, rng.uniform(-1, 1)], 2) * (box.layers, box.links)
            room = float(rng.choice([1.0, box.room, rng.uniform(1.0, box.room)]))
            wrong = at_prices(problem_of(seed), links=float(x / k), memory=room)
            true = float(step_time(wrong, plan.strategy, plan.devices).total)
            assert true <= least(seed, float(x / k), room) * (1 + at_most) * (1 + 1e-9), (seed, k, x, room)
    assert tried


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
def test_hypotheses_hold_of_the_best_and_of_any_plan(block: int) -> None:
    """Seconds rise with links' factor x, and seconds by x fall, of the enumerated best plan and of a found one."""
    for seed in range(5 * block, 5 * block + 5):
        plan, problem = found(seed).incumbent, problem_of(seed)
        if plan is None:
            continue
        factors = (0.2, 1.0, 1.7)
        own = [float(step_time(at_prices(problem, links=x), plan.strategy, plan.devices).total) for x in factors]
        for seconds in (own, [least(seed, x, 1.0) for x in factors]):
            assert np.all(np.diff(seconds) >= -1e-12 * seconds[0]), seed
            if not (problem.overlap_grad_reduce and len(problem.device_types) > 1):
                by_factor = np.array(seconds) / factors
                assert np.all(np.diff(by_factor) <= 1e-12 * by_factor[0]), seed


def test_interval_and_room_by_hand() -> None:
    """Links +-20 % beside layers +-5 %: 0.8 / 1.05 to 1.2 / 0.95; bytes 5 % too high are room for 1 / 0.95."""
    box = Box(links=0.2, layers=0.05, memory=0.05)
    assert box.slowdown == pytest.approx((0.8 / 1.05, 1.2 / 0.95))
    assert box.room == pytest.approx(1 / 0.95)


def test_errors_at_or_above_one_are_refused() -> None:
    """A term that may take no time at all leaves no bound."""
    with pytest.raises(DataError, match="links"):
        Box(links=1.0)


@pytest.mark.proof
def test_links_and_memory_are_scaled_whole() -> None:
    """Rates, cards, racks, matrices and latencies by one factor: communication takes as many times as long."""
    for seed in range(12):
        problem = problem_of(seed)
        slow, room = at_prices(problem, links=2.0), at_prices(problem, memory=1.5)
        sites = np.unique(problem.links.site_of)
        pairs = sites[:, None], sites[None, :]
        assert np.allclose(slow.links.latency[pairs], 2 * problem.links.latency[pairs])
        for width in (1, 2):
            rates = [each.links.pipeline_rate(width)[pairs] for each in (problem, slow)]
            assert np.allclose(rates[0], 2 * rates[1])
        if problem.memory.network is None:
            before = [c - problem.memory.margin_kib(c) for c in problem.capacity_kib]
            after = [c - room.memory.margin_kib(c) for c in room.capacity_kib]
            assert all(1.5 * old <= new <= 1.5 * old + 4 for old, new in zip(before, after, strict=True))
