"""The checker of schedules of jobs, on schedules that are right and on each kind of wrong one."""

from math import inf
from typing import Any

import numpy as np
import pytest

from taut.errors import FormulationError
from taut.formulations.jobs.problem import JobsProblem, Pool, Segment, measures, trimmed, violations


def problem(**change: Any) -> JobsProblem:
    """Two jobs of 100 steps on two nodes of four; 1 step a second on 4 GPUs, 1.5 on 8; starts take 10 s."""
    fields: dict[str, Any] = {
        "pools": (Pool("a", 2, 4, price=0.5),),
        "arrival": np.array([0.0, 20.0]),
        "work": np.array([100.0, 100.0]),
        "deadline": np.array([120.0, inf]),
        "weight": np.array([1.0, 3.0]),
        "job": np.array([0, 0, 1, 1]),
        "pool": np.zeros(4, dtype=np.int64),
        "gpus": np.array([4, 8, 4, 8]),
        "rate": np.array([1.0, 1.5, 1.0, 1.5]),
        "restart_s": 10.0,
    }
    return JobsProblem(**{**fields, **change})


def test_measures_of_a_schedule_with_a_resizing() -> None:
    """Job 0 ends at 110 s; job 1 does 80 steps from 20 to 110 s and the rest at 110 + 10 + 20 / 1.5 = 133.33 s."""
    schedule = [Segment(0, 0, 0.0, 130.0), Segment(1, 2, 20.0, 110.0), Segment(1, 3, 110.0, 200.0)]
    assert violations(problem(), schedule) == ["pool a: 12 devices in use at 110 s, it has 8"]
    cut = trimmed(problem(), schedule)
    assert violations(problem(), cut) == []
    found = measures(problem(), cut)
    assert found.completion == pytest.approx([110, 133 + 1 / 3])
    assert found.missed == 0
    assert found.deadline_ratio == 1
    assert found.mean_completion_s == pytest.approx((110 + 3 * (113 + 1 / 3)) / 4)
    assert found.makespan_s == pytest.approx(133 + 1 / 3)
    assert found.busy_gpu_seconds == pytest.approx(4 * 110 + 4 * 90 + 8 * (23 + 1 / 3))
    assert found.value("cost") == pytest.approx(0.5 * found.busy_gpu_seconds)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ([Segment(1, 2, 19.0, 50.0)], "job 1: starts at 19 s, before it arrives at 20 s"),
        ([Segment(0, 2, 0.0, 50.0)], "job 0: configuration 2 is not one of its own"),
        ([Segment(0, 0, 0.0, 50.0), Segment(0, 0, 49.0, 60.0)], "job 0: two segments overlap at 49 s"),
        ([Segment(0, 0, 50.0, 50.0)], "job 0: a segment from 50 to 50 s"),
        ([Segment(0, 1, 0.0, 50.0), Segment(1, 2, 49.0, 60.0)], "pool a: 12 devices in use at 49 s, it has 8"),
    ],
)
def test_each_kind_of_fault_is_found(schedule: list[Segment], words: str) -> None:
    """Early starts, another job's configuration, overlaps, empty segments, too many devices."""
    assert violations(problem(), schedule) == [words]


def test_a_job_that_is_not_completed_costs_infinity() -> None:
    """Half of the work meets no deadline and no objective but the count of deadlines."""
    found = measures(problem(), [Segment(0, 0, 0.0, 60.0)])
    assert found.missed == 1
    assert found.deadline_ratio == 0
    assert [found.value(kind) for kind in ("completion", "makespan", "cost")] == [inf, inf, inf]


@pytest.mark.parametrize("gpus", [3, 6, 0])
def test_what_does_not_pack_into_nodes_is_refused(gpus: int) -> None:
    """On nodes of four a job has one, two, or whole nodes."""
    with pytest.raises(FormulationError, match="expected whole nodes or a half"):
        problem(gpus=np.array([gpus, 8, 4, 8]))
