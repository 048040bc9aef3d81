r"""
The best schedule of a pipeline: kinds compared, placements bounded, the best one improved.

A step may be scheduled on any placement :math:`\pi` of a space, each a problem of its own
(``taut.formulations.schedules.stages``). With the makespan U of the best schedule found and lower bounds :math:`L_\pi`
on every order of the passes of :math:`\pi` within the memory limits,

(1) no schedule of the space ends before :math:`\min_\pi \min(L_\pi, U)`.

The placement with the fastest kind is searched first (2). Before that, the others are bounded; those with
:math:`L_\pi \ge U` hold nothing better and are not searched, or no longer once that is known (3).

A schedule that is published or given has a bound on what any other order of its placement takes. It is built on the
placement where it is fastest. The bound is on orders within the memory limits or, without any, within what the schedule
itself holds on its fullest device.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from taut.data.suggest import one_of
from taut.errors import DataError, FieldError, FormulationError, InfeasibleError
from taut.formulations.schedules.schedule import PlacedProblem, Schedule, Timetable, timetable
from taut.formulations.schedules.stages import CHUNKS, Stages
from taut.planning.request import check_search
from taut.schedules.found import Compared, FoundSchedule
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.result import OPTIMALITY_GAP
from taut.solver.schedules.kinds import KINDS, build
from taut.solver.schedules.lower_bound import ScheduleBound, certificate, lower_bound
from taut.solver.schedules.optimize import VALUES_A_SECOND, ScheduleResult, load, optimize


@dataclass(frozen=True, kw_only=True, eq=False)
class Built:
    """A schedule on a placement."""

    placed: PlacedProblem
    schedule: Schedule
    times: Timetable

    @property
    def fits(self) -> bool:
        """Whether every device keeps to its memory limit."""
        return bool((self.times.peak_memory <= self.placed.problem.allowed).all())

    @property
    def compared(self) -> Compared:
        """The figures alone."""
        return Compared(
            kind=self.schedule.kind,
            placement=self.placed.placement,
            makespan=self.times.makespan,
            span=self.times.span,
            bubble=self.times.bubble,
            peak_memory=float(self.times.peak_memory.max()) / self.placed.reference_memory,
            fits=self.fits,
        )


def placements(stages: Stages, placement: str | None = None, chunks: int | None = None) -> list[PlacedProblem]:
    """Place the chunks in every way that is asked for (None: any) and that the figures are given for."""
    placed, complaints = [], []
    for name, count in _wanted(stages.stages, placement, chunks):
        try:
            placed.append(stages.place(name, count))
        except DataError as error:
            complaints.append(error)
    if not placed:
        raise complaints[0]
    return placed


def _wanted(stages: int, placement: str | None, chunks: int | None) -> list[tuple[str, int]]:
    """Placements by name, and how many chunks a device has."""
    if placement is not None:
        return [(placement, CHUNKS.get(placement, 1) if chunks is None else chunks)]
    if chunks is None:
        # On one device it makes no difference how the model is cut.
        return list(CHUNKS.items()) if stages > 1 else [("sequential", 1)]
    return [(name, chunks) for name, count in CHUNKS.items() if chunks == count] or [("round-robin", chunks)]


def roomy(space: Sequence[PlacedProblem]) -> list[PlacedProblem]:
    """Keep the placements whose limits hold one micro-batch on all chunks of each device, which any schedule needs."""
    short = [_short(placed) for placed in space]
    if not all(short):
        return [placed for placed, lacks in zip(space, short, strict=True) if lacks is None]
    placed, device, needed = next(each for each in short if each)
    limit, least = placed.problem.memory_limit[device] / placed.reference_memory, needed / placed.reference_memory
    raise InfeasibleError(
        f"proven infeasible: one micro-batch holds {least:.4g} of 1F1B's peak memory on device {device}, its limit is "
        f"{limit:.4g}; the least limit that holds a schedule there is {least:.6g}",
        {"device": device, "limit": float(limit), "least_limit": float(least)},
    )


def _short(placed: PlacedProblem) -> tuple[PlacedProblem, int, float] | None:
    """The first device that cannot hold one micro-batch, and what that takes."""
    problem = placed.problem
    needed = np.bincount(problem.device, weights=problem.activation)
    short = np.flatnonzero(needed > problem.allowed)
    return (placed, int(short[0]), float(needed[short[0]])) if short.size else None


def refuse_too_full(chosen: Built) -> None:
    """Refuse a kind that exceeds a memory limit."""
    problem, held = chosen.placed.problem, chosen.times.peak_memory / chosen.placed.reference_memory
    device = int(np.flatnonzero(chosen.times.peak_memory > problem.allowed)[0])
    limit = problem.memory_limit[device] / chosen.placed.reference_memory
    raise InfeasibleError(
        f"{chosen.schedule.kind} holds {held[device]:.4g} of 1F1B's peak memory on device {device}, its limit is "
        f"{limit:.4g}; it fits --memory-limit {held.max():.6g}, and without --kind other schedules are tried",
        {"device": device, "limit": float(limit), "least_limit": float(held.max())},
    )


def built_kinds(space: Sequence[PlacedProblem], stop: Callable[[], bool] = lambda: False) -> Iterator[Built]:
    """Every kind on every placement that it suits, whether or not it fits, formulas first, until it is time to stop."""
    for kind, placed in product(KINDS, space):
        if stop():
            return
        with suppress(FormulationError):
            yield build_kind(placed, kind, stop)


def build_kind(placed: PlacedProblem, kind: str, stop: Callable[[], bool] = lambda: False) -> Built:
    """Build a kind of schedule on a placement: within its memory limits or, if it cannot be, as if there were none."""
    problem = placed.problem
    try:
        made = build(kind, problem, stop=stop)
    except InfeasibleError:
        made = build(kind, replace(problem, memory_limit=np.full_like(problem.memory_limit, np.inf)), stop=stop)
    return Built(placed=placed, schedule=made, times=timetable(problem, made))


def fastest_that_fits(built: Built) -> tuple[bool, float, float]:
    """Order of preference: what fits, then the makespan, then the peak memory."""
    return not built.fits, built.times.makespan, float(built.times.peak_memory.max())


PRICE_SECONDS = 1.0
"""Time to bound a schedule, where no limit is given."""


SEARCH_SECONDS = 60.0
"""Time to search for a schedule."""
FIRST_SHARE, BOUND_SHARE = 0.7, 0.05
"""Shares of the time left for a placement that others wait behind, and of all time to exclude one, (2) and (3)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSearch:
    """
    How long and how to search; see ``best_schedule``.

    Raises
    ------
    FieldError
        If a limit is out of range.
    """

    time_limit: float | None = None
    gap: float = OPTIMALITY_GAP
    seed: int = 0
    workers: int = 2
    progress: Listener | None = None

    def __post_init__(self) -> None:
        check_search(time_limit=self.time_limit, gap=self.gap, seed=self.seed, workers=self.workers)

    @property
    def seconds(self) -> float:
        """Time to search."""
        return self.time_limit or SEARCH_SECONDS

    def run(self, placed: PlacedProblem, start: Schedule | None, known: float, seconds: float) -> ScheduleResult:
        """Search one placement for better than a known makespan, with its name before what is done."""
        progress, reported = self.progress, None
        if progress is not None:

            def reported(at: Progress) -> None:
                progress(at._replace(doing=f"{placed.placement}: {at.doing}"))

        return optimize(
            placed.problem,
            start=start,
            known=known,
            time_limit=seconds,
            gap=self.gap,
            seed=self.seed,
            workers=self.workers,
            progress=reported,
        )


