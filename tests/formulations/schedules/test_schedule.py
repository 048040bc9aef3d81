"""Pipeline schedules: start times, memory and every kind of violation."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from taut.errors import FormulationError
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, sequential, timetable, v_shape, violations
from tests.support.schedules import pipeline, pipelines, rows

F, G, W, B = FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD


def schedule(*orders: list[tuple[int, int, int]]) -> Schedule:
    """Schedule of given orders."""
    return Schedule("test", tuple(np.array(order, dtype=np.int64).reshape(-1, 3) for order in orders))


def one_forward_one_backward(stages: int, m: int) -> Schedule:
    """1F1B: stage s runs stages - s forwards ahead, then a backward before every further forward."""
    orders = []
    for s in range(stages):
        ahead = min(stages - s, m)
        order = [(F, s, i) for i in range(ahead)]
        for i in range(m):
            order.append((B, s, i))
            if i + ahead < m:
                order.append((F, s, i + ahead))
        orders.append(order)
    return schedule(*orders)


def test_two_stages_by_hand() -> None:
    """
    Starts, ends, makespan, span, bubble and memory of two stages and two micro-batches, worked out on paper.

    Device 0: F0 0-1, F1 1-2, then I0 waits for stage 1's I0 (3-5 after F0 arrives at 1+1 and ends at 3) + 1.
    """
    problem = pipeline(sequential(2), 2, f=1, b=2, w=3, c=1, kept=0.25)
    found = timetable(
        problem,
        schedule(
            [(F, 0, 0), (F, 0, 1), (G, 0, 0), (W, 0, 0), (B, 0, 1)],
            [(F, 1, 0), (G, 1, 0), (F, 1, 1), (W, 1, 0), (B, 1, 1)],
        ),
    )
    assert [times.tolist() for times in found.start] == [[0, 1, 6, 8, 15], [2, 3, 5, 6, 9]]
    assert [times.tolist() for times in found.end] == [[1, 2, 8, 11, 20], [3, 5, 6, 9, 14]]
    assert (found.makespan, found.span) == (20.0, 20.0)
    # 12 busy seconds on either device, of 20.
    assert found.bubble == pytest.approx(1 - 12 / 20)
    # Device 0 holds two; device 1 a quarter of the first and the second.
    assert found.peak_memory.tolist() == [2.0, 1.25]


def test_a_fused_backward_hands_its_gradient_on_when_it_ends() -> None:
    """B keeps the gradient until the weights' gradient is done: 1F 1F 5B 5B against 1F 1F 2I 2I 3W."""
    problem = pipeline(sequential(2), 1, b=2, w=3)
    fused = schedule([(F, 0, 0), (B, 0, 0)], [(F, 1, 0), (B, 1, 0)])
    split = schedule([(F, 0, 0), (G, 0, 0), (W, 0, 0)], [(F, 1, 0), (G, 1, 0), (W, 1, 0)])
    assert timetable(problem, fused).makespan == 12.0
    assert timetable(problem, split).makespan == 9.0


def test_no_transfer_within_a_device() -> None:
    """At the bottom of the V activation and gradient stay on their device: two transfers of 10 each way, not three."""
    problem = pipeline(v_shape(2), 1, c=10)
    orders = [
        [(F, 0, 0), (F, 3, 0), (G, 3, 0), (G, 0, 0), (W, 3, 0), (W, 0, 0)],
        [(F, 1, 0), (F, 2, 0), (G, 2, 0), (G, 1, 0), (W, 2, 0), (W, 1, 0)],
    ]
    # Device 0: 1 F, 10, 2 F, 10, F I at 23-25, 10, 2 I, 10, I at 47-48, 2 W.
    assert timetable(problem, schedule(*orders)).makespan == 50.0


def test_span_leaves_out_a_device_s_wait_for_its_first_pass() -> None:
    """A device that starts late is measured from there: makespan 3 + 5, span 5 of either."""
    problem = ScheduleProblem(
        device=sequential(2),
        forward=np.array([3.0, 1.0]),
        input_gradient=np.array([0.0, 2.0]),
        weight_gradient=np.array([0.0, 2.0]),
        transfer=np.zeros(1),
        num_micro_batches=1,
        activation=np.ones(2),
        kept_for_weight=np.ones(2),
        memory_limit=np.full(2, np.inf),
    )
    found = timetable(problem, schedule([(F, 0, 0), (G, 0, 0), (W, 0, 0)], [(F, 1, 0), (G, 1, 0), (W, 1, 0)]))
    assert found.makespan == 8.0
    assert found.span == 6.0


def test_1f1b_equals_its_closed_form() -> None:
    """Equal stages without transfer take (m + stages - 1) (f + b + w), and stage s holds stages - s micro-batches."""
    found = timetable(pipeline(sequential(4), 8, f=1, b=1.5, w=0.5), one_forward_one_backward(4, 8))
    assert found.makespan == pytest.approx((8 + 3) * 3.0)
    assert found.peak_memory.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("row", [row for row in rows("baseline_all.csv") if row["method"] == "1F1B"], ids=str)
def test_1f1b_equals_the_published_simulations(row: dict[str, str]) -> None:
    """Makespan, span, bubble and peak of 1F1B equal the table of schedules simulated with the authors' code."""
    stages, m = int(row["p"]), int(row["m"])
    f, b, w, c = (float(row[key]) for key in "fbwc")
    problem = pipeline(sequential(stages), m, f=f, b=b, w=w, c=c)
    found = timetable(problem, one_forward_one_backward(stages, m))
    assert violations(problem, one_forward_one_backward(stages, m)) == ()
    assert found.makespan == pytest.approx(float(row["makespan"]), rel=1e-9)
    assert found.span == pytest.approx(float(row["span"]), rel=1e-9)
    assert found.bubble == pytest.approx(float(row["bubble_makespan"]), abs=1e-5)
    assert found.peak_memory.tolist() == [float(peak) for peak in row["peak_per_device_unit"].split()]


