r"""
Step time against the memory limit of a device: the frontier by epsilon constraints.

Sets: plans p of a planning problem. Data: step time :math:`T_p` in seconds, and :math:`u_p`, the least memory limit
in KiB that plan p fits (``taut.frontier.frontier`` (5)). For a limit M on every device,

(1) T(M) = min of T_p over the plans with u_p <= M.

T does not rise with M, and falls at some u_p alone; ``taut.frontier.frontier`` says what the searches tell of all
limits between.

Source: Haimes, Lasdon, Wismer, On a bicriterion formulation of the problems of integrated system identification and
system optimization, IEEE Trans. Systems, Man, and Cybernetics 1 (1971).

Limits are searched from the largest down, each
search starting from the fastest plan so far that fits. As what fits a limit fits every larger one
(``taut.frontier.frontier``),

(2) a plan found for a limit is taken over by every larger one whose own is no faster;
(3) a lower bound proven for a limit holds for every smaller one;
(4) a plan that is optimal within M is so down to the least limit u that it fits, so the next limit that can make a
    difference is u - 1 KiB.

With (2) and (3) step time and bound are monotone in the limit, whatever stopped the searches. An order of passes that a
search adapted is part of the space of the smaller limits, and not of the larger ones: their bounds are not of it, so
they do not take over its plans.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, overload

from taut.data.units import GIB, KIB
from taut.errors import InfeasibleError, NothingFoundError, TautError
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.problem import PlanningProblem
from taut.frontier.frontier import (
    Frontier,
    FrontierPoint,
    LeastLimit,
    checked_limits,
    gib_of,
    kib_of,
    least_limit,
    limit_for,
    lowered,
    rounded_up,
    spaced_limits,
)
from taut.planning.options import PlanOptions
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.resolve import planning_problem
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.certificate.write import plan_document
from taut.solver.result import OPTIMALITY_GAP, Incumbent, Limits, SearchResult, State, Status, StoppedBy, relative_gap
from taut.solver.search.search import search
from taut.solver.signals import cut_short


@dataclass(slots=True, kw_only=True)
class _Solved:
    """One limit, the problem that it makes, and what the search found."""

    limit_gib: float
    problem: PlanningProblem
    result: SearchResult
    limits: Limits

    @property
    def seconds(self) -> float:
        """Seconds of the incumbent, infinite without one."""
        return math.inf if self.result.incumbent is None else self.result.incumbent.seconds


def _fits(problem: PlanningProblem, plan: Incumbent) -> bool:
    """Whether a plan, found at whatever limit, is feasible in this problem."""
    return not violations(problem, plan.strategy, plan.devices)


def _holds(entry: _Solved, plan: Incumbent) -> bool:
    """Whether a plan is feasible within a limit, and its order, if it has one of its own, in the space there."""
    order = plan.strategy.candidate.order
    known = [tuple(each.words) for each in (*entry.problem.space.orders, *entry.result.orders)]
    return (not order or order in known) and _fits(entry.problem, plan)


@dataclass
class Sweep:
    """The limits from the largest down, what stops all searches, what was found, and whether some are left."""

    problem: PlanningProblem
    least: LeastLimit
    limits: Limits
    progress: Listener | None = None
    interrupted: bool = False
    solved: list[_Solved] = field(default_factory=list)

    def run(self, limits: list[float] | None) -> list[FrontierPoint]:
        """Points of the given limits, or of all that make a difference, in ascending order."""
        capacity = gib_of(max(self.problem.capacity_kib))
        given = [capacity] if limits is None else sorted(set(limits))
        missed = [limit for limit in given if kib_of(limit) < self.least.limit_kib]
        started = time.perf_counter()
        with interrupt_requested() as asked:
            with cut_short():
                for number, limit in enumerate(self._whole() if limits is None else reversed(given[len(missed) :])):
                    # How many limits make a difference is not known: each takes half of what is left.
                    left = 2 if limits is None else len(given) - len(missed) - number
                    if asked() or self._search(limit, started, left):
                        break
            self.interrupted = asked()
            self._take_over()
            points = [*(self._missed(limit) for limit in missed), *reversed(list(self._points()))]
        return _without_repeats(points) if limits is None else points

    def _whole(self) -> Iterator[float]:
        """Each limit just below what the plan before needs, (4)."""
        kib = max(self.problem.capacity_kib)
        while kib >= self.least.limit_kib:
            yield gib_of(kib)
            if not self.solved or self.solved[-1].result.incumbent is None:
                return
            kib = self._needs(self.solved[-1].result.incumbent) - 1

    def _needs(self, plan: Incumbent) -> int:
        """The least limit in KiB that a plan fits."""
        return limit_for(self.problem.memory, -(-max(memory_bytes(self.problem, plan.strategy)) // KIB))

    def _search(self, limit: float, started: float, left: int) -> bool:
        """Search one limit in its share of the seconds that are left; returns whether the user interrupted."""
        limits = self.limits.shared(time.perf_counter() - started, left)
        problem = lowered(self.problem, limit)
        for entry in self.solved:
            problem = problem.with_orders(entry.result.orders)
        known = (entry.result.incumbent for entry in self.solved)
        fitting = [plan for plan in known if plan and _fits(problem, plan)]
        start = min(fitting, key=lambda plan: plan.seconds, default=None)
        result = search(problem, limits, self._report(limit, started), incumbent=start)
        self.solved.append(_Solved(limit_gib=limit, problem=problem, result=result, limits=limits))
        return result.stopped_by is StoppedBy.INTERRUPT

    def _report(self, limit: float, started: float) -> Listener | None:
        """The caller's progress with the limit before what is done, and the time of the whole sweep."""
        progress = self.progress
        if progress is None:
            return None

        def report(at: Progress) -> None:
            doing = f"at most {limit:.4g} GiB: {at.doing}"
            progress(at._replace(wall_s=time.perf_counter() - started, doing=doing))

        return report

    def _take_over(self) -> None:
        """Give every limit the fastest plan of the smaller ones, (2)."""
        best: Incumbent | None = None
        for entry in reversed(self.solved):
            if best is not None and best.seconds <= entry.seconds and _holds(entry, best):
                entry.result = _improved(entry.result, best)
            best = entry.result.incumbent or best

    def _points(self) -> Iterator[FrontierPoint]:
        """What is known at every limit searched, with the best bound of it and the larger ones, (3)."""
        bound, source = -math.inf, math.nan
        for entry in self.solved:
            if entry.result.lower_bound > bound:
                bound, source = entry.result.lower_bound, entry.limit_gib
            # Without a plan an infinite bound is a proof, of this limit or a larger one, that none exists.
            yield self._missed(entry.limit_gib) if math.isinf(bound) else self._point(entry, bound, source)

    def _point(self, entry: _Solved, bound: float, source: float) -> FrontierPoint:
        plan = entry.result.incumbent
        if plan is None:
            return FrontierPoint(
                limit_gib=entry.limit_gib, status=Status.UNKNOWN, lower_bound_s=bound, bound_from_gib=source
            )
        gap = relative_gap(plan.seconds, bound)
        return FrontierPoint(
            limit_gib=entry.limit_gib,
            status=Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE,
            lower_bound_s=bound,
            bound_from_gib=source,
            needs_gib=gib_of(self._needs(plan)),
            plan=Plan(plan_document(entry.problem, entry.result, entry.limits)),
        )

    def _missed(self, limit: float) -> FrontierPoint:
        """A limit that no plan fits, with what a device lacks."""
        kib = min(kib_of(limit), max(self.problem.capacity_kib))
        missing = self.least.missing_kib(self.problem.memory, kib)
        return FrontierPoint(limit_gib=limit, status=Status.INFEASIBLE, missing_bytes=missing * KIB)


