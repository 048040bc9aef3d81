"""Small problems whose every figure can be computed by hand."""

from typing import Any

import numpy as np

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostRow, CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.formulations.mechanisms.latency_models import LatencyName
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy


def cluster(
    nodes: int,
    gpus: int,
    *,
    rows: list[list[float]] | None = None,
    nic_gbps: float | None = None,
    memory_gib: float = 1.0,
    devices: tuple[str, ...] = ("d",),
    latency_us: float = 0.0,
    intra_latency_us: float = 0.0,
) -> ClusterSpec:
    """
    Nodes of ``gpus`` devices with 80 Gb/s (10 GB/s) inside and 8 Gb/s (1 GB/s) between.

    ``rows`` replaces the rate between nodes (or devices) by a matrix in GB/s; ``devices`` are the types of equal
    shares of the nodes, in order.
    """
    share = nodes // len(devices)
    groups: list[dict[str, Any]] = [
        {
            "count": share,
            "device": {
                "name": name,
                "memory_gib": memory_gib,
                "peak_tflops": {"bf16": 1},
                "memory_bandwidth_gbytes": 1,
            },
            "gpus_per_node": gpus,
            "intra_bandwidth_gbps": 80,
            "intra_latency_us": intra_latency_us,
            "nic_bandwidth_gbps": nic_gbps,
        }
        for name in devices
    ]
    values: dict[str, Any] = {"name": "small", "nodes": groups}
    values["network"] = {"bandwidth_gbps": 8, "latency_us": latency_us}
    if rows is not None:
        values["bandwidth_matrix"] = {"unit": "GB/s", "rows": rows}
    return ClusterSpec.parse(values, "small")


def model(layers: int = 4, *, unlike: bool = False) -> ModelSpec:
    """
    Layers of hidden size 64 and 100 tokens: 12,800 bytes of bf16 output per sample.

    ``unlike`` makes every second layer a kind of its own with hidden size 32.
    """
    if not unlike:
        return ModelSpec.parse({"name": "small", "layers": layers, "hidden": 64, "heads": 4, "seq": 100}, "small")
    kinds = [
        {"kind": "wide" if i % 2 == 0 else "narrow", "hidden": 64 if i % 2 == 0 else 32, "heads": 4, "seq": 100}
        for i in range(layers)
    ]
    return ModelSpec.parse({"name": "small", "layers": kinds}, "small")


def costs(
    spec: ModelSpec,
    *,
    seconds: dict[str, float] | None = None,
    devices: dict[str, float] | None = None,
    optimizer: float = 0.0,
    activation_bytes: int = 1000,
) -> CostTable:
    """
    Every layer takes 1 s forward, 1 s for each gradient (3 s in all), times the figures for its kind and device.

    Selective recompute adds 0.25 s and keeps half of the activation bytes, full adds 1 s and keeps a tenth.
    """
    rows = []
    for device, slower in (devices or {"d": 1.0}).items():
        for kind, layer in spec.kinds.items():
            scale = slower * (seconds or {}).get(kind, 1.0)
            for tp in (1, 2, 4):
                for batch in (1, 2, 3, 4, 6, 8, 12, 16):
                    for recompute, again, share in (("none", 0.0, 1.0), ("selective", 0.25, 0.5), ("full", 1.0, 0.1)):
                        rows.append(
                            CostRow.model_validate(
                                {
                                    "device": device,
                                    "kind": kind,
                                    "tp": tp,
                                    "micro_batch": batch,
                                    "seq": layer.seq,
                                    "recompute": recompute,
                                    "forward_s": scale,
                                    "input_grad_s": scale * (1 + again),
                                    "weight_grad_s": scale,
                                    "activation_bytes": round(batch * activation_bytes * share),
                                }
                            )
                        )
    rates = dict.fromkeys(devices or {"d": 1.0}, optimizer)
    return CostTable(name="small", basis="by hand", rows=rows, optimizer_s_per_parameter=rates)


def problem(
    nodes: ClusterSpec,
    spec: ModelSpec | None = None,
    *,
    table: CostTable | None = None,
    global_batch: int = 8,
    latency_model: LatencyName = "pipette",
    max_tp: int = 4,
    **space: Any,
) -> PlanningProblem:
    """A planning problem without memory overhead or margin."""
    spec = spec or model()
    memory = MemoryModel(overhead_gib=0.0, margin=0.0)
    chosen = StrategySpace(global_batch=global_batch, max_tp=max_tp, **space)
    return PlanningProblem(spec, nodes, table or costs(spec), memory, chosen, latency_model)


def candidate(
    pp: int,
    tp: int,
    dp: int,
    *,
    micro_batch: int = 1,
    m: int = 8,
    schedule: str = "1f1b",
    zero: int = 0,
    sequence_parallel: bool = False,
    dp_shard: int = 0,
) -> Candidate:
    """A candidate with one virtual stage."""
    return Candidate(pp, tp, dp, 1, micro_batch, m, schedule, zero, sequence_parallel, (), dp_shard)


def strategy(choice: Candidate, *ends: int, recompute: str = "none") -> Strategy:
    """Stages that end at the given layers, all with the same recompute."""
    stages = tuple(zip((0, *ends[:-1]), ends, strict=True))
    return Strategy(candidate=choice, division=Division(stages, (recompute,) * choice.pp))


def in_order(choice: Candidate) -> Ints:
    """Devices in order: stage by stage, replica by replica."""
    count = choice.pp * choice.dp * choice.tp
    return np.arange(count).reshape(choice.pp, choice.dp, choice.tp)
