"""The figures of a certificate that follow from step time and bound alone."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from taut.solver.certificate.figures import communication_gap
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, StoppedBy
from taut.solver.search.search import search
from taut.typed_plan import Plan
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
