"""Operator models: the closed forms by hand, the shipped coefficients, and their errors on the public tables."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import in_precision
from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.operator_times import ATTENTION_BACKWARD, ATTENTION_TERMS, GEMM_TERMS, OperatorModel
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_device, catalog_devices
from taut.errors import DataError

GEMM = {"product": 2.0, "sustained": 1.0, "output": 0.5, "inputs": 0.25, "launch": 1e-6}
ATTENTION = {"product": 2.0, "scores": 0.5, "traffic": 1.0, "launch": 1e-5}
VALUES: dict[str, Any] = {
    "device": "toy",
    "peak_tflops": 100.0,
    "memory_bandwidth_gbytes": 1000.0,
    "gemm": GEMM,
    "attention": ATTENTION,
}
TOY = OperatorModel(**VALUES)
TABLES = {"a100_sxm": "a100-80gb", "h100_sxm": "h100-80gb", "b200_sxm": "b200-180gb", "l40s": "l40s-48gb"}


def test_product_is_the_sum_of_its_terms() -> None:
    """A product of 1000 x 1000 x 1000 at 100 TFLOP/s and 1 TB/s."""
    # 2e9 FLOP take 20 us, twice; sustained 20 us * 2e9 / 1.002e12; 2 MB of output take 2 us, half; 4 MB of inputs
    # 4 us, a quarter; 1 us of launch.
    expected = 40e-6 + 20e-6 * 2e9 / 1.002e12 + 1e-6 + 1e-6 + 1e-6
    assert TOY.gemm_seconds(1000, 1000, 1000) == pytest.approx(expected)


def test_attention_is_the_sum_of_its_terms() -> None:
    """Two samples of 1000 tokens, four heads of 50 channels on two key-value heads."""
    # 8e6 scores: 1.6e9 FLOP take 16 us, twice; 16 MB take 16 us, half; 4 * 2 * 1000 * 6 * 50 = 2.4 MB take 2.4 us.
    assert TOY.attention_seconds(CoreSizes(2, 1000, 4, 2, 50)) == pytest.approx(32e-6 + 8e-6 + 2.4e-6 + 10e-6)
    # A window of a tenth leaves a tenth of the scores, and all of the traffic.
    assert TOY.attention_seconds(CoreSizes(2, 1000, 4, 2, 50, 100)) == pytest.approx(4e-6 + 2.4e-6 + 10e-6)
    assert ATTENTION_BACKWARD == 5 / 2


def test_arrays_give_what_numbers_give() -> None:
    """Sizes broadcast, and whole numbers whose product leaves 64 bits do no harm."""
    m, n = np.array([[512], [8192]]), np.array([1024, 4096, 2**40])
    found = TOY.gemm_seconds(m, n, 2048)
    assert found.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert found[i, j] == TOY.gemm_seconds(m[i, 0], n[j], 2048) > 0
    assert TOY.attention_seconds(CoreSizes([1, 2], 512, 4, 4, 64)).shape == (2,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gemm": {**GEMM, "product": -1.0}}, "gemm.product"),
        ({"gemm": {"product": 1.0}}, "gemm.sustained: missing"),
        ({"attention": {**ATTENTION, "magic": 1.0}}, "attention.magic: unknown term"),
        ({"peak_tflops": 0.0}, "peak_tflops"),
        ({"gemm_error": {"samples": 0, "mean": 0.1, "median": 0.1, "p90": 0.1}}, "gemm_error.samples"),
        ({"attention": {**ATTENTION, "launch": float("nan")}}, "attention.launch"),
    ],
)
def test_wrong_models_are_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    """Missing, unknown and negative coefficients and impossible figures name their field."""
    with pytest.raises(DataError, match=words) as refusal:
        OperatorModel.parse({**VALUES, **change}, "operators.yaml")
    assert "\n" not in str(refusal.value)


def test_shipped_models_are_sane() -> None:
    """Every device's large products run at 55 to 90 % of peak, more work never takes less time, and errors are said."""
    shipped, devices = catalog_operators(), catalog_devices()
    assert {"a100-80gb", "h100-80gb", "h200-141gb", "v100-32gb", "t4-16gb"} <= set(shipped) <= set(devices)
    for name, found in shipped.items():
        assert found.memory_bandwidth == devices[name].memory_bandwidth
        share = 2 * 4096 * 8192 * 8192 / found.gemm_seconds(4096, 8192, 8192) / found.peak
        assert 0.55 < share < 0.9
        sizes = 2 ** np.arange(8, 17)
        for seconds in (found.gemm_seconds(sizes, 1024, 512), found.gemm_seconds(2048, 512, sizes)):
            assert (np.diff(seconds) > 0).all()
        assert (np.diff(found.attention_seconds(CoreSizes(1, sizes, 8, 8, 128))) > 0).all()
        assert found.source
        assert found.gemm_error is not None and found.gemm_error.mean < 0.12
        assert found.gemm_error.samples >= 300 or "V100" in found.assumed
        assert found.attention_error is None or found.attention_error.mean < 0.12


