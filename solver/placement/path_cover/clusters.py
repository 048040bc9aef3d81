r"""
Nodes that lie near together, from which placements and proofs begin. Nothing here bounds anything.

Two of many local optima matter most. Pipelines are short where their nodes lie in one rack or leaf: nodes are ordered
by the tree of average hops, in which the two nearest clusters are joined until all nodes are one. The ring of the first
stage is fast where all its links are: sets of fast links are built node by node. What the tree joins, leaves and racks
among it, are also the sets whose visits may matter to a bound, which holds for any set.
"""

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from taut.data.arrays import Floats, Ints


def near_together(hops: Floats) -> Ints:
    """The nodes in an order in which racks, and racks of racks, stand together: leaves of the tree of average links."""
    return np.asarray(leaves_list(_tree(hops)), dtype=np.int64)


def clusters(hops: Floats) -> list[Ints]:
    """Sets of nodes that the tree joins, but for single nodes and all of them."""
    n = len(hops)
    if n < 3:
        return []
    members = [np.array([v]) for v in range(n)]
    for one, other in _tree(hops)[:-1, :2].astype(int):
        members.append(np.sort(np.concatenate([members[one], members[other]])))
    return members[n:]


def _tree(hops: Floats) -> Floats:
    """The tree of average links, as scipy has it."""
    return np.asarray(linkage(hops[np.triu_indices(len(hops), 1)], method="average"))


def tight_sets(inverse: Floats, count: int) -> Ints:
    """
    Disjoint sets of so many nodes with fast links between them, (sets, count), the one with the fastest slowest first.

    Every node begins a set, to which the node is added, again and again, whose slowest link to it is the fastest. Of
    those that share nodes the fastest is kept.
    """
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
