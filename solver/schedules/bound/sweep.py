r"""
Forward and backward sweeps over the states of one device, with labels that bound every schedule from below.

The states (``taut.solver.schedules.bound.states``) with equally many passes over are a *layer*. From the state in which
nothing is over, a sweep extends the labels (``taut.solver.schedules.bound.labels``) of each layer by every pass that
may come next, so the labels of layer i + 1 are

.. math:: L_{i+1} = \{ \text{label after one more pass of } s : \text{label} \in L_i, \; 0 \le s < S \}, \tag{1}

less those that end too late for the makespan T aimed at, are dominated or merged. A backward sweep begins with the
state in which all is over. Each sweep drops labels that cannot belong to a schedule of makespan at most T, by comparing
them with the minimum over the labels that the sweep before, in the other direction, kept for their state (2); this is
bounded bidirectional dynamic programming [1]_. No label is dropped for the reason that another order is as good, so
each sweep keeps one that bounds every schedule of makespan at most T. If it keeps none there is no such schedule (3).

References
----------
.. [1] Righini, G. and Salani, M. (2006). Symmetry helps: bounded bi-directional dynamic programming for the elementary
       shortest path problem with resource constraints. Discrete Optimization 3: 255-273.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.bound.labels import Step, admit, extend, meets, queue_lengths
from taut.solver.schedules.bound.states import RADIX, SECONDS, SIZE, OneMachine, decode, is_allowed


class SweptStates(NamedTuple):
    """
    The states that a sweep kept, layer after layer.

    Parameters
    ----------
    first
        Row of each layer's first state, then their number (layers + 1,).
    keys
        Key of each state (n,).
    least
        Least t and least raw values of its labels, in time units (n, 1 + slots).
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
    Sweep once over all states, layer by layer.

    ``target``: makespan T aimed at, in time units; ``width``: largest number of labels a state keeps; ``most``: largest
    number of labels to extend; ``opposite``: what a sweep in the other direction kept for the same or a larger target.
    Returns 1 if labels are kept at the end, 0 if none is, -1 if there were too many; labels extended; the states kept.
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
            swept = SweptStates(swept.first, _longer(swept.keys, rows), _longer(swept.least, rows))
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


@jit
def _longer(rows: Ints, least: int) -> Ints:
    """Copy of an array with room for at least so many rows, and as many again."""
    copy = np.empty((2 * least, *rows.shape[1:]), rows.dtype)
    copy[: len(rows)] = rows
    return copy


@jit
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


@jit
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
    keys[:states], found[:, 0] = opposite_keys, -1
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


@jit
def _power(least: int) -> int:
    """The first power of two that is not below."""
    power = 64
    while power < least:
        power *= 2
    return power
