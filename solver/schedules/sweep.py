r"""
Sweeps over the states of one device, with labels that lie below every schedule, forwards and backwards in time.

A device runs *streams* s = 0, ..., S - 1 of equal passes, each in the order k = 0, 1, ... The first 2v are the chain
that every micro-batch runs through: v forward passes, then v gradients by the input. The others are weight gradients,
of all chunks that have the same. All times are whole ticks. A state n says how many passes of each stream are over;
allowed are

.. math:: n_0 \le m, \quad n_s \le n_{s-1} \; (0 < s < 2v), \quad n_s \le \sum_{r \in G_s} n_r \; (s \ge 2v), \quad
    \sum_s \mu_s n_s \le M, \tag{1}

:math:`G_s` being the gradients by the input that stream s follows and :math:`\mu_s` the change of memory by a pass. As
memory is taken at the start of a forward pass and given back at the end of others, every peak is that of a state.

A *label* of a state is a lower bound t on the end of its last pass and, for every pass k that is under way from stream
s - 1 to s (:math:`n_s \le k < n_{s-1}`), lower bounds on the start of pass k of s: the raw one and the normal one

.. math:: e_{s-1,k} + \ell_s, \qquad r_k = \max\Big(t, \; r_{k-1} + p_s, \;
    \max_{j \le k} \big( e_{s-1,j} + \ell_s + (k - j) \sigma_s \big) \Big) \tag{2}

with the end e of pass k of s - 1, the seconds p of a pass, the least time :math:`\ell` between both passes and the
least time :math:`\sigma` between two micro-batches at a chunk in between. Running the next pass of s ends at

.. math:: e = \max(t, r_k, h_{s,k}) + p_s, \qquad e + q_{s,k} \le T, \tag{3}

h and q being a head and a tail of this pass, T the makespan aimed at. A label whose t and normal values are not above
another's makes that superfluous; where a state would get more than ``width`` of them, the new one and that which
differs least from it are replaced by their minimum, which lies below both (4). Reversed in time all of this holds with
tails for heads. A forward and a backward label of one state that lie below the same schedule of makespan at most T obey

.. math:: t + t' \le T, \qquad r_k + r'_k - \ell_s \le T, \tag{5}

the r of one normal, that of the other raw. Each sweep drops labels that violate (5) for the minimum over the labels
that the sweep before, in the other direction, has left of the state. No label is dropped for the reason that another
order is as good, so each sweep leaves one below every schedule of makespan at most T. If none is left there is no such
schedule.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from taut.formulations.passes import Ints


class Device(NamedTuple):
    """
    One device, alone: what (1) to (3) need.

    Parameters
    ----------
    chain
        Number 2v of streams in the chain.
    size, seconds, memory
        Number of passes, ticks p of each and its change of memory, by stream (S,).
    follower
        For each gradient by the input, the stream of its weight gradient; -1 for forward passes (2v,).
    limit
        Memory limit M.
    lag, spacing
        Ticks of (2) by stream (S,).
    lagged
        Streams that wait for other devices.
    slot
        Where the values of a lagged stream's first pass under way stand in a label (S,), and how many there are in all.
    head, tail
        Ticks h before the start and q after the end of each pass (S, passes).
    """

    chain: int
    size: Ints
    seconds: Ints
    memory: Ints
    follower: Ints
    limit: int
    lag: Ints
    spacing: Ints
    lagged: Ints
    slot: Ints
    slots: int
    head: Ints
    tail: Ints


class Left(NamedTuple):
    """The states that a sweep left, layer after layer: row of each layer's first, keys, least t and raw values."""

    first: Ints
    keys: Ints
    least: Ints


class _Layer(NamedTuple):
    """States with equally many passes: keys, first label of each, labels (t, normal, raw), next label of the state."""

    keys: Ints
    first: Ints
    labels: Ints
    follow: Ints


def nothing() -> Left:
    """What guides the first sweep."""
    return Left(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.int64))


