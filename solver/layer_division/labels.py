r"""
Labels of the exact division of layers into stages: one kernel for any graph of states.

Sets: stages x = 0..pp-1, layers 0..L-1, patterns q of a stage's seconds and budget, kinds v of a stage, each of one
pattern; states s of a stage, and steps from a state to one of the next stage (``StateGraph``). A step says which kind
the stage is of, what the cut behind it costs, and what else it adds. One state a stage is a pipeline on devices alike;
with classes of device a state says how many stages have which class, and with slots on nodes which of them are left.

(1) For a threshold :math:`\theta` on every stage's ``high`` seconds, :math:`D_\theta[x, i, s]` is the least sum of low
    and hop seconds of stages x..pp-1 on layers i..L-1 from state s on. It is found backwards over x: stage x takes a
    range [i, j), a step, and the recompute with the least seconds among those that fit. Stage 0 adds ``tail[j]``.
(2) The optimum is :math:`\min_\theta (m - 1) \theta + D_\theta[0, 0, s]` over the distinct values of ``high`` and the
    states of stage 0, since at an optimum some stage attains the threshold.
(3) :math:`D_\theta` falls as :math:`\theta` rises. So the least feasible threshold is found by bisection; larger ones
    are tried in order until :math:`(m - 1) \theta + D_\infty` is no better than the best found or a limit.
(4) Where later stages are waited for, a state has labels (S, W): S the sum as in (1), and over its stages x
    :math:`W = \max_x \sum_{y < x} (forward + edge') + \sum_{y \ge x} (low + edge) + R(x) + each(x)`. A stage put in
    front gives :math:`S' = low + edge + S` and :math:`W' = \max(S' + R + each, forward + edge' + W)`. Both are
    monotone, so a label that another is no worse than in both is dropped (dominance). The cheapest recompute that fits
    is best for both, as forward seconds do not depend on it.
(5) The step ends after :math:`\max(S + tail, W + others)` of stage 0. Stage 0 waits for ``least_wait`` at least, so a W
    below S plus that never counts and is raised to it: most states keep one label. Beyond ``MOST_LABELS`` a label is
    merged with another into the least of both S and both W; the result is then a lower bound. What ends at (S, W)
    takes :math:`\max(S + a, W + b)`, so this loses at most the lesser of both differences, and the other is the one of
    which that is least.

One threshold takes :math:`O(L^2)` times the steps of the graph.

There are graphs of states for devices alike, two classes of device, and one pipeline of two classes. The classes are
those of ``taut.formulations.partition`` (4): a stage is all fast, all slow, or mixed; of one pipeline the class
of the block that it passes is known as well.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import Warming, jit, jit_inside
from taut.formulations.partition import Crossing

Steps = NDArray[np.int16]
"""Ends, recomputes, steps and labels; each is far fewer than 32,768."""
MOST_LABELS = 6
"""Labels of a state, of which each costs a pass over the ranges: 64 bound no candidate further that was tried."""
BEYOND, FULL = -2, -1
"""In the place of a recompute: every one exceeds the threshold, or those within it exceed the memory."""


class Seconds(NamedTuple):
    """Seconds of every range by pattern: low and high (patterns, recompute, L+1, L+1), forward (patterns, L+1, L+1)."""

    low: Floats
    high: Floats
    forward: Floats


class Bytes(NamedTuple):
    """Bytes of every range (recompute, L+1, L+1), micro-batches in flight (pp,), and the budget (patterns,)."""

    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints


class Cuts(NamedTuple):
    """Seconds of a cut by message and kind of hop, in full and without its way back, and the message of each cut."""

    whole: Floats
    before: Floats
    message: Ints


class Waits(NamedTuple):
    """
    What is waited for, (4) and (5).

    ``ring`` and ``each`` (pp, kinds) are seconds per byte of ``exchanged`` (L+1, L+1), and beyond that; nothing is
    waited for where ``each`` is minus infinity. Where reductions ``overlap``, ``unhidden`` bytes are never hidden; a
    stage ``in_full`` waits for the whole passes of those before it. ``tail`` and ``others`` (L+1,) come after the
    passes and after what is waited for, by the end of stage 0.
    """

    ring: Floats
    each: Floats
    exchanged: Floats
    unhidden: Floats
    overlap: bool
    in_full: bool
    tail: Floats
    others: Floats
    least_wait: float


class Ranges(NamedTuple):
    """
    Figures of every range of layers.

    ``kinds`` (kinds,) are the patterns of kinds; stage x has ``layers[x]``, (pp, 2), at least and at most, and none
    that begins at layer i ends behind ``reach[i]``; with ``growing`` longer ranges take longer.
    """

    seconds: Seconds
    bytes: Bytes
    cuts: Cuts
    waits: Waits
    kinds: Ints
    layers: Ints
    reach: Ints
    growing: bool


class StateGraph(NamedTuple):
    """
    States of every stage, numbered from zero on at each, and the steps between them.

    ``first`` (pp + 1,) is the number over all stages of a stage's first state. State s has the steps ``begin[s]`` to
    ``begin[s + 1]``, each of them the number of the state that it leads to, the kind of the stage, the kind of the hop
    behind it, and a row of ``added`` (rows, 3): seconds on top of S, on top of W, and what the stage itself waits less.
    The last stage leads to states that begin with ``ends`` seconds.
    """

    first: Ints
    begin: Ints
    steps: Ints
    added: Floats
    ends: Floats


class Labels(NamedTuple):
    """S and W of (4) by state and label, how many a state has, and the choices: end, recompute, step, label."""

    sums: Floats
    waits: Floats
    number: Steps
    choice: Steps


class Within(NamedTuple):
    """Seconds D of a division that keeps to a threshold, its slowest stage's, and end, recompute, kind of stages."""

    total: float
    highest: float
    picks: Ints


