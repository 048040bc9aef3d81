"""Modules that a certificate names are those that its cost table is of."""

import json
from typing import Any

import pytest

import taut
from taut.solver.certificate.verify import verify_document
from tests.solver.certificate.test_verify import resigned

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024}
SHAPE = {"layers": 6, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000, "gated_mlp": True}
MODEL = taut.ModelSpec.parse({"name": "row", **SHAPE, "experts": EXPERTS}, "row")
FIXED: dict[str, int | str | bool] = {
    "pp": 1,
    "tp": 1,
    "micro_batch": 1,
    "recompute": "selective",
    "recompute_modules": "layernorm",
}


@pytest.fixture(scope="module")
def text() -> str:
    """A plan with the inputs of two modules on hosts."""
    fixed: dict[str, int | str | bool] = {**FIXED, "offload_modules": "core_attn+attn_proj"}
    plan = taut.plan(MODEL, "dgx-h100", global_batch=32, fix=fixed)
    assert plan.verify().holds
    return json.dumps(plan.document)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("offload_modules", ["expert_fc1", "moe_act"]),
        ("offload_modules", ["core_attn"]),
        ("offload_modules", []),
        ("recompute_modules", ["moe_act"]),
        ("recompute_modules", []),
    ],
)
def test_other_modules_are_refused(text: str, name: str, others: list[str]) -> None:
    """Names of other modules, with digests that match them, are no part of the costs."""
    plan: dict[str, Any] = json.loads(text)
    plan["certificate"]["space"][name] = others
    found = verify_document(resigned(plan))
    assert not found.holds


def test_costs_that_name_no_modules_are_refused(text: str) -> None:
    """Bytes on hosts of which the table does not say what they are."""
    plan: dict[str, Any] = json.loads(text)
    del plan["inputs"]["costs"]["spec"]["offload_modules"]
    assert any("offload_modules" in fault for fault in verify_document(resigned(plan)).faults)
