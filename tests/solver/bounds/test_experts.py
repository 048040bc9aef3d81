"""No bound on a problem with experts is above its enumerated optimum."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.computations import COMPUTATIONS
from taut.solver.bounds.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def with_experts(seed: int) -> PlanningProblem:
    """A random problem with experts and latent attention, in turn with every ZeRO stage, and overlap."""
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 0, experts=True)
    if seed % 2:
        return given
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 4 == 0)


def check_candidates(seed: int) -> int:
    """Check every rung of up to four candidates; returns how many candidates that were."""
    given, rng = with_experts(seed), np.random.default_rng(seed)
    if not given.model.has_experts:
        return 0
    ladder, every = Ladder(given), given.candidates
    chosen = rng.permutation(len(every))[:4].tolist()
    for index in chosen:
        optimum = enumerate_candidate(given, every[index]).seconds
        for rung in ladder.rungs(every[index]):
            if rung.source in COMPUTATIONS:
                found = COMPUTATIONS[rung.source](ladder, every[index], np.inf).seconds
                assert found <= optimum * TOLERANCE, (seed, every[index], rung.source)
    return len(chosen)


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_experts_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, a hundred a block, infeasible ones included."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        checked += check_candidates(seed)
        seed += 1
