"""Layers with one part only, keys and values made otherwise, further products, streams, and layers beside them."""

from typing import Any

import pytest

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.catalog.builtin import catalog_clusters
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.errors import DataError

SIZES: dict[str, Any] = {"hidden": 64, "heads": 8, "seq": 128, "ffn_hidden": 256, "gated_mlp": True}
MAMBA = {"key_dim": 16, "value_dim": 16, "made": 320, "convolved": 160, "taps": 4, "chunk": 32}

EXPERTS = {"num_experts": 4, "experts_per_token": 1, "expert_ffn_hidden": 8}


def layer(**changes: Any) -> LayerSpec:
    return LayerSpec.parse({**SIZES, **changes}, "layer")


def test_two_halves_are_a_layer() -> None:
    """An attention layer and a feed-forward layer have together the parameters and FLOP of a layer with both."""
    whole, attention, dense = layer(), layer(only="attention"), layer(only="feed_forward")
    assert attention.parameters() + dense.parameters() == whole.parameters()
    assert attention.forward_flops() + dense.forward_flops() == whole.forward_flops()
    assert (attention.ffn_parameters(), dense.attention_parameters()) == (0, 0)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_parameters_are_those_of_matrices(tp: int) -> None:
    """Keys and values of one matrix or none, values of their own width, products split and whole, per rank."""
    plain = layer(kv_heads=4).attention_parameters(tp)
    keys = 64 * 8 * 4 // tp
    assert layer(kv_heads=4, kv_matrices=1).attention_parameters(tp) == plain - keys
    assert layer(kv_heads=4, kv_matrices=0).attention_parameters(tp) == plain - 2 * keys
    assert layer(kv_heads=4, value_head_dim=16).attention_parameters(tp) == plain + keys + 64 * 8 * 8 // tp
    further = [{"sums": 64, "columns": 40, "mixes": True, "split": True}, {"sums": 8, "columns": 64}]
    found = layer(adjoined=further)
    assert found.attention_parameters(tp) == layer().attention_parameters(tp) + 64 * 40 // tp
    assert found.further_parameters(tp) == 8 * 64


def test_a_layer_beside_counts_with_its_layer() -> None:
    """Parameters, FLOP and what splits are sums over both; weights that an earlier layer has count once."""
    mamba = {**SIZES, "mixer": MAMBA, "only": "attention"}
    both, alone = layer(beside=mamba), layer(**mamba)
    assert both.parameters() == layer().parameters() + alone.parameters()
    assert both.forward_flops() == layer().forward_flops() + alone.forward_flops()
    assert layer(beside={**mamba, "reused": True}).own_parameters == layer().parameters()


def test_times_and_bytes_are_sums_of_parts() -> None:
    """The price of a layer with another beside it is the sum of both prices but for full recompute's kept input."""
    mamba = {**SIZES, "mixer": MAMBA, "only": "attention", "kind": "mamba"}
    layers = [{**SIZES, "kind": "plain"}, mamba, {**SIZES, "kind": "both", "beside": {**mamba, "kind": "block"}}]
    model = ModelSpec.parse({"name": "m", "layers": layers}, "m")
    device = catalog_clusters()["dgx-h100"].node_list[0].device
    costs = analytic_costs(model, [device], precision="bf16", tensor_degrees=[2], micro_batches=[1])
    rows = {(row.kind, row.recompute): row for row in costs.rows}
    for field in ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes"):
        parts = [getattr(rows[kind, "none"], field) for kind in ("plain", "mamba")]
        assert getattr(rows["both", "none"], field) == pytest.approx(sum(parts))
    assert rows["both", "full"].activation_bytes == rows["plain", "full"].activation_bytes


def test_streams_widen_hops_alone() -> None:
    """Four streams hand on four times the elements, and have no more parameters than their products."""
    assert layer(streams=4).output_elements == 4 * layer().output_elements
    assert layer(streams=4).parameters() == layer().parameters()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"only": "feed_forward", "qk_norm": True}, "no mixer, latent attention, gate or norm"),
        (
            {"only": "attention", "experts": {"num_experts": 4, "experts_per_token": 1, "expert_ffn_hidden": 8}},
            "no exp",
        ),
        ({"mixer": MAMBA, "value_head_dim": 16}, "belong to plain attention"),
        ({"beside": {**SIZES, "hidden": 128}}, "a layer of the same sizes"),
    ],
)
def test_impossible_parts_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        layer(**changes)
