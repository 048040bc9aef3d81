"""No plan that one would write down by hand beats the plan that the search returns."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof


def job(seed: int) -> PlanningProblem:
    """A random job on up to eight devices in ``step``, with every ZeRO stage and one copy of shards or several."""
    given = random_problem(seed, large=seed % 2 == 0)
    space = given.space.model_copy(update={"zero": [0, 1, 2, 3]})
    return replace(given, latency_model="step", space=space, overlap_grad_reduce=seed % 3 == 0)


def plain(given: PlanningProblem) -> Iterator[tuple[Strategy, Ints]]:
    """Every candidate with even stages, one recompute and devices in order: data-parallel, sharded, in pipelines."""
    for candidate in given.candidates:
        ends = [round((x + 1) * len(given.model.blocks) / candidate.pp) for x in range(candidate.pp)]
        stages = tuple(zip([0, *ends[:-1]], ends, strict=True))
        for recompute in given.recompute_of(candidate):
            strategy = Strategy(candidate=candidate, division=Division(stages, (recompute,) * candidate.pp))
            for devices in in_order(candidate):
                if not violations(given, strategy, devices):
                    yield strategy, devices


def in_order(candidate: Candidate) -> list[Ints]:
    """Tensor groups on neighbouring devices, with replicas next to them or stages."""
    pp, tp, dp = candidate.pp, candidate.tp, candidate.dp
    every = np.arange(pp * tp * dp)
    return [every.reshape(pp, dp, tp), every.reshape(dp, pp, tp).swapaxes(0, 1)]


@pytest.mark.parametrize("block", blocks(2))
def test_no_plain_plan_is_faster(block: int) -> None:
    """Ten random jobs, five a block: data parallelism alone, FSDP, several copies and even pipelines are no faster."""
    checked, seed = 0, 100 * block
    while checked < 5:
        given = job(seed)
        seed += 1
        every = list(plain(given))
        if not every:
            continue
        found = search(given, Limits(workers=1))
        assert found.incumbent is not None
        for strategy, devices in every:
            seconds = float(step_time(given, strategy, devices).total)
            assert found.incumbent.seconds <= seconds * (1 + 1e-12), (seed - 1, strategy)
            assert found.lower_bound <= seconds * (1 + 1e-9), (seed - 1, strategy)
        checked += 1
