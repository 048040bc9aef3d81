r"""
Exact division of layers into stages: dynamic programming over thresholds.

For a threshold :math:`\theta` on every stage's ``high`` seconds,

(1) :math:`D_\theta[x, i, a, b]` = least sum of low and edge seconds of stages x..pp-1 on layers i..L-1, a stages before
    x being all fast and b all slow, is found backwards over x;
(2) the optimum is :math:`\min_\theta (m - 1) \theta + D_\theta[0, 0, 0, 0]` over the distinct values of ``high``.

The least feasible threshold is found by bisection; larger ones are tried in order until
:math:`(m - 1) \theta + D_\infty` is no better than the best found, so the optimum is exact. A stage takes the recompute
with the least seconds among those that fit. This does what the O(k L^4) search of Li et al. (AMP, section 3.5)
approximates, and also holds memory, recompute and two classes of device.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.data.costs import RECOMPUTE
from taut.formulations.partition import PartitionProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Least seconds, with stages, recompute and pattern of each stage; infinite and empty where nothing fits."""

    seconds: float
    stages: tuple[tuple[int, int], ...] = ()
    recompute: tuple[str, ...] = ()
    patterns: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether any division fits."""
        return bool(self.stages)


def solve_partition(
    problem: PartitionProblem, edge: Floats, tail: Floats, *, gradient_cap: float = np.inf
) -> Partition:
    """
    Least seconds over stages and recompute.

    Parameters
    ----------
    problem
        Seconds and bytes of every range.
    edge, tail
        Seconds of a cut before layer j, and of stage 0 ending at layer j, (L+1,).
    gradient_cap
        Bytes of gradients that no stage may exceed.
    """
    if not np.isfinite(problem.high).any():
        return Partition(seconds=np.inf)
    seconds, picks = _search(
        problem.low,
        problem.high,
        problem.fixed,
        problem.activation,
        problem.in_flight,
        problem.budget,
        problem.gradients,
        gradient_cap,
        problem.micro_batches,
        problem.dp,
        problem.slow_groups,
        edge,
        tail,
        _thresholds(problem.high),
    )
    if not np.isfinite(seconds):
        return Partition(seconds=np.inf)
    ends = picks[:, 0].tolist()
    return Partition(
        seconds=float(seconds),
        stages=tuple(zip([0, *ends[:-1]], ends, strict=True)),
        recompute=tuple(RECOMPUTE[r] for r in picks[:, 1].tolist()),
        patterns=tuple(picks[:, 2].tolist()),
    )


def _thresholds(high: Floats) -> Floats:
    """Distinct finite seconds of ranges that hold a layer, ascending."""
    first, end = np.triu_indices(high.shape[-1], 1)
    values = np.unique(high[:, :, first, end])
    return np.asarray(values[np.isfinite(values)])


def least_excess(problem: PartitionProblem) -> tuple[int, int]:
    """
    Bytes by which the best division still exceeds memory, and the stage where it does; (0, -1) if one fits.

    The best division is the one whose worst stage exceeds its budget least; recompute is free to choose. With two
    classes of device every stage may take the larger budget, so the figure is a least one.
    """
    need = np.where(np.isfinite(problem.low.min(axis=0)), problem.fixed, np.iinfo(np.int64).max // 4)
    excess, stage = _least_excess(need, problem.activation, problem.in_flight, problem.budget.max())
    return (int(excess), int(stage)) if excess > 0 else (0, -1)


@njit(cache=True, nogil=True)
def _least_excess(fixed: Ints, activation: Ints, in_flight: Ints, budget: int) -> tuple[int, int]:
    pp, size = len(in_flight), fixed.shape[1]
    big = np.iinfo(np.int64).max // 2
    worst = np.full((pp + 1, size), big)
    at = np.full((pp + 1, size), -1)
    worst[pp, size - 1] = -big
    for x in range(pp - 1, -1, -1):
        for i in range(size - 1):
            for j in range(i + 1, size):
                if worst[x + 1, j] == big:
                    continue
                least = big
                for r in range(fixed.shape[0]):
                    least = min(least, fixed[r, i, j] + in_flight[x] * activation[r, i, j] - budget)
                value = max(least, worst[x + 1, j])
                if value < worst[x, i]:
                    worst[x, i] = value
                    at[x, i] = x if least >= worst[x + 1, j] else at[x + 1, j]
    return worst[0, 0], at[0, 0]


@njit(cache=True, nogil=True)
def _search(
    low, high, fixed, activation, in_flight, budget, gradients, cap, m, dp, slow, edge, tail, thresholds
):
    """Bisect to the least feasible threshold, then climb while it can pay, (2)."""
    pp, count = len(in_flight), len(thresholds)
    picks, best_picks = np.zeros((pp, 3), np.int64), np.zeros((pp, 3), np.int64)
    args = (low, high, fixed, activation, in_flight, budget, gradients, cap, dp, slow, edge, tail)
    least = _stage_sum(args, thresholds[count - 1], best_picks)
    if not np.isfinite(least):
        return np.inf, best_picks
    best = (m - 1) * _highest(high, best_picks) + least
    below, above = 0, count - 1
    while below < above:
        middle = (below + above) // 2
        total = _stage_sum(args, thresholds[middle], picks)
        if np.isfinite(total):
            above = middle
            value = (m - 1) * _highest(high, picks) + total
            if value < best:
                best = value
                best_picks[:] = picks
        else:
            below = middle + 1
    for t in range(below, count):
        if (m - 1) * thresholds[t] + least >= best:
            break
        total = _stage_sum(args, thresholds[t], picks)
        value = (m - 1) * _highest(high, picks) + total
        if value < best:
            best = value
            best_picks[:] = picks
    return best, best_picks


@njit(cache=True, nogil=True)
def _highest(high, picks):
    worst, first = 0.0, 0
    for x in range(picks.shape[0]):
        worst = max(worst, high[picks[x, 2], picks[x, 1], first, picks[x, 0]])
        first = picks[x, 0]
    return worst


@njit(cache=True, nogil=True)
def _stage_sum(args, threshold, picks):
    """D_threshold[0, 0, 0, 0] of (1), with the choices that reach it in ``picks``."""
    low, high, fixed, activation, in_flight, budget, gradients, cap, dp, slow, edge, tail = args
    patterns, recomputes, size = low.shape[0], low.shape[1], low.shape[2]
    pp, layers = len(in_flight), size - 1
    fast_most = pp if patterns > 1 else 0
    slow_most = min(pp, slow // dp) if patterns > 1 else 0
    value = np.full((pp + 1, size, fast_most + 1, slow_most + 1), np.inf)
    step = np.full((pp, size, fast_most + 1, slow_most + 1, 3), -1, np.int16)
    for a in range(fast_most + 1):
        for b in range(slow_most + 1):
            mixed = pp - a - b
            if patterns == 1 or (mixed >= 0 and dp * b + mixed <= slow <= dp * b + (dp - 1) * mixed):
                value[pp, layers, a, b] = 0.0
    for x in range(pp - 1, -1, -1):
        for i in range(x if x > 0 else 0, layers - (pp - 1 - x)):
            if x == 0 and i > 0:
                break
            for j in range(i + 1, layers - (pp - 1 - x) + 1):
                if gradients[i, j] > cap:
                    continue
                if x == pp - 1 and j < layers:
                    continue
                extra = (edge[j] if x < pp - 1 else 0.0) + (tail[j] if x == 0 else 0.0)
                if not np.isfinite(extra):
                    continue
                reached = False
                for q in range(patterns):
                    seconds, choice = np.inf, -1
                    for r in range(recomputes):
                        if (
                            low[q, r, i, j] < seconds
                            and high[q, r, i, j] <= threshold
                            and fixed[r, i, j] + in_flight[x] * activation[r, i, j] <= budget[q]
                        ):
                            seconds, choice = low[q, r, i, j], r
                    if choice < 0:
                        continue
                    reached = True
                    for a in range(min(x, fast_most) + 1):
                        for b in range(min(x - a, slow_most) + 1):
                            a2 = a + 1 if q == 0 and patterns > 1 else a
                            b2 = b + 1 if q == 1 else b
                            if b2 > slow_most:
                                continue
                            total = seconds + extra + value[x + 1, j, a2, b2]
                            if total < value[x, i, a, b]:
                                value[x, i, a, b] = total
                                step[x, i, a, b, 0] = j
                                step[x, i, a, b, 1] = choice
                                step[x, i, a, b, 2] = q
                if not reached and _beyond(high, i, j, threshold):
                    break
    if np.isfinite(value[0, 0, 0, 0]):
        i, a, b = 0, 0, 0
        for x in range(pp):
            j, r, q = step[x, i, a, b, 0], step[x, i, a, b, 1], step[x, i, a, b, 2]
            picks[x, 0], picks[x, 1], picks[x, 2] = j, r, q
            a += 1 if q == 0 and patterns > 1 else 0
            b += 1 if q == 1 else 0
            i = j
    return value[0, 0, 0, 0]


@njit(cache=True, nogil=True)
def _beyond(high, i, j, threshold):
    """Whether the range exceeds the threshold under every pattern and recompute, as all longer ones then do."""
    for q in range(high.shape[0]):
        for r in range(high.shape[1]):
            if high[q, r, i, j] <= threshold:
                return False
    return True
