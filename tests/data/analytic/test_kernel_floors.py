"""Floors of kernels: no measured kernel is faster, and no price of a layer, whatever a calibration says."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks.device_measurements import FOLDER
from benchmarks.runs import lines_of
from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.kernel_floors import BACKWARD_WORK, BestRate, CoreSizes, best_bandwidth, fastest_kernels
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.arrays import Floats
from taut.data.calibration import TERMS, Calibration
from taut.data.catalog.builtin import catalog_calibrations, catalog_floors, catalog_models, catalog_operators
from taut.data.catalog.devices import catalog_device, catalog_devices
from taut.data.costs import CostRow
from taut.data.device import DeviceSpec, Precision
from taut.data.model import ModelSpec
from taut.data.units import GIGABYTE, TERA
from taut.errors import DataError

H100 = "h100-80gb"
STATED = ("fused_attention", "selective_products", "fp8_inputs", "fused_experts", "fused_loss", "features")
"""What of a stack the work depends on."""


def kernels(precision: Precision = "bf16") -> tuple[list[BestRate], DeviceSpec]:
    """Best rates of an H100, and the device."""
    return catalog_operators()[H100].best, catalog_device(H100)


def test_no_measured_product_is_faster() -> None:
    """Every product and grouped product of training on H100 takes its floor, and the fastest hardly more."""
    fastest, shares = fastest_kernels(*kernels(), "bf16"), {"product": 0.0, "grouped": 0.0}
    for name in ("grouped-h100-80gb.csv", "products-h100-80gb.csv"):
        for line in lines_of(FOLDER / name):
            groups = max(int(line["groups"]), 1)
            m, n, k = int(line.get("tokens") or line.get("rows") or 0), int(line["columns"]), int(line["sums"])
            passes = {"forward_s": (m, n, k), "input_grad_s": (m, k, n), "weight_grad_s": (n, k, m)}
            for which, sizes in passes.items():
                share = float(fastest.gemm_seconds(*sizes, groups)) / float(line[which])
                kind = "grouped" if groups > 1 else "product"
                shares[kind] = max(shares[kind], share)
    assert shares["grouped"] < 1.001 and shares["product"] < 1.001
    assert min(shares.values()) > 0.85


def test_no_measured_attention_is_faster() -> None:
    """Attention of either pass, of every length and kernel measured on H100, takes its floor."""
    fastest, most = fastest_kernels(*kernels(), "bf16"), 0.0
    for line in lines_of(FOLDER / "attention-h100-80gb.csv"):
        sizes = [int(line[name]) for name in ("batch", "seq", "heads", "kv_heads", "head_dim")]
        forward, backward = (fastest.attention_seconds(CoreSizes(*sizes), backward=back) for back in (False, True))
        assert forward < 1.001 * float(line["forward_s"]) and backward < 1.001 * float(line["backward_s"])
        most = max(most, float(backward) / float(line["backward_s"]))
    assert most > 0.98


def test_no_measured_traffic_is_faster() -> None:
    """No kernel that moves bytes exceeds the best bandwidth of H100, of which fused ones are credited with twice."""
    best, device = kernels()
    rates = [float(line["bytes"]) / float(line["seconds"]) for line in lines_of(FOLDER / "kernels-h100-80gb.csv")]
    assert 0.99 < max(rates) / (best_bandwidth(best, device) / 2) <= 1


def test_rates_are_interpolated_in_the_logarithm_of_the_size() -> None:
    """At 1 and 100 GFLOP 100 and 300 TFLOP/s are measured: 200 at 10, the last ones beyond, the peak elsewhere."""
    said: dict[str, Any] = {"kernel": "product", "devices": [H100], "precision": ["bf16"], "source": "by hand"}
    row = BestRate(**said, at=[1.0, 100.0], rate=[100.0, 300.0])
    device = catalog_device(H100)
    fastest = fastest_kernels([row], device, "bf16")
    m, n, k = 1000.0, 500.0, np.array([0.1, 1.0, 10.0, 1000.0])
    flop = np.array([1e8, 1e9, 1e10, 1e12])
    assert fastest.gemm_seconds(m, n, k * 1000) == pytest.approx(flop / np.array([1e14, 1e14, 2e14, 3e14]))
    # Grouped products without rates run at the best of all products, attention at the peak.
    assert fastest.gemm_seconds(1000, 500, 1000, 10.0) == pytest.approx(1e10 / 3e14)
    forward = 2 * 2.0 * 16 * 4096 * 4096 * 128 / (989 * TERA)
    assert fastest.attention_seconds(CoreSizes(2, 4096, 16, 16, 128)) == pytest.approx(forward)
    assert fastest.attention_seconds(CoreSizes(2, 4096, 16, 16, 128), backward=True) == pytest.approx(
        BACKWARD_WORK * forward
    )
    assert fastest_kernels([row], device, "fp8").gemm_seconds(1000, 500, 10000) == pytest.approx(1e10 / (1979 * TERA))


def test_rates_have_a_size_each() -> None:
    """A row with two sizes and one rate, or sizes that do not grow, is refused."""
    for at, rate in (([1.0, 2.0], [1.0]), ([2.0, 1.0], [1.0, 1.0])):
        with pytest.raises(DataError):
            BestRate.parse({"kernel": "memory", "devices": [H100], "at": at, "rate": rate, "source": "s"}, "row")


def test_shipped_rates_are_below_the_peaks() -> None:
    """Rates name known devices and sources, and none exceeds the peak of its precision, or of the memory."""
    devices = catalog_devices()
    for row in catalog_floors().values():
        for device in row.devices:
            for precision in row.precision:
                assert max(row.rate) * TERA < (devices[device].peak_flops(precision) or 0.0), row
            if row.kernel == "memory":
                assert max(row.rate) * GIGABYTE < devices[device].memory_bandwidth
    named = {row.kernel for row in catalog_floors().values() if H100 in row.devices}
    assert len(named) == 10


def free(device: str) -> Calibration:
    """A calibration by which all work costs a thousandth of what it is modelled to take."""
    costs = dict.fromkeys(TERMS, 1e-3)
    return Calibration(name="free", device=device, coefficients=costs, launch_us=0.0)


def test_a_calibration_prices_no_pass_below_its_floor() -> None:
    """Products of a pass that cost a thousandth are priced at their best rates, by the digit."""
    model, device, operators = catalog_models()["llama3-8b"], catalog_device(H100), catalog_operators()
    keys: dict[str, Any] = {"precision": "bf16", "tensor_degrees": [1], "micro_batches": [1]}
    rows = analytic_costs(model, [device], operators=operators, calibration=free(H100), **keys).rows
    block = next(row for row in rows if row.kind == "block" and row.recompute == "none")
    fastest = fastest_kernels(operators[H100].best, device, "bf16")
    products = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    weight = sum(float(fastest.gemm_seconds(n, k, 8192)) for n, k in products)
    assert block.weight_grad_s == pytest.approx(weight, rel=1e-12)
    moved = 2 * 8192 * (10 * 4096 + 4 * 14336) / best_bandwidth(operators[H100].best, device)
    forward = sum(float(fastest.gemm_seconds(8192, n, k)) for n, k in products)
    core = float(fastest.attention_seconds(CoreSizes(1, 8192, 32, 8, 128)))
    assert block.forward_s == pytest.approx(forward + core + moved, rel=1e-12)
    full = next(row for row in rows if row.kind == "block" and row.recompute == "full")
    assert full.input_grad_s == pytest.approx(block.input_grad_s + block.forward_s, rel=1e-12)


def test_prices_of_measured_operators_have_no_floor() -> None:
    """What the user measured on the device itself holds, however fast."""

    class Own:
        def gemm_seconds(self, *_: object, **__: object) -> Floats:
            return np.array(1e-9)

        attention_seconds = gemm_seconds

    assert rates_of(catalog_device(H100), "bf16", Own()).fastest is None


class Case(NamedTuple):
    """A device in a precision under a calibration, or as its operators are modelled."""

    device: str
    precision: Precision
    calibration: str


def cases() -> Iterator[Case]:
    """Every device and precision as stated, and with the calibrations fitted on it."""
    for name, device in catalog_devices().items():
        for precision in device.peak_tflops:
            yield Case(name, precision, "")
            for calibration in catalog_calibrations().values():
                if calibration.device == name and calibration.precision in (None, precision):
                    yield Case(name, precision, calibration.name)


def best_tflops(case: Case) -> float:
    """The best rate of any product or attention core measured, or the peak where none was."""
    device = catalog_device(case.device)
    peak = (device.peak_flops(case.precision) or 0.0) / TERA
    rows = [row for row in catalog_floors().values() if case.device in row.devices and case.precision in row.precision]
    products = [max(row.rate) for row in rows if row.kernel in ("product", "grouped")]
    return max(products, default=peak)


def layer_flop(model: ModelSpec, row: CostRow) -> float:
    """FLOP of all passes of a layer on its rank, counted apart from prices, without what attention masks."""
    layer = model.kinds[row.kind]
    masked = layer.attention_flops() * layer.window / layer.seq / 2
    passes = 4 if row.recompute == "full" else 3
    return passes * (layer.forward_flops() - masked) * row.micro_batch / row.tp


def check(case: Case, models: list[ModelSpec], degrees: list[int], micro_batches: list[int]) -> int:
    """Assert that layers of models are priced within what kernels allow, and count them."""
    device, operators = catalog_device(case.device), catalog_operators()
    calibration = catalog_calibrations()[case.calibration] if case.calibration else None
    keys: dict[str, Any] = {"precision": case.precision, "tensor_degrees": degrees, "micro_batches": micro_batches}
    keys |= {"operators": operators, "expert_degrees": [8]}
    most, count = best_tflops(case) * TERA, 0
    for model in models:
        priced = analytic_costs(model, [device], calibration=calibration, **keys).rows
        kept = {} if calibration is None else calibration.model_dump(include=set(STATED))
        least = analytic_costs(model, [device], calibration=free(case.device).model_copy(update=kept), **keys).rows
        for row, floor in zip(priced, least, strict=True):
            for name in ("forward_s", "input_grad_s", "weight_grad_s"):
                assert getattr(row, name) >= (1 - 1e-12) * getattr(floor, name), (case, model.name, row.key)
            seconds = row.forward_s + row.input_grad_s + row.weight_grad_s
            if row.kind in model.kinds and row.ep == 1:
                assert layer_flop(model, row) <= 1.001 * seconds * most, (case, model.name, row.key)
            count += 1
    return count


SAMPLE = ("llama3-8b", "mixtral-8x22b", "qwen3-30b-a3b")


@pytest.mark.parametrize("case", [case for case in cases() if case.calibration], ids="-".join)
def test_no_layer_is_priced_beyond_its_kernels(case: Case) -> None:
    """Some models' layers under every calibration, in every precision."""
    models = catalog_models()
    assert check(case, [models[name] for name in SAMPLE], [1, 8], [1, 8]) > 50


