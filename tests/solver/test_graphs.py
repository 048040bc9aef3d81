"""Passes that CUDA graphs launch: prices, bounds and the checker of plans in one stage."""

import json
from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.latency import memory_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search
from taut.solver.simple_plans import even_strategy
from tests.solver.certificate.reference.test_reference import agree
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.searches import check_search

SECONDS = ("forward_s", "input_grad_s", "weight_grad_s")


def with_graphs(given: PlanningProblem, seed: int) -> PlanningProblem:
    """The problem with passes that graphs launch, in 0.3 to 1 of their seconds, and some bytes that graphs keep."""
    rng, rows = np.random.default_rng((seed, 37)), list(given.costs.rows)
    for row in given.costs.rows:
        if row.recompute != "full":
            figures = {name: float(rng.uniform(0.3, 1.0)) * getattr(row, name) for name in SECONDS}
            rows.append(row.model_copy(update={"recorded": True, **figures}))
    memory = given.memory.model_copy(update={"graph_gib": float(rng.choice([0.0, 1e-5]))})
    return replace(given, memory=memory).with_costs(given.costs.model_copy(update={"rows": rows}))


@pytest.mark.parametrize("block", blocks(4))
def test_evaluators_agree_on_plans_with_graphs(block: int) -> None:
    """Candidates, seconds and bytes of both evaluators are the same where some candidates have graphs."""
    rng, checked = np.random.default_rng(block), 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_graphs(random_problem(seed, large=seed % 5 == 0), seed)
        if any(candidate.recorded for candidate in given.candidates):
            checked += agree(given, rng, 6)
    assert checked > 20


@pytest.mark.parametrize("block", blocks(4, proof=True))
def test_bounds_hold_beside_graphs(block: int) -> None:
    """No bound exceeds the optimum of an enumeration, and certificates hold."""
    checked = 0
    for seed in range(block * 20, (block + 1) * 20):
        given = with_graphs(random_problem(seed), seed)
        if any(candidate.recorded for candidate in given.candidates):
            check_search(given, seed)
            checked += 1
    assert checked > 5


def test_graphs_are_of_one_stage_with_whole_weights() -> None:
    """Several stages, shards of weights or gradients, full recompute and activations on hosts go without."""
    one = Candidate(
        pp=1,
        tp=2,
        dp=2,
        vpp=1,
        micro_batch=1,
        num_micro_batches=2,
        schedule="1f1b",
        zero=1,
        sequence_parallel=False,
        uniform_recompute="none",
    )
    assert one.recorded
    assert one.changed(zero=0, uniform_recompute="selective").recorded
    others = ({"pp": 2}, {"zero": 2}, {"zero": 3}, {"uniform_recompute": "full"}, {"activation_offload": 0.5})
    assert not any(one.changed(**each).recorded for each in others)


@pytest.mark.proof
def test_a_plan_with_graphs_where_frameworks_have_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes every candidate for one with graphs is found out by the checker."""
    monkeypatch.setattr(Candidate, "recorded", property(lambda _: True))
    refused = 0
    for seed in range(12):
        given = with_graphs(random_problem(seed), seed)
        found = search(given, Limits())
        if found.incumbent is not None and found.incumbent.strategy.candidate.pp > 1:
            assert verify_document(json.loads(json.dumps(plan_document(given, found, Limits())))).faults, seed
            refused += 1
    assert refused


def test_a_space_of_full_recompute_alone_has_no_graphs() -> None:
    """Where one kind of recompute is left, candidates do not name it, and have graphs or not by it."""
    for seed in range(40):
        given = with_graphs(random_problem(seed), seed)
        for kinds, words in ((["full"], False), (["none"], True), (["none", "full"], True)):
            space = given.space.model_copy(update={"recompute": kinds, "recompute_by_stage": True})
            other = replace(given, space=space)
            for candidate in [each for each in other.candidates if each.recorded][:3]:
                assert other.records(candidate) == words
                assert (other.memory_of(candidate).graph_gib > 0) == (words and given.memory.graph_gib > 0)


def test_one_stage_recomputed_whole_keeps_no_graphs() -> None:
    """Where each stage chooses its recompute, full recompute of the only one is without what the graphs keep."""
    chosen, checked = ("none", "full"), 0
    for seed in range(40):
        given = with_graphs(random_problem(seed), seed)
        space = given.space.model_copy(update={"recompute": [*chosen], "recompute_by_stage": True})
        bare = given.memory.model_copy(update={"graph_gib": 0.0})
        both = [replace(given, space=space, memory=memory) for memory in (given.memory, bare)]
        for candidate in [each for each in both[0].candidates if each.recorded][:3]:
            for name, times in zip(chosen, (1, 0), strict=True):
                strategy = even_strategy(both[0], candidate, name)
                with_them, without = (memory_bytes(problem, strategy) for problem in both)
                assert with_them[0] - without[0] == times * given.memory.graph_bytes
                checked += given.memory.graph_bytes > 0
    assert checked > 10
