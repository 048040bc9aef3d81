"""Grouped products have coefficients of their own, and biased experts the traffic of their separate kernels."""

from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import layer_shape
from taut.data.analytic.operator_times import GEMM_TERMS
from taut.data.analytic.routed_layers import ExpertRanks, routed_passes
from taut.data.catalog.builtin import catalog_operators
from taut.data.catalog.devices import catalog_devices
from taut.data.layers.layer import LayerSpec

H100 = "h100-80gb"


def test_groups_take_their_own_coefficients() -> None:
    """A launch of one second for groups alone, times the fitted rate of the rest."""
    model = catalog_operators()[H100]
    slow = model.model_copy(update={"grouped": {**model.gemm, "launch": 1.0}})
    alone, together = slow.gemm_seconds(1024, 512, 256, np.array([1.0, 8.0]))
    assert alone == model.gemm_seconds(1024, 512, 256)
    assert together == pytest.approx(1.0, rel=1e-3)


def test_few_rows_for_each_expert_are_slower_than_one_product() -> None:
    """128 experts of 64 rows take at least 1.5 times as long as the same work in one product on every fitted device."""
    fitted = [model for model in catalog_operators().values() if model.grouped]
    assert len(fitted) >= 5
    for model in fitted:
        assert set(model.grouped) == set(GEMM_TERMS)
        one, many = model.gemm_seconds(64 * 128, 1536, 2048), model.gemm_seconds(64, 1536, 2048, 128)
        assert many > 1.5 * one, model.device
        assert model.grouped_error is not None and model.grouped_error.median < 0.1


def test_biased_experts_move_more_and_less_of_it_where_their_kernels_are_fused() -> None:
    """44 widths of 64 numbers of two bytes for each of 2 x 100 rows forward, twice that backward; 14 of them fused."""
    shape: dict[str, Any] = {"hidden": 64, "heads": 4, "seq": 100, "gated_mlp": True}
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 64}
    plain = LayerSpec(**shape, experts=experts)
    biased = LayerSpec(**shape, experts=experts | {"biased": True})
    for fused, factor in ((True, 14 / 44), (False, 1)):
        rates = rates_of(catalog_devices()[H100], "bf16", None, launch=0.0, fused_experts=fused)
        made = [routed_passes(one, layer_shape(one, 1, 1), 1, rates, ExpertRanks(4, 1)) for one in (plain, biased)]
        more = 2 * 200 * (30 * 64 + 14 * 64) / rates.memory_bandwidth
        for part, times in (("forward", 1), ("input_grad", 2), ("weight_grad", 0)):
            before, after = (float(getattr(passes, part)[2]) for passes in made)
            assert after - before == pytest.approx(factor * times * more, abs=1e-18)
