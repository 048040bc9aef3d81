"""
torchtitan: a function that changes a configuration of one's own model into the plan, and flags for version 0.3.0.

Chunks are lists of module names, which no flag takes: ``tok_embeddings``, ``layers.0`` and so on, ``norm`` and
``lm_head``. Weights are sharded over ``data_parallel_shard_degree`` replicas times the context ranks; under ZeRO-3 they
are gathered again for the backward pass (``fsdp_reshard_after_forward``), under ZeRO-2 they are kept. Schedules that
torchtitan does not build itself are read from ``schedule.csv``, the CSV of ``torch.distributed.pipelining``
(``taut.schedules.reading``). The model is compiled where the runs behind the prices were.

Sources: torchtitan/config/configs.py and distributed/pipeline_parallel.py of August 2026, and the package of version
0.3.0.
"""

from typing import Any

import numpy as np

from taut.data.calibration import COMPILED
from taut.exports.architecture import NODE
from taut.exports.job import Job
from taut.files import template
from taut.formulations.degrees import divides_kv
from taut.formulations.schedules.orders import ON_V, passes_of
from taut.quoting import plain_word, python_literal
from taut.schedules.reading import orders_csv
from taut.solver.certificate.document import strategy_of


def schedule_csv(job: Job) -> str:
    """
    The passes of every pipeline rank, a row each; chunks are numbered as a micro-batch visits them.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=8, fix={"pp": 2, "tp": 1, "micro_batch": 1})
    >>> print(schedule_csv(Job(plan)).split()[1])
    1F0,1B0,1F1,1B1
    """
    order = passes_of(*strategy_of(job.strategy, job.plan.source).candidate.order_key)
    return orders_csv(np.split(order.passes, order.first[1:-1]))


NAMES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved-1f1b": "Interleaved1F1B", "zb-v": "ZBVZeroBubble"}
"""Schedules that torchtitan builds."""
CHECKPOINTS = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
RESHARD = {0: "default", 2: "never", 3: "always"}

# A model's layers and widths are a configuration of torchtitan's own, which no plan holds; so the written module asks
# its user for it, and stops with one line until it is there.


def parallelism(job: Job) -> dict[str, Any]:
    """Fields of ``config.parallelism`` that the plan decides."""
    _check(job)
    chosen = job.strategy
    replicate, shard = _copies(job)
    fields: dict[str, Any] = {
        "data_parallel_replicate_degree": replicate,
        "data_parallel_shard_degree": shard,
        "context_parallel_degree": chosen.cp,
        "tensor_parallel_degree": chosen.tp,
        "pipeline_parallel_degree": chosen.pp,
        **({"expert_parallel_degree": chosen.ep} if chosen.ep > 1 else {}),
        "fsdp_reshard_after_forward": RESHARD[chosen.zero],
    }
    if chosen.pp > 1:
        fields["pipeline_parallel_schedule"] = NAMES.get(chosen.schedule) or _style(chosen.schedule, chosen.vpp)
        if _needs_order(job):
            fields["pipeline_parallel_schedule_csv"] = "schedule.csv"
    return fields


def _needs_order(job: Job) -> bool:
    """Whether the order of the passes is none that torchtitan builds."""
    return job.strategy.pp > 1 and (job.strategy.schedule not in NAMES or bool(job.strategy.order))


def _style(schedule: str, chunks: int) -> str:
    """A schedule that lays chunks out as this one does; its own order is then read from the file."""
    return "ZBVZeroBubble" if schedule in ON_V else "Interleaved1F1B" if chunks > 1 else "1F1B"


