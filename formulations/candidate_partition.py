"""
The partition problem of a candidate: seconds, bytes and blocks by class that ``taut.formulations.partition`` divides.

Blocks are priced at the best links that their device type offers. Seconds of a pass with what its gathers add
(``taut.formulations.sharding`` (2)) grow with the rate of the gathers and with the computation that hides them, so the
least of both bounds them.

Of two classes of device one is the slowest type, the other all others. Patterns of a stage are all fast, all slow, and
mixed (``taut.formulations.partition``, (4) and (5)).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.least_reduction import seconds_of_best, seconds_within
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import NO_GATHERS, GatherRates, exposed_by_range
from taut.formulations.space import Candidate
from taut.formulations.terms import gathers_of


def slowest_type(problem: PlanningProblem, candidate: Candidate) -> int:
    """The device type that takes longest for the whole model; it makes the slow class."""
    return int(np.argmax(problem.tables(candidate).seconds[:, 0, 0, -1]))


def classes_of(
    problem: PlanningProblem, seconds: Floats, budget: Ints, candidate: Candidate
) -> tuple[Floats, Floats, Ints, tuple[int, int]]:
    """Seconds (fastest and slowest class present) and budgets by pattern, and fewest and most slow blocks."""
    if len(budget) == 1:
        return seconds, seconds, budget, (0, 0)
    slowest = slowest_type(problem, candidate)
    others = np.arange(len(budget)) != slowest
    fast, slow = seconds[others].min(axis=0), seconds[slowest]
    high = np.stack([fast, slow, np.maximum(fast, slow)])
    low = high if candidate.pp == 1 else np.stack([fast, slow, np.minimum(fast, slow)])
    most = budget[others].max()
    budgets = np.array([most, budget[slowest], min(most, budget[slowest])])
    return low, high, budgets, _slow_blocks(problem, candidate.width, slowest)


def _slow_blocks(problem: PlanningProblem, width: int, slowest: int) -> tuple[int, int]:
    """Fewest and most blocks of so many devices that hold a device of the slowest type."""
    sizes = problem.links.gpus_per_node[problem.type_of_node == slowest]
    if width <= problem.links.gpus_per_node.max():
        blocks = int(sizes.sum()) // width
        return blocks, blocks
    return -(-int(sizes.sum()) // width), min(len(sizes), int(problem.links.gpus_per_node.sum()) // width)


def of_classes(problem: PlanningProblem, forward: Floats, candidate: Candidate) -> Floats:
    """Forward seconds on the fastest class present, by pattern as in ``classes_of``."""
    if len(forward) == 1:
        return forward
    slowest = slowest_type(problem, candidate)
    fast, slow = forward[np.arange(len(forward)) != slowest].min(axis=0), forward[slowest]
    return np.stack([fast, slow, np.minimum(fast, slow)])


def partition_problem(
    problem: PlanningProblem,
    candidate: Candidate,
    *,
    margin: bool = True,
    cautious: bool = False,
    gather: GatherRates = NO_GATHERS,
) -> PartitionProblem:
    """
    The partition problem of a candidate, with blocks priced at the best links of their device type.

    ``problem``, ``candidate``: what is planned; ``margin``: whether the memory margin is kept free; ``cautious``:
    whether every stage is priced on the slowest type and must fit the smallest: its divisions fit any placement, and
    its optimum is no bound; ``gather``: least seconds per byte of the gathers and scatters of sharded weights and
    gradients. Returns data of ``taut.formulations.partition`` (1) to (4).
    """
    memory = problem.stage_memory(candidate, margin=margin)
    sharded = gather != NO_GATHERS and bool(gathers_of(problem.terms(candidate)))
    seconds, forward = _seconds(problem, candidate, gather, sharded=sharded)
    by_class = _by_class(problem, candidate, seconds, forward, memory.budget, cautious=cautious)
    stages = PartitionProblem(
        pp=candidate.pp,
        dp=candidate.pipelines,
        micro_batches=candidate.num_micro_batches,
        low=by_class.low,
        high=by_class.high,
        fixed=memory.fixed,
        activation=memory.activation,
        in_flight=memory.in_flight,
        budget=by_class.budget,
        gradients=problem.gradient_bytes(candidate),
        slow_groups=by_class.slow_groups[0],
        more_slow_groups=by_class.slow_groups[1] - by_class.slow_groups[0],
        forward=by_class.forward,
        growing=not sharded,
        families=problem.stage_families(candidate),
        update=memory.update,
        during_passes=memory.during_passes,
    )
    if candidate.pipelines_by_type and memory.update is not None:
        above = np.maximum(memory.fixed, memory.update)
        return replace(stages, fixed=np.where(stages.updates_within(stages.budget)[0], memory.fixed, above))
    return stages if memory.update is None or len(stages.budget) == 1 else _without_updates(stages)


def _seconds(
    problem: PlanningProblem, candidate: Candidate, gather: GatherRates, *, sharded: bool
) -> tuple[Floats, Floats]:
    """Seconds of every range, infinite under recomputes not allowed, (types, recompute, L+1, L+1), and forward ones."""
    # Of blocks that exchange more than sums one may be the slowest forward, and another backward. A single stage may
    # divide its batch unevenly, so that not all of its blocks are as slow as the slowest.
    alike = (candidate.of_tensor_groups or not sharded) and not candidate.pipelines_by_type
    within = seconds_within(problem, candidate) if alike else seconds_of_best(problem, candidate)
    seconds = problem.tables(candidate).seconds + within.both
    forward = problem.passes(candidate).forward + within.forward
    if sharded:
        before, after = exposed_by_range(problem, candidate, gather, within)
        seconds, forward = seconds + before + after, forward + before
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    return np.where(allowed[None, :, None, None], seconds, np.inf), forward.min(axis=1)


class _ByClass(NamedTuple):
    """Seconds of both classes, those forward, and budgets, by pattern; slow blocks at least and at most."""

    low: Floats
    high: Floats
    forward: Floats
    budget: Ints
    slow_groups: tuple[int, int]


def _by_class(
    problem: PlanningProblem, candidate: Candidate, seconds: Floats, forward: Floats, budget: Ints, *, cautious: bool
) -> _ByClass:
    """Figures by device type (types, ...) as figures by pattern."""
    if cautious:
        slowest = seconds.max(axis=0)[None]
        return _ByClass(slowest, slowest, forward.max(axis=0)[None], budget.min()[None], (0, 0))
    if candidate.pipelines_by_type:
        fastest = seconds.min(axis=0)[None]
        return _ByClass(fastest, fastest, forward.min(axis=0)[None], budget.min()[None], (0, 0))
    low, high, budget, slow = classes_of(problem, seconds, budget, candidate)
    return _ByClass(low, high, of_classes(problem, forward, candidate), budget, slow)


def _without_updates(stages: PartitionProblem) -> PartitionProblem:
    """The same without ranges whose optimizer's step exceeds a class, where it fits another."""
    forbidden = ~stages.updates_within(stages.budget) & stages.updates_within(stages.budget.max()[None])
    low, high = (np.where(forbidden, np.inf, seconds) for seconds in (stages.low, stages.high))
    return replace(stages, low=low, high=high)
