"""No bound on a candidate with expert ranks and sharded weights or gradients is above its enumerated optimum."""

import pytest

from tests.support.blocks import blocks
from tests.support.expert_ranks import with_expert_copies, with_expert_shards
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_sharded_experts_is_above_the_optimum(block: int) -> None:
    """500 candidates, 25 a block, infeasible ones included: gathers of experts hidden, exposed, or between."""
    checked, seed = 0, 10_000 * block
    while checked < 25:
        given = with_expert_shards(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.ep > 1], seed, 4))
        seed += 1


@pytest.mark.parametrize("block", blocks(16))
def test_no_bound_with_copies_of_experts_is_above_the_optimum(block: int) -> None:
    """320 candidates, twenty a block, one in four problems on eight devices: copies within nodes and over them."""
    checked, seed = 0, 10_000 * block
    while checked < 20:
        given = with_expert_copies(seed, large=seed % 4 == 0)
        every = [each for each in given.candidates if each.ep > 1 and each.dp_shard]
        checked += len(check_candidates(given, every, seed, 4))
        seed += 1
