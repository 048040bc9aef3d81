"""The work of a pass against hand-computed seconds, by operator model and with unhidden launches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import Rates, rates_of
from taut.data.analytic.layer_work import (
    LayerShape,
    block_passes,
    embedding_passes,
    head_passes,
    recomputed,
    selective_shares,
    whole_terms,
)
from taut.data.analytic.operator_times import OperatorModel
from taut.data.device import DeviceSpec

DEVICE = DeviceSpec(
    name="d",
    memory_gib=1,
    peak_tflops={"bf16": 1},
    memory_bandwidth_gbytes=1000,
    memory_efficiency=0.5,
    launch_us=0,
)
MODEL = OperatorModel(
    device="d",
    peak_tflops=1,
    memory_bandwidth_gbytes=1000,
    gemm={"product": 2, "sustained": 0, "output": 1, "inputs": 0, "launch": 1e-6},
    attention={"product": 4, "scores": 1, "traffic": 0, "launch": 0},
)
SHAPE = LayerShape.of(batch=2, seq=100, window=100, hidden=64, heads=4, kv_heads=4, head_dim=16, ffn=256, up=1)


def rates(launch: float = 0.0, **kept: bool) -> Rates:
    given: dict[str, Any] = kept
    return rates_of(DEVICE, "bf16", MODEL, launch=launch, **given)


def test_products_are_the_operator_models() -> None:
    """The four products of a layer are twice their FLOP over the peak, their outputs' bytes and a launch each."""
    # FLOP 2 x 200 x 49,152 = 19.66 M: 39.3216 us at twice the peak time; outputs 2 x 200 x (192 + 64 + 256 + 64) =
    # 230,400 bytes in 0.2304 us; four launches.
    forward, input_grad, weight_grad = block_passes(SHAPE, rates())
    assert forward[0] == pytest.approx(39.3216e-6 + 0.2304e-6 + 4e-6)
    # The input gradient's outputs are 200 x (64 + 64 + 64 + 256), the weight gradient's the 49,152 weights.
    assert input_grad[0] == pytest.approx(39.3216e-6 + 2 * 200 * 448 / 1e12 + 4e-6)
    assert weight_grad[0] == pytest.approx(39.3216e-6 + 2 * 49_152 / 1e12 + 4e-6)


def test_casts_to_fp8_are_traffic_of_their_own() -> None:
    """A stack that keeps inputs as cast reads 2 bytes and writes 1 twice of every input that no norm casts."""
    device = DEVICE.model_copy(update={"peak_tflops": {"bf16": 1, "fp8": 2}})
    plain, cast = (
        block_passes(SHAPE, rates_of(device, "fp8", MODEL, launch=0.0, fp8_inputs=own)) for own in (False, True)
    )
    # Forward the attention's output, 64 wide, and the function's, 256: 200 x 320 x 4 bytes in 0.256 us.
    assert cast.forward[2] - plain.forward[2] == pytest.approx(0.256e-6)
    # Backward the output gradients of the four products: 200 x (192 + 64 + 256 + 64) x 4 bytes in 0.4608 us.
    assert cast.input_grad[2] - plain.input_grad[2] == pytest.approx(0.4608e-6)
    assert cast.weight_grad.tolist() == plain.weight_grad.tolist()


def test_attention_backward_is_five_halves_forward() -> None:
    """A fused core is priced by the operator model, and its backward pass makes five products for two."""
    # 4 x 2 x 100 x 100 x 64 = 5.12 MFLOP, four times the peak time: 20.48 us; 80,000 scores of 2 bytes in 0.16 us.
    forward, input_grad, weight_grad = block_passes(SHAPE, rates())
    assert forward[1] == pytest.approx(20.48e-6 + 0.16e-6)
    assert input_grad[1] == pytest.approx(2.5 * (20.48e-6 + 0.16e-6))
    assert weight_grad[1] == 0.0


def test_unfused_attention_moves_its_scores() -> None:
    """Unfused, the core is two products at the products' rate and 20 bytes a score, backward twice that."""
    # 5.12 MFLOP at twice the peak time: 10.24 us; 80,000 x 20 bytes in 1.6 us.
    forward, input_grad, _ = block_passes(SHAPE, rates(fused_attention=False))
    assert forward[1] == pytest.approx(11.84e-6)
    assert input_grad[1] == pytest.approx(2 * 11.84e-6)


def test_memory_traffic_is_at_the_peak_bandwidth() -> None:
    """Norms, residual sums and activation move 2 x 200 x (640 + 1024) bytes, the weight gradient none."""
    passes = block_passes(SHAPE, rates())
    assert [part[2] for part in passes] == pytest.approx([0.6656e-6, 0.6656e-6, 0.0])


def test_launches_hide_behind_work() -> None:
    """Launching adds the 1.5-norm of both less the work: all of it without work, little beside much."""
    work = block_passes(SHAPE, rates()).weight_grad[:3].sum()
    # Of launches as long as the work 2 ** (2 / 3) - 1 of the work is added.
    assert block_passes(SHAPE, rates(launch=work)).weight_grad[3] == pytest.approx(0.587401 * work)
    # At 44 us of work, 1 us of launches adds 2 / (3 sqrt(44)) = 0.1 us, and a second adds almost the second.
    assert block_passes(SHAPE, rates(launch=1e-6)).weight_grad[3] == pytest.approx(0.1e-6, rel=0.02)
    assert block_passes(SHAPE, rates(launch=1.0)).weight_grad[3] == pytest.approx(1.0, rel=1e-4)


