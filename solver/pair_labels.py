r"""
Labels of the division of two pipelines: the compiled loops of ``taut.solver.pipeline_pairs``.

A state is (x, i, a, c, h): stages from x on, on layers from i on, after the second pipeline has passed a stages on fast
blocks, the last stage on one of class c (0 fast, 1 slow), and h says whether one of the stages from x on takes it the
seconds that are counted as its slowest stage's. A label are (S, W) of both pipelines, as in
``taut.solver.layer_partition`` (4), of which none is at least another in all four.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.partition_labels import BEYOND, cheapest
from taut.solver.pipeline_labels import FAST, MIXED_FAST, MIXED_SLOW, SLOW, Passages

MOST_LABELS = 16
"""Labels of a state; more are merged, which weakens the bound."""


class Pair(NamedTuple):
    """
    Two pipelines of one division.

    ``given`` are the figures of ranges, with ``fast`` the stages that the second pipeline passes on fast blocks; within
    ``threshold`` the first passes all on slow ones, its slowest in ``slowest`` seconds at least; where a stage takes
    the second ``counted`` seconds or more, so many are counted as its slowest.
    """

    given: Passages
    fast: int
    threshold: float
    slowest: float
    counted: float


@jit
def least_pair(pair: Pair, m: int) -> float:
    """Least seconds of the slower of both pipelines; infinite where no division keeps to the threshold."""
    given = pair.given
    layers, pp = given.seconds.shape[2] - 1, len(given.in_flight)
    labels = np.empty((pp + 1, layers + 1, pair.fast + 1, 2, 2, MOST_LABELS, 4))
    count = np.zeros(labels.shape[:5], np.int64)
    for c in range(2):
        count[pp, layers, pair.fast, c, 0] = 1
        labels[pp, layers, pair.fast, c, 0, 0] = np.array([0.0, -np.inf, given.beyond[pair.fast], -np.inf])
    for x in range(pp - 1, -1, -1):
        _extend(pair, x, labels, count)
    least = np.inf
    for h in range(2):
        for k in range(count[0, 0, 0, 0, h]):
            first, second = labels[0, 0, 0, 0, h, k, 0], labels[0, 0, 0, 0, h, k, 2]
            slower = (m - 1) * pair.slowest + first
            if h == 1:
                slower = max(slower, (m - 1) * pair.counted + second)
            least = min(least, slower)
    return float(least)


@jit
def _extend(pair: Pair, x: int, labels: Floats, count: Ints) -> None:
    """Fill the states of stage x from those of stage x + 1 over the ranges [i, j) that stage x can take."""
    given = pair.given
    layers, pp = given.seconds.shape[2] - 1, len(given.in_flight)
    seconds, fixed, activation, budget = given.seconds, given.fixed, given.activation, given.budget
    edge, tail, forward, exchanged = given.edge, given.tail, given.forward, given.exchanged
    held, held_layers, rings = given.in_flight[x], given.layers[x], given.rings[x]
    last_end, inner, label = layers - (pp - 1 - x), x < pp - 1, np.empty(4)
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(max(i + held_layers[0], 0 if inner else layers), min(last_end, i + held_layers[1]) + 1):
            cut = edge[j] if inner else 0.0
            within = False
            if not np.isfinite(cut + (tail[j] if x == 0 else 0.0)):
                continue
            for on in range(2):
                # A stage that the second pipeline passes on a slow block may be all slow.
                q = MIXED_SLOW if on == 0 else SLOW
                first, r = cheapest(seconds, seconds, fixed, activation, held, budget[q], pair.threshold, q, i, j)
                within = within or r != BEYOND
                if r < 0:
                    continue
                second, passed = first, forward[SLOW, i, j] if given.later else 0.0
                if on == 0:
                    second, r = cheapest(seconds, seconds, fixed, activation, held, budget[q], np.inf, MIXED_FAST, i, j)
                    if r < 0:
                        continue
                    passed = forward[FAST, i, j] if given.later else 0.0
                wait, ahead, ahead_second = -np.inf, 0.0, 0.0
                if given.later:
                    further = given.later_edge[j] if inner else 0.0
                    ahead, ahead_second = forward[SLOW, i, j] + further, passed + further
                    ring = rings[MIXED_SLOW] if on == 0 else min(rings[SLOW], rings[MIXED_SLOW])
                    wait = ring * exchanged[i, j] + given.each[x]
                reached = second >= pair.counted
                gone = 1 - on
                for a in range(max(pair.fast - gone - (pp - 1 - x), 0), min(x, pair.fast - gone) + 1):
                    for later in range(2):
                        h = 1 if reached else later
                        for k in range(count[x + 1, j, a + gone, on, later]):
                            known = labels[x + 1, j, a + gone, on, later, k]
                            sum_first, sum_second = first + cut + known[0], second + cut + known[2]
                            wait_first = max(sum_first + wait, ahead + known[1])
                            wait_second = max(sum_second + wait, ahead_second + known[3])
                            for c in range(1 if x == 0 else 2):
                                label[0], label[1], label[2], label[3] = sum_first, wait_first, sum_second, wait_second
                                if x == 0:
                                    label[0] = max(sum_first + tail[j], wait_first + given.others)
                                    label[2] = max(sum_second + tail[j], wait_second + given.others)
                                    label[1], label[3] = -np.inf, -np.inf
                                elif a < 1 - c or a == x + 1 - c:
                                    # The stage before is of class c.
                                    continue
                                else:
                                    if c != on:
                                        label[2] += given.crossing
                                        label[3] += given.crossing_before
                                    label[1] = max(label[1], label[0] + given.least_wait)
                                    label[3] = max(label[3], label[2] + given.least_wait)
                                _place(labels[x, i, a, c, h], count, x, i, a, c, h, label)
            if given.growing and not within:
                # Longer ranges take longer still.
                break


@jit
def _place(known: Floats, count: Ints, x: int, i: int, a: int, c: int, h: int, label: Floats) -> None:
    """Put a label among those of a state unless one is no worse; beyond the most it is merged with the last."""
    number, kept = count[x, i, a, c, h], 0
    for k in range(number):
        if _no_worse(known[k], label):
            return
    for k in range(number):
        if _no_worse(label, known[k]):
            continue
        if kept < k:
            known[kept] = known[k]
        kept += 1
    if kept == len(known):
        # No more than any division's in each: a lower bound.
        kept -= 1
        for part in range(4):
            label[part] = min(label[part], known[kept, part])
    known[kept] = label
    count[x, i, a, c, h] = kept + 1


@jit
def _no_worse(one: Floats, other: Floats) -> bool:
    """Whether a label is at most another in every part."""
    return bool(one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2] and one[3] <= other[3])
