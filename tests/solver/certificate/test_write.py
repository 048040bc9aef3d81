"""The figures of a certificate that follow from step time and bound alone."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.solver.certificate.figures import communication_gap
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, StoppedBy
from taut.solver.search.search import search
from tests.support.small import cluster, model, problem


@pytest.mark.parametrize(
    ("lower_bound", "gap"),
    [(10.0, 0.0), (9.5, 0.25), (8.0, 1.0), (6.28, 1.0), (0.0, 1.0), (-math.inf, None)],
)
def test_the_gap_of_the_communication_is_at_most_one(lower_bound: float, gap: float | None) -> None:
    """Every placement pays 8 of 10 s: (10 - bound) / 2 until the bound leaves no communication; none without one."""
    assert communication_gap(10.0, 8.0, lower_bound) == gap


@pytest.mark.parametrize("during", ["search", "bound"])
def test_ctrl_c_leaves_out_the_bound_without_a_margin(during: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressed in the search or while that bound is sought: the plan is written without it, and holds."""

    @contextmanager
    def requested() -> Iterator[Callable[[], bool]]:
        yield lambda: during == "bound"

    given = problem(cluster(2, 2), model(4))
    result = search(given, Limits())
    before = plan_document(given, result, Limits())
    monkeypatch.setattr("taut.solver.certificate.write.interrupt_requested", requested)
    if during == "search":
        result = replace(result, stopped_by=StoppedBy.INTERRUPT)
    made = json.loads(json.dumps(plan_document(given, result, Limits())))
    assert before["certificate"]["lower_bound_no_margin_s"] > 0
    assert made["certificate"]["lower_bound_no_margin_s"] is None
    assert verify_document(made).holds
    assert "without a memory margin" in str(Plan(before))
    assert "without a memory margin" not in str(Plan(made))


def stopped_early() -> tuple[PlanningProblem, Limits]:
    """A problem with a margin of its memory, and a limit that leaves most of its candidates with their closed forms."""
    given = problem(cluster(4, 2, rows=[[1.0, 2.0, 0.5, 1.0]] * 4), model(6))
    return replace(given, memory=given.memory.model_copy(update={"margin": 0.1})), Limits(work_limit=4, workers=1)


def test_a_bound_without_a_margin_that_is_larger_is_the_bound() -> None:
    """Beyond that of a search that was stopped early, it is what the gap is measured to, and is derived again."""
    given, limits = stopped_early()
    result = search(given, limits)
    made = json.loads(json.dumps(plan_document(given, result, limits)))
    certificate = made["certificate"]
    assert certificate["lower_bound_s"] == certificate["lower_bound_no_margin_s"] > result.lower_bound
    assert (
        certificate["gap"] == (certificate["objective_s"] - certificate["lower_bound_s"]) / certificate["objective_s"]
    )
    outcome = verify_document(made)
    assert (outcome.faults, outcome.lower_bound, outcome.claimed) == ((), certificate["lower_bound_s"], ())


def test_time_that_is_up_leaves_closed_forms() -> None:
    """The bound without a margin takes what the search left of the time limit: here nothing, so it needs no proofs."""
    given, limits = stopped_early()
    result = search(given, limits)
    made = json.loads(json.dumps(plan_document(given, result, replace(limits, time_limit=0.0))))
    certificate = made["certificate"]
    assert certificate["no_margin_proofs"] == []
    assert certificate["lower_bound_no_margin_s"] == min(result.relaxations.values())
    assert certificate["lower_bound_s"] == result.lower_bound
    assert verify_document(made).holds


def test_a_bound_without_its_proofs_is_claimed() -> None:
    """As in files of earlier versions: they are accepted, and the bound that was not derived is named."""
    given = problem(cluster(2, 2), model(4))
    made = json.loads(json.dumps(plan_document(given, search(given, Limits()), Limits())))
    del made["certificate"]["no_margin_proofs"]
    outcome = verify_document(made)
    assert (outcome.faults, outcome.claimed) == ((), ("lower_bound_no_margin_s",))
