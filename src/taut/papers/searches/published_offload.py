"""
Recipes of dense models that keep activations of whole layers on the hosts, as NVIDIA published them.

``megatron_bridge_recipes_config.csv`` has what the recipes of Megatron-Bridge state: columns ``task``, ``model``,
``n_gpus``, ``gpu``, ``precision_tag``, ``cpu_offloading``, ``cpu_offloading_num_layers``, ``global_batch_size``,
``micro_batch_size``, ``tensor_model_parallel_size``, ``context_parallel_size`` and ``sequence_parallel``. Taken are
those for pre-training whose GPUs are whole nodes, or whole domains of 64 GPUs with NVLink. All of them shard weights
and optimizer states over all replicas, with one stage and no recompute, at 8192 tokens. Their n layers of L are the
share n / L of all activations, which is what Transformer Engine moves. The table of measured runs
(``taut.papers.searches.published_experts``) does not say which of them moved activations; the measured step of a
recipe is that of the newest run there with its job, micro-batch and degrees, and with shards (``fsdp``), if any.
"""

from collections.abc import Iterator
from typing import Any

from taut.data.load import load_model
from taut.papers.searches.published import PublishedPlan
from taut.papers.searches.published_experts import SYSTEMS, step_of

MODELS = {"llama3_70b": ("llama3-70b", "LLAMA3_70B"), "llama31_405b": ("llama3-405b", "LLAMA3.1_405B")}
"""Catalog model, and name in the table of measured runs, by name in the recipes."""
PRECISIONS = {"bf16": ("bf16", "BF16"), "fp8cs": ("fp8", "FP8")}
"""Precision, and name in the table of measured runs, by tag of the recipes."""
SEQ = 8192


def recipes_with_offload(recipes: list[dict[str, str]], runs: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    """The recipes of a table, with the measured steps of another."""
    for line in recipes:
        if line["cpu_offloading"] == "True" and line["task"] == "pretrain" and line["model"] in MODELS:
            cluster, size = SYSTEMS[f"DGX-{line['gpu'].upper()}"]
            count, rest = divmod(int(line["n_gpus"]), size)
            if rest == 0:
                yield _plan(line, f"{cluster}:{count}" if count > 1 else cluster, runs)


def _plan(line: dict[str, str], cluster: str, runs: list[dict[str, str]]) -> PublishedPlan:
    model = MODELS[line["model"]][0]
    ran = next((run for run in runs if _is_of(run, line)), None)
    return PublishedPlan(
        who="NVIDIA recipe",
        model=model,
        seq=SEQ,
        gpus=int(line["n_gpus"]),
        global_batch=int(line["global_batch_size"]),
        precision=PRECISIONS[line["precision_tag"]][0],
        measured_s=None if ran is None else step_of(ran),
        fixed=_degrees(line),
        cluster=cluster,
        activation_offload=int(line["cpu_offloading_num_layers"]) / len(load_model(model).blocks),
    )


def _degrees(line: dict[str, str]) -> dict[str, Any]:
    """What a plan fixes."""
    return {
        "tp": int(line["tensor_model_parallel_size"]),
        "pp": 1,
        "cp": int(line["context_parallel_size"]),
        "micro_batch": int(line["micro_batch_size"]),
        "recompute": "none",
        "sequence_parallel": line["sequence_parallel"] == "True",
        "schedule": "1f1b",
        "zero": 3,
    }


def _is_of(run: dict[str, str], line: dict[str, str]) -> bool:
    """Whether a measured run is of the job and degrees of a recipe."""
    job = (f"DGX-{line['gpu'].upper()}", MODELS[line["model"]][1], line["n_gpus"], PRECISIONS[line["precision_tag"]][1])
    plan = line["global_batch_size"], line["micro_batch_size"], line["tensor_model_parallel_size"], "1"
    ran = run["gbs"], run["mbs"], run["tp"], run["pp"]
    return (run["system"], run["model"], run["n_gpus"], run["precision"]) == job and ran == plan and run["fsdp"] != "0"
