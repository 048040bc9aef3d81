"""What offload of named modules moves of a layer's activations, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs, kept_of
from taut.data.analytic.offload_modules import conflict, offloaded
from taut.data.analytic.routed_layers import Kept
from taut.data.costs import OFFLOAD_MODULES, CostRow, Key, Module, OffloadModule
from taut.data.model import ModelSpec
from tests.data.analytic.test_routed_layers import DEVICE, EXPERTS, LATENT, layer

TOKENS = 96
RATES = rates_of(DEVICE, "bf16", None)
NORM = 12_288
"""96 tokens of 64 channels of 2 bytes."""


@pytest.mark.parametrize(
    ("module", "parts", "moved"),
    [
        # The norm before plain attention is part of the product's kernel, and goes with it.
        ("attn_norm", {}, (0, 0, 0)),
        ("attn_norm", {"latent": LATENT}, (NORM, 0, 0)),
        ("qkv_linear", {}, (2 * NORM, 0, 0)),
        # 96 * 2 for each of the 24 + 16 + 8 compressed channels, and for the 40 of them that pass a norm.
        ("qkv_linear", {"latent": LATENT}, (NORM + 192 * (48 + 40), 0, 0)),
        # Queries, keys and values of 4 heads of 16 channels; of latent attention 96 + 96 + 64 channels.
        ("core_attn", {}, (0, 3 * NORM, 0)),
        ("core_attn", {"latent": LATENT}, (0, 49_152, 0)),
        ("attn_proj", {}, (0, NORM, 0)),
        ("mlp_norm", {}, (0, 0, 0)),
        ("mlp_norm", {"experts": EXPERTS}, (NORM, 0, 0)),
        # 2 experts of 8 take a token: 96 * 2 * 64 * 2; 96 * 2 * 2 * 128 * 2 before their function, half behind it.
        ("expert_fc1", {"experts": EXPERTS}, (0, 0, 2 * NORM)),
        ("expert_fc1", {}, (0, 0, 0)),
        ("moe_act", {"experts": EXPERTS}, (0, 98_304, 0)),
        ("fused_group_mlp", {"experts": EXPERTS}, (0, 98_304 + 49_152, 2 * NORM)),
    ],
)
def test_what_goes_to_the_host(module: OffloadModule, parts: dict[str, Any], moved: tuple[int, int, int]) -> None:
    """Bytes that sequence parallelism shares, that tensor ranks share anyhow, and that each has whole."""
    assert offloaded(layer(**parts), [module], "none", [], TOKENS, RATES) == Kept(*moved)


@pytest.mark.parametrize(
    ("module", "recomputed", "parts", "less"),
    [
        ("core_attn", "core_attn", {}, 3 * NORM),
        ("core_attn", "mla_up_proj", {"latent": LATENT}, 49_152),
        ("qkv_linear", "layernorm", {"latent": LATENT}, NORM),
        ("qkv_linear", "layernorm", {}, 0),
        ("fused_group_mlp", "moe_act", {"experts": EXPERTS}, 49_152),
        ("moe_act", "moe_act", {"experts": EXPERTS}, 0),
    ],
)
def test_what_recompute_drops_does_not_go(
    module: OffloadModule, recomputed: Module, parts: dict[str, Any], less: int
) -> None:
    """Selective recompute of a module takes its own from what goes, and full recompute all of it."""
    given = layer(**parts)
    plain = offloaded(given, [module], "none", [recomputed], TOKENS, RATES)
    again = offloaded(given, [module], "selective", [recomputed], TOKENS, RATES)
    assert sum(plain) - sum(again) == less
    assert offloaded(given, [module], "full", [recomputed], TOKENS, RATES) == Kept(0, 0, 0)


@pytest.mark.parametrize("kept_of_block", [256, 128, 132, 72])
@pytest.mark.parametrize(
    "parts", [{}, {"latent": LATENT}, {"experts": EXPERTS}, {"latent": LATENT, "experts": EXPERTS}]
)
def test_no_more_goes_than_is_kept(kept_of_block: int, parts: dict[str, Any]) -> None:
    """All modules together move no more than the layer keeps, whatever is recomputed and however products keep it."""
    rates = replace(RATES, kept=kept_of_block)
    every = [module for module in OFFLOAD_MODULES if module not in ("expert_fc1", "moe_act")]
    again: tuple[tuple[str, tuple[Module, ...]], ...] = (
        *(("none", ()), ("selective", ("core_attn",)), ("selective", ("layernorm", "mla_up_proj", "moe_act"))),
        ("full", ()),
    )
    for recompute, modules in again:
        kept = kept_of(layer(**parts), recompute, TOKENS, rates, 0.5, modules)
        moved = offloaded(layer(**parts), every, recompute, modules, TOKENS, rates, 0.5)
        assert all(away <= whole for away, whole in zip(moved, kept, strict=True)), (recompute, modules)


def test_a_table_has_them() -> None:
    """Rows say what goes, on tensor ranks a part of it, and those of a table without modules say nothing."""
    model = ModelSpec.parse({"name": "m", "layers": 2, "hidden": 64, "heads": 4, "seq": 32, "gated_mlp": True}, "m")
    usual: dict[str, Any] = {"precision": "bf16", "tensor_degrees": [1, 2], "micro_batches": [3]}
    found = analytic_costs(model, [DEVICE], **usual, offload_modules=["qkv_linear", "core_attn"])
    plain = analytic_costs(model, [DEVICE], **usual)
    one, two = (found.at(Key("d", "block", tp, 3, 32, "none")) for tp in (1, 2))
    assert (one.offload_bytes, one.offload_bytes_sp) == (5 * NORM, 5 * NORM)
    assert (two.offload_bytes, two.offload_bytes_sp) == (2 * NORM + 3 * NORM // 2, 5 * NORM // 2)
    assert all(row.offload_bytes == row.offload_bytes_sp == 0 for row in plain.rows)
    assert "offload_bytes" not in plain.rows[0].model_dump() and "offload_bytes" in found.rows[0].model_dump()
    without = [CostRow(**{**row.model_dump(), "offload_bytes": 0, "offload_bytes_sp": 0}) for row in found.rows]
    assert without == plain.rows


def test_modules_that_do_not_go_together() -> None:
    """An output that another module keeps, a part beside the whole, and what is inside of a recomputed part."""
    assert "attn_proj without core_attn" in conflict(["attn_proj"])
    assert "fused_group_mlp beside moe_act" in conflict(["moe_act", "fused_group_mlp"])
    assert "expert_fc1 beside recompute of moe" in conflict(["expert_fc1"], ["moe"])
    assert conflict(["core_attn", "attn_proj", "expert_fc1", "moe_act"], ["layernorm", "moe_act"]) == ""
