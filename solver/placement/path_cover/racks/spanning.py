r"""
Cases by the first stage that spans racks: what later stages wait for, beside the pipelines.

Sets: racks, any division of the nodes; every node has one slot, so a stage takes dp nodes. A stage is confined where
all its nodes lie in one rack, and spans racks otherwise.
Data: inverse rates :math:`\beta_{ab}` of rings between nodes; pp stages.

(1) Stages 0..p-1 are confined and stage p spans racks, for some p < J, or stages 0..J-1 are confined: these J + 1 cases
    hold every placement. Racks of :math:`n_r` nodes have :math:`\sum_r \lfloor n_r / dp \rfloor` confined stages at
    most, and no further case is needed after so many, or pp.
(2) Let :math:`\hat\beta` be the least b for which links up to b join some two nodes of different racks, and dp - 2
    common neighbours of theirs of which each has dp - 3 others as neighbours. A stage that spans racks has a pair of
    nodes of different racks in its ring, and all others are common neighbours: its slowest link is
    :math:`\hat\beta` or slower.
(3) Where stage 0 is confined, links between racks count as infinitely slow in its ring; where it spans racks, no link
    counts as faster than :math:`\hat\beta`.
A case is thus a slot graph of its own, whose pipelines are bounded as ever (``taut.solver.placement.path_cover.cases``)
and by their crossings (``taut.solver.placement.path_cover.racks.crossings``), with a ring of stage p beside it. A
spanning stage is slow, and confining the first ones makes every pipeline cross racks: a step has to pay for one of the
two.
"""

from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.path_cover.cliques import shrink
from taut.solver.placement.path_cover.racks.visits import fast_clusters
from taut.solver.placement.slots import Box, SlotGraph

MAX_NODES = 256
"""Nodes up to which cases are told apart: each takes proofs of its own, and larger clusters have no time for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackCase:
    """A case of (1): stages that are ``confined``, and whether the next one is ``spanning`` or anything."""

    confined: int
    spanning: bool


WHOLE = RackCase(confined=0, spanning=False)
"""The case that holds every placement."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Racks:
    """
    Racks of a slot graph.

    ``rack`` (N,) the rack of every node; ``slowest`` is the rate of (2) in seconds per byte.
    """

    graph: SlotGraph
    rack: Ints
    slowest: float

    @property
    def ring(self) -> float:
        """Seconds per byte that the ring of a stage that spans racks takes at least, (2)."""
        dp = self.graph.replicas
        return self.graph.ring_bound(Box(min_touched=dp, max_touched=dp, low=self.slowest, high=np.inf))

    @property
    def most_confined(self) -> int:
        """Stages that can be confined at most, (1)."""
        return int((np.bincount(self.rack) // self.graph.replicas).sum())

    def cases(self, count: int) -> tuple[RackCase, ...]:
        """
        List the cases (1).

        ``count``: J, stages that are told apart. Returns all cases, ``WHOLE`` alone for J = 0.
        """
        last = min(count, self.most_confined + 1, self.graph.pp)
        spanning = [RackCase(confined=p, spanning=True) for p in range(last)]
        rest = [] if last > self.most_confined else [RackCase(confined=last, spanning=False)]
        return (*spanning, *rest)

    def restricted(self, case: RackCase) -> SlotGraph:
        """
        Build the slot graph of a case, (3).

        ``case``: one of ``cases``. Returns the same nodes.
        """
        graph, inverse = self.graph, self.graph.inverse
        if case.confined == 0:
            least = self.slowest if case.spanning else 0.0
            return replace(graph, inverse=np.maximum(inverse, least), rack=self.rack)
        apart = np.not_equal.outer(self.rack, self.rack)
        return replace(graph, inverse=np.where(apart, np.inf, inverse), rack=self.rack, confined=case.confined)


def has_racks(graph: SlotGraph) -> bool:
    """
    Say whether cases can be told apart: nodes of one slot, rings of two nodes or more, and not too many nodes.

    Returns whether (1) to (3) apply.
    """
    single = bool((graph.capacity == 1).all()) and graph.num_paths == graph.replicas
    return single and graph.replicas > 1 and len(graph.hops) <= MAX_NODES


def racks_of(graph: SlotGraph) -> Racks | None:
    """
    Find the racks of a graph (``taut.solver.placement.path_cover.racks.visits``).

    Returns None where there are none, or no stage fits any rack.
    """
    if not has_racks(graph):
        return None
    rack = fast_clusters(graph.inverse, np.ones(len(graph.inverse), np.int64))
    return None if rack is None else known_racks(graph, rack)


def known_racks(graph: SlotGraph, rack: Ints) -> Racks | None:
    """
    Take a division of the nodes, from anyone.

    ``graph``: the slots, for which ``has_racks`` holds; ``rack``: rack of every node, (N,). Returns None where no stage
    fits any rack, or none can span two.
    """
    rack = np.unique(rack, return_inverse=True)[1].astype(np.int64)
    slowest = spanning_rate(graph.inverse, rack, graph.replicas)
    if np.bincount(rack).max() < graph.replicas or not np.isfinite(slowest):
        return None
    return Racks(graph=graph, rack=rack, slowest=slowest)


def is_whole(racks: Racks, cases: tuple[RackCase, ...]) -> bool:
    """
    Check that cases hold every placement, (1).

    ``cases``: in any order, from anyone. Returns whether they are those of (1) for some J.
    """
    count = max((case.confined + case.spanning for case in cases), default=-1)
    return count >= 0 and set(cases) == set(racks.cases(count))


def spanning_rate(inverse: Floats, rack: Ints, size: int) -> float:
    """
    Bound the slowest link of a stage that spans racks, (2), by bisection over the rates.

    ``inverse``: symmetric seconds per byte between nodes, (N, N); ``rack``: rack of every node, (N,); ``size``: nodes
    of a stage, two or more. Returns seconds per byte, infinite where no stage spans racks.
    """
    apart = np.not_equal.outer(rack, rack)
    # The slowest link of such a stage may lie inside a rack.
    steps = np.unique(inverse[~np.eye(len(rack), dtype=bool)])
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        linked = (inverse <= steps[middle]) & ~np.eye(len(rack), dtype=bool)
        low, high = (low, middle) if _some_span(linked, apart, size) else (middle + 1, high)
    return float(steps[low]) if low < len(steps) else np.inf


@jit
def _some_span(linked: Flags, apart: Flags, size: int) -> bool:
    """Whether two linked nodes of different racks have common neighbours enough, (2)."""
    n = len(linked)
    for u in range(n):
        for v in range(u):
            if not (linked[u, v] and apart[u, v]):
                continue
            common = linked[u] & linked[v]
            shrink(linked, common, size - 2)
            if np.count_nonzero(common) >= size - 2:
                return True
    return False
