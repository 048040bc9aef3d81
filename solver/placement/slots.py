r"""
Slots of nodes: the pure placement problem of a candidate's pipelines, as bounds and annealing see it.

Sets: N nodes; node v has :math:`c_v` slots, as many tensor groups as it holds, or one where a group fills several
nodes. A path takes pp slots; all paths together take every slot once.
Data: hop seconds :math:`W_{ab}` between nodes, :math:`W_{vv}` inside one, and inverse rates likewise; symmetric.
Where links were measured device by device, each entry is the best between any two devices.

(1) One replica is one path, or one path for each node of its groups; the trip of a replica is its longest path.
(2) With k nodes touched by dp first slots, some node holds at least :math:`g = \lceil dp / k \rceil` of them, and with
    b the slowest inverse rate between touched nodes the data-parallel ring takes by byte at least

    .. math:: \rho = 4 \frac{g - 1}{g} \min_v \beta_v + 2 \frac{k - 1}{k} b.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.links import Links
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Numbers of touched nodes from ``fewest`` to ``most``, with links from ``low`` to below ``high``."""

    fewest: int
    most: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Slots:
    """
    Nodes with slots, to be divided among paths.

    ``hops`` and ``inverse`` are (N, N) with the figures inside a node on the diagonal, ``capacity`` (N,) slots,
    ``pp`` slots of a path, ``replicas`` = dp first slots that exchange gradients.
    """

    hops: Floats
    inverse: Floats
    capacity: Ints
    pp: int
    replicas: int

    @property
    def slots(self) -> int:
        """Slots of all nodes."""
        return int(self.capacity.sum())

    @property
    def paths(self) -> int:
        """Paths that take all slots."""
        return self.slots // self.pp

    @property
    def fewest(self) -> int:
        """Nodes that the replicas' first slots touch at least."""
        largest = np.sort(self.capacity)[::-1].cumsum()
        return int(np.searchsorted(largest, self.replicas)) + 1

    @property
    def most(self) -> int:
        """Nodes that the replicas' first slots touch at most."""
        return min(self.replicas, len(self.capacity))

    def touched(self, fewest: int, most: int) -> tuple[int, int]:
        """Nodes that all paths' first slots touch, where those of one rank's replicas touch so many."""
        groups = self.paths // self.replicas
        return fewest * groups, most * groups

    def ring(self, span: Span, slowest: float | None = None) -> float:
        """Seconds per byte of the ring at least, with the slowest link given or the fastest of the span, (2)."""
        fewest, g = span.fewest, -(-self.replicas // span.most)
        between = ring_factor(fewest) * (span.low if slowest is None else slowest)
        inside = np.diag(self.inverse)[self.capacity > 1].min(initial=np.inf)
        return (inside_factor(g) * float(inside) if g > 1 else 0.0) + between

    def least_hop(self) -> float:
        """Seconds of the shortest hop that any path can make."""
        apart = ~np.eye(len(self.hops), dtype=bool)
        return float(
            min(self.hops[apart].min(initial=np.inf), np.diag(self.hops)[self.capacity > 1].min(initial=np.inf))
        )


def slots(problem: PlanningProblem, candidate: Candidate) -> Slots:
    """The slots of a candidate, hops at its smallest message."""
    links = problem.links
    message = float(problem.tables(candidate).message[1:-1].min())
    return Slots(
        hops=_by_node(links, links.hop_seconds(candidate.tp, message, both_ways=True)),
        inverse=_by_node(links, links.ring_inverse),
        capacity=np.maximum(links.gpus_per_node // candidate.tp, 1),
        pp=candidate.pp,
        replicas=candidate.dp,
    )


def _by_node(links: Links, sites: Floats) -> Floats:
    """Least entry between two sites of any two nodes; of two unlike devices on the diagonal."""
    if links.by_node:
        return sites
    least = np.full((links.num_nodes, links.num_nodes), np.inf)
    nodes, apart = links.node_of_site, ~np.eye(links.num_sites, dtype=bool)
    one, other = np.nonzero(apart)
    np.minimum.at(least, (nodes[one], nodes[other]), sites[one, other])
    return least
