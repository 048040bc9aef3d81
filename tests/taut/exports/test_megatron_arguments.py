"""
Exported flags of ninety random plans and of named models, read by Megatron-LM's own argument parser.

``TAUT_MEGATRON_LM`` names a checkout of the repository; the parser needs torch, triton, six, regex and no GPU.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.exports.export import environment
from taut.exports.job import Job
from taut.exports.megatron import flags_text, megatron_flags
from tests.support.drawn_launches import drawn, drawn_with_experts
from tests.support.launches import asked

CHECKOUT = os.environ.get("TAUT_MEGATRON_LM", "")
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not Path(CHECKOUT, "megatron/training/arguments.py").is_file(), reason="no TAUT_MEGATRON_LM"),
]
READ: dict[str, Callable[[Job], Any]] = {
    "tensor_model_parallel_size": lambda job: job.strategy.tp,
    "pipeline_model_parallel_size": lambda job: job.strategy.pp,
    "context_parallel_size": lambda job: job.strategy.cp,
    "data_parallel_size": lambda job: job.strategy.dp,
    "expert_model_parallel_size": lambda job: job.strategy.ep,
    "sequence_parallel": lambda job: job.strategy.sequence_parallel,
    "micro_batch_size": lambda job: job.strategy.micro_batch,
    "global_batch_size": lambda job: job.global_batch,
    "seq_length": lambda job: job.sequence,
    "recompute_granularity": lambda job: {"none": None}.get(job.strategy.recompute[0], job.strategy.recompute[0]),
    "use_distributed_optimizer": lambda job: job.strategy.zero > 0,
    "use_megatron_fsdp": lambda job: job.strategy.zero > 1,
    "bf16": lambda _: True,
}
"""What is read of Megatron-LM's arguments, and what the plan says of it."""
OF_EXPERTS: dict[str, Callable[[Job], Any]] = {
    "expert_tensor_parallel_size": lambda job: job.strategy.etp or job.strategy.tp,
    "num_experts": lambda job: max(block.experts.num_experts for block in job.model.blocks if block.experts),
}
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3-70b": ("dgx-h100:8", {"pp": 4, "tp": 4, "cp": 2, "vpp": 5, "schedule": "interleaved-1f1b"}),
    "deepseek-v3": ("dgx-h100:32", {"tp": 1, "pp": 16, "ep": 8, "recompute": "full"}),
    "qwen3-30b-a3b": ("dgx-h100:2", {"pp": 1, "tp": 1, "zero": 3, "recompute": "full"}),
    "gpt-oss-20b": ("dgx-h100", {"pp": 4, "tp": 1, "ep": 2}),
    "llama3-8b": ("dgx-h100", {"pp": 1, "tp": 1, "zero": 3, "dp_shard": 4, "recompute": "full"}),
}
"""Models of the catalog, what they run on, and what their plans hold."""


def case_of(job: Job) -> dict[str, Any]:
    """The flags as words, with the environment variables of the export."""
    words = flags_text(megatron_flags(job)).split()
    set_up = environment(job) | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(len(job.devices))}
    return {"checkout": CHECKOUT, "words": words, "environment": set_up, "read": [*READ, *OF_EXPERTS, "cp_comm_type"]}


def said_of(jobs: list[Job]) -> list[dict[str, Any]]:
    """What the checkout's parser makes of exports."""
    return asked("megatron_arguments", list(map(case_of, jobs)), "checkout_worker")


def check(job: Job, said: dict[str, Any]) -> None:
    """Every argument is what the plan says, and every chunk would build the plan's layers."""
    wanted = READ | (OF_EXPERTS if job.model.has_experts else {})
    assert {name: said.get(name) for name in wanted} == {name: value(job) for name, value in wanted.items()}, said
    assert said["layers"] == [list(job.layers[rank :: job.strategy.pp]) for rank in range(job.strategy.pp)]


def test_random_plans_are_taken_as_they_are() -> None:
    """Sixty plans of equal layers and thirty with experts: degrees, batch, recompute, sharding and layers."""
    dense = drawn("megatron-core", ["1f1b", "interleaved-1f1b"], ["none", "selective", "full"])
    jobs = [*dense, *drawn_with_experts()]
    for job, said in zip(jobs, said_of(jobs), strict=True):
        check(job, said)


@pytest.mark.parametrize("model", NAMED)
def test_named_models_are_taken_as_they_are(model: str) -> None:
    """Grouped queries, latent attention, sliding windows, shared experts, dense first layers and copies of weights."""
    cluster, fix = NAMED[model]
    job = Job(taut.plan(model, cluster, global_batch=256, fix=fix))
    check(job, said_of([job])[0])