def least_division(
    ranges: Ranges, graph: StateGraph, m: int, thresholds: Floats, limit: float, known: float = -np.inf
) -> tuple[float, Ints | None]:
    """The optimum (2) by (3), or the limit, with a division: end, recompute, kind; seconds ``known`` suffice."""
    labels = _room(ranges, graph)
    widest = _within(ranges, graph, thresholds[-1], labels) if len(thresholds) else None
    if widest is None or not np.isfinite(widest.total):
        return np.inf, None
    least, best, picks = widest.total, (m - 1) * widest.highest + widest.total, widest.picks
    # Larger thresholds are no better than the best or the limit, so an optimum of interest has a smaller one.
    above = int(np.searchsorted((m - 1) * thresholds + least, min(best, limit))) - 1
    if best <= known or above < 0 or not np.isfinite(_within(ranges, graph, thresholds[above], labels).total):
        return min(best, limit), picks
    below, count, climbing = 0, above + 1, False
    while True:
        climbing = climbing or below >= above
        t = below if climbing else (below + above) // 2
        ended = best <= known or (climbing and (t == count or (m - 1) * thresholds[t] + least >= best))
        if ended:
            return min(best, limit), picks
        found = _within(ranges, graph, thresholds[t], labels)
        feasible = np.isfinite(found.total)
        if feasible and (m - 1) * found.highest + found.total < best:
            best, picks = (m - 1) * found.highest + found.total, found.picks
        if climbing or not feasible:
            below = t + 1
        else:
            above = t


def thresholds_of(ranges: Ranges, patterns: list[int] | slice = slice(None)) -> Floats:
    """Distinct finite ``high`` seconds by some patterns of ranges of as many layers as a stage may have, ascending."""
    first, end = np.triu_indices(ranges.seconds.high.shape[-1], int(ranges.layers[:, 0].min()))
    held = end - first <= int(ranges.layers[:, 1].max())
    values = np.unique(ranges.seconds.high[patterns][:, :, first[held], end[held]])
    return np.asarray(values[np.isfinite(values)])


def _room(ranges: Ranges, graph: StateGraph) -> Labels:
    """Room for the labels of D[x, i, s]; one a state where nothing is waited for."""
    layers, most = len(ranges.reach) - 1, MOST_LABELS if np.isfinite(ranges.waits.each).any() else 1
    widest = max(int(np.diff(graph.first).max()), len(graph.ends))
    shape = (len(graph.first), layers + 1, widest, most)
    return Labels(np.empty(shape), np.empty(shape), np.empty(shape[:3], np.int16), np.empty((*shape, 4), np.int16))


