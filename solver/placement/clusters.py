"""
Clusters of near nodes, by average linkage, and greedy sets of fast links; heuristics, which bound nothing.

Pipelines are short where their nodes lie in one rack or leaf: nodes are ordered by the dendrogram of hops, in which the
two nearest clusters are merged until all nodes are one. The ring of the first stage is fast where all its links are:
sets of fast links grow node by node. The dendrogram's clusters, leaves and racks among them, are also the sets whose
cuts are separated (``taut.solver.placement.path_cover.path_bound``); cuts hold for any set.

References
----------
Sokal and Michener (1958), A statistical method for evaluating systematic relationships: average linkage (UPGMA).
"""

import numpy as np

from taut.data.arrays import Floats, Ints


def linkage_order(hops: Floats) -> Ints:
    """
    Order nodes so that racks, and racks of racks, stand together.

    ``hops``: seconds of hops, (N, N), symmetric. Returns the leaves of the dendrogram in order, (N,).
    """
    from scipy.cluster.hierarchy import leaves_list

    return np.asarray(leaves_list(_tree(hops)), dtype=np.int64)


def clusters(hops: Floats) -> list[Ints]:
    """
    List the clusters of the dendrogram without single nodes and the set of all nodes.

    ``hops``: seconds of hops, (N, N), symmetric. Returns nodes of each cluster, ascending.
    """
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
    """
    Build disjoint sets of nodes with fast links between them, greedily.

    Every node begins a set, to which the node is added, again and again, whose slowest link to it is the fastest. Of
    sets that share nodes the one with the fastest slowest link is kept.

    ``inverse``: seconds per byte between nodes, (N, N), symmetric; ``count``: nodes of a set. Returns nodes of each
    set, (sets, count), by ascending slowest link.
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
