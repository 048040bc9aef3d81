"""Every setting that a reader knows, changed in turn: another result, a refusal, or a line that names it."""

import json
from pathlib import Path

import pytest

import taut
from taut.errors import DataError
from taut.launchers import deepspeed, megatron, torchtitan
from taut.launchers.read import launch_of_file, launch_of_text
from taut.launchers.settings import Launch, Run, known

MODEL = taut.ModelSpec.parse(
    {
        "name": "m", "layers": 32, "hidden": 4096, "heads": 32, "seq": 4096, "vocab": 50304,
        "experts": {"num_experts": 16, "experts_per_token": 2, "expert_ffn_hidden": 1024},
    },
    "m",
)  # fmt: skip
RUN = Run(MODEL, 64)
LINE = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64"
BESIDE = {
    "--cp-comm-type": ("a2a", "--context-parallel-size 2"),
    "--hierarchical-context-parallel-sizes": ("2 4", ""),
    "--data-parallel-sharding-strategy": ("optim_grads", "--use-megatron-fsdp"),
    "--num-distributed-optimizer-instances": ("2", "--use-distributed-optimizer"),
    "--optimizer-offload-fraction": ("0.5", "--optimizer-cpu-offload --use-precision-aware-optimizer"),
    "--torch-fsdp2-no-reshard-after-forward": ("", "--use-torch-fsdp2 --pipeline-model-parallel-size 1"),
    "--cross-entropy-fusion-impl": ("te", "--cross-entropy-loss-fusion"),
    "--fp8-param-gather": ("", "--fp8-format hybrid"),
    "--reuse-grad-buf-for-mxfp8-param-ag": (
        "",
        "--fp8-format hybrid --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer",
    ),
    "--recompute-modules": ("mlp", "--recompute-granularity selective"),
    "--recompute-method": ("block", "--recompute-granularity full --recompute-num-layers 1"),
    "--recompute-num-layers": ("4", "--recompute-granularity full --recompute-method uniform"),
    "--recompute-granularity": ("selective", ""),
    "--offload-modules": ("core_attn", "--fine-grained-activation-offloading"),
    "--activation-offload-fraction": ("0.5", "--fine-grained-activation-offloading --offload-modules core_attn"),
    "--partition-activations": ("", "--checkpoint-in-cpu"),
    "--deepspeed-activation-checkpointing": ("", "--checkpoint-in-cpu --partition-activations"),
    "--moe-token-dispatcher-type": ("flex", "--expert-model-parallel-size 2"),
    "--moe-dispatch-fwd-dtype": ("mxfp8", "--expert-model-parallel-size 2"),
    "--moe-router-dtype": ("fp32", "--expert-model-parallel-size 2"),
    "--moe-router-num-groups": ("4", "--expert-model-parallel-size 2"),
    "--moe-router-group-topk": ("2", "--expert-model-parallel-size 2"),
    "--expert-tensor-parallel-size": ("1", "--expert-model-parallel-size 2"),
    "--pipeline-model-parallel-layout": ("Et*15|t*17L", ""),
    "--decoder-first-pipeline-num-layers": ("15", ""),
    "--decoder-last-pipeline-num-layers": ("15", ""),
    "--num-layers": ("30", ""),
    "--fp8-format": ("hybrid", ""),
    "--fp8-recipe": ("mxfp8", "--fp8-format hybrid"),
    "--fp4-format": ("e2m1", ""),
    "--bf16": ("", "--fp16"),
    "--accumulate-allreduce-grads-in-fp32": ("", "--grad-reduce-in-bf16"),
    "--nnodes": ("3", "--nproc-per-node 8"),
    "--deepspeed": ("", "--zero-stage 2"),
    "--zero-stage": ("2", "--deepspeed"),
    "--deepspeed-config": ("ds.json", "--deepspeed"),
    "--nproc-per-node": ("4", "--nnodes 8"),
    "--use-custom-fsdp": ("", ""),
    "--seq-length": ("2048", ""),
    "--tensor-model-parallel-size": ("4", ""),
}
"""Values of flags, and what they say something beside."""
WITHOUT = {"--world-size", "--deepspeed-activation-checkpointing"}
"""What says the same as the devices of the cluster, and what only allows another flag."""


def said(text: str) -> Launch | str:
    """What a line says, or why it is refused."""
    try:
        return launch_of_text(text, RUN)
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("flag", sorted(megatron.READ | megatron.SHAPE.keys() - {"--kv-channels", "--ffn-hidden-size"}))
def test_every_flag_says_something(flag: str) -> None:
    """Flags that are read, with a value of their own beside what they speak of."""
    if flag in WITHOUT:
        return
    value, more = BESIDE.get(flag, ("" if flag in megatron.SWITCHES else "4", ""))
    before = f"{LINE} {more}"
    assert said(f"{before} {flag} {value}") != said(before)


