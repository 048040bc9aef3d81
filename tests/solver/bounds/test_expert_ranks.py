"""No bound on a candidate whose experts have ranks of their own is above its enumerated optimum."""

import pytest

from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.mechanisms.shards import expert_holders, holders
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.terms import Ring, Term
from tests.support.blocks import blocks
from tests.support.expert_ranks import (
    with_expert_copies,
    with_expert_ranks,
    with_expert_shards,
    with_hidden_exchanges,
)
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_expert_ranks_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, fifty a block, infeasible ones included: groups within a node and on several."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = with_expert_ranks(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.ep > 1], seed, 4))
        seed += 1


@pytest.mark.parametrize("block", blocks(4))
def test_no_bound_with_gathered_tokens_is_above_the_optimum(block: int) -> None:
    """Two hundred candidates, fifty a block, whose ranks gather all tokens: in nodes, between them, by tensor ranks."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = with_expert_ranks(seed)
        if given.space.dispatch.gathers:
            checked += len(check_candidates(given, [each for each in given.candidates if each.ep > 1], seed, 4))
        seed += 1


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_hidden_exchanges_is_above_the_optimum(block: int) -> None:
    """Two hundred candidates, twenty a block, whose exchanges hide behind another micro-batch by their order."""
    checked, seed = 0, 10_000 * block
    while checked < 20:
        given = with_hidden_exchanges(seed)
        hidden = [
            each for each in given.candidates if each.is_order_priced and hides_exchange(given.space, given.model, each)
        ]
        checked += len(check_candidates(given, hidden, seed, 8))
        seed += 1


@pytest.mark.parametrize("block", blocks(4))
def test_no_bound_beside_further_collectives_is_above_the_optimum(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms after those of gradients, of both loads and of few bytes, are no gradients in any bound."""
    terms = PlanningProblem.terms

    def with_further(problem: PlanningProblem, candidate: Candidate) -> tuple[Term, ...]:
        """The terms of a candidate, and a gather of a few bytes of each load."""
        common = Term("common", "end", (Ring(holders(candidate)),), 0.01)
        experts = Term("experts", "end", (Ring(expert_holders(candidate)),), 0.01)
        return (*terms(problem, candidate), common, experts)

    monkeypatch.setattr(PlanningProblem, "terms", with_further)
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = (with_expert_ranks, with_expert_shards, with_expert_copies)[seed % 3](seed)
        checked += len(check_candidates(given, given.candidates, seed, 4))
        seed += 1
