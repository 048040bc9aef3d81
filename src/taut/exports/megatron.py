"""
Megatron-LM: the flags of ``pretrain_gpt.py``; and Megatron-Bridge: a function that changes a recipe into the plan.

Data parallelism is what is left of the processes. ZeRO-1 is the distributed optimizer; ZeRO-2 and 3 are Megatron-FSDP,
whose copies are "optimizer instances". Under ZeRO-3 weights are made in shards, as whole ones need not fit. Python's
garbage is collected at the same steps of all processes, as in all of NVIDIA's recipes. Sources:
megatron/training/arguments.py and docs/user-guide/features/megatron_fsdp.md of August 2026.

Of Megatron-Bridge the same are overrides of its command line. Names are those of ``ConfigContainer``: ``model``,
``train``, ``ddp``, ``dataset``. Its formats are a named set (``MIXED``), whose fields replace those of ``ddp`` when a
run starts; where the plan's differ, the recipe's set is changed. Sources: Megatron-Bridge, src/megatron/bridge/training
(config.py, mixed_precision.py) and scripts/training/run_recipe.py of August 2026.
"""

from collections.abc import Iterator
from typing import Any

from taut.data.analytic.offload_modules import conflict
from taut.data.calibration import BETWEEN_REPLICAS
from taut.exports.architecture import (
    SETTINGS,
    TYPE,
    Flags,
    architecture_flags,
    dispatch_flags,
    division_flags,
    layout_of,
)
from taut.exports.job import Job
from taut.files import template
from taut.quoting import hydra_value, plain_word, python_literal

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
RECIPES = {"fp8": "tensorwise", "fp8-blockwise": "blockwise", "mxfp8": "mxfp8"}
"""Names of the recipes of narrow products in ``--fp8-recipe``."""
HIERARCHICAL, FUSED = "a2a+p2p", "fused_group_mlp"
SIZES, LAYERS_ON_HOSTS = "--hierarchical-context-parallel-sizes", "--cpu-offloading-num-layers"
SINGLE = 4
"""Bytes of a gradient in single precision."""
STACK = "plan with --stack megatron-core"
LAYER_TOLERANCE = 1e-3
"""Layers by which a share may be off a whole number of them."""


def megatron_flags(job: Job) -> Flags:
    """
    All flags of a plan; ``ExportError`` names the nearest plan that Megatron-LM can run.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> flags = megatron_flags(Job(plan))
    >>> flags["--pipeline-model-parallel-size"], flags["--global-batch-size"]
    ('2', '32')
    """
    check_schedule(job)
    muon = {"--optimizer": "muon", "--muon-tp-mode": "duplicated"} if job.memory.optimizer == "muon" else {}
    division = division_flags(job.layers, job.strategy.pp, job.forms, job.model.mtp_layers)
    collected: Flags = {"--manual-gc": None, "--manual-gc-interval": "100"}
    said = architecture_flags(job) | dict(_degrees(job)) | division | dict(_precision(job)) | dict(_methods(job))
    return said | muon | collected


def run_flags(job: Job) -> Flags:
    """The flags that say how a plan runs, without its model's shape, division into stages and precision."""
    return dict(_degrees(job)) | dict(dispatch_flags(job) if job.model.has_experts else ()) | dict(_methods(job))


def _degrees(job: Job) -> Iterator[tuple[str, str | None]]:
    chosen = job.strategy
    yield "--tensor-model-parallel-size", str(chosen.tp)
    yield "--pipeline-model-parallel-size", str(chosen.pp)
    yield "--context-parallel-size", str(chosen.cp)
    if chosen.cp > 1:
        yield "--cp-comm-type", chosen.cp_comm
        if chosen.cp_comm == HIERARCHICAL:
            yield SIZES, " ".join(map(str, job.context_sizes))
    yield "--micro-batch-size", str(chosen.micro_batch)
    yield "--global-batch-size", str(job.global_batch)
    if chosen.sequence_parallel:
        yield "--sequence-parallel", None


