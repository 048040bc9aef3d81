"""
A cluster's links as a graph of networkx, to look into and to hand to other tools.

A graph node is a node of the cluster, or a device where links were measured device by device; an edge a -> b carries
what a sends to b: ``bandwidth`` in bytes per second of one pair of devices alone, ``latency`` in seconds. Attributes of
a graph node: ``node``, ``device`` (its type), ``devices`` (their numbers), ``rack`` (None outside of racks), and of the
node ``intra_bandwidth``, ``intra_latency`` and ``nic_bandwidth`` (all cards together; None where it is not stated).
"""

from typing import TYPE_CHECKING, Any

from taut.data.units import GIGABIT, MICROSECOND

if TYPE_CHECKING:
    from networkx import DiGraph

    from taut.data.cluster import ClusterSpec


def cluster_graph(cluster: "ClusterSpec") -> "DiGraph[int]":
    """The links between nodes, or between devices where they were measured one by one."""
    from networkx import DiGraph

    graph: DiGraph[int] = DiGraph(name=cluster.name)
    sites = list(_sites(cluster))
    graph.add_nodes_from(enumerate(sites))
    for a, one in enumerate(sites):
        for b, other in enumerate(sites):
            if a != b:
                graph.add_edge(a, b, bandwidth=_bandwidth(cluster, one, other), latency=_latency(cluster, one, other))
    return graph


def _sites(cluster: "ClusterSpec") -> list[dict[str, Any]]:
    """Attributes of every graph node."""
    rack_of = {node: number for number, rack in enumerate(cluster.network.racks) for node in rack.nodes}
    sites, first = [], 0
    for number, group in enumerate(cluster.node_list):
        cards = group.nic_bandwidth_gbps
        about = {
            "node": number,
            "device": group.device.name,
            "rack": rack_of.get(number),
            "intra_bandwidth": group.intra_bandwidth_gbps * GIGABIT,
            "intra_latency": group.intra_latency_us * MICROSECOND,
            "nic_bandwidth": None if cards is None else cards * GIGABIT,
        }
        devices = list(range(first, first + group.gpus_per_node))
        shares = [[device] for device in devices] if cluster.measured_by_device else [devices]
        sites += [{**about, "devices": share} for share in shares]
        first += group.gpus_per_node
    return sites


def _bandwidth(cluster: "ClusterSpec", one: dict[str, Any], other: dict[str, Any]) -> float:
    """Bytes per second from one site to another: measured, inside a node, by rack, or the network's."""
    from taut.data.cluster import UNIT_BYTES

    matrix = cluster.bandwidth_matrix
    if matrix is not None and len(matrix.rows) == cluster.num_devices:
        return float(matrix.rows[one["devices"][0]][other["devices"][0]] * UNIT_BYTES[matrix.unit])
    if one["node"] == other["node"]:
        return float(one["intra_bandwidth"])
    if matrix is not None:
        return float(matrix.rows[one["node"]][other["node"]] * UNIT_BYTES[matrix.unit])
    return _level(cluster, "bandwidth_gbps", one, other) * GIGABIT


def _latency(cluster: "ClusterSpec", one: dict[str, Any], other: dict[str, Any]) -> float:
    """Seconds of a message from one site to another, in the same order."""
    matrix = cluster.latency_matrix
    if matrix is not None and len(matrix.rows_us) == cluster.num_devices:
        return float(matrix.rows_us[one["devices"][0]][other["devices"][0]] * MICROSECOND)
    if one["node"] == other["node"]:
        return float(one["intra_latency"])
    if matrix is not None:
        return float(matrix.rows_us[one["node"]][other["node"]] * MICROSECOND)
    return _level(cluster, "latency_us", one, other) * MICROSECOND


def _level(cluster: "ClusterSpec", field: str, one: dict[str, Any], other: dict[str, Any]) -> float:
    """The rack's own figure where both nodes are in it and it states one, else the network's."""
    figure = getattr(cluster.network, field)
    if one["rack"] is not None and one["rack"] == other["rack"]:
        own = getattr(cluster.network.racks[one["rack"]], field)
        figure = figure if own is None else own
    return float(figure)
