"""Shares of a step by term: what they add up to, and what they depend on."""

from typing import Any

import pytest

from taut.data.analytic.step_shares import step_shares
from taut.data.calibration import uncalibrated
from taut.data.catalog.builtin import catalog_model, catalog_operators
from taut.data.catalog.devices import catalog_devices

DEVICE = catalog_devices()["h100-80gb"]
PARTS = {"compute": 8.0, "tensor_parallel": 1.0, "pipeline_transfers": 0.5, "data_parallel": 0.3, "optimizer": 0.2}


def shares(model: str = "qwen3-30b-a3b", **degrees: Any) -> dict[str, float]:
    operators = catalog_operators()[DEVICE.name]
    return step_shares(PARTS, catalog_model(model), DEVICE, "bf16", operators, uncalibrated(DEVICE), **degrees)


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "llama3-8b", "deepseek-v3"])
def test_shares_add_up(model: str) -> None:
    """Computation has the share that the evaluator gives it, and all terms together have 1."""
    found = shares(model)
    assert sum(found.values()) == pytest.approx(1.0)
    assert sum(found[kind] for kind in ("gemm", "attention", "memory", "launch")) == pytest.approx(0.8)


def test_traffic_of_layers_is_of_the_ranks_that_a_plan_has() -> None:
    """Of expert ranks, of tensor ranks, or of both."""
    assert shares(ep=8)["exchange"] == pytest.approx(0.1) and shares(ep=8)["tensor_parallel"] == 0
    assert shares(tp=2)["tensor_parallel"] == pytest.approx(0.1) and shares(tp=2)["exchange"] == 0
    assert shares(tp=2, ep=8)["exchange"] == shares(tp=2, ep=8)["tensor_parallel"] == pytest.approx(0.05)


def test_launches_matter_with_small_micro_batches_and_gathers_with_shards() -> None:
    """A larger micro-batch hides launches; sharded weights and gradients are gathered."""
    assert shares(micro_batch=1)["launch"] > 2 * shares(micro_batch=8)["launch"]
    assert shares(zero=3)["gather"] == pytest.approx(0.03) and "gather" not in shares(zero=1)
