"""Forms of scripts and YAML that public repositories have: what was passed over or refused is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from taut.errors import DataError
from taut.launchers.read import launch_of_file, launch_of_text
from taut.launchers.settings import Launch, Run

CALL = "--tensor-model-parallel-size 2 --micro-batch-size 4 --sequence-parallel"


@pytest.mark.parametrize(
    "script",
    [
        # A command substitution with an option of its own.
        "MASTER=$(scontrol show hostnames $NODES | head -n 1)\n"
        'CMD="python pretrain_gpt.py ' + CALL + ' --master $MASTER"\nsrun bash -c "$CMD"',
        # A comment whose line ends as if it went on.
        '#    --universal-checkpoint \\\nexport CMD=" \\\n `pwd`/pretrain_gpt.py \\\n '
        + CALL
        + ' "\nsrun bash -c "$CMD"',
        # The command stands in a batch script that is written in place.
        'ARGS="' + CALL + '"\nsbatch <<EOF\n#!/bin/bash\nsrun python pretrain_gpt.py $ARGS --bf16\nEOF\n',
        # Variables alone, and a line for people that has a colon.
        'MODEL_ARGS=" \\\n    ' + CALL + '"\nmkdir -p x || { echo "Error: no folder"; }\n',
    ],
)
def test_scripts(script: str) -> None:
    """Tensor ranks, micro-batch and sequence parallelism are found."""
    values = launch_of_text(script).values
    assert (values["tp"], values["micro_batch"], values["sequence_parallel"]) == (2, 4, True)


def test_a_file_that_a_script_reads(tmp_path: Path) -> None:
    """Settings of a sourced file are read; without it a line says what is not known."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sh").write_text("MODEL_ARGS=(\n --num-layers 10 --hidden-size 64\n)\n")
    script = tmp_path / "run.sh"
    script.write_text(
        'DIR="$(cd -- "$(dirname -- "$0")" && pwd)"\nsource "${DIR}/models/m.sh"\n'
        "python train.py ${MODEL_ARGS[@]} --pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 4\n"
    )
    assert launch_of_file(script).values["layers"] == "6|4"
    script.write_text("python train.py ${MODEL_ARGS[@]} $EXTRA --micro-batch-size 2 --data-path $DATA\n")
    named = launch_of_file(script).named
    assert "the words do not state ${MODEL_ARGS[@]}, $EXTRA, whose settings are not read" in named


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--checkpoint-activations", "recompute", "full"),
        ("--activations-checkpoint-method uniform", "recompute", "full"),
        ("--deepspeed --zero-stage 2", "zero", 2),
        ("--deepspeed --zero-stage 0 --bf16", "zero", 1),
        ("--deepspeed --zero-stage 0 --fp16", "zero", 0),
    ],
)
def test_flags_of_older_releases(words: str, name: str, value: Any) -> None:
    """Megatron-LM of 2020 and 2021, and Megatron-DeepSpeed, whose bf16 optimizer shards its states."""
    assert launch_of_text(f"--micro-batch-size 1 {words}").values[name] == value


@pytest.mark.parametrize(
    "words",
    ["--transformer-impl local", "--attention-backend unfused", "--use-tp-pp-dp-mapping", "--deepspeed-config x"],
)
def test_kernels_and_orders_that_are_not_priced_are_named(words: str) -> None:
    beside = "--deepspeed --zero-stage 1 " if "deepspeed" in words else ""
    named = launch_of_text(f"--micro-batch-size 1 {beside}{words}").named
    assert any(words.split()[0] in sentence for sentence in named)


def read(folder: Path, **fields: Any) -> Launch:
    """What a YAML file with these fields says on eight devices."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(fields))
    return launch_of_file(path, Run(None, 8))


AXOLOTL: dict[str, Any] = {"base_model": "m", "micro_batch_size": 2, "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"fsdp_config": {"fsdp_activation_checkpointing": True}}, {"recompute": "full", "zero": 3}),
        ({"fsdp_config": {"activation_checkpointing": True}}, {"recompute": "full", "zero": 3}),
        ({"fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"}}, {"zero": 2}),
        ({"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": False}}, {"zero": 2}),
        ({"fsdp": ["full_shard", "auto_wrap"]}, {"zero": 3, "global_batch": 64}),
        ({"gradient_checkpointing": "unsloth"}, {"recompute": "full", "zero": 0}),
    ],
)
def test_axolotl(tmp_path: Path, fields: dict[str, Any], values: dict[str, Any]) -> None:
    """FSDP's own settings decide recompute and the ZeRO stage."""
    found = read(tmp_path, **AXOLOTL, **fields)
    assert found.values.items() >= values.items()
    assert found.named == ()