def _methods(job: Job) -> Iterator[tuple[str, str | None]]:
    if job.fused_loss != "none":
        yield "--cross-entropy-loss-fusion", None
        yield "--cross-entropy-fusion-impl", job.fused_loss
    yield from _recompute(job)
    yield from _sharding(job)
    if fraction := offloaded(job):
        yield "--use-distributed-optimizer", None
        yield "--optimizer-cpu-offload", None
        yield "--optimizer-offload-fraction", f"{fraction:g}"
    if layers := layers_on_hosts(job):
        yield LAYERS_ON_HOSTS, str(layers)
    if modules := modules_on_hosts(job):
        yield "--fine-grained-activation-offloading", None
        yield "--offload-modules", " ".join(modules)
        if job.activations_on_hosts < 1:
            yield "--activation-offload-fraction", f"{job.activations_on_hosts:g}"
        if FUSED in modules:
            yield "--use-transformer-engine-op-fuser", None


def check_schedule(job: Job) -> None:
    """Refuse schedules that Megatron-LM does not run, and interleaved ones that it refuses."""
    words = f"schedule {job.strategy.schedule}, expected 1f1b or interleaved-1f1b for Megatron-LM; {STACK}"
    unknown = job.strategy.schedule not in ("1f1b", "interleaved-1f1b")
    job.refuse({f"{words}, or export to torchtitan or torch-csv": unknown})


def _precision(job: Job) -> Iterator[tuple[str, str | None]]:
    precision = job.memory.precision
    if precision == "fp16":
        yield "--fp16", None
    elif precision != "fp32":
        yield "--bf16", None
    if precision in RECIPES:
        yield "--fp8-format", "e4m3" if precision == "mxfp8" else "hybrid"
        yield "--fp8-recipe", RECIPES[precision]
        # Weights in fp8 alone, which take the priced two bytes with their transpose; else copies stay beside bf16.
        if job.strategy.zero and not job.states_on_hosts:
            yield "--fp8-param-gather", None
            if precision == "mxfp8" and job.strategy.zero == 1:
                yield "--reuse-grad-buf-for-mxfp8-param-ag", None
    elif precision == "nvfp4":
        yield "--fp4-format", "e2m1"
    if precision != "fp32":
        single = job.memory.parameter_bytes.gradient == SINGLE
        if job.memory.weight_remainders or job.memory.half_moments or job.states_on_hosts:
            yield "--use-precision-aware-optimizer", None
        if job.memory.half_moments:
            yield "--exp-avg-dtype", "bf16"
            yield "--exp-avg-sq-dtype", "bf16"
        if single:
            yield "--accumulate-allreduce-grads-in-fp32", None
        elif precision != "fp16":
            # Beside fp16 the flag does nothing: gradients have the format of the weights.
            yield "--grad-reduce-in-bf16", None


def _recompute(job: Job) -> Iterator[tuple[str, str | None]]:
    kind = job.recompute("Megatron-LM")
    if kind == "none":
        return
    yield "--recompute-granularity", kind
    if kind == "selective" and job.recompute_modules != ["core_attn"]:
        yield "--recompute-modules", " ".join(job.recompute_modules)
    if kind == "full":
        # Every layer by itself, or the first ones of every chunk.
        layers = job.strategy.recompute_layers
        yield "--recompute-method", "block" if layers else "uniform"
        yield "--recompute-num-layers", str(layers or 1)


def _sharding(job: Job) -> Iterator[tuple[str, str | None]]:
    chosen = job.strategy
    if chosen.zero:
        yield "--use-distributed-optimizer", None
    if chosen.zero >= 2:
        yield "--use-megatron-fsdp", None
        yield "--data-parallel-sharding-strategy", SHARDING[chosen.zero]
        yield "--ckpt-format", "fsdp_dtensor"
    if chosen.zero == 3:
        yield "--init-model-with-meta-device", None
    if chosen.copies > 1:
        yield "--num-distributed-optimizer-instances", str(chosen.copies)
    beside = BETWEEN_REPLICAS in job.features
    if job.plan.certificate.overlap_grad_reduce or beside or chosen.zero >= 2:
        yield "--overlap-grad-reduce", None
    if (beside and chosen.zero) or chosen.zero >= 2:
        yield "--overlap-param-gather", None


