r"""
Whether candidates fit, by how much they do not, and what those that fit cost at least.

With need[x, i, j] = least bytes of stage x on layers [i, j) over its recompute, and room bytes on a device,

(1) the best division of a candidate has the least worst excess :math:`\max_x` need[x, i, j] - room, and among those
    the least sum of missing bytes :math:`\sum_x \max(need[x, i, j] - room, 0)`; both are found backwards over x;
(2) with two classes of device, room depends on which of them a stage's replicas take: the least worst excess is then
    the least number of bytes that, added to every device, lets a division fit, found by bisection;
(3) of candidates that differ in micro-batch and schedule alone, the one with the smallest micro-batch under 1F1B needs
    least, so whether anything fits is asked of these alone; order-priced candidates are asked apart;
(4) the bound of a problem is that of its search, which ends at a gap of ``GAP`` or after ``MOST_EACH`` seconds;
(5) an order needs at least the mean over its devices of what the model takes beside activations, and of what the
    layers keep for as many micro-batches as every chunk of a device has in flight at once, beside what every device
    has. With :math:`b` the bytes beside, :math:`a` the least bytes that a range keeps for each of its layers,
    :math:`q_d` those micro-batches and L layers, it needs :math:`always + (b + a\,L \min_d q_d) / pp`.

An order-priced candidate counts as fitting if a division was found that fits, and its bound is
that of ``taut.solver.order_priced.bound``; its best division is the leanest of those that were tried.

Where three types of device, or groups that mix types, would let the classes of (2) relax memory, a candidate counts
as fitting only if its stages fit the smallest device.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB
from taut.formulations.divisions import stated_ranges
from taut.formulations.order_division import chunk_problem
from taut.formulations.partition import PartitionProblem, partition_problem, slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FIELDS, Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.memory import device_memory, stage_memory
from taut.solver.branch_and_bound.stop import EndedError, Progress
from taut.solver.layer_division.divide import Partition, solve_partition
from taut.solver.layer_division.memory_excess import division_need, least_excess
from taut.solver.order_priced.bound import low_memory_divisions
from taut.solver.placement.exact.memory_assignment import StageNeeds, least_missing
from taut.solver.result import Limits
from taut.solver.search.search import search

GAP, MOST_EACH = 1e-2, 10.0
"""What a way out costs is of interest to a per cent, and worth so many seconds."""
FORBIDDEN = 2**62
"""Bytes of what is not allowed: more than any device has, and small enough to be added to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A candidate that fits: the one with the least bound, and that bound in seconds, or any without a bound."""

    candidate: Candidate
    lower_bound: float | None = None


def fits(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a division of the candidate certainly fits some placement."""
    if candidate.is_order_priced:
        # Where not even the bytes without an order fit, no division need be tried.
        if not _fits_with(partition_problem(problem, candidate), 0):
            return False
        division = best_division(problem, candidate)
        return max(division.needed) <= int(stage_memory(problem, candidate).budget.min())
    stages = partition_problem(problem, candidate, cautious=_relaxed(problem, candidate))
    return _fits_with(stages, 0)