@njit(cache=True, nogil=True)
def sweep(device: Device, forwards: bool, target: int, width: int, most: int, guide: Left) -> tuple[int, int, Left]:
    """
    Sweep once over all states, by the number of passes that are over.

    Parameters
    ----------
    device
        What is swept.
    forwards
        Direction of time.
    target
        Makespan T aimed at, in ticks.
    width
        Largest number of labels a state keeps, (4).
    most
        Largest number of labels to extend.
    guide
        What a sweep in the other direction left for the same or a larger target.

    Returns
    -------
    tuple
        1 if labels are left at the end, 0 if none is, -1 if there were too many; labels extended; what is left.
    """
    streams, layers = len(device.size), device.size.sum() + 1
    radix = np.ones(streams, np.int64)
    for s in range(1, streams):
        radix[s] = radix[s - 1] * (device.size[s - 1] + 1)
    begin = 0 if forwards else (radix * device.size).sum()
    columns = 1 + 2 * device.slots
    layer = _Layer(np.full(1, begin), np.zeros(1, np.int64), np.zeros((1, columns), np.int64), np.full(1, -1))
    left = Left(np.zeros(layers + 1, np.int64), np.empty(256, np.int64), np.empty((256, 1 + device.slots), np.int64))
    work, rows = 0, 0
    for step in range(layers):
        rows += len(layer.keys)
        if rows > len(left.keys):
            left = Left(left.first, _longer(left.keys, rows), _longer(left.least, rows))
        left.first[step + 1] = rows
        _leave(layer, left, step, device.slots)
        if step == layers - 1:
            break
        opposite = layers - 2 - step
        a, b = (guide.first[opposite], guide.first[opposite + 1]) if len(guide.keys) else (0, 0)
        layer, done = _next_layer(device, forwards, target, width, layer, radix, guide.keys[a:b], guide.least[a:b])
        work += done
        if len(layer.keys) == 0 or work > most:
            return 0 if len(layer.keys) == 0 else -1, work, left
    return 1, work, Left(left.first, left.keys[:rows], left.least[:rows])


@njit(cache=True, nogil=True)
def _longer(rows: Ints, least: int) -> Ints:
    """Copy of an array with room for at least so many rows, and as many again."""
    copy = np.empty((2 * least, *rows.shape[1:]), rows.dtype)
    copy[: len(rows)] = rows
    return copy


@njit(cache=True, nogil=True)
def _leave(layer: _Layer, left: Left, step: int, slots: int) -> None:
    """Note the states of a layer with the minimum over their labels of t and of the raw values."""
    for i in range(len(layer.keys)):
        row, label = left.first[step] + i, layer.first[i]
        left.keys[row] = layer.keys[i]
        left.least[row] = np.iinfo(np.int64).max
        while label >= 0:
            values, least = layer.labels[label], left.least[row]
            least[0] = min(least[0], values[0])
            for j in range(1, 1 + slots):
                least[j] = min(least[j], values[slots + j])
            label = layer.follow[label]


@njit(cache=True, nogil=True)
def _place(table: Ints, keys: Ints, key: int) -> int:
    """Place in an open hash table at which the number of a key is, or would be."""
    mask = len(table) - 1
    place = ((key * np.int64(-7046029254386353131)) >> np.int64(24)) & mask
    while table[place] >= 0 and keys[table[place]] != key:
        place = (place + 1) & mask
    return int(place)


