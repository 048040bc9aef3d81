"""
Megatron-LM's arguments by name: Primus's YAML of a run, and settings of the actor that verl trains.

A flag is an argument of its own name with underscores, but for ``RENAMED``. What a plan leaves off is said where the
frameworks have it on: sequence parallelism and the distributed optimizer.

Primus takes every argument as an override of its module ``pre_trainer``; Primus-Turbo's DeepEP takes the place of
NVIDIA's. verl takes degrees and sharding under ``megatron``, the batch beside them, arguments of layers
under ``override_transformer_config``, and those of reductions under ``override_ddp_config``; it reads the model from
the user's folder, trains in half precision, and has the distributed optimizer as its only sharding.

Sources: AMD-AGI/Primus of August 2026, primus/configs/modules/megatron/trainer_base.yaml and
primus/configs/models/megatron/language_model.yaml; verl of January 2026, verl/trainer/config/engine/megatron.yaml,
verl/trainer/config/actor/actor.yaml and verl/workers/config/engine.py.
"""

import re
from typing import Any

from taut.exports.architecture import BACKEND, DEEPEP, Flags, layout_of
from taut.exports.job import Job
from taut.exports.megatron import LISTS, STACK, check_schedule, megatron_flags, run_flags
from taut.quoting import hydra_value, yaml_text

LINEAR = "--disable-bias-linear"
RENAMED = {"--fp8-format": "fp8", "--fp4-format": "fp4", LINEAR: "add_bias_linear"}
"""Names of arguments whose flags are others; the last is false where its flag stands."""
SEVERAL = LISTS | {"--cuda-graph-modules"}
"""Flags with several values."""
ON = ("sequence_parallel", "use_distributed_optimizer")
"""What both frameworks do unless told otherwise."""


def named(flags: Flags) -> dict[str, Any]:
    """
    Arguments by name, switches as truths, numbers as numbers, several words as a list.

    Examples
    --------
    >>> named({"--bf16": None, "--micro-batch-size": "2", "--recompute-modules": "moe_act"})
    {'bf16': True, 'micro_batch_size': 2, 'recompute_modules': ['moe_act']}
    """
    return {RENAMED.get(flag, flag[2:].replace("-", "_")): _value(flag, text) for flag, text in flags.items()}


def _value(flag: str, text: str | None) -> Any:
    if text is None:
        return flag != LINEAR
    if flag in SEVERAL:
        return [int(word) if word.isdecimal() else word for word in text.split(" ")]
    return number_or_text(text)


def number_or_text(text: str) -> int | float | str:
    """
    A flag's value as a number where it is one.

    Examples
    --------
    >>> [number_or_text(text) for text in ("8", "0.5", "1e-05", "e4m3", "1,0")]
    [8, 0.5, 1e-05, 'e4m3', '1,0']
    """
    if text.isdecimal():
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", text) else text


def has_deepep(job: Job, flags: Flags, launcher: str) -> bool:
    """Whether the dispatcher is DeepEP, whose flag is left out; refuses the other backends of ``flex``."""
    backend = flags.pop(BACKEND, None)
    words = f"its dispatcher is {backend}, which {launcher}; plan with --moe-token-dispatcher alltoall"
    job.refuse({words: backend not in (None, "deepep")})
    return backend is not None


def primus_files(job: Job) -> dict[str, str]:
    """The YAML of a run, whose overrides are all that a plan says of it."""
    flags = megatron_flags(job)
    deepep = has_deepep(job, flags, "Primus has not")
    turbo = {"enable_primus_turbo": True, "use_turbo_deepep": True} if deepep else {}
    overrides = dict.fromkeys(ON, False) | named(flags) | turbo
    trainer = {"framework": "megatron", "config": "pre_trainer.yaml", "model": "language_model.yaml"}
    names = {"work_group": "taut", "user_name": "taut", "exp_name": "taut-plan", "workspace": "./output"}
    return {"primus.yaml": yaml_text(names | {"modules": {"pre_trainer": trainer | {"overrides": overrides}}})}


ACTOR = "actor_rollout_ref.actor"
BATCH = {"micro_batch_size": "ppo_micro_batch_size_per_gpu", "global_batch_size": "ppo_mini_batch_size"}
ENGINE = {
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", *ON,
}  # fmt: skip
REDUCTIONS = {"overlap_grad_reduce", "overlap_param_gather"}


def verl_settings(job: Job) -> dict[str, Any]:
    """Settings of verl's actor by path; refuses what its configuration has no place for."""
    check_schedule(job)
    job.plain_layers("verl")
    chosen, memory = job.strategy, job.memory
    hosts = job.states_on_hosts or job.activations_on_hosts or job.offload_modules
    lacking = {
        f"precision {memory.precision}, expected bf16 or fp16": memory.precision not in ("bf16", "fp16"),
        f"ZeRO-{chosen.zero}, expected ZeRO-0 or 1": chosen.zero > 1,
        "several copies of sharded states, expected one": chosen.copies > 1,
        "states or activations in the host's memory, expected none": bool(hosts),
        f"optimizer {memory.optimizer}, expected adam": memory.optimizer != "adam",
        "prediction of further tokens or an encoder, expected none": bool(job.model.mtp_layers or job.model.encoder),
    }
    job.refuse({f"{words} for verl's actor; {STACK}": holds for words, holds in lacking.items()})
    flags = run_flags(job)
    deepep = has_deepep(job, flags, "verl's actor is not told")
    layers: dict[str, Any] = {DEEPEP[2:].replace("-", "_"): True} if deepep else {}
    if not job.is_even:
        layers["pipeline_model_parallel_layout"] = layout_of(job.layers)
    experts = {"expert_model_parallel_size": chosen.ep, "expert_tensor_parallel_size": chosen.etp or chosen.tp}
    chunks = {"virtual_pipeline_model_parallel_size": chosen.vpp} if chosen.vpp > 1 else {}
    said = dict.fromkeys(ON, False) | named(flags) | chunks | (experts if job.model.has_experts else {}) | layers
    found: dict[str, Any] = {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.use_dynamic_bsz": False}
    found[f"{ACTOR}.megatron.dtype"] = {"bf16": "bfloat16", "fp16": "float16"}[memory.precision]
    for name, value in said.items():
        part = "override_ddp_config" if name in REDUCTIONS else "override_transformer_config"
        known = BATCH.get(name) or (f"megatron.{name}" if name in ENGINE else "")
        found[f"{ACTOR}.{known}" if known else f"++{ACTOR}.megatron.{part}.{name}"] = value
    return found


def verl_files(job: Job) -> dict[str, str]:
    """The settings, one on each line, for ``$(cat FILE)``; ++ sets what the configuration has or has not."""
    return {"verl.txt": "".join(f"{path}={hydra_value(value)}\n" for path, value in verl_settings(job).items())}
