r"""
A cluster from a run of nccl-tests.

From a run of n ranks, of which the slowest link bounds the bus bandwidth :math:`w(m)` at message size m, time
:math:`t(m)`, and a ring takes :math:`s` steps,

(1) bandwidth :math:`w(m_{\max})` of the largest message,
(2) latency :math:`t(m_{\min}) / s` of the smallest, with s = 2(n - 1) for all_reduce, n - 1 for all_gather and
    reduce_scatter, and 1 for sendrecv.

A run inside one host speaks for the links inside a node, one over several hosts for the network. There a collective
keeps all cards of a host busy, so (1) is also the sum of a node's cards; sendrecv has one sender a host and says
nothing of that sum. Where the cluster is stated to be one node, as a rack of hosts in one NVLink domain, the run lies
inside it. The library may use other algorithms than a ring, so (2) is what a ring would have needed.
"""

from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.readers.nccl_tests import NcclRun
from taut.data.spec import shorten
from taut.data.units import GIGABIT, GIGABYTE
from taut.errors import DataError

INTRA_LATENCY_US = 3.0
LATENCY_US = 5.0
"""Latencies inside a node and between nodes, assumed where the run does not measure them."""


def cluster_from_nccltests(
    run: NcclRun,
    *,
    name: str,
    device: DeviceSpec,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    intra_bandwidth_gbps: float | None = None,
    intra_latency_us: float | None = None,
    bandwidth_gbps: float | None = None,
    latency_us: float | None = None,
    nic_bandwidth_gbps: float | None = None,
) -> ClusterSpec:
    """
    Cluster of equal nodes with the figures that the run measures, eq. (1) and (2).

    ``name``, ``device``: name of the cluster and device type of every node; ``nodes``, ``gpus_per_node``: size of the
    cluster; without them, the hosts of the run and the ranks of each, or all in one node; ``intra_bandwidth_gbps``,
    ``intra_latency_us``, ``bandwidth_gbps``, ``latency_us``, ``nic_bandwidth_gbps``: Gb/s and microseconds inside a
    node, between nodes, and of a node's cards; what is stated wins over what is measured. A run inside one node leaves
    the network open, one over several hosts the inside. Returns equal nodes with what the run measured of their links.
    Raises ``DataError`` if the run has one rank, measures no bandwidth or is of another collective, or a figure is
    missing or wrong.
    """
    measured, latency = _bandwidth_gbps(run, name), _latency_us(run, name)
    inside = nodes == 1 or len(run.ranks_per_host) == 1
    if not inside and intra_bandwidth_gbps is None:
        hosts = len(run.ranks_per_host)
        raise DataError(f"{name}: intra_bandwidth_gbps: missing, expected with a run over {hosts} hosts")
    cards = None if inside or run.collective == "sendrecv" else measured
    node = {
        "count": len(run.ranks_per_host) if nodes is None else nodes,
        "device": device,
        "gpus_per_node": _gpus(run, name, inside) if gpus_per_node is None else gpus_per_node,
        "intra_bandwidth_gbps": _stated(intra_bandwidth_gbps, measured),
        "intra_latency_us": _stated(intra_latency_us, latency if inside else INTRA_LATENCY_US),
        "nic_bandwidth_gbps": _stated(nic_bandwidth_gbps, cards),
    }
    network = {
        "bandwidth_gbps": _stated(bandwidth_gbps, None if inside else measured),
        "latency_us": _stated(latency_us, LATENCY_US if inside else latency),
    }
    return ClusterSpec.parse({"name": name, "nodes": [node], "network": network, "source": _source(run, inside)}, name)


def _stated(stated: float | None, otherwise: float | None) -> float | None:
    return otherwise if stated is None else stated


def _gpus(run: NcclRun, name: str, inside: bool) -> int:
    counts = {len(run.hosts)} if inside else set(run.ranks_per_host.values())
    if len(counts) > 1:
        raise DataError(f"{name}: hosts have {shorten(sorted(counts))} ranks, expected as many on each")
    return counts.pop()


def _bandwidth_gbps(run: NcclRun, name: str) -> float:
    """Gb/s of the largest message, eq. (1)."""
    largest = max(run.rows, key=lambda row: (row.size, row.busbw))
    if not largest.busbw > 0:
        raise DataError(f"{name}: bus bandwidth of {largest.size} bytes is {largest.busbw:g}, expected GB/s > 0")
    return largest.busbw * GIGABYTE / GIGABIT


def _latency_us(run: NcclRun, name: str) -> float:
    """Microseconds of one step of the smallest message, eq. (2)."""
    ring = len(run.hosts) - 1
    steps = {"all_reduce": 2 * ring, "all_gather": ring, "reduce_scatter": ring, "sendrecv": 1}
    if run.collective not in steps:
        raise DataError(f"{name}: collective is {run.collective!r}, expected one of {', '.join(steps)}")
    if ring == 0:
        raise DataError(f"{name}: the run has one rank, expected at least two")
    smallest = min(run.rows, key=lambda row: (row.size, row.time_us))
    return smallest.time_us / steps[run.collective]


def _source(run: NcclRun, inside: bool) -> str:
    hosts = len(run.ranks_per_host)
    what = "links inside a node" if inside else "network"
    return (
        f"nccl-tests {run.collective}, {len(run.hosts)} ranks on {hosts} host{'s' * (hosts > 1)}: {what} measured "
        "where not stated (bus bandwidth of the largest message, time of the smallest per ring step), the rest assumed"
    )
