"""No bound on a problem with mixed layers is above its enumerated optimum."""

import pytest

from tests.support.blocks import blocks
from tests.support.ladder import check_candidates
from tests.support.mixers import with_mixed_layers

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("block", blocks(5))
def test_no_bound_with_mixed_layers_is_above_the_optimum(block: int) -> None:
    """Five hundred candidates, a hundred a block: mixers, gates, indexers, embeddings of positions."""
    checked, seed = 0, 10_000 * block
    while checked < 100:
        given = with_mixed_layers(seed)
        mixed = any(layer.mixer or layer.attention_gate for layer in given.model.blocks)
        checked += mixed and len(check_candidates(given, given.candidates, seed, 4))
        seed += 1
