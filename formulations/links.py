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

(3) the slowest link of any k devices is bounded by cores (5). For whole nodes it holds too, two of which are as slow as
    the slowest link of their devices.

Unless the bandwidth was measured device by device, the devices of a node are interchangeable, and everything that
depends on a pair of devices depends on their nodes alone. A cluster that is described by levels has few distinct links,
whatever its size. Its sites lie in blocks such that a figure of two different sites depends on their blocks alone:

(4) :math:`figure(a, b) = own(block(a))` for a = b, and :math:`apart(block(a), block(b))` otherwise.

Nodes of one kind in one rack make a block; where links were measured every site is a block, and ``apart`` is the
matrix. So 12,500 nodes in racks of 32 take 391 x 391 figures, not 156 million.

(5) k members of which any two are linked no slower than :math:`\tau` lie in the (k - 1)-core of the links no slower:
    the least :math:`\tau` whose core has k members bounds the slowest link of any k from below (a bottleneck clique
    bound). The members of a block have the same links, so a core has all of them or none.

Source: Seidman (1983), Network structure and minimum degree: the cores of (5).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from taut.data.arrays import Flags, Floats, Ints
from taut.data.cluster import UNIT_BYTES, ClusterSpec
from taut.data.units import GIGABIT, MICROSECOND


@dataclass(frozen=True, eq=False)
class Blocks:
    """A partition of sites: ``of`` (sites,) is the block of every site, numbered from zero on."""

    of: Ints

    @cached_property
    def size(self) -> Ints:
        """Sites of every block, (B,)."""
        return np.bincount(self.of)

    @cached_property
    def first(self) -> Ints:
        """First site of every block, (B,)."""
        return np.unique(self.of, return_index=True)[1]

    @cached_property
    def are_sites(self) -> bool:
        """Whether every site is the block of its number."""
        return len(self.size) == len(self.of) and bool((self.of == np.arange(len(self.of))).all())

    @cached_property
    def pairs(self) -> Flags:
        """Whether two blocks, or one, hold two different sites, (B, B)."""
        return ~np.diag(self.size == 1)