def _within(ranges: Ranges, graph: StateGraph, threshold: float, labels: Labels) -> Within:
    """The least sum (1) under a threshold; infinite where no division keeps to it."""
    picks = np.zeros((len(graph.first) - 1, 3), np.int64)
    labels.number.fill(0)
    total = _least_sum(ranges.seconds.low.size * len(labels.number), ranges, graph, threshold, labels, picks)
    return Within(total, slowest(ranges, picks) if np.isfinite(total) else np.inf, picks)


def slowest(ranges: Ranges, picks: Ints) -> float:
    """Largest ``high`` seconds of the stages in ``picks`` (pp, 3)."""
    worst, first = 0.0, 0
    for x in range(picks.shape[0]):
        worst = max(worst, ranges.seconds.high[ranges.kinds[picks[x, 2]], picks[x, 1], first, picks[x, 0]])
        first = picks[x, 0]
    return worst


@jit
def least_sum(ranges: Ranges, graph: StateGraph, threshold: float, labels: Labels, picks: Ints) -> float:
    """Least D of (1) from stage 0 on, with end, recompute and kind of every stage in ``picks``; no state has labels."""
    layers, pp = len(ranges.reach) - 1, len(graph.first) - 1
    for s in range(len(graph.ends)):
        labels.number[pp, layers, s] = 1
        labels.sums[pp, layers, s, 0], labels.waits[pp, layers, s, 0] = graph.ends[s], -np.inf
    for x in range(pp - 1, -1, -1):
        _extend(ranges, graph, threshold, x, labels)
    least, state = np.inf, -1
    for s in range(graph.first[1]):
        if labels.number[0, 0, s] and labels.sums[0, 0, s, 0] < least:
            least, state = labels.sums[0, 0, s, 0], s
    i, k = 0, 0
    for x in range(pp if state >= 0 else 0):
        choice = labels.choice[x, i, state, k]
        step = graph.begin[graph.first[x] + state] + choice[2]
        picks[x, 0], picks[x, 1], picks[x, 2] = choice[0], choice[1], graph.steps[step, 1]
        i, state, k = choice[0], graph.steps[step, 0], choice[3]
    return least


MOST_IN_PYTHON = 200_000
"""Ranges of layers, by pattern, recompute and stage, that Python extends in one process: a tenth of a second."""
_least_sum = Warming(least_sum, MOST_IN_PYTHON)


@jit_inside
def _extend(ranges: Ranges, graph: StateGraph, threshold: float, x: int, labels: Labels) -> None:
    """Fill D[x] from D[x + 1] over the ranges [i, j) that stage x can take."""
    # Arrays are bound once: each look-up through the tuple would count a reference.
    low, high, forward = ranges.seconds
    fixed, activation, in_flight, budget = ranges.bytes
    hops, hops_before, message = ranges.cuts
    ring, each, exchanged, unhidden, overlap, in_full, tail, others, least_wait = ranges.waits
    kinds, reach, growing = ranges.kinds, ranges.reach, ranges.growing
    first, begin, steps, added, _ = graph
    sums, waits, count, choices = labels
    pp, layers, held = len(first) - 1, len(reach) - 1, in_flight[x]
    fewest, most = ranges.layers[x, 0], ranges.layers[x, 1]
    last_end = layers - (pp - 1 - x)
    own, recompute, wait = np.empty(low.shape[0]), np.empty(low.shape[0], np.int64), np.empty(len(kinds))
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(max(i + fewest, layers if x == pp - 1 else 0), min(last_end, i + most, reach[i]) + 1):
            within, fits = False, False
            for q in range(low.shape[0]):
                own[q], recompute[q] = cheapest(low, high, fixed, activation, held, budget[q], threshold, q, i, j)
                within, fits = within or recompute[q] != BEYOND, fits or recompute[q] >= 0
            if growing and not within:
                # Longer ranges take longer still.
                break
            if not fits or (x == 0 and tail[j] == np.inf):
                continue
            for v in range(len(kinds)):
                wait[v] = ring[x, v] * exchanged[i, j]
                if overlap:
                    wait[v] = max(ring[x, v] * unhidden[i, j], wait[v] - own[kinds[v]] + forward[kinds[v], i, j])
                wait[v] += each[x, v]
            for state in range(first[x], first[x + 1]):
                s = state - first[x]
                for step in range(begin[state], begin[state + 1]):
                    after, v, hop, event = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
                    q, known = kinds[v], count[x + 1, j, after]
                    if recompute[q] < 0 or known == 0 or hops[message[j], hop] == np.inf:
                        continue
                    whole = own[q] + hops[message[j], hop]
                    ahead = whole if in_full else forward[q, i, j] + hops_before[message[j], hop]
                    for k in range(known):
                        total = whole + sums[x + 1, j, after, k]
                        longest = max(total - added[event, 2] + wait[v], ahead + waits[x + 1, j, after, k])
                        total, longest = total + added[event, 0], longest + added[event, 1]
                        if x == 0:
                            total, longest = max(total + tail[j], longest + others[j]), -np.inf
                        else:
                            longest = max(longest, total + least_wait)
                        at, choice = (x, i, s), (j, recompute[q], step - begin[state], k)
                        _place(sums[at], waits[at], count, choices[at], at, total, longest, choice)


