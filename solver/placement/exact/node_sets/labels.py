r"""
Labels over the sets of nodes that stages take one after another: compiled loops of bound ``node-sets``.

Sets, data and constraints are those of ``taut.solver.placement.exact.node_sets.bound`` for one division and one
threshold T.

(1) A state of stage x is a pair (U, S): nodes U of the stages up to x, and S of them of stage x. A label of a state has
    for every node of S, where one pipeline lies, its net seconds n so far and the seconds s that are left for hops
    after it. A hop of h seconds, of which :math:`h'` without its way back, leads to

    .. math:: n' = n + h', \qquad s' = \min(s - h, \; A_x(S') - n'),

    with :math:`A_x(S')` what stage x leaves for hops if its ring is that of :math:`S'`.
(2) A label is dropped if its s at some node is below the least seconds of the remaining hops from there. A label is
    also dropped if another label of its state dominates it: n is no larger and s is no smaller, at every node.
(3) For a label of the last stage take the least s of its nodes. The largest of these says how far below T the optimum
    is. If no placement takes at most T, no label is left.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit


class NodeSets(NamedTuple):
    """
    Sets of M nodes that a stage can take, and the orders in which pipelines can go on to them.

    ``members`` (K, M) nodes in ascending order, ``words`` (K,) the same as bits, ``orders`` (M!, M) permutations.
    """

    members: Ints
    words: Ints
    orders: Ints


class Labels(NamedTuple):
    """
    Labels of one stage, (1).

    ``used`` (N,) nodes U as bits, ``last`` (N,) the set S, ``net`` and ``left`` (N, M) seconds, ``parent`` (N,) the
    label of the stage before and ``order`` (N,) in which its pipelines go on.
    """

    used: Ints
    last: Ints
    net: Floats
    left: Floats
    parent: Ints
    order: Ints


@jit
def first_labels(sets: NodeSets, allowed: Floats, least: Floats) -> Labels:
    """
    Labels of stage 0.

    ``sets``: what a stage can take; ``allowed``: seconds A_0 of every set, (K,); ``least``: seconds that the hops of
    all further stages take at least from every node, (nodes,). Returns one for each set that leaves enough, (2).
    """
    count, size = sets.members.shape
    kept = np.zeros(count, np.int64)
    found = 0
    for k in range(count):
        farthest = 0.0
        for z in range(size):
            farthest = max(farthest, least[sets.members[k, z]])
        if allowed[k] >= farthest:
            kept[found] = k
            found += 1
    kept = kept[:found]
    left = np.empty((found, size))
    for row in range(found):
        left[row] = allowed[kept[row]]
    none = np.zeros(found, np.int64)
    return Labels(sets.words[kept], kept, np.zeros((found, size)), left, none, none)


@jit
def next_labels(
    sets: NodeSets, labels: Labels, hops: Floats, net: Floats, allowed: Floats, least: Floats, most: int
) -> tuple[Labels, bool]:
    """
    Labels of the next stage, dominated ones among them.

    ``sets``, ``labels``: what a stage can take, and labels of the stage before; ``hops``, ``net``: seconds of a hop,
    and of one without its way back, (nodes, nodes); ``allowed``: seconds A_x of every set, (K,); ``least``: seconds
    that the hops of all stages after this one take at least from every node, (nodes,); ``most``: labels that are kept
    at most. Returns the labels that leave enough, (2), and whether these are all.
    """
    size, orders = sets.members.shape[1], len(sets.orders)
    room = min(most, 1024)
    used, last = np.empty(room, np.int64), np.empty(room, np.int64)
    parent, order = np.empty(room, np.int64), np.empty(room, np.int64)
    total, left = np.empty((room, size)), np.empty((room, size))
    new_total, new_left = np.empty(size), np.empty(size)
    found = 0
    for row in range(len(labels.used)):
        before = sets.members[labels.last[row]]
        for k in range(len(sets.words)):
            if labels.used[row] & sets.words[k]:
                continue
            after = sets.members[k]
            for p in range(orders):
                fits = True
                for z in range(size):
                    u, to = before[z], sets.orders[p, z]
                    v = after[to]
                    new_total[to] = labels.net[row, z] + net[u, v]
                    new_left[to] = min(labels.left[row, z] - hops[u, v], allowed[k] - new_total[to])
                    if new_left[to] < least[v]:
                        fits = False
                        break
                if not fits:
                    continue
                if found == room:
                    if room == most:
                        return Labels(used, last, total, left, parent, order), False
                    room = min(2 * room, most)
                    used, last = _longer(used, room), _longer(last, room)
                    parent, order = _longer(parent, room), _longer(order, room)
                    total, left = _longer_rows(total, room), _longer_rows(left, room)
                used[found], last[found] = labels.used[row] | sets.words[k], k
                parent[found], order[found] = row, p
                total[found], left[found] = new_total, new_left
                found += 1
    return Labels(used[:found], last[:found], total[:found], left[:found], parent[:found], order[:found]), True


@jit
def _longer(values: Ints, room: int) -> Ints:
    longer = np.empty(room, np.int64)
    longer[: len(values)] = values
    return longer


@jit
def _longer_rows(values: Floats, room: int) -> Floats:
    longer = np.empty((room, values.shape[1]))
    longer[: len(values)] = values
    return longer


def undominated(labels: Labels) -> Labels:
    """The labels that no other one of their state dominates, (2)."""
    if len(labels.used) < 2:
        return labels
    # Of one state labels with much left come first, so that few are compared with all that are kept.
    order = np.lexsort((-labels.left.min(axis=1), labels.last, labels.used))
    kept = order[_kept(labels.used[order], labels.last[order], labels.net[order], labels.left[order])]
    return Labels._make(figures[kept] for figures in labels)


@jit
def _kept(used: Ints, last: Ints, net: Floats, left: Floats) -> Ints:
    """Rows that no row of their state dominates, rows of a state being neighbours."""
    kept = np.empty(len(used), np.int64)
    found, begin = 0, 0
    for row in range(len(used)):
        if row and (used[row] != used[row - 1] or last[row] != last[row - 1]):
            begin = found
        dominated = False
        for at in range(begin, found):
            if (net[kept[at]] <= net[row]).all() and (left[kept[at]] >= left[row]).all():
                dominated = True
                break
        if not dominated:
            kept[found] = row
            found += 1
    return kept[:found]
