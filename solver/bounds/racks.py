r"""
Racks of nodes, how often pipelines go from rack to rack, and the least weight of a walk over nodes.

(1) Racks are the clusters of nodes by single linkage before the step between rates that is the largest: the components
    of a minimum spanning tree without its slow edges.

Sets: racks r of :math:`n_r` slots, any division of the nodes; each of the first p stages confined to one; paths of pp
slots, M of them, that take every slot once. A stage has M slots. A visit is a stretch of a path in one rack.

(2) Two confined stages of one rack have 2 M slots there. So all hops between consecutive confined stages lead out of
    racks of fewer slots.
(3) A rack where a confined stage lies is visited by all M paths. p confined stages take at least as many racks as those
    that hold most, :math:`\lfloor n_r / M \rfloor` each. A visit of any other rack takes slots of later stages alone,
    pp - p of them at most, so that rack is visited :math:`\lceil n_r / (pp - p) \rceil` times at least; which is no
    more than M, as later stages have M (pp - p) slots. So the total is least with the fewest racks of confined stages.
(4) Where all racks have fewer than 2 M slots, paths leave those of all confined stages but the last at once, and the
    :math:`n_r - M` slots that are left of such a rack are visited again, pp - p at a time.
(5) All paths together make as many crossings as visits, less M, so some path makes at least the M-th part, rounded up.

A walk stops at so many nodes n. Data: weights :math:`w_{ab} \ge 0` of a step between two nodes, the lighter of both
directions.

(6) A walk that stops at d nodes contains a tree that joins them, so it weighs at least the d - 1 lightest edges of a
    minimum spanning tree of all nodes (Kruskal 1956).
(7) Of few nodes it weighs exactly the shortest path through any d of them, each once, under the weights of the shortest
    walks between two nodes.
(8) A minimum spanning tree grows from one node by the node that is nearest to the tree (Prim 1957).

SciPy's tree would read a weight of zero as a missing edge, and takes longer to load than all trees of a plan to grow.

References
----------
Gower and Ross (1969), Minimum spanning trees and single linkage cluster analysis: (1). Held and Karp (1962), A dynamic
programming approach to sequencing problems: (7).
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.bounds.multisets import path_lengths, small_multisets

FEW = 14
"""Nodes whose sets are enumerated, 16,384 of them at most, in some hundredths of a second."""


def least_walks(weights: Floats, copies: Ints) -> Floats:
    """Least weight of a walk that stops at 0, 1, ... nodes, by weights (B, B) and nodes of blocks (B,)."""
    joined = np.concatenate([[0.0, 0.0], tree_edges(weights, copies).cumsum()])
    if copies.sum() > FEW:
        return joined
    each = np.repeat(np.repeat(np.minimum(weights, weights.T), copies, axis=0), copies, axis=1)
    np.fill_diagonal(each, 0.0)
    return np.asarray(np.maximum(joined, _shortest(each)))


def tree_edges(weights: Floats, copies: Ints) -> Floats:
    """Ascending edges (nodes - 1,) of a minimum spanning tree by Kruskal: a block's nodes but one join at its least."""
    # Beside one, weights that differ by rounding alone are the same.
    raised = np.minimum(weights, weights.T) + 1.0
    further = np.repeat(raised.min(axis=1), copies - 1)
    return np.sort(np.concatenate([spanning_tree(raised), further])) - 1.0


def spanning_tree(weights: Floats) -> Floats:
    """Weights (n - 1,) of the edges of a minimum spanning tree, from symmetric weights (n, n), by (8)."""
    waiting, edges = np.arange(1, len(weights)), np.empty(max(len(weights) - 1, 0))
    least = weights[0, 1:]
    for k in range(len(edges)):
        nearest = int(least.argmin())
        edges[k] = least[nearest]
        row = weights[waiting[nearest]]
        waiting = np.delete(waiting, nearest)
        least = np.minimum(np.delete(least, nearest), row[waiting])
    return edges


def _shortest(weights: Floats) -> Floats:
    """Least weights (7) of walks that stop at 0, 1, 2, ... of all nodes."""
    distances = weights.copy()
    for k in range(len(weights)):
        distances = np.minimum(distances, distances[:, k, None] + distances[k])
    ones = np.ones(len(weights), np.int64)
    members, row = small_multisets(ones, len(ones))
    shortest = path_lengths(distances, ones, members, row).min(axis=0)
    stops = members.sum(axis=1)
    return np.array([shortest[stops == d].min() if d else 0.0 for d in range(len(ones) + 1)])


FASTER = 1.6
"""Links inside racks are so much faster than between them, by single linkage; other clusters have no racks."""


def fewest_crossings(sizes: Ints, members: int, confined: int, pp: int) -> int:
    """Hops from rack to rack that some path makes at least, (5), with M ``members`` and p ``confined`` stages."""
    later, hosts, again = max(pp - confined, 1), 0, 0
    if confined:
        hosts = int(np.searchsorted(np.sort(sizes // members)[::-1].cumsum(), confined)) + 1
        left = np.sort(sizes[sizes >= members] - members)[: confined - 1]
        again = int((-(-left // later)).sum()) if (sizes < 2 * members).all() else 0
    others = np.sort(-(-sizes // later))[: max(len(sizes) - hosts, 0)]
    crossings = hosts * members + int(others.sum()) + again - members
    return min(max(-(-crossings // members), 0), pp - 1)


def fast_clusters(inverse: Floats, copies: Ints) -> Ints | None:
    """Rack of every block (B,), (1); None where links differ by less than ``FASTER``, or nodes of a block lie apart."""
    several = np.diag(inverse)[copies > 1]
    merges = np.sort(np.concatenate([spanning_tree(inverse), several]))
    ratios = merges[1:] / np.maximum(merges[:-1], 1e-300)
    if not len(ratios) or ratios.max() < FASTER:
        return None
    fastest = merges[int(ratios.argmax())]
    if several.max(initial=0.0) > fastest:
        return None
    return _components(inverse <= fastest)


def _components(joined: Flags) -> Ints:
    """Number of the component of every block, by symmetric pairs that are joined, in the order of first blocks."""
    first, before = np.arange(len(joined)), np.full(len(joined), -1)
    while (first != before).any():
        before, first = first, np.minimum(first, np.where(joined, first, len(joined)).min(axis=1))
    return np.asarray(np.unique(first, return_inverse=True)[1], dtype=np.int64)
