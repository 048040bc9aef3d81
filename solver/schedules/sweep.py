r"""
Forward and backward sweeps over the states of one device, with labels that bound every schedule from below.

The states (8) with equally many passes over are a *layer*. From the state in which nothing is over, a sweep extends the
labels of each layer by every pass that may come next, so the labels of layer i + 1 are

.. math:: L_{i+1} = \{ \text{label after one more pass of } s : \text{label} \in L_i, \; 0 \le s < S \}, \tag{1}

less those that end too late for the makespan T aimed at, are dominated or merged. A backward sweep begins with the
state in which all is over. Each sweep drops labels that cannot belong to a schedule of makespan at most T, by comparing
them with the minimum over the labels that the sweep before, in the other direction, kept for their state (2); this is
bounded bidirectional dynamic programming [1]_. No label is dropped for the reason that another order is as good, so
each sweep keeps one that bounds every schedule of makespan at most T. If it keeps none there is no such schedule (3).

A *label* of a state n is a lower bound t on the end of its last pass and, for every pass k that is
under way from stream s - 1 to s (:math:`n_s \le k < n_{s-1}`), lower bounds on the start of pass k of s: the raw one
and the normal one

.. math:: e_{s-1,k} + \ell_s, \qquad r_k = \max\Big(t, \; r_{k-1} + p_s, \;
    \max_{j \le k} \big( e_{s-1,j} + \ell_s + (k - j) \sigma_s \big) \Big) \tag{4}

with the end e of pass k of s - 1, the duration p of a pass, the least time :math:`\ell` between both passes and the
least time :math:`\sigma` between two micro-batches at a chunk in between. Running the next pass of s ends at

.. math:: e = \max(t, r_k, h_{s,k}) + p_s, \qquad e + q_{s,k} \le T, \tag{5}

h and q being head and tail of this pass and T the makespan aimed at.

Dominance [2]_: a label is superfluous if another of its state has t and normal values that are not above its own.
Merging: where a state would get more than ``width`` labels, the new one and that which differs least from it are
replaced by their minimum, which bounds both from below (6). So a layer of states is a relaxed decision diagram of
limited width [3]_. Reversed in time all of this holds with tails for heads. A forward and a backward label of one state
that bound the same schedule of makespan at most T obey

.. math:: t + t' \le T, \qquad r_k + r'_k - \ell_s \le T, \tag{7}

the r of one normal, that of the other raw.

A label is a row: t, the normal values of all passes under way stream by stream, the raw ones in the same order, and the
row of the next label of its state, -1 after the last. All values are whole time units.

Sets
    Streams :math:`s = 0, \dots, S - 1` of equal passes of one device, each run in the order :math:`k = 0, 1, \dots` The
    first 2v are the chain that every micro-batch runs through: v forward passes, then v gradients by the input. The
    others are gradients by the weights, one stream for all chunks in which they are equal.

Data
    Times are whole time units of ``taut.solver.schedules.one_machine``. Stream s has :math:`m_s` passes of
    :math:`p_s` units, each of which changes the memory held by :math:`\mu_s`; m micro-batches, memory limit M.

A state n says how many passes of each stream are over. Allowed are

.. math:: n_0 \le m, \quad n_s \le n_{s-1} \; (0 < s < 2v), \quad n_s \le \sum_{r \in G_s} n_r \; (s \ge 2v), \quad
    \sum_s \mu_s n_s \le M, \tag{8}

:math:`G_s` being the gradients by the input that stream s follows. Memory is taken at the start of a forward pass and
given back at the end of others, so every peak is the memory of a state. One number tells states apart, the *key*

.. math:: \sum_s \rho_s n_s, \qquad \rho_s = \prod_{r < s} (m_r + 1). \tag{9}

These are the states of a dynamic program over sets of finished jobs [4]_, which are counts here because the passes of a
stream are interchangeable.

References
----------
.. [1] Righini, G. and Salani, M. (2006). Symmetry helps: bounded bi-directional dynamic programming for the elementary
       shortest path problem with resource constraints. Discrete Optimization 3: 255-273.
.. [2] Desrochers, M. and Soumis, F. (1988). A generalized permanent labelling algorithm for the shortest path problem
       with time windows. INFOR 26: 191-212.
.. [3] Andersen, H.R., Hadzic, T., Hooker, J.N. and Tiedemann, P. (2007). A constraint store based on multivalued
       decision diagrams. Principles and Practice of Constraint Programming (CP): 118-132.
.. [4] Held, M. and Karp, R.M. (1962). A dynamic programming approach to sequencing problems. Journal of SIAM 10:
       196-210.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit, jit_inside, longer

SIZE, SECONDS, MEMORY, RADIX, LAG, SPACING, SLOT = range(7)
"""Columns of ``OneMachine.streams``."""


class OneMachine(NamedTuple):
    """
    The one-machine relaxation of a device.

    ``streams`` has a row for each stream (S, 7): passes, time units of each, its change of memory, the factor (9) of
    the key, the lag from the same pass of the stream before (0 if no other device lies between), the least spacing of
    micro-batches on that way, and the column of a label at which its first pass under way stands (-1 without a lag).
    ``follower`` (2v,) is the stream of a chain's weight gradient, -1 for forward passes; ``head`` and ``tail`` (S,
    passes) are time units; ``slots`` passes under way have values in a label.
    """

    streams: Ints
    follower: Ints
    head: Ints
    tail: Ints
    limit: int
    slots: int


@jit
def decode(key: int, n: Ints, streams: Ints, forwards: bool) -> tuple[int, int]:
    """Fill ``n`` (S,) with the passes over in a key's state, (9): memory held, and time units still to run that way."""
    held, rest = 0, 0
    for s in range(len(n) - 1, -1, -1):
        n[s] = key // streams[s, RADIX]
        key -= n[s] * streams[s, RADIX]
        held += streams[s, MEMORY] * n[s]
        rest += streams[s, SECONDS] * (streams[s, SIZE] - n[s] if forwards else n[s])
    return held, rest