def test_graphs_leave_what_a_device_by_itself_does_not_wait_for() -> None:
    """Where graphs launch the passes, the term is the norm of 1.5 less that of 4."""
    work = block_passes(SHAPE, rates()).forward
    seconds = float(work[0] + work[1] + work[2] / 0.5)
    recorded = block_passes(SHAPE, replace(rates(launch=seconds), recorded=True)).forward[3]
    # Work and launches are equal: 2 ** (2 / 3) = 1.5874 and 2 ** (1 / 4) = 1.1892 of either.
    assert recorded == pytest.approx(0.3982 * seconds, rel=1e-3)


def test_recompute_adds_a_forward_pass_or_its_attention() -> None:
    """Full recompute adds all terms of the forward pass to the input gradient, selective the attention core's alone."""
    plain, shares = block_passes(SHAPE, rates(launch=1e-5)), selective_shares(SHAPE, rates())
    assert recomputed(plain, "none", shares, plain.forward) is plain
    whole = recomputed(plain, "full", shares, whole_terms(plain, SHAPE, rates())).input_grad
    assert whole == pytest.approx(plain.input_grad + plain.forward)
    selective = recomputed(plain, "selective", plain.forward * shares, plain.forward).input_grad - plain.input_grad
    assert selective == pytest.approx([0, plain.forward[1], 0, 0])


@pytest.mark.parametrize(
    ("kv_heads", "up", "share"),
    # Widths of the products: 64 64 64 64 256 256, of which the second, fourth and sixth; gated with two of four heads
    # for keys and values 64 32 32 64 256 256 256.
    [(4, 1, 384 / 768), (2, 2, 352 / 960)],
)
def test_every_second_product_is_computed_again(kv_heads: int, up: int, share: float) -> None:
    """Where every second product is kept the others are repeated, with norms and launches but without the core."""
    shape, kept = SHAPE._replace(kv_heads=np.array(kv_heads), up=np.array(up)), rates(1e-5, selective_products=True)
    plain = block_passes(shape, kept)
    shares = selective_shares(shape, kept)
    again = recomputed(plain, "selective", plain.forward * shares, plain.forward).input_grad - plain.input_grad
    assert again == pytest.approx([share * plain.forward[0], 0, plain.forward[2], plain.forward[3]])


@pytest.mark.parametrize(("kv_heads", "up", "last"), [(4, 1, 256 / 768), (2, 2, 256 / 960)])
def test_checkpoints_of_pytorch_stop_before_the_last_product(kv_heads: int, up: int, last: float) -> None:
    """Full recompute repeats all of a forward pass but the product that a layer ends with, of the widths as above."""
    shape, kept = SHAPE._replace(kv_heads=np.array(kv_heads), up=np.array(up)), rates(1e-5, early_stop=True)
    plain = block_passes(shape, kept)
    whole = recomputed(plain, "full", plain.forward, whole_terms(plain, shape, kept)).input_grad - plain.input_grad
    assert whole == pytest.approx([(1 - last) * plain.forward[0], *plain.forward[1:]])


def test_a_device_without_a_model_runs_at_its_stated_efficiencies() -> None:
    """Without an operator model products and core take their FLOP over the stated share of the peak."""
    forward = block_passes(SHAPE, rates_of(DEVICE, "bf16", None)).forward
    assert forward[0] == pytest.approx(19.6608e-6 / 0.7)
    assert forward[1] == pytest.approx(5.12e-6 / 0.4)


def test_embedding_copies_and_head_multiplies() -> None:
    """The embedding moves its rows twice in two passes; the head is one product and fp32 logits written and read."""
    copy = embedding_passes(200, 64, rates())
    assert copy.forward == pytest.approx([0, 0, 0.0512e-6, 0])
    assert not copy.input_grad.any()
    head = head_passes(200, 64, 1024, rates())
    # 2 x 200 x 64 x 1024 FLOP at twice the peak time: 52.4288 us; outputs of 409,600 bytes; one launch.
    assert head.forward[0] == pytest.approx(52.4288e-6 + 0.4096e-6 + 1e-6)
    assert head.forward[2] == pytest.approx(8 * 200 * 1024 / 1e12)
    assert head.weight_grad[2] == 0.0


def test_sizes_may_be_arrays() -> None:
    """Two configurations at once are the two apart."""
    both = block_passes(SHAPE._replace(batch=np.array([1.0, 2.0]), ffn=np.array([128.0, 256.0])), rates(launch=1e-5))
    for index, (batch, ffn) in enumerate([(1.0, 128.0), (2.0, 256.0)]):
        alone = block_passes(SHAPE._replace(batch=np.array(batch), ffn=np.array(ffn)), rates(launch=1e-5))
        for many, one in zip(both, alone, strict=True):
            assert many[index] == pytest.approx(one)
