"""
Megatron-LM: the flags of ``pretrain_gpt.py``.

Data parallelism is what is left of the processes. ZeRO-1 is the distributed optimizer; ZeRO-2 and 3 are Megatron-FSDP,
whose copies are "optimizer instances". Source of the names: megatron/training/arguments.py of August 2026.
"""

from collections.abc import Iterator

from taut.data.analytic.offload_modules import conflict
from taut.exports.architecture import Flags, architecture_flags
from taut.exports.division import division_flags
from taut.exports.job import ExportError, Job
from taut.quoting import plain_word

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
RECIPES = {"fp8": "tensorwise", "fp8-blockwise": "blockwise", "mxfp8": "mxfp8"}
"""Names of the recipes of narrow products in ``--fp8-recipe``."""
HIERARCHICAL, FUSED = "a2a+p2p", "fused_group_mlp"
SINGLE = 4
"""Bytes of a gradient in single precision."""
LAYER_TOLERANCE = 1e-3
"""Layers by which a share may be off a whole number of them."""


def megatron_flags(job: Job) -> Flags:
    """
    All flags of a plan: model, degrees, division, batch, precision, recompute and sharding.

    Raises ``ExportError`` if Megatron-LM cannot run the plan; the message names the nearest one that it can.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> flags = megatron_flags(Job(plan))
    >>> flags["--pipeline-model-parallel-size"], flags["--global-batch-size"]
    ('2', '32')
    """
    check_schedule(job)
    chosen = job.strategy
    return architecture_flags(job) | {
        "--tensor-model-parallel-size": str(chosen.tp),
        "--pipeline-model-parallel-size": str(chosen.pp),
        "--context-parallel-size": str(chosen.cp),
        **dict(_contexts(job)),
        "--micro-batch-size": str(chosen.micro_batch),
        "--global-batch-size": str(job.global_batch),
        **({"--sequence-parallel": None} if chosen.sequence_parallel else {}),
        **division_flags(job.layers, job.strategy.pp, job.forms, job.model.mtp_layers),
        **dict(_precision(job)),
        # Transformer Engine's fused loss, which NVIDIA's published runs had, is refused by Megatron-LM of August 2026.
        **({"--cross-entropy-loss-fusion": None, "--cross-entropy-fusion-impl": "native"} if job.fused_loss else {}),
        **dict(_recompute(job)),
        **dict(_sharding(job)),
        **dict(_offload(job)),
        **({"--cpu-offloading-num-layers": str(count)} if (count := layers_on_hosts(job)) else {}),
        **dict(_modules_on_hosts(job)),
    }


def check_schedule(job: Job) -> None:
    """Refuse schedules that Megatron-LM does not run, and interleaved ones that it refuses."""
    if job.strategy.schedule not in ("1f1b", "interleaved-1f1b"):
        raise ExportError(
            f"{job.plan.source}: schedule {job.strategy.schedule}, expected 1f1b or interleaved-1f1b for Megatron-LM; "
            "plan with --stack megatron-core, or export to torchtitan or torch-csv"
        )


def _contexts(job: Job) -> Iterator[tuple[str, str | None]]:
    if job.strategy.cp > 1:
        yield "--cp-comm-type", job.strategy.cp_comm
        if job.strategy.cp_comm == HIERARCHICAL:
            yield "--hierarchical-context-parallel-sizes", " ".join(map(str, job.context_sizes))


def _precision(job: Job) -> Iterator[tuple[str, str | None]]:
    precision = job.memory.precision
    if precision == "fp16":
        yield "--fp16", None
    elif precision != "fp32":
        yield "--bf16", None
    if precision in RECIPES:
        yield "--fp8-format", "hybrid"
        yield "--fp8-recipe", RECIPES[precision]
    elif precision == "nvfp4":
        yield "--fp4-format", "e2m1"
    if precision != "fp32":
        single = job.memory.parameter_bytes.gradient == SINGLE
        if job.memory.weight_remainders or job.memory.half_moments or job.states_on_hosts:
            yield "--use-precision-aware-optimizer", None
        if job.memory.half_moments:
            yield "--exp-avg-dtype", "bf16"
            yield "--exp-avg-sq-dtype", "bf16"
        yield ("--accumulate-allreduce-grads-in-fp32" if single else "--grad-reduce-in-bf16"), None


