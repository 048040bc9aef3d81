r"""
Links between devices, from the levels or measured matrices of a cluster.

(1) Two devices of a node exchange at the node's own rate and latency, others at the network's, or their rack's where it
    states its own; a matrix by node replaces what lies between nodes, one by device everything.
(2) A node's cards are shared by the devices that send at once: between nodes, B = min(B, cards / k) at both ends with
    k = min(tp, devices) in pipeline transfers and, in the papers' models, all its devices in data-parallel rings.
(3) Without a matrix, nodes of one kind in one rack have the same links to all others and to each other, so two of each
    have the slowest link that any of them have.
"""

from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.cluster import UNIT_BYTES, ClusterSpec

GIGABIT, MICROSECOND = 1e9 / 8, 1e-6


class Network:
    """Rates in bytes per second and latencies in seconds between any devices of a cluster."""

    def __init__(self, cluster: ClusterSpec) -> None:
        nodes = cluster.node_list
        self.size = np.array([node.gpus_per_node for node in nodes])
        self.node_of = np.repeat(np.arange(len(nodes)), self.size)
        self.cards = np.array([(node.nic_bandwidth_gbps or np.inf) * GIGABIT for node in nodes])
        rate = latency = None
        if cluster.bandwidth_matrix is not None:
            rate = np.array(cluster.bandwidth_matrix.rows) * UNIT_BYTES[cluster.bandwidth_matrix.unit]
        if cluster.latency_matrix is not None:
            latency = np.array(cluster.latency_matrix.rows_us) * MICROSECOND
        own = np.array([(node.intra_bandwidth_gbps * GIGABIT, node.intra_latency_us * MICROSECOND) for node in nodes])
        self._rate = _Levels(cluster, "bandwidth_gbps", GIGABIT, own[:, 0]) if rate is None else rate
        self._latency = _Levels(cluster, "latency_us", MICROSECOND, own[:, 1]) if latency is None else latency
        for matrix, inside, none in zip((self._rate, self._latency), own.T, (np.inf, 0.0), strict=True):
            if not isinstance(matrix, _Levels):
                np.fill_diagonal(matrix, inside if len(matrix) == len(nodes) else none)
        group = np.repeat(np.arange(len(cluster.nodes)), [each.count for each in cluster.nodes])
        #: Seconds per byte of rings that were asked for, by their form and members.
        self.kept = dict[tuple[bool, bytes], float]()
        if isinstance(self._rate, _Levels) and isinstance(self._latency, _Levels):
            keys = np.stack([self._rate.rack, self._latency.rack, group], axis=1)
            self._kind = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        else:
            self._kind = np.arange(len(nodes))

    def telling(self, nodes: Ints) -> Ints:
        """Some of the nodes, which are told once each, that have the slowest link between any two of them, (3)."""
        kinds = self._kind[nodes]
        order = np.argsort(kinds, kind="stable")
        third = np.zeros(len(nodes), dtype=bool)
        third[order[2:]] = kinds[order[2:]] == kinds[order[:-2]]
        return nodes[~third]

    @cached_property
    def port(self) -> Floats:
        """Seconds per byte of the fastest link of every node to another, the slower way, (nodes,); 0 without others."""
        if self.by_node:
            told = self.telling(np.arange(len(self.size)))
            devices = np.concatenate([[0], np.cumsum(self.size)])[told]
        else:
            told, devices = self.node_of, np.arange(len(self.node_of))
        rate = self.rate(devices[:, None], devices[None, :])
        rate = np.where(told[:, None] == told[None, :], 0.0, np.minimum(rate, rate.T)).max(axis=1)
        fastest = np.zeros(self._kind.max() + 1)
        np.maximum.at(fastest, self._kind[told], rate)
        with np.errstate(divide="ignore"):
            slowness = 1 / fastest[self._kind]
        return np.where(np.isfinite(slowness), slowness, 0.0)

    @property
    def by_node(self) -> bool:
        """Whether the devices of a node are interchangeable."""
        return len(self._rate) == len(self._latency) == len(self.size)

    def latency(self, a: Ints, b: Ints) -> Floats:
        """Seconds from devices a to b."""
        return self._of(self._latency, a, b)

    def rate(self, a: Ints, b: Ints, senders: int | None = None) -> Floats:
        """Bytes per second from devices a to b; with ``senders`` at once in a node the cards are shared, (2)."""
        rate = self._of(self._rate, a, b)
        if senders is None:
            return rate
        share = self.cards / np.minimum(senders, self.size)
        capped = np.minimum(rate, np.minimum(share[self.node_of[a]], share[self.node_of[b]]))
        return np.where(self.node_of[a] == self.node_of[b], rate, capped)

    def slowest(self, members: Ints, senders: int | None = None) -> tuple[Floats, Floats]:
        """Least rate and largest latency between any two of the members (..., k), either way."""
        nodes = self.node_of[members]
        if self.by_node and members.shape[-1] > 1 and (nodes == nodes[..., :1]).all():
            members = members[..., :2]
        a, b = np.nonzero(~np.eye(members.shape[-1], dtype=bool))
        i, j = members[..., a], members[..., b]
        return self.rate(i, j, senders).min(axis=-1), self.latency(i, j).max(axis=-1)

    def _of(self, figures: "Floats | _Levels", a: Ints, b: Ints) -> Floats:
        if isinstance(figures, _Levels):
            return figures.of(self.node_of[a], self.node_of[b])
        if len(figures) == len(self.size):
            return np.asarray(figures[self.node_of[a], self.node_of[b]])
        return np.asarray(figures[a, b])


class _Levels:
    """Figures between nodes by the network and its racks, and inside nodes, (1)."""

    def __init__(self, cluster: ClusterSpec, figure: str, unit: float, inside: Floats) -> None:
        between = getattr(cluster.network, figure)
        self._between = np.nan if between is None else between * unit
        self._inside = inside
        #: The rack of every node that states a figure of its own; -1 for none.
        self.rack = np.full(cluster.num_nodes, -1)
        self._own = np.full(len(cluster.network.racks) + 1, np.nan)
        for number, rack in enumerate(cluster.network.racks):
            if getattr(rack, figure) is not None:
                self.rack[rack.nodes] = number
                self._own[number] = getattr(rack, figure) * unit

    def __len__(self) -> int:
        return len(self._inside)

    def of(self, a: Ints, b: Ints) -> Floats:
        """Figures from nodes a to b."""
        apart = self._between
        if (self.rack >= 0).any():
            one, other = self.rack[a], self.rack[b]
            apart = np.where((one == other) & (one >= 0), self._own[one], apart)
        return np.where(a == b, self._inside[a], apart)
