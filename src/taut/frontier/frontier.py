r"""
The memory/throughput frontier: what is known of the step time at every memory limit, by epsilon constraints.

Sets: limits :math:`M_1 < ... < M_K`, each searched; plans p, one for each limit that has one. Data: step time
:math:`T_p` in seconds, :math:`u_p` the least limit that plan p fits, :math:`B_i` a lower bound on every plan within
:math:`M_i`, and the least limit that any plan fits. With T(M) the optimum within M,

(1) upper(M) = min of T_p over u_p <= M;
(2) lower(M) = B_i for the least M_i >= M, as what fits M fits M_i;
(3) lower(M) <= T(M) <= upper(M), all three non-increasing in M.

So two limits say something of all limits between them: the widest gap of (3) is how well the whole curve is known.
Limits are GiB outside and whole KiB in comparisons, as memory is.

A limit makes a problem of its own. Data: capacity :math:`c_k` of device type k and a limit M, in KiB; the margin's
share :math:`\mu < 1` and its fixed part :math:`\nu` KiB.

(4) a limit lowers capacities to :math:`c = \min(c_k, M)`, of which the margin :math:`\lceil \mu c \rceil + \nu` stays
    free: its share is of the lowered capacity;
(5) b bytes fit from the least c with :math:`c - \lceil \mu c \rceil - \nu \ge \lceil b/1024 \rceil` on, as the left
    side does not fall when c grows;
(6) the leanest plan has :math:`b^* = \min` over candidates, divisions into stages and recompute of the fullest stage's
    bytes, exact by dynamic programming, or a lower bound on them (``taut.solver.infeasibility.feasibility`` (5)). A
    limit below that of :math:`b^*` holds no plan; with mixed devices, where stages and types must match as well,
    neither may one above.

T(M) is the least :math:`T_p` over all plans with :math:`u_p \le M`. It does not rise with M, and falls at some
:math:`u_p` alone. Limits are searched from the largest down, each search starting from the fastest plan so far that
fits. As what fits a limit fits every larger one,

(7) a plan found for a limit is taken over by every larger one whose own is no faster;
(8) a lower bound proven for a limit holds for every smaller one;
(9) a plan that is optimal within M is so down to the least limit u that it fits, so the next limit that can make a
    difference is u - 1 KiB.

With (7) and (8) step time and bound are monotone in the limit, whatever stopped the searches. An order of passes that a
search adapted is part of the space of the smaller limits, and not of the larger ones: their bounds are not of it, so
they do not take over its plans.

Source: Haimes, Lasdon, Wismer, On a bicriterion formulation of the problems of integrated system identification and
system optimization, IEEE Trans. Systems, Man, and Cybernetics 1 (1971).
"""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from taut.data.memory import MemoryModel
from taut.data.spec import shorten
from taut.data.units import GIB, KIB, MOST_GIB
from taut.errors import FieldError, InfeasibleError, NothingFoundError, TautError
from taut.files import made_folder
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FRONTIER_COLUMNS
from taut.planning.options import PlanOptions
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.resolve import planning_problem
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.certificate.document import StrategySection
from taut.solver.certificate.write import plan_document
from taut.solver.infeasibility.feasibility import least_bytes
from taut.solver.result import OPTIMALITY_GAP, Incumbent, Limits, SearchResult, State, Status, StoppedBy, relative_gap
from taut.solver.search.search import search
from taut.solver.signals import cut_short
from taut.words import csv_text, grid, percent, report

if TYPE_CHECKING:
    from rich.table import Table


MOST_POINTS = 10_000
MOST_KIB = 2**50


def kib_of(gib: float) -> int:
    """Whole KiB of so many GiB."""
    return int(gib * GIB) // KIB


def gib_of(kib: int) -> float:
    """GiB of so many KiB, exactly."""
    return kib * KIB / GIB


def rounded_down(gib: float) -> str:
    """Two digits: what fits the printed limit fits the true one."""
    return f"{math.floor(gib * 100) / 100:.2f}"


def rounded_up(gib: float) -> str:
    """Two digits: the printed memory suffices for what needs the true one."""
    return f"{math.ceil(gib * 100) / 100:.2f}"


