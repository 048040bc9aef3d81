"""No bound on a candidate whose end chunks may have no layers is above its enumerated optimum."""

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


def with_empty_ends(seed: int) -> PlanningProblem:
    """Random problems of every schedule whose end chunks may have no layers; some predict a further token."""
    given = random_problem(seed, measured=seed % 5 == 0)
    space = given.space.model_copy(
        update={
            "empty_ends": True,
            "zero": [[0, 1], [2], [3], [1]][seed % 4],
            "schedules": list(SCHEDULES),
            "max_vpp": 2,
            "fixed": {"empty_ends": True},
        }
    )
    model = given.model.model_copy(update={"mtp_layers": seed % 3 % 2}) if given.model.vocab else given.model
    given = replace(given, model=model, space=space, latency_model="step", overlap_grad_reduce=seed % 2 == 0)
    return all_context_kinds(given, seed)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_empty_ends_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, fifty a block: every schedule, context ranks in some, every ZeRO stage."""
    checked, empty, seed = 0, 0, 10_000 * block
    while checked < 50:
        given = with_empty_ends(seed)
        if given.cluster.num_devices <= MOST_DEVICES:
            chosen = [each for each in given.candidates if each.empty_ends]
            for found in check_candidates(given, chosen, seed, 3).values():
                best = found.strategy
                checked += 1
                empty += best is not None and any(first == end for first, end in best.layer_stages)
        seed += 1
    assert empty > 3
