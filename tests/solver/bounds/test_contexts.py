"""No bound on a candidate with context ranks is above its enumerated optimum."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.computations import COMPUTATIONS
from taut.solver.bounds.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9
MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated: each placement runs its order."""


def with_contexts(seed: int) -> PlanningProblem:
    """Every third random problem has costs for context ranks; in turn with every schedule, ZeRO stage, and overlap."""
    given = random_problem(3 * seed + 1, measured=seed % 5 == 0, large=seed % 7 == 0)
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    if seed % 3 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 2 == 0)


def check_candidates(seed: int) -> int:
    """Check every rung of up to four candidates; returns how many candidates that were."""
    given, rng = with_contexts(seed), np.random.default_rng(seed)
    ladder, every = Ladder(given), [choice for choice in given.candidates if choice.cp > 1]
    chosen = rng.permutation(len(every))[:4].tolist()
    for index in chosen:
        optimum = enumerate_candidate(given, every[index]).seconds
        for rung in ladder.rungs(every[index]):
            if rung.source in COMPUTATIONS:
                found = COMPUTATIONS[rung.source](ladder, every[index], np.inf).seconds
                assert found <= optimum * TOLERANCE, (seed, every[index], rung.source)
    return len(chosen)


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_contexts_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, a hundred a block: blocks in nodes and on several, every schedule and ZeRO stage."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        checked += check_candidates(seed)
        seed += 1
