"""
The cluster that the running machines are: its links measured pair by pair, written as a cluster file.

The links are measured as ``taut.profiling.processes`` says, one process a device, and become a bandwidth and a latency
matrix, device by device. The file states no ``nic_bandwidth_gbps``: pairs measured at the same time have shared the
network cards already.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

from taut.data.catalog.devices import catalog_device, catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.suggest import one_of
from taut.data.units import GIGABIT, GIGABYTE, MICROSECOND
from taut.errors import DataError, FieldError
from taut.profiling.processes import BACKENDS, Matrix, Measured, launched, measure_launched, measure_started


def profile_network(
    *, out: Path, device: str, gpu: str, processes: int, gpus_per_node: int | None, name: str, quiet: bool
) -> None:
    """
    Measure every link and write a cluster file.

    Every process that a launcher started calls this, and process 0 writes the file. Without a launcher, processes are
    started here for as long as it takes.

    ``out``: cluster file to write; ``device``: ``cuda`` or ``cpu``; ``gpu``: device type of every node, from the
    catalog; ``processes``: processes to start; a launcher's own number wins; ``gpus_per_node``: devices of every node,
    in the order of the processes; without it, the processes of a host; ``name``: name of the cluster; the file's where
    empty; ``quiet``: whether to say nothing on stderr. Raises ``DataError`` if there are fewer than two processes, more
    processes than GPUs or unequal nodes, a process dies or does not answer in time, or the file cannot be written.
    """
    if gpu not in catalog_section("devices"):
        raise FieldError("gpu", gpu, f"expected {one_of(gpu, catalog_section('devices'))}")
    spec = catalog_device(gpu)
    if device not in BACKENDS:
        raise FieldError("device", device, f"expected {one_of(device, BACKENDS)}")
    if os.environ.get("RANK", "0") == "0" and not out.parent.is_dir():
        raise DataError(f"{out}: cannot be written (no such folder), expected a writable file name")
    if find_spec("torch") is None:
        raise DataError("torch: not installed, expected it for measuring (pip install 'taut[learn]')")
    if launched():
        measured = measure_launched(device, gpus_per_node, quiet)
    else:
        measured = measure_started(processes, device, gpus_per_node, quiet)
    if measured is not None:
        _write(measured, spec, out, name or out.stem, quiet)


def _write(measured: Measured, device: DeviceSpec, out: Path, name: str, quiet: bool) -> None:
    from taut.files import write_atomically
    from taut.reports.catalog import cluster_yaml

    cluster = cluster_from_matrices(
        measured.bandwidth,
        measured.latency,
        gpus_per_node=measured.gpus_per_node,
        name=name,
        device=device,
        source=f"measured pair by pair with {measured.software}, row sends to column; disjoint pairs at the same time",
    )
    write_atomically(out, cluster_yaml(cluster))
    if not quiet:
        print(f"{out}: {cluster.num_nodes} nodes, {cluster.num_devices} devices", file=sys.stderr)


def cluster_from_matrices(
    bandwidth: Matrix, latency: Matrix, *, gpus_per_node: int, name: str, device: DeviceSpec, source: str
) -> ClusterSpec:
    """Cluster of equal nodes from bytes per second and seconds (n, n), row sends to column, in five digits."""
    size = len(bandwidth)
    if size < 2 or gpus_per_node < 1 or size % gpus_per_node:
        raise DataError(f"{name}: has {size} devices, expected two or more that fill nodes of {gpus_per_node}")
    rates, waits = _scaled(bandwidth, GIGABYTE), _scaled(latency, MICROSECOND)
    pairs = list(permutations(range(size), 2))
    between = [(i, j) for i, j in pairs if i // gpus_per_node != j // gpus_per_node]
    inside = [(i, j) for i, j in pairs if i // gpus_per_node == j // gpus_per_node] or pairs
    values = {
        "name": name,
        "nodes": [
            {
                "count": size // gpus_per_node,
                "device": device,
                "gpus_per_node": gpus_per_node,
                "intra_bandwidth_gbps": _gbps(rates, inside),
                "intra_latency_us": max(waits[i][j] for i, j in inside),
            }
        ],
        "bandwidth_matrix": {"unit": "GB/s", "rows": rates},
        "latency_matrix": {"rows_us": waits},
        "source": source,
    }
    if between:
        longest = max(waits[i][j] for i, j in between)
        values["network"] = {"bandwidth_gbps": _gbps(rates, between), "latency_us": longest}
    return ClusterSpec.parse(values, name)


def _scaled(matrix: Matrix, unit: float) -> list[list[float]]:
    return [
        [0.0 if i == j else float(f"{entry / unit:.5g}") for j, entry in enumerate(row)] for i, row in enumerate(matrix)
    ]


def _gbps(rates: Matrix, pairs: Sequence[tuple[int, int]]) -> float:
    """Gb/s of the slowest link."""
    return float(f"{min(rates[i][j] for i, j in pairs) * GIGABYTE / GIGABIT:.5g}")