def test_the_prediction_of_further_tokens_is_taken_as_it_is() -> None:
    """DeepSeek-V3 with one further token gets MLPerf's layout, whose last stages are taken too."""
    fix: dict[str, Any] = {"tp": 1, "pp": 16, "ep": 8, "recompute": "full", "schedule": "1f1b"}
    job = Job(taut.plan("deepseek-v3", "dgx-h100:64", global_batch=512, mtp_layers=1, fix=fix))
    assert megatron_flags(job)["--pipeline-model-parallel-layout"] == "Et*4|(t*4|)*14tmL"
    check(job, said_of([job])[0])


def test_exchanges_beside_another_micro_batch_are_taken_as_they_are() -> None:
    """Expert ranks whose exchanges are hidden, with the kernels in any order."""
    fix: dict[str, Any] = {"pp": 2, "tp": 1, "ep": 8, "vpp": 2, "micro_batch": 1, "recompute": "none"}
    fix["schedule"] = "interleaved-1f1b"
    found = taut.plan("qwen3-30b-a3b", "dgx-h100:2", global_batch=256, fix=fix, overlap_moe_expert_parallel_comm=True)
    job = Job(found)
    assert environment(job)["CUDA_DEVICE_MAX_CONNECTIONS"] != "1"
    check(job, said_of([job])[0])


@pytest.mark.parametrize("kind", ["p2p", "all_gather", "a2a"])
def test_kinds_of_context_ranks_are_taken_as_they_are(kind: str) -> None:
    """Llama 3 8B at 16,384 tokens over four context ranks."""
    fix: dict[str, Any] = {"pp": 1, "tp": 1, "cp": 4, "cp_comm": kind, "micro_batch": 1, "recompute": "full"}
    job = Job(taut.plan("llama3-8b", "dgx-h100", global_batch=64, seq=16384, fix=fix))
    said = said_of([job])[0]
    check(job, said)
    assert said["cp_comm_type"] in (kind, [kind])


@pytest.mark.parametrize("fraction", [0.25, 1.0])
def test_states_on_hosts_are_taken_as_they_are(fraction: float) -> None:
    """The share of the optimizer states and the optimizers that go with it, also with one replica."""
    for fix in ({"pp": 2, "tp": 2, "dp": 2}, {"pp": 2, "tp": 4, "dp": 1}):
        job = Job(taut.plan("llama3-8b", "dgx-h100", global_batch=64, fix=fix, optimizer_offload_fraction=fraction))
        case = case_of(job)
        read = ["optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer"]
        case["read"] = [*read, "use_distributed_optimizer"]
        (said,) = asked("megatron_arguments", [case], "checkout_worker")
        assert [said[name] for name in case["read"]] == [True, fraction, True, True], said


@pytest.mark.parametrize(
    ("modules", "share", "more"),
    [
        ("core_attn+attn_proj+expert_fc1+moe_act", 1.0, {}),
        ("qkv_linear+mlp_norm", 0.5, {"vpp": 2, "schedule": "interleaved-1f1b"}),
        ("fused_group_mlp", 1.0, {}),
    ],
)
def test_modules_on_hosts_are_taken_as_they_are(modules: str, share: float, more: dict[str, Any]) -> None:
    """Modules and their share beside pipelines, chunks and selective recompute, and what a fused part asks for."""
    fix = {"pp": 2, "tp": 1, "ep": 4, "recompute": "selective", "offload_modules": modules, **more}
    options: dict[str, Any] = {"activation_offload_fraction": share, "gap": 0.5}
    case = case_of(Job(taut.plan("qwen3-30b-a3b", "dgx-h100:2", global_batch=64, fix=fix, **options)))
    case["read"] = ["fine_grained_activation_offloading", "offload_modules", "activation_offload_fraction"]
    case["read"].append("use_transformer_engine_op_fuser")
    (said,) = asked("megatron_arguments", [case], "checkout_worker")
    assert [said[name] for name in case["read"]] == [True, modules.split("+"), share, "fused" in modules], said


def test_what_does_not_fit_the_plan_is_refused() -> None:
    """Another number of processes, a layout of other layers, kernels in any order, and a flag that is none."""
    jobs = drawn("megatron-core", ["1f1b"], ["none"])
    case = case_of(next(job for job in jobs if job.strategy.pp > 1 and job.strategy.tp > 1))
    found = case["environment"]
    wrong = [
        case | {"environment": found | {"WORLD_SIZE": "7"}},
        case | {"words": ["14" if word == "13" else word for word in case["words"]]},
        case | {"environment": found | {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}},
        case | {"words": [*case["words"], "--no-such-flag"]},
    ]
    answers = asked("megatron_arguments", [case, *wrong], "checkout_worker")
    assert ["refusal" in said for said in answers] == [False, True, True, True, True], answers
    assert "--no-such-flag" in answers[-1]["refusal"]