@njit(cache=True, nogil=True)
def _next_layer(
    device: Device,
    forwards: bool,
    target: int,
    width: int,
    layer: _Layer,
    radix: Ints,
    guide_keys: Ints,
    guide_least: Ints,
) -> tuple[_Layer, int]:
    """Extend the labels of all states of a layer by every pass that may come next."""
    chain, size, seconds, memory, follower, limit, lag, spacing, lagged, slot, slots, head, tail = device
    guided, states, streams = len(guide_keys) > 0, len(guide_keys), len(size)
    room = max(states, len(layer.keys) * streams)
    keys, first, count = np.empty(room, np.int64), np.full(room, -1), np.zeros(room, np.int64)
    keys[:states] = guide_keys
    labels = np.zeros((len(layer.labels) * streams, layer.labels.shape[1]), np.int64)
    follow = np.full(len(labels), -1)
    table = np.full(_power(2 * room), -1)
    for i in range(states):
        table[_place(table, keys, keys[i])] = i
    n, queue, label = np.empty(streams, np.int64), np.empty(chain, np.int64), np.zeros(labels.shape[1], np.int64)
    unguided = np.full(1 + slots, -(1 << 60))
    work, filled = 0, 0
    for i in range(len(layer.keys)):
        held, rest = _decode(layer.keys[i], n, radix, size, seconds, memory, forwards)
        for s in range(streams):
            if not _allowed(forwards, s, n, held, chain, size, memory, follower, limit):
                continue
            key = layer.keys[i] + (radix[s] if forwards else -radix[s])
            place = _place(table, keys, key)
            state = table[place]
            if guided and state < 0:
                continue
            k = n[s] if forwards else n[s] - 1
            early, late = (head[s, k], tail[s, k]) if forwards else (tail[s, k], head[s, k])
            late = max(late, rest - seconds[s])
            takes, gives = (s, s + 1) if forwards else (s + 1, s)
            _queues(n, takes, gives, queue, lagged)
            least = guide_least[state] if guided else unguided
            old = layer.first[i]
            while old >= 0:
                work += 1
                fits = _extend(
                    layer.labels[old], label, forwards, s, early, target - late, takes, gives, chain, queue,
                    seconds, lag, spacing, lagged, slot, slots,
                ) and _meets(label, least, target, queue, lag, lagged, slot)  # fmt: skip
                old = layer.follow[old]
                if not fits:
                    continue
                if state < 0:
                    state, keys[states], table[place] = states, key, states
                    states += 1
                filled = _admit(label, state, labels, follow, first, count, filled, width, queue, lagged, slot)
    kept = np.flatnonzero(first[:states] >= 0)
    return _Layer(keys[kept], first[kept], labels[:filled], follow[:filled]), work


@njit(cache=True, nogil=True)
def _power(least: int) -> int:
    """The first power of two that is not below."""
    power = 64
    while power < least:
        power *= 2
    return power


@njit(cache=True, nogil=True)
def _decode(key: int, n: Ints, radix: Ints, size: Ints, seconds: Ints, memory: Ints, forwards: bool) -> tuple[int, int]:
    """Fill in the state of a key; say what memory it holds and how many ticks of passes are still to run."""
    held, rest = 0, 0
    for s in range(len(n) - 1, -1, -1):
        n[s] = key // radix[s]
        key -= n[s] * radix[s]
        held += memory[s] * n[s]
        rest += seconds[s] * (size[s] - n[s] if forwards else n[s])
    return held, rest


@njit(cache=True, nogil=True)
def _allowed(
    forwards: bool, s: int, n: Ints, held: int, chain: int, size: Ints, memory: Ints, follower: Ints, limit: int
) -> bool:
    """Whether the state after (before) one more (less) pass of s is allowed, (1)."""
    if forwards:
        if n[s] == size[s] or held + memory[s] > limit:
            return False
        if s < chain:
            return s == 0 or n[s] < n[s - 1]
        return bool(n[s] < (n[:chain] * (follower == s)).sum())
    if n[s] == 0 or held - memory[s] > limit:
        return False
    if s >= chain:
        return True
    if s + 1 < chain and n[s] == n[s + 1]:
        return False
    f = follower[s]
    return bool(f < 0 or n[f] < (n[:chain] * (follower == f)).sum())


@njit(cache=True, nogil=True)
def _queues(n: Ints, takes: int, gives: int, queue: Ints, lagged: Ints) -> None:
    """Passes under way to each lagged stream after one was taken from a queue and one given to another."""
    for c in lagged:
        queue[c] = n[c - 1] - n[c] - (1 if c == takes else 0) + (1 if c == gives else 0)


@njit(cache=True, nogil=True)
def _extend(
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
    """Write the label after one more pass of s, (2) and (3); False if that pass ends too late."""
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


@njit(cache=True, nogil=True)
def _meets(label: Ints, least: Ints, target: int, queue: Ints, lag: Ints, lagged: Ints, slot: Ints) -> bool:
    """Whether a label obeys (5) with the least values of the other direction."""
    if label[0] + least[0] > target:
        return False
    for c in lagged:
        for j in range(slot[c], slot[c] + queue[c]):
            if label[j] + least[j] - lag[c] > target:
                return False
    return True


@njit(cache=True, nogil=True)
def _admit(
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
    """Add a label to its state unless it is superfluous, or merge it, (4); return how many rows of labels are used."""
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


@njit(cache=True, nogil=True)
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
