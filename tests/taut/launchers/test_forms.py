"""Forms in which launchers are told what to run, by hand: read, refused, or named."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.errors import DataError
from taut.launchers.read import launch_of_file, launch_of_text
from taut.launchers.settings import Run

MODEL = taut.ModelSpec.parse(
    {"name": "m", "layers": 32, "hidden": 4096, "heads": 32, "ffn_hidden": 16384, "seq": 4096, "vocab": 50304}, "m"
)
RUN = Run(MODEL, 16)

FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "run.sh": (
        "TP=${TP:-2}\nGPUS=8\nARGS=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size 4)\n"
        "torchrun --nproc-per-node $GPUS --nnodes=2 pretrain_gpt.py ${ARGS[@]} --micro-batch-size=1 \\\n"
        "  --global-batch-size $((GPUS * 4)) --bf16 --lr 3e-4 --train-iters 100",
        {"tp": 2, "pp": 4, "micro_batch": 1, "global_batch": 32, "zero": 0},
    ),
    "swift.sh": (
        "megatron sft --model m --tensor_model_parallel_size 8 --micro_batch_size 2 --sequence_parallel true",
        {"tp": 8, "micro_batch": 2, "sequence_parallel": True, "zero": 1, "recompute": "selective"},
    ),
    "overrides.txt": (
        "model.tensor_model_parallel_size=4\nmodel.sequence_parallel=true\ntrain.micro_batch_size=2\n",
        {"tp": 4, "pp": 1, "sequence_parallel": True, "micro_batch": 2},
    ),
    "bridge.sh": (
        "python run_recipe.py --recipe a model.pipeline_model_parallel_size=2 "
        "model.virtual_pipeline_model_parallel_size=4 train.micro_batch_size=1 train.global_batch_size=64 "
        "model.recompute_granularity=selective 'model.recompute_modules=[core_attn,mlp]'",
        {"pp": 2, "vpp": 4, "recompute": "selective", "recompute_modules": "core_attn+mlp", "global_batch": 64},
    ),
    "nemo.yaml": (
        "trainer: {num_nodes: 2, devices: 8}\nmodel:\n  micro_batch_size: 1\n  global_batch_size: 64\n"
        "  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 2\n  encoder_seq_length: 2048\n"
        "  activations_checkpoint_granularity: full\n  activations_checkpoint_method: uniform\n"
        "  activations_checkpoint_num_layers: 1\n  optim: {name: mcore_distributed_optim, lr: 0.1}\n",
        {"tp": 4, "pp": 2, "recompute": "full", "zero": 1, "global_batch": 64},
    ),
    "verl.sh": (
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=8 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        {"tp": 4, "micro_batch": 2},
    ),
    "flat.yml": (
        "tensor_model_parallel_size: 2\ncontext_parallel_size: 2\nmicro_batch_size: 1\nglobal_batch_size: 32\n",
        {"tp": 2, "cp": 2, "micro_batch": 1},
    ),
    "recipe.py": (
        "def pretrain():\n    cfg = llama()\n    cfg.model.tensor_model_parallel_size = 2\n"
        "    cfg.train.micro_batch_size = 2\n    cfg.model.sequence_parallel = True\n    return cfg\n",
        {"tp": 2, "micro_batch": 2, "sequence_parallel": True},
    ),
    "config.py": (
        "def llama():\n    return Trainer.Config(parallelism=ParallelismConfig(tensor_parallel_degree=4),\n"
        "        training=TrainingConfig(local_batch_size=2, seq_len=4096),\n"
        "        activation_checkpoint=FullAC.Config())\n",
        {"tp": 4, "micro_batch": 2, "recompute": "full", "global_batch": 8},
    ),
    "old.toml": (
        "[training]\nbatch_size = 2\nseq_len = 2048\ntensor_parallel_degree = 2\n[experimental]\n"
        "pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 1\n",
        {"tp": 2, "pp": 2, "micro_batch": 1, "global_batch": 8, "layers": "16|16"},
    ),
    "ends.toml": (
        "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
        "pipeline_parallel_layers_per_stage = 4\npipeline_parallel_first_stage_less_layers = 0\n"
        "pipeline_parallel_last_stage_less_layers = 0\n",
        {"vpp": 2, "layers": "4|4|4|4|4|4|4|4"},
    ),
    "ds.json": (
        json.dumps({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {}}),
        {"micro_batch": 2, "global_batch": 128, "zero": 0},
    ),
    "whole.json": (
        json.dumps({"train_batch_size": 64, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}),
        {"micro_batch": 1, "global_batch": 64, "zero": 2},
    ),
    "fp16.json": (
        json.dumps(
            {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": "auto"}}
        ),
        {"micro_batch": 4, "global_batch": 64},
    ),
    "nanotron.yaml": (
        "parallelism: {dp: 4, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, recompute_layer: false}\n"
        "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 3, sequence_length: 2048, train_steps: 10}\n"
        "optimizer: {zero_stage: 1}\n",
        {"dp": 4, "tp": 2, "pp": 2, "sequence_parallel": True, "micro_batch": 2, "global_batch": 24, "zero": 1},
    ),
    "axolotl.yaml": (
        "base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\ntensor_parallel_size: 2\n"
        "dp_shard_size: 8\nfsdp_version: 2\ngradient_checkpointing: true\nsequence_len: 4096\n",
        {"tp": 2, "zero": 3, "micro_batch": 2, "global_batch": 32, "recompute": "full"},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_forms_are_read(name: str, tmp_path: Path) -> None:
    """Values of a file on sixteen devices."""
    text, wanted = FILES[name]
    (tmp_path / name).write_text(text)
    found = launch_of_file(tmp_path / name, RUN).values
    assert {field: found.get(field) for field in wanted} == wanted


REFUSED = {
    "lora.yaml": ("base_model: m\nadapter: qlora\nmicro_batch_size: 1\n", "adapter qlora: training of adapters alone"),
    "empty.toml": ("", "TOML without a section"),
    "run.sh": (
        "python pretrain_gpt.py --ds-sequence-parallel-size 4 --micro-batch-size 1 --tensor-model-parallel-size 1",
        "--ds-sequence-parallel-size 4: sequence ranks of DeepSpeed",
    ),
    "ds.json": (
        json.dumps({"train_batch_size": 100, "train_micro_batch_size_per_gpu": 3}),
        "train_batch_size 100: expected micro-batch 3 x 2 steps x 16 replicas = 96",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_say_nothing_of_a_priced_run_are_refused(name: str, tmp_path: Path) -> None:
    """Adapters, an empty file, ranks of another framework, and batches that no step of accumulation divides."""
    text, words = REFUSED[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=re.escape(words)):
        launch_of_file(tmp_path / name, RUN)


def test_steps_of_accumulation_follow_from_both_batches(tmp_path: Path) -> None:
    """DeepSpeed divides the batch by the micro-batch and the devices where the file states no steps; zero by name."""
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}')
    assert launch_of_file(path, RUN).values == {"zero": 3, "global_batch": 256, "micro_batch": 2}
    for name in ("ds_z3_config.json", "zero3_bf16.json"):
        (tmp_path / "f.yaml").write_text(f"base_model: m\nmicro_batch_size: 1\ndeepspeed: {name}\n")
        assert launch_of_file(tmp_path / "f.yaml", RUN).values["zero"] == 3


def test_values_beside_a_file(tmp_path: Path) -> None:
    """What a script decides ("auto") may stand beside the file, and degrees count in the batch."""
    path = tmp_path / "ds.json"
    path.write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}')
    launch = launch_of_file(path, RUN, {"micro_batch": 1})
    assert launch.values == {"zero": 3, "global_batch": 16}
    assert launch.named == ('"auto", decided by the script: train_micro_batch_size_per_gpu',)
    path.write_text('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}')
    assert launch_of_file(path, RUN, {"tp": 2, "pp": 4}).values["global_batch"] == 16


WRONG = {
    "param.json": (
        '{"train_batch_size": 16, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
        'offload_param.device "cpu": weights in the host',
    ),
    "batch.json": (
        '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}',
        "train_batch_size 30: expected micro-batch 1 x 2 steps x 16 replicas = 32",
    ),
    "hosts.toml": ("[training]\nenable_cpu_offload = true\nlocal_batch_size = 1", "weights in the host"),
    "shards.toml": (
        "[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = 4",
        "torchtitan refuses it: tp 2 x pp 1 x cp 1 x copies 1 x shards 4 = 8 is not 16 devices",
    ),
    "experts.toml": ("[parallelism]\nexpert_parallel_degree = 12", "expected a divisor of shards x cp x tp = 16"),
    "heads.toml": ("[parallelism]\ntensor_parallel_degree = 3", "3 does not divide 32 heads, expected 2 or 4"),
    "weights.sh": ("--micro-batch-size 1 --cpu-offloading-weights", "weights in the host"),
    "two.yaml": (
        "a: {tensor_model_parallel_size: 2}\nb: {tensor_model_parallel_size: 4}\n",
        "b.tensor_model_parallel_size 4: a.tensor_model_parallel_size states 2, expected one value",
    ),
    "two.py": (
        "a = ParallelismConfig(tensor_parallel_degree=2)\nb = ParallelismConfig(tensor_parallel_degree=4)\n",
        "parallelism.tensor_parallel_degree is 2 and 4, expected one configuration",
    ),
    "none.yaml": ("a: 1\n", "no setting of a known launcher"),
    "dp.yaml": ("parallelism: {dp: 4, tp: 2, pp: 1}\ntokens: {micro_batch_size: 1}\n", "nanotron refuses it"),
    "kinds.sh": ("--micro-batch-size 1 --context-parallel-size 2 --cp-comm-type p2p a2a", "expected one kind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forms_are_one_line(name: str, tmp_path: Path) -> None:
    """What is wrong, and what was expected."""
    text, words = WRONG[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as refusal:
        launch_of_file(tmp_path / name, RUN)
    assert words in str(refusal.value) and name in str(refusal.value)


NAMED = [
    ("--micro-batch-size 1 --no-such-thing 2 --lr 1e-4 --save a", ["not priced: --no-such-thing"]),
    ("--micro-batch-size 1 --hidden-size 2048", ["--hidden-size 2048: m has 4096, which is priced"]),
    ("--tensor-model-parallel-size 2", ["--micro-batch-size: not stated, 1 is taken"]),
    ("torchrun --nnodes 4 --nproc-per-node 8 x.py --micro-batch-size 1", ["4 x 8 processes are started: 16 devices"]),
    (
        "--micro-batch-size 1 --recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
        ["--recompute-num-layers 4: every layer is priced as recomputed"],
    ),
    ("--micro-batch-size 1 --num-layers 32 --hidden-size 4096 --bf16", []),
    (
        "--micro-batch-size 1 --mtp-num-layers 2 --mtp-use-repeated-layer",
        ["--mtp-use-repeated-layer: m has layers of its own for each further token, and is priced so"],
    ),
    ("--micro-batch-size 1 --mtp-num-layers 1 --mtp-use-repeated-layer", []),
    ("--micro-batch-size 1 --num-layers 32 --hidden-size 4096", ["neither --bf16 nor --fp16"]),
    (
        "--training.local_batch_size 1 --compile.enable true",
        ["priced as the calibration's runs had it: compile.enable"],
    ),
    ("--training.local_batch_size 1 --activation_checkpoint.selective_ac_option 2", ["selective_ac_option 2"]),
]


@pytest.mark.parametrize(("text", "words"), NAMED)
def test_what_nothing_prices_is_named(text: str, words: list[str]) -> None:
    """One line for each, and none for data, learning rates or checkpoints."""
    found = launch_of_text(text, RUN).named
    assert len(found) == len(words) and all(one in line for one, line in zip(words, found, strict=True)), found


def test_further_tokens_with_the_same_weights_are_compared() -> None:
    """A model whose further tokens pass the same layers is priced so, and a line that does not say it is named."""
    run, text = Run(MODEL.model_copy(update={"mtp_repeated": True}), 16), "--micro-batch-size 1 --mtp-num-layers 2"
    assert not launch_of_text(f"{text} --mtp-use-repeated-layer", run).named
    for unsaid in ("", " --mtp-use-repeated-layer false"):
        assert "not given: m has the same layers" in launch_of_text(text + unsaid, run).named[0]


def test_formats_are_options() -> None:
    """Sequence, number formats, and further tokens."""
    line = "--micro-batch-size 1 --seq-length 2048 --bf16 --fp8-format hybrid --fp8-recipe mxfp8 --grad-reduce-in-bf16"
    wanted = {"seq": 2048, "precision": "mxfp8", "grad_precision": "bf16", "mtp_layers": 1}
    assert launch_of_text(f"{line} --mtp-num-layers 1", RUN).options == wanted


@pytest.mark.parametrize(("chunks", "read"), [(2, True), (3, False)])
def test_a_layout_and_its_number_of_chunks_go_together_in_settings(chunks: int, read: bool) -> None:
    """Among settings both may stand, unlike among flags, as long as they agree."""
    actor = "actor_rollout_ref.actor.megatron"
    text = (
        f"python main.py {actor}.pipeline_model_parallel_size=2 {actor}.virtual_pipeline_model_parallel_size={chunks} "
        f"++{actor}.override_transformer_config.pipeline_model_parallel_layout='Et*8|t*9|t*8|t*7L'"
    )
    if read:
        found = launch_of_text(text, RUN).values
        assert (found["vpp"], found["layers"]) == (2, "8|9|8|7")
        return
    with pytest.raises(DataError, match=r"virtual_pipeline_model_parallel_size 3: .* has 4 chunks over 2 stages"):
        launch_of_text(text, RUN)
