"""Bounds on the makespan of pipeline schedules."""

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.schedules import even
from taut.data.arrays import Floats
from taut.formulations.schedules.schedule import ScheduleProblem, sequential, timetable, v_shape, violations
from taut.solver.schedules.lower_bound import closed_form_bound, is_feasible, lower_bound, rederived, relaxed
from taut.solver.schedules.one_machine import (
    WIDTHS,
    refute,
    refute_by_propagation,
    single_device,
)
from taut.solver.schedules.optimize import solve
from tests.support.schedule_pipelines import device_map, least_makespan, one_by_one, unlike

pytestmark = pytest.mark.proof

REAL = {
    "1.5B": (9.261, 9.043, 4.6685, 0.601),
    "6.2B": (14.859, 14.722, 9.9635, 0.527),
    "14.6B": (5.6735, 5.624, 4.066, 0.377),
    "28.3B": (5.2095, 5.1035, 3.8575, 0.408),
}
"""Milliseconds of half a stage: forward, input gradient, weight gradient, transfer (Zero Bubble, four models)."""


@pytest.mark.parametrize("seed", range(24))
def test_no_bound_exceeds_the_enumerated_optimum(seed: int) -> None:
    """Oracle: every order of every pass, fused or split, micro-batches in any order, two devices at most."""
    draw = np.random.default_rng(seed)
    device = [sequential(1), sequential(2), v_shape(1), np.array((1, 0))][seed % 4]
    problem = unlike(draw, device, 2 if seed % 3 else 1, 4)
    if seed % 6 == 5:
        problem = replace(problem, memory_limit=problem.memory_limit - 1 + problem.activation.min())
    if seed % 8 == 7:
        problem = replace(problem, memory_limit=np.full(problem.num_devices, 0.5))
    optimum = least_makespan(problem)
    assert is_feasible(problem) == math.isfinite(optimum)
    for bound in (closed_form_bound(problem), lower_bound(problem), lower_bound(problem, incumbent=optimum)):
        assert bound.lower_bound <= optimum


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_in_exact_arithmetic(seed: int) -> None:
    """Seconds that are no binary fractions: no bound exceeds the optimum in rationals, whose sums do not round."""
    draw = np.random.default_rng((seed, 7))
    device = [sequential(1), sequential(2), v_shape(1), np.array((1, 0))][seed % 4]
    drawn = unlike(draw, device, 2 if seed % 3 else 1, 4)
    shares = draw.uniform(0.1, 0.9, 2)
    problem = replace(
        drawn,
        forward=drawn.forward * shares[0],
        weight_gradient=drawn.weight_gradient * shares[1],
        transfer=drawn.transfer * 0.1,
        activation=drawn.activation * shares[0],
        kept_for_weight=drawn.kept_for_weight * shares[0],
    )
    figures = "seconds", "transfer", "activation", "kept_for_weight", "allowed"
    exact = {name: _rationals(getattr(problem, name)) for name in figures}
    exact["seconds"][3] = exact["seconds"][1] + exact["seconds"][2]
    sizes = {name: getattr(problem, name) for name in ("num_chunks", "num_micro_batches", "num_devices", "device")}
    optimum = least_makespan(cast("ScheduleProblem", SimpleNamespace(**exact, **sizes)))
    known = timetable(problem, one_by_one(problem)).makespan
    for bound in (closed_form_bound(problem), lower_bound(problem), lower_bound(problem, incumbent=known)):
        assert Fraction(bound.lower_bound) <= optimum
        assert Fraction(rederived(problem, bound.witness)) == Fraction(bound.lower_bound)
        assert bound.lower_bound > 0.5 * float(optimum)


def _rationals(figures: Floats) -> NDArray[Any]:
    """Figures as the rationals that they are; infinite ones as they stand."""
    each = [Fraction(x) if math.isfinite(x) else x for x in figures.ravel().tolist()]
    return np.array(each, dtype=object).reshape(figures.shape)


