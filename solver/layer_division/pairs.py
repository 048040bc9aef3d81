r"""
Division of the layers for two pipelines together, one of which passes slow blocks alone.

Let the second pass just f stages on fast blocks, and no pipeline that has both classes fewer. As one pipeline is all
slow, every stage that the second passes on a fast block is mixed; and as all pipelines with fast blocks have f of them
at least, they are F / f, rounded down, at most, F the fast blocks. So many fast blocks has a stage at the most, and
its ring runs over at least as many nodes as its other blocks ask for (``taut.solver.bounds.least_rings`` (6)).

(1) Both pipelines have one division of the layers. Each takes at least what
    ``taut.solver.layer_division.divide`` (2) to (4) say of it, and the step takes the longer of both.
(2) For thresholds :math:`\theta` on the stages of the first, ascending, the least of that over the divisions that keep
    to one is found by labels. Where the first has a slowest stage of :math:`\theta_1` to :math:`\theta_2` seconds, it
    waits for the lesser; such an interval is halved until it is no better than the best found.
(3) The second waits for its own slowest stage. Of it is known alone whether it takes as many seconds as the least
    feasible threshold, and these are counted.
(4) The graph of states is the second pipeline's, with stages of kind ``MIXED_FAST`` and ``SLOW``. A state says as well
    whether one of the stages from x on takes the second the seconds that are counted (h). A label are (S, W) of both
    pipelines, as in ``taut.solver.layer_division.labels`` (4), of which none is at least another in all four.

This kernel is beside that of ``taut.solver.layer_division.labels``, whose labels are one pair (S, W) at a threshold.
Here a label is two pairs, a stage has a kind in each pipeline, and its recompute is the cheapest of both kinds.
"""

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.partition import NO_CROSSING, Crossing, LaterStages, PartitionProblem
from taut.solver.layer_division.divide import Beside, Costs, least_optimizer, of_pipeline, ranges_of
from taut.solver.layer_division.labels import (
    BEYOND,
    MIXED_FAST,
    MIXED_SLOW,
    SLOW,
    Ranges,
    StateGraph,
    cheapest,
    one_pipeline,
    thresholds_of,
)

MOST_LABELS = 16
"""Labels of a state; more are merged, which weakens the bound."""


class _Pair(NamedTuple):
    """
    Thresholds for two pipelines: the first, all on slow blocks, keeps to one and takes ``slowest`` at least.

    Where a stage takes the second ``counted`` seconds or more, so many are counted as its slowest.
    """

    threshold: float
    slowest: float
    counted: float


def solve_pair(
    problem: PartitionProblem,
    edge: Floats,
    tail: Floats,
    beside: Beside,
    *,
    later: LaterStages | None = None,
    crossing: Crossing = NO_CROSSING,
    limit: float = np.inf,
) -> float:
    """Least seconds with an all-slow pipeline and one beside it, at most the limit."""
    costs, best = Costs(edge, tail, later, crossing), limit
    optimizer = 0.0 if later is None else least_optimizer(problem, later)
    slow = problem.pp - beside.fast
    graph = one_pipeline(problem.pp, slow, slow, (MIXED_FAST, SLOW), crossing)
    for family in problem.by_family:
        ranges = of_pipeline(ranges_of(family, costs))
        if later is not None:
            mixed = later.mixed_rings[min(beside.most, len(later.mixed_rings)) - 1]
            ring = np.maximum(ranges.waits.ring, [0.0, 0.0, mixed, mixed])
            ranges = ranges._replace(waits=ranges.waits._replace(ring=ring))
        best = optimizer + _least_of_pair(ranges, graph, problem.micro_batches, best - optimizer)
    return best


def _least_of_pair(ranges: Ranges, graph: StateGraph, m: int, limit: float) -> float:
    """Least seconds of a step with two such pipelines by (2), at most the limit; ``m``: micro-batches."""
    thresholds = thresholds_of(ranges, [SLOW])
    least = _least_feasible(ranges, graph, m, thresholds)
    if least == len(thresholds):
        return limit
    best, open_ones = limit, [(least, len(thresholds) - 1)]
    while open_ones:
        low, high = open_ones.pop()
        pair = _Pair(float(thresholds[high]), float(thresholds[low]), float(thresholds[least]))
        found = _least_pair(ranges, graph, pair, m)
        if found >= best:
            continue
        if low == high:
            best = found
        else:
            middle = (low + high) // 2
            open_ones += [(middle + 1, high), (low, middle)]
    return best


def _least_feasible(ranges: Ranges, graph: StateGraph, m: int, thresholds: Floats) -> int:
    """The place of the least threshold to which a division keeps; their number where none does."""

    def is_feasible(threshold: float) -> bool:
        return bool(np.isfinite(_least_pair(ranges, graph, _Pair(threshold, 0.0, np.inf), m)))

    return bisect_left(thresholds.tolist(), True, key=is_feasible)


