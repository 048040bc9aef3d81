"""Damaged plans are refused, held to be wrong, or right after all; never is there a traceback, and ``verify`` ends."""

import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.read import read_json
from taut.data.spec import digest
from taut.errors import TautError
from taut.solver.certificate.document import problem_digest
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.fuzz.mutations import damaged, damaged_values
from tests.fuzz.test_fuzz import ended
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof
Document = dict[str, Any]


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan of few candidates on four devices with unequal links, so that it is checked within a tenth of a second."""
    rows = np.random.default_rng(5).uniform(0.002, 0.02, (2, 2)).tolist()
    table = costs(model(3), seconds={"block": 0.01}, optimizer=1e-9, activation_bytes=100_000)
    given = problem(cluster(2, 2, rows=rows, memory_gib=2e-3), model(3), table=table, global_batch=4)
    limits = Limits()
    made: Document = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    return made


def signed(values: Document) -> Document:
    """The document with digests that match what it holds, where it still has inputs that can be digested."""
    try:
        for section in values["inputs"].values():
            section["sha256"] = digest(section["spec"])
        certificate = values["certificate"]
        certificate["problem_sha256"] = problem_digest(values["inputs"], certificate)
    except (AttributeError, KeyError, TypeError):
        pass
    return values


def check(path: Path) -> str:
    """How ``verify`` takes a file: refused, faulty or holding, said in printable lines."""
    try:
        with ended(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = verify_document(read_json(path, "a plan"), str(path))
    except TautError as error:
        assert str(error).isprintable(), repr(error)
        return "refused"
    assert outcome.holds == (not outcome.faults)
    return "holds" if outcome.holds else "faulty"


def outcomes(plan: Document, folder: Path, seeds: range) -> dict[str, int]:
    """How often damaged plans are refused, found faulty, or hold."""
    found = {"refused": 0, "faulty": 0, "holds": 0}
    path = folder / "plan.json"
    for seed in seeds:
        rng = random.Random(seed)
        kind = rng.random()
        if kind < 0.2:
            path.write_bytes(damaged(json.dumps(plan, indent=1), rng))
        else:
            values = damaged_values(plan if kind < 0.5 else {**plan, "inputs": plan["inputs"]}, rng)
            path.write_text(json.dumps(signed(values) if kind > 0.4 else values), encoding="utf-8")
        try:
            found[check(path)] += 1
        except Exception as error:
            raise AssertionError(f"{seed}: {error!r}") from error
    return found


def test_damaged_plans_end_in_a_line(plan: Document, tmp_path: Path) -> None:
    """A few damaged plans; most are refused or found faulty."""
    found = outcomes(plan, tmp_path, range(40))
    assert found["refused"] + found["faulty"] > 20


@pytest.mark.long
def test_many_damaged_plans_end_in_a_line(plan: Document, tmp_path: Path) -> None:
    """Six hundred more; with those of the readers they are ten thousand."""
    found = outcomes(plan, tmp_path, range(40, 640))
    assert found["refused"] + found["faulty"] > 300