class PairTable(NDArrayOperatorsMixin):
    """
    A figure for every pair of sites, (4). Arithmetic is elementwise, and ``table[a, b]`` reads pairs.

    ``apart`` (B, B) has figures of two different sites by their blocks, ``own`` (B,) those of a site with itself, which
    take the place of ``apart`` for a block of one site.
    """

    def __init__(self, blocks: Blocks, apart: Any, own: Any) -> None:
        self.blocks, self.own = blocks, own
        self.apart = apart.copy()
        single = np.flatnonzero(blocks.size == 1)
        self.apart[single, single] = own[single]

    @classmethod
    def of_matrix(cls, matrix: Floats) -> "PairTable":
        """The table of a matrix between sites, with a block for every site."""
        return cls(Blocks(np.arange(len(matrix))), matrix, np.diag(matrix).copy())

    @property
    def T(self) -> "PairTable":
        """The figures of the opposite direction."""
        return PairTable(self.blocks, self.apart.T, self.own)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function figure by figure; other operands are numbers, or tables of the same blocks."""
        if method != "__call__" or options or any(np.ndim(each) for each in inputs if not isinstance(each, PairTable)):
            return NotImplemented
        apart, own = (
            function(*(getattr(each, part) if isinstance(each, PairTable) else each for each in inputs))
            for part in ("apart", "own")
        )
        return PairTable(self.blocks, apart, own)

    def __getitem__(self, pair: tuple[Any, ...]) -> Any:
        """Figures of pairs of sites (a, b), arrays that broadcast against each other."""
        a, b = pair
        if self.blocks.are_sites:
            return self.apart[a, b]
        found = self.apart[self.blocks.of[a], self.blocks.of[b]]
        return np.where(np.equal(a, b), self.own[self.blocks.of[a]], found)[()]

    def by_site(self) -> Any:
        """Figure of every site with itself, (sites,)."""
        return self.own[self.blocks.of]

    def present(self) -> Any:
        """Figures of two different sites, each at least once, (n,)."""
        return self.apart[self.blocks.pairs]

    def dense(self) -> Any:
        """The matrix between sites, (sites, sites): for a few thousand sites at most."""
        sites = np.arange(len(self.blocks.of))
        return self[sites[:, None], sites[None, :]]


def slowest_pair(figures: Floats, k: int, copies: Ints | None = None) -> float:
    """Least that the slowest pair of any k members can be, of figures by block (n, n), members of each (n,), (5)."""
    figures = np.maximum(figures, figures.T)
    copies = np.ones(len(figures), np.int64) if copies is None else copies
    figures[np.diag(copies == 1)] = np.inf
    return least_core(figures, np.unique(figures[np.isfinite(figures)]), k, copies)


def least_core(figures: Floats, steps: Floats, k: int, copies: Ints) -> float:
    """The least of ``steps`` at which pairs no slower, of (n, n) by block, have a (k - 1)-core of k, (5), or 0."""
    if not len(steps):
        return 0.0
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_core(figures <= steps[middle], k, copies) else (middle + 1, high)
    return float(steps[low])


def _has_core(linked: Flags, k: int, copies: Ints) -> bool:
    """Whether some members, k at least, are each linked with k - 1 others of them; blocks stay or go as a whole."""
    alive, weight = np.ones(len(linked), dtype=bool), copies.astype(np.float32)
    itself = np.diag(linked)
    while True:
        # Numbers of members are far below 2^24, up to which float32 counts exactly.
        # Sums of ones cannot be invalid; BLAS at times sets the flag in lanes of a vector that it does not use.
        with np.errstate(invalid="ignore"):
            reached = linked[:, alive] @ weight[alive]
        enough = alive & (reached - itself >= k - 1)
        if copies[enough].sum() < k or (enough == alive).all():
            return bool(copies[enough].sum() >= k)
        alive = enough


@dataclass(frozen=True)
class Links:
    """
    Bandwidth and latency between S sites: nodes whose devices are interchangeable, and devices otherwise.

    ``rate`` are bytes per second from one site to another and ``latency`` seconds, of which a site's own describe two
    devices of it; ``cards`` (nodes,) bytes per second of a node's network cards, infinite if not stated.
    """

    node_of: Ints
    site_of: Ints
    node_of_site: Ints
    rate: PairTable
    latency: PairTable
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
    def same_node(self) -> PairTable:
        """Whether two sites lie in one node."""
        nodes, blocks = self.node_of_site[self.rate.blocks.first], self.rate.blocks
        # Two sites of one block are two nodes.
        apart = np.equal.outer(nodes, nodes) & ~np.diag(blocks.size > 1)
        return PairTable(blocks, apart, np.ones(len(nodes), dtype=bool))

    @cached_property
    def data_rate(self) -> PairTable:
        """Bytes per second in data-parallel rings between sites, eq. (1)."""
        return self._shared(self.gpus_per_node)

    @cached_property
    def ring_inverse(self) -> PairTable:
        """Seconds per byte of the slower direction in data-parallel rings between sites."""
        return slower_direction(1.0 / self.data_rate)

    def pipeline_rate(self, tp: int | Ints) -> PairTable:
        """Bytes per second of one tensor rank's pipeline transfers between sites, eq. (2); tp may differ by node."""
        return self._shared(np.minimum(tp, self.gpus_per_node))

    def _shared(self, senders: Ints) -> PairTable:
        rate = self.rate
        share = (self.cards / senders)[self.node_of_site[rate.blocks.first]]
        capped = np.minimum(rate.apart, np.minimum(share[:, None], share[None, :]))
        return PairTable(rate.blocks, np.where(self.same_node.apart, rate.apart, capped), rate.own)

    def best_groups(self, tp: int) -> tuple[Floats, Floats]:
        """Seconds per byte and of latency (nodes,) that no tensor group of tp devices in a node beats, (3)."""
        if self.by_node:
            return 1.0 / self.rate.by_site(), self.latency.by_site()
        if tp not in self._groups:
            nodes = [np.flatnonzero(self.node_of_site == node) for node in range(self.num_nodes)]
            inverse, latency = (
                np.array([slowest_pair(figures[np.ix_(node, node)], tp) for node in nodes])
                for figures in ((1.0 / self.rate).dense(), self.latency.dense())
            )
            self._groups[tp] = inverse, latency
        return self._groups[tp]

    def best_spanning_group(self, tp: int) -> tuple[float, float]:
        """Seconds per byte and of latency that no tensor group of tp devices on whole nodes beats, (3)."""
        if tp not in self._groups:
            count = tp // int(self.gpus_per_node[0])
            found = [self._slowest_nodes(figures, count) for figures in (1.0 / self.rate, self.latency)]
            self._groups[tp] = np.array(found[:1]), np.array(found[1:])
        inverse, latency = self._groups[tp]
        return float(inverse[0]), float(latency[0])

    def best_nodes(self, count: int) -> tuple[float, float]:
        """Seconds per byte and of latency between nodes that no ring with devices on so many nodes beats, (3)."""
        inverse, latency = (self._apart(figures, count) for figures in (1.0 / self.rate, self.latency))
        return inverse, latency

    def _apart(self, figures: PairTable, count: int) -> float:
        """The least that the slowest of links between so many nodes can be, a pair of nodes as its fastest devices."""
        if self.by_node:
            return slowest_pair(figures.apart, count, figures.blocks.size)
        least = np.full((self.num_nodes, self.num_nodes), np.inf)
        np.minimum.at(least, (self.node_of_site[:, None], self.node_of_site[None, :]), figures.dense())
        return slowest_pair(least, count, np.ones(self.num_nodes, np.int64))

    def _slowest_nodes(self, figures: PairTable, count: int) -> float:
        """The least that the slowest pair of devices of so many whole nodes can be, (3)."""
        if self.by_node:
            largest, copies, own = figures.apart, figures.blocks.size, figures.own
            several = self.gpus_per_node[figures.blocks.first] > 1
        else:
            largest = np.zeros((self.num_nodes, self.num_nodes))
            np.maximum.at(largest, (self.node_of_site[:, None], self.node_of_site[None, :]), figures.dense())
            copies, own, several = np.ones(self.num_nodes, np.int64), np.diag(largest), self.gpus_per_node > 1
        inside = np.where(several, own, 0.0)
        return slowest_pair(np.maximum(largest, np.maximum(inside[:, None], inside[None, :])), count, copies)

    def hops(self, before: Ints, after: Ints, message: Floats, width: int) -> tuple[Floats, Floats]:
        """Seconds from sites to others and back, of bytes that each rank of so many a block sends, (2)."""
        inverse, latency = 1.0 / self.pipeline_rate(width), self.latency
        forth = latency[before, after] + message * inverse[before, after]
        return forth, latency[after, before] + message * inverse[after, before]

    def hop_seconds(self, tp: int, message: float, *, both_ways: bool) -> PairTable:
        """Seconds of a pipeline hop of so many bytes a tensor rank between sites, there alone or ``both_ways``."""
        seconds: PairTable = self.latency + message / self.pipeline_rate(tp)
        return seconds + seconds.T if both_ways else seconds


