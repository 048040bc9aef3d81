"""Factors of layer shapes: what a calibration states for shapes of its own runs."""

from typing import Any

import numpy as np
import pytest

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.calibration import Calibration, uncalibrated
from taut.data.catalog.devices import catalog_devices
from taut.data.costs import CostTable
from taut.data.layers.layer_factor import LayerFactor, factors_at
from taut.data.model import ModelSpec
from taut.errors import DataError

DEVICE = catalog_devices()["a100-80gb"]
WHOLE = {"micro_batch": 2, "seq": 1024, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn_hidden": 4096}
HALF = WHOLE | {"heads": 8, "kv_heads": 8, "ffn_hidden": 2048}


def priced(factors: list[dict[str, Any]]) -> CostTable:
    values = uncalibrated(DEVICE).model_dump() | {"launch_us": 100.0, "layer_factors": factors}
    model = ModelSpec.parse({"name": "small", "layers": 4, "hidden": 1024, "heads": 16, "seq": 1024, "vocab": 512}, "m")
    return analytic_costs(
        model,
        [DEVICE],
        precision="fp16",
        tensor_degrees=[1, 2],
        micro_batches=[1, 2],
        context_degrees=[1, 2],
        calibration=Calibration.model_validate(values),
    )


def test_layers_of_a_shape_take_their_factor() -> None:
    """Of all rows those with half a layer on a tensor rank and two sequences take 1.5 times as long."""
    plain, measured = priced([]), priced([HALF | {"factor": 1.5}])
    for before, after in zip(plain.rows, measured.rows, strict=True):
        inside = (before.tp, before.micro_batch, before.cp) == (2, 2, 1) and before.kind not in ("embedding", "head")
        assert after.forward_s == pytest.approx((1.5 if inside else 1.0) * before.forward_s, rel=1e-12)
        assert after.weight_grad_s == pytest.approx((1.5 if inside else 1.0) * before.weight_grad_s, rel=1e-12)


def test_other_sizes_have_no_factor() -> None:
    """A shape that differs in any size has a factor of 1, and one with a gated feed-forward part, too."""
    one = LayerFactor.model_validate(WHOLE | {"factor": 0.8})
    same = np.array(one.sizes)
    others = same + np.vstack([np.zeros(7), np.eye(7)])
    assert factors_at([one], others).tolist() == [0.8, *(1.0 for _ in range(7))]
    assert LayerFactor.of(one.sizes, 0.8) == one


def test_calibrations_without_factors_are_written_as_before() -> None:
    """An empty list of factors is not among a calibration's values, so files from before keep their digest."""
    assert "layer_factors" not in uncalibrated(DEVICE).model_dump()


def test_impossible_factors_are_refused() -> None:
    """A factor lies between a quarter and four."""
    with pytest.raises(DataError, match="factor"):
        LayerFactor.parse(WHOLE | {"factor": 5.0}, "f")