def _check(job: Job) -> None:
    chosen, stack, experts = job.strategy, "plan with --stack torchtitan", job.strategy.ep > 1
    job.plain_layers("torchtitan")
    heads = min((layer.key_value_heads for layer in job.model.kinds.values() if layer.mixes), default=0)
    shared, torn = chosen.etp or chosen.tp, not divides_kv(job.model, chosen.tp)
    ranks = f"expert ranks (ep={chosen.ep}) "
    ranks += "without sharded weights" if chosen.zero < 2 else f"of {shared} tensor ranks each"
    contexts = f"context ranks that share attention by {chosen.cp_comm}, expected all_gather for torchtitan"
    job.refuse(
        {
            "prediction of further tokens, which the export to torchtitan has not (torchtitan's main has it for "
            "DeepSeek-V3 alone, without pipeline and context ranks); plan without mtp_layers": job.model.mtp_layers > 0,
            "optimizer states in the host's memory, which torchtitan has not without weights and gradients; "
            "plan with --optimizer-offload-fraction 0": job.states_on_hosts > 0,
            "activations in the host's memory, which the export to torchtitan has not; plan without "
            "--activation-offload-fraction": job.activations_on_hosts > 0,
            f"{chosen.tp} tensor ranks share {heads} key-value heads, which torchtitan refuses; {stack}": torn,
            f"{chosen.pp} stages of a model whose head is its embedding, which torchtitan refuses; {stack}": chosen.pp
            > 1
            and job.model.tied_embedding,
            f"ZeRO-1, which torchtitan has not; {stack}, or --fix zero=2": chosen.zero == 1,
            f"{ranks}, which torchtitan has not; {stack}, or --fix ep=1": experts and (chosen.zero < 2 or shared > 1),
            f"exchanges of experts that are hidden, in fp8 or by allgather, which torchtitan has not; {stack}": experts
            and (job.hides_exchange or job.dispatch.fp8 or job.dispatch.gathers),
            f"{contexts}; {stack}, or --fix cp_comm=all_gather": chosen.cp > 1 and chosen.cp_comm != "all_gather",
            "tensor ranks without sequence parallelism, which torchtitan has not; plan with "
            "--fix sequence_parallel=true": chosen.tp > 1 and not chosen.sequence_parallel,
        }
    )


def _copies(job: Job) -> tuple[int, int]:
    """Groups of replicas with a copy each, and replicas of a group."""
    chosen = job.strategy
    if not chosen.zero:
        return chosen.dp, 1
    if chosen.copies == 1:
        return 1, chosen.dp
    held = chosen.dp * chosen.cp // chosen.copies
    words = f"{held} devices share a copy with {chosen.cp} context ranks, expected a multiple for torchtitan"
    job.refuse({f"{words}; plan with --fix cp=1": held % chosen.cp > 0})
    shard = held // chosen.cp
    return chosen.dp // shard, shard


def torchtitan_files(job: Job) -> dict[str, str]:
    """The configuration function, flags of version 0.3.0, and the order of the passes where it is read."""
    chosen, fields = job.strategy, parallelism(job)
    if chosen.pp > 1:
        fields["num_pp_microbatches"] = chosen.num_micro_batches
    training = {
        "num_tokens_per_microbatch_per_dp_rank": chosen.micro_batch * job.sequence,
        "num_tokens_per_train_step": job.global_batch * job.sequence,
        "max_context_length": job.sequence,
        # torchtitan's graphs of kernels, its default, do not go with a pipeline.
        **({"disable_cuda_graphs": True} if chosen.pp > 1 else {}),
    }
    kind = job.whole_layers("torchtitan")
    text = template("torchtitan.py.txt").format(
        parallelism=python_literal(fields),
        training=python_literal(training),
        compiled=python_literal({"enable": True} if COMPILED in job.features else {}),
        chunks=python_literal([tuple(stage) for stage in chosen.stages]),
        model=python_literal(job.plan.model),
        layers=len(job.model.blocks),
        sequence=job.sequence,
        experts=_exchanged_by(job),
        checkpoint=CHECKPOINTS[kind],
    )
    files = {"taut_plan.py": text, "flags-0.3.0.txt": _flags(job, kind)}
    return files | ({"schedule.csv": schedule_csv(job)} if _needs_order(job) else {})


def _exchanged_by(job: Job) -> str:
    """Words on how the model exchanges rows of experts, which torchtitan takes where a model is made."""
    if job.strategy.ep == 1:
        return ""
    wide = max(node.gpus_per_node for node in job.cluster.nodes) > NODE
    named = {"alltoall": "standard"}.get(job.dispatch.dispatcher, "hybridep" if wide else "deepep")
    return f', moe_comm_backend="{named}"'


def training_flags(job: Job) -> dict[str, int]:
    """Fields of ``config.training`` and of pipelines in version 0.3.0, which counts sequences."""
    chosen = job.strategy
    several = chosen.num_micro_batches if chosen.pp > 1 else 1
    return {
        "training.seq_len": job.sequence,
        "training.local_batch_size": chosen.micro_batch * several,
        "training.global_batch_size": job.global_batch,
        **({"parallelism.pipeline_parallel_microbatch_size": chosen.micro_batch} if chosen.pp > 1 else {}),
    }


def _flags(job: Job, kind: str) -> str:
    fields = {f"parallelism.{name}": value for name, value in parallelism(job).items()}
    values = fields | training_flags(job)
    return (
        "--compile.enable\n" * (COMPILED in job.features)
        + "".join(f"--{name} {plain_word(str(value), name)}\n" for name, value in values.items())
        + f"activation_checkpoint:{kind}\n"
    )
