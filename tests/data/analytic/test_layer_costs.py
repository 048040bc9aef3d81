"""The analytic costs against hand-computed seconds and the published activation formulas."""

from typing import Any

import pytest

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.calibration import uncalibrated
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_devices
from taut.data.costs import CostTable, Key, LayerCost
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.errors import DataError

S, B, H, A = 100, 2, 64, 4
"""Tokens, micro-batch, hidden size, heads."""
PLAIN = ModelSpec(name="plain", layers=2, hidden=H, heads=A, seq=S)
GATED = PLAIN.model_copy(update={"gated_mlp": True})


def device(gbytes: float = 1000) -> DeviceSpec:
    """1 TFLOP/s at efficiencies 1/2 (matrix products) and 1/4 (attention), 10 us per launch, all of the bandwidth."""
    return DeviceSpec(
        name="d",
        memory_gib=1,
        peak_tflops={"bf16": 1, "fp32": 0.5, "fp8": 2, "mxfp8": 2, "nvfp4": 4},
        memory_bandwidth_gbytes=gbytes,
        gemm_efficiency=0.5,
        attention_efficiency=0.25,
        memory_efficiency=1.0,
        launch_us=10,
    )


def table(
    model: ModelSpec = PLAIN, *, gbytes: float = 1000, precision: Precision = "bf16", fused: bool = True, **kept: Any
) -> CostTable:
    return analytic_costs(
        model,
        [device(gbytes)],
        precision=precision,
        tensor_degrees=[1, 2, 4],
        micro_batches=[1, B],
        fused_attention=fused,
        **kept,
    )


def cost(found: CostTable, tp: int = 1, recompute: str = "none", kind: str = "block") -> LayerCost:
    return found.at(Key("d", kind, tp, B, S, recompute))


def test_layer_bound_by_matrix_products() -> None:
    """On a device with plenty of bandwidth a layer takes its FLOP over the reached rate, and little for traffic."""
    # 12 h^2 = 49,152 parameters, 200 tokens: 2 x 200 x 49,152 / 0.5e12 = 39.3216 us; attention
    # 4 x 2 x 100 x 100 x 64 / 0.25e12 = 20.48 us; the rest moves 2 x 200 x (640 + 1024) bytes in 0.6656 us.
    # Launches of 10 us lengthen 60.4672 us to (60.4672 ** 1.5 + 10 ** 1.5) ** (2 / 3) = 63.1488 us.
    found = cost(table())
    assert found.forward == pytest.approx(63.14881e-6, rel=1e-6)
    # Backward the core takes 51.2 us: 91.1872 us of work.
    assert found.input_grad == pytest.approx(93.38176e-6, rel=1e-6)
    assert found.weight_grad == pytest.approx(42.61552e-6, rel=1e-6)


def test_layer_bound_by_memory() -> None:
    """On a device with little bandwidth the traffic takes most of the time."""
    # At 1 GB/s the rest's 665,600 bytes take 665.6 us: 725.4016 us of work.
    found = cost(table(gbytes=1))
    assert found.forward == pytest.approx(726.18413e-6, rel=1e-6)
    assert found.weight_grad == pytest.approx(42.61552e-6, rel=1e-6)


def test_tensor_ranks_share_products_and_attention() -> None:
    """Two ranks halve products and attention; of the rest only the feed-forward part's traffic is shared."""
    # 19.6608 us and 10.24 us; the rest moves 2 x 200 x (640 + 512) bytes in 0.4608 us: 30.3616 us of work.
    assert cost(table(), tp=2).forward == pytest.approx(34.07621e-6, rel=1e-6)


def test_precision_chooses_rate_and_bytes() -> None:
    """In fp32 the rate is the fp32 rate and every element takes four bytes."""
    # 78.6432 us and 40.96 us at half the rate; 1.3312 us of twice the bytes: 120.9344 us of work.
    assert cost(table(precision="fp32")).forward == pytest.approx(122.84393e-6, rel=1e-6)


