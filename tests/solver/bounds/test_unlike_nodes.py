"""No bound is above the enumerated optimum where nodes differ in size and in type, or blocks span unlike nodes."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import Communication, by_first_stage
from taut.solver.bounds.least_hops import crossing
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.ladder.computations import partition
from taut.solver.ladder.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import check_candidates
from tests.support.unlike import filling_problem, slow_between_types, unlike_problem

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_on_unlike_nodes_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block, of every latency model: unequal nodes, three types, wide blocks."""
    checked, unequal, three, wide, seed = 0, 0, 0, 0, 30_000 * block
    while checked < 100:
        given = unlike_problem(seed, large=seed % 17 == 0)
        given = replace(given, latency_model=("step", *LATENCY_MODELS)[seed // 2 % (1 + len(LATENCY_MODELS))])
        given = replace(given, overlap_grad_reduce=given.latency_model == "step" and seed % 5 == 0)
        sizes = given.links.gpus_per_node
        chosen = check_candidates(given, given.candidates, seed, 4)
        checked, unequal = checked + len(chosen), unequal + len(chosen) * (sizes.min() < sizes.max())
        three += len(chosen) * (len(given.device_types) == 3)
        wide += sum(candidate.width > sizes.max() for candidate in chosen)
        seed += 1
    assert unequal > 0 and three > 0 and wide > 0


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_slow_links_between_types_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block, of at least two stages, where pipelines avoid hops between types."""
    checked, dearer, seed = 0, 0, 30_000 * block
    while checked < 100:
        given = slow_between_types(unlike_problem(seed, large=seed % 17 == 0), seed)
        models = ("step", "step", *LATENCY_MODELS)
        given = replace(given, latency_model=models[seed % len(models)], overlap_grad_reduce=seed % 10 == 0)
        staged = [candidate for candidate in given.candidates if candidate.pp > 1 and not candidate.is_order_priced]
        chosen = check_candidates(given, staged, seed, 4)
        links = BestLinks(given.links, given.rings)
        dearer += sum(crossing(given, candidate, links).whole > 0 for candidate in chosen)
        checked, seed = checked + len(chosen), seed + 1
    assert dearer > 50


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_by_where_the_first_stage_lies_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, fifty a block, whose first stage may fill nodes: bounds rise, none above."""
    checked, raised, seed = 0, 0, 50_000 * block
    while checked < 50:
        given = filling_problem(seed)
        models = ("step", "step", "step", *LATENCY_MODELS)
        given = replace(given, latency_model=models[seed % len(models)], overlap_grad_reduce=seed % 4 == 0)
        ladder = Ladder(given)
        filling = [each for each in given.candidates if firsts(ladder, each)]
        for each in check_candidates(given, filling, seed, 4):
            without = partition_bound(given, each, ladder.communication(each))[0]
            raised += without * (1 + 1e-9) < partition(ladder, each).seconds < np.inf
            checked += 1
        seed += 1
    assert raised > 0 or block  # Not every block of fifty has a bound that rises.


def test_no_bound_on_a_stage_that_may_fill_two_of_four_nodes_is_above_the_optimum() -> None:
    """Six candidates of two stages on eight devices."""
    checked, seed = 0, 0
    while checked < 6:
        given = filling_problem(seed, (2, 2, 2, 2))
        given = replace(given, space=given.space.model_copy(update={"fixed": {"pp": 2, "tp": 1}}))
        wide = [each for each in given.candidates if firsts(Ladder(given), each)]
        checked += len(check_candidates(given, wide, seed, 2))
        seed += 1


def firsts(ladder: Ladder, candidate: Candidate) -> tuple[Communication, ...]:
    """The cases of a candidate's first stage."""
    return by_first_stage(ladder.problem, candidate, ladder.links, ladder.communication(candidate))


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_on_shared_or_sharded_blocks_with_slow_links_is_above_the_optimum(block: int) -> None:
    """Five hundred candidates, fifty a block, of two stages or more with context ranks, experts, shards or copies."""
    checked, seed = 0, 40_000 * block
    while checked < 50:
        seed += 1
        given = random_problem(seed, large=seed % 17 == 0, experts=seed % 2 == 0)
        if len(given.device_types) == 1:
            continue
        space = given.space.model_copy(update={"max_cp": 4, "zero": [[1], [2, 3]][seed // 2 % 2]})
        given = replace(slow_between_types(given, seed), space=space, latency_model=("step", "pipette")[seed % 3 == 0])
        staged = [
            each
            for each in given.candidates
            if each.pp > 1
            and each.pipelines > 1
            and not each.is_order_priced
            and (each.cp > 1 or each.ep > 1 or each.zero > 1 or each.dp_shard)
        ]
        checked += len(check_candidates(given, staged, seed, 2))