def _without_repeats(points: list[FrontierPoint]) -> list[FrontierPoint]:
    """The points without those whose plan is optimal within a larger limit, where it stands as well."""
    kept = points[-1:]
    for point in reversed(points[:-1]):
        same = point.step_time_s == kept[-1].step_time_s and point.needs_gib == kept[-1].needs_gib
        if not (same and kept[-1].status is Status.OPTIMAL):
            kept.append(point)
    return kept[::-1]


def _improved(result: SearchResult, plan: Incumbent) -> SearchResult:
    """The same search with a faster plan: candidates that it beats are pruned, the bound is valid as it was."""
    bounds = [
        replace(bound, state=State.PRUNED) if bound.state is State.OPEN and bound.lower_bound >= plan.seconds else bound
        for bound in result.bounds
    ]
    unsolved = [bound.lower_bound for bound in bounds if bound.state in (State.OPEN, State.PRUNED)]
    least = min(plan.seconds, *unsolved, math.inf)
    gap = relative_gap(plan.seconds, least)
    status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return replace(result, status=status, incumbent=plan, lower_bound=least, bounds=bounds)


POINTS = 8


@overload
def pareto(
    model: PlanRequest,
    /,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
) -> Frontier: ...
@overload
def pareto(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Frontier: ...
def pareto(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
    **options: Any,
) -> Frontier:
    """
    Least step time, with its bound, at several memory limits.

    Parameters
    ----------
    model, cluster, **options
        As for ``taut.plan``, or a ``PlanRequest`` alone; seconds are those of all searches together, work and gap those
        of the search at each limit.
    limits
        GiB that a device may have; a device with less keeps what it has.
    points
        Without ``limits``: how many, evenly from the least that holds a plan to the capacity; None for the whole
        frontier, every plan on it.
    progress
        As for ``taut.plan``.

    Returns
    -------
    Frontier
        The points in ascending order of their limits, each with its plan and bound.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists.
    InfeasibleError
        If no plan fits any of the limits.
    NothingFoundError
        If the searches were stopped before the first plan.

    Examples
    --------
    >>> import taut
    >>> found = taut.pareto("gpt2-345m", "dgx-a100", global_batch=32, limits=[10, 80], fix={"pp": 1, "tp": 1})
    >>> [(point.limit_gib, point.plan.strategy.micro_batch) for point in found.points]
    [(10.0, 4), (80.0, 4)]
    """
    request = request_of(model, cluster, options)
    problem = planning_problem(request)
    return frontier_of(problem, request.limits, memory_limits=limits, points=points, progress=progress)


def frontier_of(
    problem: PlanningProblem,
    limits: Limits,
    *,
    memory_limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Listener | None = None,
) -> Frontier:
    """The frontier of a planning problem; ``limits`` stop the searches, the rest is as for ``pareto``."""
    given = None if memory_limits is None else checked_limits(memory_limits)
    sweep = Sweep(problem, least_limit(problem), limits, progress)
    if given is None and points is not None:
        given = spaced_limits(sweep.least.limit_kib, max(problem.capacity_kib), points)
    found = sweep.run(given)
    if all(point.plan is None for point in found):
        raise _nothing(sweep, found)
    return Frontier.of(problem, sweep.least, found, interrupted=sweep.interrupted)


def _nothing(sweep: Sweep, points: list[FrontierPoint]) -> TautError:
    """Why there is no plan at any limit: proven, or not found."""
    if not points or any(point.status is not Status.INFEASIBLE for point in points):
        return NothingFoundError("no plan found at any limit: the searches were stopped before the first one")
    largest, least = points[-1], gib_of(sweep.least.limit_kib)
    has = gib_of(max(sweep.problem.capacity_kib))
    needed = rounded_up(least)
    way = f"a limit of {needed} GiB" if least <= has else f"devices with {needed} GiB instead of {has:g} GiB"
    return InfeasibleError(
        f"no plan fits any limit: the largest, {largest.limit_gib:g} GiB, lacks {largest.missing_bytes / GIB:.2f} "
        f"GiB ({largest.missing_bytes} bytes) for the leanest, {sweep.least.leanest}; nearest way out: {way}",
        {
            "status": "infeasible",
            "least_gib": least,
            "leanest": sweep.least.leanest,
            "points": [point.as_dict() for point in points],
        },
    )
