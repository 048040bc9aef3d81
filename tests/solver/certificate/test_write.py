"""
The figures of a certificate that follow from step time and bound alone.

What the memory margin costs at most: a bound as if there were none.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.solver.certificate.document import communication_gap
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import margin_free_bound, plan_document
from taut.solver.ladder.checks import Proof, derived_margin_free
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import Limits, StoppedBy
from taut.solver.search.search import search
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all
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


pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9
ORDERS = ["zb-h1", "zb-v", "v-min", "interleaved-1f1b"]


def with_margin(given: PlanningProblem, margin: float) -> PlanningProblem:
    """The problem with another share of the memory kept free."""
    return replace(given, memory=given.memory.model_copy(update={"margin": margin}))


def instance(kind: str, seed: int) -> PlanningProblem:
    """A random problem: links by node, or measured by device, or schedules that are priced by their order."""
    return random_orders(seed, ORDERS) if kind == "orders" else random_problem(seed, measured=kind == "measured")


@pytest.mark.parametrize("kind", ["nodes", "measured", "orders"])
def test_margin_does_not_matter(kind: str) -> None:
    """With three tenths of the memory kept free the bound is that of the problem without a margin."""
    for seed in range(12):
        given = instance(kind, seed)
        free = margin_free_bound(Ladder(with_margin(given, 0.0)))
        assert margin_free_bound(Ladder(with_margin(given, 0.3))) == free, seed


def test_no_plan_without_a_margin_is_faster() -> None:
    """The bound is at most the enumerated optimum where the margin is dropped."""
    for seed in range(12):
        given = random_problem(seed)
        optimum = enumerate_all(with_margin(given, 0.0)).seconds
        assert margin_free_bound(Ladder(given)).seconds <= optimum * TOLERANCE, seed


def after(most: float) -> Callable[[], bool]:
    """What says stop from the given question on."""
    asked = itertools.count()
    return lambda: next(asked) >= most


@pytest.mark.parametrize("kind", ["nodes", "measured", "orders"])
def test_proofs_derive_the_bound_again(kind: str) -> None:
    """What is written down, read back, gives the same seconds, however little time the bound had."""
    for seed in range(12):
        given = instance(kind, seed)
        for most in (0, 1, np.inf):
            found = margin_free_bound(Ladder(given), after(most))
            proofs = [Proof(**entry) for entry in json.loads(json.dumps([asdict(proof) for proof in found.proofs]))]
            derived = derived_margin_free(Ladder(given), given.candidates, proofs)
            assert derived == pytest.approx(found.seconds, rel=1e-12), (seed, most)
            assert sum(proof.source != "balance" for proof in found.proofs) <= most


def test_a_bound_that_was_stopped_is_weaker() -> None:
    """From the start on closed forms alone count, those that are known, and the bound is that of all of them."""
    given = random_problem(3)
    ladder = Ladder(given)
    stopped = margin_free_bound(ladder, lambda: True)
    assert stopped.seconds == min(map(ladder.balance, given.candidates))
    assert {proof.source for proof in stopped.proofs} == {"balance"}
    ladder.relax(given.candidates)
    relaxed = margin_free_bound(ladder, lambda: True)
    assert relaxed.seconds == min(map(ladder.relaxation, given.candidates)) < margin_free_bound(ladder).seconds
    assert stopped.seconds < relaxed.seconds and relaxed.proofs == ()


def test_a_proof_of_no_candidate_shows_nothing() -> None:
    """A place beyond the last candidate, or an unknown source, proves no bound."""
    given = random_problem(3)
    for proof in (Proof(candidate=len(given.candidates), source="partition"), Proof(candidate=0, source="best")):
        assert derived_margin_free(Ladder(given), given.candidates, [proof]) == -np.inf
