"""What a plan says of its calibration's runs, and the best plan within them, accepted as written and refused else."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from taut.data.spec import digest
from taut.solver.certificate.document import problem_digest
from taut.solver.certificate.verify import Verification, verify_document
from taut.solver.certificate.write import plan_document, with_plainer
from taut.solver.result import Limits
from taut.solver.search.plainer import near_ties
from taut.solver.search.search import search
from tests.support.chunked import chunked
from tests.support.runs import seen, with_runs

pytestmark = pytest.mark.proof

Document = dict[str, Any]
RUNS: dict[str, Any] = {"vpp": [1, 2], "n_gpus": [8, 16], "mixing": ["scan"]}


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan of four chunks a device on few GPUs, where runs had two at most on more of them, and no attention."""
    given, limits = with_runs(chunked(17), **RUNS), Limits(workers=1)
    result, ties = near_ties(given, search(given, limits), limits)
    made: Document = json.loads(json.dumps(with_plainer(plan_document(given, result, limits), ties)))
    assert made["strategy"]["vpp"] == 4 and len(section(made)["bounds"]) > 0
    return made


def section(plan: Document) -> Document:
    """The best plan within runs."""
    found: Document = next(tie for tie in plan["plainer"] if tie["restriction"] == "seen")
    return found


def signed(changed: Document) -> Verification:
    """The outcome of a check of a document whose digests are those of what it states."""
    given, certificate = changed["inputs"], changed["certificate"]
    given["calibration"]["sha256"] = digest(given["calibration"]["spec"])
    certificate["problem_sha256"] = problem_digest(given, certificate)
    return verify_document(changed)


def test_what_lies_beyond_runs_holds_as_written(plan: Document) -> None:
    """Chunks, GPUs and attention are told, and the plan within runs has no more than two chunks."""
    assert plan["beyond"] == [
        {"field": "vpp", "value": 4, "seen": [1, 2]},
        {"field": "n_gpus", "value": plan["workload"]["num_devices"], "seen": [8, 16]},
        {"field": "mixing", "value": "attention", "seen": ["scan"]},
    ]
    assert section(plan)["strategy"]["vpp"] <= 2
    assert verify_document(plan).faults == () and signed(copy.deepcopy(plan)).faults == ()


def _silent(plan: Document) -> None:
    del plan["beyond"]


def _one_left_out(plan: Document) -> None:
    del plan["beyond"][0]


def _mixing_left_out(plan: Document) -> None:
    plan["beyond"].pop()


def _another_mixing(plan: Document) -> None:
    plan["beyond"][-1]["value"] = "delta-rule"


def _runs_with_attention(plan: Document) -> None:
    plan["inputs"]["calibration"]["spec"]["seen"]["mixing"].append("attention")


def _silent_on_mixing(plan: Document) -> None:
    del plan["inputs"]["calibration"]["spec"]["seen"]["mixing"]


def _told_twice(plan: Document) -> None:
    plan["beyond"].append(plan["beyond"][0])


def _another_value(plan: Document) -> None:
    plan["beyond"][0]["value"] = 3


def _other_runs(plan: Document) -> None:
    plan["beyond"][0]["seen"] = [1, 3]


def _of_no_field(plan: Document) -> None:
    plan["beyond"].append({"field": "dp", "value": 2, "seen": [1, 1]})


def _wider_runs(plan: Document) -> None:
    plan["inputs"]["calibration"]["spec"]["seen"]["vpp"] = [1, 4]


def _without_runs(plan: Document) -> None:
    del plan["inputs"]["calibration"]["spec"]["seen"]


@pytest.mark.parametrize(
    "change",
    [
        *[_silent, _one_left_out, _told_twice, _another_value, _other_runs, _of_no_field, _wider_runs, _without_runs],
        *[_mixing_left_out, _another_mixing, _runs_with_attention, _silent_on_mixing],
    ],
)
def test_a_false_word_on_runs_is_refused(plan: Document, change: Callable[[Document], None]) -> None:
    """Fields beyond runs are derived again from the calibration, value by value."""
    changed = copy.deepcopy(plan)
    change(changed)
    assert [fault for fault in signed(changed).faults if "beyond" in fault]


def test_a_plan_from_before_mixing_was_told_holds(plan: Document) -> None:
    """Neither its calibration nor its list says how layers mix tokens."""
    before = copy.deepcopy(plan)
    _silent_on_mixing(before)
    _mixing_left_out(before)
    assert signed(before).faults == ()


def test_a_plan_beyond_runs_is_none_within_them(plan: Document) -> None:
    """The plan itself does not stand for the best one within runs, nor does a bound of more chunks."""
    changed = copy.deepcopy(plan)
    section(changed).update({name: plan[name] for name in ("strategy", "placement")})
    section(changed)["step_time_s"] = plan["certificate"]["objective_s"]
    assert any("is not a candidate of the restriction" in fault for fault in verify_document(changed).faults)
    changed = copy.deepcopy(plan)
    section(changed)["bounds"][0]["strategy"]["vpp"] = 4
    assert any(fault.startswith("plainer.seen") for fault in verify_document(changed).faults)
    changed = copy.deepcopy(plan)
    section(changed)["lower_bound_s"] *= 1.001
    assert any(fault.startswith("plainer.seen") for fault in verify_document(changed).faults)


def test_without_runs_there_is_no_plan_within_them(plan: Document) -> None:
    """A calibration that is silent on its runs has no such restriction."""
    changed = copy.deepcopy(plan)
    del changed["inputs"]["calibration"]["spec"]["seen"], changed["beyond"]
    assert any("no calibration says what its runs have been" in fault for fault in signed(changed).faults)


def test_a_space_within_runs_is_that_of_the_calibration() -> None:
    """Its candidates are enumerated again; a space of other runs than the calibration's is refused."""
    given, limits = with_runs(chunked(17), vpp=[1, 2]), Limits(workers=1)
    assert given.calibration is not None
    space = given.space.model_copy(update={"seen": given.calibration.seen})
    given = replace(given, space=space)
    made = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    assert made["strategy"]["vpp"] <= 2 and "beyond" not in made
    assert verify_document(made).faults == ()
    made["certificate"]["space"]["seen"] = seen(vpp=[1, 4]).model_dump(mode="json")
    assert any("candidates are not the" in fault for fault in signed(copy.deepcopy(made)).faults)
    made["certificate"]["space"]["seen"] = seen(vpp=[1, 2], n_gpus=[1, 4]).model_dump(mode="json")
    assert any("space.seen is not what the calibration says" in fault for fault in signed(made).faults)
