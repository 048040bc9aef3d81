"""Schedules by constraint programming, of all passes and of parts."""

import math

import numpy as np
import pytest

from benchmarks.schedules import even
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    canonical_schedule,
    canonical_starts,
    sequential,
    timetable,
    v_shape,
    violations,
)
from taut.solver.schedules.optimize import LargeNeighbourhood, solve
from tests.support.blocks import blocks
from tests.support.schedule_pipelines import least_makespan, one_by_one, unlike

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("seed", range(16))
def test_optimum_is_that_of_enumeration(seed: int) -> None:
    """Oracle: every order of every pass, fused or split, on one or two devices."""
    draw = np.random.default_rng(100 + seed)
    problem = unlike(draw, sequential(2) if seed % 2 else v_shape(1), 2, 4)
    solved = solve(problem, one_by_one(problem), work_limit=20.0)
    assert solved.is_complete
    assert solved.makespan == least_makespan(problem)
    assert solved.claimed_bound == solved.makespan
    assert violations(problem, solved.schedule) == ()


@pytest.mark.parametrize(("limit", "makespan"), [(3, 46), (4, 35), (5, 32), (6, 29), (8, 27)])
def test_known_optima_of_four_by_four(limit: int, makespan: float) -> None:
    """V placement, unit times, 4 x 4: 46 below V-Min's memory, else 24 + max(23 - 3M, 11 - M)."""
    problem = even(v_shape(4), 4, (1, 1, 1, 0), limit)
    solved = solve(problem, one_by_one(problem), work_limit=60.0)
    assert (solved.makespan, solved.is_complete) == (makespan, True)


def test_fractions_of_memory_are_kept() -> None:
    """Activations of 1/3 with 1/7 kept within 1.1: the schedule holds no more, and the bound is not above it."""
    problem = ScheduleProblem(
        device=sequential(2),
        forward=np.array((1.0, 1.5)),
        input_gradient=np.array((1.1, 0.7)),
        weight_gradient=np.array((0.3, 0.9)),
        transfer=np.array((0.2,)),
        num_micro_batches=4,
        activation=np.full(2, 1 / 3),
        kept_for_weight=np.full(2, 1 / 7),
        memory_limit=np.full(2, 1.1),
    )
    solved = solve(problem, one_by_one(problem), work_limit=20.0)
    assert solved.is_complete
    assert violations(problem, solved.schedule) == ()
    assert solved.makespan * (1 - 1e-4) <= solved.claimed_bound <= solved.makespan


def test_starts_in_order_are_not_later() -> None:
    """Fused passes are split and micro-batches put in order: same passes, no violation, no longer makespan."""
    problem = even(v_shape(2), 3, (1, 1, 1, 0), 12)
    orders = []
    for device in range(2):
        chunks = (device, 3 - device)
        rows = [(0, c, i) for c in chunks for i in (2, 0, 1)] + [(3, c, i) for c in chunks[::-1] for i in (1, 2, 0)]
        orders.append(np.array(rows))
    fused = Schedule("fused", tuple(orders))
    assert violations(problem, fused) == ()
    split = canonical_schedule(problem, fused)
    assert violations(problem, split) == ()
    assert timetable(problem, split).makespan <= timetable(problem, fused).makespan
    begin = canonical_starts(problem, fused)
    assert begin.shape == (3, 4, 3)
    assert np.all(np.diff(begin, axis=2) > 0)


def test_no_times_at_all() -> None:
    """Passes of no duration: the known schedule is best."""
    problem = even(v_shape(2), 2, (0, 0, 0, 0), 4)
    known = one_by_one(problem)
    assert solve(problem, known).schedule is known


@pytest.mark.parametrize("seed", blocks(8, first=4))
def test_parts_never_lengthen_or_break_a_schedule(seed: int) -> None:
    """Property: twelve rounds on unlike chunks and limits leave a feasible schedule, each no longer than before."""
    draw = np.random.default_rng(seed)
    problem = unlike(draw, v_shape(3), 4, 9)
    schedule, makespan = one_by_one(problem), math.inf
    parts = LargeNeighbourhood(problem, seed)
    for _ in range(12):
        solved = parts.improve(schedule)
        assert violations(problem, solved.schedule) == ()
        assert timetable(problem, solved.schedule).makespan == solved.makespan <= makespan
        schedule, makespan = solved.schedule, solved.makespan
    assert makespan < timetable(problem, one_by_one(problem)).makespan


def test_passes_outside_the_part_keep_their_order() -> None:
    """What is not free stays in its order on its device."""
    problem = even(v_shape(2), 4, (1, 2, 1, 0.5), 6)
    known = one_by_one(problem)
    begin = canonical_starts(problem, known)
    free = (begin >= 10) & (begin <= 20)
    solved = solve(problem, known, free=free)
    for before, after in zip(known.orders, solved.schedule.orders, strict=True):
        kept = [[tuple(p) for p in order.tolist() if not free[tuple(p)]] for order in (before, after)]
        assert kept[0] == kept[1]
