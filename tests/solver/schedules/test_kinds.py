"""Every kind of schedule: feasible under any limit or refused, published memory, and never worse than what is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import FormulationError, InfeasibleError
from taut.formulations.schedules.schedule import (
    ScheduleProblem,
    round_robin,
    sequential,
    timetable,
    v_shape,
    violations,
)
from taut.solver.schedules.kinds import KINDS, Effort, block_memory, build, fastest_kind
from tests.support.schedules import pipeline, pipelines

pytestmark = pytest.mark.proof

LITTLE = Effort(lists=24, kept=2, trials=400)

PEAKS = {
    # Peak chunks of V-Min and V-Half that the authors' code prints for m = 2p + 2, which are
    # 2 ceil((p + 2) / 3) and 2 ceil((p + 1) / 2).
    2: (4, 4),
    3: (4, 4),
    4: (4, 6),
    5: (6, 6),
    6: (6, 8),
    7: (6, 8),
    8: (8, 10),
    9: (8, 10),
    10: (8, 12),
    12: (10, 14),
    14: (12, 16),
    16: (12, 18),
}


@settings(max_examples=60)
@given(pipelines(), st.sampled_from(KINDS))
def test_every_kind_is_feasible_or_refused(problem: ScheduleProblem, kind: str) -> None:
    """On any pipeline with any limits a kind gives a schedule without violations, or says why it does not."""
    try:
        schedule = build(kind, problem, work=LITTLE)
    except (FormulationError, InfeasibleError) as error:
        assert "expected" in str(error) or "more than its limit" in str(error)
        return
    assert schedule.kind == kind
    assert violations(problem, schedule) == ()


@settings(max_examples=60)
@given(pipelines())
def test_a_schedule_is_found_whenever_one_micro_batch_fits(problem: ScheduleProblem) -> None:
    """The least memory of any schedule is one micro-batch of all chunks of a device: below refused, at it scheduled."""
    least = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices).astype(float)
    tight = replace(problem, memory_limit=least)
    assert violations(tight, fastest_kind(tight, work=LITTLE)) == ()
    if least[0] > 0:
        limits = np.concatenate(([least[0] * 0.99], least[1:]))
        with pytest.raises(InfeasibleError, match="device 0 needs"):
            fastest_kind(replace(problem, memory_limit=limits), work=LITTLE)


@settings(max_examples=30)
@given(pipelines())
def test_the_best_schedule_is_no_longer_than_any_formula(problem: ScheduleProblem) -> None:
    """Formulas that the limits allow compete, so none is shorter."""
    try:
        best = timetable(problem, fastest_kind(problem, work=LITTLE)).makespan
    except InfeasibleError:
        return
    for kind in ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "dualpipe-v"):
        try:
            known = build(kind, problem)
        except (FormulationError, InfeasibleError):
            continue
        assert best <= timetable(problem, known).makespan * (1 + 1e-9)


@pytest.mark.parametrize(("p", "peaks"), PEAKS.items())
def test_v_min_and_v_half_hold_the_published_chunks(p: int, peaks: tuple[int, int]) -> None:
    """Memory of the repeated blocks equals the table; the adapted schedules keep it."""
    problem = pipeline(v_shape(p), 2 * p + 2)
    for kind, peak in zip(("v-min", "v-half"), peaks, strict=True):
        assert block_memory(problem, kind).max() == peak
        assert timetable(problem, build(kind, problem, work=LITTLE)).peak_memory.max() <= peak


@pytest.mark.parametrize(("kind", "share"), [("v-min", 1 / 3), ("v-half", 1 / 2), ("zb-v", 1.0)])
def test_memory_of_the_v_tends_to_its_share_of_1f1b(kind: str, share: float) -> None:
    """At 240 devices V-Min, V-Half and ZB-V hold 1/3, 1/2 and 1 of the 2p chunks of 1F1B, within 3 chunks."""
    p = 240
    peak = block_memory(pipeline(v_shape(p), 2 * p), kind).max()
    assert share * 2 * p <= peak <= share * 2 * p + 3


@pytest.mark.parametrize(
    ("m", "chunks", "units"), [(4, 4, 35), (4, 6, 29), (4, 8, 27), (8, 4, 59), (8, 6, 53), (8, 8, 51)]
)
def test_unit_times_reach_the_proven_optimum(m: int, chunks: int, units: int) -> None:
    """
    Four devices on the V at unit times: makespans proven optimal by constraint programming.

    They follow 6m + max(6p - 1 - 3M, 3p - 1 - M), M the chunks that fit: for m = 8 and M = 4 that is 48 + 11.
    """
    problem = pipeline(v_shape(4), m, limit=chunks)
    assert timetable(problem, fastest_kind(problem)).makespan == units
    assert units == 6 * m + max(6 * 4 - 1 - 3 * chunks, 3 * 4 - 1 - chunks)


def test_below_v_min_there_are_schedules_too() -> None:
    """Four devices, eight micro-batches, three chunks, one less than V-Min: the proven optimum is 86."""
    problem = pipeline(v_shape(4), 8, limit=3)
    found = fastest_kind(problem)
    assert violations(problem, found) == ()
    assert 86 <= timetable(problem, found).makespan <= 90


def test_limits_hold_by_device() -> None:
    """One tight device among free ones is kept, and the free ones use what they have."""
    problem = replace(pipeline(v_shape(4), 8), memory_limit=np.array([8.0, 3.0, 8.0, 8.0]))
    found = timetable(problem, fastest_kind(problem, work=LITTLE))
    assert found.peak_memory[1] <= 3
    assert found.peak_memory.max() > 3


def test_chunks_that_hold_nothing_are_scheduled() -> None:
    """Chunks without activations beside a large one that leaves others less than their share of a tight limit."""
    for units in ((0.0, 0.9, 0.05), (0.9, 0.0, 0.05), (0.05, 0.9, 0.0)):
        held = np.repeat(units, 2)
        tight = replace(pipeline(round_robin(2, 3), 16), activation=held, kept_for_weight=held, memory_limit=np.ones(2))
        assert violations(tight, fastest_kind(tight, work=LITTLE)) == ()


def test_the_same_seed_gives_the_same_schedule() -> None:
    """Work is counted, not timed, so two runs agree pass by pass."""
    problem = pipeline(v_shape(4), 8, f=1.1, b=1.3, w=0.7, c=0.1, limit=6)
    one, two = (fastest_kind(problem, work=LITTLE, seed=3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one.orders, two.orders, strict=True))


def test_kinds_are_refused_in_one_line() -> None:
    """Unknown names, wrong placements and lacking memory are said, each in one line."""
    problem = pipeline(sequential(4), 8, limit=3)
    with pytest.raises(FormulationError, match="kind: '2f2b', expected one of gpipe, 1f1b"):
        build("2f2b", problem)
    with pytest.raises(FormulationError, match="v-min: chunks are on devices"):
        build("v-min", problem)
    with pytest.raises(InfeasibleError, match="1f1b: device 0 holds 4, more than its limit 3"):
        build("1f1b", problem)
    with pytest.raises(InfeasibleError, match="v-half: device 0 needs 6, more than its limit 5"):
        build("v-half", pipeline(v_shape(4), 10, limit=5))
