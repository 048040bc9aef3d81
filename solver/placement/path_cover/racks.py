r"""
Racks in the bounds of pipelines that cover a cluster: cases by the first stage that spans them, and crossings.

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
and by their crossings, with a ring of stage p beside it. A
spanning stage is slow, and confining the first ones makes every pipeline cross racks: a step has to pay for one of the
two.

Crossings are hops of pipelines between racks, and bound the longest pipeline. Sets: racks of :math:`n_r` nodes, each of
the first p stages confined to one; paths of pp slots, one for each of dp replicas, that take every node once. A visit
is a stretch of a path in one rack.

(4) Two confined stages of one rack have 2 dp nodes there. So all hops between consecutive confined stages lead out of
    racks of fewer nodes: the first p - 1 hops of every path are crossings there.
(5) Some path makes at least c crossings (``taut.solver.bounds.racks`` (5)). The longest path is no
    shorter than the shortest of pp slots that makes c crossings or more. That is found by dynamic programming over
    crossings, slots and nodes, where a visit takes the shortest path of so many different nodes from its first to its
    last, or of racks of more than ``MAX_EXACT`` nodes the shortest walk.

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: the shortest paths inside a rack.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.bounds.racks import fast_clusters, fewest_crossings
from taut.solver.placement.path_cover.cliques import shrink
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
    """Racks of a slot graph: the rack (N,) of every node, and the ``slowest`` rate of (2) in seconds per byte."""

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
        """The cases (1) of J stages that are told apart, ``WHOLE`` alone for J = 0."""
        last = min(count, self.most_confined + 1, self.graph.pp)
        spanning = [RackCase(confined=p, spanning=True) for p in range(last)]
        rest = [] if last > self.most_confined else [RackCase(confined=last, spanning=False)]
        return (*spanning, *rest)

    def restricted(self, case: RackCase) -> SlotGraph:
        """The slot graph of a case, (3), of the same nodes."""
        graph, inverse = self.graph, self.graph.inverse
        if case.confined == 0:
            least = self.slowest if case.spanning else 0.0
            return replace(graph, inverse=np.maximum(inverse, least), rack=self.rack)
        apart = np.not_equal.outer(self.rack, self.rack)
        return replace(graph, inverse=np.where(apart, np.inf, inverse), rack=self.rack, confined=case.confined)


def has_racks(graph: SlotGraph) -> bool:
    """Whether cases can be told apart, (1) to (3): nodes of one slot, rings of two or more, not too many nodes."""
    single = bool((graph.capacity == 1).all()) and graph.num_paths == graph.replicas
    return single and graph.replicas > 1 and len(graph.hops) <= MAX_NODES


def racks_of(graph: SlotGraph) -> Racks | None:
    """Racks of a graph; None where there are none, or no stage fits any."""
    if not has_racks(graph):
        return None
    rack = fast_clusters(graph.inverse, np.ones(len(graph.inverse), np.int64))
    return None if rack is None else known_racks(graph, rack)


def known_racks(graph: SlotGraph, rack: Ints) -> Racks | None:
    """Racks by a division (N,) of the nodes from anyone; None where no stage fits any rack, or none can span two."""
    rack = np.unique(rack, return_inverse=True)[1].astype(np.int64)
    slowest = spanning_rate(graph.inverse, rack, graph.replicas)
    if np.bincount(rack).max() < graph.replicas or not np.isfinite(slowest):
        return None
    return Racks(graph=graph, rack=rack, slowest=slowest)


def is_whole(racks: Racks, cases: tuple[RackCase, ...]) -> bool:
    """Whether cases, from anyone, hold every placement: those of (1) for some J."""
    count = max((case.confined + case.spanning for case in cases), default=-1)
    return count >= 0 and set(cases) == set(racks.cases(count))


def spanning_rate(inverse: Floats, rack: Ints, size: int) -> float:
    """Seconds per byte of the slowest link of ``size`` nodes that span racks at least, (2), by bisection."""
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


MAX_EXACT = 10
"""Nodes of a rack up to which shortest paths of different nodes are found, by sets."""


def crossed(graph: SlotGraph) -> tuple[Ints, int]:
    """Places (N,) of the nodes, and how many hops at the beginning of every path lead from one to another, (4)."""
    alone = np.arange(len(graph.hops))
    if graph.rack is None:
        return alone, 0
    large = np.bincount(graph.rack)[graph.rack] >= 2 * graph.replicas
    return np.where(large, len(alone) + alone, graph.rack), max(graph.confined - 1, 0)


def crosses(graph: SlotGraph, paths: Ints) -> Flags:
    """Flags (paths,) of the paths (paths, pp) that lead out of racks where they have to, (4)."""
    places, count = crossed(graph)
    visited = places[paths[:, : count + 1]]
    return np.asarray((visited[:, 1:] != visited[:, :-1]).all(axis=1))


@lru_cache(maxsize=16)
def crossing_bound(graph: SlotGraph) -> float:
    """Seconds of the longest path of a case, (5), kept for the latest graphs; minus infinity without racks."""
    if graph.rack is None:
        return -np.inf
    most = fewest_crossings(np.bincount(graph.rack), graph.replicas, graph.confined, graph.pp)
    places, alone = crossed(graph)
    tied = places < len(places)
    visits = _visits(graph.hops, graph.rack, graph.pp)
    lengths = _shortest(graph.hops, graph.rack, visits, graph.pp, np.where(tied, alone, 0))
    return float(lengths[most:].min() * (1 - 1e-12))


def _visits(hops: Floats, rack: Ints, pp: int) -> Floats:
    """Seconds of the shortest visit of 1, 2, ... nodes from one to another, (slots, N, N); infinite for others."""
    sizes = np.bincount(rack)
    found = np.full((min(int(sizes.max()), pp), *hops.shape), np.inf)
    for number, size in enumerate(sizes.tolist()):
        nodes = np.flatnonzero(rack == number)
        inside = np.ix_(np.arange(min(size, pp)), nodes, nodes)
        found[inside] = (_paths if size <= MAX_EXACT else _walks)(hops[np.ix_(nodes, nodes)], min(size, pp))
    return found


def _walks(hops: Floats, most: int) -> Floats:
    """Seconds of the shortest walks of 1, 2, ... nodes, (most, n, n)."""
    found = np.full((most, *hops.shape), np.inf)
    np.fill_diagonal(found[0], 0.0)
    steps = np.where(np.eye(len(hops), dtype=bool), np.inf, hops)
    for k in range(1, most):
        for via in range(len(hops)):
            found[k] = np.minimum(found[k], found[k - 1][:, via, None] + steps[via])
    return found


@jit
def _paths(hops: Floats, most: int) -> Floats:
    """Seconds of the shortest paths of 1, 2, ... different nodes, (most, n, n)."""
    n = len(hops)
    found = np.full((most, n, n), np.inf)
    for first in range(n):
        least = np.full((1 << n, n), np.inf)
        least[1 << first, first] = 0.0
        for visited in range(1 << n):
            size = 0
            for v in range(n):
                size += visited >> v & 1
            if size == 0 or size > most:
                continue
            for v in range(n):
                here = least[visited, v]
                if here == np.inf:
                    continue
                found[size - 1, first, v] = min(found[size - 1, first, v], here)
                for u in range(n):
                    if not visited >> u & 1:
                        with_u = visited | (1 << u)
                        least[with_u, u] = min(least[with_u, u], here + hops[v, u])
    return found


@jit
def _shortest(hops: Floats, rack: Ints, visits: Floats, pp: int, alone: Ints) -> Floats:
    """Seconds of the shortest path by its crossings, (pp,); the first ``alone`` slots of a node's rack are alone."""
    n, least = len(hops), np.full(pp, np.inf)
    enter = np.zeros((pp + 1, n))
    enter[1:] = np.inf
    for crossings in range(pp):
        leave = np.full((pp + 1, n), np.inf)
        for k in range(pp):
            for a in range(n):
                if enter[k, a] == np.inf:
                    continue
                longest = 1 if k < alone[a] else min(len(visits), pp - k)
                for length in range(1, longest + 1):
                    for b in range(n):
                        if rack[b] == rack[a]:
                            seconds = enter[k, a] + visits[length - 1, a, b]
                            leave[k + length, b] = min(leave[k + length, b], seconds)
        least[crossings] = leave[pp].min()
        enter[:] = np.inf
        for k in range(pp):
            for b in range(n):
                if leave[k, b] < np.inf:
                    for a in range(n):
                        if rack[a] != rack[b]:
                            enter[k, a] = min(enter[k, a], leave[k, b] + hops[b, a])
    return least
