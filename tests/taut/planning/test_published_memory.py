"""Layouts that ran, which the memory model must not refuse."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.formulations.latency import violations
from taut.planning.request import PlanRequest
from taut.planning.stated import stated_configuration
from tests.data.readers.test_config_parts import NEMOTRON3, SUPER

RAN: dict[str, tuple[dict[str, Any], str, int, str, dict[str, Any]]] = {
    "Nano on H100": (
        *(NEMOTRON3, "dgx-h100:2", 1024, "fp8"),
        {"ep": 8, "micro_batch": 1, "recompute": "selective", "recompute_modules": "core_attn+layernorm+moe_act+moe"},
    ),
    "Nano on B200": (NEMOTRON3, "dgx-b200:1", 512, "mxfp8", {"ep": 8, "micro_batch": 2, "recompute": "none"}),
    "Super on B200": (SUPER, "dgx-b200:8", 512, "mxfp8", {"ep": 64, "micro_batch": 1, "recompute": "selective"}),
    "Super on B300": (SUPER, "dgx-b300:8", 512, "mxfp8", {"ep": 8, "micro_batch": 1, "recompute": "none"}),
}
"""Runs of Megatron-Bridge 26.02.01 to 26.06 with its distributed optimizer, as its recipes have them."""


@pytest.mark.parametrize("gradients", ["bf16", None])
@pytest.mark.parametrize("run", RAN)
def test_layouts_that_ran_fit(tmp_path: Path, run: str, gradients: str | None) -> None:
    """One stage of one tensor rank, with ZeRO-1: as run, in bf16 with Super's further tokens, and in fp32 without."""
    values, cluster, batch, precision, fix = RAN[run]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    asked: dict[str, Any] = {"precision": precision, "grad_precision": gradients, "stack": "megatron-core"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = PlanRequest(
            str(path),
            cluster,
            global_batch=batch,
            seq=8192,
            mtp_layers=2 if values is SUPER and gradients else None,
            fix={"tp": 1, "cp": 1, "pp": 1, "etp": 1, "zero": 1, **fix},
            **asked,
        )
        stated = stated_configuration(request)
    assert not violations(stated.problem, stated.strategy, stated.devices)