@pytest.mark.parametrize("fields", [{"fsdp_offload_params": True}, {"offload_params": True}])
def test_weights_on_hosts_are_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"offload_params: weights in the host's memory are not priced"):
        read(tmp_path, **AXOLOTL, fsdp_config=fields)


@pytest.mark.parametrize(
    "field", ["optimizer", "load_in_8bit", "micro_batches_of_mine", "sequence_parallel_of_mine", "unfrozen_parameters"]
)
def test_what_decides_memory_is_named(tmp_path: Path, field: str) -> None:
    """A setting that speaks of memory or time and is not read stands in a line."""
    assert any(field in sentence for sentence in read(tmp_path, **AXOLOTL, **{field: "adamw_torch_8bit"}).named)


FACTORY: dict[str, Any] = {
    **{"model_name_or_path": "m", "finetuning_type": "full", "per_device_train_batch_size": 2},
    **{"gradient_accumulation_steps": 4, "cutoff_len": 2048},
}


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"deepspeed": "ds_z3_config.json"}, {"zero": 3, "recompute": "full", "micro_batch": 2, "global_batch": 64}),
        ({"disable_gradient_checkpointing": True}, {"zero": 0, "recompute": "none"}),
        (
            {"tensor_model_parallel_size": 2, "use_distributed_optimizer": True, "recompute_granularity": "full"},
            {"tp": 2, "zero": 1, "recompute": "full", "micro_batch": 2, "global_batch": 32},
        ),
    ],
)
def test_llama_factory(tmp_path: Path, fields: dict[str, Any], values: dict[str, Any]) -> None:
    """Its micro-batch has the trainer's name; with degrees of Megatron-LM it trains over that."""
    found = read(tmp_path, **FACTORY, **fields)
    assert found.values.items() >= values.items()
    assert found.options["seq"] == 2048


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({**FACTORY, "finetuning_type": "lora"}, "finetuning-type lora: training of a part of the weights"),
        (
            {"dist_config": {"name": "fsdp2"}, "micro_batch_size": 1},
            "dist_config.name: settings of LLaMA-Factory's version 1",
        ),
    ],
)
def test_what_is_not_read_of_llama_factory(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, **fields)


def test_trainers_recompute_only_if_told(tmp_path: Path) -> None:
    """TRL's files have no kind of fine-tuning, and the trainer keeps all activations unless told otherwise."""
    base = {"model_name_or_path": "m", "per_device_train_batch_size": 1, "max_length": 1024}
    assert read(tmp_path, **base).values["recompute"] == "none"
    assert read(tmp_path, **base, gradient_checkpointing=True).values["recompute"] == "full"
    with pytest.raises(DataError, match="peft use_peft"):
        read(tmp_path, **base, use_peft=True)


@pytest.mark.parametrize("text", ["${PRIMUS_TP:4}", "${oc.env:TP,4}"])
def test_variables_of_the_environment_with_what_is_taken_without_them(tmp_path: Path, text: str) -> None:
    """Primus and Hydra state a default behind the name."""
    assert read(tmp_path, overrides={"tensor_model_parallel_size": text, "micro_batch_size": 1}).values["tp"] == 4


def test_settings_that_decide_nothing_may_differ(tmp_path: Path) -> None:
    """Two groups of workers have two names; two micro-batches are refused."""
    base = {"actor": {"group_name": "a", "micro_batch_size": 1}, "env": {"group_name": "b"}}
    assert read(tmp_path, **base).values["micro_batch"] == 1
    with pytest.raises(DataError, match=r"env.micro_batch_size 2: actor.micro_batch_size states 1"):
        read(tmp_path, **base | {"env": {"micro_batch_size": 2}})


