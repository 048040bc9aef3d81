"""With sharded weights no bound of the whole step is above the enumerated optimum, whatever computation hides."""

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
MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated."""
CANDIDATES = 5
SECONDS = ("forward_s", "input_grad_s", "weight_grad_s")


def sharded(seed: int) -> PlanningProblem:
    """A random problem with ZeRO-2 and 3 alone; its layers take from a hundredth to a hundredfold of their seconds."""
    rng, given = np.random.default_rng(seed), random_problem(seed, measured=seed % 3 == 0)
    factor = float(10 ** rng.uniform(-2, 2))
    rows = [row.model_copy(update={name: getattr(row, name) * factor for name in SECONDS}) for row in given.costs.rows]
    space = given.space.model_copy(update={"zero": [2, 3]})
    if seed % 4 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2})
    costs = given.costs.model_copy(update={"rows": rows})
    return replace(given, latency_model="step", space=space, costs=costs)


def check_candidates(seed: int) -> int:
    """Check every rung of some candidates with shards; returns how many candidates that were."""
    given, rng = sharded(seed), np.random.default_rng(seed)
    ladder, every = Ladder(given), [candidate for candidate in given.candidates if candidate.zero]
    chosen = rng.permutation(len(every))[:CANDIDATES].tolist()
    for index in chosen:
        optimum = enumerate_candidate(given, every[index]).seconds
        for rung in ladder.rungs(every[index]):
            if rung.source in COMPUTATIONS:
                found = COMPUTATIONS[rung.source](ladder, every[index], np.inf).seconds
                assert found <= optimum * TOLERANCE, (seed, every[index], rung.source)
    return len(chosen)


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_of_a_sharded_candidate_is_above_its_optimum(block: int) -> None:
    """500 candidates of random problems, fifty a block, where gathers are hidden, exposed, or in between."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        checked += check_candidates(seed)
        seed += 1
