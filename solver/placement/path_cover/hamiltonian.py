r"""
Bound on a single path through all nodes: a shortest Hamiltonian path by dynamic programming over subsets.

Sets: N nodes, all of whose slots lie on the one path of pp slots.
Data: seconds :math:`W_{uv}` of hops, :math:`h` the shortest of all, and :math:`d_{ab}` the shortest way from a to b
whose steps cost :math:`W_{uv} - h`.
Variables: the order in which the nodes are first visited.

(1) The path makes pp - 1 hops, and those between nodes visit every node at least once, so that

    .. math:: T \ge (pp - 1) h + \min_{\text{orders}} \sum_{i < N} d_{v_i v_{i+1}}.

(2) With :math:`C(S, v)` the least cost of an order of the set S that ends in v,
    :math:`C(S \cup u, u) = \min_v C(S, v) + d_{vu}`, in O(2^N N^2).

References
----------
Held and Karp (1962), A dynamic programming approach to sequencing problems: (2).
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.solver.placement.slots import SlotGraph

MAX_NODES = 16
"""Nodes up to which (2) is solved: its table of 2^16 sets takes 8 MB."""


def hamiltonian_path_bound(graph: SlotGraph) -> float:
    """
    Bound a single path from below, (1).

    Returns seconds that the path takes at least; minus infinity for several paths, one node, or more than
    ``MAX_NODES``.
    """
    n = len(graph.hops)
    if graph.num_paths != 1 or not 1 < n <= MAX_NODES:
        return -np.inf
    inside = graph.shortest_hop()
    further = np.where(np.eye(n, dtype=bool), 0.0, graph.hops - inside)
    for via in range(n):
        further = np.minimum(further, further[:, via, None] + further[None, via])
    return float((_shortest(further) + (graph.pp - 1) * inside) * (1 - 1e-12))


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
