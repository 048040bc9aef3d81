"""The best plan by Aceso's formula: never below its bound, and both beside every plan of small problems."""

import numpy as np
import pytest

from taut.papers.aceso.formula import price
from taut.papers.aceso.search import best_plan
from tests.support.aceso import even, least_step, problem
from tests.support.blocks import blocks

SIZE = 20


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_bound_and_plan_enclose_the_optimum_of_every_plan(block: int) -> None:
    """
    Of random problems, infeasible ones included, the bound is not above the least step and the plan not below.

    Where units divide all activations, in three of four problems, both are the least step.
    """
    feasible = tight = 0
    for seed in range(block * SIZE, (block + 1) * SIZE):
        given = problem(seed)
        least, found = least_step(given), best_plan(given, np.inf)
        assert found.lower_bound <= least, seed
        if not np.isfinite(least):
            assert not found.stages and found.lower_bound == np.inf, seed
            continue
        feasible += 1
        assert found.seconds >= least * (1 - 1e-12), seed
        tight += even(seed) <= (found.seconds <= least * (1 + 2e-5) and found.lower_bound >= least * (1 - 2e-5))
        if found.stages:
            priced = price(given, found.micro_batch, found.stages, found.recomputed)
            assert priced.step == found.seconds and priced.memory.max() <= given.memory_limit + 1, seed
            assert found.stages[0].first == 0 and sum(s.tp * s.dp for s in found.stages) == given.gpus, seed
    assert feasible >= SIZE / 2 and tight == feasible


@pytest.mark.proof
def test_a_known_plan_that_is_the_best_stays() -> None:
    """From the least step as what is known, the bound reaches it and no plan is reported as faster."""
    given = problem(1)
    least = least_step(given)
    found = best_plan(given, least)
    assert found.seconds >= least * (1 - 1e-12) and found.lower_bound == pytest.approx(least, rel=1e-3)
    assert found.lower_bound <= least


@pytest.mark.proof
def test_a_search_without_time_has_a_valid_bound() -> None:
    """With no time left the bound is what the first division says, still below every plan."""
    given = problem(1)
    found = best_plan(given, np.inf, time_limit=0.0)
    assert 0 < found.lower_bound <= least_step(given) <= found.seconds * (1 + 1e-12)
