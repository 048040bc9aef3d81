"""No bound on devices of two or three types is above the enumerated optimum."""

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


def with_types(seed: int) -> PlanningProblem | None:
    """A random problem on devices of several types, in ``step``, in turn with every ZeRO stage; None for one type."""
    given = random_problem(seed, large=seed % 9 == 0)
    if len(given.device_types) == 1:
        return None
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 5 == 0)


def check_candidates(seed: int) -> tuple[int, int]:
    """Check every rung of up to four candidates; returns how many there were, and how many with blocks over nodes."""
    given, rng, wide = with_types(seed), np.random.default_rng(seed), 0
    if given is None:
        return 0, 0
    ladder, every = Ladder(given), given.candidates
    chosen = [every[index] for index in rng.permutation(len(every))[:4].tolist()]
    for choice in chosen:
        optimum = enumerate_candidate(given, choice).seconds
        wide += choice.width > int(given.links.gpus_per_node.max())
        for rung in ladder.rungs(choice):
            if rung.source in COMPUTATIONS:
                found = COMPUTATIONS[rung.source](ladder, choice, np.inf).seconds
                assert found <= optimum * TOLERANCE, (seed, choice, rung.source)
    return len(chosen), wide


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_on_device_types_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block: blocks in nodes and on several, of one type or of more."""
    checked, wide, seed = 0, 0, 20_000 * block
    while checked < 100:
        counts = check_candidates(seed)
        checked, wide, seed = checked + counts[0], wide + counts[1], seed + 1
    assert wide > 0
