"""
One node as a cluster, from a matrix of bandwidths between its devices.

The matrix has one row per device, row sends to column, the diagonal ignored. The smallest figure between two devices
is the node's ``intra_bandwidth_gbps``, for whoever asks for one figure.
"""

from collections.abc import Sequence

from taut.data.cluster import UNIT_BYTES, ClusterSpec, Unit
from taut.data.device import DeviceSpec
from taut.data.units import GIGABIT
from taut.errors import DataError


def one_node(
    rows: Sequence[Sequence[float]],
    unit: Unit,
    *,
    name: str,
    device: DeviceSpec,
    intra_latency_us: float,
    source: str,
    nic_bandwidth_gbps: float | None = None,
) -> ClusterSpec:
    """
    Cluster of one node with a device-by-device matrix.

    ``rows``, ``unit``: square matrix of bandwidths > 0 off the diagonal, row sends to column, and their unit; the
    others: what the matrix does not say. Returns one node whose links are the matrix. Raises ``DataError`` if there are
    fewer than two devices or a figure is out of range.
    """
    if len(rows) < 2:
        raise DataError(f"{name}: has {len(rows)} devices, expected at least two, with a link between them")
    slowest = min(rate for i, row in enumerate(rows) for j, rate in enumerate(row) if i != j)
    node = {
        "device": device,
        "gpus_per_node": len(rows),
        "intra_bandwidth_gbps": slowest * UNIT_BYTES[unit] / GIGABIT,
        "intra_latency_us": intra_latency_us,
        "nic_bandwidth_gbps": nic_bandwidth_gbps,
    }
    matrix = {"unit": unit, "rows": [list(row) for row in rows]}
    return ClusterSpec.parse({"name": name, "nodes": [node], "bandwidth_matrix": matrix, "source": source}, name)
