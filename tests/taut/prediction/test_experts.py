"""Rows with experts are priced as plans of the same degrees, and refused where no plan has them."""

from typing import Any

import pytest

import taut

SHAPE = {"hidden": 1024, "layers": 6, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000}
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024, "shared_ffn_hidden": 1024}
ROW = {"gpu": "h100-80gb", "n_gpus": 16, "global_batch": 32, **SHAPE, **EXPERTS}


@pytest.mark.parametrize(
    "degrees",
    [
        {"tp": 2, "pp": 1, "dp": 8, "zero": 1, "ep": 8},
        {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "ep": 4, "etp": 2},
        {"tp": 4, "pp": 2, "dp": 2, "zero": 0, "ep": 1},
    ],
)
def test_a_row_is_priced_as_the_plan(degrees: dict[str, int]) -> None:
    """Seconds and bytes of the fullest device are those of the plan with the same degrees and division."""
    shape: dict[str, Any] = {"name": "row", "gated_mlp": True, "dense_layers": 1, "experts": EXPERTS, **SHAPE}
    fixed: dict[str, Any] = {"micro_batch": 1, "recompute": "none", "schedule": "1f1b", "sequence_parallel": True}
    found = taut.plan(taut.ModelSpec.parse(shape, "row"), "dgx-h100:2", global_batch=32, fix=fixed | degrees)
    stages = [end - first for first, end in found.strategy.stages]
    row = {**ROW, **degrees, "dense_layers": 1, "sequence_parallel": True, "stages": stages}
    (said,) = taut.predict([row])
    assert said["error"] == ""
    assert said["step_time_s"] == pytest.approx(found.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(found.predicted.memory_bytes)
    assert said["fits"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts": None}, "expected num_experts beside it"),
        ({"experts_per_token": None}, "experts_per_token: missing, expected it beside num_experts"),
        ({"ep": 3}, "ep is 3 and etp 1, expected a divisor of the 8 experts"),
        ({"ep": 8, "zero": 2}, "no plan has these degrees"),
    ],
)
def test_wrong_rows_have_an_error(changes: dict[str, Any], words: str) -> None:
    """One line in the row's place."""
    (said,) = taut.predict([{**ROW, "dp": 16, **changes}])
    assert words in said["error"]
