"""Requests whose named modules have their inputs on hosts: what goes with them, and what a plan makes of them."""

from typing import Any

import pytest

import taut
from taut.comparison.compare import current_of, priced_as_is, with_options
from taut.errors import FieldError
from taut.exports.export import environment
from taut.exports.job import Job
from taut.exports.megatron import bridge_settings, megatron_flags
from taut.launchers.read import launch_of_text

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024}
SHAPE = {"layers": 6, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000, "gated_mlp": True}
MODEL = taut.ModelSpec.parse({"name": "row", **SHAPE, "experts": EXPERTS}, "row")
MODULES = "core_attn+attn_proj+moe_act"


def problem(modules: str = MODULES, *, fix: Any = None, **options: Any) -> taut.PlanningProblem:
    """The problem of a small request."""
    fixed = {"offload_modules": modules, **(fix or {})}
    return taut.planning_problem(taut.PlanRequest(MODEL, "dgx-h100:2", global_batch=32, fix=fixed, **options))


def test_all_of_the_modules_go_unless_a_share_is_asked_for() -> None:
    """Candidates have the share, recompute other than full, and pipelines."""
    found = problem()
    assert found.space.offload_modules == ["core_attn", "attn_proj", "moe_act"]
    assert {each.activation_offload for each in found.candidates} == {1.0}
    assert {each.uniform_recompute for each in found.candidates} == {"none", "selective"}
    assert max(each.pp for each in found.candidates) > 1
    several = problem(activation_offload_fraction="0,0.3").candidates
    assert {each.activation_offload for each in several} == {0.0, 0.3}
    assert "full" in {each.uniform_recompute for each in several if not each.activation_offload}
    none = problem(activation_offload_fraction=0).space
    assert none.offload_modules == [] and none.activation_offload == []


@pytest.mark.parametrize(
    ("modules", "options", "words"),
    [
        ("core", {}, "fix: offload_modules=core, expected modules joined by .*did you mean core_attn"),
        ("attn_proj", {}, "fix: offload_modules=attn_proj, attn_proj without core_attn"),
        ("moe_act+fused_group_mlp", {}, "fused_group_mlp beside moe_act"),
        ("core_attn", {"fix": {"recompute": "full"}}, "full recompute keeps no inputs of modules"),
        ("moe_act", {"fix": {"recompute": "selective", "recompute_modules": "moe"}}, "moe_act beside recompute of moe"),
        ("core_attn", {"stack": "torchtitan"}, "core_attn is not in torchtitan, expected none"),
        ("core_attn", {"latency_model": "pipette"}, "no part of pipette, expected latency model step"),
        ("core_attn", {"stack": "any", "fix": {"schedule": "zb-v"}}, "schedule=zb-v, splits the backward pass"),
        ("core_attn", {"profile": "p.csv"}, "a profile does not say what their inputs take"),
    ],
)
def test_what_does_not_go_with_modules_is_refused(modules: str, options: dict[str, Any], words: str) -> None:
    """One line with the field, its value and what was expected."""
    with pytest.raises(FieldError, match=words) as refusal:
        problem(modules, **options)
    assert "\n" not in str(refusal.value)


FIXED: dict[str, Any] = {"pp": 2, "tp": 2, "dp": 4, "ep": 4, "etp": 1, "micro_batch": 1, "zero": 1}
FIXED |= {"schedule": "1f1b", "sequence_parallel": True, "recompute": "none"}


