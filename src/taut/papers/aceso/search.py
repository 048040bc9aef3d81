r"""
Best plan by Aceso's formula, and a lower bound on all plans, by branch and bound over thresholds.

At a micro-batch, with B micro-batches and :math:`\phi` of (3), the least step is

(1) :math:`T = \min_\theta (B - 1) \theta + \phi(\theta)`,

and as :math:`\phi` falls, thresholds in :math:`[\alpha, \beta]` give at least :math:`(B - 1) \alpha + \phi(\beta)`.
Intervals are split in half, the one with the least bound first. If the division at :math:`\beta` has its slowest stage
at :math:`\sigma < \beta`, then :math:`\phi` is the same on :math:`[\sigma, \beta]`, whose least step is that of the
division. The search ends when the least bound is within the tolerance of the best step.

By prices whose recomputation is a lower bound (``StageTable``, not cautious) the result is a lower bound on every plan
of the space. By cautious prices it is a plan, whose recomputed operators are then chosen and which is priced by the
formula itself.

The least sum of the seconds of stages, none above a threshold, is found by dynamic programming. With
:math:`\tau_j(c, [a, e))` the seconds of operators :math:`[a, e)` as a stage of degrees c with j stages behind it ((1)
of ``taut.papers.aceso.formula``, its recomputation from ``taut.papers.aceso.stage_table``), :math:`V_{j, g}(a)` is the
least sum of j last stages on g devices that hold the operators from a on:

(2) :math:`V_{0, 0}(n) = 0,\quad V_{j+1, g + g_c}(a) = \min_{c, e} \{ \tau_j(c, [a, e)) + V_{j, g}(e) :
\tau_j(c, [a, e)) \le \theta \}`

(3) :math:`\phi(\theta) = \min_j V_{j, N}(0)`.

Devices are counted from the last stage; a stage lies in one node, and whether its first or last device is at the end of
a node says which rate its messages have. Everything is enumerated, so (3) is exact for the table.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.papers.aceso.formula import AcesoProblem, AcesoStage, kinds_of, message_seconds, price, step_seconds
from taut.papers.aceso.operators import Operators
from taut.papers.aceso.stage_table import StageTable, recomputed_at_best, stage_table
from taut.solver.branch_and_bound.stop import Stopwatch


class StagePrices(NamedTuple):
    """
    Prices of all stages at one micro-batch, the first axis a pair of degrees.

    Devices; sums of seconds before an operator; seconds of messages into and out of a stage, within a node and between
    nodes; recomputation (``StageTable``); and of every operator its layer and its place in it, as first and as last.
    """

    devices: Ints
    before: Floats
    into: Floats
    out: Floats
    spans: Floats
    singles: Floats
    head: Floats
    places: Ints


@dataclass(frozen=True, slots=True)
class Division:
    """Stages with their seconds for a micro-batch."""

    stages: tuple[AcesoStage, ...]
    seconds: Floats


def stage_prices(
    problem: AcesoProblem, micro_batch: int, table_of: Callable[[tuple[int, int]], StageTable]
) -> StagePrices:
    """Prices of all stages at a micro-batch; ``table_of``: recomputation by micro-batch of a device and degree."""
    degrees = problem.degrees(micro_batch)
    keys = [(micro_batch // dp, tp) for tp, dp in degrees]
    each, tables = [problem.profile.operators[key] for key in keys], [table_of(key) for key in keys]
    messages = [_messages(problem, operators) for operators in each]
    return StagePrices(
        np.array([tp * dp for tp, dp in degrees]),
        np.array([_sums(operators, problem.layers) for operators in each]),
        np.array([into for into, _ in messages]),
        np.array([out for _, out in messages]),
        np.array([table.spans for table in tables]),
        np.array([table.singles for table in tables]),
        np.array([table.head for table in tables]),
        _places(each[0], problem.layers),
    )


def _sums(operators: Operators, layers: int) -> Floats:
    seconds = (operators.forward + operators.backward)[kinds_of(operators, layers)]
    return np.concatenate([[0.0], np.cumsum(seconds)])


def _messages(problem: AcesoProblem, operators: Operators) -> tuple[Floats, Floats]:
    """Seconds into a stage by its first operator and out of it by its last, within a node and between nodes."""
    kinds = kinds_of(operators, problem.layers)
    rates = problem.profile.within_node, problem.profile.between_nodes
    into, out = (
        np.array([[message_seconds(size, rate) for size in sizes] for rate in rates])[:, kinds]
        for sizes in (operators.inputs, operators.outputs)
    )
    return into, out


def _places(operators: Operators, layers: int) -> Ints:
    """
    Layer and place in it of every operator as a stage's first, and as its last, one further.

    The head is in the first layer, at the number of operators in a layer; what follows the last layer is in it.
    """
    size, count = operators.layer, layers * operators.layer + operators.tail
    place = np.arange(count)
    layer = np.minimum(place // size, layers - 1)
    inside = place - layer * size
    first = np.concatenate([[0], layer]), np.concatenate([[size], inside])
    last = np.concatenate([[0], layer]), np.concatenate([[0], inside + 1])
    return np.array([*first, *last])


@jit_inside
def _stage(prices: StagePrices, pair: int, behind: int, first: int, end: int, crosses: tuple[int, int]) -> float:
    """Seconds of a stage; ``crosses`` says whether its messages come from and go to another node."""
    layer, inside = prices.places[0, first], prices.places[1, first]
    last_layer, last = prices.places[2, end - 1], prices.places[3, end - 1]
    most = prices.spans.shape[4] - 1
    if end == 1:
        again = prices.head[pair, behind]
    elif first == 0 or inside == 0:
        whole = last_layer - layer
        again = prices.spans[pair, behind, inside, last, whole] if whole <= most else np.inf
    elif layer == last_layer:
        again = prices.singles[pair, behind, inside, last]
    else:
        whole = last_layer - layer - 1
        again = prices.spans[pair, behind, inside, last, whole] if whole <= most else np.inf
    messages = prices.into[pair, crosses[0], first] + prices.out[pair, crosses[1], end - 1]
    seconds: float = prices.before[pair, end] - prices.before[pair, first] + again + messages
    return seconds


@jit
def least_sums(prices: StagePrices, stages: int, gpus: int, node: int, threshold: float) -> Floats:
    """V of (2) by number of stages, devices and first operator."""
    count = prices.before.shape[1] - 1
    found = np.full((stages + 1, gpus + 1, count + 1), np.inf)
    found[0, 0, count] = 0.0
    for behind in range(stages):
        for used in range(gpus):
            for pair in range(len(prices.devices)):
                total = used + prices.devices[pair]
                if total > gpus or used // node != (total - 1) // node:
                    continue
                crosses = _crosses(gpus, node, used, total)
                for end in range(1, count + 1):
                    rest = found[behind, used, end]
                    if rest == np.inf:
                        continue
                    for first in range(end - 1 if total < gpus else 0, 0 if total < gpus else -1, -1):
                        if prices.before[pair, end] - prices.before[pair, first] > threshold:
                            break
                        seconds = _stage(prices, pair, behind, first, end, crosses)
                        if seconds <= threshold and seconds + rest < found[behind + 1, total, first]:
                            found[behind + 1, total, first] = seconds + rest
    return found


@jit
def _crosses(gpus: int, node: int, used: int, total: int) -> tuple[int, int]:
    """Whether the messages of a stage come from and go to another node, by the devices behind it and with it."""
    return int(total < gpus and (gpus - total) % node == 0), int((gpus - used) % node == 0)


@jit
def _chosen(
    prices: StagePrices, found: Floats, node: int, threshold: float, state: tuple[int, int, int]
) -> tuple[int, int, float]:
    """Degrees, end and seconds of the first stage that attain the value of a state: stages, devices, first operator."""
    stages, total, first = state
    gpus, count = found.shape[1] - 1, found.shape[2] - 1
    best, pair_of, end_of, seconds_of = np.inf, -1, -1, 0.0
    for pair in range(len(prices.devices)):
        used = total - prices.devices[pair]
        if used < 0 or used // node != (total - 1) // node:
            continue
        for end in range(first + 1, count + 1):
            rest = found[stages - 1, used, end]
            if rest < np.inf:
                seconds = _stage(prices, pair, stages - 1, first, end, _crosses(gpus, node, used, total))
                if seconds <= threshold and seconds + rest < best:
                    best, pair_of, end_of, seconds_of = seconds + rest, pair, end, seconds
    return pair_of, end_of, seconds_of


def divide(problem: AcesoProblem, micro_batch: int, prices: StagePrices, threshold: float) -> Division | None:
    """The division that attains (3), or None where no stages stay below the threshold."""
    node = problem.gpus_per_node
    found = least_sums(prices, problem.stages, problem.gpus, node, threshold)
    count, left, first = int(found[:, problem.gpus, 0].argmin()), problem.gpus, 0
    if not np.isfinite(found[count, left, 0]):
        return None
    degrees = problem.degrees(micro_batch)
    stages, seconds = [], []
    for remaining in range(count, 0, -1):
        pair, end, took = _chosen(prices, found, node, threshold, (remaining, left, first))
        stages.append(AcesoStage(first, end, *degrees[pair]))
        seconds.append(took)
        first, left = end, left - int(prices.devices[pair])
    return Division(tuple(stages), np.array(seconds))


TOLERANCE = 1e-5
"""Share of a step to which (1) is solved."""
ROUNDED = 1.0
"""Bytes by which sums of the same figures may differ."""
ROUNDING = 1e-9
"""Share by which sums of the same figures may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoResult:
    """Least step found and a lower bound on every plan; without stages none is known to beat the one begun from."""

    seconds: float
    lower_bound: float
    micro_batch: int = 0
    stages: tuple[AcesoStage, ...] = ()
    recomputed: tuple[Flags, ...] = field(default=())


def best_plan(problem: AcesoProblem, known: float, time_limit: float = math.inf) -> AcesoResult:
    """Search all micro-batches for plans faster than ``known`` seconds, within a limit without that of tables."""
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

    @cache
    def table_of(key: tuple[int, int]) -> StageTable:
        shape = problem.memory_limit, problem.stages - 1, layers
        return stage_table(problem.profile.operators[key], *shape, cautious=cautious)

    return {m: stage_prices(problem, m, table_of) for m in sizes}


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