def slower_direction(figures: PairTable) -> PairTable:
    """The larger figure of the two directions between sites."""
    return PairTable(figures.blocks, np.maximum(figures.apart, figures.apart.T), figures.own)


def links(cluster: ClusterSpec) -> Links:
    """The links of a cluster in SI units, from its levels or its measured matrix."""
    nodes = cluster.node_list
    gpus = np.array([node.gpus_per_node for node in nodes], dtype=np.int64)
    cards = np.array([(node.nic_bandwidth_gbps or np.inf) * GIGABIT for node in nodes])
    node_of = np.repeat(np.arange(len(nodes)), gpus)
    site_of = np.arange(cluster.num_devices) if cluster.measured_by_device else node_of
    node_of_site = node_of if cluster.measured_by_device else np.arange(len(nodes))
    rate, latency = _tables(cluster, node_of_site)
    return Links(node_of, site_of, node_of_site, rate, latency, cards, gpus)


def _tables(cluster: ClusterSpec, node_of_site: Ints) -> tuple[PairTable, PairTable]:
    """Rates and latencies between sites, by blocks where neither was measured."""
    blocks = _blocks(cluster)
    inside = [node.intra_bandwidth_gbps * GIGABIT for node in cluster.node_list]
    waits = [node.intra_latency_us * MICROSECOND for node in cluster.node_list]
    rate = _levels(cluster, blocks, "bandwidth_gbps", GIGABIT, np.array(inside))
    latency = _levels(cluster, blocks, "latency_us", MICROSECOND, np.array(waits))
    rates, latencies = cluster.bandwidth_matrix, cluster.latency_matrix
    if rates is None and latencies is None:
        return rate, latency
    figures = [rate.dense(), latency.dense()]
    if rates is not None:
        figures[0] = _measured(np.array(rates.rows) * UNIT_BYTES[rates.unit], np.array(inside))
    if latencies is not None:
        figures[1] = _measured(np.array(latencies.rows_us) * MICROSECOND, np.array(waits))
    matrices = [_between_sites(matrix, node_of_site) for matrix in figures]
    if cluster.measured_by_device:
        np.fill_diagonal(matrices[0], np.inf)
    return PairTable.of_matrix(matrices[0]), PairTable.of_matrix(matrices[1])