def test_recompute_does_forward_work_again() -> None:
    """Selective recompute adds the attention core's forward, full recompute the layer's, to the input gradient."""
    found = table()
    none = cost(found)
    assert cost(found, recompute="selective").input_grad == pytest.approx(none.input_grad + 20.48e-6)
    assert cost(found, recompute="full").input_grad == pytest.approx(none.input_grad + none.forward)
    assert cost(found, recompute="full").forward == none.forward


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_activations_follow_korthikanti(tp: int) -> None:
    """A plain layer keeps sbh (10 + 24/t) bytes, and sbh 34/t with sequence parallelism (their eqs. 2 and 4)."""
    # sbh = 12,800: 435,200 bytes on one rank; 281,600 and 204,800 on two and four, 217,600 and 108,800 sharded.
    found = cost(table(), tp=tp)
    assert found.activation_bytes == S * B * H * (10 * tp + 24) // tp
    assert found.activation_bytes_sp == 34 * S * B * H // tp


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_unfused_attention_keeps_its_scores(tp: int) -> None:
    """Without a fused kernel the scores add sbh x 5as/h / t bytes, which selective recompute gives up again."""
    fused, unfused = table(), table(fused=False)
    # 5 a s / h = 31.25, so 12,800 x 31.25 = 400,000 bytes on one rank.
    scores = 400_000 // tp
    assert cost(unfused, tp).activation_bytes == cost(fused, tp).activation_bytes + scores
    assert cost(unfused, tp).activation_bytes_sp == cost(fused, tp).activation_bytes_sp + scores
    for found in (fused, unfused):
        assert cost(found, tp, "selective").activation_bytes == cost(fused, tp).activation_bytes


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_full_recompute_keeps_the_layers_input(tp: int) -> None:
    """Full recompute keeps 2sbh bytes, divided by t with sequence parallelism."""
    found = cost(table(), tp, "full")
    assert found.activation_bytes == 2 * S * B * H
    assert found.activation_bytes_sp == 2 * S * B * H // tp


def test_layers_without_dropout_keep_no_masks() -> None:
    """Two masks of a byte an element are all that dropout adds, and a gated layer may have it too."""
    sbh = S * B * H
    dry = PLAIN.model_copy(update={"dropout": False})
    assert cost(table(dry)).activation_bytes == cost(table()).activation_bytes - 2 * sbh
    wet = GATED.model_copy(update={"dropout": True})
    assert cost(table(wet)).activation_bytes == cost(table(GATED)).activation_bytes + 2 * sbh


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_every_second_product_is_kept(tp: int) -> None:
    """Selective recompute by products keeps input, queries, values, core, the first product after it and the last."""
    sbh = S * B * H
    plain = cost(table(selective_products=True), tp, "selective")
    # 2 sbh of input; over ranks 2 x (2 + 1 + 4) sbh: queries and core, values, four hidden sizes of the first product.
    assert plain.activation_bytes == 2 * sbh + 14 * sbh // tp
    assert plain.activation_bytes_sp == 16 * sbh // tp
    gated = cost(table(GATED, selective_products=True), tp, "selective")
    assert gated.activation_bytes == 4 * sbh + 14 * sbh // tp
    assert cost(table(selective_products=True), tp) == cost(table(), tp)


def test_transformer_engine_keeps_fp8_inputs_in_a_byte() -> None:
    """Inputs of the products take one byte where the stack keeps them as cast, two where it keeps them in bf16."""
    wide = cost(table(GATED, precision="fp8")).activation_bytes
    narrow = cost(table(GATED, precision="fp8", fp8_inputs=True)).activation_bytes
    assert narrow < wide
    assert cost(table(GATED, fp8_inputs=True)) == cost(table(GATED))


def test_gated_layer_keeps_three_widths_and_no_masks() -> None:
    """A gated layer keeps four inputs (8 sbh), four projections (8 sbh) and three feed-forward widths (24 sbh)."""
    assert cost(table(GATED)).activation_bytes == 40 * S * B * H


@pytest.mark.parametrize(("precision", "bytes_of_an_input"), [("fp8", 2.0), ("mxfp8", 1.03125), ("nvfp4", 0.5625)])
def test_products_keep_their_inputs_as_cast(precision: Precision, bytes_of_an_input: float) -> None:
    """A gated layer keeps two norm inputs, queries to output and two widths in bf16, and seven inputs of products."""
    found = cost(table(GATED, precision=precision)).activation_bytes
    # Widths in hidden sizes: 2 + 4 + 8 in bf16; as cast 2 into the blocks, 1 into the output, 4 down. In fp8 the
    # output is not another copy.
    inputs = 2 + 4 + (0 if precision == "fp8" else 1)
    assert found == (2 * 14 + bytes_of_an_input * inputs) * S * B * H


