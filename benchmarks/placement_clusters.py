r"""
The frozen workload of the placement benchmark, and the kinds of cluster it is placed on.

Workload: GPT 11.1B (96 layers of 3072, sequence 2048), global batch 512, micro-batch 2, 140 TFLOP/s, bf16, full
recompute; pipeline and tensor degree are given, dp follows. Nodes have 8 devices, 600 GB/s inside, and between them
25 GB/s, at best times 1.5, with a factor :math:`e^{N(0, s)}` on every pair:

``lognormal20``, ``lognormal40``  s = 0.2 and 0.4;
``racks``     two racks, a quarter of the rate between them;
``sixes``     racks of 6 nodes, the last one of what is left, a quarter of the rate between them;
``slow``      one node with 0.4 of the rate;
``fat-tree``  leaves of 4 nodes, pods of 16: 1, 0.75 and 0.5 of the rate;
``mpigraph``  a measured matrix, uncapped and asymmetric as it is; of its hosts as many as are asked for, drawn
              without replacement and left in their order.

s = 0.1 in the middle four, and all synthetic nodes stand in random order. No latencies, no shared network cards.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostRow, CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace

KINDS = ("lognormal20", "lognormal40", "racks", "sixes", "slow", "fat-tree", "mpigraph")
GPUS_PER_NODE = 8
RATE = 25.0
HIDDEN, SEQUENCE, MICRO_BATCH, GLOBAL_BATCH = 3072, 2048, 2, 512
FLOPS = 140e12


def rates(nodes: int, kind: str, seed: int, measured: Floats | None = None) -> Floats:
    """
    GB/s between nodes of one kind of cluster, row sends to column.

    Raises
    ------
    DataError
        If ``measured`` has too few nodes.
    """
    rng = np.random.default_rng(seed)
    if measured is not None:
        return _subsample(measured, nodes, rng)
    spread = {"lognormal20": 0.2, "lognormal40": 0.4}.get(kind, 0.1)
    noise = np.triu(np.exp(rng.normal(0, spread, (nodes, nodes))), 1)
    matrix = RATE * (noise + noise.T)
    where = np.arange(nodes)
    if kind in ("racks", "sixes"):
        rack = where // (nodes // 2 if kind == "racks" else 6)
        matrix *= np.where(np.equal.outer(rack, rack), 1.0, 0.25)
    elif kind == "slow":
        matrix[0] *= 0.4
        matrix[:, 0] *= 0.4
    elif kind == "fat-tree":
        leaf, pod = np.equal.outer(where // 4, where // 4), np.equal.outer(where // 16, where // 16)
        matrix *= np.where(leaf, 1.0, np.where(pod, 0.75, 0.5))
    order = rng.permutation(nodes)
    return np.minimum(matrix[np.ix_(order, order)], 1.5 * RATE)


def _subsample(measured: Floats, nodes: int, rng: np.random.Generator) -> Floats:
    """Rates between some of the measured nodes, in their order."""
    if len(measured) < nodes:
        raise DataError(f"the measured matrix has {len(measured)} nodes, expected at least {nodes}")
    kept = np.sort(rng.choice(len(measured), nodes, replace=False))
    return measured[np.ix_(kept, kept)]


def problem(
    nodes: int, stages: int, tp: int, kind: str, seed: int, latency_model: str, measured: Floats | None = None
) -> PlanningProblem:
    """The frozen workload on one cluster, with everything but layers and placement fixed."""
    model = ModelSpec.parse(
        {"name": "gpt-11.1b", "layers": 96, "hidden": HIDDEN, "heads": 32, "seq": SEQUENCE}, "benchmark"
    )
    fixed = {"tp": tp, "pp": stages, "micro_batch": MICRO_BATCH, "zero": 0, "sequence_parallel": False}
    space = StrategySpace(global_batch=GLOBAL_BATCH, max_tp=tp, fixed={**fixed, "schedule": "1f1b"}, recompute=["full"])
    known = next(name for name in LATENCY_MODELS if name == latency_model)
    spec = _cluster(f"{kind}-{nodes}", rates(nodes, kind, seed, measured if kind == "mpigraph" else None))
    return PlanningProblem(model, spec, _costs(tp), MemoryModel(), space, known)


def _cluster(name: str, matrix: Floats) -> ClusterSpec:
    """Nodes of 8 devices with the rates given between them."""
    device = {"name": "d", "memory_gib": 80, "peak_tflops": {"bf16": 312}, "memory_bandwidth_gbytes": 2000}
    node = {"count": len(matrix), "gpus_per_node": GPUS_PER_NODE, "intra_bandwidth_gbps": 4800, "device": device}
    values = {
        "name": name,
        "nodes": [node],
        "network": {"latency_us": 0},
        "bandwidth_matrix": {"unit": "GB/s", "rows": matrix.tolist()},
    }
    return ClusterSpec.parse(values, "benchmark")


def _costs(tp: int) -> CostTable:
    """A block at 140 TFLOP/s, which holds its input alone under full recompute."""
    forward = 2 * 12 * HIDDEN**2 * MICRO_BATCH * SEQUENCE / tp / FLOPS
    block = CostRow(
        device="d",
        kind="block",
        tp=tp,
        micro_batch=MICRO_BATCH,
        seq=SEQUENCE,
        recompute="full",
        forward_s=forward,
        input_grad_s=2 * forward,
        weight_grad_s=forward,
        activation_bytes=2 * MICRO_BATCH * SEQUENCE * HIDDEN,
    )
    rows = [block, block.model_copy(update={"recompute": "none", "input_grad_s": forward})]
    return CostTable(name="140-tflops", basis="140 TFLOP/s", rows=rows)
