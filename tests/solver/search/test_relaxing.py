"""Candidates that a simple plan leaves at their first bound: the search is as good, and such bounds decide."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import CandidateBound, Limits, SearchResult, Source, State
from taut.solver.search.refinement import Refining
from taut.solver.search.search import search
from taut.solver.search.standing import Best
from tests.solver.search.test_plainer import interleaved

pytestmark = pytest.mark.proof

EXACT, SEEDS = Limits(workers=1, gap=0.0), range(24)


def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PlanningProblem, SearchResult, SearchResult]]:
    """Random problems, searched with all candidates relaxed at once, and with simple plans after two of them."""
    for seed in SEEDS:
        given = interleaved(seed)
        whole = search(given, EXACT)
        with monkeypatch.context() as changed:
            changed.setattr("taut.solver.search.search.FIRST_RELAXED", 2)
            yield given, whole, search(given, EXACT)


def test_what_simple_plans_beat_is_not_relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, status and global bound are those of a search that relaxes all, and first bounds refute some candidates."""
    left = 0
    for _, whole, lazy in found(monkeypatch):
        assert lazy.status == whole.status
        if whole.incumbent is None or lazy.incumbent is None:
            assert lazy.incumbent is whole.incumbent
            continue
        assert lazy.incumbent.seconds == pytest.approx(whole.incumbent.seconds, rel=1e-9)
        assert lazy.lower_bound == pytest.approx(whole.lower_bound, rel=1e-9)
        refuted = [bound for bound in lazy.bounds if bound.source is Source.BALANCE and bound.state is State.PRUNED]
        assert all(bound.lower_bound >= lazy.incumbent.seconds for bound in refuted)
        left += len(refuted)
    assert left > 0


def test_a_first_bound_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the bound leaves the best plan out of some search, so the check above binds."""
    balance = Ladder.balance
    wrong = 0
    for given, whole, _ in found(monkeypatch):
        with monkeypatch.context() as changed:
            changed.setattr("taut.solver.search.search.FIRST_RELAXED", 2)
            changed.setattr(Ladder, "balance", lambda self, candidate: 2 * balance(self, candidate))
            planted = search(given, EXACT)
        if whole.incumbent is not None and planted.incumbent is not None:
            wrong += planted.incumbent.seconds > whole.incumbent.seconds * (1 + 1e-6)
    assert wrong > 0


def test_what_a_refinement_states_is_derived_beside_the_relaxation() -> None:
    """A plan that beats the relaxation refutes an order at its own seconds, which are no bound that the checker has."""
    checked = 0
    for given in map(interleaved, SEEDS):
        ladder, plan = Ladder(given), search(given, EXACT).incumbent
        for candidate in (each for each in given.candidates if each.is_order_priced):
            if plan is None or not math.isfinite(relaxed := ladder.relaxation(candidate)):
                continue
            refining = Refining(given, EXACT, Best(given, replace(plan, seconds=0.9 * relaxed)), lambda: False)
            refining.standing(candidate).counted = True
            bound = CandidateBound(candidate=candidate, lower_bound=0.0, source=Source.BALANCE)
            refining.refine(bound)
            derived = derived_bound(ladder, candidate, bound.source, bound.witness)
            assert derived == pytest.approx(bound.lower_bound, rel=1e-9)
            checked += math.isfinite(derived)
    assert checked > 10
