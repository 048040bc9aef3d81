r"""
Labels of bound ``node-slots``: the compiled loops of ``taut.solver.placement.exact.node_slots``, (2) to (4) there.

A state is (x, i, s): stages from x on, on layers from i on, in state s of the slots
(``taut.solver.placement.exact.slot_states``). Its labels are pairs (S, W), of which none is at least another in both.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.mechanisms.latency_models import ALL_STAGES, SLOWEST_RING
from taut.solver.partition_labels import MOST_LABELS, Labels, cheapest, place_label


class Figures(NamedTuple):
    """
    Seconds and bytes by range of layers, by set of kinds of block q, and by vector of slots v.

    ``low``, ``high`` (q, recompute, L+1, L+1), ``forward`` (q, L+1, L+1), ``budget`` (q,), ``update`` (L+1, L+1) the
    bytes of the optimizer's step; ``kinds`` (V,) is the q of every vector. ``hop`` and ``before`` (messages, V, V)
    are the least seconds of a cut between two vectors, in full and without the way back; ``message`` (L+1,) is the
    number of a cut's message. ``ring`` (V,) seconds per byte of ``exchanged`` (L+1, L+1) and ``ring_latency`` (V,)
    seconds; ``tied`` is what stage 0 waits for at least, ``tail`` (L+1,) what comes after the reductions of a stage 0
    that ends at layer j; ``waits`` is what is waited for
    (``taut.formulations.mechanisms.latency_models`` (1)). ``ends`` (V,) are the vectors that the last stage may take.
    """

    low: Floats
    high: Floats
    forward: Floats
    budget: Ints
    kinds: Ints
    fixed: Ints
    activation: Ints
    in_flight: Ints
    update: Ints
    hop: Floats
    before: Floats
    message: Ints
    ring: Floats
    ring_latency: Floats
    exchanged: Floats
    tied: float
    tail: Floats
    waits: int
    ends: Flags


class States(NamedTuple):
    """The arrays of ``taut.solver.placement.exact.slot_states.SlotStates`` without the vectors."""

    first: Ints
    vector: Ints
    begin: Ints
    following: Ints
    onto: Ints


@jit
def room(figures: Figures, states: States) -> Labels:
    """Room for the labels of every state."""
    layers, pp, widest = figures.low.shape[2] - 1, len(figures.in_flight), 1
    for x in range(pp):
        widest = max(widest, states.first[x + 1] - states.first[x])
    shape = (pp + 1, layers + 1, widest, 1, MOST_LABELS)
    return Labels(np.empty(shape), np.empty(shape), np.empty(shape[:4], np.int16), np.empty((*shape, 4), np.int16))


@jit
def least_sum(figures: Figures, states: States, threshold: float, picks: Ints, labels: Labels) -> float:
    """Least seconds beside (m - 1) times the threshold; end, recompute and state of every stage go to ``picks``."""
    layers, pp = figures.low.shape[2] - 1, len(figures.in_flight)
    labels.number[:] = 0
    labels.number[pp, layers, 0, 0] = 1
    labels.sums[pp, layers, 0, 0, 0], labels.waits[pp, layers, 0, 0, 0] = 0.0, -np.inf
    for x in range(pp - 1, -1, -1):
        _extend(figures, states, threshold, x, labels)
    best, at = np.inf, -1
    for s in range(states.first[1]):
        if labels.number[0, 0, s, 0] and labels.sums[0, 0, s, 0, 0] < best:
            best, at = labels.sums[0, 0, s, 0, 0], s
    i, k = 0, 0
    for x in range(pp if at >= 0 else 0):
        chosen = labels.step[x, i, at, 0, k]
        picks[x, 0], picks[x, 1], picks[x, 2] = chosen[0], chosen[1], at
        i, at, k = chosen[0], chosen[2], chosen[3]
    return float(best)


@jit
def _extend(figures: Figures, states: States, threshold: float, x: int, labels: Labels) -> None:
    """Fill the labels of stage x from those of stage x + 1 over the ranges [i, j) that it can take."""
    layers, pp = figures.low.shape[2] - 1, len(figures.in_flight)
    sets, held, last_end = figures.low.shape[0], figures.in_flight[x], layers - (pp - 1 - x)
    seconds, recompute = np.empty(sets), np.empty(sets, np.int64)
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(layers if x == pp - 1 else i + 1, last_end + 1):
            within = False
            for q in range(sets):
                seconds[q], recompute[q] = cheapest(
                    figures.low,
                    figures.high,
                    figures.fixed,
                    figures.activation,
                    held,
                    figures.budget[q],
                    threshold,
                    q,
                    i,
                    j,
                )
                if figures.update[i, j] > figures.budget[q]:
                    recompute[q] = -1
                within = within or recompute[q] >= 0
            if within:
                _put_in_front(figures, states, x, i, j, seconds, recompute, labels)


@jit
def _put_in_front(
    figures: Figures, states: States, x: int, i: int, j: int, seconds: Floats, recompute: Ints, labels: Labels
) -> None:
    """Stage x on layers [i, j) in every state, in front of the labels of the states that it leads to."""
    sums, waits, count, step = labels
    last, message, least = x == len(figures.in_flight) - 1, figures.message[j], _least_wait(figures)
    for state in range(states.first[x], states.first[x + 1]):
        s, v = state - states.first[x], states.vector[state]
        q = figures.kinds[v]
        if recompute[q] < 0 or (last and not figures.ends[v]):
            continue
        ring = figures.ring[v] * figures.exchanged[i, j] + figures.ring_latency[v]
        for at in range(states.begin[state], states.begin[state + 1]):
            after, v2 = states.following[at], states.onto[at]
            hop = 0.0 if last else figures.hop[message, v, v2]
            ahead = figures.forward[q, i, j] + (0.0 if last else figures.before[message, v, v2])
            for k in range(count[x + 1, j, after, 0]):
                total, longest = seconds[q] + hop + sums[x + 1, j, after, 0, k], waits[x + 1, j, after, 0, k]
                if figures.waits == ALL_STAGES:
                    longest = max(total + ring, ahead + longest, total + least)
                elif figures.waits == SLOWEST_RING:
                    longest = max(ring, longest)
                if x == 0:
                    total, longest = _whole(figures, total, longest, ring) + figures.tail[j], -np.inf
                label, origin = (x, i, s, 0), (j, recompute[q], after, k)
                place_label(sums[label], waits[label], count, step[label], label, total, longest, origin)


@jit
def _least_wait(figures: Figures) -> float:
    """What stage 0 waits for at least, whatever its layers: a shorter wait of a later stage never counts."""
    least = np.inf
    for j in range(1, figures.exchanged.shape[0]):
        for v in range(len(figures.ring)):
            least = min(least, figures.ring[v] * figures.exchanged[0, j] + figures.ring_latency[v])
    return max(least, figures.tied)


@jit
def _whole(figures: Figures, total: float, longest: float, ring: float) -> float:
    """Seconds of a step without what comes after the reductions, from the labels of stage 0."""
    if figures.waits == ALL_STAGES:
        return max(longest, total + figures.tied)
    return total + (longest if figures.waits == SLOWEST_RING else ring)
