"""Limits and interrupts in every phase of a search: they leave a plan, and a bound that holds and is derived again."""

import itertools
import json
import math
import signal

import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, SearchResult, Source, State
from taut.solver.search.search import search
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.small import cluster, model, problem

pytestmark = pytest.mark.proof

SEEDS = 5


def instance(kind: str, seed: int) -> PlanningProblem:
    """A random problem whose schedules are priced in closed form or by their order."""
    return random_orders(seed, ["zb-h1", "v-min", "interleaved-1f1b"]) if kind == "orders" else random_problem(seed)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which a second passes from one look to the next, with a look before every bound."""
    seconds = itertools.count()
    monkeypatch.setattr("taut.solver.branch_and_bound.stop.perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr("taut.solver.search.search.RELAXED_AT_ONCE", 1)


def check(given: PlanningProblem, result: SearchResult, limits: Limits, whole: SearchResult) -> None:
    """A stopped search beside the whole one."""
    assert result.lower_bound <= whole.lower_bound * (1 + 1e-9)
    assert all(math.isfinite(b.lower_bound) or b.state is State.INFEASIBLE for b in result.bounds)
    if whole.incumbent is None:
        assert result.incumbent is None
    elif result.incumbent is not None:
        assert whole.incumbent.seconds <= result.incumbent.seconds * (1 + 1e-9)
        assert result.gap is not None and 0 <= result.gap < 1
        made = json.loads(json.dumps(plan_document(given, result, limits)))
        assert verify_document(made).faults == ()


@pytest.mark.parametrize("kind", ["nodes", "orders"])
@pytest.mark.usefixtures("counted")
def test_a_time_limit_in_any_phase_leaves_a_bound_that_holds(kind: str) -> None:
    """From no look at the clock to many: the bound is at most that without a limit, the plan no better."""
    sources = set[Source]()
    for seed in range(SEEDS):
        whole = search(instance(kind, seed), Limits())
        for seconds in (0.0, 8.0, 40.0, 150.0):
            given, limits = instance(kind, seed), Limits(time_limit=seconds)
            result = search(given, limits)
            check(given, result, limits, whole)
            sources |= {bound.source for bound in result.bounds}
    assert {Source.BALANCE, Source.RELAXATION} < sources


def test_without_a_time_limit_every_candidate_is_relaxed() -> None:
    """Bound ``balance`` is for what a time limit leaves alone: work limits leave the same bounds in every run."""
    given = problem(cluster(2, 2), model(6), latency_model="step")
    for limits in (Limits(), Limits(work_limit=0), Limits(work_limit=3)):
        assert all(bound.source is not Source.BALANCE for bound in search(given, limits).bounds)


def test_what_the_limit_left_is_relaxed_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a single bound from the beginning the search finds the same plan with the same bound."""
    whole = search(problem(cluster(2, 2), model(6), latency_model="step"), Limits())
    monkeypatch.setattr("taut.solver.search.search.RELAXING", 0.0)
    result = search(problem(cluster(2, 2), model(6), latency_model="step"), Limits(time_limit=1e9))
    assert whole.incumbent is not None and result.incumbent is not None
    assert result.incumbent.seconds == whole.incumbent.seconds
    assert result.lower_bound == pytest.approx(whole.lower_bound, rel=1e-9)
    assert result.work == whole.work


@pytest.mark.parametrize("told", [1, 2, 5, 20, 60])
def test_an_interrupt_in_any_phase_leaves_a_plan(told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while bounds are computed, first plans tried, or candidates refined."""
    monkeypatch.setattr("taut.solver.search.search.RELAXED_AT_ONCE", 1)
    whole = search(problem(cluster(2, 2), model(6), latency_model="step"), Limits())
    given, calls = problem(cluster(2, 2), model(6), latency_model="step"), itertools.count(1)

    def interrupt(*_: object) -> None:
        if next(calls) == told:
            signal.raise_signal(signal.SIGINT)

    result = search(given, Limits(), interrupt)
    assert result.stopped_by == "interrupt" and result.incumbent is not None
    check(given, result, Limits(), whole)


def test_a_raised_bound_of_balance_is_refused() -> None:
    """A certificate states exactly what is derived again."""
    given, limits = problem(cluster(2, 2), model(6), latency_model="step"), Limits(time_limit=0.0)
    made = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    entry = next(entry for entry in made["certificate"]["candidates"] if entry["source"] == "balance")
    assert verify_document(made).faults == ()
    entry["lower_bound_s"] *= 1.01
    assert any("balance bound" in fault for fault in verify_document(made).faults)