def test_flags_as_names_of_yaml(tmp_path: Path) -> None:
    """Arguments as keys, with their dashes."""
    found = read(tmp_path, MODEL_ARGS={"--tensor-model-parallel-size": 2, "--micro-batch-size": 4})
    assert (found.values["tp"], found.values["micro_batch"]) == (2, 4)


def test_a_layout_in_two_quotes() -> None:
    """Primus' scripts quote a layout twice."""
    text = "--micro-batch-size 1 --num-layers 4 --pipeline-model-parallel-size 2"
    found = launch_of_text(f"""{text} --pipeline-model-parallel-layout "'Et*1|t*3,L'" """)
    assert found.values["layers"] == "1|3"


def test_a_command_in_quotes_that_is_empty() -> None:
    """Quotes that hold nothing to run leave the command as it is."""
    assert launch_of_text("'if [ 1 -eq 1 ]'\npython x.py --micro-batch-size 2").values["micro_batch"] == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pipe_parallel_size": 2, "model_parallel_size": 4, "gradient_accumulation_steps": 1}, "GPT-NeoX"),
        ({"policy": {"dtensor_cfg": {"enabled": True, "context_parallel_size": 2}}}, "NeMo-RL over DTensor"),
        ({"actor": {"fsdp_config": {"param_offload": True}, "micro_batch_size": 1}}, "verl over FSDP"),
        ({"distributed": {"strategy": "fsdp2", "tp_size": 8}, "micro_batch_size": 1}, "NeMo Automodel"),
        (
            {"recipe_args": {"target_model_name_or_path": "Qwen/Qwen3-8B", "micro_batch_size": 4}},
            "speculative decoding",
        ),
        ({"model": {"micro_batch_size": 1, "peft": {"peft_scheme": "lora"}}}, "--peft-scheme lora: training of a part"),
        ({"policy": {"micro_batch_size": 1, "peft": {"enabled": True}}}, "--peft lora: training of a part"),
        ({"micro_batch_size": 1, "lora_rank": 16}, "--lora-rank 16: training of a part"),
    ],
)
def test_frameworks_and_adapters_that_are_not_read(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    """They were read as Megatron-LM's or Axolotl's, with degrees and batches of 1."""
    with pytest.raises(DataError, match=words):
        read(tmp_path, **fields)


def test_gpt_neox_in_json_is_no_file_of_deepspeed(tmp_path: Path) -> None:
    """Its pipelines and tensor ranks were named as not priced, and priced as 1."""
    path = tmp_path / "tune.json"
    path.write_text('{"pipe-parallel-size": 4, "train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    with pytest.raises(DataError, match="pipe-parallel-size: settings of GPT-NeoX are not read"):
        launch_of_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --vllm.tensor_parallel_size 2 --train.micro_batch_size 4",
        "vllm serve m --tensor-parallel-size 8",
        "swift sft --model m --tuner_type lora --per_device_train_batch_size 1",
        "swift sft --model m --per_device_train_batch_size 1",
        "megatron sft --tensor_model_parallel_size 2 --tuner_type lora",
    ],
)
def test_commands_that_are_no_training_of_all_weights(text: str) -> None:
    with pytest.raises(DataError, match=r"no flag of Megatron-LM|training of a part of the weights"):
        launch_of_text(text)


def test_a_trainers_command() -> None:
    """Arguments of Hugging Face's trainer on a command line say what they say in a file."""
    text = (
        "deepspeed train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_seq_length 4096 "
        "--deepspeed zero3_offload.json --gradient_checkpointing --fp16 True"
    )
    found = launch_of_text(text, Run(None, 8))
    assert found.values.items() >= {"micro_batch": 4, "global_batch": 64, "zero": 3, "recompute": "full"}.items()
    assert found.options == {"seq": 4096, "precision": "fp16"}
    assert "its settings for hosts are not read" in found.named[0]


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("bf16-mixed", {}),
        (16, {"precision": "fp16"}),
        ("bf16_with_fp8_current_scaling_mixed", {"precision": "fp8"}),
        ("bf16_with_mxfp8_mixed", {"precision": "mxfp8"}),
        ("bf16_with_nvfp4_mixed", {"precision": "nvfp4"}),
    ],
)
def test_precisions_in_a_word(tmp_path: Path, word: Any, options: dict[str, str]) -> None:
    """Lightning's and Megatron-Bridge's names of precisions; 32 bits are named."""
    base = {"model": {"micro_batch_size": 1}}
    assert read(tmp_path, **base, trainer={"precision": word}).options == options
    assert read(tmp_path, **base, trainer={"precision": 32}).named == ("not priced: --precision",)


