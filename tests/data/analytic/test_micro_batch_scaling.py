"""Micro-batches that were not measured: the affine law with figures computed by hand, and what it leaves alone."""

import warnings
from typing import Any

import pytest

from taut.data.analytic.micro_batch_scaling import growing, sequence_seconds, with_micro_batches
from taut.data.costs import CostRow, CostTable, Key, LayerCost
from taut.data.device import DeviceSpec
from taut.data.model import ModelSpec
from taut.errors import ExtrapolationWarning

DEVICE = DeviceSpec(
    name="d",
    memory_gib=1,
    peak_tflops={"bf16": 1},
    memory_bandwidth_gbytes=1,
    gemm_efficiency=0.5,
    attention_efficiency=0.5,
    memory_efficiency=0.5,
    launch_us=0,
)
# Forward, one sequence of 100 tokens: products 2 x 100 x 12 x 64^2 = 9.8304e6 FLOP at 0.5 TFLOP/s are 19.6608 us, the
# attention core 4 x 100^2 x 64 = 2.56e6 FLOP 5.12 us, and 2 x 100 x (10 x 64 + 4 x 256) = 332,800 bytes at 0.5 GB/s
# 665.6 us. The input gradient makes 5/2 of the core, the weight gradient the products alone.
FORWARD, INPUT_GRAD, WEIGHT_GRAD = 690.3808e-6, 698.0608e-6, 19.6608e-6


def model(*kinds: str) -> ModelSpec:
    """One layer of each kind, all of one shape."""
    layers = [{"kind": kind, "hidden": 64, "heads": 4, "seq": 100} for kind in kinds or ("block",)]
    return ModelSpec.parse({"name": "small", "layers": layers}, "small")


def row(kind: str = "block", micro_batch: int = 1, **figures: Any) -> CostRow:
    given = {"forward_s": 0.002, "input_grad_s": 0.003, "weight_grad_s": 0.001, "activation_bytes": 100, **figures}
    return CostRow(device="d", kind=kind, tp=1, micro_batch=micro_batch, seq=100, **given)


def table(*rows: CostRow) -> CostTable:
    return CostTable(name="table", basis="measured", rows=list(rows))


def extended(given: CostTable, *kinds: str, micro_batches: tuple[int, ...] = (1, 2, 4)) -> CostTable:
    return with_micro_batches(given, model(*kinds), [DEVICE], "bf16", micro_batches)


def at(given: CostTable, micro_batch: int, kind: str = "block") -> LayerCost:
    return given.by_key[Key("d", kind, 1, micro_batch, 100, "none")]


def test_a_sequence_adds_its_work_without_launches() -> None:
    """What a sequence adds is the work of one sequence, whatever launches take."""
    slow = DEVICE.model_copy(update={"launch_us": 20.0})
    for device, close in ((DEVICE, 1e-9), (slow, 1e-2)):
        added = sequence_seconds(model(), [device], precision="bf16", tensor_degrees=[1])
        assert added[Key("d", "block", 1, 1, 100, "none")] == pytest.approx(
            (FORWARD, INPUT_GRAD, WEIGHT_GRAD), rel=close
        )


def test_growth_is_between_nothing_and_everything() -> None:
    """Work counts up to the measured seconds, and what exceeds the least block grows whatever the work."""
    assert growing(5.0, 2.0, 5.0) == 2.0
    assert growing(5.0, 7.0, 5.0) == 5.0
    # Launches take at most the 1 s of the least block, so 4 of the 5 s grow.
    assert growing(5.0, 2.0, 1.0) == 4.0


def test_larger_micro_batches_follow_the_affine_law_with_a_warning() -> None:
    """From micro-batch 1 alone, b sequences take t(1) + (b - 1) w and keep b times the bytes; the warning says so."""
    with pytest.warns(ExtrapolationWarning, match=r"table: micro_batch 1 alone was measured; .* t\(1\) \+ \(b - 1\) w"):
        found = extended(table(row(activation_bytes_sp=60, peak_bytes=1, spread=0.1)))
    cost = at(found, 4)
    # 0.002 + 3 x 0.0006903808, 0.003 + 3 x 0.0006980608, 0.001 + 3 x 0.0000196608; 4 x 100 and 4 x 60 bytes.
    assert (cost.forward, cost.input_grad, cost.weight_grad) == pytest.approx(
        (0.0040711424, 0.0050941824, 0.0010589824)
    )
    assert (cost.activation_bytes, cost.activation_bytes_sp) == (400, 240)
    assert at(found, 1) == LayerCost(0.002, 0.003, 0.001, 100, 60)
    assert sorted(key.micro_batch for key in found.by_key) == [1, 2, 4]
    assert [row.spread for row in found.rows] == [0.1, None, None]
    assert found.basis.startswith("measured; micro-batches above 1 by")


def test_a_layer_of_work_alone_is_linear() -> None:
    """Where the work accounts for more than was measured, everything grows."""
    with pytest.warns(ExtrapolationWarning):
        found = extended(table(row(forward_s=0.0005)))
    assert at(found, 4).forward == pytest.approx(4 * 0.0005)


def test_like_blocks_have_like_launches() -> None:
    """A block that takes 5 ms beside one that takes 2 ms has 2 ms of launches at most, so 3 ms grow."""
    with pytest.warns(ExtrapolationWarning):
        found = extended(table(row("a"), row("b", forward_s=0.005)), "a", "b")
    assert at(found, 2, "b").forward == pytest.approx(0.005 + 0.003)
    assert at(found, 2, "a").forward == pytest.approx(0.002 + FORWARD)


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (table(row(), row(micro_batch=2)), ("block",)),
        (table(row(micro_batch=2)), ("block",)),
        (table(row("a")), ("a", "b")),
    ],
)
def test_what_the_law_does_not_speak_of_stays_as_it_is(given: CostTable, kinds: tuple[str, ...]) -> None:
    """Several measured micro-batches, none at 1, or a layer without a price: nothing is added and nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert extended(given, *kinds) is given


def test_nothing_is_added_where_nothing_larger_is_asked_for_or_known() -> None:
    """Micro-batch 1 alone, and a precision without a peak rate, leave the table alone."""
    given = table(row())
    assert extended(given, micro_batches=(1,)) is given
    assert with_micro_batches(given, model(), [DEVICE], "fp32", [2]) is given
