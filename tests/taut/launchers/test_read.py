"""Launchers' own settings as values of a configuration: by hand, of published commands, and wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.errors import DataError
from taut.launchers.read import launch_of_file, launch_of_text

PRETRAIN = r"""
torchrun --nproc-per-node 8 pretrain_gpt.py \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size=16 \
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel \
    --micro-batch-size 1 --global-batch-size 1536  # comment
    --use-distributed-optimizer --recompute-activations --bf16
"""


def test_a_command_line_of_megatron() -> None:
    """GPT-3 175B: 96 layers over 16 stages are 6 each, in chunks of 2: three chunks."""
    assert launch_of_text(PRETRAIN).values == {
        "tp": 8, "pp": 16, "cp": 1, "micro_batch": 1, "vpp": 3, "schedule": "interleaved-1f1b",
        "sequence_parallel": True, "zero": 1, "ep": 1, "recompute": "selective", "global_batch": 1536,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("--pipeline-model-parallel-size 4 --num-layers 14 --decoder-first-pipeline-num-layers 2", "layers", "2|4|4|4"),
        ("--pipeline-model-parallel-size 2 --num-layers 7 --decoder-last-pipeline-num-layers 3", "layers", "4|3"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|t|tt|tL", "layers", "2|1|2|1"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|t|tt|tL", "vpp", 2),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4", "vpp", 4),
        ("--micro-batch-size 2 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "zero", 2),
        ("--micro-batch-size 2 --use-torch-fsdp2", "zero", 3),
        ("--micro-batch-size 2 --expert-model-parallel-size 16", "ep", 16),
        ("--micro-batch-size 2", "ep", 1),
        ("--micro-batch-size 2 --recompute-granularity full", "recompute", "full"),
        ("--micro-batch-size 2 --cpu-offloading-num-layers 0", "recompute", "none"),
        ("--micro-batch-size 2 --num-layers 8 --cpu-offloading-num-layers 2", "activation_offload_fraction", 0.25),
        ("--micro-batch-size 2 --optimizer-cpu-offload", "optimizer_offload_fraction", 1.0),
        (
            "--micro-batch-size 2 --optimizer-cpu-offload --optimizer-offload-fraction 0.5",
            *("optimizer_offload_fraction", 0.5),
        ),
        (
            "--micro-batch-size 2 --recompute-granularity selective --recompute-modules moe_act layernorm --bf16",
            *("recompute_modules", "moe_act+layernorm"),
        ),
        (
            "--micro-batch-size 2 --fine-grained-activation-offloading --offload-modules core_attn attn_proj --bf16",
            *("offload_modules", "core_attn+attn_proj"),
        ),
        ("--micro-batch-size 2 --activation-offload-fraction 0.5", "recompute", "none"),
        ("--micro-batch-size 2 --deepspeed-activation-checkpointing --checkpoint-in-cpu", "recompute", "full"),
        ("--micro-batch-size 2 --checkpoint-in-cpu", "activation_offload_fraction", 1.0),
        ("--parallelism.pipeline_parallel_degree 4 --training.global_batch_size 64", "global_batch", 64),
        ("--parallelism.pipeline_parallel_degree 4 activation_checkpoint:full", "recompute", "full"),
        ("--parallelism.data_parallel_shard_degree 1 --training.local_batch_size 4", "zero", 0),
    ],
)
def test_flags_by_hand(flags: str, name: str, value: Any) -> None:
    """Each flag that says something of the strategy."""
    assert launch_of_text(flags).values[name] == value


def test_files_are_told_apart(tmp_path: Path) -> None:
    """TOML of torchtitan, JSON of DeepSpeed, and flags in any other file."""
    (tmp_path / "a.toml").write_text("[parallelism]\ntensor_parallel_degree = 4\n[training]\nlocal_batch_size = 2\n")
    given = {"train_micro_batch_size_per_gpu": 4, "train_batch_size": 64, "zero_optimization": {"stage": 2}}
    (tmp_path / "b.json").write_text(json.dumps(given))
    (tmp_path / "run.sh").write_text(PRETRAIN)
    assert launch_of_file(tmp_path / "a.toml").values["tp"] == 4
    assert launch_of_file(tmp_path / "a.toml").values["micro_batch"] == 2
    assert launch_of_file(tmp_path / "b.json").values == {"micro_batch": 4, "global_batch": 64, "zero": 2}
    assert launch_of_file(tmp_path / "run.sh").values["pp"] == 16


WRONG = {
    "a.toml": ("parallelism = [", "expected sections"),
    "b.json": ('{"zero_optimization": 3}', "train_micro_batch_size_per_gpu"),
    "c.json": ('{"train_micro_batch_size_per_gpu": "auto"}', '"auto": expected a number'),
    "d.py": ("PARALLELISM = make()", "expected one configuration"),
    "e.sh": ("ls -l", "no flag of Megatron-LM or torchtitan"),
    "f.sh": ("--tensor-model-parallel-size ${TP}", "'${TP}': expected a whole number"),
    "g.sh": ("--tensor-model-parallel-size 'x", "No closing quotation"),
    "h.sh": (
        "--micro-batch-size 1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t|tL",
        "3 chunks",
    ),
    "i.sh": ("--micro-batch-size 1 --num-layers 7 --num-layers-per-virtual-pipeline-stage 2", "a divisor of 7"),
    "j.sh": ("--micro-batch-size 1 --use-megatron-fsdp --data-parallel-sharding-strategy all", "no_shard"),
    "k.toml": (
        '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "Best"',
        "expected one of 1F1B",
    ),
    "m.sh": ("--micro-batch-size 1 --optimizer-cpu-offload --optimizer-offload-fraction 2", "a share from 0 to 1"),
    "n.json": (
        '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}',
        'offload_optimizer.device "nvme": expected "cpu"',
    ),
    "o.sh": (
        "--micro-batch-size 1 --fine-grained-activation-offloading --activation-offload-fraction 0.5",
        "expected --offload-modules with it, such as core_attn attn_proj",
    ),
    "p.sh": (
        "--micro-batch-size 1 --num-layers 5 --cpu-offloading-num-layers 5",
        "expected fewer than the model's layers",
    ),
    "r.sh": (
        "--micro-batch-size 1 --fine-grained-activation-offloading --offload-modules moe_act "
        "--activation-offload-fraction 2",
        "--activation-offload-fraction 2: expected a share from 0 to 1",
    ),
    "q.json": (
        '{"train_batch_size": 8, "activation_checkpointing": '
        '{"cpu_checkpointing": true, "partition_activations": true}}',
        "activation_checkpointing.partition_activations with cpu_checkpointing: copies that compute waits for",
    ),
    "s.sh": (
        "--micro-batch-size 1 --deepspeed-activation-checkpointing --checkpoint-in-cpu --partition-activations",
        "--partition-activations with --checkpoint-in-cpu: copies that compute waits for",
    ),
    "l.toml": ("[parallelism]\ntensor_parallel_degree = 1.5", "a whole number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_one_line(name: str, tmp_path: Path) -> None:
    """The file, what is wrong, and what was expected."""
    text, words = WRONG[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as refusal:
        launch_of_file(tmp_path / name)
    assert words in str(refusal.value) and name in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("script", "tp", "said"),
    [
        ("T=4\nif [ $1 = big ]; then T=8; fi\nx.py --tensor-model-parallel-size $T", 4, "[ $1 = big ]"),
        ("if [ -z $T ]; then T=4; fi\nx.py --tensor-model-parallel-size $T", 4, "[ -z $T ]"),
        ("case $M in a) T=8;; *) T=4;; esac\nx.py --tensor-model-parallel-size $T", 4, "case $M in a"),
        ("for t in 2 4; do\nx.py --tensor-model-parallel-size $t\ndone", 2, "the first of 2 commands"),
    ],
)
def test_what_a_script_leaves_open_is_named(script: str, tp: int, said: str) -> None:
    """Conditions on the environment and further commands are named where they change the values; others are not."""
    found = launch_of_text(script)
    assert found.values["tp"] == tp
    assert any(said in each for each in found.named)
    quiet = launch_of_text("if [ -f a ]; then mkdir b; fi\nx.py --tensor-model-parallel-size 4\necho --sp 1")
    assert not any("environment" in each or "first of" in each for each in quiet.named)