@jit_inside
def is_allowed(forwards: bool, s: int, n: Ints, held: int, streams: Ints, follower: Ints, limit: int) -> bool:
    """Whether one more pass of stream s, or backwards one less, is allowed after n (S,) with memory held, (8)."""
    chain = len(follower)
    if forwards:
        if n[s] == streams[s, SIZE] or held + streams[s, MEMORY] > limit:
            return False
        if s < chain:
            return s == 0 or n[s] < n[s - 1]
        return bool(n[s] < _followed(n, follower, s))
    if n[s] == 0 or held - streams[s, MEMORY] > limit:
        return False
    if s >= chain:
        return True
    if s + 1 < chain and n[s] == n[s + 1]:
        return False
    f = follower[s]
    return bool(f < 0 or n[f] < _followed(n, follower, f))


@jit_inside
def _followed(n: Ints, follower: Ints, s: int) -> int:
    """Gradients by the input that are over and that a stream of weight gradients follows."""
    total = 0
    for c in range(len(follower)):
        if follower[c] == s:
            total += n[c]
    return total


class Step(NamedTuple):
    """
    One more pass of a stream.

    It ``takes`` the first pass under way to a stream and ``gives`` one to another; it starts no earlier than ``early``
    and must end by ``latest``.
    """

    forwards: bool
    stream: int
    takes: int
    gives: int
    early: int
    latest: int


@jit_inside
def queue_lengths(n: Ints, takes: int, gives: int, streams: Ints, queue: Ints) -> None:
    """Count the passes under way to each stream of the chain (2v,) after a step from n; 0 without a lag."""
    for c in range(len(queue)):
        queue[c] = 0
        if streams[c, SLOT] >= 0:
            queue[c] = n[c - 1] - n[c] - (1 if c == takes else 0) + (1 if c == gives else 0)


@jit
def extend(old: Ints, label: Ints, step: Step, queue: Ints, streams: Ints, slots: int) -> bool:
    """Fill ``label`` with an old one after one more pass, (4) and (5); False if that ends too late."""
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
    """Whether a label may belong to a schedule that ends by T beside the other direction's least values, (7)."""
    if label[0] + least[0] > target:
        return False
    for c in range(len(queue)):
        for j in range(streams[c, SLOT], streams[c, SLOT] + queue[c]):
            if label[j] + least[j] - streams[c, LAG] > target:
                return False
    return True


@jit_inside
def admit(
    label: Ints, state: int, labels: Ints, table: Ints, filled: int, width: int, queue: Ints, streams: Ints
) -> int:
    """Add a label to its state unless dominated, or merge it, (6), at most ``width`` a state: the rows then in use."""
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
    for j in range(last):
        labels[filled, j] = label[j]
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


class SweptStates(NamedTuple):
    """
    The states that a sweep kept, layer after layer.

    ``first``: row of each layer's first state, then their number (layers + 1,); ``keys``: key of each state (n,);
    ``least``: least t and least raw values of its labels, in time units (n, 1 + slots).
    """

    first: Ints
    keys: Ints
    least: Ints


class _Layer(NamedTuple):
    """States with equally many passes over: their keys (n,), first label of each (n,), and labels, one a row."""

    keys: Ints
    first: Ints
    labels: Ints


def no_states() -> SweptStates:
    """Nothing to compare the labels of the first sweep with."""
    return SweptStates(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.int64))


