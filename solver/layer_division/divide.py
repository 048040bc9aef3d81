r"""
Exact division of layers into stages: dynamic programming over thresholds on the slowest stage.

The problem is ``taut.formulations.partition``: minimise the sum of the stages' ``low`` seconds and of cuts, plus
(m - 1) times the largest ``high`` seconds, a sum and a bottleneck together. Every stage fits its memory, and the
patterns use up the slow tensor groups. Labels over a graph of states solve it
(``taut.solver.layer_division.labels`` (1) to (5)). If all devices are equal, a stage has one state.

With two classes of device a state is (a, b): a of the stages before are all fast, and b all slow. Divisions with at
most one mixed stage are found apart from divisions with more. In the former the only mixed stage has the seconds of the
slow class, in the latter one of the mixed stages has (``taut.formulations.partition`` (5)). Every placement takes at
least the bound by single pipelines, (2) to (7), so the search ends at the first division that takes no more.

(1) The optimizer takes its seconds for a parameter times the parameters of the largest stage. Let F(c) be the optimum
    without the optimizer if no stage has more than c parameters, and let p be the parameters of its largest stage. No
    division whose largest stage has p to c parameters is better than F(c) + optimizer p. The next cap is below p. F
    rises while caps fall. The search ends if :math:`F(c)` plus the optimizer of an even division is no better than the
    best.

If a framework states only some divisions (``taut.formulations.divisions``), the optimum is the least over their
families, with the layers of every stage held to the family.

One pipeline on two classes of device bounds any placement. It passes every stage on a block of one class, fast or slow.
The stage itself is all of this class, or mixed. Fix the number of stages that the pipeline passes on slow blocks. It
takes at least the optimum of ``taut.formulations.partition`` (1) or (1') with

(2) the seconds of the passed class, both in the sum and in the slowest stage: a pipeline waits for its own slowest
    stage;
(3) the memory and the ring of the stage's pattern: all fast, all slow or mixed;
(4) what a hop between classes adds wherever the class changes, and what hops between nodes add for its blocks of each
    class.

Let :math:`D_\theta` be the least sum if no stage takes more than :math:`\theta`. The optimum is the least
:math:`(m - 1) \theta + D_\theta` over the seconds of ranges, found as in ``taut.solver.layer_division.labels`` (3).

Let a placement have F fast and S slow blocks, :math:`F + S = dp\,pp`. One of these cases holds:

(5) No pipeline is all slow. The pipeline with the most slow blocks has :math:`\lceil S / dp \rceil` to
    :math:`pp - 1` of them.
(6) Some pipeline is all slow, and all others are all fast. Then pp divides F, and every stage is mixed. The all-slow
    pipeline is bounded with mixed stages.
(7) Some pipeline is all slow, so no stage is all fast. a pipelines are all fast, and :math:`b \ge 1` pipelines have
    blocks of both classes, :math:`F - a\,pp` fast blocks together. One of the latter has the fewest fast blocks, f, and
    :math:`f \le \lfloor (F - a\,pp) / b \rfloor`. This pipeline and the all-slow one together bound the step, for
    every f that some a and b allow, (9) to (12).

The least case is a bound. Nothing is assumed about which class is quicker on a range. If blocks span nodes, n_1 is not
known, and (5) with up to pp slow blocks is the only case.

Divisions are listed in the order of their bounds, the best first. Let F be a box of divisions, least and most layers of
every stage, and b(F) the optimum in it, attained by D, of :math:`n_x` layers. All others in F lie in one of the boxes

(8) :math:`F_{x \pm} = \{D' \in F : n'_y = n_y \; (y < x), \; n'_x < n_x \text{ or } n'_x > n_x\}`, x < pp - 1,

which have no division in common. The box with the least b is taken first.

Of two pipelines that are bounded together one passes slow blocks alone. Let the second pass just f stages on fast
blocks, and no pipeline that has both classes fewer. As one pipeline is all slow, every stage that the second passes on
a fast block is mixed; and as all pipelines with fast blocks have f of them at least, they are F / f, rounded down, at
most, F the fast blocks. So many fast blocks has a stage at the most, and its ring runs over at least as many nodes as
its other blocks ask for (``taut.solver.bounds.least_rings`` (6)).

(9) Both pipelines have one division of the layers. Each takes at least what (2) to (4) say of it, and the step takes
    the longer of both.
(10) For thresholds :math:`\theta` on the stages of the first, ascending, the least of that over the divisions that keep
    to one is found by labels. Where the first has a slowest stage of :math:`\theta_1` to :math:`\theta_2` seconds, it
    waits for the lesser; such an interval is halved until it is no better than the best found.
(11) The second waits for its own slowest stage. Of it is known alone whether it takes as many seconds as the least
    feasible threshold, and these are counted.
(12) The graph of states is the second pipeline's, with stages of kind ``MIXED_FAST`` and ``SLOW``. A state says as well
    whether one of the stages from x on takes the second the seconds that are counted (h). A label are (S, W) of both
    pipelines, as in ``taut.solver.layer_division.labels`` (4), of which none is at least another in all four.

The kernel of (12) is beside that of ``taut.solver.layer_division.labels``, whose labels are one pair (S, W) at a
threshold. Here a label is two pairs, a stage has a kind in each pipeline, and its recompute is the cheapest of both.

References
----------
Minoux (1989), Solving combinatorial problems with combined min-max-min-sum objective and applications. Li, Wang, Ma,
Lin and Zhang (2022), AMP: section 3.5 approximates the same problem in O(k L^4) steps, without memory and recompute.
Lawler (1972), A procedure for computing the K best solutions to discrete optimization problems.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.partition import NO_CROSSING, Crossing, LaterStages, PartitionProblem
from taut.formulations.strategy import Division
from taut.solver.layer_division.labels import (
    BEYOND,
    FAST,
    MIXED,
    MIXED_FAST,
    MIXED_SLOW,
    SLOW,
    SLOW_MIXED,
    Bytes,
    Cuts,
    Ranges,
    Seconds,
    StateGraph,
    Waits,
    alike,
    cheapest,
    events,
    least_division,
    one_pipeline,
    thresholds_of,
    two_classes,
)


@dataclass(frozen=True, slots=True)
class Passed:
    """Numbers of stages that a pipeline passes on slow blocks, at least and at most, and the patterns of its stages."""

    least: int
    most: int
    patterns: tuple[int, ...] = (FAST, SLOW, MIXED_FAST, MIXED_SLOW)


@dataclass(frozen=True, slots=True)
class Beside:
    """Stages passed on fast blocks beside an all-slow pipeline, the most fast blocks of a stage, the latter alone."""

    fast: int
    most: int
    alone: Passed


def pipeline_cases(problem: PartitionProblem) -> Iterator[Passed | Beside]:
    """Yield the pipelines that a placement has in each case, (5) to (7)."""
    pp, dp, slow = problem.pp, problem.dp, problem.slow_groups
    fast = pp * dp - slow
    if problem.more_slow_groups or fast == 0:
        yield Passed(-(-slow // dp), pp)
        return
    yield Passed(-(-slow // dp), min(pp - 1, slow))
    if slow < pp:
        return
    if fast % pp == 0:
        yield Passed(pp, pp, (MIXED_SLOW,))
    numbers = [(fast - a * pp, b) for a in range(dp - 1) for b in range(1, dp - a)]
    fewest = max((left // b for left, b in numbers if b <= left <= b * (pp - 1)), default=0)
    alone = Passed(pp, pp, (SLOW, MIXED_SLOW))
    yield from (Beside(f, min(fast // f, dp - 1), alone) for f in range(fewest, 0, -1))


def of_pipeline(ranges: Ranges) -> Ranges:
    """Figures of one pipeline from those of all, by the class that it passes and the stage's pattern, (2) to (4)."""
    passed, pattern = [FAST, SLOW, FAST, SLOW], [FAST, SLOW, MIXED, MIXED]
    seconds = ranges.seconds.low[passed]
    # What a mixed stage may not hold, no pipeline passes there.
    seconds[MIXED_FAST:] = np.where(np.isfinite(ranges.seconds.low[-1]), seconds[MIXED_FAST:], np.inf)
    return ranges._replace(
        seconds=Seconds(seconds, seconds, ranges.seconds.forward[passed]),
        bytes=ranges.bytes._replace(budget=ranges.bytes.budget[pattern]),
        waits=ranges.waits._replace(
            ring=ranges.waits.ring.take(pattern, axis=1), each=ranges.waits.each.take(pattern, axis=1), overlap=False
        ),
        kinds=np.arange(len(pattern)),
    )


