"""No bound on a candidate with context ranks is above its enumerated optimum."""

from dataclasses import replace

import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.problem import PlanningProblem
from tests.support.blocks import blocks
from tests.support.contexts import all_context_kinds
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof

MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated: each placement runs its order."""


def with_contexts(seed: int) -> PlanningProblem:
    """Random problems with costs for context ranks; in turn with every schedule, ZeRO stage, overlap and kind."""
    given = random_problem(3 * seed + 1, measured=seed % 5 == 0, large=seed % 7 == 0)
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    if seed % 3 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2})
    return all_context_kinds(replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 2 == 0), seed)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_contexts_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, fifty a block: blocks in nodes and on several, every schedule and ZeRO stage."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = with_contexts(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.cp > 1], seed, 4))
        seed += 1
