"""No bound on a problem with experts is above its enumerated optimum."""

from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


def with_experts(seed: int) -> PlanningProblem:
    """A random problem with experts and latent attention, in turn with every ZeRO stage, and overlap."""
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 0, experts=True)
    if seed % 2:
        return given
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 4 == 0)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_experts_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, fifty a block, infeasible ones included."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = with_experts(seed)
        checked += given.model.has_experts and len(check_candidates(given, given.candidates, seed, 4))
        seed += 1
