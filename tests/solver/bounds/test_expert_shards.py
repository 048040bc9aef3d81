"""No bound on a candidate with expert ranks and sharded weights or gradients is above its enumerated optimum."""

import pytest

from tests.support.blocks import blocks
from tests.support.expert_ranks import with_expert_shards
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_sharded_experts_is_above_the_optimum(block: int) -> None:
    """500 candidates, fifty a block, infeasible ones included: gathers of experts hidden, exposed, or between."""
    checked, seed = 0, 10_000 * block
    while checked < 50:
        given = with_expert_shards(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.ep > 1], seed, 4))
        seed += 1
