"""
Plans of models with experts that NVIDIA published with their measured throughput, read from a public table.

``megatron_bridge_h100_b200_gb200.csv`` has Megatron-Bridge's performance summaries, the newest first: columns
``system``, ``model``, ``n_gpus``, ``precision``, ``gbs``, ``mbs``, ``seq``, ``tp``, ``pp``, ``cp``, ``vp``, ``ep`` and
``tokens_per_s_per_gpu``, where a step takes gbs seq / (n_gpus tokens/s) seconds. Of every system, model and number of
GPUs the newest row is taken, where the GPUs are whole nodes, or whole domains of 64 GPUs with NVLink. Routing is forced
to be even. All shard the optimizer over replicas and put an expert on one GPU whole (``etp`` 1). Recompute, which is of
single modules there, is left open.
"""

from collections.abc import Iterator
from typing import Any

from taut.papers.searches.published import PublishedPlan

MODELS = {
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
}
"""Catalog model by name in the table."""
SYSTEMS = {
    "DGX-H100": ("dgx-h100", 8),
    "DGX-B200": ("dgx-b200", 8),
    "DGX-B300": ("dgx-b300", 8),
    "DGX-GB200": ("gb200-nvl64", 64),
    "DGX-GB300": ("gb300-nvl64", 64),
}
"""Catalog cluster, and its GPUs, by name in the table."""
PRECISIONS = {"BF16": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "MXFP8": "mxfp8", "FP8-MX": "mxfp8"}


def plans_with_experts(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    """The newest plan of every system, model and number of GPUs."""
    newest: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in lines:
        if line["model"] in MODELS and line["system"] in SYSTEMS and line["precision"] in PRECISIONS:
            newest.setdefault((line["model"], line["system"], line["n_gpus"]), line)
    for (model, system, gpus), line in sorted(newest.items()):
        cluster, size = SYSTEMS[system]
        count, rest = divmod(int(gpus), size)
        if rest == 0:
            yield _plan(line, MODELS[model], f"{cluster}:{count}" if count > 1 else cluster)


def _plan(line: dict[str, str], model: str, cluster: str) -> PublishedPlan:
    return PublishedPlan(
        who=f"NVIDIA {line['container']}",
        model=model,
        seq=int(line["seq"]),
        gpus=int(line["n_gpus"]),
        global_batch=int(line["gbs"]),
        precision=PRECISIONS[line["precision"]],
        measured_s=step_of(line),
        fixed=_degrees(line),
        cluster=cluster,
    )


def step_of(line: dict[str, str]) -> float:
    """Seconds of a step of a measured run."""
    tokens = float(line["tokens_per_s_per_gpu"].split()[0].replace(",", ""))
    return int(line["gbs"]) * int(line["seq"]) / (int(line["n_gpus"]) * tokens)


def _degrees(line: dict[str, str]) -> dict[str, Any]:
    """What a plan fixes."""
    found: dict[str, Any] = {name: int(line[name]) for name in ("tp", "pp", "cp", "ep")}
    found |= {"etp": 1, "micro_batch": int(line["mbs"]), "sequence_parallel": found["tp"] > 1, "zero": 1}
    vpp = int(line["vp"]) if line["vp"].isdigit() and found["pp"] > 1 else 1
    return found | ({"schedule": "interleaved-1f1b", "vpp": vpp} if vpp > 1 else {"schedule": "1f1b"})
