"""
The cut pool: which rounded capacity and mixed-integer-rounding cuts are tried, and which fractional solutions violate.

Cuts are separated by enumeration over the clusters of near nodes (``taut.solver.placement.clusters``), and
over those clusters without the start nodes of the branch at hand. A cut that one branch violated is likely to matter to
the others, so all branches of a search share one pool.
"""

from collections.abc import Iterator

from taut.data.arrays import Flags
from taut.solver.placement.clusters import clusters
from taut.solver.placement.path_cover.capacity_cuts import Cut
from taut.solver.placement.slots import SlotGraph


class CutPool:
    """Cuts on clusters of near nodes; ``violated`` are those that some fractional solution has violated, in order."""

    def __init__(self, graph: SlotGraph) -> None:
        self._graph, self.violated = graph, dict[Cut, None]()
        self._clusters = clusters(graph.hops)

    def candidates(self, starts: Flags) -> tuple[Cut, ...]:
        """
        List the cuts that fractional solutions may violate.

        ``starts``: start nodes of a branch, (N,). Returns cuts on the clusters, and on the clusters without ``starts``.
        """
        sets = {tuple(nodes.tolist()) for cluster in self._clusters for nodes in (cluster, cluster[~starts[cluster]])}
        return tuple(cut for nodes in sorted(sets) for cut in _stronger_cuts(self._graph, nodes))


def _stronger_cuts(graph: SlotGraph, nodes: tuple[int, ...]) -> Iterator[Cut]:
    """Cuts (2) and (3) of a set where they say more than (1)."""
    slots = int(graph.capacity[list(nodes)].sum())
    if slots % graph.pp:
        yield Cut(nodes=nodes, mir=False)
    if slots % (graph.pp - 1):
        yield Cut(nodes=nodes, mir=True)
