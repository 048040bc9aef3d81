"""Plainer plans of a document are accepted as written and refused after every corruption."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.errors import DataError
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document, with_plainer
from taut.solver.result import Limits, NearTie, State
from taut.solver.search.plainer import near_ties
from taut.solver.search.search import as_result, search
from tests.support.chunked import chunked

pytestmark = pytest.mark.proof

Document = dict[str, Any]


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan of four chunks a device with three near-ties, which have bounds of their own."""
    given, limits = chunked(17), Limits(workers=1)
    result, ties = near_ties(given, search(given, limits), limits)
    made: Document = json.loads(json.dumps(with_plainer(plan_document(given, result, limits), ties)))
    assert {tie["restriction"] for tie in made["plainer"]} == {"at-most-2-chunks", "even-stages", "no-interleaving"}
    assert all(len(tie["bounds"]) > 0 for tie in made["plainer"])
    return made


def section(plan: Document, name: str = "even-stages") -> Document:
    """One near-tie of a document."""
    found: Document = next(tie for tie in plan["plainer"] if tie["restriction"] == name)
    return found


def test_near_ties_hold_as_written(plan: Document) -> None:
    """They hold with the plan, bounds in exact arithmetic, and a document without them holds as before."""
    outcome = verify_document(plan)
    assert outcome.faults == () and all(each.exact for each in outcome.plainer.values())
    assert outcome.plainer.keys() == {tie["restriction"] for tie in plan["plainer"]}
    alone = {name: value for name, value in plan.items() if name != "plainer"}
    assert verify_document(alone).faults == ()


def _scale(name: str, factor: float) -> Callable[[Document], None]:
    def change(tie: Document) -> None:
        tie[name] *= factor

    return change


def _scale_both(tie: Document) -> None:
    tie["step_time_s"] *= 0.999
    tie["lower_bound_s"] = min(tie["lower_bound_s"], tie["step_time_s"])


def _own_bound(tie: Document) -> Document:
    """The largest finite bound of a near-tie."""
    found: Document = max(
        (entry for entry in tie["bounds"] if entry["lower_bound_s"] is not None),
        key=lambda entry: entry["lower_bound_s"],
    )
    return found


def _raise_bound(tie: Document) -> None:
    _own_bound(tie)["lower_bound_s"] *= 1.01


def _raise_all(tie: Document) -> None:
    for entry in tie["bounds"]:
        entry["lower_bound_s"] = entry["lower_bound_s"] and entry["lower_bound_s"] * 1.01
    tie["lower_bound_s"] *= 1.001


def _no_proof(tie: Document) -> None:
    for entry in tie["bounds"]:
        entry["source"], entry["witness"] = "relaxation", {}


def _other_witness(tie: Document) -> None:
    for entry in tie["bounds"]:
        entry["witness"] = {"unknown": 1}


def _nothing_proven(tie: Document) -> None:
    tie["bounds"] = []


def _bound_left_out(tie: Document) -> None:
    tie["bounds"].remove(min(tie["bounds"], key=lambda entry: entry["lower_bound_s"] or np.inf))


def _bound_twice(tie: Document) -> None:
    tie["bounds"].append(copy.deepcopy(tie["bounds"][0]))


def _bound_of_another(tie: Document) -> None:
    tie["bounds"][0]["strategy"]["vpp"] = 3


def _infeasible(tie: Document) -> None:
    entry = tie["bounds"][0]
    entry["lower_bound_s"], entry["source"], entry["witness"] = None, "memory", {"missing_kib": 1, "stage": 0}


def _uneven(tie: Document) -> None:
    stages = tie["strategy"]["stages"]
    stages[1][1] += 1
    stages[2][0] += 1


def _devices_twice(tie: Document) -> None:
    tie["placement"]["devices"][0] = tie["placement"]["devices"][1]


def _another_restriction(name: str) -> Callable[[Document], None]:
    def change(tie: Document) -> None:
        tie["restriction"] = name

    return change


@pytest.mark.parametrize(
    "change",
    [
        _scale("step_time_s", 0.999),
        _scale("step_time_s", 1.001),
        _scale("lower_bound_s", 1.001),
        _scale("lower_bound_s", 0.999),
        _scale_both,
        _raise_bound,
        _raise_all,
        _no_proof,
        _other_witness,
        _nothing_proven,
        _bound_left_out,
        _bound_twice,
        _bound_of_another,
        _infeasible,
        _uneven,
        _devices_twice,
        _another_restriction("no-interleaving"),
        _another_restriction("at-most-1-chunks"),
        _another_restriction("plain"),
    ],
    ids=lambda change: getattr(change, "__name__", "").strip("_"),
)
def test_a_false_near_tie_is_refused(plan: Document, change: Callable[[Document], None]) -> None:
    """Seconds, bounds, witnesses, candidates, plan and restriction are all derived again."""
    changed = copy.deepcopy(plan)
    change(section(changed))
    outcome = verify_document(changed)
    assert any(fault.startswith("plainer.") for fault in outcome.faults)


def test_a_plan_that_breaks_its_restriction_is_refused(plan: Document) -> None:
    """The plan itself is no plan of even stages, nor one of fewer chunks."""
    for name in ("even-stages", "at-most-2-chunks"):
        changed = copy.deepcopy(plan)
        tie = section(changed, name)
        tie |= {"strategy": plan["strategy"], "placement": plan["placement"]}
        tie["step_time_s"] = plan["certificate"]["objective_s"]
        assert any(fault.startswith(f"plainer.{name}") for fault in verify_document(changed).faults)


def test_a_near_tie_faster_than_the_plan_is_refused() -> None:
    """Where a plainer plan is faster the plan is not the best that was found."""
    given, limits = chunked(17), Limits(workers=1)
    result, ties = near_ties(given, search(given, limits), limits)
    slow = ties[-1].incumbent
    below = [replace(b, state=State.OPEN) if b.lower_bound < slow.seconds else b for b in result.bounds]
    slower = replace(result, incumbent=slow, bounds=below)
    made = json.loads(json.dumps(plan_document(given, slower, limits)))
    assert verify_document(made).faults == ()
    outcome = verify_document(json.loads(json.dumps(with_plainer(made, ties[:1]))))
    assert [fault for fault in outcome.faults if "is faster than the plan" in fault]


def test_the_fastest_plan_is_listed_beside_a_plainer_one() -> None:
    """As written it holds; with another time or bound, or by another name, it does not."""
    given, limits = chunked(17), Limits(workers=1)
    found = search(given, limits)
    _, ties = near_ties(given, found, limits)
    assert found.incumbent is not None
    least = min(found.incumbent.seconds, *(float(bound.lower_bound) for bound in found.bounds))
    fastest = NearTie(
        restriction="fastest", incumbent=found.incumbent, lower_bound=least, bounds=[], stopped_by=found.stopped_by
    )
    plain = as_result(found, ties[0].incumbent, found.lower_bound)
    made = json.loads(json.dumps(with_plainer(plan_document(given, plain, limits), [fastest])))
    assert verify_document(made).faults == ()
    for change in (_scale("step_time_s", 0.999), _scale("lower_bound_s", 1.001), _another_restriction("even-stages")):
        changed = copy.deepcopy(made)
        change(section(changed, "fastest"))
        assert any(fault.startswith("plainer.") for fault in verify_document(changed).faults)


def test_a_malformed_near_tie_is_no_document(plan: Document) -> None:
    """A section without a bound is refused by name."""
    changed = copy.deepcopy(plan)
    del section(changed)["lower_bound_s"]
    with pytest.raises(DataError, match="plainer"):
        verify_document(changed)