def test_a_plan_has_less_and_is_written_read_back_and_predicted() -> None:
    """
    Attention's inputs and the experts' activations leave the device; flags, settings, comparison and rows agree.

    With 3 layers, 2 micro-batches in flight and 2048 tokens, of which tensor ranks share all: 2 bytes for each of four
    times 1,024 channels and of 2 experts' 2 x 1,024, 2 x 2048 x 8,192 / 2 = 16 MiB a layer, less two that pass.
    """
    plain = taut.plan(MODEL, "dgx-h100:2", global_batch=32, fix=FIXED)
    plan = taut.plan(MODEL, "dgx-h100:2", global_batch=32, fix={**FIXED, "offload_modules": MODULES})
    stages = [end - first for first, end in plan.strategy.stages]
    assert plan.verify().holds and stages == [3, 3]
    away = plain.predicted.memory_bytes[0] - plan.predicted.memory_bytes[0]
    assert away == (3 * 2 - 2) * 2 * 2048 * 8192 // 2
    assert "100% of the inputs of core_attn, attn_proj, moe_act on the host" in " ".join(str(plan).split())
    job = Job(plan)
    flags, settings = megatron_flags(job), bridge_settings(job)
    assert flags["--offload-modules"] == "core_attn attn_proj moe_act" and "--activation-offload-fraction" not in flags
    assert settings["model.offload_modules"] == ["core_attn", "attn_proj", "moe_act"]
    assert settings["model.fine_grained_activation_offloading"] is True
    assert environment(job)["NVTE_CPU_OFFLOAD_V1"] == "1" and "NVTE_CPU_OFFLOAD_V1" not in environment(Job(plain))
    text = " ".join(name if value is None else f"{name} {value}" for name, value in flags.items())
    read = launch_of_text(text).values
    assert (read["offload_modules"], read["activation_offload_fraction"]) == (MODULES, 1.0)
    request = taut.PlanRequest(MODEL, "dgx-h100:2", global_batch=32)
    current = current_of({name: value for name, value in read.items() if name != "global_batch"})
    assert priced_as_is(request, current).seconds == pytest.approx(plan.step_time_s, rel=1e-9)
    assert with_options(request, current).fix == {"offload_modules": MODULES}
    assert with_options(request, current).activation_offload_fraction == 1.0
    degrees = {name: value for name, value in FIXED.items() if name not in ("schedule", "recompute")}
    row = {"gpu": "h100-80gb", "n_gpus": 16, "global_batch": 32, **SHAPE, **EXPERTS, **degrees, "stages": stages}
    del row["gated_mlp"]
    (said,) = taut.predict([{**row, "offload_modules": MODULES}])
    assert said["error"] == "" and said["step_time_s"] == pytest.approx(plan.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(plan.predicted.memory_bytes)


def test_slow_links_take_time() -> None:
    """Where a transfer takes longer than a pass, the step takes longer by what is left, and a share takes less."""
    given = taut.load_cluster("dgx-h100:2")
    node = given.nodes[0]
    slow = node.model_copy(update={"device": node.device.model_copy(update={"host_link_gbytes": 2.0})})
    cluster = given.model_copy(update={"nodes": [slow]})
    fixed = {**FIXED, "offload_modules": MODULES}
    steps = [
        taut.plan(MODEL, cluster, global_batch=32, fix=fixed, activation_offload_fraction=share).step_time_s
        for share in (0.1, 0.5, 1.0)
    ]
    assert steps[0] < steps[1] < steps[2]
    part = taut.plan(MODEL, cluster, global_batch=32, fix=fixed, activation_offload_fraction=0.5)
    assert megatron_flags(Job(part))["--activation-offload-fraction"] == "0.5"


def test_chunks_have_modules_on_hosts_too() -> None:
    """
    Interleaved, a device holds less of every chunk.

    The first of two devices holds five chunks of one layer at once, without two layers' that pass: three times 16 MiB.
    """
    fixed = {**FIXED, "vpp": 2, "schedule": "interleaved-1f1b", "empty_ends": False}
    model = taut.ModelSpec.parse({"name": "row", **SHAPE, "layers": 4, "experts": EXPERTS}, "row")
    plain, away = (
        taut.plan(model, "dgx-h100:2", global_batch=32, fix={**fixed, **more}, work_limit=20)
        for more in ({}, {"offload_modules": MODULES})
    )
    assert away.verify().holds
    assert away.strategy.stages == plain.strategy.stages == [[0, 1], [1, 2], [2, 3], [3, 4]]
    less = plain.predicted.memory_bytes[0] - away.predicted.memory_bytes[0]
    assert less == 3 * 2 * 2048 * 8192 // 2
    assert megatron_flags(Job(away))["--offload-modules"] == MODULES.replace("+", " ")


def test_the_simulator_plays_the_same_transfers() -> None:
    """Of a step that slow links make longer, event by event, in stages and in chunks."""
    given = taut.load_cluster("dgx-h100:2")
    node = given.nodes[0]
    slow = node.model_copy(update={"device": node.device.model_copy(update={"host_link_gbytes": 1.0})})
    cluster = given.model_copy(update={"nodes": [slow]})
    fixed = {**FIXED, "empty_ends": False, "offload_modules": MODULES}
    for more in ({}, {"vpp": 2, "schedule": "interleaved-1f1b"}):
        plan = taut.plan(MODEL, cluster, global_batch=32, fix=fixed | more, work_limit=20)
        fast = taut.plan(MODEL, given, global_batch=32, fix=fixed | more, work_limit=20)
        assert plan.step_time_s > 1.5 * fast.step_time_s
        assert taut.simulate(plan).step_time_s == pytest.approx(plan.step_time_s, rel=0.01)
