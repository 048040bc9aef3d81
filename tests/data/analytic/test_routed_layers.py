"""Work and kept bytes of layers with experts and latent attention: by hand, and against dense layers."""

from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs, kept_bytes, layer_shape
from taut.data.analytic.layer_work import block_passes
from taut.data.analytic.operator_times import OperatorModel
from taut.data.analytic.routed_layers import TOGETHER, ExpertRanks, Kept, routed_kept, routed_passes, routing_bytes
from taut.data.costs import Key
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec

DEVICE = DeviceSpec.parse(
    {
        **{"name": "d", "memory_gib": 80, "peak_tflops": {"bf16": 100, "fp8": 200}, "memory_bandwidth_gbytes": 1000},
        **{"gemm_efficiency": 0.5, "attention_efficiency": 0.5, "launch_us": 0},
    },
    "d",
)
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 128, "shared_ffn_hidden": 64}
RANKS = ExpertRanks(4, 1)
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def layer(**changes: Any) -> LayerSpec:
    return LayerSpec.parse({"hidden": 64, "heads": 4, "seq": 32, "gated_mlp": True, **changes}, "layer")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tp", [1, 2])
def test_dense_layers_have_the_same_work_and_bytes(gated: bool, tp: int) -> None:
    """Without experts and latent attention these are the costs of a dense layer."""
    given, rates = layer(gated_mlp=gated, kv_heads=2), rates_of(DEVICE, "bf16", None)
    shape = layer_shape(given, tp, 3)
    for found, dense in zip(routed_passes(given, shape, tp, rates), block_passes(shape, rates), strict=True):
        np.testing.assert_allclose(found, dense, rtol=1e-15)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("gated", [False, True])
def test_dense_layers_keep_the_same_bytes(precision: Precision, fused: bool, products: bool, gated: bool) -> None:
    """In every precision, recompute and stack."""
    given = layer(gated_mlp=gated, kv_heads=2)
    how: dict[str, Any] = {"fused_attention": fused, "selective_products": products, "fp8_inputs": True}
    rates = rates_of(DEVICE, precision, None, **how)
    for recompute in ("none", "selective", "full"):
        assert routed_kept(given, recompute, 96, rates) == (*kept_bytes(given, recompute, 96, rates), 0)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("parts", [{"experts": EXPERTS}, {"latent": LATENT}, {"experts": EXPERTS, "latent": LATENT}])
def test_products_have_the_layers_flop(parts: dict[str, Any], tp: int) -> None:
    """At a rate of 50 TFLOP/s, with what ranks repeat counted on each of them."""
    given, rates = layer(**parts), rates_of(DEVICE, "bf16", None)
    forward, input_grad, weight_grad = routed_passes(given, layer_shape(given, tp, 3), tp, rates)
    used = given.matrix_parameters(tp) - given.unused_parameters // tp
    assert forward[0] == pytest.approx(2 * 96 * used / 50e12)
    assert input_grad[0] == weight_grad[0] == pytest.approx(forward[0])
    assert forward[1] == pytest.approx(3 * given.attention_flops() / tp / 50e12)


def test_what_experts_keep_by_hand() -> None:
    """Of 10 tokens: norms, inputs and scores; queries to the parts' functions; two inputs of experts whole."""
    given, rates = layer(experts=EXPERTS), rates_of(DEVICE, "bf16", None)
    # Norms' inputs 2 x 64 x 2, attention's and feed-forward part's 2 x 64 x 2, scores 12 x 8 = 608 a token.
    # Queries, keys, values and output 4 x 64, before the function 2 (2 x 128 + 64), after it 320: 1216 of 2 bytes.
    # The experts' inputs: 2 x 64 of 2 bytes.
    assert routed_kept(given, "none", 10, rates) == Kept(6080, 24_320, 2560)
    assert routed_kept(given, "full", 10, rates) == Kept(1280, 0, 0)
    model = ModelSpec.parse({"name": "m", "layers": [{**given.model_dump(), "seq": 10}]}, "m")
    costs = analytic_costs(model, [DEVICE], precision="bf16", tensor_degrees=[2], micro_batches=[1])
    row = costs.by_key[Key("d", "block", 2, 1, 10, "none")]
    assert row.activation_bytes == 6080 + 12_160 + 2560
    assert row.activation_bytes_sp == (6080 + 24_320) // 2 + 2560


def test_what_latent_attention_keeps_by_hand() -> None:
    """Of 10 tokens also what is compressed, 48 wide, and its norm, 40 wide; by heads 24 + 24 + 16 + 16 channels."""
    given, rates = layer(latent=LATENT, ffn_hidden=100), rates_of(DEVICE, "bf16", None)
    # 2 x 64 x 2 + 2 x 64 x 2 + 48 x 2 + 40 x 2 = 688; (4 x 80 + 2 x 100 + 100) x 2 = 1240.
    assert routed_kept(given, "none", 10, rates) == Kept(6880, 12_400, 0)


