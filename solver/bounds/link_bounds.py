r"""
The best that any placement could get from the links: least seconds of rings and hops, by cliques and trees.

With nodes n and the inverse rates between them,

(1) The k nodes that a ring touches form a clique of links no slower than its slowest link. The :math:`(k-1)`-core of
    these links has at least k nodes. The least inverse rate with such a core bounds the ring.
(2) To join the nodes into few pieces takes at least the lightest edges of a minimum spanning tree.
(3) A hop takes at least the least hop of its kind: inside a node, or between nodes.
(4) Suppose that devices were measured one by one, and that a ring has :math:`c_n` devices of every node n. The ring is
    no faster than the :math:`(c_n - 1)`-th best link of a device inside its node, and no faster than the device's
    :math:`c_n`-th best link towards another node n.
(5) Some node of k holds at most :math:`\lfloor dp / k \rfloor` of dp replicas, and gives their ring as many shares of
    its cards.
(6) Two numbers of nodes may have the same core, and the same replicas on the fullest and on the leanest node. The
    larger number then takes no less for a ring, so the least number stands for all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.links import Links, PairTable, least_core
from taut.formulations.rings import RingRates
from taut.solver.bounds.racks import fast_clusters, least_walks, tree_edges

Value = TypeVar("Value")
NOTHING = None, None, None


class Walks(NamedTuple):
    """Seconds that hops add if a pipeline stops at 0, 1, ... nodes, (nodes + 1,): with their way back, and without."""

    whole: Floats
    without_back: Floats


@dataclass
class BestLinks:
    """The best links that any placement could give to a group, each found once; infinite on nodes of one device."""

    links: Links
    rings: RingRates
    _cores: dict[int, float] = field(default_factory=dict)
    _telling: dict[tuple[int, range], list[int]] = field(default_factory=dict)
    _parts: dict[bytes, "BestLinks"] = field(default_factory=dict)
    _hops: dict[tuple[int, float, bool], tuple[float, float]] = field(default_factory=dict)
    _before: dict[tuple[int, float, float, float, bool], tuple[float, float]] = field(default_factory=dict)
    _walks: dict[tuple[int, float, float, float, bool, bool], Walks] = field(default_factory=dict)
    _trees: dict[tuple[int, float, bool], Floats] = field(default_factory=dict)
    _latest: tuple[object, object, Any] = NOTHING

    def __post_init__(self) -> None:
        links = self.links
        self.inverse = self.rings.inverse
        self.card = float(self.rings.card.min())
        self.copies = links.rate.blocks.size if links.by_node else np.ones(links.num_nodes, np.int64)
        self.between_nodes = self._by_node(self.inverse)
        self.steps = np.unique(self.between_nodes[np.isfinite(self.between_nodes)])
        self.inside_inverse = self.least_inside(self.inverse)
        self.num_nodes = links.num_nodes

    def of_latest(self, problem: object, candidate: object, make: Callable[[], Value]) -> Value:
        """A figure of the candidate that was asked for last, as several terms ask for that of one."""
        latest = self._latest
        if latest[0] is not problem or latest[1] is not candidate:
            latest = self._latest = problem, candidate, make()
        return cast("Value", latest[2])

    def of_nodes(self, kept: Flags) -> "BestLinks":
        """The best links of rings that stay on ``nodes``, flags (N,); hops may still use all nodes."""
        key = kept.tobytes()
        if key not in self._parts:
            self._parts[key] = self._restricted(kept)
        return self._parts[key]

    def _restricted(self, kept: Flags) -> "BestLinks":
        links, blocks, found = (
            self.links,
            self.inverse.blocks,
            replace(self, _cores={}, _telling={}, _parts={}, _latest=NOTHING),
        )
        nodes = links.node_of_site[blocks.first]
        among = kept[nodes] if links.by_node else kept
        found.card, found.num_nodes = float(self.rings.card[kept].min()), int(kept.sum())
        found.copies, found.between_nodes = self.copies[among], self.between_nodes[np.ix_(among, among)]
        found.steps = np.unique(found.between_nodes[np.isfinite(found.between_nodes)])
        apart = np.where(kept[nodes][:, None], self.inverse.apart, np.inf)
        own = np.where(kept[nodes], self.inverse.own, np.inf)
        found.inside_inverse = self.least_inside(PairTable(blocks, apart, own))
        return found

    def least_inside(self, figures: PairTable) -> float:
        """Least figure of two devices of a node, infinite where nodes have one."""
        links = self.links
        if links.by_node:
            return float(figures.own[links.gpus_per_node[figures.blocks.first] > 1].min(initial=np.inf))
        return float(figures.apart[figures.blocks.pairs & links.same_node.apart].min(initial=np.inf))

    def least_apart(self, figures: PairTable) -> float:
        """Least figure of two devices of two nodes, infinite for one node."""
        return float(figures.apart[self._apart].min(initial=np.inf))

    def least_across(self, figures: PairTable, some: Flags) -> float:
        """Least figure of a device on one of some nodes (N,) and a device on another node, in either direction."""
        of_block = some[self.links.node_of_site[self.links.rate.blocks.first]]
        across = self._apart & (of_block[:, None] != of_block)
        return float(figures.apart[across].min(initial=np.inf))

    def least_between(self, figures: PairTable, rack: Ints | None) -> float:
        """Least figure of devices of two racks in either direction, ``rack`` by node (N,), or without racks nodes."""
        if rack is None:
            return self.least_apart(figures)
        of_block = rack[self.links.node_of_site[self.links.rate.blocks.first]]
        return float(figures.apart[self._apart & (of_block[:, None] != of_block)].min(initial=np.inf))

    @cached_property
    def racks(self) -> Ints | None:
        """Rack of every node (N,), by the rates of rings; None where there are none."""
        found = fast_clusters(self.between_nodes, self.copies)
        return found if found is None or not self.links.by_node else np.asarray(found[self.links.rate.blocks.of])

    @cached_property
    def _apart(self) -> Flags:
        """Whether two blocks of sites, or one, hold sites of two nodes."""
        return np.asarray(self.links.rate.blocks.pairs & ~self.links.same_node.apart)

    def _by_node(self, sites: PairTable) -> Floats:
        """Least figure between any two nodes, by blocks with ``copies`` nodes; infinite for a node with itself."""
        apart = np.where(self._apart, sites.apart, np.inf)
        if self.links.by_node:
            return apart
        n = self.links.num_nodes
        least = np.full((n, n), np.inf)
        nodes = self.links.node_of_site
        np.minimum.at(least, (nodes[:, None], nodes[None, :]), apart)
        return least

    def core(self, k: int) -> float:
        """Seconds per byte that some link among any k nodes takes at least, (1)."""
        if k < 2:
            return 0.0
        if k not in self._cores:
            self._cores[k] = least_core(self.between_nodes, self.steps, k, self.copies)
        return self._cores[k]

    def between(self, replicas: int, k: int) -> float:
        """Seconds per byte between nodes that a ring of so many replicas on k nodes takes at least, (1) and (5)."""
        return max(self.core(k), self.card / (replicas // k)) if k > 1 else 0.0

    def telling(self, replicas: int, spreads: range) -> list[int]:
        """The numbers of nodes in a range without the numbers that cannot be the best for a ring, (6)."""
        if (replicas, spreads) not in self._telling:
            self._telling[replicas, spreads] = self._numbers(replicas, spreads) if spreads else []
        return self._telling[replicas, spreads]

    def _numbers(self, replicas: int, spreads: range) -> list[int]:
        numbers = np.arange(spreads.start, spreads.stop)
        shares = np.stack([-(-replicas // numbers), replicas // numbers])
        ends = [0, *(np.flatnonzero(np.diff(shares).any(axis=0)) + 1).tolist(), len(numbers)]
        return [k for low, end in pairwise(ends) for k in self._rises(spreads[low], spreads[end - 1])]

    def _rises(self, low: int, high: int) -> list[int]:
        """Numbers of nodes, one of which is the least of those up to ``high`` that have its core; cores only rise."""
        if self.core(low) == self.core(high):
            return [low]
        middle = (low + high) // 2
        return self._rises(low, middle) + self._rises(middle + 1, high)

    def ranked(self, groups: Ints) -> tuple[Floats, Floats]:
        """Least seconds per byte of a ring through each device, with ``groups`` by node, inside and out, (4)."""
        links = self.links
        inside, apart = np.zeros(links.num_sites), np.zeros(links.num_sites)
        linked = np.where(self.inverse.blocks.pairs, self.inverse.apart, np.inf)
        for node, count in enumerate(groups.tolist()):
            own = links.node_of_site == node
            ascending = np.sort(linked[:, own], axis=1)
            inside[own] = ascending[own, count - 2] if count > 1 else 0.0
            apart[~own] = np.maximum(apart[~own], ascending[~own, count - 1])
        return inside, apart

    def hops(self, tp: int, message: float, both_ways: bool) -> tuple[float, float]:
        """Least seconds of a hop inside a node (infinite if there is none) and between nodes, (3)."""
        key = (tp, message, both_ways)
        if key not in self._hops:
            seconds = self.links.hop_seconds(tp, message, both_ways=both_ways)
            self._hops[key] = self.least_inside(seconds), self.least_apart(seconds)
        return self._hops[key]

    def hops_before(
        self, tp: int, message: float, weight: float, coefficient: float, *, single: bool
    ) -> tuple[float, float]:
        """Least seconds of a weighted hop without its way back, inside a node (infinite if there is none), between."""
        key = (tp, message, weight, coefficient, single)
        if key not in self._before:
            seconds = self.seconds_before(*key)
            self._before[key] = self.least_inside(seconds), self.least_apart(seconds)
        return self._before[key]

    def seconds_before(self, tp: int, message: float, weight: float, coefficient: float, single: bool) -> PairTable:
        """Seconds of a weighted hop without its way back, between sites."""
        back = (self.links.latency + message / self.links.pipeline_rate(tp)).T
        if not single:
            back = -min(self.least_inside(-back), self.least_apart(-back))
        found: PairTable = weight * self.links.hop_seconds(tp, message, both_ways=True) - coefficient * back
        return found

    def walks(self, tp: int, message: float, weight: float, coefficient: float, *, single: bool, inside: bool) -> Walks:
        """Least seconds that hops add beyond the least for a pipeline that stops at 0, 1, 2, ... nodes."""
        key = (tp, message, weight, coefficient, single, inside)
        if key not in self._walks:
            least = np.array([self.hops(tp, message, True), self.hops_before(*key[:4], single=single)])
            full, before = least.min(axis=1) if inside else least[:, 1]
            whole = weight * (self._by_node(self.links.hop_seconds(tp, message, both_ways=True)) - full)
            first = np.minimum(whole, self._by_node(self.seconds_before(*key[:5])) - before)
            self._walks[key] = Walks(least_walks(whole, self.copies), least_walks(first, self.copies))
        return self._walks[key]

    def tree(self, tp: int, message: float, both_ways: bool) -> Floats:
        """Edges of a minimum spanning tree over the nodes, hop seconds ascending, (2)."""
        key = (tp, message, both_ways)
        if key not in self._trees:
            seconds = self.links.hop_seconds(tp, message, both_ways=both_ways)
            self._trees[key] = tree_edges(self._by_node(seconds), self.copies)
        return self._trees[key]