@jit
def _least_pair(ranges: Ranges, graph: StateGraph, pair: _Pair, m: int) -> float:
    """Least seconds of the slower of both pipelines; infinite where no division keeps to the threshold."""
    layers, pp, widest = len(ranges.reach) - 1, len(graph.first) - 1, len(graph.ends)
    for x in range(pp):
        widest = max(widest, graph.first[x + 1] - graph.first[x])
    labels = np.empty((pp + 1, layers + 1, widest, 2, MOST_LABELS, 4))
    count = np.zeros((pp + 1, layers + 1, widest, 2), np.int64)
    for s in range(len(graph.ends)):
        count[pp, layers, s, 0] = 1
        label = labels[pp, layers, s, 0, 0]
        label[0], label[1], label[2], label[3] = 0.0, -np.inf, graph.ends[s], -np.inf
    for x in range(pp - 1, -1, -1):
        _extend(ranges, graph, pair, x, labels, count)
    least = np.inf
    for h in range(2):
        for k in range(count[0, 0, 0, h] if graph.first[1] else 0):
            first, second = labels[0, 0, 0, h, k, 0], labels[0, 0, 0, h, k, 2]
            slower = (m - 1) * pair.slowest + first
            if h == 1:
                slower = max(slower, (m - 1) * pair.counted + second)
            least = min(least, slower)
    return least


@jit_inside
def _extend(ranges: Ranges, graph: StateGraph, pair: _Pair, x: int, labels: Floats, count: Ints) -> None:
    """Fill the states of stage x from those of stage x + 1 over the ranges [i, j) that stage x can take."""
    seconds, _, forward = ranges.seconds
    fixed, activation, in_flight, budget = ranges.bytes
    hops, hops_before, message = ranges.cuts
    ring, each, exchanged, _, _, _, tail, others, least_wait = ranges.waits
    first, begin, steps, added, _ = graph
    fewest, most = ranges.layers[x, 0], ranges.layers[x, 1]
    pp, layers, held = len(first) - 1, len(ranges.reach) - 1, in_flight[x]
    last_end, label = layers - (pp - 1 - x), np.empty(4)
    own, recompute = np.empty(len(budget)), np.empty(len(budget), np.int64)
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(max(i + fewest, layers if x == pp - 1 else 0), min(last_end, i + most) + 1):
            if x == 0 and tail[j] == np.inf:
                continue
            for q in range(SLOW, MIXED_SLOW + 1):
                bound = np.inf if q == MIXED_FAST else pair.threshold
                own[q], recompute[q] = cheapest(seconds, seconds, fixed, activation, held, budget[q], bound, q, i, j)
            if ranges.growing and max(recompute[SLOW], recompute[MIXED_SLOW]) == BEYOND:
                # Longer ranges take longer still.
                break
            for state in range(first[x], first[x + 1]):
                for step in range(begin[state], begin[state + 1]):
                    after, kind, hop, event = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
                    cut, further = hops[message[j], hop], hops_before[message[j], hop]
                    # A stage that the second pipeline passes on a slow block may be all slow.
                    of_first = SLOW if kind == SLOW else MIXED_SLOW
                    if cut == np.inf or min(recompute[kind], recompute[of_first]) < 0:
                        continue
                    second = own[kind]
                    wait = min(ring[x, of_first], ring[x, MIXED_SLOW]) * exchanged[i, j] + each[x, kind]
                    ahead, ahead_second = forward[SLOW, i, j] + further, forward[kind, i, j] + further
                    for later in range(2):
                        h = 1 if second >= pair.counted else later
                        for k in range(count[x + 1, j, after, later]):
                            known = labels[x + 1, j, after, later, k]
                            sum_first, sum_second = own[of_first] + cut + known[0], second + cut + known[2]
                            label[0], label[2] = sum_first, sum_second + added[event, 0]
                            label[1] = max(sum_first + wait, ahead + known[1])
                            label[3] = max(sum_second + wait, ahead_second + known[3]) + added[event, 1]
                            if x == 0:
                                label[0] = max(label[0] + tail[j], label[1] + others[j])
                                label[2] = max(label[2] + tail[j], label[3] + others[j])
                                label[1], label[3] = -np.inf, -np.inf
                            else:
                                label[1] = max(label[1], label[0] + least_wait)
                                label[3] = max(label[3], label[2] + least_wait)
                            at = (x, i, state - first[x], h)
                            _place(labels[at], count, at, label)


@jit
def _place(known: Floats, count: Ints, state: tuple[int, int, int, int], label: Floats) -> None:
    """Put a label among those of a state unless one is no worse; beyond the most it is merged with the last."""
    number, kept = count[state], 0
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
    count[state] = kept + 1


@jit_inside
def _no_worse(one: Floats, other: Floats) -> bool:
    """Whether a label is at most another in every part."""
    return bool(one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2] and one[3] <= other[3])
