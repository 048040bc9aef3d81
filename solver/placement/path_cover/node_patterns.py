r"""
Node patterns: the cheapest packing of a node's slots by route segments, under dual prices.

Sets: nodes v with :math:`c_v` slots; start nodes P, required nodes Q within P. A pattern of v is a multiset of segments
whose lengths sum to :math:`c_v`. A node is touched if a path begins in it.
Data: dual prices ``first[v, r]`` and ``later[v, r]`` of a first or later segment of r slots in v; k and k', the fewest
and most nodes that may be touched.

(1) :math:`\Phi_v` is the least sum of prices of a pattern without first segments, :math:`\Phi'_v` with one or more: a
    knapsack by dynamic programming over the slots filled so far, O(c^2) a node.
(2) With k to k' touched nodes, all of P and among them all of Q, the patterns of all nodes are worth at least

    .. math:: \sum_v \Phi_v + \min \Big\{ \sum_{v \in S} (\Phi'_v - \Phi_v) : Q \subseteq S \subseteq P, \;
              k \le |S| \le k' \Big\}.

Patterns are the second kind of columns of the restricted master problem (``taut.solver.placement.path_cover.master``),
and (1) is their pricing problem, as in cutting stock.

References
----------
Gilmore and Gomory (1961), A linear programming approach to the cutting-stock problem: patterns priced by knapsacks.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit


@jit
def cheapest_patterns(first: Floats, later: Floats, capacity: Ints) -> tuple[Floats, Ints]:
    """
    Find the cheapest patterns of every node, (1).

    ``first``, ``later``: dual prices by node and length, (N, c + 1); whole numbers below 2^53 where sums must be exact;
    ``capacity``: slots by node, (N,). Returns least prices (N, 2) of an untouched and a touched node; and the patterns
    that attain them, (N, 2, 2, c + 1): how many first and later segments of each length.
    """
    n, most = later.shape
    least = np.full((n, 2), np.inf)
    counts = np.zeros((n, 2, 2, most), np.int64)
    best = np.full((2, most), np.inf)
    kind, length, before = np.zeros((2, most), np.int64), np.zeros((2, most), np.int64), np.zeros((2, most), np.int64)
    for v in range(n):
        best[:] = np.inf
        best[0, 0] = 0.0
        for size in range(1, capacity[v] + 1):
            for segment in range(1, size + 1):
                for touched in range(2):
                    rest = best[touched, size - segment]
                    if rest + later[v, segment] < best[touched, size]:
                        best[touched, size] = rest + later[v, segment]
                        kind[touched, size], length[touched, size], before[touched, size] = 1, segment, touched
                    if rest + first[v, segment] < best[1, size]:
                        best[1, size] = rest + first[v, segment]
                        kind[1, size], length[1, size], before[1, size] = 0, segment, touched
        for touched in range(2):
            least[v, touched] = best[touched, capacity[v]]
            state, size = touched, capacity[v]
            while size > 0:
                segment = length[state, size]
                counts[v, touched, kind[state, size], segment] += 1
                state, size = before[state, size], size - segment
    return least, counts


def least_pattern_total(least: Floats, starts: Flags, required: Flags, fewest: int, most: int) -> float:
    """
    Bound the worth of all nodes' patterns from below, (2).

    ``least``: least prices of every node, untouched and touched, (N, 2); ``starts``, ``required``: P and Q, (N,);
    ``fewest``, ``most``: k and k', the touched nodes. Returns the least total, in the unit of the prices; infinite
    where no set of touched nodes is possible.
    """
    difference, fixed = least[:, 1] - least[:, 0], int(required.sum())
    further = np.r_[0.0, np.sort(difference[starts & ~required])].cumsum()[
        max(fewest - fixed, 0) : max(most - fixed + 1, 0)
    ]
    return float(least[:, 0].sum() + difference[required].sum() + further.min(initial=np.inf))
