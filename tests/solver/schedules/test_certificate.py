"""Certificates of schedules, whole and tampered with."""

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.schedules import even
from taut.errors import CertificateError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, v_shape
from taut.solver.schedules.lower_bound import certificate, closed_form_bound, complaints, lower_bound, rederived
from tests.support.schedule_pipelines import one_by_one, unlike

pytestmark = pytest.mark.proof


def claimed(problem: ScheduleProblem, schedule: Schedule) -> dict[str, Any]:
    """A certificate as it comes back from a file."""
    makespan = timetable(problem, schedule).makespan
    whole: dict[str, Any] = json.loads(json.dumps(certificate(makespan, lower_bound(problem, incumbent=makespan))))
    return whole


PROBLEM = even(v_shape(4), 8, (9.261, 9.043, 4.6685, 0.601), 6)
SCHEDULE = one_by_one(PROBLEM)
TOGETHER = even(v_shape(4), 8, (9.261, 9.043, 4.6685, 0.601), 4)


@pytest.mark.parametrize("seed", range(30))
def test_certificates_hold_after_a_round_trip(seed: int) -> None:
    """Oracle: what was claimed is derived again from the witness, whatever bound it is."""
    draw = np.random.default_rng(seed)
    problem = unlike(draw, v_shape(int(draw.integers(1, 4))), 3, 6)
    schedule = one_by_one(problem)
    assert complaints(problem, schedule, claimed(problem, schedule)) == ()
    for bound in (closed_form_bound(problem), lower_bound(problem)):
        assert rederived(problem, bound.witness) == bound.lower_bound


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("makespan",), 1.0),
        (("makespan",), None),
        (("makespan",), "x"),
        (("lower_bound",), 0.0),
        (("lower_bound",), math.nan),
        (("lower_bound",), math.inf),
        (("lower_bound",), None),
        (("gap",), 0.0),
        (("gap",), True),
        (("claimed_bound",), 1.0),
        (("claimed_bound",), 1e9),
        (("claimed_bound",), "x"),
        (("witness",), {}),
        (("witness",), None),
        (("witness",), {"source": "work"}),
        (("witness",), {"source": "path"}),
        (("witness",), {"source": "memory"}),
        (("witness",), {"source": "memory-area"}),
        (("witness",), {"source": ["work"]}),
        (("witness", "source"), "work"),
        (("witness", "source"), "cp-sat"),
        (("witness", "source"), None),
        (("witness", "device"), 0),
        (("witness", "device"), 4),
        (("witness", "device"), -1),
        (("witness", "device"), 3.0),
        (("witness", "device"), True),
        (("witness", "device"), "3"),
        (("witness", "target"), 0),
        (("witness", "target"), 1 << 59),
        (("witness", "target"), 1 << 80),
        (("witness", "target"), 1e10),
        (("witness", "target"), None),
        (("witness", "sweeps"), 0),
        (("witness", "sweeps"), 99),
        (("witness", "sweeps"), [1]),
        (("witness", "more"), 1),
        (("more",), 1),
    ],
)
def test_every_tampered_field_is_refused(path: tuple[str, ...], value: object) -> None:
    """Each field in turn holds another value, another type, or should not be there."""
    claims = claimed(PROBLEM, SCHEDULE)
    assert claims["witness"]["source"] == "single-device"
    assert complaints(PROBLEM, SCHEDULE, claims) == ()
    place = claims
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert complaints(PROBLEM, SCHEDULE, claims) != ()


@pytest.mark.parametrize(
    "change",
    [
        {"visits": 0},
        {"visits": 1},
        {"visits": 5000},
        {"visits": -1},
        {"visits": 8.0},
        {"visits": None},
        {"target": 0},
        {"target": 1 << 58},
        {"target": "9"},
        {"source": "single-device"},
        {"device": 3},
    ],
)
def test_every_tampered_field_of_a_propagation_is_refused(change: dict[str, object]) -> None:
    """Devices together: another visit or target does not refute, other fields do not belong."""
    schedule = one_by_one(TOGETHER)
    claims = claimed(TOGETHER, schedule)
    assert claims["witness"]["source"] == "propagation"
    assert complaints(TOGETHER, schedule, claims) == ()
    claims["witness"] |= change
    assert complaints(TOGETHER, schedule, claims) != ()


@pytest.mark.parametrize("step", [1 << 40, 1 << 20, -1, 1, -(1 << 20)])
def test_a_target_that_is_off_is_refused(step: int) -> None:
    """A larger target is not refuted or not the stated bound, a smaller one is not the stated bound."""
    claims = claimed(PROBLEM, SCHEDULE)
    claims["witness"]["target"] += step << 12
    assert complaints(PROBLEM, SCHEDULE, claims) != ()


def test_targets_past_the_optimum_are_refused_with_their_bound() -> None:
    """A schedule is proven best; no witness of a larger bound survives, even with the bound to go with it."""
    problem = even(v_shape(2), 4, (1, 1, 1, 0), 4)
    optimum = 6 * 4 + max(6 * 2 - 1 - 3 * 4, 3 * 2 - 1 - 4)
    witness = lower_bound(problem, incumbent=optimum).witness
    assert rederived(problem, witness) == optimum or witness == {"source": "path"}
    for sweeps in range(1, 9):
        for device in range(2):
            rounded = {"source": "single-device", "device": device, "target": optimum << 40, "sweeps": sweeps}
            with pytest.raises(CertificateError):
                rederived(problem, rounded)


@pytest.mark.parametrize("field", ["makespan", "lower_bound", "gap", "claimed_bound", "witness"])
def test_a_missing_field_is_refused(field: str) -> None:
    """Nothing may be left out."""
    claims = claimed(PROBLEM, SCHEDULE)
    del claims[field]
    assert "expected" in complaints(PROBLEM, SCHEDULE, claims)[0]


def test_another_schedule_or_problem_is_refused() -> None:
    """Orders that break a limit, another makespan, and other times do not go with the certificate."""
    claims = claimed(PROBLEM, SCHEDULE)
    short = Schedule("short", tuple(order[:-1] for order in SCHEDULE.orders))
    assert complaints(PROBLEM, short, claims) != ()
    for other in (
        even(v_shape(4), 8, (9.261, 9.043, 4.67, 0.601), 5),
        even(v_shape(4), 8, (9.261, 9.043, 4.6685, 0.601), 7),
    ):
        assert complaints(other, SCHEDULE, claims) != ()


def test_a_claimed_bound_between_bound_and_makespan_enters_nothing() -> None:
    """What only a solver states is kept apart: the gap is that of the derived bound."""
    makespan = timetable(PROBLEM, SCHEDULE).makespan
    bound = lower_bound(PROBLEM, incumbent=makespan)
    claims = certificate(makespan, bound, claimed_bound=(bound.lower_bound + makespan) / 2)
    assert claims["gap"] == (makespan - bound.lower_bound) / makespan
    assert complaints(PROBLEM, SCHEDULE, claims) == ()
