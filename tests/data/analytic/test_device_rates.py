"""What a device makes of work in a precision: products, cores, bytes of numbers and of kept inputs, the head."""

from dataclasses import replace

import pytest

from taut.data.analytic.device_rates import ELEMENT_BYTES, KEPT_BLOCK, KEPT_BYTES, Rates, rates_of
from taut.data.analytic.operator_times import OperatorModel
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_devices
from taut.data.device import QUANTIZED, DeviceSpec, Precision

DEVICE = DeviceSpec(
    name="d",
    memory_gib=1,
    peak_tflops={"bf16": 1, "fp32": 0.5, "fp8": 2, "mxfp8": 2, "nvfp4": 4},
    memory_bandwidth_gbytes=1000,
)
GEMM = {"product": 2.0, "sustained": 0.5, "output": 1.0, "inputs": 0.0, "launch": 1e-6}
RECIPE = {"product": 3.0, "sustained": 1.0, "output": 5.0, "inputs": 7.0, "launch": 2e-6}
MODEL = OperatorModel.model_validate(
    {
        "device": "d",
        "peak_tflops": 1,
        "memory_bandwidth_gbytes": 1000,
        "gemm": GEMM,
        "attention": {"product": 4, "scores": 1, "traffic": 0, "launch": 0},
        "recipes": {"nvfp4": {"gemm": RECIPE}},
    }
)


def model_of(rates: Rates) -> OperatorModel:
    assert isinstance(rates.operators, OperatorModel)
    return rates.operators


def test_precision_changes_products_and_bytes() -> None:
    """In fp8 the products take half the time and the core what it takes in bf16; in fp32 both take twice as long."""
    half, eight, single = (model_of(rates_of(DEVICE, precision, MODEL)) for precision in ("bf16", "fp8", "fp32"))
    assert (eight.gemm["product"], eight.attention["product"]) == (1.0, half.attention["product"])
    assert (single.gemm["product"], single.attention["product"]) == (4.0, 8.0)
    assert (eight.gemm["output"], single.gemm["output"]) == (1.0, 2.0)


def test_fitted_products_take_the_place_of_scaled_ones() -> None:
    """A recipe's coefficients are relative to its own peak, four times bf16's; attention stays bf16's."""
    found = model_of(rates_of(DEVICE, "nvfp4", MODEL))
    assert found.gemm == {"product": 0.75, "sustained": 0.25, "output": 5.0, "inputs": 7.0, "launch": 2e-6}
    assert found.attention == MODEL.attention


def test_products_of_a_recipe_without_a_fit_are_scaled() -> None:
    """In mxfp8, which nothing was fitted to here, FLOP take half of bf16's time and traffic the same."""
    found = model_of(rates_of(DEVICE, "mxfp8", MODEL))
    assert found.gemm == {**GEMM, "product": 1.0, "sustained": 0.25}


@pytest.mark.parametrize(("precision", "same"), [("bf16", True), ("fp8", True), ("mxfp8", False), ("nvfp4", False)])
@pytest.mark.parametrize("model", [None, MODEL])
def test_the_head_stays_in_half_precision(precision: Precision, same: bool, model: OperatorModel | None) -> None:
    """The head has operators of its own, bf16's, in recipes of no calibration."""
    rates = rates_of(DEVICE, precision, model)
    assert (rates.head is None) is same
    if rates.head is not None:
        assert rates.head.gemm_seconds(64, 64, 64) == model_of(rates_of(DEVICE, "bf16", model)).gemm_seconds(64, 64, 64)


def test_kept_inputs_have_the_bytes_of_their_format_and_scales() -> None:
    """A block of 128 inputs: 128 bytes and four of one fp32 scale, or of four one-byte ones; 64 and eight in nvfp4."""
    assert KEPT_BYTES["fp8-blockwise"] == 128 + 4
    assert KEPT_BYTES["mxfp8"] == 128 + 128 // 32
    assert KEPT_BYTES["nvfp4"] == 128 // 2 + 128 // 16
    for precision, element in ELEMENT_BYTES.items():
        rates = replace(rates_of(DEVICE, "bf16", MODEL), element=element, kept=KEPT_BYTES[precision])
        assert rates.casts is (KEPT_BYTES[precision] != KEPT_BLOCK * element)
        assert rates.casts is (precision in QUANTIZED and precision != "fp8")


def test_shipped_recipes_are_sane() -> None:
    """Large products of a recipe take less than bf16's, at 30 to 90 % of its peak, and errors are said."""
    found = 0
    for name, model in catalog_operators().items():
        device = catalog_devices()[name]
        for precision, recipe in model.recipes.items():
            rates = rates_of(device, precision, model)
            seconds = rates.operators.gemm_seconds(8192, 8192, 8192)
            assert seconds < model.gemm_seconds(8192, 8192, 8192)
            assert 0.3 < 2 * 8192**3 / seconds / (device.peak_flops(precision) or 0) < 0.9
            assert recipe.source and recipe.gemm_error is not None and recipe.gemm_error.mean < 0.2
            found += 1
    assert found >= 15


def test_recipes_with_a_rate_on_a_fitted_device_are_fitted() -> None:
    """Only fp8, whose calibrations were fitted to bf16's products at its peak, is carried over."""
    for name, model in catalog_operators().items():
        stated = set(catalog_devices()[name].peak_tflops) & QUANTIZED - {"fp8"}
        assert set(model.recipes) == stated, name
