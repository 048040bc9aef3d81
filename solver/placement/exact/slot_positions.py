"""
A placement from the slots that every stage takes.

States name nodes up to their class (``taut.solver.placement.exact.slot_states`` (3)); here every stage gets nodes by
their names, such that replicas stay on a node where it holds the next stage as well.
"""

import numpy as np

from taut.data.arrays import Ints


def slot_positions(vectors: Ints, slots: Ints, kinds: Ints) -> Ints:
    """
    Assign nodes to workers.

    ``vectors``: slots of every stage on every node, as states name them, (pp, N); ``slots``, ``kinds``: blocks that
    every node holds, and its class, (N,). Returns node of every (replica, stage), (dp pp, 1).
    """
    left, before = slots.copy(), np.zeros_like(slots)
    columns: list[Ints] = []
    for vector in vectors:
        before = _named(vector, left, before, kinds)
        left = left - before
        columns.append(_matched(np.repeat(np.arange(len(slots)), before), columns[-1] if columns else None))
    return np.stack(columns, axis=1).reshape(-1, 1)


def _named(vector: Ints, left: Ints, before: Ints, kinds: Ints) -> Ints:
    """A stage's slots by node: in a class they ascend with what is left, and then with those of the stage before."""
    named = np.zeros_like(vector)
    for kind in np.unique(kinds):
        nodes = np.flatnonzero(kinds == kind)
        named[nodes[np.lexsort((before[nodes], left[nodes]))]] = vector[nodes]
    return named


def _matched(nodes: Ints, before: Ints | None) -> Ints:
    """The nodes in an order in which as many replicas as possible stay where they were."""
    if before is None:
        return nodes
    free, column = np.bincount(nodes, minlength=int(max(nodes.max(), before.max())) + 1), np.full(len(nodes), -1)
    for replica, node in enumerate(before.tolist()):
        if free[node]:
            column[replica], free[node] = node, free[node] - 1
    column[column < 0] = np.repeat(np.arange(len(free)), free)
    return column