@jit
def sweep(
    machine: OneMachine, forwards: bool, target: int, width: int, most: int, opposite: SweptStates
) -> tuple[int, int, SweptStates]:
    """
    Sweep once over all states for the makespan T ``target``, guided by the last sweep in the other direction.

    Returns 1 if labels are kept at the end, 0 if none is, -1 if more than ``most`` were extended; labels extended; the
    states kept.
    """
    size, slots = machine.streams[:, SIZE], machine.slots
    layers = size.sum() + 1
    begin = 0 if forwards else (machine.streams[:, RADIX] * size).sum()
    start = np.zeros((1, 2 + 2 * slots), np.int64)
    start[0, -1] = -1
    layer = _Layer(np.full(1, begin), np.zeros(1, np.int64), start)
    swept = SweptStates(np.zeros(layers + 1, np.int64), np.empty(256, np.int64), np.empty((256, 1 + slots), np.int64))
    work, rows = 0, 0
    for step in range(layers):
        rows += len(layer.keys)
        if rows > len(swept.keys):
            swept = SweptStates(swept.first, longer(swept.keys, 2 * rows), longer(swept.least, 2 * rows))
        swept.first[step + 1] = rows
        _keep(layer, swept, step, slots)
        if step == layers - 1:
            break
        other = layers - 2 - step
        a, b = (opposite.first[other], opposite.first[other + 1]) if len(opposite.keys) else (0, 0)
        layer, done = _next_layer(machine, forwards, target, width, layer, opposite.keys[a:b], opposite.least[a:b])
        work += done
        if len(layer.keys) == 0 or work > most:
            return 0 if len(layer.keys) == 0 else -1, work, swept
    return 1, work, SweptStates(swept.first, swept.keys[:rows], swept.least[:rows])


@jit_inside
def _keep(layer: _Layer, swept: SweptStates, step: int, slots: int) -> None:
    """Note the states of a layer with the minimum over their labels of t and of the raw values."""
    for i in range(len(layer.keys)):
        row, label = swept.first[step] + i, layer.first[i]
        swept.keys[row] = layer.keys[i]
        swept.least[row] = np.iinfo(np.int64).max
        while label >= 0:
            values, least = layer.labels[label], swept.least[row]
            least[0] = min(least[0], values[0])
            for j in range(1, 1 + slots):
                least[j] = min(least[j], values[slots + j])
            label = values[-1]


@jit
def _place(table: Ints, keys: Ints, key: int) -> int:
    """Place in an open hash table at which the number of a key is, or would be."""
    mask = len(table) - 1
    # Fibonacci hashing: 2^64 over the golden ratio, as a signed number.
    place = ((key * np.int64(-7046029254386353131)) >> np.int64(24)) & mask
    while table[place] >= 0 and keys[table[place]] != key:
        place = (place + 1) & mask
    return int(place)


@jit_inside
def _next_layer(
    machine: OneMachine,
    forwards: bool,
    target: int,
    width: int,
    layer: _Layer,
    opposite_keys: Ints,
    opposite_least: Ints,
) -> tuple[_Layer, int]:
    """Extend the labels of all states of a layer by every pass that may come next, (1) and (2)."""
    # Arrays taken out of a tuple inside the loop would each be counted as another reference.
    streams, follower, head, tail, limit, slots = machine
    guided, states, count = len(opposite_keys) > 0, len(opposite_keys), len(streams)
    room = max(states, len(layer.keys) * count)
    keys, found = np.empty(room, np.int64), np.zeros((room, 2), np.int64)
    found[:, 0] = -1
    for i in range(states):
        keys[i] = opposite_keys[i]
    labels = np.zeros((len(layer.labels) * count, layer.labels.shape[1]), np.int64)
    table = np.full(_power(2 * room), -1)
    for i in range(states):
        table[_place(table, keys, keys[i])] = i
    n, queue = np.empty(count, np.int64), np.zeros(len(follower), np.int64)
    label, unguided = np.zeros(labels.shape[1], np.int64), np.full(1 + slots, -(1 << 60))
    work, filled, old_labels, last = 0, 0, layer.labels, labels.shape[1] - 1
    for i in range(len(layer.keys)):
        held, rest = decode(layer.keys[i], n, streams, forwards)
        for s in range(count):
            if not is_allowed(forwards, s, n, held, streams, follower, limit):
                continue
            key = layer.keys[i] + (streams[s, RADIX] if forwards else -streams[s, RADIX])
            place = _place(table, keys, key)
            state = table[place]
            if guided and state < 0:
                continue
            k = n[s] if forwards else n[s] - 1
            early, late = (head[s, k], tail[s, k]) if forwards else (tail[s, k], head[s, k])
            late = max(late, rest - streams[s, SECONDS])
            takes, gives = (s, s + 1) if forwards else (s + 1, s)
            queue_lengths(n, takes, gives, streams, queue)
            step = Step(forwards, s, takes, gives, early, target - late)
            least = opposite_least[state] if guided else unguided
            old = layer.first[i]
            while old >= 0:
                work += 1
                fits = extend(old_labels[old], label, step, queue, streams, slots)
                fits = fits and meets(label, least, target, queue, streams)
                old = old_labels[old, last]
                if not fits:
                    continue
                if state < 0:
                    state, keys[states], table[place] = states, key, states
                    states += 1
                filled = admit(label, state, labels, found, filled, width, queue, streams)
    first = found[:states, 0].copy()
    kept = np.flatnonzero(first >= 0)
    return _Layer(keys[kept], first[kept], labels[:filled]), work


@jit_inside
def _power(least: int) -> int:
    """The first power of two that is not below."""
    power = 64
    while power < least:
        power *= 2
    return power
