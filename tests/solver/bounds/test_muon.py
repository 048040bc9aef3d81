"""Bounds, evaluator, certificate and checker under Muon."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.simulated import simulated_bound, simulated_seconds
from taut.solver.certificate.examined import order_for
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.memory import memory_bytes as reference_bytes
from taut.solver.certificate.reference.prices import price
from taut.solver.ladder.computations import order, partition
from taut.solver.ladder.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.muon import muon_problem
from tests.support.oracle import enumerate_candidate
from tests.support.reference import case_of, choice_of, random_placement, random_strategy
from tests.support.searches import check_search


def drawn(problem: PlanningProblem, seed: int, most: int) -> list[Any]:
    """Some candidates of a problem."""
    order = np.random.default_rng(seed).permutation(len(problem.candidates))[:most]
    return [problem.candidates[index] for index in order.tolist()]


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(8))
def test_no_bound_is_above_the_optimum(block: int) -> None:
    """Of sixty random problems two candidates each, 518 in all: over a fifth of the feasible attain bounds."""
    attained = checked = 0
    for seed in range(60 * block, 60 * block + 60):
        given = muon_problem(seed)
        if given is None:
            continue
        for candidate in drawn(given, seed, 2):
            if candidate.pp > 2 and len(given.model.blocks) > 4:
                continue
            ladder, best = Ladder(given), enumerate_candidate(given, candidate).seconds
            found = [ladder.relaxation(candidate)]
            if candidate.is_order_priced:
                found.append(order(ladder, candidate).seconds)
            else:
                found.append(partition(ladder, candidate).seconds)
                found.append(ladder.balance(candidate))
            assert max(found) <= best * (1 + 1e-9), (seed, candidate)
            checked += bool(np.isfinite(best))
            attained += max(found) > best * (1 - 1e-6) and bool(np.isfinite(best))
    assert attained > 0.2 * checked > 4


@pytest.mark.proof
def test_the_checker_agrees() -> None:
    """Candidates, seconds and bytes of random plans are those of the reference evaluator."""
    checked = 0
    for seed in range(60):
        given = muon_problem(seed)
        if given is None:
            continue
        rng, case = np.random.default_rng(seed), case_of(given)
        assert candidates(case) == sorted(choice_of(candidate) for candidate in given.candidates), seed
        for candidate in drawn(given, seed, 4):
            strategy, devices = random_strategy(given, candidate, rng), random_placement(given, candidate, rng)
            choice = choice_of(candidate)
            plan = choice, strategy.division.stages, strategy.division.recompute
            passes = order_for(case, choice)
            assert reference_bytes(case, *plan, passes) == memory_bytes(given, strategy), (seed, candidate)
            theirs = price(case, *plan, devices[None], passes)
            ours = step_time(given, strategy, devices)
            assert float(theirs.total[0]) == pytest.approx(float(ours.total), rel=1e-9), (seed, candidate)
            assert float(theirs.optimizer[0]) == pytest.approx(float(ours.optimizer), rel=1e-9), (seed, candidate)
            checked += 1
    assert checked > 60


@pytest.mark.proof
def test_no_simulated_step_is_below_its_bound() -> None:
    """Plans of random problems take at least what bounds their simulation, and the optimizer of their plan."""
    for seed in range(12):
        given = muon_problem(seed)
        if given is None:
            continue
        rng, best = np.random.default_rng(seed), BestLinks(given.links, given.rings)
        for candidate in drawn(given, seed, 2):
            strategy, devices = random_strategy(given, candidate, rng), random_placement(given, candidate, rng)
            if max(memory_bytes(given, strategy)) <= given.budget.min():
                seconds = simulated_seconds(given, strategy, devices)
                assert simulated_bound(given, candidate, best) <= seconds * (1 + 1e-9), (seed, candidate)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [10, 38])
def test_a_search_is_right_as_a_whole(seed: int) -> None:
    """The optimum lies between bound and plan, and the certificate holds."""
    given = muon_problem(seed)
    assert given is not None
    space = given.space.model_copy(update={"schedules": ["1f1b"], "recompute": ["none"], "max_cp": 1})
    found, best = check_search(replace(given, space=space), seed)
    assert np.isfinite(best) and found.incumbent is not None