def _between_sites(matrix: Floats, node_of_site: Ints) -> Floats:
    """A matrix between sites; one between nodes is repeated for their devices."""
    return matrix if len(matrix) == len(node_of_site) else matrix[np.ix_(node_of_site, node_of_site)]


def _measured(matrix: Floats, inside: Floats) -> Floats:
    """A measured matrix; one between nodes keeps each node's own figure inside it."""
    np.fill_diagonal(matrix, inside if len(matrix) == len(inside) else 0.0)
    return matrix


def _racks(cluster: ClusterSpec) -> Ints:
    """Rack of every node; -1 where none is stated, or one without figures of its own."""
    rack_of = np.full(cluster.num_nodes, -1)
    for number, rack in enumerate(cluster.network.racks):
        if rack.bandwidth_gbps is not None or rack.latency_us is not None:
            rack_of[rack.nodes] = number
    return rack_of


def _blocks(cluster: ClusterSpec) -> Blocks:
    """Nodes of one kind in one rack, blocks in the order of their first nodes."""
    group = np.repeat(np.arange(len(cluster.nodes)), [nodes.count for nodes in cluster.nodes])
    keys = np.stack([_racks(cluster), group], axis=1)
    _, first, block = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return Blocks(np.argsort(np.argsort(first))[block.ravel()])


def _levels(cluster: ClusterSpec, blocks: Blocks, field: str, unit: float, inside: Floats) -> PairTable:
    """Table between nodes from the network's figure, the racks' own figures, and the figure inside nodes."""
    between, racks = getattr(cluster.network, field), _racks(cluster)[blocks.first]
    apart = np.full((len(racks), len(racks)), np.nan if between is None else between * unit)
    stated = [getattr(rack, field) for rack in cluster.network.racks]
    own = np.array([np.nan if figure is None else figure * unit for figure in [*stated, None]])[racks]
    apart = np.where(np.equal.outer(racks, racks) & ~np.isnan(own), own, apart)
    return PairTable(blocks, apart, inside[blocks.first])
