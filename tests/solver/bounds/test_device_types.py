"""No bound on devices of two or three types is above the enumerated optimum."""

from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


def with_types(seed: int) -> PlanningProblem | None:
    """A random problem on devices of several types, in ``step``, in turn with every ZeRO stage; None for one type."""
    given = random_problem(seed, large=seed % 9 == 0)
    if len(given.device_types) == 1:
        return None
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 5 == 0)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_on_device_types_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block: blocks in nodes and on several, of one type or of more."""
    checked, wide, seed = 0, 0, 20_000 * block
    while checked < 100:
        given = with_types(seed)
        if given is not None:
            chosen, widest = check_candidates(given, given.candidates, seed, 4), int(given.links.gpus_per_node.max())
            checked, wide = checked + len(chosen), wide + sum(candidate.width > widest for candidate in chosen)
        seed += 1
    assert wide > 0
