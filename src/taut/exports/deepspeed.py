"""
DeepSpeed: its configuration, its hostfile, and marks at the first layer of every stage.

Its pipeline engine cuts a list of layers by what their classes are called: with ``partition_method="type:TautStage"``
as many classes of that name as there are stages begin one stage each (deepspeed/runtime/pipe/module.py). Its launcher
numbers processes in the order of the hostfile, node by node, GPUs ascending; any other placement is started by Slurm's
or Open MPI's files of the same plan. Tensor ranks are the model's own affair, such as Megatron-DeepSpeed's. A first
stage without layers ends before layer 0, and a last one begins behind the last layer, with the norm or the head.
Inputs of recomputed layers go to the host's memory with ``cpu_checkpointing``, which the model's script turns on by
``deepspeed.checkpointing.configure`` with this file.
"""

from typing import Any

from taut.exports.job import Job
from taut.files import template
from taut.quoting import json_text, python_literal


def deepspeed_config(job: Job) -> dict[str, Any]:
    """DeepSpeed's configuration, without optimizer and data."""
    chosen, precision = job.strategy, job.memory.precision
    _check(job)
    return {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": chosen.micro_batch,
        "gradient_accumulation_steps": chosen.num_micro_batches,
        "zero_optimization": _zero(job),
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": precision == "fp16"},
        "gradient_clipping": 1.0,
        **({"activation_checkpointing": {"cpu_checkpointing": True}} if job.activations_on_hosts else {}),
    }


def _zero(job: Job) -> dict[str, Any]:
    """ZeRO's stage, at least 1 where optimizer states are in the host's memory, and the share that is."""
    stage, fraction = job.strategy.zero, job.states_on_hosts
    if not fraction:
        return {"stage": stage}
    part = {"ratio": fraction} if fraction < 1 else {}
    return {"stage": max(stage, 1), "offload_optimizer": {"device": "cpu", "pin_memory": True, **part}}


def _check(job: Job) -> None:
    chosen, fraction = job.strategy, job.states_on_hosts
    refused = {
        f"schedule {chosen.schedule}": chosen.pp > 1 and chosen.schedule != "1f1b",
        f"ZeRO-{chosen.zero} in a pipeline": chosen.pp > 1 and chosen.zero >= 2,
        f"context ranks (cp={chosen.cp})": chosen.cp > 1,
        f"expert ranks (ep={chosen.ep})": chosen.ep > 1,
        "sequence parallelism of tensor ranks": chosen.sequence_parallel,
        f"groups of replicas with a copy each (dp_shard={chosen.dp * chosen.cp // chosen.copies})": chosen.copies > 1,
        "activations of modules in the host's memory": bool(job.offload_modules),
        "a part of the activations in the host's memory": 0 < job.activations_on_hosts < 1,
        "activations in the host's memory without full recompute": bool(job.activations_on_hosts)
        and set(chosen.recompute) != {"full"},
        "selective recompute": "selective" in chosen.recompute,
        f"a part of the optimizer states in the host's memory beside ZeRO-{chosen.zero}": 0 < fraction < 1
        and chosen.zero != 3,
        "optimizer states in the host's memory without ZeRO": bool(fraction) and not chosen.zero and chosen.dp > 1,
    }
    words = f"precision {job.memory.precision}, which DeepSpeed has not; plan with --precision bf16, fp16 or fp32"
    narrow = {words: job.memory.precision not in ("bf16", "fp16", "fp32")}
    stack = {f"{what}, which DeepSpeed has not; plan with --stack deepspeed": it for what, it in refused.items()}
    job.refuse(narrow | stack)
    job.whole_layers("DeepSpeed")


def deepspeed_files(job: Job) -> dict[str, str]:
    """Configuration, hostfile where its launcher can place the processes, and marks of the stages."""
    files = {"ds_config.json": json_text(deepspeed_config(job), indent=2)}
    if job.strategy.pp > 1:
        starts = tuple(first for first, _ in job.strategy.stages)
        marks = template("deepspeed.py.txt")
        files["taut_stages.py"] = marks.format(starts=python_literal(starts), stages=job.strategy.pp)
    if is_in_order(job):
        counts = {node: int((job.nodes == node).sum()) for node in job.node_order()}
        files["hostfile"] = "".join(f"{job.host_names[node]} slots={count}\n" for node, count in counts.items())
    return files


def is_in_order(job: Job) -> bool:
    """Whether DeepSpeed's own launcher numbers the processes as the plan does: by nodes, their GPUs 0, 1, and so on."""
    if not job.is_node_major:
        return False
    parts = [job.gpus[job.nodes == node].tolist() for node in job.node_order()]
    return all(part == list(range(len(part))) for part in parts)
