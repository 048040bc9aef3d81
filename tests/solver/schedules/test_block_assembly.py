"""Rebuilt blocks: valid within every limit, as short as proven at unit times, and never shorter than the best."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.formulations.schedules.orders import v_half, v_min
from taut.formulations.schedules.schedule import ScheduleProblem, sequential, timetable, v_shape, violations
from taut.solver.schedules.building_blocks import (
    assembled_schedules,
    assembled_sequences,
    backfill,
    collision_free_blocks,
    peak_chunks,
    squeeze,
    truncate,
)
from taut.solver.schedules.kinds import Effort, fastest_kind
from tests.support.schedules import pipeline, rows

pytestmark = pytest.mark.proof

LITTLE = Effort(lists=8, kept=1, trials=100)


@st.composite
def on_the_v(draw: st.DrawFn) -> ScheduleProblem:
    """Pipelines on the V with unlike chunks, latencies and limits that differ by device."""
    p, m = draw(st.integers(1, 5)), draw(st.integers(1, 12))

    def numbers(size: int, low: int, high: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), dtype=np.float64)

    activation = numbers(2 * p, 1, 2)
    needed = np.bincount(v_shape(p), weights=activation, minlength=p)
    return ScheduleProblem(
        device=v_shape(p),
        forward=numbers(2 * p, 1, 9),
        input_gradient=numbers(2 * p, 1, 9),
        weight_gradient=numbers(2 * p, 0, 9),
        transfer=numbers(2 * p - 1, 0, 3),
        num_micro_batches=m,
        activation=activation,
        kept_for_weight=np.minimum(activation, numbers(2 * p, 0, 2)),
        memory_limit=needed + numbers(p, 0, 2 * p),
    )


@settings(max_examples=60)
@given(st.integers(1, 7), st.integers(1, 16))
def test_every_order_runs_and_one_limit_serves_the_next(p: int, m: int) -> None:
    """Each word has every pass once; the shortest under each limit M keep it, and grow no longer with memory."""
    sequences = assembled_sequences(p, m)
    counts = [(sequences == letter).sum(axis=2) for letter in range(5)]
    assert all((count == (2 * m if letter == 4 else m)).all() for letter, count in enumerate(counts))
    lengths = []
    for limit in range(2, 2 * p + 1):
        problem = pipeline(v_shape(p), m, f=1.1, b=1.3, w=0.7, c=0.1, limit=limit)
        found = assembled_schedules(problem, 3)
        assert all(violations(problem, schedule) == () for schedule in found)
        several = [timetable(problem, schedule).makespan for schedule in found]
        assert several == sorted(several)
        lengths += several[:1]
    assert lengths
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize(("p", "m"), [(4, 4), (4, 8), (8, 8), (8, 16), (16, 16)])
def test_unit_times_reach_the_formula(p: int, m: int) -> None:
    """
    At every level from V-Min's 2 ceil((p + 2) / 3) chunks to 2p the best order takes the proven number of slots.

    It is 6m + max(6p - 1 - 3M, 3p - 1 - M): 48 + 11 for p = 4, m = 8, M = 4.
    """
    for chunks in range(2 * -(-(p + 2) // 3), 2 * p + 1):
        problem = pipeline(v_shape(p), m, limit=chunks)
        found = timetable(problem, assembled_schedules(problem, 1)[0])
        assert found.makespan == 6 * m + max(6 * p - 1 - 3 * chunks, 3 * p - 1 - chunks)
        assert found.peak_memory.max() <= chunks


@settings(max_examples=40)
@given(on_the_v())
def test_the_best_schedule_is_no_longer_than_any_rebuilt_block(problem: ScheduleProblem) -> None:
    """Unlike chunks and limits by device: rebuilt blocks are feasible, and starts of what is returned."""
    found = assembled_schedules(problem, 3)
    assert all(violations(problem, schedule) == () for schedule in found)
    best = fastest_kind(problem, work=LITTLE)
    assert violations(problem, best) == ()
    length = timetable(problem, best).makespan
    assert all(length <= timetable(problem, schedule).makespan * (1 + 1e-9) for schedule in found)


def test_nothing_is_rebuilt_where_no_block_fits() -> None:
    """Less memory than V-Min's four chunks, or another placement than the V."""
    assert assembled_schedules(pipeline(v_shape(4), 8, limit=3), 6) == []
    assert assembled_schedules(pipeline(sequential(4), 8), 6) == []


