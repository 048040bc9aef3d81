"""Memory alone decides whether a candidate has a plan: the same as enumeration says, for any device types."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.cluster import ClusterSpec
from taut.formulations.latency import violations
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.infeasibility.diagnosis import diagnose, without_margin
from taut.solver.placement.exact.memory_assignment import least_missing
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.solver.order_priced.test_bound import enumerable, random_orders
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all, enumerate_candidate
from tests.support.small import cluster, costs, model, problem

ORDERS = ["zb-h1", "zb-h2", "v-half", "interleaved-1f1b"]


def unlike(first: float, second: float, **space: Any) -> PlanningProblem:
    """Two nodes of one device each, of two types with so many MiB, and a model of two layers."""
    nodes = cluster(2, 1, devices=("a", "b"))
    groups = [
        group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": size / 1024})})
        for group, size in zip(nodes.nodes, (first, second), strict=True)
    ]
    table = costs(model(2), devices={"a": 1.0, "b": 2.0}, activation_bytes=100_000)
    given = nodes.model_copy(update={"nodes": groups})
    return problem(ClusterSpec.parse(given.model_dump(), "unlike"), model(2), table=table, **space)


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(4))
def test_it_says_what_enumeration_says(block: int) -> None:
    """Over random candidates: if any plan fits an assignment fits, without a violation; if none does all lack bytes."""
    decided = np.zeros(2, np.int64)
    for seed in range(block * 40, block * 40 + 40):
        given = random_orders(seed, ORDERS) if seed % 2 else random_problem(seed)
        choices = enumerable(given) if seed % 2 else given.candidates
        for choice in list(choices)[::3]:
            found = least_missing(given, choice)
            assert found is not None
            fits = np.isfinite(enumerate_candidate(given, choice).seconds)
            assert (not any(found.missing)) == fits, (seed, choice)
            decided[int(fits)] += 1
            placed = placement_problem(given, found.strategy)
            assert placed.violations(found.positions) == ()
            if fits:
                assert violations(given, found.strategy, placed.devices(found.positions)) == (), (seed, choice)
    assert decided.min() > 10


def with_more(given: PlanningProblem, kib: int) -> PlanningProblem:
    """The problem without a margin, and so many KiB more on every device."""
    groups = []
    for group in given.cluster.nodes:
        size = group.device.memory_gib + (kib + 0.25) / 2**20
        groups.append(group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": size})}))
    return replace(without_margin(given), cluster=given.cluster.model_copy(update={"nodes": groups}))


@pytest.mark.proof
def test_missing_bytes_are_the_least() -> None:
    """With so many KiB more on every device a plan fits, with two less none does; sizes are rounded to KiB."""
    lacking = 0
    for seed in range(80):
        given = random_orders(seed, ORDERS) if seed % 2 else random_problem(seed)
        given = with_more(given, -2)
        choices = enumerable(given) if seed % 2 else given.candidates
        for choice in list(choices)[::4]:
            found = least_missing(given, choice)
            assert found is not None
            kib = -(-max(found.missing) // 1024)
            if kib:
                lacking += 1
                relieved = least_missing(with_more(given, kib), choice)
                assert relieved is not None
                assert not any(relieved.missing)
                assert np.isfinite(enumerate_candidate(with_more(given, kib), choice).seconds), (seed, choice)
                assert np.isinf(enumerate_candidate(with_more(given, kib - 2), choice).seconds), (seed, choice)
    assert lacking > 20


@pytest.mark.proof
def test_a_plan_is_found_where_only_one_assignment_fits() -> None:
    """Three layers on two device types: no plan that the search builds fits, the assignment by memory does."""
    given = random_orders(1649, ORDERS)
    result = search(given, Limits(workers=1))
    assert result.incumbent is not None
    assert result.incumbent.seconds == pytest.approx(enumerate_all(given).seconds)


@pytest.mark.proof
@pytest.mark.parametrize("sizes", [(1.05, 1.7), (1.7, 1.05)])
def test_two_types_that_hold_no_plan_are_proven_infeasible(sizes: tuple[float, float]) -> None:
    """Each of two devices holds one layer, and either stage needs more than the smaller device has."""
    given = unlike(*sizes, schedules=["zb-h1"], fixed={"pp": 2}, recompute=["none"])
    result = search(given, Limits(workers=1))
    assert np.isinf(enumerate_all(given).seconds)
    assert result.status is Status.INFEASIBLE
    assert "no plan fits" in str(diagnose(given, result))


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(4))
def test_small_problems_end_with_a_plan_or_a_proof(block: int) -> None:
    """Where nothing stops the search it finds a plan, or proves that there is none and says what is missing."""
    for seed in range(block * 40, block * 40 + 40):
        given = random_orders(seed, ORDERS) if seed % 2 else random_problem(seed)
        if given.cluster.num_devices > 4 or any(choice.pp * choice.vpp > 5 for choice in given.candidates):
            continue
        result = search(given, Limits(workers=1))
        if np.isfinite(enumerate_all(given).seconds):
            assert result.incumbent is not None, seed
        else:
            assert result.status is Status.INFEASIBLE, seed
            assert all(short.missing_bytes > 0 for short in diagnose(given, result).shortfalls), seed
