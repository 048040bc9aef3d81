"""No bound on the whole step is above the enumerated optimum: every schedule, overlap, sharding."""

from dataclasses import replace

import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.problem import PlanningProblem
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof

MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated: each placement runs its order."""
CANDIDATES = 5


def whole_step(seed: int) -> PlanningProblem:
    """
    A random problem in this model; every other one overlaps reductions, every third has every schedule.

    Every fourth has every ZeRO stage, every eighth two replicas to a copy.
    """
    given = random_problem(seed, measured=seed % 5 == 0)
    if seed % 3 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        given = replace(given, space=given.space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2}))
    if seed % 4 == 1:
        more = {"zero": [0, 1, 2, 3], "fixed": {"dp_shard": 2} if seed % 8 == 5 else {}}
        given = replace(given, space=given.space.model_copy(update=more))
    return replace(given, latency_model="step", overlap_grad_reduce=seed % 2 == 0)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_of_a_candidate_is_above_its_optimum(block: int) -> None:
    """2,000 candidates of random problems, a hundred a block: closed form, partition, order, placement."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        given = whole_step(seed)
        checked += len(check_candidates(given, given.candidates, seed, CANDIDATES))
        seed += 1
