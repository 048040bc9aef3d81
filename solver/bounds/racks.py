r"""
Racks by counts: which nodes make one, and how often pipelines go from rack to rack, whatever the links.

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

References
----------
Gower and Ross (1969), Minimum spanning trees and single linkage cluster analysis.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.solver.bounds.node_walks import spanning_tree

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
    """
    Find racks: the clusters by single linkage before the step between rates that is the largest.

    ``inverse``: symmetric seconds per byte between two nodes of any two blocks, or of one, (B, B); ``copies``: nodes of
    every block, (B,). Returns rack of every block, (B,); None where links differ by less than ``FASTER``, or nodes of a
    block lie apart.
    """
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
