r"""
Slot graph: the placement of a candidate's pipelines as a cover of nodes with slots by paths.

Sets: N nodes; node v has :math:`c_v` slots, as many tensor groups as it holds, or one where a group fills several
nodes. A path takes pp slots; all paths together take every slot once. One replica is one path, or one path for each
node of its groups.
Data: hop seconds :math:`W_{ab}` between nodes, :math:`W_{vv}` inside one; inverse rates :math:`\beta_{ab}` (s/byte) of
the data-parallel ring likewise; both symmetric. Where links were measured device by device, each entry is the least
between any two devices of the nodes, so that bounds remain valid.
Variables: the paths. T is seconds of the longest path, the first slots of all paths are stage 0.

(1) Minimise h T + G ring over the first slots, h the weight of a trip and G bytes of gradients: a min-max path cover.
(2) With k nodes touched by dp first slots, some node holds at least :math:`g = \lceil dp / k \rceil` of them, and with
    b the slowest inverse rate between touched nodes the ring takes at least, in seconds per byte,

    .. math:: \rho = 4 \frac{g - 1}{g} \min_v \beta_{vv} + 2 \frac{k - 1}{k} \max ( b, \gamma(k) ).

(3) A node with :math:`g_v` of them gives the ring as many shares :math:`1 / \gamma_v` of its cards
    (``taut.formulations.rings``). So :math:`\gamma(k)` is the least :math:`\gamma` for which k nodes with
    :math:`g_v = \lceil \gamma_v / \gamma \rceil \le c_v` need at most dp of them; of equal cards
    :math:`\gamma_v / \lfloor dp / k \rfloor`.
(4) Two touched nodes hold at most :math:`\hat g_v = \min(c_v, dp - 1)` each, so the rate between them is raised to
    :math:`\beta_{ab} = \max(\beta_{ab}, \gamma_a / \hat g_a, \gamma_b / \hat g_b)`: with one slot a node that is
    all that cards do.

Two heuristics, which bound nothing, name sets of nodes: clusters of near nodes by average linkage [1]_, and greedy sets
of fast links. Pipelines are short where their nodes lie in one rack or leaf: nodes are ordered by the dendrogram of
hops, in which the two nearest clusters are merged until all nodes are one. The ring of the first stage is fast where
all its links are: sets of fast links grow node by node. The dendrogram's clusters, leaves and racks among them, are
also the sets whose cuts are separated (``taut.solver.placement.path_cover.path_bound``); cuts hold for any set.

References
----------
.. [1] Sokal and Michener (1958), A statistical method for evaluating systematic relationships: average linkage (UPGMA).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.links import Links, PairTable
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate


def linkage_order(hops: Floats) -> Ints:
    """Leaves (N,) of the dendrogram of hops (N, N), in which racks, and racks of racks, stand together."""
    from scipy.cluster.hierarchy import leaves_list

    return np.asarray(leaves_list(_tree(hops)), dtype=np.int64)


def clusters(hops: Floats) -> list[Ints]:
    """The clusters of the dendrogram of hops (N, N) without single nodes and the set of all, nodes ascending."""
    n = len(hops)
    if n < 3:
        return []
    members = [np.array([v]) for v in range(n)]
    for one, other in _tree(hops)[:-1, :2].astype(int):
        members.append(np.sort(np.concatenate([members[one], members[other]])))
    return members[n:]


def _tree(hops: Floats) -> Floats:
    """The dendrogram by average linkage, as scipy writes it."""
    from scipy.cluster.hierarchy import linkage

    return np.asarray(linkage(hops[np.triu_indices(len(hops), 1)], method="average"))


def fast_link_sets(inverse: Floats, count: int) -> Ints:
    """Disjoint sets (sets, count) of nodes with fast links, each grown by its nearest node; the fastest are kept."""
    n = len(inverse)
    taken, slowest = np.eye(n, dtype=bool), inverse.copy()
    for _ in range(count - 1):
        chosen = np.where(taken, np.inf, slowest).argmin(axis=1)
        taken[np.arange(n), chosen] = True
        slowest = np.maximum(slowest, inverse[chosen])
    sets = np.array([np.flatnonzero(nodes) for nodes in np.unique(taken, axis=0)])
    kept: list[Ints] = []
    for nodes in sets[np.argsort([_slowest(inverse, nodes) for nodes in sets], kind="stable")]:
        if not np.isin(nodes, kept).any():
            kept.append(nodes)
    return np.array(kept)


def _slowest(inverse: Floats, nodes: Ints) -> float:
    """Slowest inverse rate between two of some nodes."""
    links = inverse[np.ix_(nodes, nodes)]
    return float(links[~np.eye(len(nodes), dtype=bool)].max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Numbers of touched nodes, and slowest inverse rates in seconds per byte, [``low``, ``high``)."""

    min_touched: int
    max_touched: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotGraph:
    """
    Nodes with slots, to be divided among paths.

    ``hops`` (N, N) seconds and ``inverse`` (N, N) seconds per byte, with the figures inside a node on the diagonal;
    ``capacity`` (N,) slots; ``pp`` slots of a path; ``replicas`` = dp first slots that exchange gradients; ``card``
    (N,) seconds per byte of a ring with one of them on a node, by its cards alone. Where the ``rack`` (N,) of
    every node is given, each of the first ``confined`` stages lies in one
    (``taut.solver.placement.path_cover.racks``).
    """

    hops: Floats
    inverse: Floats
    capacity: Ints
    pp: int
    replicas: int
    card: Floats
    rack: Ints | None = None
    confined: int = 0

    @property
    def num_slots(self) -> int:
        """Slots of all nodes."""
        return int(self.capacity.sum())

    @property
    def num_paths(self) -> int:
        """Paths that take all slots."""
        return self.num_slots // self.pp

    @property
    def min_touched(self) -> int:
        """Nodes that the replicas' first slots touch at least."""
        largest = np.sort(self.capacity)[::-1].cumsum()
        return int(np.searchsorted(largest, self.replicas)) + 1

    @property
    def max_touched(self) -> int:
        """Nodes that the replicas' first slots touch at most."""
        return min(self.replicas, len(self.capacity))

    def touched_by_all(self, fewest: int, most: int) -> tuple[int, int]:
        """Fewest and most nodes in which all paths begin, from those that the replicas of one rank touch."""
        groups = self.num_paths // self.replicas
        return fewest * groups, most * groups

    def ring_bound(self, box: Box, slowest: float | None = None) -> float:
        """Seconds per byte of a ring at least, (2) and (3), in a box or with a ``slowest`` rate of its links."""
        fewest, g = box.min_touched, -(-self.replicas // box.max_touched)
        link = box.low if slowest is None else slowest
        between = ring_factor(fewest) * max(link, float(self._least_cards[fewest - 1]))
        inside = np.diag(self.inverse)[self.capacity > 1].min(initial=np.inf)
        return (inside_factor(g) * float(inside) if g > 1 else 0.0) + between

    @cached_property
    def _least_cards(self) -> Floats:
        """Seconds per byte that cards take at least of a ring on 1, 2, ... nodes, (3), (max_touched,)."""
        if (self.card == self.card[0]).all():
            return np.asarray(self.card[0] / np.maximum(self.replicas // np.arange(1, self.max_touched + 1), 1))
        members = np.arange(1, int(self.capacity.max()) + 1)
        values = np.where(members <= self.capacity[:, None], self.card[:, None] / members, self.card.max())
        least = np.full(self.max_touched, np.inf)
        for value in np.unique(values).tolist():
            least = np.where(self._members(value) <= self.replicas, np.minimum(least, value), least)
        return least

    def _members(self, value: float) -> Floats:
        """Least members of a ring on 1, 2, ... nodes whose cards take at most ``value`` seconds per byte each, (3)."""
        each = np.maximum(np.ceil(self.card / max(value, 1e-300) * (1 - 1e-12)), 1.0)
        each = np.sort(np.where(each <= self.capacity, each, np.inf))
        return np.asarray(each.cumsum()[: self.max_touched])

    def shortest_hop(self) -> float:
        """Seconds of the shortest hop that any path can make."""
        apart = ~np.eye(len(self.hops), dtype=bool)
        return float(
            min(self.hops[apart].min(initial=np.inf), np.diag(self.hops)[self.capacity > 1].min(initial=np.inf))
        )


def slot_graph(problem: PlanningProblem, candidate: Candidate) -> SlotGraph:
    """The slot graph of a candidate, whose smallest message prices the hops."""
    links, card = problem.links, problem.rings.card
    message = float(problem.tables(candidate).message[1:-1].min())
    capacity = np.maximum(links.gpus_per_node // candidate.width, 1)
    most = np.minimum(capacity, max(candidate.pipelines - 1, 1))
    return SlotGraph(
        hops=_by_node(links, links.hop_seconds(candidate.width, message, both_ways=True)),
        inverse=between_cards(_by_node(links, problem.rings.inverse), card / most),
        capacity=capacity,
        pp=candidate.pp,
        replicas=candidate.pipelines,
        card=card,
    )


def between_cards(inverse: Floats, least: Floats) -> Floats:
    """Rates between nodes (N, N) raised to what their cards take at ``least`` (N,), (4), in seconds per byte."""
    raised = np.maximum(inverse, np.maximum(least[:, None], least[None, :]))
    np.fill_diagonal(raised, np.diag(inverse))
    return raised


def _by_node(links: Links, figures: PairTable) -> Floats:
    """Least figure between two sites of any two nodes; of two different devices on the diagonal."""
    sites: Floats = figures.dense()
    if links.by_node:
        return sites
    least = np.full((links.num_nodes, links.num_nodes), np.inf)
    nodes, apart = links.node_of_site, ~np.eye(links.num_sites, dtype=bool)
    one, other = np.nonzero(apart)
    np.minimum.at(least, (nodes[one], nodes[other]), sites[one, other])
    return least