def best_schedule(
    stages: Stages, search: ScheduleSearch, *, placement: str | None = None, chunks: int | None = None
) -> FoundSchedule:
    """
    Find the schedule of least makespan within the memory limits.

    Parameters
    ----------
    stages
        The pipeline.
    search
        Time, gap, seed, threads and progress.
    placement, chunks
        Where chunks are to be, and how many a device has; without them every placement of
        ``taut.formulations.schedules.stages``.

    Returns
    -------
    FoundSchedule
        The best one with its bound over the space, (1).

    Raises
    ------
    DataError
        If no placement suits the figures.
    InfeasibleError
        If it is proven that no schedule fits the memory limits.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> found = taut.best_schedule(stages, taut.ScheduleSearch(time_limit=10))
    >>> found.times.makespan, found.lower_bound
    (12.5, 12.5)
    """
    space = roomy(placements(stages, placement, chunks))
    load(search.progress)
    ends = time.monotonic() + search.seconds
    with interrupt_requested() as asked:
        told = time.monotonic()

        def stop() -> bool:
            nonlocal told
            now = time.monotonic()
            if search.progress is not None and now - told > 1.0:
                told, elapsed = now, search.seconds - (ends - now)
                search.progress(Progress(elapsed, math.inf, -math.inf, "building schedules and bounding placements"))
            return asked() or now > ends

        kinds = sorted(built_kinds(space, stop), key=fastest_that_fits)
        placed, best, bounds = _searched(_in_order(space, kinds), kinds, search, stop, ends)
    least, source = min(bounds.values())
    return FoundSchedule(
        placed=placed,
        schedule=best.schedule,
        times=best.timetable,
        lower_bound=min(least, best.timetable.makespan),
        source=source,
        bounds={each.placement: bounds[each.placement][0] for each in space},
        certificate=best.certificate,
        compared=_each_kind_once(kinds),
    )


def _each_kind_once(kinds: Sequence[Built]) -> tuple[Compared, ...]:
    """Figures of every kind on its best placement, in the order given."""
    names = [each.schedule.kind for each in kinds]
    return tuple(each.compared for place, each in enumerate(kinds) if names.index(each.schedule.kind) == place)


