"""The best plan by Galvatron's formula: never below its bound, and both beside every plan of small problems."""

import numpy as np
import pytest

from taut.papers import galvatron as search
from taut.papers.galvatron import (
    End,
    Layers,
    best_galvatron_plan,
    best_on_one_stage,
    counts_of,
    least_costs,
    price,
)
from tests.support.blocks import blocks
from tests.support.galvatron import least_step, problem

SIZE = 20


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_bound_and_plan_enclose_the_optimum_of_every_plan(block: int) -> None:
    """Of random problems, infeasible ones included; without a pipeline the plan is the optimum, and proven."""
    feasible = exact = 0
    for seed in range(block * SIZE, (block + 1) * SIZE):
        given = problem(seed)
        least, found = least_step(given), best_galvatron_plan(given)
        assert found.lower_bound <= least, seed
        if not np.isfinite(least):
            assert not found.layers and found.lower_bound == np.inf, seed
            continue
        feasible += 1
        assert found.seconds >= least * (1 - 1e-12), seed
        priced = price(given, found.setting, found.layers, found.ends)
        assert priced.seconds == found.seconds and max(priced.mib) <= given.capacity, seed
        if found.setting.pp == 1 and found.lower_bound > found.seconds * (1 - 1e-8):
            exact += 1
            assert found.seconds == pytest.approx(least, rel=1e-11), seed
    assert feasible >= SIZE / 2 and exact >= feasible / 2


def test_a_known_plan_that_is_the_best_stays() -> None:
    """From the least step as what is known no plan is reported as faster, and the bound reaches it."""
    given = problem(1)
    least = best_galvatron_plan(given).seconds
    found = best_galvatron_plan(given, least)
    assert not found.layers and found.seconds == least and found.lower_bound == pytest.approx(least, rel=1e-8)


def test_layers_that_are_alike_are_a_part_of_the_space() -> None:
    """Their optimum is not below that of all plans, and its layers are spread over one number of ways."""
    for seed in range(20):
        given = problem(seed)
        every, alike = best_galvatron_plan(given), best_galvatron_plan(given, alike=True)
        assert alike.lower_bound >= every.lower_bound and len({split[:2] for split in alike.layers}) <= 1, seed


def test_layers_are_packed_at_the_least_cost() -> None:
    """Three layers within 7 MiB: two of 3 MiB cost 1, and one of 1 MiB costs 5; within 2 MiB none fits."""
    mib, costs = np.array([3, 1]), np.array([1.0, 5.0])
    found = least_costs(mib, costs, 3, 7)
    assert found[3, 7] == 7.0 and found[3, 2] == np.inf
    counts = counts_of(found, mib, costs, 3, 7)
    assert counts is not None and counts.tolist() == [2, 1]
    assert counts_of(found, mib, costs, 3, 2) is None and counts_of(found, mib, costs, 3, -1) is None


def test_the_larger_of_two_sums_is_balanced() -> None:
    """One micro-batch, four layers of 1 and 3 s in the last, of 3 and 1 s in others: two of each take 8 s."""
    layers = Layers(np.array([1, 1]), np.array([1.0, 3.0]), np.array([3.0, 1.0]))
    found = best_on_one_stage(layers, 4, [End(0.0, 4)], 1, np.inf)
    assert found.seconds == found.lower_bound == 8.0
    assert found.counts is not None and found.counts.tolist() == [2, 2] and found.end == 0


def test_a_choice_among_too_many_keeps_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no room for partial choices the bound is that of the weighted sums, still not above the optimum."""
    monkeypatch.setattr(search, "MOST_PARTIAL", 0)
    layers = Layers(np.array([1, 2]), np.array([1.0, 3.0]), np.array([3.0, 1.0]))
    found = best_on_one_stage(layers, 3, [End(0.5, 5)], 1, np.inf)
    assert 0 < found.lower_bound <= 6.5 <= found.seconds
