"""No bound on a problem with mixed layers is above its enumerated optimum."""

from dataclasses import replace

import pytest

from tests.support.blocks import blocks
from tests.support.contexts import all_context_kinds
from tests.support.ladder import check_candidates
from tests.support.mixers import with_further_tokens, with_mixed_layers

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


@pytest.mark.parametrize("block", blocks(5))
def test_no_bound_with_context_ranks_beside_mixers_is_above_the_optimum(block: int) -> None:
    """A hundred candidates, twenty a block: ranks exchange heads of mixers, and share attention in every way."""
    checked, seed = 0, 10_000 * block
    while checked < 20:
        given = with_mixed_layers(seed)
        if any(layer.mixers for layer in given.model.blocks):
            given = all_context_kinds(replace(given, latency_model="step"), seed)
            checked += len(check_candidates(given, [each for each in given.candidates if each.cp > 1], seed, 4))
        seed += 1


@pytest.mark.parametrize("block", blocks(5))
def test_no_bound_with_further_tokens_of_mixed_layers_is_above_the_optimum(block: int) -> None:
    """A hundred candidates, twenty a block: tokens pass one to three layers, with weights of their own or one's."""
    checked, seed = 0, 10_000 * block
    while checked < 20:
        given = with_further_tokens(with_mixed_layers(seed), seed)
        checked += len(check_candidates(given, given.candidates, seed, 4)) if given else 0
        seed += 1
