r"""
Least weight of a walk that stops at so many nodes.

Sets: nodes n. Data: weights :math:`w_{ab} \ge 0` of a step between two nodes, the lighter of both directions.

(1) A walk that stops at d nodes contains a tree that joins them, so it weighs at least the d - 1 lightest edges of a
    minimum spanning tree of all nodes (Kruskal 1956).
(2) Of few nodes it weighs exactly the shortest path through any d of them, each once, under the weights of the shortest
    walks between two nodes.
(3) A minimum spanning tree grows from one node by the node that is nearest to the tree (Prim 1957).

SciPy's tree would read a weight of zero as a missing edge, and takes longer to load than all trees of a plan to grow.

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: (2).
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.bounds.multisets import path_lengths, small_multisets

FEW = 14
"""Nodes whose sets are enumerated, 16,384 of them at most, in some hundredths of a second."""


def least_walks(weights: Floats, copies: Ints) -> Floats:
    """
    Bound walks from below by the nodes at which they stop.

    ``weights``: weights of a step between nodes of two blocks, or of one, (B, B); ``copies``: nodes of every block,
    (B,). Returns least weight of a walk that stops at 0, 1, 2, ... nodes, (nodes + 1,).
    """
    joined = np.concatenate([[0.0, 0.0], tree_edges(weights, copies).cumsum()])
    if copies.sum() > FEW:
        return joined
    each = np.repeat(np.repeat(np.minimum(weights, weights.T), copies, axis=0), copies, axis=1)
    np.fill_diagonal(each, 0.0)
    return np.asarray(np.maximum(joined, _shortest(each)))


def tree_edges(weights: Floats, copies: Ints) -> Floats:
    """
    Edges of a minimum spanning tree over nodes whose weights are those of their blocks, ascending.

    By Kruskal's algorithm: every further node of a block joins at the block's least weight, by an edge within the block
    or to another one, since the others of its block do so as well; one node of every block is left.

    Returns weights, (nodes - 1,).
    """
    # Beside one, weights that differ by rounding alone are the same.
    raised = np.minimum(weights, weights.T) + 1.0
    further = np.repeat(raised.min(axis=1), copies - 1)
    return np.sort(np.concatenate([spanning_tree(raised), further])) - 1.0


def spanning_tree(weights: Floats) -> Floats:
    """Weights (n - 1,) of the edges of a minimum spanning tree, from symmetric weights (n, n), by (3)."""
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
    """Least weights (2) of walks that stop at 0, 1, 2, ... of all nodes."""
    distances = weights.copy()
    for k in range(len(weights)):
        distances = np.minimum(distances, distances[:, k, None] + distances[k])
    ones = np.ones(len(weights), np.int64)
    members, row = small_multisets(ones, len(ones))
    shortest = path_lengths(distances, ones, members, row).min(axis=0)
    stops = members.sum(axis=1)
    return np.array([shortest[stops == d].min() if d else 0.0 for d in range(len(ones) + 1)])
