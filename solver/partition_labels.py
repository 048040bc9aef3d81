r"""
Labels of the exact division: the compiled loops of ``taut.solver.layer_partition``, equations (1) to (4) there.

A state is (x, i, a, b): stages from x on, on layers from i on, with a all-fast and b all-slow stages before. Its labels
are pairs (S, W), of which none is at least another in both. Where one mixed stage has the seconds of the slow class
(``taut.formulations.partition`` (5)), that is a pattern of its own, ``SLOW_MIXED``, and a state says whether the stages
from x on have it: those are numbered after the others along a.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.threshold_search import Within, least_by_threshold

Steps = NDArray[np.int16]
"""Ends, recomputes and patterns; layers are far fewer than 32,768."""
MOST_LABELS = 6
"""Labels of a state; more are merged, which weakens the bound, and every label costs a pass over the ranges."""
SLOW_MIXED = 3
"""The pattern of the mixed stage with the seconds of the slow class, where there are so many patterns."""
BEYOND, FULL = -2, -1
"""In the place of a recompute: every one exceeds the threshold, or those within it exceed the memory."""


class Ranges(NamedTuple):
    """
    Figures of every range, as ``taut.formulations.partition`` names them.

    ``size`` (L+1, L+1) may not exceed ``cap``; ``slow`` blocks and up to ``more`` further ones are of the slow class,
    and from ``least_mixed`` to ``most_mixed`` stages are mixed; ``later`` says whether later stages are waited for,
    ``later_edge`` is edge' and ``least_wait`` what stage 0 waits for beyond ``others``; ``crossing`` and
    ``crossing_before`` are what a hop between classes adds, (6) there; stage x has ``layers[x]``, (pp, 2), at least and
    at most; with ``growing`` longer ranges take longer, and with ``slower`` the slow class takes no less for any range.
    """

    low: Floats
    high: Floats
    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    size: Floats
    cap: float
    dp: int
    slow: int
    more: int
    least_mixed: int
    most_mixed: int
    edge: Floats
    tail: Floats
    later: bool
    overlap: bool
    forward: Floats
    later_edge: Floats
    ring: Floats
    class_ring: Floats
    exchanged: Floats
    unhidden: Floats
    each: Floats
    others: float
    least_wait: float
    crossing: float
    crossing_before: float
    layers: Ints
    growing: bool
    slower: bool


class Labels(NamedTuple):
    """S and W of (4) by state and label, how many a state has, and the choices: end, recompute, pattern, label."""

    sums: Floats
    waits: Floats
    number: Steps
    step: Steps


def least_division(
    ranges: Ranges, m: int, thresholds: Floats, limit: float, known: float = -np.inf
) -> tuple[float, Ints | None]:
    """The optimum (2) by (3), or the limit if that is less; and end, recompute, pattern of stages of a division."""
    labels = _tables(ranges)

    def within(threshold: float) -> Within:
        picks = np.zeros((len(ranges.in_flight), 3), np.int64)
        total = _stage_sum(ranges, threshold, picks, labels)
        return Within(total, highest(ranges.high, picks) if np.isfinite(total) else np.inf, picks)

    return least_by_threshold(within, m, thresholds, limit, known)


@jit
def highest(high: Floats, picks: Ints) -> float:
    """Largest seconds of the stages in ``picks`` (pp, 3)."""
    worst, first = 0.0, 0
    for x in range(picks.shape[0]):
        worst = max(worst, high[picks[x, 2], picks[x, 1], first, picks[x, 0]])
        first = picks[x, 0]
    return worst


@jit
def _tables(ranges: Ranges) -> Labels:
    """Room for the labels of D[x, i, a, b]; a and b reach no further than the groups of their class."""
    layers, pp, dp = ranges.low.shape[2] - 1, len(ranges.in_flight), ranges.dp
    fasts, slows = 0, 0
    twice = 2 if ranges.low.shape[0] > SLOW_MIXED else 1
    if ranges.low.shape[0] > 1:
        fasts, slows = min(pp, max(pp * dp - ranges.slow, 0) // dp), min(pp, (ranges.slow + ranges.more) // dp)
    most = MOST_LABELS if ranges.later else 1
    shape = (pp + 1, layers + 1, twice * (fasts + 1), slows + 1, most)
    return Labels(np.empty(shape), np.empty(shape), np.empty(shape[:4], np.int16), np.empty((*shape, 4), np.int16))


@jit
def _stage_sum(ranges: Ranges, threshold: float, picks: Ints, labels: Labels) -> float:
    """D_threshold[0, 0, 0, 0] of (1), with the end, recompute and pattern of every stage in ``picks``."""
    patterns, layers, pp = ranges.low.shape[0], ranges.low.shape[2] - 1, len(ranges.in_flight)
    labels.number[:] = 0
    without = labels.number.shape[2] // 2 if patterns > SLOW_MIXED else labels.number.shape[2]
    start = without if patterns > SLOW_MIXED else 0
    for a in range(without):
        for b in range(labels.number.shape[3]):
            if patterns == 1 or _counts_fit(ranges, a, b, pp):
                labels.number[pp, layers, a, b] = 1
                labels.sums[pp, layers, a, b, 0], labels.waits[pp, layers, a, b, 0] = 0.0, -np.inf
    for x in range(pp - 1, -1, -1):
        _extend(ranges, threshold, x, labels)
    if labels.number[0, 0, start, 0] == 0:
        return np.inf
    i, a, b, k = 0, start, 0, 0
    for x in range(pp):
        chosen = labels.step[x, i, a, b, k]
        picks[x, 0], picks[x, 1], picks[x, 2] = chosen[0], chosen[1], chosen[2]
        a += 1 if picks[x, 2] == 0 and patterns > 1 else 0
        b += 1 if picks[x, 2] == 1 else 0
        a -= without if picks[x, 2] == SLOW_MIXED else 0
        i, k = picks[x, 0], chosen[3]
    return float(labels.sums[0, 0, start, 0, 0])


@jit
def _counts_fit(ranges: Ranges, fasts: int, slows: int, pp: int) -> bool:
    """Whether these numbers of all-fast and all-slow stages can use up the slow groups; one replica is never mixed."""
    mixed, dp = pp - fasts - slows, ranges.dp
    least, most = dp * slows + mixed, dp * slows + (dp - 1) * mixed
    allowed = max(ranges.least_mixed, 0) <= mixed <= ranges.most_mixed
    return allowed and least <= most and least <= ranges.slow + ranges.more and ranges.slow <= most


@jit
def _extend(ranges: Ranges, threshold: float, x: int, labels: Labels) -> None:
    """Fill D[x] from D[x + 1] over the ranges [i, j) that stage x can take."""
    patterns, layers, pp = ranges.low.shape[0], ranges.low.shape[2] - 1, len(ranges.in_flight)
    # Arrays are bound once: each look-up through the tuple would count a reference.
    size, edge, tail, budget = ranges.size, ranges.edge, ranges.tail, ranges.budget
    low, high, fixed, activation = ranges.low, ranges.high, ranges.fixed, ranges.activation
    forward, exchanged, unhidden, later_edge = ranges.forward, ranges.exchanged, ranges.unhidden, ranges.later_edge
    sums, waits, count, step = labels
    held, cap, held_layers, of_stage = ranges.in_flight[x], ranges.cap, ranges.layers[x], ranges.each[x]
    ring_of_stage, class_ring = ranges.ring[x] if ranges.later else 0.0, ranges.class_ring
    last_end, ways_back = layers - (pp - 1 - x), ranges.crossing - ranges.crossing_before
    without = count.shape[2] // 2 if patterns > SLOW_MIXED else count.shape[2]
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(max(i + held_layers[0], layers if x == pp - 1 else 0), min(last_end, i + held_layers[1]) + 1):
            if size[i, j] > cap:
                break
            cut = edge[j] if x < pp - 1 else 0.0
            within = False
            for q in range(patterns):
                seconds, r = cheapest(low, high, fixed, activation, held, budget[q], threshold, q, i, j)
                within = within or r != BEYOND
                if r < 0 or not np.isfinite(cut + (tail[j] if x == 0 else 0.0)):
                    continue
                wait, ahead = -np.inf, 0.0
                if ranges.later:
                    ahead = forward[q, i, j] + (later_edge[j] if x < pp - 1 else 0.0)
                    ring = max(ring_of_stage, class_ring[q])
                    wait = ring * exchanged[i, j]
                    if ranges.overlap:
                        wait = max(ring * unhidden[i, j], wait - seconds + forward[q, i, j])
                    wait += of_stage
                for a in range(count.shape[2]):
                    fasts = a % without
                    if fasts > x or (q == SLOW_MIXED and a < without):
                        continue
                    for b in range(min(x - fasts, count.shape[3] - 1) + 1):
                        # Stages before x that are neither all fast nor all slow are mixed.
                        if patterns > 1 and x - fasts - b + (q >= 2) > ranges.most_mixed:
                            continue
                        a2, b2 = a + int(q == 0 and patterns > 1), b + int(q == 1)
                        if (a2 - a + fasts) >= without or b2 >= count.shape[3]:
                            continue
                        if q == SLOW_MIXED:
                            a2 -= without
                        for k in range(count[x + 1, j, a2, b2]):
                            total = seconds + cut + sums[x + 1, j, a2, b2, k]
                            back = ways_back if q >= 2 and _hop_may_lie_before(ranges, fasts, b) else 0.0
                            longest = max(total - back + wait, ahead + waits[x + 1, j, a2, b2, k])
                            if (q == 0 and fasts == 0 and b > 0) or (q == 1 and b == 0 and fasts > 0):
                                total, longest = total + ranges.crossing, longest + ranges.crossing_before
                            if x == 0:
                                total, longest = max(total + tail[j], longest + ranges.others), -np.inf
                            else:
                                longest = max(longest, total + ranges.least_wait)
                            state, choice = (x, i, a, b), (j, r, q, k)
                            place_label(sums[state], waits[state], count, step[state], state, total, longest, choice)
            if ranges.growing and not within:
                # Longer ranges take longer still.
                break


@jit
def _hop_may_lie_before(ranges: Ranges, fasts: int, slows: int) -> bool:
    """Whether a hop between classes that later stages may have counted in full may lie before this mixed stage, (6)."""
    if ranges.most_mixed > 1 or not ranges.slower:
        return (fasts > 0) != (slows > 0)
    # With one mixed stage the slow groups fix how many stages are slow.
    return fasts > 0 and slows == 0 and ranges.slow >= ranges.dp


@jit
def place_label(
    sums: Floats,
    waits: Floats,
    count: Steps,
    step: Steps,
    state: tuple[int, int, int, int],
    total: float,
    longest: float,
    choice: tuple[int, int, int, int],
) -> None:
    """Put a label (4) and the choice that leads to it among those of a state, unless one is no worse."""
    known, kept = count[state], 0
    for k in range(known):
        if sums[k] <= total and waits[k] <= longest:
            return
    for k in range(known):
        if total <= sums[k] and longest <= waits[k]:
            continue
        if kept < k:
            sums[kept], waits[kept] = sums[k], waits[k]
            step[kept] = step[k]
        kept += 1
    if kept == len(sums):
        # Both at least as small as any division's: a lower bound.
        kept -= 1
        total, longest = min(total, sums[kept]), min(longest, waits[kept])
    sums[kept], waits[kept] = total, longest
    step[kept, 0], step[kept, 1], step[kept, 2], step[kept, 3] = choice
    count[state] = kept + 1


@jit
def cheapest(
    low: Floats,
    high: Floats,
    fixed: Ints,
    activation: Ints,
    held: int,
    room: int,
    threshold: float,
    q: int,
    i: int,
    j: int,
) -> tuple[float, int]:
    """Least seconds of a stage over its recompute; ``BEYOND`` if all exceed the threshold, ``FULL`` if memory."""
    # Ten parameters, since a tuple of the arrays makes the whole partition a tenth slower.
    seconds, choice = np.inf, BEYOND
    for r in range(low.shape[1]):
        if high[q, r, i, j] > threshold:
            continue
        choice = max(choice, FULL)
        if low[q, r, i, j] < seconds and fixed[r, i, j] + held * activation[r, i, j] <= room:
            seconds, choice = low[q, r, i, j], r
    return seconds, choice