@jit_inside
def _place(
    sums: Floats,
    waits: Floats,
    count: Steps,
    choices: Steps,
    state: tuple[int, int, int],
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
            # Assigning the row as a whole would compile numba's formatting of text, for three seconds.
            for part in range(4):
                choices[kept, part] = choices[k, part]
        kept += 1
    place = kept
    if kept == len(sums):
        place, nearest = kept - 1, np.inf
        for k in range(kept):
            loss = min(abs(total - sums[k]), abs(longest - waits[k]))
            if loss < nearest:
                place, nearest = k, loss
        # Both at least as small as any division's: a lower bound.
        total, longest = min(total, sums[place]), min(longest, waits[place])
    sums[place], waits[place] = total, longest
    choices[place, 0], choices[place, 1], choices[place, 2], choices[place, 3] = choice
    count[state] = max(kept, place + 1)


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


FAST, SLOW, MIXED_FAST, MIXED_SLOW = 0, 1, 2, 3
"""Patterns of one pipeline: the class that is passed, of a stage that has it alone or both."""
MIXED, SLOW_MIXED = 2, 3
"""Patterns of all pipelines: a mixed stage, and where the kinds are four the one with the slow class's seconds, (5)."""
State = TypeVar("State", int, tuple[int, int], tuple[int, int, bool])
SAME, HOP, HOP_MAY_LIE_BEFORE = 0, 1, 2
"""Events: no hop between classes, the first one before this stage, or perhaps before it, so that it may wait less."""


def events(crossing: Crossing) -> Floats:
    """Seconds of the events: on top of S, on top of W, and what the stage itself waits less."""
    return np.array([[0.0] * 3, [crossing.whole, crossing.before, 0.0], [0.0, 0.0, crossing.whole - crossing.before]])


@lru_cache(maxsize=256)
def alike(pp: int) -> StateGraph:
    """One state a stage, of kind 0."""
    return _listed(pp, 0, lambda x, s: [(0, 0, SAME)], lambda s: True)[0]


@lru_cache(maxsize=256)
def two_classes(
    pp: int, dp: int, slow: tuple[int, int], mixed: tuple[int, int], *, of_slow: bool, hidden: bool
) -> StateGraph:
    """
    States (a, b, w): a all-fast and b all-slow stages so far, and whether a mixed one with slow seconds is to come.

    ``slow``, ``mixed``: blocks of the slow class and mixed stages, at least and at most; ``of_slow``: whether one mixed
    stage has the slow class's seconds in a kind of its own (5); ``hidden``: whether a hop that lies before a mixed
    stage may have been counted in full only where no stage after it has the other class (6).
    """
    fasts, slows = min(pp, max(pp * dp - slow[0], 0) // dp), min(pp, slow[1] // dp)

    def steps(x: int, state: tuple[int, int, bool]) -> Iterable[tuple[tuple[int, int, bool], int, int]]:
        a, b, to_come = state
        if a < fasts:
            yield (a + 1, b, to_come), FAST, HOP if a == 0 and b > 0 else SAME
        if b < slows:
            yield (a, b + 1, to_come), SLOW, HOP if b == 0 and a > 0 else SAME
        if x - a - b < mixed[1]:
            # With one mixed stage the slow groups fix how many stages are slow.
            before = (a > 0 and b == 0 and slow[0] >= dp) if hidden else (a > 0) != (b > 0)
            for kind, still in ((MIXED, to_come), (SLOW_MIXED, False))[: 1 + to_come]:
                yield (a, b, still), kind, HOP_MAY_LIE_BEFORE if before else SAME

    def ends(state: tuple[int, int, bool]) -> bool:
        a, b, to_come = state
        both = pp - a - b
        least, most = dp * b + both, dp * b + (dp - 1) * both
        return not to_come and mixed[0] <= both <= mixed[1] and least <= slow[1] and max(least, slow[0]) <= most

    return _listed(pp, (0, 0, of_slow), steps, ends)[0]


def one_pipeline(pp: int, least: int, most: int, kinds: tuple[int, ...], crossing: Crossing) -> StateGraph:
    """States (n, c): n stages so far on slow blocks, ``least`` to ``most`` in all, the last on a block of class c."""
    graph, stages = _one_pipeline(pp, least, most, kinds)
    return graph._replace(added=events(crossing), ends=crossing.beyond(pp)[stages])


@lru_cache(maxsize=256)
def _one_pipeline(pp: int, least: int, most: int, kinds: tuple[int, ...]) -> tuple[StateGraph, Ints]:
    """The graph, and the stages on slow blocks of the states that it ends in."""

    def steps(x: int, state: tuple[int, int]) -> Iterable[tuple[tuple[int, int], int, int]]:
        n, c = state
        for kind in kinds:
            passed = kind % 2
            if n + passed <= most:
                yield (n + passed, passed), kind, HOP if x > 0 and passed != c else SAME

    graph, ends = _listed(pp, (0, 0), steps, lambda state: state[0] >= least)
    return graph, np.array([n for n, _ in ends], dtype=np.int64)


def _listed(
    pp: int,
    start: State,
    steps: Callable[[int, State], Iterable[tuple[State, int, int]]],
    ends: Callable[[State], bool],
) -> tuple[StateGraph, list[State]]:
    """
    The graph of the states that lead from a start to an end, and the states that it ends in.

    ``steps``: following state, kind and event of every step from a state of stage x; ``ends``: whether the last stage
    may lead to a state. The hop behind every stage but the last is of kind 0, and behind the last one of kind 1.
    """
    reached: list[dict[State, list[tuple[State, int, int]]]] = []
    at = {start}
    for x in range(pp):
        reached.append({state: list(steps(x, state)) for state in at})
        at = {after for leads in reached[-1].values() for after, _, _ in leads}
    numbers = {state: number for number, state in enumerate(sorted(filter(ends, at)))}
    last = list(numbers)
    counts: list[int] = []
    degrees: list[list[int]] = []
    rows: list[list[tuple[int, int, int, int]]] = []
    for x in range(pp - 1, -1, -1):
        kept = {
            state: [(numbers[after], kind, int(x == pp - 1), event) for after, kind, event in leads if after in numbers]
            for state, leads in sorted(reached[x].items())
        }
        kept = {state: leads for state, leads in kept.items() if leads}
        numbers = {state: number for number, state in enumerate(kept)}
        counts.append(len(kept))
        degrees.append([len(leads) for leads in kept.values()])
        rows.append([step for leads in kept.values() for step in leads])
    return (
        StateGraph(
            first=np.cumsum([0, *counts[::-1]]),
            begin=np.cumsum([0, *(degree for stage in degrees[::-1] for degree in stage)]),
            steps=np.array([step for stage in rows[::-1] for step in stage], dtype=np.int64).reshape(-1, 4),
            added=np.zeros((3, 3)),
            ends=np.zeros(len(last)),
        ),
        last,
    )
