r"""
Crossings: hops of pipelines between racks, and a bound on the longest pipeline by them.

Sets: racks of :math:`n_r` nodes, each of the first p stages confined to one
(``taut.solver.placement.path_cover.racks.spanning``); paths of pp slots, one for each of dp replicas, that take every
node once. A visit is a stretch of a path in one rack.

(1) Two confined stages of one rack have 2 dp nodes there. So all hops between consecutive confined stages lead out of
    racks of fewer nodes: the first p - 1 hops of every path are crossings there.
(2) Some path makes at least c crossings (``taut.solver.placement.path_cover.racks.visits``). The longest path is no
    shorter than the shortest of pp slots that makes c crossings or more. That is found by dynamic programming over
    crossings, slots and nodes, where a visit takes the shortest path of so many different nodes from its first to its
    last, or of racks of more than ``MAX_EXACT`` nodes the shortest walk.

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: the shortest paths inside a rack.
"""

from functools import lru_cache

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.path_cover.racks.visits import fewest_crossings
from taut.solver.placement.slots import SlotGraph

MAX_EXACT = 10
"""Nodes of a rack up to which shortest paths of different nodes are found, by sets."""


def crossed(graph: SlotGraph) -> tuple[Ints, int]:
    """
    Say which hops lead out of racks, (1).

    ``graph``: the slots, of a case or not. Returns places of the nodes, (N,), and how many hops at the beginning of
    every path lead from one place to another.
    """
    alone = np.arange(len(graph.hops))
    if graph.rack is None:
        return alone, 0
    large = np.bincount(graph.rack)[graph.rack] >= 2 * graph.replicas
    return np.where(large, len(alone) + alone, graph.rack), max(graph.confined - 1, 0)


def crosses(graph: SlotGraph, paths: Ints) -> Flags:
    """
    Say which paths lead out of racks where they have to, (1).

    ``paths``: nodes, (paths, pp). Returns flags, (paths,).
    """
    places, count = crossed(graph)
    visited = places[paths[:, : count + 1]]
    return np.asarray((visited[:, 1:] != visited[:, :-1]).all(axis=1))


@lru_cache(maxsize=16)
def crossing_bound(graph: SlotGraph) -> float:
    """
    Bound the longest path of a case, (2); kept for the latest graphs, since a witness may ask for it in every proof.

    ``graph``: the slots, of a case or not. Returns seconds, minus infinity without racks.
    """
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