def test_no_bound_exceeds_the_optimum_and_most_equal_it() -> None:
    """Oracle: the optimum by constraint programming of 120 pipelines with unlike chunks, transfers and limits."""
    equal = 0
    for seed in range(120):
        draw = np.random.default_rng(1000 + seed)
        device = device_map(draw, int(draw.integers(1, 4)))
        problem = unlike(draw, device, int(draw.integers(1, 6 if len(device) < 5 else 4)), int(draw.choice((2, 4, 10))))
        known = one_by_one(problem)
        assert violations(problem, known) == ()
        solved = solve(problem, known, work_limit=20.0)
        assert violations(problem, solved.schedule) == ()
        bounds = [lower_bound(problem), lower_bound(problem, incumbent=solved.makespan), closed_form_bound(problem)]
        assert max(bound.lower_bound for bound in bounds) <= solved.makespan
        equal += solved.is_complete and bounds[1].lower_bound == solved.makespan
    assert equal >= 100


@pytest.mark.parametrize(("p", "m"), [(4, 4), (4, 8), (8, 8), (8, 16), (16, 16)])
def test_equal_times_reach_the_makespan_of_published_v_schedules(p: int, m: int) -> None:
    """At every memory level from V-Min's to 2p the bound is 6m + max(6p - 1 - 3M, 3p - 1 - M), which is attained."""
    for limit in range(2 * math.ceil((p + 2) / 3), 2 * p + 1):
        published = 6 * m + max(6 * p - 1 - 3 * limit, 3 * p - 1 - limit)
        problem = even(v_shape(p), m, (1, 1, 1, 0), limit)
        assert lower_bound(problem, incumbent=published).lower_bound == published


def test_every_target_below_the_bound_is_within_the_incumbents_step() -> None:
    """Without an incumbent the search comes within 2e-5 of the bound that it reaches with one."""
    problem = even(v_shape(4), 8, (1, 1, 1, 0), 5)
    assert 56 * (1 - 4e-5) <= lower_bound(problem).lower_bound <= 56


@pytest.mark.parametrize(
    ("name", "limit", "relaxation"),
    [("1.5B", 4, 517.5), ("1.5B", 5, 469.4), ("28.3B", 4, 304.7), ("28.3B", 5, 280.5), ("28.3B", 6, 266.3)],
)
def test_sweeps_solve_the_relaxation_of_one_device(name: str, limit: int, relaxation: float) -> None:
    """4 x 8, last device: what CP-SAT proved of it with times rounded to 10 microseconds; refuted below, not above."""
    problem = even(v_shape(4), 8, REAL[name], limit)
    given = relaxed(problem)
    device = single_device(given, 3)
    assert device is not None
    assert refute(device, given.rounded.target(0.999 * relaxation)).refuted is not None
    assert refute(device, given.rounded.target(1.001 * relaxation)).refuted is None
    assert lower_bound(problem).lower_bound >= 0.999 * relaxation


@pytest.mark.parametrize(
    ("name", "limit", "known", "gap"),
    [("1.5B", 4, 531.5125, 2e-4), ("1.5B", 5, 485.77, 0.02), ("28.3B", 4, 313.0625, 0.006)],
)
def test_devices_together_prove_more_than_one(name: str, limit: int, known: float, gap: float) -> None:
    """4 x 8 at scarce memory: one device alone leaves 2.6 to 3.4 % to the best makespan known, all together less."""
    bound = lower_bound(even(v_shape(4), 8, REAL[name], limit))
    assert bound.source == "propagation"
    assert known * (1 - gap) <= bound.lower_bound <= known