def _in_order(space: Sequence[PlacedProblem], kinds: Sequence[Built]) -> list[PlacedProblem]:
    """The placement of the fastest kind that fits first, (2)."""
    names = [each.placed.placement for each in kinds if each.fits]
    rank = {name: names.index(name) for name in set(names)}
    return sorted(space, key=lambda placed: rank.get(placed.placement, len(names)))


def _searched(
    space: Sequence[PlacedProblem],
    kinds: Sequence[Built],
    search: ScheduleSearch,
    stop: Callable[[], bool],
    ends: float,
) -> tuple[PlacedProblem, ScheduleResult, dict[str, tuple[float, str]]]:
    """Search the placements in turn where better may be: the best, its placement, and every bound with its source."""
    known = min((each.times.makespan for each in kinds if each.fits), default=math.inf)
    excluding = {each.placement: placement_bound(each, known, BOUND_SHARE * search.seconds, stop) for each in space[1:]}
    bounds = {name: (bound.lower_bound, bound.source) for name, bound in excluding.items()}
    results: list[tuple[PlacedProblem, ScheduleResult]] = []
    for number, placed in enumerate(space):
        unsettled = [each for each in space[number:] if _may_improve(bounds.get(each.placement), known, search.gap)]
        if results and (stop() or placed not in unsettled):
            continue
        left = 0.0 if stop() else ends - time.monotonic()
        seconds = FIRST_SHARE * left if unsettled[1:] else left
        result = search.run(placed, _start(placed, kinds), known, seconds)
        known = min(known, result.timetable.makespan)
        results.append((placed, result))
        own = (result.lower_bound, result.source)
        bounds[placed.placement] = max(own, bounds.get(placed.placement, own))
    return *min(results, key=lambda each: each[1].timetable.makespan), bounds


def _may_improve(bound: tuple[float, str] | None, known: float, gap: float) -> bool:
    """Whether a placement may hold something better by more than a gap than what is known, (3)."""
    return bound is None or bound[0] < known * (1 - gap)


def _start(placed: PlacedProblem, kinds: Sequence[Built]) -> Schedule | None:
    """The fastest kind on a placement that fits; kinds are in order."""
    return next((each.schedule for each in kinds if each.placed is placed and each.fits), None)


def placement_bound(placed: PlacedProblem, known: float, seconds: float, stop: Callable[[], bool]) -> ScheduleBound:
    """Bound of a placement up to a known makespan, (3)."""
    until = time.monotonic() + seconds
    return lower_bound(
        placed.problem,
        incumbent=known,
        work_limit=max(int(VALUES_A_SECOND * seconds), 1),
        stop=lambda: stop() or time.monotonic() > until,
    )


def published_schedule(
    stages: Stages, kind: str, search: ScheduleSearch, *, placement: str | None = None, chunks: int | None = None
) -> FoundSchedule:
    """
    Build one kind of schedule as it is published, and bound it.

    Without a memory limit the bound is on orders that hold no more than the schedule on its fullest device.

    Parameters
    ----------
    stages, search, placement, chunks
        As for ``best_schedule``.
    kind
        Name of the kind.

    Raises
    ------
    DataError
        If there is no such kind, or it does not suit the pipeline.
    InfeasibleError
        If the kind does not fit the memory limits.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> taut.published_schedule(stages, "1f1b", taut.ScheduleSearch(time_limit=1)).times.makespan
    15.0
    """
    if kind not in KINDS:
        raise FieldError("kind", kind, f"expected {one_of(kind, KINDS)}")
    space = roomy(placements(stages, placement, chunks))
    built, complaints = [], []
    for placed in space:
        try:
            built.append(build_kind(placed, kind))
        except FormulationError as error:
            complaints.append(str(error))
    if not built:
        raise FieldError("kind", kind, complaints[0].removeprefix(f"{kind}: "))
    chosen = min(built, key=fastest_that_fits)
    if not chosen.fits:
        refuse_too_full(chosen)
    return bounded(chosen, search)


def bounded(chosen: Built, search: ScheduleSearch) -> FoundSchedule:
    """Bound a schedule on the orders of its placement within its memory limits or, without any, within its own peak."""
    placed = chosen.placed
    if not np.isfinite(placed.problem.memory_limit).any():
        peak = np.full_like(chosen.times.peak_memory, chosen.times.peak_memory.max())
        placed = replace(placed, problem=replace(placed.problem, memory_limit=peak))
    known = chosen.times.makespan
    load(search.progress)
    with interrupt_requested() as asked:
        bound = placement_bound(placed, known, search.time_limit or PRICE_SECONDS, asked)
    return FoundSchedule(
        placed=placed,
        schedule=chosen.schedule,
        times=chosen.times,
        lower_bound=min(bound.lower_bound, known),
        source=bound.source,
        bounds={placed.placement: bound.lower_bound},
        certificate=certificate(known, bound),
    )
