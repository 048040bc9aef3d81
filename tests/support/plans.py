"""Plans made by hand, for what prints and draws them."""

from typing import Any

from taut import Plan
from taut.data.units import GIB

PARTS = ("compute", "tensor_parallel", "pipeline_transfers", "data_parallel", "optimizer", "constant")


def made_plan(*, pp: int = 1, tp: int = 1, dp: int = 1, **sections: dict[str, Any]) -> Plan:
    """A plan of these degrees, one layer a stage, 2 s a step; ``sections`` replace fields."""
    device = {"name": "d", "memory_gib": 16, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}
    node = {"count": 1, "device": device, "gpus_per_node": pp * dp * tp, "intra_bandwidth_gbps": 400}
    workers = iter(range(pp * dp * tp))
    document: dict[str, dict[str, Any]] = {
        "strategy": {
            **{"pp": pp, "tp": tp, "dp": dp, "vpp": 1, "micro_batch": 1, "num_micro_batches": 1, "schedule": "1f1b"},
            **{"zero": 0, "sequence_parallel": False},
            **{"stages": [[x, x + 1] for x in range(pp)], "recompute": ["none"] * pp},
        },
        "placement": {
            "order": "pp,dp,tp",
            "devices": [[[next(workers) for _ in range(tp)] for _ in range(dp)] for _ in range(pp)],
        },
        "predicted": {
            "step_time_s": 2.0,
            "breakdown_s": dict(zip(PARTS, (1.0, 0.5, 0.25, 0.125, 0.125, 0.0), strict=True)),
            "memory_bytes": [(x + 1) * GIB for x in range(pp)],
            "margin_bytes": [GIB] * pp,
            "capacity_bytes": [16 * GIB] * pp,
            **{"tokens_per_s": 500.0, "mfu": 0.5},
        },
        "certificate": {
            **{"objective_s": 2.0, "lower_bound_s": 1.5, "gap": 0.25, "communication_gap": 0.5, "verified_gap": 0.25},
            **{"lower_bound_no_margin_s": None, "latency_model": "pipette", "problem_sha256": "", "space": {}},
            "candidates": [],
        },
        "inputs": {
            "model": {"name": "m", "sha256": "", "spec": {}},
            "cluster": {"name": "c", "sha256": "", "spec": {"name": "c", "nodes": [node]}},
        },
    }
    filled = {name: values | sections.get(name, {}) for name, values in document.items()}
    more = {"provenance": sections.get("provenance", {})}
    return Plan({"format": "taut-plan/1", "status": "feasible", **more, **filled})
