r"""
Links: what any two devices can exchange, and what is left when a node's network cards are shared.

Sets: devices :math:`i, j`, nodes :math:`n(i)`, :math:`G_n` devices in node n.
Data: bandwidth :math:`B_{ij}` (bytes/s, i to j), latency :math:`\lambda_{ij}` (s), and where stated the sum of a
node's network cards :math:`N_n` (bytes/s). For devices in different nodes, tp the tensor degree,

(1) in data-parallel rings, where every device of a node is busy,
    :math:`B^{DP}_{ij} = \min(B_{ij}, N_{n(i)} / G_{n(i)}, N_{n(j)} / G_{n(j)})`;
(2) in pipeline transfers, where a tensor group sends at once,
    :math:`B^{PP}_{ij} = \min(B_{ij}, N_{n(i)} / \min(tp, G_{n(i)}), N_{n(j)} / \min(tp, G_{n(j)}))`.

Inside a node and without stated cards both equal :math:`B_{ij}`.

Unless the bandwidth was measured device by device, the devices of a node are interchangeable, and everything that
depends on a pair of devices depends on their nodes alone.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut.data.cluster import UNIT_BYTES, ClusterSpec
from taut.data.units import GIGABIT, MICROSECOND

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Links:
    """
    Bandwidth and latency between sites.

    A site is a node where the devices of a node are interchangeable, and a device otherwise; ``site_of`` maps
    devices to sites. The diagonal of ``rate`` and ``latency`` describes two devices of one site.
    """

    node_of: Ints
    site_of: Ints
    node_of_site: Ints
    rate: Floats
    latency: Floats
    cards: Floats
    gpus_per_node: Ints

    @property
    def num_nodes(self) -> int:
        """Nodes in the cluster."""
        return len(self.gpus_per_node)

    @property
    def num_sites(self) -> int:
        """Sites: nodes, or devices."""
        return len(self.node_of_site)

    @property
    def by_node(self) -> bool:
        """Whether the devices of a node are interchangeable."""
        return self.num_sites == self.num_nodes

    @cached_property
    def same_node(self) -> NDArray[np.bool_]:
        """Whether two sites lie in one node, (sites, sites)."""
        return np.equal.outer(self.node_of_site, self.node_of_site)

    @cached_property
    def data_rate(self) -> Floats:
        """Bytes per second in data-parallel rings between sites, eq. (1)."""
        return self._shared(self.gpus_per_node)

    @cached_property
    def ring_inverse(self) -> Floats:
        """Seconds per byte of the slower direction in data-parallel rings between sites."""
        inverse = 1.0 / self.data_rate
        return np.maximum(inverse, inverse.T)

    def pipeline_rate(self, tp: int) -> Floats:
        """Bytes per second of one tensor rank's pipeline transfer between sites, eq. (2)."""
        return self._shared(np.minimum(tp, self.gpus_per_node))

    def _shared(self, senders: Ints) -> Floats:
        share = (self.cards / senders)[self.node_of_site]
        capped = np.minimum(self.rate, np.minimum(share[:, None], share[None, :]))
        return np.where(self.same_node, self.rate, capped)

    def hop_seconds(self, tp: int, message: float, *, both_ways: bool) -> Floats:
        """Seconds of one pipeline hop of ``message`` bytes between sites; there, or there and back."""
        seconds = self.latency + message / self.pipeline_rate(tp)
        return seconds + seconds.T if both_ways else seconds


def links(cluster: ClusterSpec) -> Links:
    """The links of a cluster, from its levels or its measured matrix."""
    nodes = cluster.node_list
    gpus = np.array([node.gpus_per_node for node in nodes], dtype=np.int64)
    cards = np.array([(node.nic_bandwidth_gbps or np.inf) * GIGABIT for node in nodes])
    node_of = np.repeat(np.arange(len(nodes)), gpus)
    site_of = np.arange(cluster.num_devices) if cluster.measured_by_device else node_of
    node_of_site = node_of if cluster.measured_by_device else np.arange(len(nodes))
    rate, latency = (_between_sites(matrix, node_of_site) for matrix in (_rate(cluster), _latency(cluster)))
    if cluster.measured_by_device:
        np.fill_diagonal(rate, np.inf)
    return Links(node_of, site_of, node_of_site, rate, latency, cards, gpus)


def _between_sites(matrix: Floats, node_of_site: Ints) -> Floats:
    """A matrix between sites; one between nodes is repeated for their devices."""
    return matrix if len(matrix) == len(node_of_site) else matrix[np.ix_(node_of_site, node_of_site)]


def _rate(cluster: ClusterSpec) -> Floats:
    inside = np.array([node.intra_bandwidth_gbps * GIGABIT for node in cluster.node_list])
    if cluster.bandwidth_matrix is None:
        return _levels(cluster, "bandwidth_gbps", GIGABIT, inside)
    matrix = cluster.bandwidth_matrix
    return _measured(np.array(matrix.rows) * UNIT_BYTES[matrix.unit], inside)


def _latency(cluster: ClusterSpec) -> Floats:
    inside = np.array([node.intra_latency_us * MICROSECOND for node in cluster.node_list])
    if cluster.latency_matrix is None:
        return _levels(cluster, "latency_us", MICROSECOND, inside)
    return _measured(np.array(cluster.latency_matrix.rows_us) * MICROSECOND, inside)


def _measured(matrix: Floats, inside: Floats) -> Floats:
    """A measured matrix; one between nodes keeps each node's own figure inside it."""
    np.fill_diagonal(matrix, inside if len(matrix) == len(inside) else 0.0)
    return matrix


def _levels(cluster: ClusterSpec, field: str, unit: float, inside: Floats) -> Floats:
    """Matrix between nodes from the network's figure, the racks' own figures, and the figure inside nodes."""
    between = getattr(cluster.network, field)
    matrix = np.full((cluster.num_nodes, cluster.num_nodes), np.nan if between is None else between * unit)
    for rack in cluster.network.racks:
        own = getattr(rack, field)
        if own is not None:
            matrix[np.ix_(rack.nodes, rack.nodes)] = own * unit
    np.fill_diagonal(matrix, inside)
    return matrix


def group_link(links: Links, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte and latency of the slowest link of each tensor group (last axis of ``devices``)."""
    sites = links.site_of[devices]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(devices.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.rate[pairs], 0.0).max(axis=(-1, -2))
    return inverse, np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))