def _relaxed(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether the classes of device leave out what memory forbids."""
    types = len(problem.device_types)
    return types > 2 or (types == 2 and candidate.width > int(problem.links.gpus_per_node.max()))


def _fits_with(stages: PartitionProblem, extra: int) -> bool:
    """Whether a division fits if every device had so many bytes more, (2)."""
    # With two classes every stage may take the larger device here, so this alone refuses most of what does not fit.
    larger = least_excess(replace(stages, budget=stages.budget + extra))[0] == 0
    return larger and (len(stages.budget) == 1 or _any_division(stages, extra).feasible)


def _any_division(stages: PartitionProblem, extra: int) -> Partition:
    """Some division that fits with so many bytes more; seconds are left out, so one pass decides."""
    budget = stages.budget + extra
    allowed = np.isfinite(stages.low).any(axis=0) & stages.updates_within(budget)
    free = np.where(allowed, 0.0, np.inf)
    costless = replace(stages, low=free, high=free, micro_batches=1, budget=budget, fixed=stages.held)
    no_edges = np.zeros(stages.num_layers + 1)
    return solve_partition(costless, no_edges, no_edges)


def least_need(problem: PlanningProblem, candidate: Candidate) -> int:
    """Bytes that the worst stage of the best division needs, whatever the devices have."""
    if candidate.is_order_priced:
        return max(best_division(problem, candidate).needed)
    return division_need(problem, candidate).bytes


def least_bytes(problem: PlanningProblem, candidate: Candidate) -> tuple[int, bool]:
    """Bytes that the fullest device needs at least, and whether these are exact or the bound (5)."""
    if not candidate.is_order_priced:
        return least_need(problem, candidate), True
    given = chunk_problem(problem, candidate, np.zeros(problem.tables(candidate).num_layers + 1))
    first, end = np.triu_indices(given.num_layers + 1, 1)
    kept = (given.activation[given.recomputes][:, first, end] / (end - first)).min()
    flights = [counts.min(axis=1).max() for counts in given.counts]
    whole = given.beside[0, -1] + kept * given.num_layers * min(flights)
    return int(given.always + whole / len(flights)), False


def missing_bytes(stages: PartitionProblem, below: int) -> int | None:
    """Least worst excess of a candidate that does not fit, (2), if it is below the given bytes."""
    if not _fits_with(stages, below - 1):
        return None
    return bisect_left(range(below - 1), True, lo=1, key=lambda extra: _fits_with(stages, extra))


def nearest_division(problem: PlanningProblem, least: Iterable[tuple[int, Candidate]]) -> StageNeeds:
    """Best division of the candidate that lacks least, of candidates with the bytes that they lack, up to whole KiB."""
    ranked = sorted(least)
    if len(problem.device_types) == 1:
        close = [candidate for missing, candidate in ranked if missing < ranked[0][0] + KIB]
        return min((best_division(problem, each) for each in close), key=lambda needs: max(needs.missing))
    fewest, nearest = FORBIDDEN, ranked[0][1]
    for missing, candidate in ranked:
        if missing - KIB >= fewest:
            break
        stages = partition_problem(problem, candidate)
        # Where the two classes relax memory, the bytes that lack are known already, and `least_missing` finds where.
        found = missing if _fits_with(stages, 0) else missing_bytes(stages, fewest)
        if found is not None:
            fewest, nearest = found, candidate
    needs = best_division(problem, nearest, fewest)
    found_exactly = None if any(needs.missing) else least_missing(problem, nearest)
    return needs if found_exactly is None else found_exactly


def best_division(problem: PlanningProblem, candidate: Candidate, excess: int = 0) -> StageNeeds:
    """The best division of a candidate, (1), or with two classes of device one that lacks ``excess`` at most, (2)."""
    if candidate.is_order_priced:
        return _leanest_division(problem, candidate)
    stages = partition_problem(problem, candidate)
    if len(stages.budget) == 1:
        stages = min(stages.by_family, key=least_excess)
    need, types = _need(stages), _limiting_types(problem, candidate, len(stages.budget))
    if len(stages.budget) == 1:
        ends = _least_missing(need.min(axis=1) - int(stages.budget[0]))
        patterns: tuple[int, ...] = (0,) * stages.pp
    else:
        found = _any_division(stages, excess)
        ends, patterns = [end for _, end in found.division.stages], found.patterns
    ranges = tuple(zip([0, *ends[:-1]], ends, strict=True))
    chosen = [int(need[x, :, i, j].argmin()) for x, (i, j) in enumerate(ranges)]
    return StageNeeds(
        strategy=Strategy(candidate=candidate, division=Division(ranges, tuple(RECOMPUTE[r] for r in chosen))),
        needed=tuple(int(need[x, r, i, j]) for x, (r, (i, j)) in enumerate(zip(chosen, ranges, strict=True))),
        room=tuple(int(stages.budget[q]) for q in patterns),
        device_types=tuple(types[q] for q in patterns),
    )


def _leanest_division(problem: PlanningProblem, candidate: Candidate) -> StageNeeds:
    """Of the divisions that price memory alone, the one whose fullest device needs least."""
    # Links do not matter to memory, and the candidate may be one of a larger cluster.
    free = np.zeros(problem.tables(candidate).num_layers + 1)
    given = replace(chunk_problem(problem, candidate, free), budget=float(FORBIDDEN))
    memory = device_memory(problem, candidate)
    found = min(low_memory_divisions(given), key=lambda one: max(memory.bytes_of(*one.ranges)))
    needed = memory.bytes_of(*found.ranges)
    largest = int(memory.budget.argmax())
    return StageNeeds(
        strategy=Strategy(candidate=candidate, division=found),
        needed=tuple(needed),
        room=(int(memory.budget[largest]),) * candidate.pp,
        device_types=(largest,) * candidate.pp,
    )


def _limiting_types(problem: PlanningProblem, candidate: Candidate, patterns: int) -> tuple[int, ...]:
    """The type of device that limits a stage on the fast class, the slow one, or both; with one pattern the largest."""
    budget = stage_memory(problem, candidate).budget
    if patterns == 1:
        return (int(budget.argmax()),)
    types = np.arange(len(budget))
    slow = slowest_type(problem, candidate)
    fast = int(max(types[types != slow], key=lambda kind: budget[kind]))
    return fast, slow, min(fast, slow, key=lambda kind: budget[kind])


def _need(stages: PartitionProblem) -> Ints:
    """Bytes of every stage, recompute and range, (pp, recompute, L+1, L+1)."""
    layers = np.arange(stages.num_layers + 1)
    allowed = np.isfinite(stages.low.min(axis=0)) & (layers[:, None] < layers[None, :])
    stated = stated_ranges(stages.families, stages.num_layers)
    return np.asarray(np.where(allowed if stated is None else allowed & stated[:, None], stages.need, FORBIDDEN))


def _least_missing(excess: Ints) -> list[int]:
    """Ends of the stages with the least worst excess, then the least sum of missing bytes, (1)."""
    pp, size = excess.shape[0], excess.shape[1]
    worst, total = np.full(size, FORBIDDEN), np.full(size, np.inf)
    worst[-1], total[-1] = -FORBIDDEN, 0.0
    for x in reversed(range(pp)):
        worst = np.maximum(excess[x], worst).min(axis=1)
    most, steps = worst[0], np.zeros((pp, size), dtype=np.int64)
    for x in reversed(range(pp)):
        reached = np.where(excess[x] <= most, np.maximum(excess[x], 0), np.inf) + total
        steps[x], total = reached.argmin(axis=1), reached.min(axis=1)
    ends, first = [], 0
    for x in range(pp):
        first = int(steps[x, first])
        ends.append(first)
    return ends


FREE = "dp", "micro_batch", "num_micro_batches", "schedule", "order", "empty_ends"
"""Fields in which candidates of one kind may differ, (3), but for schedules that are priced by their order."""


def leanest(candidates: Iterable[Candidate]) -> dict[Candidate, list[Candidate]]:
    """Candidates by the one of their kind that needs least memory, (3)."""
    fields = [name for name in FIELDS if name not in FREE]
    kinds: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in candidates:
        apart = candidate.schedule if candidate.is_order_priced else ""
        # An uneven batch asks for every type what an even one asks for some.
        kind = (apart, *(getattr(candidate, name) for name in fields))
        kinds.setdefault(kind, []).append(candidate)
    return {min(kind, key=lambda one: (one.micro_batch, one.schedule)): kind for kind in kinds.values()}


def least_share(problem: PlanningProblem, share: Callable[[Candidate], float]) -> float:
    """The least share on hosts with which a candidate certainly fits, one without an order if any; 1 without one."""
    return next((share(each) for each in sorted(quick_of(problem), key=share) if fits(problem, each)), 1.0)


def quick_of(problem: PlanningProblem) -> list[Candidate]:
    """Of the leanest candidates those without an order, which are decided in milliseconds; all where there are none."""
    every = [*leanest(problem.candidates)]
    return [each for each in every if not each.is_order_priced] or every


def best_fit(problem: PlanningProblem, *, stop: Callable[[], bool] = lambda: False) -> Fit | None:
    """The candidate of the best plan found before ``stop``, and the bound of all, (4); None without a plan."""

    def check(progress: Progress) -> None:
        if stop():
            raise EndedError

    try:
        result = search(problem, Limits(gap=GAP, time_limit=MOST_EACH, workers=1), check, adapts=False)
    except KeyboardInterrupt:
        return None
    if (found := result.incumbent) is None:
        return None
    # The bound of a search that was cut off says too little.
    return Fit(candidate=found.strategy.candidate, lower_bound=None if stop() else result.lower_bound)
