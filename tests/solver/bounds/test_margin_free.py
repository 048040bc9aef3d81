"""What the memory margin costs at most: a bound as if there were none."""

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.checks import Proof, derived_margin_free
from taut.solver.bounds.ladder import Ladder
from taut.solver.bounds.margin_free import margin_free_bound
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all

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
            derived = derived_margin_free(Ladder(given), proofs)
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
        assert derived_margin_free(Ladder(given), [proof]) == -np.inf
