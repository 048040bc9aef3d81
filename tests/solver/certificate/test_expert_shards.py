"""A certificate of sharded experts: it holds, and a corrupted value in it is refused."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

import taut
from taut.errors import TautError
from taut.solver.certificate.verify import verify_document
from tests.support.launches import model_with_experts, small_cluster

Document = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Document:
    """A plan of torchtitan's with expert ranks over a node and weights sharded, on two nodes of four GPUs."""
    fix, memory = {"ep": 4, "pp": 1}, {"precision": "bf16"}
    plan = taut.plan(
        model_with_experts(8),
        small_cluster(),
        global_batch=16,
        stack="torchtitan",
        fix=fix,
        memory_model=memory,
        workers=1,
    )
    assert plan.strategy.zero >= 2 and plan.strategy.etp == 1
    return plan.document


def holds(document: Document) -> bool:
    """Whether the check accepts a document."""
    try:
        return verify_document(document).holds
    except TautError:
        return False


def _first(document: Document) -> Document:
    """The first candidate that has expert ranks and a bound."""
    entries = document["certificate"]["candidates"]
    return next(each for each in entries if each["strategy"]["ep"] > 1 and each["lower_bound_s"])


def _above(document: Document) -> None:
    entry = _first(document)
    entry["lower_bound_s"] = 2 * entry["lower_bound_s"] + document["certificate"]["objective_s"]


CORRUPTED: dict[str, Callable[[Document], Any]] = {
    "fewer ZeRO stages": lambda given: given["certificate"]["space"].update(expert_zero=[3]),
    "shared experts": lambda given: given["certificate"]["space"].pop("expert_tensor"),
    "all ZeRO stages": lambda given: given["certificate"]["space"].pop("expert_zero"),
    "a candidate less": lambda given: given["certificate"]["candidates"].remove(_first(given)),
    "a bound too high": _above,
    "memory of whole experts": lambda given: given["predicted"].update(
        memory_bytes=[2 * each for each in given["predicted"]["memory_bytes"]]
    ),
    "a step too short": lambda given: given["certificate"].update(
        objective_s=0.9 * given["certificate"]["objective_s"]
    ),
    "another stage of ZeRO": lambda given: given["strategy"].update(zero=5 - given["strategy"]["zero"]),
}


def test_the_certificate_holds(document: Document) -> None:
    """As the search wrote it."""
    assert holds(document)


@pytest.mark.parametrize("corrupt", CORRUPTED.values(), ids=CORRUPTED)
def test_a_corrupted_value_is_refused(document: Document, corrupt: Callable[[Document], Any]) -> None:
    """One value of space, candidates, prices or strategy is changed."""
    changed = copy.deepcopy(document)
    corrupt(changed)
    assert not holds(changed)
