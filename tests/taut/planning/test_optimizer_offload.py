"""Requests with optimizer states on hosts: which stacks, ZeRO stages and clusters take them, and what they buy."""

from typing import Any

import pytest

import taut
from taut.errors import DataError, FieldError


def problem(fraction: Any = 1.0, *, cluster: Any = "dgx-a100:2", **options: Any) -> taut.PlanningProblem:
    """The problem of a small request."""
    options = {"global_batch": 32, "max_tp": 2, "optimizer_offload_fraction": fraction} | options
    return taut.planning_problem(taut.PlanRequest("gpt2-345m", cluster, **options))


def test_a_stack_has_the_zero_stages_beside_which_it_offloads() -> None:
    """Megatron-LM the distributed optimizer's, DeepSpeed all, of a part of the states those of ZeRO-3."""
    assert {choice.zero for choice in problem().candidates if choice.dp_cp > 1} == {1}
    assert problem(stack="deepspeed").space.zero == [1, 2, 3]
    assert problem(stack="deepspeed").space.pipeline_zero == [1]
    assert problem(0.5, stack="deepspeed").space.zero == [3]
    assert problem(0.5, stack="any").space.zero == [0, 1, 2, 3]
    assert problem(0.0).space.zero == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fraction", "options", "words"),
    [
        (1.0, {"stack": "torchtitan"}, "optimizer_offload_fraction: 1, not in torchtitan, expected 0, or stack any"),
        (
            1.0,
            {"fix": {"zero": 3}},
            "fix: zero=3, not with optimizer_offload_fraction in megatron-core, expected one",
        ),
        (0.5, {"stack": "deepspeed", "fix": {"zero": 1}}, "fix: zero=1, not with optimizer_offload_fraction"),
        (0.5, {"latency_model": "pipette"}, "optimizer_offload_fraction: 0.5, no part of pipette, expected latency"),
        (1.5, {}, "optimizer_offload_fraction: 1.5, expected a share from 0 to 1"),
        ("0,2", {}, "optimizer_offload_fraction: 0,2, expected a share from 0 to 1, several with commas between"),
        ("some", {}, "optimizer_offload_fraction: some, expected a share from 0 to 1"),
        ("auto", {"stack": "torchtitan"}, "optimizer_offload_fraction: 1, not in torchtitan, expected 0"),
        ("auto", {"latency_model": "pipette"}, "optimizer_offload_fraction: 1, no part of pipette"),
        ("0.25,0.5", {"stack": "deepspeed", "fix": {"zero": 1}}, "fix: zero=1, not with optimizer_offload_fraction"),
        ("0,0.5", {"stack": "torchtitan"}, "optimizer_offload_fraction: 0.5, not in torchtitan, expected 0"),
    ],
)
def test_what_does_not_go_with_it_is_refused(fraction: float, options: dict[str, Any], words: str) -> None:
    """One line with the field, its value and what was expected."""
    with pytest.raises(FieldError, match=words):
        problem(fraction, **options)


def test_several_shares_are_a_choice_of_the_candidates() -> None:
    """Each goes with the ZeRO stages that the stack has beside it; one alone is the memory model's."""
    found = problem("auto")
    away = {(each.optimizer_offload, each.zero) for each in found.candidates if each.dp_cp > 1}
    part = [0.25, 0.5, 0.75, 1.0]
    assert away == {(0.0, 0), (0.0, 1), (0.0, 2), (0.0, 3)} | {(share, 1) for share in part}
    deepspeed = problem([0, 0.5, 1], stack="deepspeed").candidates
    away = {(each.optimizer_offload, each.zero) for each in deepspeed if each.dp_cp > 1 and each.pp == 1}
    assert away == {(0.0, zero) for zero in range(4)} | {(0.5, 3), (1.0, 1), (1.0, 2), (1.0, 3)}
    fixed = problem("auto", stack="deepspeed", fix={"zero": 1}).candidates
    assert {each.optimizer_offload for each in fixed if each.dp_cp > 1} == {0.0, 1.0}
    for one in ("0.5", [0.5], 0.5):
        assert problem(one).memory.optimizer_offload_fraction == 0.5
        assert problem(one).space.optimizer_offload == []


