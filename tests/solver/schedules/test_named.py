"""Schedules given by a formula: makespan, span and memory of every published row, and every refusal."""

from collections.abc import Callable

import pytest
from hypothesis import given

from taut.errors import FormulationError
from taut.formulations.schedules.orders import (
    dualpipe_v,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zb_h1,
    zb_h2,
    zb_v,
)
from taut.formulations.schedules.schedule import (
    Schedule,
    ScheduleProblem,
    round_robin,
    sequential,
    timetable,
    v_shape,
    violations,
)
from tests.support.schedules import pipeline, pipelines, rows

pytestmark = pytest.mark.proof

FORMULAS: dict[str, Callable[[ScheduleProblem], Schedule]] = {
    "1F1B": one_forward_one_backward,
    "I1F1B_v2": interleaved,
    "I1F1B_v4": interleaved,
    "ZB-H1": zb_h1,
    "ZB-H2": zb_h2,
    "ZB-V-hand": zb_v,
}
PUBLISHED = [
    row
    for row in rows("baseline_all.csv")
    if row["method"] in FORMULAS and (row["method"] != "ZB-V-hand" or int(row["m"]) >= 2 * int(row["p"]))
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['method']}-{row['p']}x{row['m']}-{row['triple']}")
def test_formulas_equal_the_published_schedules(row: dict[str, str]) -> None:
    """Makespan, span, and memory of every device equal those of the orders that the authors' code prints."""
    p, m, v = int(row["p"]), int(row["m"]), int(row["v"])
    device = v_shape(p) if row["placement"] == "V" else round_robin(p, v)
    f, b, w = (float(row[key]) / v for key in "fbw")
    problem = pipeline(device, m, f=f, b=b, w=w, c=float(row["c"]))
    schedule = FORMULAS[row["method"]](problem)
    assert violations(problem, schedule) == ()
    found = timetable(problem, schedule)
    assert found.makespan == pytest.approx(float(row["makespan"]), rel=1e-6)
    assert found.span == pytest.approx(float(row["span"]), rel=1e-6)
    assert (found.peak_memory / v).tolist() == [float(peak) for peak in row["peak_per_device_unit"].split()]


def test_zero_bubble_schedules_at_unit_times() -> None:
    """
    Spans of 4 devices and 8 micro-batches: H1 pays (p - 1)(F + I - W) = 3, H2 and ZB-V nothing (24 = 8 x 3 units).

    Memory: p, 2p - 1 and p micro-batches on every device.
    """
    for build, device, span, peak in (
        (zb_h1, sequential(4), 27.0, 4.0),
        (zb_h2, sequential(4), 24.0, 7.0),
        (zb_v, v_shape(4), 48.0, 8.0),
    ):
        problem = pipeline(device, 8)
        found = timetable(problem, build(problem))
        assert found.span == span
        assert found.peak_memory.tolist() == [peak] * 4


def test_interleaved_holds_what_its_warm_up_takes() -> None:
    """Device d of 4 with 2 chunks holds 2 (4 - d - 1) + 4 + 1 chunks: 11, 9, 7, 5."""
    problem = pipeline(round_robin(4, 2), 8)
    assert timetable(problem, interleaved(problem)).peak_memory.tolist() == [11, 9, 7, 5]


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (4, 8), (4, 13), (8, 16), (8, 20)])
def test_dualpipe_v_holds_one_chunk_more_than_1f1b(p: int, m: int) -> None:
    """DualPipeV keeps 2p + 1 chunks on every device, as its authors say of activations (one pipeline more)."""
    problem = pipeline(v_shape(p), m)
    schedule = dualpipe_v(problem)
    assert violations(problem, schedule) == ()
    assert timetable(problem, schedule).peak_memory.tolist() == [min(2 * p + 1, 2 * m)] * p


@given(pipelines(limited=False))
def test_formulas_are_schedules_of_any_pipeline(problem: ScheduleProblem) -> None:
    """Whatever the seconds, every formula gives each pass once, without deadlock, or says what it lacks."""
    built = 0
    for build in (gpipe, one_forward_one_backward, interleaved, zb_h1, zb_h2, zb_v, dualpipe_v):
        try:
            schedule = build(problem)
        except FormulationError as error:
            assert "expected" in str(error)
            continue
        built += 1
        assert violations(problem, schedule) == ()
    assert built >= 1


def test_interleaved_wants_whole_rounds() -> None:
    """Micro-batches that are no multiple of the devices are refused."""
    with pytest.raises(FormulationError, match="6 micro-batches, expected a multiple of the 4 devices"):
        interleaved(pipeline(round_robin(4, 2), 6))
