"""
Checking a schedule document without trusting the search that wrote it.

The orders are run again, which gives makespan, span, bubble and peak memory, and the bound of their placement is
derived from its witness, as ``taut.solver.schedules.bound.certificate`` says. A larger bound that CP-SAT alone states
is passed on as its claim. The document's bound is the least of those of all placements: bounds of other placements have
no witness, so they are named and left out of the verified gap, which is about the placement of the certificate.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.schedule import ScheduleSpec
from taut.formulations.schedules.pipeline import PlacedProblem
from taut.formulations.schedules.schedule import Schedule, timetable
from taut.schedules.found import parsed_schedule, schedule_fields
from taut.solver.result import OPTIMALITY_GAP, SOLVED, relative_gap
from taut.solver.schedules.bound.certificate import complaints


@dataclass(frozen=True, kw_only=True)
class ScheduleVerification:
    """What does not hold, figures derived for ``placement``, a solver's claim, and placements without witness."""

    faults: tuple[str, ...]
    makespan: float
    lower_bound: float
    gap: float | None
    claimed_bound: float | None = None
    placement: str = ""
    unwitnessed: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every claim was derived again."""
        return not self.faults


def verify_schedule(path: Path) -> ScheduleVerification:
    """Check a schedule document."""
    spec, placed, schedule = parsed_schedule(path)
    claims = spec.certificate
    faults = complaints(placed.problem, schedule, claims)
    if faults:
        return ScheduleVerification(faults=faults, makespan=float("nan"), lower_bound=float("-inf"), gap=None)
    return ScheduleVerification(
        faults=(*_misstated(spec, placed, schedule), *_overstated(spec, claims, placed.placement)),
        makespan=claims["makespan"],
        lower_bound=claims["lower_bound"],
        gap=claims["gap"],
        claimed_bound=claims["claimed_bound"],
        placement=placed.placement,
        unwitnessed=tuple(name for name in spec.bounds if name != placed.placement),
    )


def _misstated(spec: ScheduleSpec, placed: PlacedProblem, schedule: Schedule) -> Iterator[str]:
    """Figures of the document that its orders do not have."""
    derived = schedule_fields(placed, schedule, timetable(placed.problem, schedule))
    for name in ("makespan", "span", "bubble", "peak_memory"):
        stated = getattr(spec, name)
        if (stated is not None or name == "makespan") and not _same(stated, derived[name]):
            yield f"{name}: {stated!r}, derived {derived[name]!r}"
    peaks = derived["peak_per_device"]
    stated = spec.peak_per_device
    if stated is not None and not (len(stated) == len(peaks) and all(map(_same, stated, peaks))):
        yield f"peak_per_device: {stated!r}, derived {peaks!r}"


def _overstated(spec: ScheduleSpec, claims: Mapping[str, Any], placement: str) -> Iterator[str]:
    """Bounds of the document that say more than its certificate, and what does not follow from them."""
    bound = claims["lower_bound"] if claims["claimed_bound"] is None else claims["claimed_bound"]
    own = {"lower_bound": spec.lower_bound, f"bounds.{placement}": spec.bounds.get(placement)}
    for name, stated in own.items():
        if stated is not None and stated > bound * (1 + SOLVED):
            yield f"{name}: {stated!r}, but the certificate is of {bound!r}"
    if spec.bounds:
        least = min(each for each in (*spec.bounds.values(), claims["makespan"]) if each is not None)
        if not _same(spec.lower_bound, least):
            yield f"lower_bound: {spec.lower_bound!r}, but the least of bounds and makespan is {least!r}"
    gap = None if spec.lower_bound is None else relative_gap(claims["makespan"], spec.lower_bound)
    if "gap" in spec.model_fields_set and not _same(spec.gap, gap):
        yield f"gap: {spec.gap!r}, but makespan and lower_bound make it {gap!r}"
    status = "optimal" if gap is not None and gap <= OPTIMALITY_GAP else "feasible"
    if spec.status not in (None, status):
        yield f"status: {spec.status!r}, but makespan and lower_bound make it {status!r}"


def _same(stated: float | None, derived: float | None) -> bool:
    """Whether a stated figure is the derived one but for rounding."""
    if stated is None or derived is None:
        return stated is derived
    return math.isclose(stated, derived, rel_tol=SOLVED, abs_tol=SOLVED)