def test_a_memory_model_that_keeps_less_has_no_shares() -> None:
    """Hosts update in single precision."""
    with pytest.raises(DataError, match="half_moments: is true, expected false with optimizer_offload_fraction"):
        problem("auto", memory_model={"half_moments": True})


def test_a_cluster_without_hosts_is_refused() -> None:
    """Only where states are on hosts."""
    with pytest.raises(DataError, match="node of a100-40gb: host_memory_gbytes: missing"):
        problem(cluster="p4d.24xlarge")
    assert problem(0.0, cluster="p4d.24xlarge").candidates


def test_a_memory_model_may_state_it() -> None:
    """A file's share counts as the option does, and the option replaces it."""
    given = {"optimizer_offload_fraction": 0.5}
    assert problem(None, memory_model=given).memory.optimizer_offload_fraction == 0.5
    assert problem(0.0, memory_model=given).space.zero == [0, 1, 2, 3]


def one_a100() -> taut.ClusterSpec:
    """An A100 of 40 GB with the host of eight."""
    node = taut.load_cluster("dgx-a100").nodes[0]
    device = taut.load_cluster("p4d.24xlarge").nodes[0].device
    one = {"device": device.model_dump(), "gpus_per_node": 1, "intra_bandwidth_gbps": node.intra_bandwidth_gbps}
    one["host_memory_gbytes"] = 409.6
    return taut.ClusterSpec.parse({"name": "one", "nodes": [one]}, "one")


@pytest.mark.proof
def test_the_share_is_chosen_and_written() -> None:
    """Of GPT-3 2.7B on one A100 40 GB the share that is quickest alone; reports and exports have it."""
    from taut.exports.job import Job
    from taut.exports.megatron import megatron_flags

    cluster, quickest = one_a100(), {}
    for share in (0.25, 0.5, 0.75, 1.0):
        try:
            plan = taut.plan("gpt3-2.7b", cluster, global_batch=4, optimizer_offload_fraction=share)
        except taut.InfeasibleError:
            continue
        quickest[share] = plan.step_time_s
    plan = taut.plan("gpt3-2.7b", cluster, global_batch=4, optimizer_offload_fraction="auto")
    chosen = plan.strategy.optimizer_offload
    assert plan.step_time_s == pytest.approx(min(quickest.values()), rel=1e-12)
    assert plan.step_time_s == pytest.approx(quickest[chosen], rel=1e-12)
    assert chosen < max(quickest) and plan.gap == 0 and plan.verify().holds
    assert f"{100 * chosen:.3g}% of the optimizer states on the host" in str(plan)
    assert f"offload={chosen:g}" in repr(plan)
    assert megatron_flags(Job(plan))["--optimizer-offload-fraction"] == f"{chosen:g}"


def test_memory_is_bought_with_time() -> None:
    """
    GPT-3 2.7B on one A100 40 GB: 18 bytes a parameter do not fit, 6 do.

    The step takes 8 bytes over PCIe 4.0 at 0.77 of 31.5 GB/s and 28 at 0.24 of 409.6 GB/s for each parameter.
    """
    cluster = one_a100()
    with pytest.raises(taut.InfeasibleError):
        taut.plan("gpt3-2.7b", cluster, global_batch=4)
    plan = taut.plan("gpt3-2.7b", cluster, global_batch=4, optimizer_offload_fraction=1.0)
    assert plan.gap == 0
    assert plan.verify().holds
    assert "100% of the optimizer states on the host" in str(plan)
    parameters = plan.predicted.breakdown_s["optimizer"] / (8 / (0.77 * 31.5e9) + 28 / (0.24 * 409.6e9))
    assert parameters == pytest.approx(2.65e9, rel=0.01)
