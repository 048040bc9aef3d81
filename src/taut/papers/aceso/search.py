r"""
Best plan by Aceso's formula, and a lower bound on all plans, by branch and bound over thresholds.

At a micro-batch, with B micro-batches and :math:`\phi` of ``taut.papers.aceso.division``, the least step is

(1) :math:`T = \min_\theta (B - 1) \theta + \phi(\theta)`,

and as :math:`\phi` falls, thresholds in :math:`[\alpha, \beta]` give at least :math:`(B - 1) \alpha + \phi(\beta)`.
Intervals are split in half, the one with the least bound first. If the division at :math:`\beta` has its slowest stage
at :math:`\sigma < \beta`, then :math:`\phi` is the same on :math:`[\sigma, \beta]`, whose least step is that of the
division. The search ends when the least bound is within the tolerance of the best step.

By prices whose recomputation is a lower bound (``StageTable``, not cautious) the result is a lower bound on every plan
of the space. By cautious prices it is a plan, whose recomputed operators are then chosen and which is priced by the
formula itself.
"""

import heapq
import math
from dataclasses import dataclass, field, replace

import numpy as np

from taut.data.arrays import Flags
from taut.papers.aceso.division import Division, StagePrices, StageTables, divide, stage_prices
from taut.papers.aceso.formula import AcesoProblem, AcesoStage, price, step_seconds
from taut.papers.aceso.recompute import recomputed_at_best
from taut.solver.branch_and_bound.stop import Stopwatch

TOLERANCE = 1e-5
"""Share of a step to which (1) is solved."""
ROUNDED = 1.0
"""Bytes by which sums of the same figures may differ."""
ROUNDING = 1e-9
"""Share by which sums of the same figures may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoResult:
    """
    Least step found and a lower bound on every plan.

    Micro-batch, stages and the operators that each recomputes; without stages, no plan is known to be faster than the
    one that the search began from.
    """

    seconds: float
    lower_bound: float
    micro_batch: int = 0
    stages: tuple[AcesoStage, ...] = ()
    recomputed: tuple[Flags, ...] = field(default=())


def best_plan(problem: AcesoProblem, known: float, time_limit: float = math.inf) -> AcesoResult:
    """
    Search all micro-batches.

    ``known``: seconds of a known plan; plans that are slower are not looked at; ``time_limit``: seconds of the searches
    for plan and bound together, without those of their tables and of compilations.
    """
    # The largest first: few plans of theirs fit, and the time that they leave is for the others.
    batches = sorted(problem.micro_batches, reverse=True)
    sizes = [m for m in batches if problem.degrees(m) and problem.global_batch % m == 0]
    layers = max((most_layers(problem, m, known) for m in sizes), default=0)
    best = AcesoResult(seconds=known, lower_bound=known)
    bound = known
    for cautious in (True, False):
        prices = _prices(problem, sizes, layers, cautious=cautious)
        with Stopwatch() as watch:
            for number, m in enumerate(sizes):
                until = time_limit / 2 * (number + 1) / len(sizes)
                found, least = _search(problem, prices[m], m, min(bound, best.seconds), watch, until)
                if not cautious:
                    bound = min(bound, best.seconds, least)
                elif found is not None:
                    best = min(best, _chosen_plan(problem, m, found), key=lambda each: each.seconds)
    return replace(best, lower_bound=bound * (1 - ROUNDING))


def _prices(problem: AcesoProblem, sizes: list[int], layers: int, *, cautious: bool) -> dict[int, StagePrices]:
    """Prices of all stages by micro-batch."""
    tables = StageTables(problem, layers, cautious=cautious)
    return {m: stage_prices(problem, m, tables) for m in sizes}


def _search(
    problem: AcesoProblem, prices: StagePrices, m: int, known: float, watch: Stopwatch, until: float
) -> tuple[Division | None, float]:
    """The best division at a micro-batch that is faster than what is known, if any, and a lower bound on all."""
    count = problem.global_batch // m
    best, chosen = known, None
    start = divide(problem, m, prices, known / max(count - 1, 1))
    # Bound, lower end, and the division at the upper end, which is its slowest stage; numbers keep the order of equals.
    heap = [] if start is None else [(float(start.seconds.sum()), 0, 0.0, start)]
    serial = 0
    while heap and heap[0][0] < best * (1 - TOLERANCE):
        _, _, lower, upper = heap[0]
        step = step_seconds(upper.seconds, count)
        if step < best:
            best, chosen = step, upper
        if watch.seconds > until:
            break
        heapq.heappop(heap)
        middle = (lower + float(upper.seconds.max())) / 2
        for alpha, division in ((middle, upper), (lower, divide(problem, m, prices, middle))):
            if division is not None:
                serial += 1
                bound = (count - 1) * alpha + float(division.seconds.sum())
                heapq.heappush(heap, (bound, serial, alpha, division))
    return chosen, min(best, heap[0][0]) if heap else best


def most_layers(problem: AcesoProblem, m: int, known: float) -> int:
    """The most whole layers in a stage of a plan that is faster than what is known."""
    threshold, least = known / max(problem.global_batch // m - 1, 1), np.inf
    for tp, dp in problem.degrees(m):
        operators = problem.profile.operators[m // dp, tp]
        layer = slice(operators.head, operators.head + operators.layer)
        least = min(least, float(operators.forward[layer].sum() + operators.backward[layer].sum()))
    return int(min(problem.layers, threshold / least)) if least > 0 else problem.layers


def _chosen_plan(problem: AcesoProblem, m: int, division: Division) -> AcesoResult:
    """A division with what its stages recompute, priced by the formula."""
    flags = []
    for number, stage in enumerate(division.stages):
        operators = problem.profile.operators[m // stage.dp, stage.tp]
        behind = len(division.stages) - 1 - number
        where = stage.first, stage.end, behind
        flags.append(recomputed_at_best(operators, problem.layers, where, problem.memory_limit))
    found = price(problem, m, division.stages, flags)
    if found.memory.max() > problem.memory_limit + ROUNDED:
        raise RuntimeError(f"a plan needs {found.memory.max():.0f} of {problem.memory_limit:.0f} bytes")
    return AcesoResult(
        seconds=found.step, lower_bound=0.0, micro_batch=m, stages=division.stages, recomputed=tuple(flags)
    )