def test_embedding_and_head_are_priced_with_a_vocabulary() -> None:
    """The embedding is traffic alone; the head is a matrix product over the padded vocabulary and its fp32 logits."""
    found = table(PLAIN.model_copy(update={"vocab": 1000}))
    # 2 x 2 x 12,800 bytes of traffic take 0.0512 us, beside launches of 10 us; one mask byte an element stays.
    embedding = cost(found, kind=EMBEDDING)
    assert embedding.forward == pytest.approx(10.00244e-6, rel=1e-6)
    assert embedding.input_grad == 0.0
    assert embedding.activation_bytes == 12_800
    # 1024 x 64 parameters: 2 x 200 x 65,536 / 0.5e12 = 52.4288 us; logits of 4 x 200 x 1024 = 819,200 bytes,
    # written and read in 1.6384 us: 54.0672 us of work.
    head = cost(found, kind=HEAD)
    assert head.forward == pytest.approx(56.89757e-6, rel=1e-6)
    assert head.activation_bytes == 2 * 2 * 12_800 + 819_200
    assert not table().prices(Key("d", HEAD, 1, B, S, "none"))


def test_optimizer_moves_thirty_bytes_a_parameter() -> None:
    """The optimizer's price is 30 bytes over the memory bandwidth."""
    assert table().optimizer_s_per_parameter == {"d": pytest.approx(30 / 1e12)}


def test_degrees_that_do_not_divide_a_layer_are_not_priced() -> None:
    """Where four ranks cannot share three heads, there is no row for four ranks."""
    odd = ModelSpec(name="odd", layers=1, hidden=48, heads=3, seq=S)
    assert {row.tp for row in table(odd).rows} == {1}


def test_basis_states_the_assumptions() -> None:
    """The table says that nothing was measured, and which efficiencies were assumed."""
    assert table().basis.startswith("analytic, not measured")
    assert (
        "d: gemm 0.5 and attention 0.25 of peak, memory 1 of peak, launch 10 us (no operator model was fitted)"
        in table().basis
    )


@pytest.mark.parametrize(
    ("precision", "words"),
    [
        ("bf16", "(products off by 5.7%, attention off by 8.0% on unseen shapes)"),
        (
            "fp8",
            "(products off by 5.7%, attention off by 8.0% on unseen shapes, carried from half precision to fp8 unfit",
        ),
        ("fp8-blockwise", "(products off by 15.3%, attention off by 8.0% on unseen shapes)"),
    ],
)
def test_basis_says_what_was_fitted_in_the_precision(precision: Precision, words: str) -> None:
    """The errors are those of the precision's own products; what was fitted in another one is called unfitted."""
    h100 = catalog_devices()["h100-80gb"]
    found = analytic_costs(
        PLAIN, [h100], precision=precision, tensor_degrees=[1], micro_batches=[1], operators=catalog_operators()
    )
    assert f"h100-80gb: operator model {words}" in found.basis


def test_precision_without_a_rate_is_refused() -> None:
    """A device that does not compute in the asked precision is named with what it offers."""
    with pytest.raises(DataError, match="device d: no peak rate for precision fp16, expected one of bf16, fp32"):
        table(precision="fp16")


def test_absurd_activations_saturate_beyond_every_device() -> None:
    """Figures above a pebibyte stay a pebibyte, which no device has, so that sums of them stay in range."""
    # 34 x 1000 x 10^7 x 10^4 = 3.4e15 bytes, above 2^50 = 1.13e15.
    huge = ModelSpec(name="huge", layers=1, hidden=10_000, heads=1, seq=10_000_000)
    found = analytic_costs(huge, [device()], precision="bf16", tensor_degrees=[1], micro_batches=[1000])
    assert found.rows[0].activation_bytes == found.rows[0].activation_bytes_sp == 2**50


def test_graphs_take_launches_away_but_not_the_waits_of_ranks() -> None:
    """One rank has no launches; several wait as an H100 by itself does not hide; nothing recomputed whole has rows."""
    # 60.4672 us of work by the first test; with tp 2 half of the products and attention, and what they move:
    # (work ** 1.5 + 10 ** 1.5) ** (2 / 3) less (work ** 4 + 10 ** 4) ** (1 / 4), beside the work.
    graphs = uncalibrated(device()).model_copy(update={"features": ["one-stage-graph"]})
    found, plain = table(calibration=graphs), table(calibration=uncalibrated(device()))
    one = found.at(Key("d", "block", 1, B, S, "none", recorded=True))
    assert one.forward == pytest.approx(60.4672e-6, rel=1e-6)
    together = found.at(Key("d", "block", 2, B, S, "none")).forward
    work = 1e-6 * (60.4672 - (39.3216 + 20.48) / 2 - 200 * (4 * H + 4 * H) / 2 * 2 / 1e6)
    two = found.at(Key("d", "block", 2, B, S, "none", recorded=True)).forward
    assert work < two < together
    assert not found.prices(Key("d", "block", 1, B, S, "full", recorded=True))
    assert [row for row in found.rows if not row.recorded] == plain.rows
