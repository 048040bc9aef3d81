"""No bound on a candidate whose experts have ranks of their own is above its enumerated optimum."""

import pytest

from tests.support.blocks import blocks
from tests.support.expert_ranks import with_expert_ranks
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_with_expert_ranks_is_above_the_optimum(block: int) -> None:
    """A thousand candidates, a hundred a block, infeasible ones included: groups within a node and on several."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        given = with_expert_ranks(seed)
        checked += len(check_candidates(given, [each for each in given.candidates if each.ep > 1], seed, 4))
        seed += 1
