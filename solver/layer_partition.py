r"""
Exact division of layers into stages: dynamic programming over thresholds on the slowest stage.

Sets, data and the problem are those of ``taut.formulations.partition``: minimise the sum of the stages' ``low`` seconds
and of cuts, plus (m - 1) times the largest ``high`` seconds (a sum and a bottleneck objective together), so that every
stage fits its memory and the patterns use up the slow tensor groups. For a threshold :math:`\theta` on every stage's
``high`` seconds let

(1) :math:`D_\theta[x, i, a, b]` be the least sum of low, edge and tail seconds of stages x..pp-1 on layers i..L-1, a
    stages before x being all fast and b all slow. It is found backwards over x: stage x takes a range [i, j), a
    pattern, and the recompute with the least seconds among those that fit.
(2) The optimum is :math:`\min_\theta (m - 1) \theta + D_\theta[0, 0, 0, 0]` over the distinct values of ``high``, since
    at an optimum some stage attains the threshold.
(3) :math:`D_\theta` falls as :math:`\theta` rises. So the least feasible threshold is found by bisection; larger ones
    are tried in order until :math:`(m - 1) \theta + D_\infty` is no better than the best found. The optimum is exact.

One threshold takes :math:`O(pp L^2)` steps, times the patterns and the pairs (a, b) with two classes of device.

References
----------
Minoux (1989), Solving combinatorial problems with combined min-max-min-sum objective and applications. Li, Wang, Ma,
Lin and Zhang (2022), AMP: section 3.5 approximates the same problem in O(k L^4) steps, without memory and recompute.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.partition import PartitionProblem
from taut.formulations.strategy import Division

Steps = NDArray[np.int16]
"""Ends, recomputes and patterns; layers are far fewer than 32,768."""
BEYOND, FULL = -2, -1
"""In the place of a recompute: every one exceeds the threshold, or those within it exceed the memory."""


class _Ranges(NamedTuple):
    """Figures of every range, as ``taut.formulations.partition`` names them."""

    low: Floats
    high: Floats
    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    gradients: Floats
    gradient_cap: float
    dp: int
    slow: int
    edge: Floats
    tail: Floats


NONE = Division((), ())
"""In the place of a division where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """
    A division and what it costs.

    Parameters
    ----------
    seconds
        Least seconds; infinite where nothing fits.
    division
        Stages and recompute; ``NONE`` where nothing fits.
    patterns
        Pattern q of every stage (``taut.formulations.partition`` (4)).
    """

    seconds: float
    division: Division = NONE
    patterns: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether any division fits."""
        return bool(self.division.stages)


def solve_partition(
    problem: PartitionProblem, edge: Floats, tail: Floats, *, gradient_cap: float = np.inf
) -> Partition:
    """
    The division of least seconds, (2).

    Parameters
    ----------
    problem
        Seconds and bytes of every range.
    edge, tail
        Seconds of a cut before layer j, and of stage 0 ending at layer j, (L+1,).
    gradient_cap
        Bytes of gradients that no stage may exceed.

    Returns
    -------
    Partition
        The optimum, or that nothing fits.
    """
    if not np.isfinite(problem.high).any():
        return Partition(seconds=np.inf)
    ranges = _Ranges(
        low=problem.low,
        high=problem.high,
        fixed=problem.fixed,
        activation=problem.activation,
        in_flight=problem.in_flight,
        budget=problem.budget,
        gradients=problem.gradients,
        gradient_cap=gradient_cap,
        dp=problem.dp,
        slow=problem.slow_groups,
        edge=edge,
        tail=tail,
    )
    seconds, picks = _search(ranges, problem.micro_batches, _thresholds(problem.high))
    if not np.isfinite(seconds):
        return Partition(seconds=np.inf)
    return Partition(
        seconds=float(seconds),
        division=Division.of_ends(picks[:, 0], picks[:, 1]),
        patterns=tuple(picks[:, 2].tolist()),
    )


def _thresholds(high: Floats) -> Floats:
    """Distinct finite seconds of ranges that hold a layer, ascending."""
    first, end = np.triu_indices(high.shape[-1], 1)
    values = np.unique(high[:, :, first, end])
    return np.asarray(values[np.isfinite(values)])


@jit
def _search(ranges: _Ranges, m: int, thresholds: Floats) -> tuple[float, Ints]:
    """The optimum (2) by (3), with end, recompute and pattern of every stage (pp, 3)."""
    count, pp = len(thresholds), len(ranges.in_flight)
    picks, best_picks = np.zeros((pp, 3), np.int64), np.zeros((pp, 3), np.int64)
    sums, step = _tables(ranges)
    least = _stage_sum(ranges, thresholds[count - 1], best_picks, sums, step)
    if not np.isfinite(least):
        return np.inf, best_picks
    best = (m - 1) * _highest(ranges, best_picks) + least
    below, above = 0, count - 1
    climbing = False
    while True:
        climbing = climbing or below >= above
        t = below if climbing else (below + above) // 2
        if climbing and (t == count or (m - 1) * thresholds[t] + least >= best):
            return best, best_picks
        total = _stage_sum(ranges, thresholds[t], picks, sums, step)
        if np.isfinite(total):
            value = (m - 1) * _highest(ranges, picks) + total
            if value < best:
                best = value
                best_picks[:] = picks
        if climbing or not np.isfinite(total):
            below = t + 1
        else:
            above = t


@jit
def _highest(ranges: _Ranges, picks: Ints) -> float:
    """Largest ``high`` seconds of the stages in ``picks`` (pp, 3)."""
    worst, first = 0.0, 0
    for x in range(picks.shape[0]):
        worst = max(worst, ranges.high[picks[x, 2], picks[x, 1], first, picks[x, 0]])
        first = picks[x, 0]
    return worst


@jit
def _tables(ranges: _Ranges) -> tuple[Floats, Steps]:
    """Room for D[x, i, a, b] and its choices; a and b reach no further than the groups of their class."""
    layers, pp, dp = ranges.low.shape[2] - 1, len(ranges.in_flight), ranges.dp
    fasts, slows = 0, 0
    if ranges.low.shape[0] > 1:
        fasts, slows = min(pp, max(pp * dp - ranges.slow, 0) // dp), min(pp, ranges.slow // dp)
    value = np.empty((pp + 1, layers + 1, fasts + 1, slows + 1))
    return value, np.empty((pp, layers + 1, fasts + 1, slows + 1, 3), np.int16)


@jit
def _stage_sum(ranges: _Ranges, threshold: float, picks: Ints, value: Floats, step: Steps) -> float:
    """D_threshold[0, 0, 0, 0] of (1), with the end, recompute and pattern of every stage in ``picks``."""
    patterns, layers, pp = ranges.low.shape[0], ranges.low.shape[2] - 1, len(ranges.in_flight)
    value[:] = np.inf
    for a in range(value.shape[2]):
        for b in range(value.shape[3]):
            if patterns == 1 or _counts_fit(ranges, a, b, pp):
                value[pp, layers, a, b] = 0.0
    for x in range(pp - 1, -1, -1):
        _extend(ranges, threshold, x, value, step)
    i, a, b = 0, 0, 0
    for x in range(pp if np.isfinite(value[0, 0, 0, 0]) else 0):
        picks[x] = step[x, i, a, b]
        a += 1 if picks[x, 2] == 0 and patterns > 1 else 0
        b += 1 if picks[x, 2] == 1 else 0
        i = picks[x, 0]
    return float(value[0, 0, 0, 0])


@jit
def _counts_fit(ranges: _Ranges, fasts: int, slows: int, pp: int) -> bool:
    """Whether these numbers of all-fast and all-slow stages can use up the slow groups."""
    mixed, dp = pp - fasts - slows, ranges.dp
    return mixed >= 0 and dp * slows + mixed <= ranges.slow <= dp * slows + (dp - 1) * mixed


@jit
def _extend(ranges: _Ranges, threshold: float, x: int, value: Floats, step: Steps) -> None:
    """Fill D[x] from D[x + 1] over the ranges [i, j) that stage x can take."""
    patterns, layers, pp = ranges.low.shape[0], ranges.low.shape[2] - 1, len(ranges.in_flight)
    # Arrays are bound once: each look-up through the tuple would count a reference.
    gradients, edge, tail, budget = ranges.gradients, ranges.edge, ranges.tail, ranges.budget
    low, high, fixed, activation = ranges.low, ranges.high, ranges.fixed, ranges.activation
    held, cap = ranges.in_flight[x], ranges.gradient_cap
    last_end = layers - (pp - 1 - x)
    for i in range(x, 1 if x == 0 else last_end):
        for j in range(layers if x == pp - 1 else i + 1, last_end + 1):
            if gradients[i, j] > cap:
                break
            extra = (edge[j] if x < pp - 1 else 0.0) + (tail[j] if x == 0 else 0.0)
            within = False
            for q in range(patterns):
                seconds, r = _cheapest(low, high, fixed, activation, held, budget[q], threshold, q, i, j)
                within = within or r != BEYOND
                if r < 0 or not np.isfinite(extra):
                    continue
                for a in range(min(x, value.shape[2] - 1) + 1):
                    for b in range(min(x - a, value.shape[3] - 1) + 1):
                        a2 = a + 1 if q == 0 and patterns > 1 else a
                        b2 = b + 1 if q == 1 else b
                        if a2 >= value.shape[2] or b2 >= value.shape[3]:
                            continue
                        total = seconds + extra + value[x + 1, j, a2, b2]
                        if total < value[x, i, a, b]:
                            value[x, i, a, b] = total
                            step[x, i, a, b, 0], step[x, i, a, b, 1], step[x, i, a, b, 2] = j, r, q
            if not within:
                # Longer ranges take longer still.
                break


@jit
def _cheapest(
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
