"""Step times of Megatron-LM on A100 that were published, none of which any calibration was fitted on."""

from typing import Any

import pytest

import taut

PUBLISHED = [
    # Layers, hidden size, heads, nodes, tp, pp, chunks a device, batch, micro-batch, recompute, seconds of a step.
    (48, 6144, 64, 1, 8, 1, 1, 4, 4, "full", 1.42),
    (48, 6144, 64, 1, 8, 1, 1, 4, 4, "selective", 1.10),
    (96, 12288, 96, 8, 8, 8, 3, 64, 1, "full", 18.13),
    (96, 12288, 96, 8, 8, 8, 3, 64, 1, "selective", 13.75),
    (128, 25600, 160, 64, 8, 64, 1, 512, 1, "full", 94.42),
    (128, 25600, 160, 64, 8, 64, 1, 512, 1, "selective", 71.49),
]
"""Korthikanti et al. (2022), Reducing activation recomputation in large transformer models, tables 3 and 5."""


@pytest.mark.proof
@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row[0]}x{row[1]}-{row[-2]}")
def test_published_steps_of_megatron_are_predicted_within_five_per_cent(row: tuple[Any, ...]) -> None:
    """22B on one node, 175B on eight and 1T on 64, with full recompute and with what replaced it."""
    layers, hidden, heads, nodes, tp, pp, vpp, batch, micro_batch, recompute, seconds = row
    model = taut.ModelSpec(name="published", layers=layers, hidden=hidden, heads=heads, seq=2048, vocab=51200)
    fix: dict[str, Any] = {"tp": tp, "pp": pp, "micro_batch": micro_batch, "recompute": recompute}
    # Full recompute was run without sequence parallelism, selective recompute with it.
    fix["sequence_parallel"] = recompute == "selective"
    if vpp > 1:
        fix |= {"schedule": "interleaved-1f1b", "vpp": vpp}
    found = taut.plan(model, f"dgx-a100:{nodes}" if nodes > 1 else "dgx-a100", global_batch=batch, fix=fix, gap=0.02)
    assert found.step_time_s == pytest.approx(seconds, rel=0.05)
