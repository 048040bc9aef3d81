"""No bound on a candidate with several copies of optimizer states (ZeRO-1) is above its enumerated optimum."""

import pytest

from tests.support.blocks import blocks
from tests.support.expert_ranks import with_copies_of_states
from tests.support.ladder import check_candidates

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_with_copies_of_states_is_above_the_optimum(block: int) -> None:
    """400 candidates, twenty a block, with expert ranks and without, by orders too: copies in nodes and over them."""
    checked, seed = 0, 10_000 * block
    while checked < 20:
        given = with_copies_of_states(seed, large=seed % 4 == 0)
        checked += len(check_candidates(given, [each for each in given.candidates if each.dp_shard], seed, 4))
        seed += 1
