"""The space of a pipeline's schedules: its placements, the kinds that suit each, and what fits no memory limit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from taut.errors import DataError, FormulationError, InfeasibleError
from taut.formulations.schedules.pipeline import PlacedProblem
from taut.formulations.schedules.schedule import Schedule, Timetable, timetable
from taut.formulations.schedules.stages import CHUNKS, Stages
from taut.schedules.found import Compared
from taut.solver.schedules.construct.kinds import KINDS, build


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
