r"""
A single path through all nodes: how long it must be.

With one path, every slot of every node is on it. Let :math:`h` be the least hop inside a node and :math:`d_{ab}` the
shortest walk from a to b whose steps cost :math:`W_{uv} - h` between nodes.

(1) The path makes pp - 1 hops, and those between nodes visit every node at least once, so that

    .. math:: T \ge (pp - 1) h + \min \text{ over orders of the nodes of } \sum d

    between neighbours in the order, by dynamic programming over sets of nodes (Held and Karp).
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.solver.placement.slots import Slots

MOST_NODES = 16


def through_seconds(given: Slots) -> float:
    """Seconds of the single path at least, (1); minus infinity for several paths, or too many nodes."""
    n = len(given.hops)
    if given.paths != 1 or not 1 < n <= MOST_NODES:
        return -np.inf
    inside = given.least_hop()
    further = np.where(np.eye(n, dtype=bool), 0.0, given.hops - inside)
    for via in range(n):
        further = np.minimum(further, further[:, via, None] + further[None, via])
    return float((_shortest(further) + (given.pp - 1) * inside) * (1 - 1e-12))


@jit
def _shortest(steps: Floats) -> float:
    """Length of the shortest order of all nodes."""
    n = len(steps)
    least = np.full((1 << n, n), np.inf)
    for v in range(n):
        least[1 << v, v] = 0.0
    for visited in range(1, 1 << n):
        for v in range(n):
            here = least[visited, v]
            if here == np.inf:
                continue
            for u in range(n):
                if not visited >> u & 1:
                    with_u = visited | (1 << u)
                    least[with_u, u] = min(least[with_u, u], here + steps[v, u])
    return float(least[(1 << n) - 1].min())