@pytest.mark.parametrize("field", ["train_batch_size", "max_prompt_length", "grad_sync_dtype", "shard_of_mine"])
def test_passed_over_parts_name_what_decides(tmp_path: Path, field: str) -> None:
    """Parts without effect on a price name their settings that speak of memory or time."""
    found = read(tmp_path, model={"micro_batch_size": 1}, data={field: 7, "shuffle": True})
    assert found.named == (f"not priced: --{field.replace('_', '-')}",)


@pytest.mark.parametrize(
    "flag", ["--data-parallel-kind x", "--fp4-param-gather", "--train-micro-batch 4", "--save-precision x"]
)
def test_a_beginning_without_effect_hides_no_misspelt_flag(flag: str) -> None:
    assert launch_of_text(f"--micro-batch-size 1 {flag}").named == (f"not priced: {flag.split()[0]}",)


def test_sections_that_are_off_and_files_beneath(tmp_path: Path) -> None:
    """A section that is not enabled says nothing; ``defaults`` are read beneath, and named where they are no file."""
    base = {
        "policy": {"megatron_cfg": {"enabled": True, "tensor_model_parallel_size": 2, "fp8_cfg": {"enabled": True}}}
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    over = {"train_micro_batch_size": 4, "megatron_cfg": {"fp8_cfg": {"enabled": False, "fp8": "hybrid"}}}
    found = read(tmp_path, defaults=["base.yaml", {"optim": "adam"}], policy=over)
    assert (found.values["tp"], found.values["micro_batch"], found.options) == (2, 4, {})
    assert found.named[-1] == "defaults optim/adam: not found, whose settings are not read"


def test_verls_batch_counts_answers() -> None:
    """An update of verl takes each prompt as often as it has answers."""
    words = "actor.megatron.tensor_model_parallel_size=2 actor.ppo_mini_batch_size=64 rollout.n=5"
    assert launch_of_text(words).values["global_batch"] == 320


def test_a_file_of_another_tool(tmp_path: Path) -> None:
    """A TOML file without a section of torchtitan was read as its defaults."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'm'\n")
    with pytest.raises(DataError, match="TOML without a section of torchtitan"):
        launch_of_file(tmp_path / "pyproject.toml")


@pytest.mark.parametrize("field", ["model.converters", "experimental.enable_async", "fault_tolerance.enable"])
def test_fields_of_torchtitan_that_turn_something_on(field: str) -> None:
    found = launch_of_text(f"--training.local_batch_size 1 --{field} x")
    assert found.named == (f"not priced: {field}",)
    assert (
        "optimizer.name Muon: priced as AdamW"
        in launch_of_text("--training.steps 1 --optimizer.name Muon --training.seq_len 8").named
    )


@pytest.mark.parametrize("text", ["{}", "ARGS=({})\npython pretrain_gpt.py ${{ARGS[@]}} --bf16"])
@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--tensor-model-paralel-size 8", "--tensor-model-parallel-size"),
        ("--num-layrs 8", "--num-layers"),
        ("--recompute_granularty full", "--recompute-granularity"),
        ("--use-distributed-optimiser", "--use-distributed-optimizer"),
    ],
)
def test_misspelt_flags_are_refused(text: str, flag: str, meant: str) -> None:
    """On a line and in a script's list: Megatron-LM refuses a flag that it has not."""
    with pytest.raises(DataError, match=rf"no flag of Megatron-LM, expected {meant}$"):
        launch_of_text(text.format(f"--micro-batch-size 1 {flag}"))


def test_a_setting_that_is_left_open_contradicts_none(tmp_path: Path) -> None:
    """NeMo-RL leaves one part's optimizer open and states the other's; recompute that is open is none of a recipe."""
    base = {"policy": {"optimizer": None, "megatron_cfg": {"micro_batch_size": 1, "optimizer": {"optimizer": "adam"}}}}
    assert read(tmp_path, **base).named == ()
    assert "recompute" not in read(tmp_path, **base).values
    open_recompute = {**base, "model": {"recompute_granularity": None}}
    assert read(tmp_path, **open_recompute).values["recompute"] == "none"


SLIME = """
python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --tensor-model-parallel-size 2
  --expert-model-parallel-size 4 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-steps-per-rollout 2
  --use-dynamic-batch-size --max-tokens-per-gpu 9216 --sglang-a 1 --sglang-b 2 --sglang-c 3
  --eps-clip 0.2 --rm-type math
"""


def test_slimes_defaults_and_a_long_list() -> None:
    """States are sharded, tokens exchanged by an all-to-all, 32 x 8 / 2 sequences a step; generation stands apart."""
    found = launch_of_text(SLIME.replace("\n", " "))
    values = {"zero": 1, "moe_token_dispatcher": "alltoall", "global_batch": 128, "tp": 2, "ep": 4}
    assert found.values.items() >= values.items()
    assert not any("fp32" in each for each in found.named)
    assert "not priced: --use-dynamic-batch-size, --max-tokens-per-gpu" in found.named
    (others,) = (each for each in found.named if each.startswith("not priced, nor of memory or time"))
    assert "--sglang-* (3)" in others and "--rm-type" in others
    muon = launch_of_text(SLIME.replace("\n", " ") + " --optimizer muon")
    assert muon.values["zero"] == 0


def test_a_conversion_is_no_training() -> None:
    """A converter of checkpoints has degrees as well, and no batch."""
    with pytest.raises(DataError, match=r"tools/convert_checkpoint/model.py: converts checkpoints"):
        launch_of_text("python tools/convert_checkpoint/model.py --tensor_model_parallel_size=4 --load_platform=mcore")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("x.py --tensor-parallel 8 --micro-batch-size 1", "--tensor-parallel 8: a degree under a name"),
        ("x.py --moe-expert-parallel-size 64 --micro-batch-size 1", "expected --expert-model-parallel-size"),
        ("x.py --ulysses_sequence_parallel_size 2 --micro-batch-size 1", "expected --context-parallel-size"),
        ("x.py --per_device_train_batch_size 1 --tensor_parallel_size 2", "tensor_parallel_size 2: ranks"),
    ],
)
def test_degrees_under_other_names_are_refused(words: str, said: str) -> None:
    """A degree above 1 that no rule reads is no degree of 1; beside Megatron-LM's own it belongs to another part."""
    with pytest.raises(DataError, match=said):
        launch_of_text(words)
    named = launch_of_text("x.py --tensor-model-parallel-size 2 --micro-batch-size 1 --tensor-parallel-size 8").named
    assert any("--tensor-parallel-size" in each for each in named)


def test_sequence_ranks_of_ms_swift() -> None:
    """Ranks that share a sequence by all-to-alls are context ranks."""
    found = launch_of_text("swift sft --tuner_type full --per_device_train_batch_size 1 --sequence_parallel_size 2")
    assert found.values | {"cp": 2, "cp_comm": "a2a"} == found.values


def test_scripts_of_megatron_bridges_recipes() -> None:
    """Short names, chunks and formats of its scripts; what they leave to the recipe is named."""
    words = "python setup_experiment.py --model_family_name llama --model_recipe_name llama3_70b -tp 4 -pp 2 -vp 5"
    found = launch_of_text(f"{words} -mb 2 -c fp8_mx --recompute_modules layernorm,moe_act")
    expected = {"tp": 4, "pp": 2, "vpp": 5, "micro_batch": 2, "recompute_modules": "layernorm+moe_act"}
    assert found.values | expected == found.values
    assert found.options["precision"] == "mxfp8"
    assert "zero" not in found.values
    assert any("unless the recipe says otherwise: context_parallel_size" in each for each in found.named)
