"""FLOP that devices execute: a causal core's half square, and what recompute repeats."""

import pytest

from taut.data.analytic.hardware_flop import executed_flop
from taut.data.model import ModelSpec

SHAPE = {"name": "m", "layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128, "seq": 100}
CORE = 4.0 * 100 * 100 * 64
"""FLOP of a layer's core over the full square, forward."""


def model(**more: object) -> ModelSpec:
    """Two layers without a head."""
    return ModelSpec.parse({**SHAPE, **more}, "m")


def test_full_recompute_runs_the_forward_pass_again() -> None:
    """A layer multiplies 2 x 100 x (4 x 64 + 2 x 128) x 64 numbers, and half of its core's square."""
    forward = 2.0 * 100 * (4 * 64 + 2 * 128) * 64 + CORE / 2
    assert executed_flop(model(), ["none", "none"]) == pytest.approx(6 * forward)
    assert executed_flop(model(), ["none", "full"]) == pytest.approx(7 * forward)
    assert executed_flop(model(), ["full", "full"]) == pytest.approx(8 * forward)


def test_layers_for_further_tokens_run_again_as_those_of_their_stage() -> None:
    """Two further layers like the last one of 2 x 100 x (4 x 64 + 2 x 128) x 64 and half of a core's square."""
    forward = 2.0 * 100 * (4 * 64 + 2 * 128) * 64 + CORE / 2
    further = model(vocab=32, mtp_layers=2)
    none = executed_flop(further, ["none"] * 4)
    assert executed_flop(further, ["none", "none", "full", "full"]) - none == pytest.approx(2 * forward)
    assert executed_flop(further, ["full"] * 4) - none == pytest.approx(4 * forward)


def test_selective_recompute_runs_the_core_again_or_what_is_named() -> None:
    """The core by default; a dense part where it is named; products for queries, gate and output on torchtitan."""
    none, forward = executed_flop(model(), ["none", "none"]), 2.0 * 100 * 64
    assert executed_flop(model(), ["selective", "none"]) - none == pytest.approx(CORE / 2)
    assert executed_flop(model(), ["selective", "none"], ["mlp"]) - none == pytest.approx(forward * 2 * 128)
    products = (64 + 64 + 128) / (4 * 64 + 2 * 128) * forward * (4 * 64 + 2 * 128)
    again = executed_flop(model(), ["selective", "none"], (), {"selective_products": True}) - none
    assert again == pytest.approx(products)


def test_windows_mask_less() -> None:
    """With a window of 20 of 100 tokens each attends to 18 in the mean, the first ones to fewer."""
    windowed = model(attention_window=20)
    core = 4.0 * 100 * 18 * 64
    none = executed_flop(windowed, ["none", "none"])
    assert executed_flop(windowed, ["selective", "none"]) - none == pytest.approx(core)


def test_experts_run_again_as_many_as_take_a_token() -> None:
    """Two of eight experts of width 32, a router, and a shared one of width 16."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 32, "shared_ffn_hidden": 16}
    routed = model(experts=experts, gated_mlp=True)
    none = executed_flop(routed, ["none", "none"])
    every = 2.0 * 100 * 64 * (3 * 2 * 32 + 3 * 16 + 8)
    assert executed_flop(routed, ["selective", "none"], ["moe"]) - none == pytest.approx(every)
    shared = 2.0 * 100 * 64 * 3 * 16
    assert executed_flop(routed, ["selective", "none"], ["shared_experts", "moe_act"]) - none == pytest.approx(shared)


def test_latent_attention_makes_queries_keys_and_values_again() -> None:
    """From ranks of 24 and 16 to four heads of 12 + 4 and of 12 + 8 channels."""
    latent = {
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    compressed = model(latent=latent)
    none = executed_flop(compressed, ["none", "none"])
    again = executed_flop(compressed, ["selective", "none"], ["mla_up_proj"]) - none
    assert again == pytest.approx(2.0 * 100 * 4 * (24 * 16 + 16 * 20))
