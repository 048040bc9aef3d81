"""The bound over numbers of nodes in a plan's document, derived again, and what is refused of it."""

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import taut
from taut.solver.certificate.verify import Verification, verify_document
from tests.taut.test_provisioning import CLUSTER, GIVEN, MODEL, STEPS

pytestmark = pytest.mark.proof

Change = Callable[[dict[str, Any]], object]


@cache
def made(objective: str) -> taut.Provision:
    """The best of 1 to 3 nodes: by cost one, by time three."""
    return taut.provision(MODEL, CLUSTER, objective=objective, steps=STEPS, price=2.0, **GIVEN)


def checked(objective: str, change: Change = bool) -> Verification:
    """The document under ``verify``, after a change of its section."""
    document = json.loads(json.dumps(made(objective).plan.document))
    change(document["node_counts"])
    return verify_document(document)


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_the_bound_over_nodes_is_derived_again(objective: str) -> None:
    """Value and bound are those of the choice; every number of nodes takes part."""
    found, outcome = made(objective), checked(objective)
    assert outcome.holds, outcome.faults
    assert outcome.over_nodes is not None
    assert outcome.over_nodes.value == pytest.approx(found.value)
    assert outcome.over_nodes.lower_bound == pytest.approx(found.lower_bound)
    assert outcome.over_nodes.counts == 3


def test_numbers_of_nodes_without_a_candidate_are_enumerated() -> None:
    """Eight stages on three nodes leave replicas that divide no batch of 16: a null bound holds, any other does not."""
    fix = {"tp": 1, "pp": 8, "micro_batch": 1}
    found = taut.provision(MODEL, CLUSTER, objective="cost", steps=STEPS, price=2.0, global_batch=16, fix=fix)
    document = json.loads(json.dumps(found.plan.document))
    assert [count["lower_bound_s"] is None for count in document["node_counts"]["counts"]] == [False, False, True]
    assert verify_document(document).holds
    document["node_counts"]["counts"][1] = {"nodes": 2, "lower_bound_s": None}
    assert "2 nodes: has" in verify_document(document).faults[0]


def test_what_is_not_searched_counts_as_nothing() -> None:
    """Fewest GPUs: once one node is in time no other is searched, and a bound that is claimed for it is refused."""
    found = taut.provision(MODEL, CLUSTER, objective="gpus", steps=STEPS, deadline_days=1000.0, **GIVEN)
    document = json.loads(json.dumps(found.plan.document))
    assert [count["nodes"] for count in document["node_counts"]["counts"] if count["lower_bound_s"] == 0] == [2, 3]
    assert verify_document(document).holds
    document["node_counts"]["counts"][2]["lower_bound_s"] = 1.0
    assert "3 nodes: bound is 1.0, derived 0.0" in verify_document(document).faults[0]


def longer(section: dict[str, Any]) -> None:
    """Raise a bound of another number of nodes."""
    section["counts"][1]["lower_bound_s"] *= 1.01


def fewer(section: dict[str, Any]) -> None:
    """Leave a candidate out."""
    section["counts"][1]["candidates"].pop()


def other_model(section: dict[str, Any]) -> None:
    """Put another model in, with its digest."""
    count = section["counts"][1]
    values = dict(section["inputs"][count["inputs"]["model"]])
    spec = taut.load_model("gpt-3.1b")
    section["inputs"][spec.digest()] = {**values, "sha256": spec.digest(), "spec": spec.model_dump(mode="json")}
    count["inputs"]["model"] = spec.digest()


def other_nodes(section: dict[str, Any]) -> None:
    """Pass one number of nodes off as another."""
    section["counts"][1]["inputs"] = section["counts"][2]["inputs"]


def narrower(section: dict[str, Any]) -> None:
    """Leave sequence parallelism out of a space."""
    section["counts"][1]["space"]["max_tp"] = 1


def unread(section: dict[str, Any]) -> None:
    """Change an input without its digest."""
    next(iter(section["inputs"].values()))["spec"]["name"] = "another"


def endless(section: dict[str, Any]) -> None:
    """An input with a number that has no digest."""
    next(iter(section["inputs"].values()))["spec"]["name"] = math.inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (longer, "2 nodes: bound is"),
        (fewer, "candidates are not the"),
        (other_model, "2 nodes: model is not the plan's"),
        (other_nodes, "2 nodes: cluster is not the plan's"),
        (narrower, "2 nodes: space is not the plan's"),
        (unread, "does not have the stated sha256"),
        (endless, "does not have the stated sha256"),
        (lambda section: section["counts"].pop(1), "expected 1, 2, 3, ... nodes"),
        (lambda section: section.update(value=1.0), "node_counts.value is 1.0, derived"),
        (lambda section: section.update(lower_bound=1e9), "node_counts.lower_bound is 1000000000.0, derived"),
        (lambda section: section.update(gap=0.5), "node_counts.gap is 0.5, derived"),
        (lambda section: section.update(price=None), "expected a price with a cost"),
        (lambda section: section.update(objective="cheap"), "node_counts: objective"),
    ],
)
def test_each_corrupted_field_is_refused(change: Change, words: str) -> None:
    """With a fault that names it."""
    outcome = checked("cost", change)
    assert not outcome.holds
    assert any(words in fault for fault in outcome.faults), outcome.faults