FIELDS: dict[str, tuple[object, str]] = {
    torchtitan.REPLICATE: (2, ""),
    torchtitan.SHARD: (8, ""),
    torchtitan.ETP: (2, "--parallelism.expert_parallel_degree 4"),
    torchtitan.SCHEDULE: ("Interleaved1F1B", ""),
    torchtitan.RESHARD: ("always", ""),
    torchtitan.AT_ONCE: (8192, "--training.max_context_length 4096"),
    torchtitan.CONTEXT: (2048, ""),
    torchtitan.TOKENS: (2**20, "--training.max_context_length 4096 " + f"--{torchtitan.AT_ONCE} 8192"),
    torchtitan.PIPELINE_BATCHES: (4, "--training.max_context_length 4096 " + f"--{torchtitan.AT_ONCE} 8192"),
    torchtitan.SPLITS: ("layers.15", ""),
    torchtitan.EACH: (9, ""),
    torchtitan.OLD_LOCAL: (4, ""),
    torchtitan.MODE: ("full", ""),
    torchtitan.HOSTS: ("true", ""),
    "activation_checkpoint.selective_ac_option": ("2", ""),
    "training.mixed_precision_param": ("float32", ""),
    "parallelism.enable_sequence_parallel": ("false", ""),
    torchtitan.FIRST: (3, ""),
    torchtitan.LAST: (3, ""),
}
FIXED = {
    "parallelism.pipeline_parallel_schedule_csv", "training.mixed_precision_reduce",
    "parallelism.disable_loss_parallel", "training.disable_cuda_graphs", torchtitan.PARTS,
}  # fmt: skip
"""What has one value, or says what another field says; and lists of names, which no flag takes."""


@pytest.mark.parametrize("field", sorted(torchtitan.READ - FIXED))
def test_every_field_of_torchtitan_says_something(field: str) -> None:
    """Fields that are read, in a pipeline of two stages."""
    value, more = FIELDS.get(field, (4, ""))
    before = f"--parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2 {more}"
    assert said(f"{before} --{field} {value}") != said(before)


SECTIONS: dict[str, object] = {
    "train_micro_batch_size_per_gpu": 2,
    "train_batch_size": 128,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 3},
    "activation_checkpointing": {"number_checkpoints": 4},
    "bf16": {"enabled": True},
    "bfloat16": {"enabled": True},
    "fp16": {"enabled": True},
    "data_types": {"grad_accum_dtype": "bf16"},
    "tensor_parallel": {"autotp_size": 4},
    "sequence_parallel_size": 4,
}


@pytest.mark.parametrize("name", sorted(deepspeed.READ))
def test_every_section_of_deepspeed_says_something(name: str, tmp_path: Path) -> None:
    """Sections that are read, and ZeRO's own fields that decide memory."""
    base: dict[str, object] = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}

    def read(values: dict[str, object]) -> Launch:
        (tmp_path / "ds.json").write_text(json.dumps(values))
        return launch_of_file(tmp_path / "ds.json", RUN)

    try:
        assert read(base | {name: SECTIONS[name]}) != read(base)
    except DataError as error:
        assert name in str(error)
    for field in ("overlap_comm", "zero_quantized_weights", "no_such_field"):
        found = read(base | {"zero_optimization": {"stage": 1, field: True}})
        assert found.named == (f"not priced: zero_optimization.{field}",)


@pytest.mark.parametrize("name", sorted(set(known("names_of_flags")) - {"devices", "num_nodes"}))
def test_every_name_of_a_flag_says_something(name: str, tmp_path: Path) -> None:
    """Names that frameworks over Megatron-LM give its flags, beside what these need."""
    flag = known("names_of_flags")[name]
    value, more = BESIDE.get(flag, ("4", ""))
    words = f"model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=2 {_settings(more)}"
    values = {"--recompute-granularity": "full", "--recompute-method": "uniform", "--global-batch-size": "64"}
    stated = values.get(flag, value)
    assert said(f"{words} model.{name}={stated}") != said(words)


def _settings(flags: str) -> str:
    """Flags of a line as settings by path."""
    words = flags.replace("--", "\0").split("\0")[1:]
    pairs = [word.split() for word in words]
    return " ".join(f"model.{flag.replace('-', '_')}={values[0] if values else 'true'}" for flag, *values in pairs)
