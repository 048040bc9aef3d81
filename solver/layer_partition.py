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

With two classes of device, divisions with at most one mixed stage are found apart from those with more: one mixed stage
has the seconds of the slow class (``taut.formulations.partition`` (5)), in the first the only one. What is known to be
needed in any case, as single pipelines are (7), ends the search at the first division that takes no more.

One threshold takes :math:`O(pp L^2)` steps, times the patterns and the pairs (a, b) with two classes of device.

Where later stages are waited for as well (1'), a state has labels (S, W): S the sum as in (1), and over its stages x

(4) :math:`W = \max_x \sum_{y < x} (forward + edge') + \sum_{y \ge x} (low + edge) + R(x) + each(x)`. A stage put in
    front gives :math:`S' = low + edge + S` and :math:`W' = \max(S' + R + each, forward + edge' + W)`, both monotone, so
    labels that another is no worse than in both are dropped. The cheapest recompute that fits is best for both, as
    forward seconds do not depend on it. Stage 0 waits for :math:`tail` at least, so a W below S plus its least never
    counts and is raised to that: most states keep one label. Beyond ``MOST_LABELS`` two are merged into their least;
    the result is then a lower bound.
(5) The optimizer takes its seconds by parameter times the parameters of the largest stage. Let F(c) be the optimum
    without it under a cap of c parameters, p those of its largest stage: no division between p and c is better than
    F(c) + optimizer p, and the next cap is below p. As F rises while caps fall, it ends where
    :math:`F(c)` plus the optimizer of an even division is no better than the best.

Where a framework states some divisions alone (``taut.formulations.divisions``), the optimum is the least over their
families of one whose stages have the layers of the family: j ranges over those in (1).

References
----------
Minoux (1989), Solving combinatorial problems with combined min-max-min-sum objective and applications. Li, Wang, Ma,
Lin and Zhang (2022), AMP: section 3.5 approximates the same problem in O(k L^4) steps, without memory and recompute.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.partition import NO_CROSSING, Crossing, LaterStages, PartitionProblem
from taut.formulations.strategy import Division
from taut.solver.partition_labels import Ranges, least_division
from taut.solver.pipeline_division import Beside, Passed, passages
from taut.solver.pipeline_labels import SLOW, least_pipeline
from taut.solver.pipeline_pairs import least_of_pair

MOST_CAPS = 12
"""Caps tried in (5) before the rest is bounded; an even division is near, so three are usual."""
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


class _Costs(NamedTuple):
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
    """
    The division of least seconds, (2); if none is below the limit, a division that fits.

    Parameters
    ----------
    problem
        Seconds and bytes of every range.
    edge, tail
        Seconds of a cut before layer j, and of stage 0 ending at layer j, (L+1,).
    later
        What stages after the first wait for; None where nothing.
    crossing
        What a hop between classes of device adds.
    passed
        The pipeline of two classes that is divided for (``taut.solver.pipeline_division``), in the place of all.
    gradient_cap
        Bytes of gradients that no stage may exceed, without ``later``.
    limit
        Seconds beyond which the optimum is of no use.
    known
        Seconds that every placement takes in any case: any division that takes no more, or any at all where they
        reach the limit, is then as good as the optimum.

    Returns
    -------
    Partition
        The optimum, its seconds at most the limit, or that nothing fits.
    """
    if not np.isfinite(problem.high).any():
        return Partition(seconds=np.inf)
    costs, best = _Costs(edge, tail, later, crossing, passed, known), Partition(seconds=np.inf)
    for family in problem.by_family:
        below = min(limit, best.seconds)
        if later is None or later.optimizer == 0.0:
            found = _solved(family, costs, gradient_cap, below)
        else:
            found = _with_optimizer(family, costs, later, below)
        best = found if found.seconds < best.seconds or not best.feasible else best
    return best


def _with_optimizer(problem: PartitionProblem, costs: _Costs, later: LaterStages, limit: float) -> Partition:
    """The division of least seconds with the optimizer of its largest stage, (5)."""
    best, cap, parameters = Partition(seconds=np.inf), np.inf, later.parameters
    least, floor, known = _least_optimizer(problem, later), np.inf, costs.known
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


def _least_optimizer(problem: PartitionProblem, later: LaterStages) -> float:
    """Seconds of the optimizer of an even division, or of the largest layer."""
    parameters, layers = later.parameters, np.arange(problem.num_layers)
    return later.optimizer * float(max(parameters[0, -1] / problem.pp, parameters[layers, layers + 1].max()))


def _solved(problem: PartitionProblem, costs: _Costs, cap: float, limit: float) -> Partition:
    """The optimum (2) under a cap, without the optimizer of (5)."""
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


def _with_mixed(
    problem: PartitionProblem, costs: _Costs, cap: float, limit: float, mixed: tuple[int, int]
) -> Partition:
    """The optimum with so many mixed stages, at least and at most."""
    ranges = _ranges(problem, costs, cap)._replace(least_mixed=mixed[0], most_mixed=mixed[1])
    thresholds = _thresholds(problem.high, int(ranges.layers[:, 0].min()), int(ranges.layers[:, 1].max()))
    return _of_picks(*least_division(ranges, problem.micro_batches, thresholds, limit, costs.known))


def _of_one_pipeline(problem: PartitionProblem, costs: _Costs, passed: Passed, cap: float, limit: float) -> Partition:
    """The optimum of one pipeline of two classes."""
    given = passages(_ranges(problem, costs, cap), passed, costs.crossing.beyond(problem.pp))
    thresholds = _thresholds(given.seconds, int(given.layers[:, 0].min()), int(given.layers[:, 1].max()))
    return _of_picks(*least_pipeline(given, problem.micro_batches, thresholds, limit))


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
    """Least seconds with an all-slow pipeline and one beside it, ``taut.solver.pipeline_pairs``, at most the limit."""
    costs, best = _Costs(edge, tail, later, crossing), limit
    optimizer = 0.0 if later is None else _least_optimizer(problem, later)
    for family in problem.by_family:
        given = passages(_ranges(family, costs, np.inf), Passed(0, problem.pp), crossing.beyond(problem.pp))
        if later is not None:
            mixed = later.mixed_rings[min(beside.most, len(later.mixed_rings)) - 1]
            given = given._replace(rings=np.maximum(given.rings, [0.0, 0.0, mixed, mixed]))
        found = _thresholds(given.seconds[[SLOW]], int(given.layers[:, 0].min()), int(given.layers[:, 1].max()))
        best = optimizer + least_of_pair(given, beside.fast, problem.micro_batches, found, best - optimizer)
    return best


def _of_picks(seconds: float, picks: Ints | None) -> Partition:
    """The division whose stages have these ends, recomputes and patterns."""
    if picks is None:
        return Partition(seconds=np.inf)
    return Partition(
        seconds=float(seconds),
        division=Division.of_ends(picks[:, 0], picks[:, 1]),
        patterns=tuple(np.minimum(picks[:, 2], 2).tolist()),
    )


def _ranges(problem: PartitionProblem, costs: _Costs, cap: float) -> Ranges:
    edge, tail, later, crossing = costs[:4]
    none, ends = np.zeros((1, 1)), tail[1 : problem.num_layers - problem.pp + 2]
    forward = np.zeros((1, 1, 1)) if later is None or problem.forward is None else problem.forward
    layers = np.array([[1, problem.num_layers]] * problem.pp)
    if problem.families is not None:
        layers = np.stack((problem.families[..., 0].min(axis=0), problem.families[..., 1].max(axis=0)), axis=1)
    return Ranges(
        low=problem.low,
        high=problem.high,
        fixed=problem.fixed,
        activation=problem.activation,
        in_flight=problem.in_flight,
        budget=problem.budget,
        size=problem.gradients if later is None else later.parameters,
        cap=cap,
        dp=problem.dp,
        slow=problem.slow_groups,
        more=problem.more_slow_groups,
        least_mixed=0,
        most_mixed=problem.pp,
        edge=edge,
        tail=tail,
        later=later is not None,
        overlap=later is not None and later.overlap,
        forward=forward,
        later_edge=edge if later is None else later.edge,
        ring=np.zeros(1) if later is None else later.ring,
        class_ring=np.zeros(1) if later is None else np.append(later.class_ring, later.class_ring[-1]),
        exchanged=none if later is None else later.exchanged,
        unhidden=none if later is None else later.unhidden,
        each=np.array(np.broadcast_to(0.0 if later is None else later.each, problem.pp), dtype=np.float64),
        others=0.0 if later is None else later.others,
        least_wait=-np.inf if later is None else float(ends.min()) - later.others,
        crossing=crossing.whole,
        crossing_before=crossing.before,
        layers=layers,
        growing=problem.growing,
        slower=len(problem.low) == 1 or bool((problem.low[1] >= problem.low[0]).all()),
    )


def _thresholds(high: Floats, shortest: int, longest: int) -> Floats:
    """Distinct finite seconds of ranges that hold so many layers, at least one, ascending."""
    first, end = np.triu_indices(high.shape[-1], shortest)
    held = end - first <= longest
    values = np.unique(high[:, :, first[held], end[held]])
    return np.asarray(values[np.isfinite(values)])
