r"""
Fillings: what the runs of paths gain that fill a node's slots.

A node of :math:`c_v` slots is filled by runs whose lengths sum to :math:`c_v`. A run of r slots gains ``later[v, r]``,
or ``first[v, r]`` where a path begins with it. A node is touched if a path begins in it.

(1) :math:`\Phi_v` is the least sum of gains of any filling without a first run, :math:`\Phi'_v` with one or more, by
    dynamic programming over the slots filled so far;
(2) with at least k and at most k' touched nodes, all of them in the set P, among them the set Q, all paths together
    gain at least :math:`\sum_v \Phi_v` + the least sum of k to k' differences :math:`\Phi'_v - \Phi_v` of nodes of P,
    those of Q included.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit


@jit
def cheapest_fillings(first: Floats, later: Floats, capacity: Ints) -> tuple[Floats, Ints]:
    """
    Least gains (1) of every node, (N, 2), untouched and touched; and the fillings that attain them.

    Gains are (N, c + 1) by length, whole numbers below 2^53 for exact sums; fillings are (N, 2, 2, c + 1): how many
    first and later runs of each length.
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
            for run in range(1, size + 1):
                for touched in range(2):
                    rest = best[touched, size - run]
                    if rest + later[v, run] < best[touched, size]:
                        best[touched, size] = rest + later[v, run]
                        kind[touched, size], length[touched, size], before[touched, size] = 1, run, touched
                    if rest + first[v, run] < best[1, size]:
                        best[1, size] = rest + first[v, run]
                        kind[1, size], length[1, size], before[1, size] = 0, run, touched
        for touched in range(2):
            least[v, touched] = best[touched, capacity[v]]
            state, size = touched, capacity[v]
            while size > 0:
                run = length[state, size]
                counts[v, touched, kind[state, size], run] += 1
                state, size = before[state, size], size - run
    return least, counts


def least_total(least: Floats, starts: Flags, required: Flags, fewest: int, most: int) -> float:
    """What all paths gain at least, (2); infinite where no nodes can be touched so."""
    difference, fixed = least[:, 1] - least[:, 0], int(required.sum())
    further = np.r_[0.0, np.sort(difference[starts & ~required])].cumsum()[
        max(fewest - fixed, 0) : max(most - fixed + 1, 0)
    ]
    return float(least[:, 0].sum() + difference[required].sum() + further.min(initial=np.inf))