def lowered(problem: PlanningProblem, limit_gib: float) -> PlanningProblem:
    """The problem within a limit, (4); the same prices, and a cluster named after the limit."""
    cluster = problem.cluster
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": min(group.device.memory_gib, limit_gib)})}
        )
        for group in cluster.nodes
    ]
    name = cluster.name if groups == cluster.nodes else f"{cluster.name} with at most {limit_gib:.4g} GiB"
    return replace(problem, cluster=cluster.model_copy(update={"name": name, "nodes": groups}))


def limit_for(memory: MemoryModel, need_kib: int) -> int:
    """The least limit in KiB that leaves so much beside its margin, (5)."""
    return bisect_left(range(MOST_KIB), need_kib, key=lambda kib: kib - memory.margin_kib(kib))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLimit:
    """The least limit that may hold a plan, (6): KiB that the leanest one needs, the limit, and which it is."""

    need_kib: int
    limit_kib: int
    leanest: str


def least_limit(problem: PlanningProblem) -> LeastLimit:
    """The least limit that holds a plan, by the bytes of every candidate, (6)."""
    (need, exact), candidate = min((least_bytes(problem, candidate), candidate) for candidate in problem.candidates)
    need_kib = -(-need // KIB)
    limit = limit_for(problem.memory, need_kib)
    how = "" if exact else ", by a bound"
    return LeastLimit(need_kib=need_kib, limit_kib=limit, leanest=f"{candidate}{how}")


def checked_limits(limits: Iterable[float]) -> list[float]:
    """Limits in ascending order, each once."""
    expected = f"expected GiB above 0 and at most {MOST_GIB}, such as 20,40,80"
    try:
        found = sorted({float(limit) for limit in limits})
    except (TypeError, ValueError):
        raise FieldError("limits", shorten(limits), expected) from None
    wrong = [limit for limit in found if not (0 < limit <= MOST_GIB and kib_of(limit) > 0)]
    if wrong or not found:
        raise FieldError("limits", f"{wrong[0]:g}" if wrong else "none given", expected)
    return found


def spaced_limits(least_kib: int, capacity_kib: int, points: int) -> list[float]:
    """So many limits evenly from the least that holds a plan to the capacity, in hundredths of GiB, rounded up."""
    if isinstance(points, bool) or not isinstance(points, int) or not 0 < points <= MOST_POINTS:
        raise FieldError("points", str(points), f"expected a number from 1 to {MOST_POINTS}, or all")
    most = gib_of(capacity_kib)
    if points == 1 or least_kib >= capacity_kib:
        return [most]
    even = np.linspace(gib_of(least_kib), most, points).tolist()
    return sorted({min(math.ceil(limit * 100) / 100, most) for limit in even})


COLUMNS = ("limit_gib", "status", "step_time_s", "lower_bound_s", "gap", "tokens_per_s", "memory_bytes", "needs_gib")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """
    The result at one limit; None stands for a figure that does not exist or is unknown.

    ``memory_bytes`` is predicted for the fullest device. ``needs_gib`` is the least limit that the plan fits,
    ``missing_bytes`` what a device lacks at an infeasible limit. The bound was proven at ``bound_from_gib``, this limit
    or a larger one. The plan's own certificate holds what was proven at this limit.
    """

    limit_gib: float
    status: Status
    lower_bound_s: float | None = None
    bound_from_gib: float | None = None
    needs_gib: float | None = None
    missing_bytes: int = 0
    plan: Plan | None = None

    @property
    def step_time_s(self) -> float | None:
        """Seconds of the plan's step."""
        return None if self.plan is None else self.plan.step_time_s

    @property
    def gap(self) -> float | None:
        """Relative gap between step time and bound."""
        if self.step_time_s is None or self.lower_bound_s is None:
            return None
        return relative_gap(self.step_time_s, self.lower_bound_s)

    @property
    def strategy(self) -> StrategySection | None:
        """Degrees, micro-batch, schedule, stages and recompute."""
        return None if self.plan is None else self.plan.strategy

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput of the plan."""
        return None if self.plan is None else self.plan.predicted.tokens_per_s

    @property
    def memory_bytes(self) -> int | None:
        """Predicted bytes on the fullest device."""
        return None if self.plan is None else max(self.plan.predicted.memory_bytes)

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        figures = {name: getattr(self, name) for name in (*COLUMNS, "bound_from_gib", "missing_bytes")}
        strategy = None if self.plan is None else self.plan.document["strategy"]
        return figures | {"strategy": strategy, "status": str(self.status)}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Frontier:
    """
    The points in ascending order of their limits, and the limit below which no plan fits.

    ``leanest`` names the candidate and stage that need least memory. ``interrupted`` says that some limits were not
    searched.
    """

    model: str
    cluster: str
    global_batch: int
    tokens_per_step: int
    latency_model: str
    margin: float
    capacity_gib: float
    least_gib: float
    leanest: str
    points: tuple[FrontierPoint, ...]
    interrupted: bool = False

    @property
    def sequence_length(self) -> int:
        """Tokens of one sample."""
        return self.tokens_per_step // self.global_batch

    @property
    def planned(self) -> list[FrontierPoint]:
        """The points that have a plan."""
        return [point for point in self.points if point.plan is not None]

    def at(self, limit_gib: float) -> tuple[float, float]:
        """Seconds of lower and upper, (1) and (2): infinite where no plan fits, 0 above the largest limit searched."""
        limit = kib_of(limit_gib)
        above = self.points[bisect_left(self.points, limit, key=lambda point: kib_of(point.limit_gib)) :]
        if limit < kib_of(self.least_gib) or any(point.status is Status.INFEASIBLE for point in above):
            return math.inf, math.inf
        fitting = (p.step_time_s for p in self.planned if p.step_time_s is not None and _needs(p) <= limit)
        bounds = (point.lower_bound_s for point in above if point.lower_bound_s is not None)
        return next(bounds, 0.0), min(fitting, default=math.inf)

    @property
    def span_gib(self) -> tuple[float, float]:
        """From the least limit that a plan here fits to the largest one searched."""
        return min(point.needs_gib or 0.0 for point in self.planned), self.planned[-1].limit_gib

    def steps(self, least_gib: float, most_gib: float) -> list[float]:
        """Limits between two at which lower or upper steps, with the KiB before and after each."""
        limits = {kib_of(point.limit_gib) + after for point in self.points for after in (0, 1)}
        limits |= {_needs(point) - before for point in self.planned for before in (0, 1)}
        return [gib_of(limit) for limit in sorted(limits) if kib_of(least_gib) <= limit <= kib_of(most_gib)]

    @property
    def widest_gap(self) -> float | None:
        """Largest relative gap between upper and lower at any limit of the span, (3)."""
        pairs = [self.at(limit) for limit in self.steps(*self.span_gib)]
        gaps = [relative_gap(upper, lower) for lower, upper in pairs]
        return max((gap for gap in gaps if gap is not None), default=None)

    def as_dict(self) -> dict[str, Any]:
        """The frontier as plain values, for JSON."""
        names = ("model", "cluster", "global_batch", "sequence_length", "latency_model", "margin", "capacity_gib")
        head = {name: getattr(self, name) for name in (*names, "least_gib", "leanest")}
        tail = {"widest_gap": self.widest_gap, "interrupted": self.interrupted}
        return head | tail | {"points": [point.as_dict() for point in self.points]}

    def to_records(self) -> list[dict[str, Any]]:
        """One record a limit, for a table."""
        return [point.as_dict() for point in self.points]

    def csv(self) -> str:
        """One row per limit, with the recompute of every stage."""
        rows = [[*COLUMNS, "bound_from_gib", "missing_bytes", *FRONTIER_COLUMNS, "stages", "recompute"]]
        for point in self.points:
            figures = [getattr(point, name) for name in (*COLUMNS, "bound_from_gib", "missing_bytes")]
            chosen = point.strategy
            stages = " ".join(f"{first}-{end}" for first, end in chosen.stages) if chosen else ""
            degrees = [str(getattr(chosen, name, "")).lower() for name in FRONTIER_COLUMNS]
            rows.append([*figures, *degrees, stages, " ".join(chosen.recompute) if chosen else ""])
        return csv_text(rows)

    def write_plans(self, folder: str | Path) -> list[Path]:
        """Write every plan as JSON, numbered and named by its limit; ``taut verify`` checks each."""
        folder, written = made_folder(folder), list[Path]()
        for number, point in enumerate(self.points):
            if point.plan is not None:
                written.append(folder / f"{number:02d}-{rounded_down(point.limit_gib)}gib.json")
                point.plan.write(written[-1])
        return written

    def __repr__(self) -> str:
        """One line: model, cluster, limits, and how well the curve is known."""
        count, gap = len(self.points), percent(self.widest_gap)
        return f"<Frontier {self.model} on {self.cluster}, {count} memory limits, gap {gap} or less>"

    def __str__(self) -> str:
        """The frontier in words, the largest limit first."""
        head = (
            f"{self.model} on {self.cluster}, global batch {self.global_batch}, sequence length "
            f"{self.sequence_length}, latency model {self.latency_model}: step time by memory limit\n"
        )
        return report(head, _table(self.points), "\n" + "\n".join(self._notes()), width=120)

    def _notes(self) -> list[str]:
        """What holds between the points, below them, and what a limit means."""
        notes = [f"No plan fits less than {rounded_up(self.least_gib)} GiB; the leanest is {self.leanest}."]
        if self.planned:
            least, most = self.span_gib
            known = self.widest_gap
            proven = known is not None and known <= OPTIMALITY_GAP
            words = "plans are proven optimal" if proven else f"the gap is {percent(known)} or less"
            span = f"from {rounded_up(least)} to {rounded_down(most)} GiB"
            notes.insert(0, f"At every limit {span}, in between too, {words}.")
        if self.interrupted:
            notes.append("Interrupted: smaller limits were not searched.")
        share = f", {100 * self.margin:.3g} %, is a share of it" if self.margin else " is the same at every limit"
        return [*notes, f"A limit holds for every device; the margin{share}."]


def _needs(point: FrontierPoint) -> int:
    return kib_of(point.needs_gib or 0.0)


def _table(points: tuple[FrontierPoint, ...]) -> "Table":
    figures = ">limit GiB", ">step time s", ">lower bound s", ">gap", ">tokens/s", ">pp", ">tp", ">dp", ">micro-batch"
    table = grid(*figures, "recompute", ">needs GiB")
    for point in reversed(points):
        table.add_row(rounded_down(point.limit_gib), *_cells(point))
    return table


def _cells(point: FrontierPoint) -> list[str]:
    if point.strategy is None or point.needs_gib is None:
        bound = "" if point.lower_bound_s is None else f"{point.lower_bound_s:.4f}"
        lacks = f"lacks {rounded_up(point.missing_bytes / GIB)} GiB" if point.missing_bytes else ""
        return [str(point.status), bound, "", "", "", "", "", "", lacks, ""]
    chosen = point.strategy
    figures = [
        f"{point.step_time_s:.4f}",
        f"{point.lower_bound_s:.4f}",
        percent(point.gap),
        "" if point.tokens_per_s is None else f"{point.tokens_per_s:.0f}",
    ]
    degrees = [str(getattr(chosen, name)) for name in ("pp", "tp", "dp", "micro_batch")]
    return [*figures, *degrees, recompute_words(chosen), rounded_up(point.needs_gib)]


def recompute_words(strategy: StrategySection) -> str:
    """How many stages recompute, such as ``full 13 of 16``."""
    counts = Counter(strategy.recompute)
    kinds = [f"{kind} {counts[kind]}" for kind in ("selective", "full") if counts[kind]]
    return f"{', '.join(kinds)} of {strategy.pp}" if kinds else "none"


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
        """Each limit just below what the plan before needs, (9)."""
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
        """Give every limit the fastest plan of the smaller ones, (7)."""
        best: Incumbent | None = None
        for entry in reversed(self.solved):
            if best is not None and best.seconds <= entry.seconds and _holds(entry, best):
                entry.result = _improved(entry.result, best)
            best = entry.result.incumbent or best

    def _points(self) -> Iterator[FrontierPoint]:
        """What is known at every limit searched, with the best bound of it and the larger ones, (8)."""
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
        missing = self.least.need_kib - (kib - self.problem.memory.margin_kib(kib))
        return FrontierPoint(limit_gib=limit, status=Status.INFEASIBLE, missing_bytes=max(missing, 0) * KIB)


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
    return Frontier(
        model=problem.model.name,
        cluster=problem.cluster.name,
        global_batch=problem.space.global_batch,
        tokens_per_step=problem.space.global_batch * problem.model.tokens,
        latency_model=problem.latency_model,
        margin=problem.memory.margin,
        capacity_gib=gib_of(max(problem.capacity_kib)),
        least_gib=gib_of(sweep.least.limit_kib),
        leanest=sweep.least.leanest,
        points=tuple(found),
        interrupted=sweep.interrupted,
    )


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