MOST_CAPS = 12
"""Caps tried in (1) before the rest is bounded; an even division is near, so three are usual."""
NONE = Division((), ())
"""In the place of a division where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Least seconds, infinite where nothing fits, the division or ``NONE``, and the pattern q of every stage."""

    seconds: float
    division: Division = NONE
    patterns: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether any division fits."""
        return bool(self.division.stages)


class Costs(NamedTuple):
    """What a division costs beside its stages, as ``solve_partition`` takes it."""

    edge: Floats
    tail: Floats
    later: LaterStages | None
    crossing: Crossing
    passed: Passed | None = None
    known: float = -np.inf


def solve_partition(
    problem: PartitionProblem,
    edge: Floats,
    tail: Floats,
    *,
    later: LaterStages | None = None,
    crossing: Crossing = NO_CROSSING,
    passed: Passed | None = None,
    gradient_cap: float = np.inf,
    limit: float = np.inf,
    known: float = -np.inf,
) -> Partition:
    """The division of least seconds up to the limit, or one that fits; any that takes at most ``known`` is as good."""
    if not np.isfinite(problem.high).any():
        return Partition(seconds=np.inf)
    costs, best = Costs(edge, tail, later, crossing, passed, known), Partition(seconds=np.inf)
    for family in problem.by_family:
        below = min(limit, best.seconds)
        if later is None or later.optimizer == 0.0:
            found = _solved(family, costs, gradient_cap, below)
        else:
            found = _with_optimizer(family, costs, later, below)
        best = found if found.seconds < best.seconds or not best.feasible else best
    return best


def _with_optimizer(problem: PartitionProblem, costs: Costs, later: LaterStages, limit: float) -> Partition:
    """The division of least seconds with the optimizer of its largest stage, (1)."""
    best, cap, parameters = Partition(seconds=np.inf), np.inf, later.parameters
    least, floor, known = least_optimizer(problem, later), np.inf, costs.known
    costs = costs._replace(known=known - least)
    for _ in range(MOST_CAPS):
        found = _solved(problem, costs, cap, min(limit, best.seconds) - least)
        if not found.feasible:
            return best
        largest = float(parameters[found.division.starts, found.division.ends].max())
        seconds = found.seconds + later.optimizer * largest
        if seconds < best.seconds:
            best = replace(found, seconds=seconds)
        floor = found.seconds + least
        if floor >= min(best.seconds, limit):
            return replace(best, seconds=min(best.seconds, limit))
        if floor <= known:
            break
        cap = np.nextafter(largest, 0.0)
    return replace(best, seconds=min(best.seconds, floor))


def least_optimizer(problem: PartitionProblem, later: LaterStages) -> float:
    """Seconds of the optimizer of an even division, or of the largest layer."""
    parameters, layers = later.parameters, np.arange(problem.num_layers)
    return later.optimizer * float(max(parameters[0, -1] / problem.pp, parameters[layers, layers + 1].max()))


def _solved(problem: PartitionProblem, costs: Costs, cap: float, limit: float) -> Partition:
    """The optimum under a cap, without the optimizer of (1)."""
    if costs.passed is not None:
        return _of_one_pipeline(problem, costs, costs.passed, cap, limit)
    if problem.low.shape[0] == 1 or problem.pp == 1:
        return _with_mixed(problem, costs, cap, limit, (0, problem.pp))
    few = _with_mixed(problem.with_mixed(1), costs, cap, limit, (0, 1))
    if few.feasible and min(few.seconds, limit) <= costs.known:
        return few
    below, several = min(limit, few.seconds), (2, problem.pp)
    many = _with_mixed(problem, costs, cap, below, several)
    if costs.known < many.seconds < below:
        # Twice as many states: only where the quicker bound without (5) is not enough.
        many = _with_mixed(problem.with_mixed(2, 1), costs, cap, below, several)
    return many if many.seconds < few.seconds or not few.feasible else few


def _with_mixed(problem: PartitionProblem, costs: Costs, cap: float, limit: float, mixed: tuple[int, int]) -> Partition:
    """The optimum with so many mixed stages, at least and at most."""
    ranges, patterns = ranges_of(problem, costs, cap), len(problem.low)
    graph = alike(problem.pp)
    if patterns > 1:
        hidden = mixed[1] <= 1 and bool((problem.low[1] >= problem.low[0]).all())
        slow = problem.slow_groups, problem.slow_groups + problem.more_slow_groups
        graph = two_classes(problem.pp, problem.dp, slow, mixed, of_slow=patterns > SLOW_MIXED, hidden=hidden)
        graph = graph._replace(added=events(costs.crossing))
    return _least(ranges, graph, problem.micro_batches, limit, costs.known)


def _of_one_pipeline(problem: PartitionProblem, costs: Costs, passed: Passed, cap: float, limit: float) -> Partition:
    """The optimum of one pipeline of two classes."""
    ranges = of_pipeline(ranges_of(problem, costs, cap))
    graph = one_pipeline(problem.pp, passed.least, passed.most, passed.patterns, costs.crossing)
    return _least(ranges, graph, problem.micro_batches, limit)


def _least(ranges: Ranges, graph: StateGraph, m: int, limit: float, known: float = -np.inf) -> Partition:
    """The division with the least labels."""
    seconds, picks = least_division(ranges, graph, m, thresholds_of(ranges), limit, known)
    if picks is None:
        return Partition(seconds=np.inf)
    return Partition(
        seconds=float(seconds),
        division=Division.of_ends(picks[:, 0], picks[:, 1]),
        patterns=tuple(np.minimum(picks[:, 2], MIXED).tolist()),
    )


def ranges_of(problem: PartitionProblem, costs: Costs, cap: float = np.inf) -> Ranges:
    """Figures of all ranges as labels take them; ``cap``: bytes of gradients, or parameters, of a stage at most."""
    later, layers, patterns = costs.later, problem.num_layers, len(problem.low)
    size = problem.gradients if later is None else later.parameters
    beyond = np.triu(size, 1) > cap
    held = np.array([[1, layers]] * problem.pp)
    if problem.families is not None:
        held = np.stack((problem.families[..., 0].min(axis=0), problem.families[..., 1].max(axis=0)), axis=1)
    forward = np.zeros((patterns, layers + 1, layers + 1)) if problem.forward is None else problem.forward
    none = np.zeros(layers + 1)
    return Ranges(
        seconds=Seconds(problem.low, problem.high, forward),
        bytes=Bytes(problem.fixed, problem.activation, problem.in_flight, problem.budget),
        cuts=Cuts(
            whole=np.stack((costs.edge, none), axis=1),
            before=np.stack((none if later is None else later.edge, none), axis=1),
            message=np.arange(layers + 1),
        ),
        waits=_waits(problem, costs),
        kinds=np.arange(patterns),
        layers=held,
        reach=np.where(beyond.any(axis=1), beyond.argmax(axis=1) - 1, layers),
        growing=problem.growing,
    )


def _waits(problem: PartitionProblem, costs: Costs) -> Waits:
    """What later stages wait for by pattern of a stage; a mixed stage has the ring of the last pattern."""
    later, layers, patterns = costs.later, problem.num_layers, len(problem.low)
    if later is None:
        nothing, zero = np.full((problem.pp, patterns), -np.inf), np.zeros((layers + 1, layers + 1))
        return Waits(np.zeros_like(nothing), nothing, zero, zero, False, False, costs.tail, zero[0], -np.inf)
    of_class = later.class_ring[np.minimum(np.arange(patterns), MIXED)]
    return Waits(
        ring=np.maximum(later.ring[:, None], of_class),
        each=np.broadcast_to(np.atleast_1d(later.each)[:, None], (problem.pp, patterns)).astype(np.float64, order="C"),
        exchanged=later.exchanged,
        unhidden=later.unhidden,
        overlap=later.overlap,
        in_full=False,
        tail=costs.tail,
        others=np.full(layers + 1, later.others),
        least_wait=float(costs.tail[1 : layers - problem.pp + 2].min()) - later.others,
    )


class BestDivisions:
    """The divisions of a partition problem, the one with the least bound first, as ``solve_partition`` takes it."""

    def __init__(self, stages: PartitionProblem, edge: Floats, tail: Floats, later: LaterStages) -> None:
        self._stages, self._edge, self._tail, self._later = stages, edge, tail, later
        self._heap: list[tuple[float, int, Ints, Partition]] = []
        self._number = count()
        least_and_most = np.array([[1, stages.num_layers]] * stages.pp)
        for box in least_and_most[None] if stages.families is None else stages.families:
            self._add(box, np.inf)

    @property
    def least(self) -> float:
        """Seconds that all divisions take at least that are not named yet; infinite where there are none."""
        return self._heap[0][0] if self._heap else np.inf

    def next(self, limit: float) -> Partition | None:
        """The next division with its bound; None where none is below the limit, in seconds, now and later."""
        if self.least >= limit:
            return None
        seconds, _, box, found = heapq.heappop(self._heap)
        for part in _others(box, found.division.layers):
            self._add(part, limit, seconds)
        return found

    def _add(self, box: Ints, limit: float, least: float = -np.inf) -> None:
        if not box[:, 0].sum() <= self._stages.num_layers <= box[:, 1].sum():
            return
        of_box = replace(self._stages, families=box[None])
        found = solve_partition(of_box, self._edge, self._tail, later=self._later, limit=limit)
        if found.feasible and found.seconds < limit:
            heapq.heappush(self._heap, (max(found.seconds, least), next(self._number), box, found))


def _others(box: Ints, layers: Ints) -> Iterator[Ints]:
    """The boxes (8) of all other divisions of a box."""
    for x in range(len(box) - 1):
        for least, most in ((box[x, 0], layers[x] - 1), (layers[x] + 1, box[x, 1])):
            if least <= most:
                part = box.copy()
                part[:x] = layers[:x, None]
                part[x] = least, most
                yield part


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
    """Least seconds of a step with two such pipelines by (10), at most the limit; ``m``: micro-batches."""
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
            for part in range(4):
                known[kept, part] = known[k, part]
        kept += 1
    if kept == len(known):
        # No more than any division's in each: a lower bound.
        kept -= 1
        for part in range(4):
            label[part] = min(label[part], known[kept, part])
    # A row that an array is assigned to takes two seconds to compile.
    for part in range(4):
        known[kept, part] = label[part]
    count[state] = kept + 1


@jit_inside
def _no_worse(one: Floats, other: Floats) -> bool:
    """Whether a label is at most another in every part."""
    return bool(one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2] and one[3] <= other[3])
