r"""
Labels of the division of one pipeline on two classes of device: the loops of ``taut.solver.pipeline_division``.

A state is (x, i, n, c): stages from x on, on layers from i on, after n stages on blocks of the slow class, the last of
them on one of class c (0 fast, 1 slow). Its labels are pairs (S, W) as in ``taut.solver.layer_partition`` (4), of which
none is at least another in both.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.partition_labels import BEYOND, MOST_LABELS, Steps, cheapest, highest, place_label
from taut.solver.threshold_search import Within, least_by_threshold

FAST, SLOW, MIXED_FAST, MIXED_SLOW = 0, 1, 2, 3
"""Patterns: the class that is passed, of a stage that has it alone or both."""


class Passages(NamedTuple):
    """
    Figures of every range by the four patterns: the class of the block, plus two where the stage has both classes.

    Names are those of ``taut.solver.partition_labels``; ``rings`` are seconds per byte of every stage and pattern at
    least, (pp, 4); ``allowed`` says which patterns stages may have, and from ``least_slow`` to ``most_slow`` of them
    are passed on slow blocks; ``beyond`` are seconds that all hops add by their number, (pp + 1,).
    """

    seconds: Floats
    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    size: Floats
    cap: float
    edge: Floats
    tail: Floats
    later: bool
    forward: Floats
    later_edge: Floats
    rings: Floats
    exchanged: Floats
    each: Floats
    others: float
    least_wait: float
    crossing: float
    crossing_before: float
    layers: Ints
    growing: bool
    allowed: Flags
    least_slow: int
    most_slow: int
    beyond: Floats


def least_pipeline(given: Passages, m: int, thresholds: Floats, limit: float) -> tuple[float, Ints | None]:
    """The optimum, or the limit if that is less; and end, recompute, pattern of the stages of a division."""

    def within(threshold: float) -> Within:
        picks = np.zeros((len(given.in_flight), 3), np.int64)
        total = _pipeline_sum(given, threshold, picks)
        return Within(total, highest(given.seconds, picks) if np.isfinite(total) else np.inf, picks)

    return least_by_threshold(within, m, thresholds, limit)


@jit
def _pipeline_sum(given: Passages, threshold: float, picks: Ints) -> float:
    """D_threshold of a pipeline, with the end, recompute and pattern of every stage in ``picks``; infinite for none."""
    layers, pp = given.seconds.shape[2] - 1, len(given.in_flight)
    most = MOST_LABELS if given.later else 1
    shape = (pp + 1, layers + 1, given.most_slow + 1, 2, most)
    sums, waits = np.empty(shape), np.empty(shape)
    count, step = np.zeros(shape[:4], np.int16), np.empty((*shape, 4), np.int16)
    for n in range(given.least_slow, given.most_slow + 1):
        for c in range(2):
            count[pp, layers, n, c] = 1
            sums[pp, layers, n, c, 0], waits[pp, layers, n, c, 0] = given.beyond[n], -np.inf
    for x in range(pp - 1, -1, -1):
        _extend(given, threshold, x, sums, waits, count, step)
    if count[0, 0, 0, 0] == 0:
        return np.inf
    i, n, c, k = 0, 0, 0, 0
    for x in range(pp):
        chosen = step[x, i, n, c, k]
        picks[x, 0], picks[x, 1], picks[x, 2] = chosen[0], chosen[1], chosen[2]
        i, c, k = picks[x, 0], picks[x, 2] % 2, chosen[3]
        n += c
    return float(sums[0, 0, 0, 0, 0])


@jit
def _extend(given: Passages, threshold: float, x: int, sums: Floats, waits: Floats, count: Steps, step: Steps) -> None:
    """Fill the states of stage x from those of stage x + 1 over the ranges [i, j) that stage x can take."""
    layers, pp = given.seconds.shape[2] - 1, len(given.in_flight)
    # Arrays are bound once: each look-up through the tuple would count a reference.
    seconds, fixed, activation, budget = given.seconds, given.fixed, given.activation, given.budget
    size, edge, tail, forward, exchanged = given.size, given.edge, given.tail, given.forward, given.exchanged
    held, held_layers, rings, allowed = given.in_flight[x], given.layers[x], given.rings[x], given.allowed
    last_end, inner = layers - (pp - 1 - x), x < pp - 1
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(max(i + held_layers[0], 0 if inner else layers), min(last_end, i + held_layers[1]) + 1):
            if size[i, j] > given.cap:
                break
            cut = edge[j] if inner else 0.0
            within = False
            for q in range(4):
                own, r = cheapest(seconds, seconds, fixed, activation, held, budget[q], threshold, q, i, j)
                within = within or r != BEYOND
                if r < 0 or not allowed[q] or not np.isfinite(cut + (tail[j] if x == 0 else 0.0)):
                    continue
                wait, ahead = -np.inf, 0.0
                if given.later:
                    ahead = forward[q, i, j] + (given.later_edge[j] if inner else 0.0)
                    wait = rings[q] * exchanged[i, j] + given.each[x]
                on = q % 2
                for n in range(max(given.least_slow - on - (pp - 1 - x), 0), min(x, given.most_slow - on) + 1):
                    for k in range(count[x + 1, j, n + on, on]):
                        total = own + cut + sums[x + 1, j, n + on, on, k]
                        longest = max(total + wait, ahead + waits[x + 1, j, n + on, on, k])
                        for c in range(1 if x == 0 else 2):
                            whole, before = total, longest
                            if x == 0:
                                whole, before = max(total + tail[j], longest + given.others), -np.inf
                            elif n < c or n == x + c:
                                continue
                            elif c != on:
                                whole, before = total + given.crossing, longest + given.crossing_before
                            if x > 0:
                                before = max(before, whole + given.least_wait)
                            state, choice = (x, i, n, c), (j, r, q, k)
                            place_label(sums[state], waits[state], count, step[state], state, whole, before, choice)
            if given.growing and not within:
                # Longer ranges take longer still.
                break
