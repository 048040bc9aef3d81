"""Schedules as JSON: what is written is read back, and what is wrong is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.errors import DataError
from taut.schedules.found import load_schedule
from tests.support.pipelines import SPLIT, WHOLE, Orders, found


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "s.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_document_has_the_figures_of_the_orders() -> None:
    """1F1B on two devices: see ``pipelines.WHOLE`` for 10; a device works 6 of it, and device 0 holds both."""
    document = found(bound=8.0).document
    assert document["format"] == "taut-schedule/1"
    assert document["kind"] == "1f1b"
    assert document["makespan"] == 10
    assert document["span"] == 10
    assert document["bubble"] == pytest.approx(0.4)
    assert document["peak_memory"] == 1
    assert document["peak_per_device"] == [1, 0.5]
    assert (document["lower_bound"], document["gap"], document["source"]) == (8.0, pytest.approx(0.2), "work")
    assert document["status"] == "feasible"
    assert document["orders"][1] == [["F", 1, 0], ["B", 1, 0], ["F", 1, 1], ["B", 1, 1]]
    assert document["problem"]["memory_limit"] == [None, None]
    json.dumps(document, allow_nan=False)


def test_a_bound_that_is_met_is_optimal() -> None:
    """Status and gap follow from makespan and bound; without a bound there is no gap."""
    assert (found(bound=10.0).status, found(bound=10.0).gap) == ("optimal", 0.0)
    assert (found(bound=None).status, found(bound=None).gap) == ("feasible", None)


@pytest.mark.parametrize("orders", [WHOLE, SPLIT])
@pytest.mark.parametrize("limit", [float("inf"), 2.0])
def test_what_is_written_is_read(orders: Orders, limit: float, tmp_path: Path) -> None:
    """Pipeline, kind and orders survive, and with them every figure."""
    document = found(orders, limit=limit).document
    placed, schedule = load_schedule(written(tmp_path, document))
    assert schedule.kind == "1f1b"
    for ours, theirs in zip(schedule.orders, found(orders).schedule.orders, strict=True):
        assert np.array_equal(ours, theirs)
    assert (placed.placement, placed.reference_memory) == ("sequential", 2.0)
    assert placed.problem.memory_limit.tolist() == [limit, limit]
    assert placed.problem.transfer.tolist() == [0.5]


def change(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    """Set one entry of a document."""

    def apply(document: dict[str, Any]) -> None:
        *way, last = path
        place: Any = document
        for step in way:
            place = place[step]
        place[last] = to

    return apply


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    """Remove a field."""
    return lambda document: document.pop(name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop("format"), "format: is None, expected 'taut-schedule/1'"),
        (change("format", to="taut-plan/1"), "format: is 'taut-plan/1', expected 'taut-schedule/1'"),
        (drop("orders"), "orders: missing"),
        (drop("problem"), "problem: missing"),
        (change("kind", to="<script>"), "kind: is '<script>'"),
        (change("orders", to={}), "orders: is {}, expected a list"),
        (change("orders", 0, 1, to=["G", 0, 1]), "orders.0.1.0: is 'G'"),
        (change("orders", 0, 1, to=["F", 0, -1]), "orders.0.1.2: is -1"),
        (change("orders", 0, 1, to=["F", 0]), "orders.0.1.2: missing"),
        (change("orders", 0, 1, to=["F", 0, 0]), "runs 2 times"),
        (change("orders", 0, 1, to=["F", 7, 0]), "does not exist"),
        (change("orders", to=[]), "orders of 0 devices, expected 2"),
        (change("orders", 0, to=[]), "runs 0 times"),
        (change("problem", "forward", to=[1, -1]), "problem.forward.1: is -1"),
        (change("problem", "forward", to=[1]), "problem.forward: shape (1,), expected (2,)"),
        (change("problem", "device", to=[0, 3]), "problem.device: chunks are on devices [0, 3]"),
        (change("problem", "kept_for_weight", to=[1, 2]), "problem.kept_for_weight: 2 of chunk 1"),
        (change("problem", "memory_limit", to=[1, 1]), "device 0 holds 2, more than its limit 1"),
        (change("problem", "micro_batches", to=0), "problem.micro_batches: is 0"),
        (
            change("problem", "micro_batches", to=10**9),
            "problem: micro_batches: is 1000000000, 6000000000 passes",
        ),
        (change("problem", "reference_memory", to=0), "problem.reference_memory: is 0"),
        (change("makespan", to=9.5), "makespan: is 9.5, but its orders take 10"),
    ],
)
def test_damaged_documents_are_refused(damage: Callable[[dict[str, Any]], None], words: str, tmp_path: Path) -> None:
    """Whatever entry is wrong, the message names the file and says in one line what was expected."""
    document = found().document
    damage(document)
    path = written(tmp_path, document)
    with pytest.raises(DataError) as refusal:
        load_schedule(path)
    message = str(refusal.value)
    assert message.startswith(str(path))
    assert words in message
    assert "\n" not in message


def test_orders_that_deadlock_are_refused(tmp_path: Path) -> None:
    """Device 0 waits for a gradient before the forward that it needs."""
    document = found(SPLIT).document
    first = document["orders"][0]
    document["orders"][0] = [first[2], first[0], first[1], *first[3:]]
    with pytest.raises(DataError, match="waits for ever"):
        load_schedule(written(tmp_path, document))


def test_files_that_are_no_json_are_refused(tmp_path: Path) -> None:
    """The line of the first error is named."""
    path = tmp_path / "s.json"
    path.write_text('{"format":\n oops', encoding="utf-8")
    with pytest.raises(DataError, match="line 2"):
        load_schedule(path)
