"""Random clusters of racks and kinds of node, and the same clusters with a measured matrix."""

from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.units import GIGABIT, MICROSECOND
from taut.formulations.links import links


def racked(rng: np.random.Generator, nodes: int, *, kinds: int = 2) -> ClusterSpec:
    """Nodes of random kinds in random racks, which need not be of consecutive nodes nor state figures of their own."""
    device = {"name": "d", "memory_gib": 1, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}
    groups: list[dict[str, Any]] = []
    for _ in range(nodes):
        kind = int(rng.integers(kinds))
        figures = {"intra_bandwidth_gbps": 80.0 + 8 * kind, "intra_latency_us": kind, "nic_bandwidth_gbps": 16 + kind}
        if groups and groups[-1]["intra_bandwidth_gbps"] == figures["intra_bandwidth_gbps"]:
            groups[-1]["count"] += 1
        else:
            groups.append({"count": 1, "device": device, "gpus_per_node": 2, **figures})
    racks: list[dict[str, Any]] = []
    for own in np.array_split(rng.permutation(nodes)[: nodes - 1], int(rng.integers(1, 4))):
        figures = {"bandwidth_gbps": float(rng.choice([4, 16, 24])), "latency_us": float(rng.integers(1, 3))}
        kept = rng.choice(list(figures), int(rng.integers(3)), replace=False)
        racks.append({"nodes": own.tolist(), **{name: figures[name] for name in kept.tolist()}})
    network = {"bandwidth_gbps": 8, "latency_us": 3, "racks": racks}
    return ClusterSpec.parse({"name": "racked", "nodes": groups, "network": network}, "test")


def measured(spec: ClusterSpec) -> ClusterSpec:
    """The same cluster with its rates and latencies in matrices by node."""
    found = links(spec)
    rates = {"unit": "Gb/s", "rows": (found.rate.dense() / GIGABIT).tolist()}
    latencies = {"rows_us": (found.latency.dense() / MICROSECOND).tolist()}
    values = {**spec.model_dump(mode="json"), "bandwidth_matrix": rates, "latency_matrix": latencies}
    return ClusterSpec.parse(values, "test")
