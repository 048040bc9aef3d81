"""``launch.md``: what to run where, and what to check before."""

from taut.exports.job import Job
from taut.planning.tables import batch_words
from taut.words import percent

STARTS = {
    "torchrun": "on every node: `bash torchrun.sh {script}` (`NODE=` names the node where the host's name does not)",
    "slurm": "once: `sbatch slurm.sh {script}`",
    "rankfile": "once: `bash mpirun.sh {script}`",
}
SCRIPTS = {
    "megatron": "pretrain_gpt.py $(cat megatron.args) YOUR-DATA-AND-TOKENIZER-FLAGS",
    "megatron-bridge": "YOUR-SCRIPT.py, which passes its recipe through `taut_plan.taut_plan(cfg)`; or run_recipe.py "
    "with `$(cat overrides.txt)`",
    "torchtitan": "-m torchtitan.train --module taut_plan --config taut_plan, with this folder in PYTHONPATH and "
    "base() of taut_plan.py filled in",
    "deepspeed": "YOUR-SCRIPT.py --deepspeed --deepspeed_config ds_config.json",
    "flagscale": "flagscale's entry point, with train.yaml merged into your configuration",
}
CHECKS = {
    "megatron": "ranks are numbered tp-cp-ep-dp-pp, Megatron-LM's default: do not pass --use-tp-pp-dp-mapping",
    "megatron-bridge": "ranks are numbered tp-cp-ep-dp-pp: leave `cfg.dist.use_tp_pp_dp_mapping` false",
    "torchtitan": "the base configuration has the plan's layers, named tok_embeddings, layers.N, norm, lm_head",
    "deepspeed": "ds_config.json has no optimizer and no data; stages follow `marked` of taut_stages.py",
    "flagscale": "the hostfile, if there is one, lists nodes in the order of the ranks; FlagScale numbers processes by "
    "device type",
    "torch-csv": "schedule.csv is read by _PipelineScheduleRuntime._load_csv(FILE, format='compute_only')",
}


def launch_notes(job: Job, framework: str, starters: list[str]) -> str:
    """
    What to run and what to check, in ten lines.

    ``framework``: the framework's target, empty without one; ``starters``: targets that start processes.
    """
    script = SCRIPTS.get(framework, "YOUR-SCRIPT.py")
    lines = [
        f"# {job.plan.model} on {job.plan.cluster}: {_stages(job)}, {len(job.devices)} processes",
        "",
        f"Predicted: {job.plan.step_time_s:.4g} s a step{_gap(job)}. What is predicted is stated in the plan.",
        "",
        "Copy this folder to every node, at the same place. Start",
        *(f"- {STARTS[name].format(script=script)}" for name in starters),
        "",
        "Check first",
        *(f"- {line}" for line in _checks(job, framework)),
    ]
    return "\n".join(lines) + "\n"


def _stages(job: Job) -> str:
    return f"{job.strategy.pp} stage{'s' if job.strategy.pp > 1 else ''}"


def _gap(job: Job) -> str:
    gap = job.plan.certificate.gap
    return "" if gap is None else f", at most {percent(gap)} above what is possible by the plan's prices"


def _checks(job: Job, framework: str) -> list[str]:
    chosen, predicted = job.strategy, job.plan.predicted
    count = chosen.num_micro_batches
    fullest = max(predicted.memory_bytes) / 2**30
    fused = framework == "megatron" and job.fused_loss
    hosts = "as given" if job.hosts else "placeholders: write them by hand or give --hosts"
    return [
        *([CHECKS[framework]] if framework in CHECKS else []),
        *([_loss(job)] if framework == "megatron" and job.fused_loss else []),
        f"hosts are {hosts}; ranks.csv says which process is on which GPU, and env.sh what is exported",
        f"the placement counts on links as in the plan: node i of {job.plan.cluster} is host i",
        f"the fullest device is predicted to hold {fullest:.1f} GiB; precision {job.memory.precision}",
        *(["memory counts on a fused loss as Transformer Engine's; Megatron-LM's own may keep more"] * fused),
        f"batch {job.global_batch} of {job.sequence} tokens: {chosen.dp} replicas, "
        + (
            f"micro-batches of {chosen.micro_batch}, {batch_words(chosen)}"
            if chosen.micro_batches
            else f"{count} micro-batch{'es' if count > 1 else ''} of {chosen.micro_batch}"
        ),
    ]


def _loss(job: Job) -> str:
    """What Megatron-LM's own fused loss keeps beyond Transformer Engine's: single precision, 2 bytes more."""
    tokens = job.strategy.micro_batch * job.sequence // job.strategy.cp
    more = 2 * tokens * job.model.padded_vocab(job.strategy.tp) / job.strategy.tp / 2**30
    return (
        "the loss keeps its logits in fp32 on the last stage (`--cross-entropy-fusion-impl native`), "
        f"{more:.1f} GiB more than predicted with Transformer Engine's, which Megatron-LM refuses from June 2026 on"
    )
