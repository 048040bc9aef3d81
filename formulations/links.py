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

(3) k devices of which any two are linked no slower than :math:`\tau` lie in the (k - 1)-core of the links no slower:
    the least :math:`\tau` whose core has k members bounds the slowest link of any k from below (a bottleneck clique
    bound). For whole nodes it holds too, two of which are as slow as the slowest link of their devices.

Unless the bandwidth was measured device by device, the devices of a node are interchangeable, and everything that
depends on a pair of devices depends on their nodes alone.

Source: Seidman (1983), Network structure and minimum degree: the cores of (3).
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.cluster import UNIT_BYTES, ClusterSpec
from taut.data.units import GIGABIT, MICROSECOND


@dataclass(frozen=True)
class Links:
    """
    Bandwidth and latency between S sites.

    A site is a node where the devices of a node are interchangeable, and a device otherwise. ``node_of`` and
    ``site_of`` (devices,) map devices, ``node_of_site`` (S,) maps sites; ``rate`` (S, S) bytes per second, row sends to
    column, and ``latency`` (S, S) seconds, the diagonal of which describes two devices of one site; ``cards`` (nodes,)
    bytes per second of a node's network cards, infinite if not stated; ``gpus_per_node`` (nodes,) devices.
    """

    node_of: Ints
    site_of: Ints
    node_of_site: Ints
    rate: Floats
    latency: Floats
    cards: Floats
    gpus_per_node: Ints
    _groups: dict[int, tuple[Floats, Floats]] = field(default_factory=dict, repr=False, compare=False)

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
    def same_node(self) -> Flags:
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
        """Bytes per second of one tensor rank's pipeline transfers at a tensor degree, (S, S), eq. (2)."""
        return self._shared(np.minimum(tp, self.gpus_per_node))

    def _shared(self, senders: Ints) -> Floats:
        share = (self.cards / senders)[self.node_of_site]
        capped = np.minimum(self.rate, np.minimum(share[:, None], share[None, :]))
        return np.where(self.same_node, self.rate, capped)

    def best_groups(self, tp: int) -> tuple[Floats, Floats]:
        """
        Bound the slowest link of a tensor group inside each node, (3); exact where devices are interchangeable.

        Parameters
        ----------
        tp
            Devices of the group.

        Returns
        -------
        tuple
            Seconds per byte and seconds of latency that no group in the node beats, (nodes,) each.
        """
        if self.by_node:
            return 1.0 / np.diag(self.rate), np.diag(self.latency)
        if tp not in self._groups:
            nodes = [np.flatnonzero(self.node_of_site == node) for node in range(self.num_nodes)]
            inverse, latency = (
                np.array([_slowest_pair(figures[np.ix_(node, node)], tp) for node in nodes])
                for figures in (1.0 / self.rate, self.latency)
            )
            self._groups[tp] = inverse, latency
        return self._groups[tp]

    def best_spanning_group(self, tp: int) -> tuple[float, float]:
        """
        Bound the slowest link of a tensor group on several whole nodes, (3).

        Parameters
        ----------
        tp
            Devices of the group, a multiple of the node size.

        Returns
        -------
        tuple
            Seconds per byte and seconds of latency that no such group beats.
        """
        if tp not in self._groups:
            count = tp // int(self.gpus_per_node[0])
            found = [_slowest_pair(self._whole_nodes(figures), count) for figures in (1.0 / self.rate, self.latency)]
            self._groups[tp] = np.array(found[:1]), np.array(found[1:])
        inverse, latency = self._groups[tp]
        return float(inverse[0]), float(latency[0])

    def _whole_nodes(self, figures: Floats) -> Floats:
        """The largest figure of two devices in any two nodes together, (nodes, nodes)."""
        largest = np.zeros((self.num_nodes, self.num_nodes))
        np.maximum.at(largest, (self.node_of_site[:, None], self.node_of_site[None, :]), figures)
        inside = np.where(self.gpus_per_node > 1, np.diag(largest), 0.0)
        return np.maximum(largest, np.maximum(inside[:, None], inside[None, :]))

    def hop_seconds(self, tp: int, message: float, *, both_ways: bool) -> Floats:
        """
        Price a pipeline hop.

        Parameters
        ----------
        tp
            Tensor degree.
        message
            Bytes of one tensor rank.
        both_ways
            Whether the hop back, of the gradient, is added.

        Returns
        -------
        array
            Seconds between sites, (S, S).
        """
        seconds = self.latency + message / self.pipeline_rate(tp)
        return seconds + seconds.T if both_ways else seconds


def links(cluster: ClusterSpec) -> Links:
    """
    Build the links of a cluster, from its levels or its measured matrix.

    Parameters
    ----------
    cluster
        Nodes and network.

    Returns
    -------
    Links
        In SI units.
    """
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
    """
    Find the slowest link of tensor groups.

    Parameters
    ----------
    links
        Links of the cluster.
    devices
        Devices of groups, (..., tp).

    Returns
    -------
    tuple
        Seconds per byte and seconds of latency, (...) each.
    """
    sites = links.site_of[devices]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(devices.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.rate[pairs], 0.0).max(axis=(-1, -2))
    return inverse, np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))


def _slowest_pair(figures: Floats, k: int) -> float:
    """The least that the slowest pair of any k members can be, both directions counted, (3)."""
    figures = np.maximum(figures, figures.T)
    np.fill_diagonal(figures, np.inf)
    return least_core(figures, np.unique(figures[np.isfinite(figures)]), k)


def least_core(figures: Floats, steps: Floats, k: int) -> float:
    """
    Find the least figure whose core has k members, by bisection, (3).

    Parameters
    ----------
    figures
        Figures of pairs, (n, n), symmetric; infinite on the diagonal.
    steps
        Distinct figures, ascending.
    k
        Members.

    Returns
    -------
    float
        The least of ``steps`` at which the (k - 1)-core of the pairs no slower has k members; zero without steps.
    """
    if not len(steps):
        return 0.0
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_core(figures <= steps[middle], k) else (middle + 1, high)
    return float(steps[low])


def _has_core(linked: Flags, k: int) -> bool:
    """Whether some members, k at least, are each linked with k - 1 others of them."""
    alive = np.ones(len(linked), dtype=bool)
    while True:
        enough = alive & (linked[:, alive].sum(axis=1) >= k - 1)
        if enough.sum() < k or (enough == alive).all():
            return bool(enough.sum() >= k)
        alive = enough
