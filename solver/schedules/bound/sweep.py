r"""
Sweeps over the states of one device, forwards and backwards in time, with labels that lie below every schedule.

The states (:mod:`taut.solver.schedules.bound.states`) with equally many passes over are a *layer*. From the state in
which nothing is over, a sweep extends the labels (:mod:`taut.solver.schedules.bound.labels`) of each layer by every
pass that may come next, so the labels of layer i + 1 are

.. math:: L_{i+1} = \{ \text{label after one more pass of } s : \text{label} \in L_i, \; 0 \le s < S \}, \tag{1}

less those that end too late for the makespan T aimed at, are superfluous or merged. Backwards it begins with the state
in which all is over. Each sweep drops labels that cannot belong to a schedule of makespan at most T with the minimum
over the labels that the sweep before, in the other direction, has left of the state (2). No label is dropped for the
reason that another order is as good, so each sweep leaves one below every schedule of makespan at most T. If none is
left there is no such schedule (3).
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.bound.labels import admit, extend, fill_queues, meets
from taut.solver.schedules.bound.states import Device, decode, is_allowed, radices


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


@jit
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
        Largest number of labels a state keeps.
    most
        Largest number of labels to extend.
    guide
        What a sweep in the other direction left for the same or a larger target.

    Returns
    -------
    tuple
        1 if labels are left at the end, 0 if none is, -1 if there were too many; labels extended; what is left.
    """
    layers, radix = device.size.sum() + 1, radices(device.size)
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


@jit
def _longer(rows: Ints, least: int) -> Ints:
    """Copy of an array with room for at least so many rows, and as many again."""
    copy = np.empty((2 * least, *rows.shape[1:]), rows.dtype)
    copy[: len(rows)] = rows
    return copy


@jit
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


@jit
def _place(table: Ints, keys: Ints, key: int) -> int:
    """Place in an open hash table at which the number of a key is, or would be."""
    mask = len(table) - 1
    place = ((key * np.int64(-7046029254386353131)) >> np.int64(24)) & mask
    while table[place] >= 0 and keys[table[place]] != key:
        place = (place + 1) & mask
    return int(place)


@jit
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
        held, rest = decode(layer.keys[i], n, radix, size, seconds, memory, forwards)
        for s in range(streams):
            if not is_allowed(forwards, s, n, held, chain, size, memory, follower, limit):
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
            fill_queues(n, takes, gives, queue, lagged)
            least = guide_least[state] if guided else unguided
            old = layer.first[i]
            while old >= 0:
                work += 1
                fits = extend(
                    layer.labels[old], label, forwards, s, early, target - late, takes, gives, chain, queue,
                    seconds, lag, spacing, lagged, slot, slots,
                ) and meets(label, least, target, queue, lag, lagged, slot)  # fmt: skip
                old = layer.follow[old]
                if not fits:
                    continue
                if state < 0:
                    state, keys[states], table[place] = states, key, states
                    states += 1
                filled = admit(label, state, labels, follow, first, count, filled, width, queue, lagged, slot)
    kept = np.flatnonzero(first[:states] >= 0)
    return _Layer(keys[kept], first[kept], labels[:filled], follow[:filled]), work


@jit
def _power(least: int) -> int:
    """The first power of two that is not below."""
    power = 64
    while power < least:
        power *= 2
    return power