def _recompute(job: Job) -> Iterator[tuple[str, str | None]]:
    kind = job.recompute("Megatron-LM")
    if kind == "none":
        return
    yield "--recompute-granularity", kind
    if kind == "selective" and job.recompute_modules != ["core_attn"]:
        yield "--recompute-modules", " ".join(job.recompute_modules)
    if kind == "full":
        yield "--recompute-method", "uniform"
        yield "--recompute-num-layers", "1"


def _sharding(job: Job) -> Iterator[tuple[str, str | None]]:
    chosen = job.strategy
    if chosen.zero:
        yield "--use-distributed-optimizer", None
    if chosen.zero >= 2:
        yield "--use-megatron-fsdp", None
        yield "--data-parallel-sharding-strategy", SHARDING[chosen.zero]
        yield "--ckpt-format", "fsdp_dtensor"
    if job.copies > 1:
        yield "--num-distributed-optimizer-instances", str(job.copies)
    if job.plan.certificate.overlap_grad_reduce or chosen.zero >= 2:
        yield "--overlap-grad-reduce", None
    if chosen.zero >= 2:
        yield "--overlap-param-gather", None


def _offload(job: Job) -> Iterator[tuple[str, str | None]]:
    if fraction := offloaded(job):
        yield "--use-distributed-optimizer", None
        yield "--optimizer-cpu-offload", None
        yield "--optimizer-offload-fraction", f"{fraction:g}"


def _modules_on_hosts(job: Job) -> Iterator[tuple[str, str | None]]:
    if modules := modules_on_hosts(job):
        yield "--fine-grained-activation-offloading", None
        yield "--offload-modules", " ".join(modules)
        if job.activations_on_hosts < 1:
            yield "--activation-offload-fraction", f"{job.activations_on_hosts:g}"
        if FUSED in modules:
            yield "--use-transformer-engine-op-fuser", None


def modules_on_hosts(job: Job) -> list[str]:
    """Modules whose inputs go to the host's memory."""
    recomputed = job.recompute_modules if "selective" in job.strategy.recompute else ()
    if words := conflict(job.offload_modules, recomputed):
        raise ExportError(f"{job.plan.source}: offload of {words}; plan with --stack megatron-core")
    return job.offload_modules


def offloaded(job: Job) -> float:
    """The share of the optimizer states in the host's memory."""
    fraction, source = job.states_on_hosts, job.plan.source
    if fraction and job.strategy.zero != 1 and job.strategy.dp * job.strategy.cp > 1:
        raise ExportError(
            f"{source}: optimizer states in the host's memory with ZeRO-{job.strategy.zero}, expected ZeRO-1 for "
            "Megatron-LM; plan with --stack megatron-core, or --fix zero=1"
        )
    if fraction and job.memory.precision == "fp32":
        raise ExportError(
            f"{source}: optimizer states in the host's memory with precision fp32, which Megatron-LM does not have; "
            "plan with --precision bf16"
        )
    return fraction


def layers_on_hosts(job: Job) -> int:
    """Layers whose activations go to the host's memory."""
    chosen, layers, source = job.strategy, len(job.model.blocks), job.plan.source
    count = round(job.activations_on_hosts * layers)
    if not job.activations_on_hosts or job.offload_modules:
        return 0
    if chosen.pp > 1 or set(chosen.recompute) != {"none"}:
        raise ExportError(
            f"{source}: activations in the host's memory with several stages or recompute, which Megatron-LM has "
            "not; plan with --stack megatron-core"
        )
    if abs(count - job.activations_on_hosts * layers) > LAYER_TOLERANCE or count >= layers:
        raise ExportError(
            f"{source}: activations of {job.activations_on_hosts * layers:g} of {layers} layers in the host's memory, "
            "expected a whole number below all for Megatron-LM; plan with --stack megatron-core"
        )
    return count


def flags_text(flags: Flags) -> str:
    """The flags, one on each line, for ``$(cat FILE)``."""
    return "".join(" ".join((name, *_words(name, value))) + "\n" for name, value in flags.items())


def _words(name: str, value: str | None) -> list[str]:
    """The words of a flag's value, none of a switch; each is one where a shell cuts the file's text."""
    return [] if value is None else [plain_word(word, name) for word in value.split(" ")]
