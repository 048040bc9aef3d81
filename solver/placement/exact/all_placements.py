r"""
Enumeration of the placements of a small cluster, each once.

Sets: a slot is a tensor group's place on R sites, as in ``taut.formulations.placement``: R = 1 where the devices of a
node are interchangeable, R = tp where they were measured one by one. Node n has :math:`G_n` devices and
:math:`S_n = G_n / tp` slots. Replicas may change places, and so may tensor ranks, of all groups at once.

(1) Where devices are interchangeable, the placements number at most (some of them are equal)

    .. math:: \frac{(pp \cdot dp)!}{\prod_n S_n!},

(2) and otherwise

    .. math:: \frac{(pp \cdot dp)! \prod_n G_n!}{dp! \, tp! \prod_n S_n!}.

(3) Symmetry: of equal placements the one is listed whose first replica's first group has its ranks in order of their
    sites, and whose replicas are in order of the least site of their first groups.
"""

from math import factorial, prod

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.links import Links
from taut.formulations.space import Candidate


def count_placements(links: Links, candidate: Candidate) -> int:
    """
    Count the placements, (1) or (2).

    Returns how many there are at most.
    """
    sizes = links.gpus_per_node.tolist()
    of_groups = factorial(candidate.pp * candidate.dp) // prod(factorial(size // candidate.tp) for size in sizes)
    if links.by_node:
        return of_groups
    return of_groups * prod(map(factorial, sizes)) // (factorial(candidate.dp) * factorial(candidate.tp))


def placements(links: Links, candidate: Candidate) -> Ints:
    """
    List the placements, each once, (3).

    Returns sites of every worker, (placements, dp, pp, R).
    """
    capacity = np.ones(links.num_sites, np.int64)
    if links.by_node:
        capacity = links.gpus_per_node // candidate.tp
    ranks, pp = 1 if links.by_node else candidate.tp, candidate.pp
    rows, left = np.zeros((1, 0), np.int64), capacity[None]
    for position in range(candidate.dp * pp):
        for rank in range(ranks):
            rows, left = _extended(links, rows, left, rank, ordered=position == 0)
        if position and position % pp == 0:
            first, before = (rows[:, p * ranks : (p + 1) * ranks].min(axis=1) for p in (position, position - pp))
            rows, left = rows[first >= before], left[first >= before]
    return rows.reshape(-1, candidate.dp, pp, ranks)


def _extended(links: Links, rows: Ints, left: Ints, rank: int, *, ordered: bool) -> tuple[Ints, Ints]:
    """The rows with every site that the next worker can take: in its group's node, and after the rank before it."""
    free = left > 0
    if rank > 0:
        free &= links.node_of_site[rows[:, -1]][:, None] == links.node_of_site
        if ordered:
            free &= rows[:, -1:] < np.arange(links.num_sites)
    row, site = np.nonzero(free)
    left = left[row]
    left[np.arange(len(row)), site] -= 1
    return np.column_stack((rows[row], site)), left
