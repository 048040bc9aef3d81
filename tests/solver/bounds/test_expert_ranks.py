"""No bound on a candidate whose experts have ranks of their own is above its enumerated optimum."""

import numpy as np
import pytest

from taut.formulations.gradient_reductions import optimizer_by_stage, reduction_seconds
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.mechanisms.shards import expert_holders, holders
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.terms import Ring, Term
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.ladder.ladder import Ladder
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


def test_orders_count_reductions_and_optimizer_of_experts_closely() -> None:
    """Random divisions and placements: no device waits less than its load says, a quarter exactly so long."""
    exact = list[bool]()
    for seed in range(0, 450, 3):
        given, rng = with_expert_ranks(seed), np.random.default_rng(seed)
        if given.cluster.num_devices > 4 or given.overlap_grad_reduce:
            continue
        links = Ladder(given).links
        for candidate in [each for each in given.candidates if each.is_order_priced and each.ep > 1][:3]:
            chunks = chunked(given, candidate, links)
            cuts = rng.choice(np.arange(1, chunks.num_layers), chunks.num_chunks - 1, replace=False)
            ends = np.append(np.sort(cuts), chunks.num_layers)
            plan = Strategy(candidate=candidate, division=Division.of_ends(ends, np.zeros_like(ends)))
            devices = rng.permutation(given.cluster.num_devices).reshape(candidate.pp, -1, candidate.width)
            loads, reduced = chunks.device_loads(plan.division), reduction_seconds(given, plan, devices)
            bounds = chunks.ring * loads + chunks.reduced
            updates = (
                chunks.constant - given.least_constant(candidate) - chunks.reduced + chunks.optimizer * loads.max()
            )
            assert (bounds <= reduced * (1 + 1e-9) + 1e-15).all()
            assert updates <= optimizer_by_stage(given, plan, devices).max() * (1 + 1e-9) + 1e-15
            exact.append(np.allclose(bounds, reduced, rtol=1e-9))
    assert len(exact) > 50 and sum(exact) > len(exact) / 4
