r"""
Labels of the states of one device: times that no schedule through a state undercuts.

A *label* of a state n (:mod:`taut.solver.schedules.bound.states`) is a lower bound t on the end of its last pass and,
for every pass k that is under way from stream s - 1 to s (:math:`n_s \le k < n_{s-1}`), lower bounds on the start of
pass k of s: the raw one and the normal one

.. math:: e_{s-1,k} + \ell_s, \qquad r_k = \max\Big(t, \; r_{k-1} + p_s, \;
    \max_{j \le k} \big( e_{s-1,j} + \ell_s + (k - j) \sigma_s \big) \Big) \tag{1}

with the end e of pass k of s - 1, the seconds p of a pass, the least time :math:`\ell` between both passes and the
least time :math:`\sigma` between two micro-batches at a chunk in between. Running the next pass of s ends at

.. math:: e = \max(t, r_k, h_{s,k}) + p_s, \qquad e + q_{s,k} \le T, \tag{2}

h and q being a head and a tail of this pass, T the makespan aimed at. A label whose t and normal values are not above
another's makes that superfluous; where a state would get more than ``width`` of them, the new one and that which
differs least from it are replaced by their minimum, which lies below both (3). Reversed in time all of this holds with
tails for heads. A forward and a backward label of one state that lie below the same schedule of makespan at most T obey

.. math:: t + t' \le T, \qquad r_k + r'_k - \ell_s \le T, \tag{4}

the r of one normal, that of the other raw.

A label is a row: t, then the normal values of all streams' passes under way, then the raw ones in the same order.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit


@jit
def fill_queues(n: Ints, takes: int, gives: int, queue: Ints, lagged: Ints) -> None:
    """Passes under way to each lagged stream after one was taken from a queue and one given to another."""
    for c in lagged:
        queue[c] = n[c - 1] - n[c] - (1 if c == takes else 0) + (1 if c == gives else 0)


@jit
def extend(
    old: Ints,
    label: Ints,
    forwards: bool,
    s: int,
    early: int,
    latest: int,
    takes: int,
    gives: int,
    chain: int,
    queue: Ints,
    seconds: Ints,
    lag: Ints,
    spacing: Ints,
    lagged: Ints,
    slot: Ints,
    slots: int,
) -> bool:
    """Write the label after one more pass of s, (1) and (2); False if that pass ends too late."""
    begin = max(old[0], early)
    if takes < chain and slot[takes] >= 0:
        begin = max(begin, old[slot[takes] + (0 if forwards else queue[takes])])
    end = begin + seconds[s]
    if end > latest:
        return False
    label[0] = end
    for c in lagged:
        a, b, q = slot[c], slot[c] + slots, queue[c]
        # Taken from the front and given to the back, or the other way about in reversed time.
        source = (1 if c == takes else 0) if forwards else (-1 if c == gives else 0)
        for j in range(q):
            label[a + j], label[b + j] = old[a + j + source], old[b + j + source]
        if c == gives:
            new = q - 1 if forwards else 0
            label[b + new] = end + lag[c]
            label[a + new] = end + lag[c]
            for j in range(q):
                label[a + new] = max(label[a + new], label[b + j] + abs(new - j) * spacing[c])
        floor, pace = end, seconds[c] if forwards else seconds[c - 1]
        for at in range(q):
            j = a + (at if forwards else q - 1 - at)
            label[j] = max(label[j], floor)
            floor = label[j] + pace
    return True


@jit
def meets(label: Ints, least: Ints, target: int, queue: Ints, lag: Ints, lagged: Ints, slot: Ints) -> bool:
    """Whether a label obeys (4) with the least values of the other direction."""
    if label[0] + least[0] > target:
        return False
    for c in lagged:
        for j in range(slot[c], slot[c] + queue[c]):
            if label[j] + least[j] - lag[c] > target:
                return False
    return True


@jit
def admit(
    label: Ints,
    state: int,
    labels: Ints,
    follow: Ints,
    first: Ints,
    count: Ints,
    filled: int,
    width: int,
    queue: Ints,
    lagged: Ints,
    slot: Ints,
) -> int:
    """Add a label to its state unless it is superfluous, or merge it, (3); return how many rows of labels are used."""
    nearest, difference, before, other = -1, np.iinfo(np.int64).max, -1, first[state]
    while other >= 0:
        below, above, loss = _compare(labels[other], label, queue, lagged, slot)
        if below:
            return filled
        after = follow[other]
        if above:
            count[state] -= 1
            if before < 0:
                first[state] = after
            else:
                follow[before] = after
        else:
            before = other
            if loss < difference:
                nearest, difference = other, loss
        other = after
    if count[state] == width:
        labels[nearest] = np.minimum(labels[nearest], label)
        return filled
    labels[filled], follow[filled] = label, first[state]
    first[state] = filled
    count[state] += 1
    return filled + 1


@jit
def _compare(one: Ints, other: Ints, queue: Ints, lagged: Ints, slot: Ints) -> tuple[bool, bool, int]:
    """Whether no value of t and of the normal values is above, or below, the other's; sum of the differences."""
    below, above = one[0] <= other[0], one[0] >= other[0]
    loss = abs(one[0] - other[0])
    for c in lagged:
        for j in range(slot[c], slot[c] + queue[c]):
            below &= one[j] <= other[j]
            above &= one[j] >= other[j]
            loss += abs(one[j] - other[j])
    return below, above, loss
