"""Inputs of recomputed layers on hosts, as DeepSpeed's cpu_checkpointing moves them."""

import json
from typing import Any

import pytest

import taut
from taut.errors import FieldError
from taut.exports.deepspeed import deepspeed_files
from taut.exports.job import ExportError, Job
from taut.launchers.deepspeed import deepspeed_launch
from taut.launchers.settings import Run

SHAPE = {"layers": 8, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000}
MODEL = taut.ModelSpec.parse({"name": "row", **SHAPE}, "row")
FIXED: dict[str, Any] = {"pp": 2, "tp": 2, "dp": 2, "micro_batch": 2, "zero": 1}


def problem(share: Any, **options: Any) -> taut.PlanningProblem:
    """The problem of a small request."""
    given = {"stack": "deepspeed", "activation_offload_fraction": share, **options}
    return taut.planning_problem(taut.PlanRequest(MODEL, "dgx-a100", global_batch=32, **given))


@pytest.mark.parametrize("stack", ["deepspeed", "megatron-deepspeed"])
def test_all_or_nothing_beside_full_recompute(stack: str) -> None:
    """With pipelines too; of quarters all and none are left, and the plan chooses between them."""
    found = problem("auto", stack=stack).candidates
    away = {(each.activation_offload, each.uniform_recompute) for each in found}
    assert away == {(0.0, "none"), (0.0, "full"), (1.0, "full")}
    assert max(each.pp for each in found if each.activation_offload) > 1


@pytest.mark.parametrize(
    ("share", "options", "words"),
    [
        (0.5, {}, "activation_offload_fraction: 0.5, a part is not in deepspeed, expected 0 or 1"),
        ("0,0.5", {}, "activation_offload_fraction: 0.5, a part is not in deepspeed, expected 0 or 1"),
        (1.0, {"fix": {"recompute": "none"}}, "activation_offload_fraction: 1, not in deepspeed, expected 0 beside"),
    ],
)
def test_what_does_not_go_with_it_is_refused(share: Any, options: dict[str, Any], words: str) -> None:
    """One line with the field, its value and what was expected."""
    with pytest.raises(FieldError, match=words):
        problem(share, **options)


def test_a_plan_has_less_and_is_written_read_back_and_predicted() -> None:
    """
    Layers' inputs leave the device: 2 x 2,048 tokens of 1,024 channels of 2 bytes are 8 MiB, without tensor ranks.

    The first of two stages of 4 layers has two micro-batches in flight, so eight of them less two that pass.
    """
    fixed = {**FIXED, "recompute": "full"}
    plain, plan = (
        taut.plan(MODEL, "dgx-a100", global_batch=32, stack="deepspeed", fix=fixed, activation_offload_fraction=share)
        for share in (0.0, 1.0)
    )
    stages = [end - first for first, end in plan.strategy.stages]
    assert plan.verify().holds and stages == [4, 4]
    assert plain.predicted.memory_bytes[0] - plan.predicted.memory_bytes[0] == (4 * 2 - 2) * 8 * 2**20
    config = json.loads(deepspeed_files(Job(plan))["ds_config.json"])
    assert config["activation_checkpointing"] == {"cpu_checkpointing": True}
    read = deepspeed_launch(config, "a file", Run(), {}).values
    assert (read["activation_offload_fraction"], read["recompute"]) == (1.0, "full")
    assert "activation_checkpointing" not in json.loads(deepspeed_files(Job(plain))["ds_config.json"])
    row = {"gpu": "a100", "n_gpus": 8, "global_batch": 32, **SHAPE, **fixed, "stages": stages, "stack": "deepspeed"}
    said, part = taut.predict([{**row, "activation_offload_fraction": share} for share in (1, 0.5)])
    assert said["error"] == "" and said["step_time_s"] == pytest.approx(plan.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(plan.predicted.memory_bytes)
    assert part["error"] == "row 2: activation_offload_fraction is 0.5, expected 0 or 1 in the stack"


def test_what_deepspeed_does_not_move_is_not_exported() -> None:
    """A part, what stays without recompute, and inputs of modules."""
    parts: list[dict[str, Any]] = [
        {"activation_offload_fraction": 0.5, "fix": {"recompute": "full"}},
        {"activation_offload_fraction": 1.0, "fix": {"recompute": "none"}},
        {"fix": {"recompute": "none", "offload_modules": "core_attn"}},
    ]
    for part in parts:
        fix = {**FIXED, "sequence_parallel": False, "schedule": "1f1b", **part.pop("fix")}
        plan = taut.plan(MODEL, "dgx-a100", global_batch=32, stack="any", fix=fix, **part)
        with pytest.raises(ExportError, match="in the host's memory"):
            deepspeed_files(Job(plan))
