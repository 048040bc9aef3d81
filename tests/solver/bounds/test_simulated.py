"""The bound on simulated steps: below every simulated plan, and close where nothing but computation counts."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.latency import violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.simulated import simulated_bound
from tests.support.blocks import blocks
from tests.support.expert_ranks import with_expert_ranks, with_expert_shards
from tests.support.instances import random_problem
from tests.support.oracle import _placements, _strategies
from tests.support.small import candidate, cluster, costs, model, problem

MOST = 60
"""Simulated plans of a candidate: all of them, or so many drawn at random."""


def least_simulated(rng: np.random.Generator, given: PlanningProblem, choice: Candidate) -> float:
    """The quickest of a candidate's plans that fit."""
    placements, plans = _placements(given, choice), list(_strategies(given, choice))
    pairs = [(plan, devices) for plan in plans for devices in placements[:: max(len(placements) // 6, 1)]]
    if len(pairs) > MOST:
        pairs = [pairs[k] for k in rng.choice(len(pairs), MOST, replace=False)]
    found = [np.inf]
    for plan, devices in pairs:
        if not violations(given, plan, devices):
            graph = operator_graph(given, plan, devices)
            found.append(float((graph.times() + graph.seconds).max()) + given.constant_seconds)
    return min(found)


@pytest.mark.proof
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("block", blocks(12))
def test_no_simulated_plan_is_quicker_than_the_bound(block: int, overlap: bool) -> None:
    """Random problems of every schedule, tight memory, unlike devices and links: enumerated or sampled plans."""
    compared = 0
    for seed in range(5 * block, 5 * block + 5):
        rng = np.random.default_rng(seed)
        given = random_problem(seed, large=seed % 3 == 0)
        space = given.space.model_copy(update={"schedules": list(SCHEDULES)})
        given = replace(given, latency_model="step", space=space, overlap_grad_reduce=overlap)
        best, choices = BestLinks(given.links, given.rings), given.candidates
        for k in rng.choice(len(choices), min(len(choices), 8), replace=False) if choices else []:
            quickest = least_simulated(rng, given, choices[k])
            bound = simulated_bound(given, choices[k], best)
            assert bound <= quickest * (1 + 1e-12), (seed, str(choices[k]))
            compared += bool(np.isfinite(quickest))
    assert compared


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
def test_no_simulated_plan_with_expert_ranks_is_quicker_than_the_bound(block: int) -> None:
    """Random problems with expert ranks, of every second one the weights or gradients are sharded."""
    compared = 0
    for seed in range(20 * block, 20 * block + 20):
        rng, given = np.random.default_rng(seed), (with_expert_shards if seed % 2 else with_expert_ranks)(seed)
        dispatch = given.space.dispatch.model_copy(update={"overlap": False})
        given = replace(given, space=given.space.model_copy(update={"dispatch": dispatch}), overlap_grad_reduce=False)
        best, choices = BestLinks(given.links, given.rings), [each for each in given.candidates if each.ep > 1]
        for k in rng.choice(len(choices), min(len(choices), 4), replace=False) if choices else []:
            quickest = least_simulated(rng, given, choices[k])
            assert simulated_bound(given, choices[k], best) <= quickest * (1 + 1e-12), (seed, str(choices[k]))
            compared += bool(np.isfinite(quickest))
    assert compared


def bound_of(given: PlanningProblem, choice: Candidate) -> float:
    """The bound of a candidate."""
    return simulated_bound(given, choice, BestLinks(given.links, given.rings))


def test_even_stages_attain_the_bound_of_1f1b() -> None:
    """Four layers of 3 s on two stages, 8 micro-batches: 8 x 6 + 6 s, as the simulator has it without messages."""
    given = problem(cluster(2, 1), model(), latency_model="step", max_tp=1)
    assert bound_of(given, candidate(2, 1, 1)) == pytest.approx(54.0)


def test_a_split_backward_pass_hides_what_follows_the_last() -> None:
    """Under zb-h1 the second stage waits for 2 s of forward passes alone: 8 x 6 + 2 s."""
    given = problem(cluster(2, 1), model(), latency_model="step", max_tp=1)
    assert bound_of(given, candidate(2, 1, 1, schedule="zb-h1")) == pytest.approx(50.0)


def test_memory_forces_recompute_into_the_bound() -> None:
    """With 3.5 MB the first of two stages recomputes all: 8 x 2 layers of 4 s, and nothing comes before."""
    # A layer has 0.9 MB of states; it keeps 1 MB of a micro-batch, 0.5 under selective, 0.1 under full recompute, which
    # brings the rest back for a moment. Two micro-batches are in flight: 1.8 + 0.4 + 0.9 MB; a third layer is too much.
    table = costs(model(), activation_bytes=1_000_000)
    given = problem(cluster(2, 1, memory_gib=0.0033), model(), table=table, latency_model="step", max_tp=1)
    assert bound_of(given, candidate(2, 1, 1)) == pytest.approx(64.0)


def test_nothing_that_fits_is_an_infinite_bound() -> None:
    """A device of a few kilobytes holds no stage."""
    given = problem(cluster(2, 1, memory_gib=1e-5), model(), latency_model="step", max_tp=1)
    assert bound_of(given, candidate(2, 1, 1)) == np.inf
