r"""
Labels of the states of one device: lower bounds on the times of every schedule through a state.

A *label* of a state n (``taut.solver.schedules.bound.states``) is a lower bound t on the end of its last pass and, for
every pass k that is under way from stream s - 1 to s (:math:`n_s \le k < n_{s-1}`), lower bounds on the start of pass k
of s: the raw one and the normal one

.. math:: e_{s-1,k} + \ell_s, \qquad r_k = \max\Big(t, \; r_{k-1} + p_s, \;
    \max_{j \le k} \big( e_{s-1,j} + \ell_s + (k - j) \sigma_s \big) \Big) \tag{1}

with the end e of pass k of s - 1, the duration p of a pass, the least time :math:`\ell` between both passes and the
least time :math:`\sigma` between two micro-batches at a chunk in between. Running the next pass of s ends at

.. math:: e = \max(t, r_k, h_{s,k}) + p_s, \qquad e + q_{s,k} \le T, \tag{2}

h and q being head and tail of this pass and T the makespan aimed at.

Dominance [1]_: a label is superfluous if another of its state has t and normal values that are not above its own.
Merging: where a state would get more than ``width`` labels, the new one and that which differs least from it are
replaced by their minimum, which bounds both from below (3). So a layer of states is a relaxed decision diagram of
limited width [2]_. Reversed in time all of this holds with tails for heads. A forward and a backward label of one state
that bound the same schedule of makespan at most T obey

.. math:: t + t' \le T, \qquad r_k + r'_k - \ell_s \le T, \tag{4}

the r of one normal, that of the other raw.

A label is a row: t, the normal values of all passes under way stream by stream, the raw ones in the same order, and the
row of the next label of its state, -1 after the last. All values are whole time units.

References
----------
.. [1] Desrochers, M. and Soumis, F. (1988). A generalized permanent labelling algorithm for the shortest path problem
       with time windows. INFOR 26: 191-212.
.. [2] Andersen, H.R., Hadzic, T., Hooker, J.N. and Tiedemann, P. (2007). A constraint store based on multivalued
       decision diagrams. Principles and Practice of Constraint Programming (CP): 118-132.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.bound.states import LAG, SECONDS, SLOT, SPACING


class Step(NamedTuple):
    """
    One more pass.

    Parameters
    ----------
    forwards
        Direction of time.
    stream
        Stream of the pass.
    takes, gives
        Streams whose first pass under way it ends, and to which it adds one.
    early, latest
        Time units before which it cannot start, and by which it must end.
    """

    forwards: bool
    stream: int
    takes: int
    gives: int
    early: int
    latest: int


@jit
def queue_lengths(n: Ints, takes: int, gives: int, streams: Ints, queue: Ints) -> None:
    """
    Count the passes under way after one was taken from a queue and one given to another.

    ``n``: passes over by stream before (S,); ``takes``, ``gives``: as in ``Step``; ``streams``: of ``OneMachine``;
    ``queue``: filled with the passes under way to each stream of the chain, 0 where there is no lag (2v,).
    """
    for c in range(len(queue)):
        queue[c] = 0
        if streams[c, SLOT] >= 0:
            queue[c] = n[c - 1] - n[c] - (1 if c == takes else 0) + (1 if c == gives else 0)


@jit
def extend(old: Ints, label: Ints, step: Step, queue: Ints, streams: Ints, slots: int) -> bool:
    """
    Extend a label by one more pass, (1) and (2).

    ``label``: filled with the new one, but for the row of the next; ``queue``: passes under way after it (2v,);
    ``streams``, ``slots``: of ``OneMachine``. Returns False if the pass ends too late.
    """
    forwards, s, takes, gives, early, latest = step
    begin = max(old[0], early)
    if takes < len(queue) and streams[takes, SLOT] >= 0:
        begin = max(begin, old[streams[takes, SLOT] + (0 if forwards else queue[takes])])
    end = begin + streams[s, SECONDS]
    if end > latest:
        return False
    label[0] = end
    for c in range(len(queue)):
        a, q = streams[c, SLOT], queue[c]
        if a < 0:
            continue
        b = a + slots
        # Taken from the front and given to the back, or the other way about in reversed time.
        source = (1 if c == takes else 0) if forwards else (-1 if c == gives else 0)
        for j in range(q):
            label[a + j], label[b + j] = old[a + j + source], old[b + j + source]
        if c == gives:
            new = q - 1 if forwards else 0
            label[b + new] = end + streams[c, LAG]
            label[a + new] = end + streams[c, LAG]
            for j in range(q):
                label[a + new] = max(label[a + new], label[b + j] + abs(new - j) * streams[c, SPACING])
        floor, pace = end, streams[c if forwards else c - 1, SECONDS]
        for at in range(q):
            j = a + (at if forwards else q - 1 - at)
            label[j] = max(label[j], floor)
            floor = label[j] + pace
    return True


@jit
def meets(label: Ints, least: Ints, target: int, queue: Ints, streams: Ints) -> bool:
    """
    Whether a label may belong to a schedule that ends by T, (4).

    ``label``: a label of one direction; ``least``: least t and raw values of its state's labels in the other direction;
    ``target``: T in time units; ``queue``: passes under way (2v,); ``streams``: of ``OneMachine``.
    """
    if label[0] + least[0] > target:
        return False
    for c in range(len(queue)):
        for j in range(streams[c, SLOT], streams[c, SLOT] + queue[c]):
            if label[j] + least[j] - streams[c, LAG] > target:
                return False
    return True


@jit
def admit(
    label: Ints, state: int, labels: Ints, table: Ints, filled: int, width: int, queue: Ints, streams: Ints
) -> int:
    """
    Add a label to its state unless it is dominated, or merge it, (3).

    ``state``: number of its state; ``labels``: all labels of the layer, rows up to ``filled`` in use; ``table``: first
    label and number of labels of each state (states, 2); ``filled``, ``width``: rows in use, and most labels of a
    state; ``queue``: passes under way (2v,); ``streams``: of ``OneMachine``. Returns rows in use afterwards.
    """
    nearest, difference, before, other = -1, np.iinfo(np.int64).max, -1, table[state, 0]
    last = len(label) - 1
    while other >= 0:
        below, above, loss = _compare(labels[other], label, queue, streams)
        if below:
            return filled
        after = labels[other, last]
        if above:
            table[state, 1] -= 1
            if before < 0:
                table[state, 0] = after
            else:
                labels[before, last] = after
        else:
            before = other
            if loss < difference:
                nearest, difference = other, loss
        other = after
    if table[state, 1] == width:
        for j in range(last):
            labels[nearest, j] = min(labels[nearest, j], label[j])
        return filled
    labels[filled] = label
    labels[filled, last] = table[state, 0]
    table[state, 0] = filled
    table[state, 1] += 1
    return filled + 1


@jit
def _compare(one: Ints, other: Ints, queue: Ints, streams: Ints) -> tuple[bool, bool, int]:
    """Whether no value of t and of the normal values is above, or below, the other's; sum of the differences."""
    below, above = one[0] <= other[0], one[0] >= other[0]
    loss = abs(one[0] - other[0])
    for c in range(len(queue)):
        for j in range(streams[c, SLOT], streams[c, SLOT] + queue[c]):
            below &= one[j] <= other[j]
            above &= one[j] >= other[j]
            loss += abs(one[j] - other[j])
    return below, above, loss
