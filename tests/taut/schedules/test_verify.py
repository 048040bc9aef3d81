"""Schedule documents are checked without the search: what holds passes, whatever is changed is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import run_command
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof

WORDS = ("schedule", "--stages", "4", "--micro-batches", "8", "--backward", "1.2", "--weight", ".8", "--comm", ".05")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """V-Half at unequal times, with its bound, as the command writes it."""
    path = tmp_path_factory.mktemp("v-half") / "s.json"
    run_command(["taut", *WORDS, "--forward", "1", "--kind", "v-half", "--quiet", "--out", str(path)])
    return path.read_text(encoding="utf-8")


@pytest.fixture
def made(written: str, tmp_path: Path) -> Path:
    """A file of its own of that schedule, to change."""
    path = tmp_path / "s.json"
    path.write_text(written, encoding="utf-8")
    return path


def test_what_was_written_holds(made: Path, run: Run) -> None:
    """Makespan and bound are derived again, and the gap between them is that of the document."""
    outcome = run("verify", made, "--json")
    document = json.loads(made.read_text(encoding="utf-8"))
    assert outcome.code == 0
    assert json.loads(outcome.out)["verified_gap"] == pytest.approx(document["gap"], abs=1e-9)
    words = run("verify", made).out
    assert "holds; makespan" in words and "exact: the derived lower bound holds in exact arithmetic" in words


@pytest.mark.parametrize(
    ("way", "change"),
    [
        (("makespan",), 0.999),
        (("lower_bound",), 1.001),
        (("certificate", "makespan"), 0.999),
        (("certificate", "lower_bound"), 1.001),
        (("certificate", "gap"), 0.5),
        (("certificate", "witness"), None),
        (("certificate",), None),
        (("problem", "forward", 0), 1.5),
        (("problem", "memory_limit", 0), 0.5),
        (("problem", "transfer", 0), 3.0),
    ],
)
def test_changed_documents_are_refused(way: tuple[Any, ...], change: float | None, made: Path, run: Run) -> None:
    """A figure made better, a claim without what proves it, or another pipeline: exit code 1."""
    document = json.loads(made.read_text(encoding="utf-8"))
    *steps, last = way
    place = document
    for step in steps:
        place = place[step]
    place[last] = {} if change is None else place[last] * change
    made.write_text(json.dumps(document), encoding="utf-8")
    refused(run("verify", made), "does not hold", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"gap": 0.5, "status": "feasible"},
        {"gap": 0.5},
        {"status": "feasible"},
        {"bubble": 0.0},
        {"peak_memory": 0.01},
        {"peak_per_device": [0.01] * 4},
        {"peak_per_device": []},
        {"span": 1.0},
        {"bounds": {"v": 1e9}},
        {"bounds": {}, "gap": None},
        {"lower_bound": None},
        {"makespan": None},
    ],
)
def test_every_figure_of_a_document_is_checked(change: dict[str, Any], made: Path, run: Run) -> None:
    """What the orders do not have, or what does not follow from makespan and bound: exit code 1."""
    document = json.loads(made.read_text(encoding="utf-8"))
    assert document["status"] == "optimal"
    made.write_text(json.dumps(document | change), encoding="utf-8")
    refused(run("verify", made), "does not hold", 1)


@pytest.mark.parametrize(
    "name",
    ["makespan", "span", "bubble", "peak_memory", "peak_per_device", "status", "lower_bound", "gap", "bounds"],
)
def test_no_figure_may_be_taken_out(name: str, made: Path, run: Run) -> None:
    """Without a figure, or with an empty list of bounds, nobody would see what was not derived."""
    document = json.loads(made.read_text(encoding="utf-8"))
    del document[name]
    made.write_text(json.dumps(document), encoding="utf-8")
    refused(run("verify", made), f"{name}: is missing", 1)
    made.write_text(json.dumps(document | {name: {}} if name == "bounds" else document), encoding="utf-8")
    refused(run("verify", made), "does not hold", 1)


def test_bounds_of_other_placements_are_named_and_left_out(made: Path, run: Run) -> None:
    """They have no witness: the verified gap is that of the certificate's placement, in words."""
    document = json.loads(made.read_text(encoding="utf-8"))
    document["bounds"]["sequential"] = document["lower_bound"] = document["certificate"]["lower_bound"] / 2
    document["gap"], document["status"] = 1 - document["lower_bound"] / document["makespan"], "feasible"
    made.write_text(json.dumps(document), encoding="utf-8")
    first, exact, second = run("verify", made).out.splitlines()
    assert first.endswith("of every order on the placement v")
    assert exact.endswith("in whole units of time")
    assert second.endswith("its bounds of other placements (sequential) have no witness and were not derived here")
    outcome = json.loads(run("verify", made, "--json").out)
    assert outcome["unwitnessed"] == ["sequential"]
    assert outcome["verified_gap"] < document["gap"]


def test_changed_orders_are_refused(made: Path, run: Run) -> None:
    """Two passes of a device that change places change the makespan, the memory or the order of a micro-batch."""
    document = json.loads(made.read_text(encoding="utf-8"))
    order = document["orders"][0]
    order[0], order[-1] = order[-1], order[0]
    made.write_text(json.dumps(document), encoding="utf-8")
    refused(run("verify", made), "does not hold", 1)


def test_a_bound_on_a_solvers_word_is_said_to_be_one(made: Path, run: Run) -> None:
    """A larger bound that CP-SAT states holds, in words, as its claim beside the bound that was derived."""
    document = json.loads(made.read_text(encoding="utf-8"))
    derived = document["certificate"]["lower_bound"]
    claimed = document["certificate"]["claimed_bound"] = document["lower_bound"] = (derived + document["makespan"]) / 2
    document["bounds"] = {document["problem"]["placement"]: claimed}
    document["gap"] = 1 - claimed / document["makespan"]
    document["status"] = "optimal" if document["gap"] <= 1e-6 else "feasible"
    made.write_text(json.dumps(document), encoding="utf-8")
    first, _, second = run("verify", made).out.splitlines()
    assert f"derived lower bound {derived:.6g}" in first
    assert second.endswith(f"its bound {claimed:.6g} is CP-SAT's claim and was not derived here, {derived:.6g} was")
    outcome = json.loads(run("verify", made, "--json").out)
    assert outcome["claimed_bound"] == claimed
    assert outcome["verified_gap"] == pytest.approx(1 - derived / document["makespan"])


def test_what_is_derived_in_full_names_no_claim(made: Path, run: Run) -> None:
    """Without a claimed bound no line names one."""
    assert len(run("verify", made).out.splitlines()) == 2
    assert json.loads(run("verify", made, "--json").out)["claimed_bound"] is None