def modules_on_hosts(job: Job) -> list[str]:
    """Modules whose inputs go to the host's memory."""
    recomputed = job.recompute_modules if "selective" in job.strategy.recompute else ()
    words = conflict(job.offload_modules, recomputed)
    job.refuse({f"offload of {words}; {STACK}": bool(words)})
    return job.offload_modules


def offloaded(job: Job) -> float:
    """The share of the optimizer states in the host's memory."""
    fraction, chosen, words = job.states_on_hosts, job.strategy, "optimizer states in the host's memory with"
    several = chosen.zero != 1 and chosen.dp * chosen.cp > 1
    sharded = f"{words} ZeRO-{chosen.zero}, expected ZeRO-1 for Megatron-LM; {STACK}, or --fix zero=1"
    single = f"{words} precision fp32, which Megatron-LM does not have; plan with --precision bf16"
    job.refuse({sharded: fraction > 0 and several, single: fraction > 0 and job.memory.precision == "fp32"})
    return fraction


def layers_on_hosts(job: Job) -> int:
    """Layers whose activations go to the host's memory."""
    chosen, layers = job.strategy, len(job.model.blocks)
    share = job.activations_on_hosts * layers
    count = round(share)
    if not job.activations_on_hosts or job.offload_modules:
        return 0
    several = "activations in the host's memory with several stages or recompute, which Megatron-LM has not"
    part = f"activations of {share:g} of {layers} layers in the host's memory, expected a whole number below all for"
    job.refuse(
        {
            f"{several}; {STACK}": chosen.pp > 1 or set(chosen.recompute) != {"none"},
            f"{part} Megatron-LM; {STACK}": abs(count - share) > LAYER_TOLERANCE or count >= layers,
        }
    )
    return count


def flags_text(flags: Flags) -> str:
    """The flags, one on each line, for ``$(cat FILE)``."""
    return "".join(" ".join((name, *_words(name, value))) + "\n" for name, value in flags.items())


def _words(name: str, value: str | None) -> list[str]:
    """The words of a flag's value, none of a switch; each is one where a shell cuts the file's text."""
    return [] if value is None else [plain_word(word, name) for word in value.split(" ")]


FEATURES: dict[str, dict[str, Any]] = {name: each["bridge"] for name, each in SETTINGS.items() if "bridge" in each}
"""Settings of what made releases faster, by the name that a calibration states."""
PARTS = {
    "train.": ("micro_batch_size", "global_batch_size"),
    "ddp.": (
        *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_megatron_fsdp"),
        *("data_parallel_sharding_strategy", "num_distributed_optimizer_instances"),
    ),
    "optimizer.": ("optimizer_cpu_offload", "optimizer_offload_fraction"),
    "comm_overlap.": ("overlap_moe_expert_parallel_comm",),
}
"""Flags by the part of Megatron-Bridge's configuration that has them; the model has the others."""
WITHOUT = {"--ckpt-format"}
"""Flags that Megatron-Bridge decides itself."""
LISTS = {"--recompute-modules", "--offload-modules", SIZES}
MIXED = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_current_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Megatron-Bridge's sets of formats."""


def mixed_precision(job: Job) -> dict[str, Any]:
    """The set of the plan's formats, and the fields in which the plan differs from the set."""
    precision, flags = job.memory.precision, dict(_precision(job))
    gathers, reuses = ("--fp8-param-gather" in flags, "--reuse-grad-buf-for-mxfp8-param-ag" in flags)
    fields = {
        "grad_reduce_in_fp32": (job.memory.parameter_bytes.gradient == SINGLE, precision != "fp16"),
        "fp8_param_gather": (gathers, precision in ("fp8", "mxfp8")),
        "reuse_grad_buf_for_mxfp8_param_ag": (reuses, precision == "mxfp8"),
        "first_last_layers_bf16": (False, precision == "fp8"),
    }
    differ = {f"mixed_precision.{name}": ours for name, (ours, theirs) in fields.items() if ours != theirs}
    return {"mixed_precision": MIXED.get(precision)} | (differ if precision in MIXED else {})


def _setting(flag: str, value: str | None) -> tuple[str, Any]:
    """Path and value that a flag of Megatron-LM has in Megatron-Bridge's configuration."""
    name = flag[2:].replace("-", "_")
    path = next((part for part, names in PARTS.items() if name in names), "model.") + name
    values = [int(word) if word.isdecimal() else word for word in (value or "").split(" ")]
    return path, True if value is None else values if flag in LISTS else values[0]


