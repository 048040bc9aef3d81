"""Parameters, FLOP and divisions of layers with experts and latent attention, by hand."""

from typing import Any

import pytest

from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError

EXPERTS = {"num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden": 12, "shared_ffn_hidden": 8}
LATENT = {"q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3}


def layer(**changes: Any) -> LayerSpec:
    return LayerSpec.parse({"hidden": 16, "heads": 4, "seq": 10, "gated_mlp": True, **changes}, "layer")


def test_experts_are_split_over_tensor_ranks_and_the_router_is_not() -> None:
    """A router of 16 x 4, and three matrices of 16 x (4 x 12 + 8), of which a token uses 16 x (2 x 12 + 8)."""
    given = layer(experts=EXPERTS)
    # Attention 4 x 16^2 = 1024, router 64, experts and shared expert 3 x 16 x 56 = 2688, norms 2 x 16.
    assert given.parameters() == 1024 + 64 + 2688 + 32
    assert given.parameters(2) == 512 + 64 + 1344 + 32
    assert given.unused_parameters == 3 * 16 * 24
    # 2 x 10 tokens for 1024 + 64 + 3 x 16 x 32 parameters, and an attention core of 4 x 10 x 10 x 16.
    assert given.forward_flops() == 20 * (1024 + 64 + 1536) + 6400
    assert given.ffn_flops() == 20 * (64 + 1536)
    assert [tp for tp in (1, 2, 4) if given.splits(tp)] == [1, 2, 4]
    assert not layer(experts={**EXPERTS, "shared_ffn_hidden": 6}).splits(4)


def test_latent_attention_shares_what_is_made_by_heads() -> None:
    """Compression lies on every tensor rank, the rest by heads; the core has keys of 6 channels and values of 3."""
    given = layer(latent=LATENT, ffn_hidden=16)
    # Whole: 16 (6 + 5 + 2) = 208; by heads: 4 (6 x 6 + 5 x 7 + 3 x 16) = 476; norms 6 + 5 and 2 x 16; MLP 3 x 256.
    assert given.parameters() == 208 + 476 + 11 + 32 + 768
    assert given.parameters(2) == 208 + 238 + 11 + 32 + 384
    assert given.attention_flops() == 2 * 10 * 10 * 4 * (6 + 3)
    assert (given.keys_and_values(1), given.keys_and_values(4)) == (4 * 9, 9)
    plain = layer(latent={name: size for name, size in LATENT.items() if name != "q_lora_rank"}, ffn_hidden=16)
    # Queries from the input: 16 (5 + 2) = 112 whole, 4 (16 x 6 + 5 x 7 + 3 x 16) = 716 by heads, norm 5.
    assert plain.parameters() == 112 + 716 + 5 + 32 + 768


def test_keys_and_values_of_plain_attention_are_replicated_by_few_heads() -> None:
    """Two key-value heads of 4 channels are 16 wide with their values, on two ranks and more 8."""
    given = layer(kv_heads=2)
    assert [given.keys_and_values(tp) for tp in (1, 2, 4)] == [16, 8, 8]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latent": LATENT, "kv_heads": 2}, "expected no head_dim, kv_heads or qk_norm"),
        ({"latent": LATENT, "qk_norm": True}, "expected no head_dim, kv_heads or qk_norm"),
        ({"latent": LATENT, "head_dim": 8}, "expected no head_dim, kv_heads or qk_norm"),
        ({"latent": {**LATENT, "v_head_dim": 0}}, "latent.v_head_dim: is 0, expected to be greater than 0"),
        (
            {"experts": {**EXPERTS, "experts_per_token": 5}},
            r"experts_per_token is 5, expected at most num_experts \(4\)",
        ),
        ({"experts": {"num_experts": 4}}, "experts.experts_per_token: missing"),
    ],
)
def test_impossible_layers_are_refused(changes: dict[str, Any], words: str) -> None:
    """The message names the field, its value and what was expected."""
    with pytest.raises(DataError, match=words):
        layer(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dense_layers": 1}, "expected experts too"),
        ({"expert_period": 2}, "expected experts too"),
        ({"full_attention_period": 2}, "expected an attention_window with it"),
        ({"experts": EXPERTS, "dense_layers": 2}, "leave no layer with them"),
        ({"experts": EXPERTS, "layers": [{"hidden": 16, "heads": 4, "seq": 10}]}, "belong to the entries of a list"),
    ],
)
def test_impossible_stacks_are_refused(changes: dict[str, Any], words: str) -> None:
    """What says which layers have experts or windows needs them beside it, and leaves some."""
    shape = {"layers": 2, "hidden": 16, "heads": 4, "seq": 10} if "layers" not in changes else {}
    with pytest.raises(DataError, match=words):
        ModelSpec.parse({"name": "experts", **shape, **changes}, "experts.yaml")
