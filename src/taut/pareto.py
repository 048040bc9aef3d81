r"""
Step time against the memory limit of a device: the frontier by epsilon constraints.

Sets: plans p of a planning problem. Data: step time :math:`T_p` in seconds, and :math:`u_p`, the least memory limit
in KiB that plan p fits (``taut.memory_limits``). For a limit M on every device,

(1) T(M) = min of T_p over the plans with u_p <= M.

What fits a limit fits every larger one, so

(2) T does not rise with M: a plan found for a limit is taken over by every larger one whose own is no faster;
(3) a lower bound proven for a limit holds for every smaller one;
(4) if p is optimal within M it is so on [u_p, M]: on the whole frontier the limit after M is u_p - 1.

Limits are searched from the largest down, each search starting from the fastest plan so far that fits; then (2) goes
up and (3) down, so that step time and bound are monotone whatever stopped the searches.

Source: Haimes, Lasdon, Wismer, On a bicriterion formulation of the problems of integrated system identification and
system optimization, IEEE Trans. Systems, Man, and Cybernetics 1 (1971).
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.units import GIB, KIB
from taut.errors import InfeasibleError, NothingFoundError, TautError
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.problem import PlanningProblem
from taut.frontier import Frontier, FrontierPoint
from taut.memory_limits import (
    LeastLimit,
    checked_limits,
    gib_of,
    kib_of,
    least_limit,
    limit_for,
    lowered,
    spaced_limits,
)
from taut.planning import Plan, planning_problem
from taut.solver.certificate import plan_document
from taut.solver.interrupt import interrupt_requested
from taut.solver.result import (
    OPTIMALITY_GAP,
    Incumbent,
    Limits,
    Progress,
    SearchResult,
    State,
    Status,
    relative_gap,
)
from taut.solver.search import Search

POINTS = 8


def pareto(
    model: ModelSpec | str,
    cluster: ClusterSpec | str,
    *,
    global_batch: int,
    limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    seq: int | None = None,
    profile: CostTable | str | None = None,
    memory_model: MemoryModel | str | None = None,
    latency_model: str = "pipette",
    calibration: Calibration | str | None = None,
    precision: str | None = None,
    fix: dict[str, int | str | bool] | None = None,
    max_tp: int | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    gap: float = OPTIMALITY_GAP,
    seed: int = 0,
    workers: int = 2,
    progress: Progress | None = None,
) -> Frontier:
    """
    Least step time, with its bound, at several memory limits.

    Parameters
    ----------
    model, cluster, global_batch, seq, profile, memory_model, latency_model, calibration, precision, fix, max_tp
        As for ``taut.plan``.
    limits
        GiB that a device may have; a device with less keeps what it has.
    points
        Without ``limits``: how many, evenly from the least that holds a plan to the capacity; None for the whole
        frontier, every plan on it.
    time_limit, work_limit, gap
        When to stop the search at each limit.
    seed, workers, progress
        As for ``taut.plan``.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists.
    InfeasibleError
        If no plan fits any of the limits.
    NothingFoundError
        If the searches were stopped before the first plan.
    """
    problem = planning_problem(
        model,
        cluster,
        global_batch=global_batch,
        seq=seq,
        profile=profile,
        memory_model=memory_model,
        latency_model=latency_model,
        calibration=calibration,
        precision=precision,
        fix=fix,
        max_tp=max_tp,
    )
    chosen = Limits(time_limit=time_limit, work_limit=work_limit, gap=gap, seed=seed, workers=workers)
    return frontier_of(problem, chosen, memory_limits=limits, points=points, progress=progress)


def frontier_of(
    problem: PlanningProblem,
    limits: Limits,
    *,
    memory_limits: Iterable[float] | None = None,
    points: int | None = POINTS,
    progress: Progress | None = None,
) -> Frontier:
    """
    The frontier of a planning problem; ``limits`` stop each search, the rest is as for ``pareto``.

    Raises
    ------
    DataError
        If the memory limits or their number are out of range.
    InfeasibleError, NothingFoundError
        As ``pareto`` does.
    """
    given = None if memory_limits is None else checked_limits(memory_limits)
    sweep = _Sweep(problem, least_limit(problem), limits, progress)
    if given is None and points is not None:
        given = spaced_limits(sweep.least.limit_kib, max(problem.capacity_kib), points)
    return sweep.run(given)


@dataclass(slots=True, kw_only=True)
class _Solved:
    """One limit, the problem that it makes, and what the search found."""

    limit_gib: float
    problem: PlanningProblem
    result: SearchResult

    @property
    def seconds(self) -> float:
        """Seconds of the incumbent, infinite without one."""
        return math.inf if self.result.incumbent is None else self.result.incumbent.seconds


def _fits(problem: PlanningProblem, plan: Incumbent) -> bool:
    """Whether a plan, found at whatever limit, is feasible in this problem."""
    return not violations(problem, plan.strategy, plan.devices)


@dataclass
class _Sweep:
    """The limits from the largest down, with what was found so far."""

    problem: PlanningProblem
    least: LeastLimit
    limits: Limits
    progress: Progress | None
    solved: list[_Solved] = field(default_factory=list)

    def run(self, limits: list[float] | None) -> Frontier:
        """Search the given limits, or all that make a difference; an interrupt leaves out what remains."""
        missed = [limit for limit in limits or () if kib_of(limit) < self.least.limit_kib]
        wanted = self._whole() if limits is None else sorted(set(limits) - set(missed), reverse=True)
        started, stopped = time.perf_counter(), False
        with interrupt_requested() as interrupted:
            for limit in wanted:
                stopped = interrupted() or self._search(limit, started)
                if stopped:
                    break
            self._take_over()
            points = [*(self._missed(limit) for limit in missed), *reversed(list(self._points()))]
        return self._frontier(_without_repeats(points) if limits is None else points, stopped)

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

    def _search(self, limit: float, started: float) -> bool:
        """Search one limit; returns whether the user interrupted."""
        problem = lowered(self.problem, limit)
        known = (entry.result.incumbent for entry in self.solved)
        start = min((plan for plan in known if plan and _fits(problem, plan)), key=_seconds, default=None)
        result = Search(problem, self.limits, self._report(limit, started), incumbent=start).run()
        self.solved.append(_Solved(limit_gib=limit, problem=problem, result=result))
        return result.stopped_by == "interrupt"

    def _report(self, limit: float, started: float) -> Progress | None:
        """The caller's progress with the limit before what is done, and the time of the whole sweep."""
        progress = self.progress
        if progress is None:
            return None

        def report(_: float, incumbent: float, bound: float, doing: str) -> None:
            progress(time.perf_counter() - started, incumbent, bound, f"at most {limit:.4g} GiB: {doing}")

        return report

    def _take_over(self) -> None:
        """Give every limit the fastest plan of the smaller ones, (2)."""
        best: Incumbent | None = None
        for entry in reversed(self.solved):
            if best is not None and best.seconds <= entry.seconds and _fits(entry.problem, best):
                entry.result = _improved(entry.result, best)
            best = entry.result.incumbent or best

    def _points(self) -> Iterator[FrontierPoint]:
        """What is known at every limit searched, with the best bound of it and the larger ones, (3)."""
        bound, source = -math.inf, math.nan
        for entry in self.solved:
            if entry.result.lower_bound > bound:
                bound, source = entry.result.lower_bound, entry.limit_gib
            bound = min(bound, entry.seconds)
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
            plan=Plan(plan_document(entry.problem, entry.result, self.limits)),
        )

    def _missed(self, limit: float) -> FrontierPoint:
        """A limit that no plan fits, with what a device lacks."""
        kib = min(kib_of(limit), max(self.problem.capacity_kib))
        missing = self.least.missing_kib(self.problem.memory, kib)
        return FrontierPoint(limit_gib=limit, status=Status.INFEASIBLE, missing_bytes=missing * KIB)

    def _frontier(self, points: list[FrontierPoint], interrupted: bool) -> Frontier:
        problem = self.problem
        if all(point.plan is None for point in points):
            raise self._nothing(points)
        return Frontier(
            model=problem.model.name,
            cluster=problem.cluster.name,
            global_batch=problem.space.global_batch,
            tokens_per_step=problem.space.global_batch * problem.model.tokens,
            latency_model=problem.latency_model,
            margin=problem.memory.margin,
            capacity_gib=gib_of(max(problem.capacity_kib)),
            least_gib=gib_of(self.least.limit_kib),
            leanest=self.least.leanest,
            points=tuple(points),
            interrupted=interrupted,
        )

    def _nothing(self, points: list[FrontierPoint]) -> TautError:
        """Why there is no plan at any limit: proven, or not found."""
        if not points or any(point.status is not Status.INFEASIBLE for point in points):
            return NothingFoundError("no plan found at any limit: the searches were stopped before the first one")
        largest, least = points[-1], gib_of(self.least.limit_kib)
        has = gib_of(max(self.problem.capacity_kib))
        way = f"a limit of {least:.2f} GiB" if least <= has else f"devices with {least:.2f} GiB instead of {has:g} GiB"
        return InfeasibleError(
            f"no plan fits any limit: the largest, {largest.limit_gib:g} GiB, lacks {largest.missing_bytes / GIB:.2f} "
            f"GiB ({largest.missing_bytes} bytes) for the leanest ({self.least.leanest}); nearest way out: {way}"
        )


def _seconds(plan: Incumbent) -> float:
    return plan.seconds


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
