"""What recompute of named modules does again and need not keep, by hand."""

from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs, layer_shape
from taut.data.analytic.recompute_modules import dropped, recomputed_terms, usual_modules
from taut.data.analytic.routed_layers import Kept, routed_kept, routed_passes
from taut.data.costs import MODULES, Key, Module
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from tests.data.analytic.test_routed_layers import DEVICE, EXPERTS, LATENT, layer

TOKENS = 96
RATES = rates_of(DEVICE, "bf16", None)


@pytest.mark.parametrize(
    ("module", "parts", "kept"),
    [
        # 2 experts of width 128 for each of 96 tokens of 2 bytes: 96 * 2 * 128 * 2.
        ("moe_act", {"experts": EXPERTS}, (0, 49_152, 0)),
        # Before it twice as wide, as it is gated: three times 96 * 64 * 2.
        ("shared_experts", {"experts": EXPERTS}, (0, 36_864, 0)),
        # Scores of 12 bytes for 8 experts; three times 96 * (2 * 128 + 64) * 2; inputs of 2 experts, 96 * 2 * 64 * 2.
        ("moe", {"experts": EXPERTS}, (9_216, 184_320, 24_576)),
        ("layernorm", {"experts": EXPERTS}, (12_288, 0, 0)),
        ("layernorm", {"experts": EXPERTS, "latent": LATENT}, (24_576, 0, 0)),
        ("layernorm", {}, (0, 0, 0)),
        # Queries and keys of 4 heads of 24 channels, values of 16: 96 * (96 + 96 + 64) * 2.
        ("mla_up_proj", {"latent": LATENT}, (0, 49_152, 0)),
        ("mla_up_proj", {"experts": EXPERTS}, (0, 0, 0)),
        # The norm of its input, and three times the width of 256.
        ("mlp", {}, (12_288, 147_456, 0)),
        ("mlp", {"experts": EXPERTS}, (0, 0, 0)),
    ],
)
def test_what_is_not_kept(module: Module, parts: dict[str, Any], kept: tuple[int, int, int]) -> None:
    """Bytes that sequence parallelism shares, that tensor ranks share anyhow, and that each has whole."""
    given = layer(**parts)
    assert dropped(given, [module], TOKENS, RATES) == Kept(*kept)
    whole = routed_kept(given, "none", TOKENS, RATES)
    assert all(mine >= its for mine, its in zip(whole, dropped(given, MODULES, TOKENS, RATES), strict=True))


def test_a_dense_part_is_done_again_with_its_products() -> None:
    """At 50 TFLOP/s: 2 FLOP for each of 96 tokens, 64 channels and three matrices 256 wide; 4 of 2 bytes an output."""
    given, shape = layer(), layer_shape(layer(), 1, 3)
    forward = routed_passes(given, shape, 1, RATES).forward
    again = recomputed_terms(given, shape, 1, RATES, forward, ["mlp"])
    np.testing.assert_allclose(again[:3], [2 * TOKENS * 64 * 3 * 256 / 50e12, 0.0, 4 * 2 * TOKENS * 256 / 1e12])
    assert 0.0 <= again[3] < forward[3] or forward[3] == 0.0


@pytest.mark.parametrize("tp", [1, 2])
def test_all_of_a_feed_forward_part_and_attention_are_less_than_a_forward_pass(tp: int) -> None:
    """Modules that hold others stand for both, and all together are no more than full recompute."""
    given = layer(experts=EXPERTS, latent=LATENT)
    shape = layer_shape(given, tp, 3)
    forward = routed_passes(given, shape, tp, RATES).forward
    every = recomputed_terms(given, shape, tp, RATES, forward, MODULES)
    assert (every <= forward * (1 + 1e-12)).all()
    named: list[Module] = [module for module in MODULES if module not in ("moe_act", "shared_experts")]
    np.testing.assert_array_equal(every, recomputed_terms(given, shape, tp, RATES, forward, named))


def test_a_table_has_them_under_selective() -> None:
    """The rows of selective recompute alone differ, and the core alone is what no name stands for."""
    shape = {"layers": 2, "hidden": 64, "heads": 4, "seq": 32, "gated_mlp": True, "experts": EXPERTS}
    model = ModelSpec.parse({"name": "m", **shape}, "m")
    usual: dict[str, Any] = {"precision": "bf16", "tensor_degrees": [1, 2], "micro_batches": [1]}
    plain = analytic_costs(model, [DEVICE], **usual)
    core = analytic_costs(model, [DEVICE], **usual, recompute_modules=["core_attn"])
    for mine, other in zip(plain.rows, core.rows, strict=True):
        assert mine.input_grad_s == pytest.approx(other.input_grad_s)
        assert mine.activation_bytes == other.activation_bytes
    found = analytic_costs(model, [DEVICE], **usual, recompute_modules=["moe_act"])
    key = Key("d", "block", 1, 1, 32, "selective")
    assert plain.at(key).activation_bytes - found.at(key).activation_bytes == 32 * 2 * 128 * 2
    assert plain.at(key._replace(recompute="full")) == found.at(key._replace(recompute="full"))


def test_usual_modules_are_those_of_the_models_layers() -> None:
    """Dense models have the attention core, models with experts what their recipes recompute."""
    assert usual_modules(False, False) == []
    assert usual_modules(False, True) == ["layernorm", "moe_act"]
    assert usual_modules(True, True) == ["mla_up_proj", "layernorm", "moe_act"]


def test_norms_of_queries_and_keys_are_kept_twice() -> None:
    """Four heads of 16 channels and two of keys: 96 * (64 + 32) * 2 bytes more, and 2 * 16 parameters."""
    plain = layer(experts=EXPERTS, kv_heads=2)
    normed = LayerSpec.parse({**plain.model_dump(), "qk_norm": True}, "layer")
    assert normed.parameters() - plain.parameters() == 32
    kept = [routed_kept(each, "none", TOKENS, RATES) for each in (plain, normed)]
    assert kept[1].split - kept[0].split == TOKENS * (64 + 32) * 2