def test_sequential_placement_reaches_zero_bubble() -> None:
    """28.3B, 8 x 32, room enough: m (F + I + W) + (p - 1) (F + t), the makespan of ZB-H2, and no less than work."""
    forward, gradient, weight, transfer = 10.419, 10.207, 7.715, 0.408
    problem = even(sequential(8), 32, (forward, gradient, weight, transfer), 16)
    expected = 32 * (forward + gradient + weight) + 7 * (forward + transfer)
    assert lower_bound(problem).lower_bound >= expected * (1 - 1e-9)


def test_less_memory_never_bounds_less() -> None:
    """The refuted targets grow as memory shrinks, one device's limit at a time."""
    problem = even(v_shape(4), 8, REAL["14.6B"], 8)
    last = 0.0
    for limit in range(8, 2, -1):
        limits = problem.memory_limit.copy()
        limits[3] = limit
        bound = lower_bound(replace(problem, memory_limit=limits)).lower_bound
        assert bound >= last * (1 - 1e-4)
        last = bound


def test_infeasible_limits_have_an_infinite_bound() -> None:
    """A device that cannot hold one forward pass of each of its chunks runs nothing."""
    bound = lower_bound(even(v_shape(2), 3, (1, 1, 1, 0), 1))
    assert bound.lower_bound == math.inf
    assert bound.source == "memory"


def test_work_limit_leaves_a_valid_bound() -> None:
    """With no work allowed what is left is the best of the cheap bounds."""
    problem = even(v_shape(4), 8, REAL["1.5B"], 4)
    assert lower_bound(problem, work_limit=0) == closed_form_bound(problem)
    assert lower_bound(problem, stop=lambda: True) == closed_form_bound(problem)


def test_rounding_stays_below() -> None:
    """Times that no power of two divides: the incumbent is not exceeded, and reached within 1e-9."""
    problem = even(v_shape(2), 3, (0.1, 0.3, 0.7, 0.1), 4)
    solved = solve(problem, one_by_one(problem), work_limit=0.5)
    bound = lower_bound(problem, incumbent=solved.makespan).lower_bound
    assert solved.makespan * (1 - 1e-9) <= bound <= solved.makespan


def test_many_chunks_fall_back_to_cheap_bounds() -> None:
    """Where 64 bits cannot tell the states apart, the bound is that of work, path or memory."""
    problem = even(np.tile(np.arange(2), 8), 64, (1, 1, 1, 0), 100)
    assert lower_bound(problem).source in {"work", "path", "memory-area"}


def test_no_target_of_the_optimum_or_beyond_is_refuted() -> None:
    """Oracle: neither a device alone nor all together refute the optimum, one time unit more, or a tenth more."""
    for seed in range(60):
        draw = np.random.default_rng(3000 + seed)
        problem = unlike(draw, device_map(draw, int(draw.integers(1, 4))), 3, 6)
        solved = solve(problem, one_by_one(problem), work_limit=20.0)
        given = relaxed(problem)
        best = given.rounded.target(solved.makespan) + 1
        for target in (best, best + 1, best + best // 10):
            assert refute_by_propagation(given, target).visits is None
            for d in range(problem.num_devices):
                device = single_device(given, d)
                assert device is not None
                assert refute(device, target).refuted is None


def test_labels_grow_from_stage_to_stage() -> None:
    """The first stage is the cheapest."""
    assert WIDTHS[0] == 1
    assert list(WIDTHS) == sorted(WIDTHS)


def random_problem(seed: int) -> ScheduleProblem:
    """A larger pipeline with unlike chunks."""
    draw = np.random.default_rng(seed)
    return unlike(draw, v_shape(4), 6, 10)


@pytest.mark.parametrize("seed", range(6))
def test_incumbent_changes_nothing_but_speed(seed: int) -> None:
    """With an incumbent far above, the bound is the same within the last step."""
    problem = random_problem(seed)
    alone = lower_bound(problem, work_limit=100_000_000).lower_bound
    guided = lower_bound(problem, incumbent=1.2 * alone, work_limit=100_000_000).lower_bound
    assert guided == pytest.approx(alone, rel=3e-3)