@pytest.mark.parametrize("table", TABLES)
def test_shipped_models_err_on_the_public_tables_as_they_say(table: str) -> None:
    """The mean error over the products that were fitted is at most what the catalog states for unseen ones."""
    folder = Path(os.environ.get("TAUT_SHARED_DATA", "")) / "profiles" / "aiconfigurator"
    paths = list(folder.glob(f"{table}__gemm_perf__*.csv"))
    if "TAUT_SHARED_DATA" not in os.environ or not paths:
        pytest.skip("public data are absent")
    lines = [line for line in paths[0].read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = [[float(row[name]) for name in ("m", "n", "k", "latency")] for row in csv.DictReader(lines)]
    m, n, k, milliseconds = np.array(rows).T
    kept = (m >= 512) & (m % 128 == 0) & (n >= 256) & (k >= 256)
    found = catalog_operators()[TABLES[table]]
    errors = np.abs(found.gemm_seconds(m, n, k) * 1e3 / milliseconds - 1)[kept]
    assert found.gemm_error is not None
    assert len(errors) == found.gemm_error.samples
    assert errors.mean() <= found.gemm_error.mean + 1e-3
    assert len(GEMM_TERMS) == 5 and len(ATTENTION_TERMS) == 4


def test_kernels_of_training_stand_for_inference_in_half_precision() -> None:
    """On B200 products and attention in bf16 are those of training, attention in fp8 too, and products in fp8 not."""
    model, device = catalog_operators()["b200-180gb"], catalog_device("b200-180gb")
    assert model.training is not None
    half, narrow = in_precision(model, device, "bf16"), in_precision(model, device, "fp8")
    assert half.gemm == model.training.gemm and half.attention == narrow.attention == model.training.attention
    assert half.attention_backward == model.training.attention_backward
    assert narrow.gemm["product"] == pytest.approx(model.gemm["product"] / 2)
    sizes = CoreSizes(1, 4096, 64, 8, 128)
    assert half.attention_seconds(sizes, backward=True) != pytest.approx(2.5 * half.attention_seconds(sizes))
    # SimuMax states 0.645, 0.498 and 0.598 of 2,250 TFLOP/s for the passes of this product, and 0.872 and 0.729 for
    # this attention.
    passes = sum(half.gemm_seconds(*each) for each in ((4096, 10240, 8192), (4096, 8192, 10240), (10240, 8192, 4096)))
    flop = 2 * 4096 * 10240 * 8192 / 2.25e15
    assert passes == pytest.approx(flop / 0.645 + flop / 0.498 + flop / 0.598, rel=0.15)
    core = 4 * 64 * 4096**2 * 128 / 2.25e15
    assert half.attention_seconds(sizes) == pytest.approx(core / 0.872, rel=0.2)
    assert half.attention_seconds(sizes, backward=True) == pytest.approx(2.5 * core / 0.729, rel=0.2)


def test_experts_have_kernels_of_training_but_beside_runs_with_experts() -> None:
    """On B200 grouped products in bf16 are those of training, unless coefficients were fitted to runs with experts."""
    model, device = catalog_operators()["b200-180gb"], catalog_device("b200-180gb")
    assert model.training is not None
    trained = in_precision(model, device, "bf16")
    assert trained.grouped == model.training.grouped
    assert in_precision(model, device, "bf16", routed=True).grouped == model.grouped
    assert in_precision(model, device, "fp8").grouped == in_precision(model, device, "fp8", routed=True).grouped
    # SimuMax states 0.457, 0.435 and 0.289 of 2,250 TFLOP/s for the passes of these 32 products of 1,024 rows.
    passes = ((1024, 4096, 7168), (1024, 7168, 4096), (4096, 7168, 1024))
    seconds = sum(trained.gemm_seconds(*each, 32) for each in passes)
    flop = 2 * 32 * 1024 * 4096 * 7168 / 2.25e15
    assert seconds == pytest.approx(flop / 0.457 + flop / 0.435 + flop / 0.289, rel=0.15)


def test_a_device_without_kernels_of_training_has_those_of_inference() -> None:
    """H100's model is unchanged in bf16; a GB200 has what training adds on B200, and its own attention."""
    h100, gb200 = catalog_operators()["h100-80gb"], catalog_operators()["gb200-186gb"]
    assert in_precision(h100, catalog_device("h100-80gb"), "bf16").gemm == h100.gemm
    half = in_precision(gb200, catalog_device("gb200-186gb"), "bf16")
    assert half.gemm["product"] > gb200.gemm["product"] and half.attention == gb200.attention