def bridge_settings(job: Job) -> dict[str, Any]:
    """Values by path, such as ``model.tensor_model_parallel_size``; recipes' own are overridden where they differ."""
    check_schedule(job)
    job.plain_layers("Megatron-Bridge")
    chosen, kind, exchanges = job.strategy, job.recompute("Megatron-Bridge"), job.model.has_experts
    uneven, flags = chosen.pp * chosen.vpp > 1 and not job.is_even, run_flags(job)
    found = mixed_precision(job) | {
        "model.virtual_pipeline_model_parallel_size": chosen.vpp if chosen.vpp > 1 and not uneven else None,
        "model.pipeline_model_parallel_layout": layout_of(job.layers, job.model.mtp_layers) if uneven else None,
        **({"model.mtp_num_layers": job.model.mtp_layers} if job.model.mtp_layers else {}),
        "model.expert_model_parallel_size": chosen.ep,
        **({"model.expert_tensor_parallel_size": chosen.etp or chosen.tp} if exchanges else {}),
        **({path: value for one in job.features for path, value in FEATURES.get(one, {}).items()}),
        "model.sequence_parallel": False,
        "model.seq_length": job.sequence,
        "dataset.seq_length": job.sequence,
        "model.recompute_granularity": None,
        **({"model.recompute_modules": job.recompute_modules} if kind == "selective" else {}),
        "model.recompute_method": None,
        "model.recompute_num_layers": None,
        "model.cross_entropy_loss_fusion": False,
        "ddp.use_distributed_optimizer": False,
        "ddp.overlap_grad_reduce": False,
        "ddp.overlap_param_gather": False,
        "ddp.grad_reduce_in_fp32": job.memory.parameter_bytes.gradient == SINGLE,
        "ddp.use_megatron_fsdp": False,
        **dict(_setting(flag, value) for flag, value in flags.items() if flag not in WITHOUT),
        **_images(job, kind),
    }
    if exchanges and (flags[TYPE] != "alltoall" or job.hides_exchange):
        found["model.moe_shared_expert_overlap"] = False
    if job.memory.weight_remainders or job.memory.half_moments or job.states_on_hosts:
        found["optimizer.use_precision_aware_optimizer"] = True
    if job.states_on_hosts:
        found["optimizer.optimizer_offload_fraction"] = job.states_on_hosts
    if LAYERS_ON_HOSTS in flags:
        found["model.cpu_offloading"] = True
    if job.offload_modules:
        found["model.activation_offload_fraction"] = job.activations_on_hosts
    return found


def _images(job: Job, recompute: str) -> dict[str, Any]:
    """What of an encoder of images is frozen; refuses recompute and divisions that Megatron-Bridge has not."""
    if (encoder := job.model.encoder) is None:
        return {}
    follows, inner, first = encoder.tensor_parallel and recompute == "full", encoder.projectors - 1, job.layers[0]
    again = f"encoder.recompute is {str(encoder.recompute).lower()}, expected {str(follows).lower()}"
    shallow = f"{first} layers on the first stage take {inner} inner projectors, expected as many layers"
    refused = {again: encoder.recompute != follows, f"{shallow}; plan with fewer stages": first < inner}
    job.refuse({f"{words} in Megatron-Bridge": holds for words, holds in refused.items()})
    return {
        "model.freeze_vision_model": encoder.trained != "all",
        "model.freeze_vision_projection": encoder.trained == "none",
    }


def bridge_files(job: Job) -> dict[str, str]:
    """The recipe function, and overrides for ``run_recipe.py``, one on each line."""
    settings = bridge_settings(job)
    # A field can be overridden where the recipe's formats are no name.
    unsaid = {"mixed_precision"} if any(path.startswith("mixed_precision.") for path in settings) else set[str]()
    overrides = "".join(f"{path}={hydra_value(value)}\n" for path, value in settings.items() if path not in unsaid)
    values = {"settings": python_literal(settings), "model": python_literal(job.plan.model)}
    recipe = template("megatron_bridge.py.txt").format(**values)
    return {"taut_plan.py": recipe, "overrides.txt": overrides}