RIGHT = [(F, 0, 0), (F, 0, 1), (B, 0, 0), (B, 0, 1)]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([(F, 0, 0), (B, 0, 0), (B, 0, 1)], "F of chunk 0, micro-batch 1 runs 0 times"),
        ([*RIGHT, (W, 0, 1)], "W of chunk 0, micro-batch 1 runs 2 times"),
        ([*RIGHT, (G, 0, 1)], "I of chunk 0, micro-batch 1 runs 2 times"),
        ([*RIGHT, (F, 0, 2)], "pass (0, 0, 2) does not exist"),
        ([*RIGHT, (4, 0, 0)], "pass (4, 0, 0) does not exist"),
        ([*RIGHT, (F, 2, 0)], "pass (0, 2, 0) does not exist"),
        ([*RIGHT, (F, 1, 0)], "F of chunk 1, micro-batch 0 is on device 0, expected 1"),
        ([(B, 0, 0), (F, 0, 0), (F, 0, 1), (B, 0, 1)], "device 0 waits for ever at B of chunk 0, micro-batch 0"),
        ([(F, 0, 0), (F, 0, 1), (W, 0, 0), (G, 0, 0), (B, 0, 1)], "waits for ever at W of chunk 0, micro-batch 0"),
    ],
)
def test_every_violation_is_said(order: list[tuple[int, int, int]], said: str) -> None:
    """A missing, doubled, strange, misplaced or premature pass is named, and no times are given."""
    problem = pipeline(sequential(2), 2)
    broken = schedule(order, [(F, 1, 0), (B, 1, 0), (F, 1, 1), (B, 1, 1)])
    assert any(said in line for line in violations(problem, broken))
    with pytest.raises(FormulationError):
        timetable(problem, broken)


def test_devices_that_wait_for_each_other_are_named() -> None:
    """Stage 0 wants the gradient of micro-batch 1 first, stage 1 micro-batch 0 only after that: neither goes on."""
    problem = pipeline(sequential(2), 2)
    broken = schedule([(F, 0, 0), (B, 0, 0), (F, 0, 1), (B, 0, 1)], [(F, 1, 1), (B, 1, 1), (F, 1, 0), (B, 1, 0)])
    assert [line[:24] for line in violations(problem, broken)] == [
        "device 0 waits for ever ",
        "device 1 waits for ever ",
    ]


def test_memory_beyond_a_limit_is_a_violation_of_that_device() -> None:
    """Two units on a device of one are refused, by device; times are still told."""
    problem = pipeline(sequential(1), 2, limit=1.0)
    assert violations(problem, schedule(RIGHT)) == ("device 0 holds 2, more than its limit 1",)
    assert timetable(problem, schedule(RIGHT)).peak_memory.tolist() == [2.0]


@given(pipelines(limited=False))
def test_start_times_keep_every_precedence(problem: ScheduleProblem) -> None:
    """All forwards, then all gradients, keep (2) to (5) on any pipeline, and start as early as they can."""
    m, chunks = problem.num_micro_batches, problem.num_chunks
    orders = [
        [(F, c, i) for c in range(chunks) for i in range(m) if problem.device[c] == d]
        + [(k, c, i) for c in reversed(range(chunks)) for i in range(m) for k in (G, W) if problem.device[c] == d]
        for d in range(problem.num_devices)
    ]
    found = timetable(problem, schedule(*orders))
    end = {x: float(e) for order, ends in zip(orders, found.end, strict=True) for x, e in zip(order, ends, strict=True)}
    for order, starts in zip(orders, found.start, strict=True):
        before = 0.0
        for (kind, c, i), begin in zip(order, starts, strict=True):
            needs = [before]
            if kind == F and c > 0:
                needs.append(end[F, c - 1, i] + problem.transfer[c - 1])
            if kind == G:
                needs.append(end[F, c, i])
            if kind == G and c < chunks - 1:
                needs.append(end[G, c + 1, i] + problem.transfer[c])
            if kind == W:
                needs.append(end[G, c, i])
            assert begin == max(needs)
            before = end[kind, c, i]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": np.array([0, 2])}, "expected every device from 0 to 1"),
        ({"device": np.array([0.0, 1.0])}, "expected one whole number"),
        ({"forward": np.array([1.0])}, r"forward: shape \(1,\), expected \(2,\)"),
        ({"forward": np.array([1.0, -1.0])}, "forward: entry 1 is -1"),
        ({"transfer": np.array([np.nan])}, "transfer: entry 0 is nan"),
        ({"kept_for_weight": np.array([2.0, 1.0])}, "expected at most its activation 1"),
        ({"memory_limit": np.array([1.0, -np.inf])}, "memory_limit: entry 1 is -inf"),
        ({"num_micro_batches": 0}, "num_micro_batches: 0, expected at least 1"),
    ],
)
def test_a_problem_explains_what_is_wrong_with_it(changed: dict[str, Any], said: str) -> None:
    """Shapes, signs, devices and memory are refused with field, entry and expectation."""
    ones = np.ones(2)
    given: dict[str, Any] = {
        "device": sequential(2),
        "forward": ones,
        "input_gradient": ones,
        "weight_gradient": ones,
        "transfer": np.zeros(1),
        "num_micro_batches": 2,
        "activation": ones,
        "kept_for_weight": ones,
        "memory_limit": np.full(2, np.inf),
    }
    with pytest.raises(FormulationError, match=said):
        ScheduleProblem(**(given | changed))
