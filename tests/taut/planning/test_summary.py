"""A plan in words."""

from typing import Any

import pytest

import taut
from taut.data.memory import MemoryModel
from taut.planning.summary import summary
from tests.support.launches import model_with_experts, small_cluster
from tests.support.plans import made_plan


def test_lines_are_wrapped_behind_their_labels_and_names_are_no_markup() -> None:
    """At 60 columns no line is longer, what is wrapped stays in the column of its text, and [/b] is a name."""
    spec = {"layers": 1, "hidden": 8, "heads": 1, "ffn_hidden": 8, "seq": 8, "vocab": 8}
    plan = made_plan(
        inputs={
            "model": {"name": "a[/b]", "sha256": "", "spec": {"name": "a[/b]", **spec}},
            "costs": {"name": "c", "sha256": "", "spec": {"basis": "prices " * 20}},
            "memory_model": {"name": "m", "sha256": "", "spec": MemoryModel(name="m").model_dump(mode="json")},
        },
        certificate={"space": {"global_batch": 8}},
    )
    text = summary(plan.typed, width=60)
    assert text.startswith("a[/b] on c: 1 devices")
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 60] == []
    first = next(number for number, line in enumerate(lines) if line.startswith("priced by"))
    assert lines[first + 1].startswith(" " * 12 + "prices")


@pytest.mark.proof
def test_errors_of_one_device_are_no_band_beside_another() -> None:
    """A calibration of H100 states its band on H100 alone; with A10G beside them no run checks the prices."""
    node = {"count": 1, "gpus_per_node": 4, "intra_bandwidth_gbps": 256}
    network = {"bandwidth_gbps": 100}
    for devices, words in (["h100-80gb"], "80 % of runs"), (["h100-80gb", "a10g-24gb"], "no run on a10g-24gb checks"):
        cluster = {"name": "c", "nodes": [{**node, "device": name} for name in devices], "network": network}
        plan = taut.plan("gpt2-345m", cluster, global_batch=8, calibration="nemo-h100-bf16", work_limit=1)
        text = summary(plan.typed)
        assert words in text
        assert ("80 % of runs" in text) == (len(devices) == 1)


@pytest.mark.parametrize(
    ("degree", "words"),
    [(4, "expert groups of 4 GPUs lie within a node"), (8, "expert groups of 8 GPUs lie on 2 nodes")],
)
def test_a_plan_says_which_links_expert_ranks_use(degree: int, words: str) -> None:
    """On two nodes of four GPUs four ranks stay in one, and eight cross; a plan without such ranks says nothing."""
    model, cluster = model_with_experts(8), small_cluster()
    fix: dict[str, Any] = {"pp": 1, "tp": 1, "etp": 1, "micro_batch": 1, "zero": 1, "recompute": "none"}
    plan = taut.plan(model, cluster, global_batch=16, fix={**fix, "ep": degree}, work_limit=4)
    assert words in summary(plan.typed)
    alone = taut.plan(model, cluster, global_batch=16, fix={**fix, "ep": 1}, work_limit=4)
    assert "expert groups" not in summary(alone.typed)