def test_tight_limits_of_one_device_are_kept() -> None:
    """Five chunks on device 2 alone: the best rebuilt block lies between those of five and of eight everywhere."""
    limits = np.array([8.0, 8.0, 5.0, 8.0])
    problem = pipeline(v_shape(4), 8, f=1.0, b=1.2, w=0.8, c=0.1)
    mixed, tight, free = (
        timetable(limited, assembled_schedules(limited, 1)[0]).makespan
        for limited in (replace(problem, memory_limit=limit) for limit in (limits, np.full(4, 5.0), np.full(4, 8.0)))
    )
    assert free <= mixed <= tight


def test_the_number_of_orders_is_bounded() -> None:
    """Of the blocks of 32 devices only part is built for 128 micro-batches; all of them for few."""
    assert len(assembled_sequences(32, 128)) * 6 * 32 * 128 <= 8.5e6
    assert len(assembled_sequences(8, 16)) > 319


@pytest.mark.parametrize("p", [4, 5, 6, 7, 8, 12])
def test_blocks_of_v_min_and_v_half_are_among_all(p: int) -> None:
    """The enumerated blocks have the published slots of both among them, up to later turns by whole periods."""
    every = {tuple(slots.ravel() % 6) for slots in collision_free_blocks(p)}
    for block in (v_min(p), v_half(p)):
        down, up = np.split(block.forward, 2)
        gradient_of_down, gradient_of_up = np.split(block.input_gradient, 2)
        assert tuple(np.stack((down, up[::-1], gradient_of_up[::-1], gradient_of_down), axis=1).ravel() % 6) in every


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(2, 9), st.integers(0, 10**6))
def test_filling_and_shortening_keep_orders_whole(p: int, m: int, place: int) -> None:
    """Any order: slots end at the evaluator's makespan, filling keeps its chunks, shortening its first passes."""
    sequences = assembled_sequences(p, m)
    sequence = sequences[place % len(sequences)]
    slots = np.zeros(sequence.shape, dtype=np.int64)
    assert squeeze(sequence, slots)
    assert all((np.diff(row) > 0).all() for row in slots)
    filled = np.empty_like(sequence)
    assert backfill(sequence, peak_chunks(sequence), filled)
    assert peak_chunks(filled) <= peak_chunks(sequence)
    assert (np.sort(filled, axis=1) == np.sort(sequence, axis=1)).all()
    short = np.empty((p, 6 * (m - 1)), dtype=np.int8)
    truncate(sequence, m - 1, short)
    assert all(np.bincount(row, minlength=5).tolist() == [m - 1] * 4 + [2 * m - 2] for row in short)
    assert squeeze(short, np.zeros(short.shape, dtype=np.int64))


@pytest.mark.parametrize("stages", [4, 8])
def test_rebuilt_blocks_are_no_longer_than_published(stages: int) -> None:
    """The authors' search over blocks, m at least 2p: before any improvement ours is never longer in its memory."""
    published = [row for row in rows("adaptive_V_pareto.csv") if int(row["p"]) == stages <= int(row["m"]) / 2]
    if not published:
        pytest.skip("published schedules are absent")
    for row in published:
        f, b, w, c = (float(row[name]) for name in ("f", "b", "w", "c(chunk_costs)"))
        device, limit = v_shape(stages), float(row["peak_chunks"])
        problem = pipeline(device, int(row["m"]), f=f, b=b, w=w, c=c, limit=limit)
        ours = timetable(problem, assembled_schedules(problem, 1)[0]).makespan
        assert ours <= float(row["best_makespan"]) * (1 + 1e-9)
