"""
Plans that were published with their measured step times, read from public tables (none is part of the project).

``nvidia_dgxc_h100.csv`` has NVIDIA's dgxc-benchmarking runs: columns ``model``, ``precision``, ``n_gpus``, ``tp``,
``pp``, ``cp``, ``vp``, ``mbs``, ``gbs``, ``layers_override``, ``step_s``; those of dense models in bf16 with all layers
are taken, and of equal plans the median step. ``mlperf_dense.csv`` has MLPerf training's logs: ``round``,
``submitter``, ``benchmark``, ``gpu``, ``n_gpus``, ``tp``, ``pp``, ``cp``, ``vpp``, ``mbs``, ``gbs``, ``seq``,
``precision``, ``step_s_median``; those on DGX H100 of GPT-3 and Llama 3.1 405B are taken. Lines that begin with # are
comments. Both shard the optimizer over replicas, keep gradients in bf16 and recompute nothing. Other tables have plans
of models with experts (``taut.papers.searches.published_experts``) and recipes with activations on hosts
(``taut.papers.searches.published_offload``).
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taut.data.load import load_model
from taut.papers.searches.published import PublishedPlan, lines_of, places_of
from taut.papers.searches.published_experts import plans_with_experts
from taut.papers.searches.published_offload import recipes_with_offload

NVIDIA, MLPERF, BRIDGE = "nvidia_dgxc_h100.csv", "mlperf_dense.csv", "megatron_bridge_h100_b200_gb200.csv"
RECIPES = "megatron_bridge_recipes_config.csv"
MODELS = {
    "llama3.1_8b": ("llama3-8b", 8192),
    "llama3.1_70b": ("llama3-70b", 8192),
    "llama3.1_405b": ("llama3-405b", 8192),
    "nemotron_15b": ("nemotron4-15b", 4096),
    "nemotron_340b": ("nemotron4-340b", 4096),
    "nemo_megatron_175b": ("gpt3-175b", 2048),
    "gpt3": ("gpt3-175b", 2048),
    "llama31_405b": ("llama3-405b", 8192),
}
"""Catalog model and sequence length by name in the tables."""


def published_plans(folder: Path) -> Iterator[PublishedPlan]:
    """The plans of the tables in a folder or up to two levels below it."""
    readers = {NVIDIA: _nvidia, MLPERF: _mlperf, BRIDGE: plans_with_experts}
    found = {name: lines_of(path) for name, path in _tables(folder).items()}
    for name, reader in readers.items():
        yield from reader(found.get(name, []))
    yield from recipes_with_offload(found.get(RECIPES, []), found.get(BRIDGE, []))


def has_plans(folder: Path) -> bool:
    """Whether a folder has one of the tables."""
    return bool(_tables(folder))


def _tables(folder: Path) -> dict[str, Path]:
    found = {name: places_of(folder, name) for name in (NVIDIA, MLPERF, BRIDGE, RECIPES)}
    return {name: paths[0] for name, paths in found.items() if paths}


def _nvidia(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    runs = defaultdict(list)
    for line in lines:
        if line["model"] in MODELS and line["precision"] == "BF16" and line["mbs"] and _whole(line):
            runs[line["model"], int(line["n_gpus"])].append(line)
    for (name, gpus), rows in sorted(runs.items()):
        model, seq = MODELS[name]
        yield PublishedPlan(
            who="NVIDIA",
            model=model,
            seq=seq,
            gpus=gpus,
            global_batch=int(rows[0]["gbs"]),
            precision="bf16",
            measured_s=statistics.median(float(row["step_s"]) for row in rows),
            fixed=_degrees(rows[0], rows[0]["vp"]),
        )


def _whole(line: dict[str, str]) -> bool:
    """Whether a run has all layers of its model."""
    layers = line["layers_override"]
    return not layers or int(layers) == len(load_model(MODELS[line["model"]][0]).blocks)


def _mlperf(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    for line in lines:
        if line["benchmark"] in MODELS and line["gpu"] == "NVIDIA H100-SXM5-80GB":
            model, seq = MODELS[line["benchmark"]]
            yield PublishedPlan(
                who=f"MLPerf {line['round']} {line['submitter']}",
                model=model,
                seq=seq,
                gpus=int(line["n_gpus"]),
                global_batch=int(line["gbs"]),
                precision=line["precision"],
                measured_s=float(line["step_s_median"]),
                fixed=_degrees(line, line["vpp"]),
            )


def _degrees(line: dict[str, str], chunks: str) -> dict[str, Any]:
    """What a plan fixes."""
    found: dict[str, Any] = {name: int(line[name]) for name in ("tp", "pp", "cp")}
    replicas = int(line["n_gpus"]) // (found["tp"] * found["pp"])
    found |= {"micro_batch": int(line["mbs"]), "recompute": "none", "sequence_parallel": found["tp"] > 1}
    vpp = int(chunks) if chunks.isdigit() and found["pp"] > 1 else 1
    schedule = {"schedule": "interleaved-1f1b", "vpp": vpp} if vpp > 1 else {"schedule": "1f1b"}
    return found | schedule | {"zero": int(replicas > 1)}