@pytest.mark.parametrize(("precision", "taken"), [("bf16", 2), ("fp8", 1)])
def test_what_mamba_2_keeps_by_hand(precision: Precision, taken: int) -> None:
    """Columns, and channels before and behind their gate and behind the norm; its kernel convolves again."""
    mixer = {"key_dim": 128, "value_dim": 64, "made": 10304, "convolved": 6144, "taps": 4, "chunk": 128}
    sizes = {"hidden": 2688, "heads": 64, "only": "attention", "dropout": False, "gated_mlp": False}
    given, rates = layer(**sizes, mixer=mixer), rates_of(DEVICE, precision, None, fp8_inputs=True)
    # Nemotron 3 Nano's 64 heads of 64 channels: (10304 + 2 x 4096) x 2 bytes, and 4096 as the product takes them.
    columns = 10 * (10304 + 2 * 4096) * 2
    assert routed_kept(given, "none", 10, rates) == Kept(10 * 2688 * (2 + taken), columns + 10 * 4096 * taken, 0)
    # The delta rule's kernel takes what is convolved; no copy of its output stays beside the product's but in fp8.
    given = layer(**sizes, mixer={**mixer, "delta_rule": True})
    assert routed_kept(given, "none", 10, rates).split == columns + 10 * (6144 * 2 + 4096 * (precision == "fp8"))


def test_experts_read_their_weights_once_each() -> None:
    """Few tokens take as long as reading the weights of the experts that they chose, and many as their FLOP."""
    times = {"product": 1.0, "sustained": 0.0, "output": 0.0, "inputs": 1.0, "launch": 1e-6}
    model = rates_of(DEVICE, "bf16", None).operators
    assert isinstance(model, OperatorModel)
    model = model.model_copy(update={"gemm": times})
    # 8 products of 4 x 128 x 64: 8 x 65,536 FLOP at 1e14, 8 x 2 (4 + 128) 64 bytes at 1e12, one launch.
    found = model.gemm_seconds(4, 128, 64, 8)
    assert found == pytest.approx(8 * 65_536 / 1e14 + 8 * 2 * 132 * 64 / 1e12 + 1e-6)
    assert model.gemm_seconds(4, 128, 64) == model.gemm_seconds(4, 128, 64, 1)


def test_rows_of_experts_are_put_in_order_once_where_all_tokens_are_gathered() -> None:
    """On 4 ranks 96 tokens with 2 rows of 64 in 2 bytes: 4 times 2 rows, and 4 rows that begin as 0."""
    given, shape = layer(experts=EXPERTS), layer_shape(layer(experts=EXPERTS), 1, 3)
    traded, gathered = (
        routing_bytes(given, shape, 1, rates_of(DEVICE, "bf16", None, summed=summed), RANKS) for summed in (0, 2)
    )
    row, scores = 64 * 2, 12 * 8
    assert gathered == 96 * ((4 * 2 + 4) * row + scores)
    assert traded == 96 * (2 * 4 * 2 * row + scores)


def test_kernels_that_are_not_fused_move_rows_more_often() -> None:
    """Of 96 tokens with 2 rows of 64 in 2 bytes: 7.5 times in the place of 4, and 4 more with ranks as before."""
    given, shape = layer(experts=EXPERTS), layer_shape(layer(experts=EXPERTS), 1, 3)
    rates = rates_of(DEVICE, "bf16", None, row_moves=7.5)
    alone, traded = (routing_bytes(given, shape, 1, rates, ranks) for ranks in (TOGETHER, RANKS))
    row, scores = 64 * 2, 12 * 8
    assert alone == 96 * (7.5 * 2 * row + scores)
    assert traded == 96 * ((7.5 + 4) * 2 * row + scores)


def test_outputs_that_are_summed_in_a_wider_format_are_cast() -> None:
    """On 4 ranks each of 96 tokens has 4 rows of 64, and one sum: read in 2 and written in 4 bytes, or the reverse."""
    given, shape = layer(experts=EXPERTS), layer_shape(layer(experts=EXPERTS), 1, 3)
    alike, wide = (
        routing_bytes(given, shape, 1, rates_of(DEVICE, "bf16", None, summed=summed), RANKS) for summed in (2, 4)
    )
    assert wide - alike == 96 * (4 + 1) * 64 * (2 + 4)


def test_the_fullest_of_several_ranks_has_more_rows_of_experts_alone() -> None:
    """At 50 TFLOP/s half as many rows more: 0.5 * 2 experts of width 128 for 96 tokens, three matrices 64 wide."""
    given, ranks = layer(experts=EXPERTS), RANKS
    even, uneven = (rates_of(DEVICE, "bf16", None, imbalance=factor) for factor in (1.0, 1.5))
    shape = layer_shape(given, 1, 3)
    more = routed_passes(given, shape, 1, uneven, ranks).forward - routed_passes(given, shape, 1, even, ranks).forward
    assert more[0] == pytest.approx(0.5 * 2 * 2 * 96 * 3 * 64 * 128 / 50e12)
    kept = [routed_kept(given, "none", 96, rates) for rates in (even, uneven)]
    # Half as much again of inputs, and of three times the inner width, in 2 bytes.
    assert kept[1].whole - kept[0].whole == 0.5 * 2 * 96 * 64 * 2
    assert kept[1].split - kept[0].split == 0.5 * 2 * 96 * 3 * 128 * 2