@pytest.mark.long
@pytest.mark.parametrize("case", list(cases()), ids="-".join)
def test_no_layer_of_the_catalog_is_priced_beyond_its_kernels(case: Case) -> None:
    """Every model's layers on every device in every precision, as modelled and under every calibration."""
    assert check(case, list(catalog_models().values()), [1, 2, 4, 8], [1, 2, 8]) > 1000


def test_rates_that_still_rise_go_on_to_the_best_of_their_kind() -> None:
    """Grouped products of more rows than measured reach the best product, long attention the best core, none more."""
    rows = [
        BestRate(kernel="product", devices=["d"], precision=["bf16"], rate=[1000], source="made"),
        BestRate(kernel="grouped", devices=["d"], precision=["bf16"], at=[256, 512], rate=[700, 800], source="made"),
        BestRate(
            kernel="attention", devices=["d"], precision=["bf16"], at=[8192, 16384], rate=[500, 510], source="made"
        ),
        BestRate(
            kernel="attention_backward", devices=["d"], precision=["bf16"], at=[1, 2], rate=[300, 300], source="made"
        ),
    ]
    device = DeviceSpec(name="d", memory_gib=80, peak_tflops={"bf16": 2000}, memory_bandwidth_gbytes=3000)
    found = fastest_kernels(rows, device, "bf16")

    def rate(count: int) -> float:
        return float(2.0 * count * 4096 * 4096 * 8 / found.gemm_seconds(count, 4096, 4096, 8) / 1e12)

    assert [rate(count) for count in (384, 512, 1024)] == pytest.approx([758.5, 800.0, 900.0], abs=0.1)
    assert rate(2048) == pytest.approx(1000.0) and rate(4096) == pytest.approx(1000.0)

    def core(tokens: int, work: float, *, backward: bool) -> float:
        seconds = found.attention_seconds(CoreSizes(1, tokens, 16, 16, 128), backward=backward)
        return float(work * 2.0 * 16 * tokens**2 * 128 / seconds / 1e12)

    assert core(65536, 1.0, backward=False) == pytest.approx(510.0)
    assert core(65536, 2.5, backward=True) == pytest.approx(300.0)
