"""
A schedule with its pipeline and what is proven of it, and the document that it is written as.

The document is JSON, format ``taut-schedule/1``. Memory stands relative to what 1F1B holds on its fullest device, times
in the unit in which they were given. In words it says what was compared, what was found and what is proven.

``verify_schedule`` checks a document without trusting the search that wrote it. The orders are run again, which gives
makespan, span, bubble and peak memory, and the bound of their placement is derived from its witness, as
``taut.solver.schedules.lower_bound`` says. A larger bound that CP-SAT alone states is passed on as its claim. The
document's bound is the least of those of all placements: bounds of other placements have no witness, so they are named
and left out of the verified gap, which is about the placement of the certificate.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Ints
from taut.data.schedule import FORMAT, PipelineSpec, ScheduleSpec, read_schedule
from taut.errors import DataError, FormulationError
from taut.formulations.schedules.schedule import (
    LETTERS,
    PlacedProblem,
    Schedule,
    ScheduleProblem,
    Timetable,
    timetable,
    violations,
)
from taut.solver.result import OPTIMALITY_GAP, SOLVED, relative_gap
from taut.solver.schedules.lower_bound import complaints
from taut.words import grid, percent, report

if TYPE_CHECKING:
    from rich.table import Table


SAME = 1e-9
"""Relative difference up to which a stated makespan is the one that the orders have: sums of floats."""


def schedule_fields(placed: PlacedProblem, schedule: Schedule, times: Timetable) -> dict[str, Any]:
    """The part of a schedule document that the orders and the times of their passes alone determine."""
    held = times.peak_memory / placed.reference_memory
    return {
        "format": FORMAT,
        "kind": schedule.kind,
        "makespan": times.makespan,
        "span": times.span,
        "bubble": times.bubble,
        "peak_memory": float(held.max()),
        "peak_per_device": held.tolist(),
        "problem": _problem_fields(placed),
        "orders": [[[LETTERS[kind], chunk, i] for kind, chunk, i in order.tolist()] for order in schedule.orders],
    }


def _problem_fields(placed: PlacedProblem) -> dict[str, Any]:
    problem = placed.problem
    figures = ("forward", "input_gradient", "weight_gradient", "transfer", "activation", "kept_for_weight")
    return {
        "placement": placed.placement,
        "device": problem.device.tolist(),
        "micro_batches": problem.num_micro_batches,
        **{name: getattr(problem, name).tolist() for name in figures},
        "memory_limit": [limit if math.isfinite(limit) else None for limit in problem.memory_limit.tolist()],
        "reference_memory": placed.reference_memory,
    }


def load_schedule(path: Path) -> tuple[PlacedProblem, Schedule]:
    """Read a schedule document whose orders are feasible within the limits and have the makespan that it states."""
    spec, placed, schedule = parsed_schedule(path)
    checked(placed.problem, schedule, str(path))
    found = timetable(placed.problem, schedule).makespan
    if spec.makespan is not None and not math.isclose(found, spec.makespan, rel_tol=SAME):
        raise DataError(f"{path}: makespan: is {spec.makespan:.9g}, but its orders take {found:.9g}")
    return placed, schedule


def parsed_schedule(path: Path) -> tuple[ScheduleSpec, PlacedProblem, Schedule]:
    """Read a schedule document without asking whether its orders are feasible."""
    spec = read_schedule(path)
    try:
        placed = PlacedProblem(
            placement=spec.problem.placement,
            problem=_problem(spec.problem),
            reference_memory=spec.problem.reference_memory,
        )
    except FormulationError as error:
        raise DataError(f"{path}: problem.{error}") from None
    return spec, placed, Schedule(spec.kind, tuple(_order(order) for order in spec.orders))


def checked(problem: ScheduleProblem, schedule: Schedule, source: str) -> Schedule:
    """Refuse orders that are not feasible."""
    faults = violations(problem, schedule)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise DataError(f"{source}: orders: {faults[0]}{more}, expected a feasible schedule")
    return schedule


def _problem(spec: PipelineSpec) -> ScheduleProblem:
    return ScheduleProblem(
        device=np.array(spec.device, dtype=np.int64),
        num_micro_batches=spec.micro_batches,
        forward=np.array(spec.forward),
        input_gradient=np.array(spec.input_gradient),
        weight_gradient=np.array(spec.weight_gradient),
        transfer=np.array(spec.transfer),
        activation=np.array(spec.activation),
        kept_for_weight=np.array(spec.kept_for_weight),
        memory_limit=np.array([math.inf if limit is None else limit for limit in spec.memory_limit]),
    )


def _order(passes: Iterable[tuple[str, int, int]]) -> Ints:
    rows = [(LETTERS.index(letter), chunk, i) for letter, chunk, i in passes]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A kind of schedule as it is built for one placement; memory relative to 1F1B."""

    kind: str
    placement: str
    makespan: float
    span: float
    bubble: float
    peak_memory: float
    fits: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundSchedule:
    """
    A schedule, when its passes run, and the bound on every order of the placements in its space.

    ``placed``: the pipeline of the schedule; ``schedule``, ``times``: its orders, and when their passes run;
    ``lower_bound``: no order of the placements in ``bounds`` within the memory limits ends earlier; None if nothing is
    proven; ``source``: what the bound rests on; ``bounds``: lower bound by placement; ``compared``: the kinds that were
    built, each on its best placement; the fastest first, what does not fit last; ``certificate``: what derives the
    bound of the schedule's own placement again; ``provenance``: how it was found.
    """

    placed: PlacedProblem
    schedule: Schedule
    times: Timetable
    lower_bound: float | None = None
    source: str = ""
    bounds: dict[str, float] = field(default_factory=dict)
    compared: tuple[Compared, ...] = ()
    certificate: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def problem(self) -> ScheduleProblem:
        """The pipeline."""
        return self.placed.problem

    @property
    def reference_memory(self) -> float:
        """Memory of 1F1B on its fullest device, in the units of the pipeline."""
        return self.placed.reference_memory

    @property
    def makespan(self) -> float:
        """End of the last pass."""
        return self.times.makespan

    @property
    def gap(self) -> float | None:
        """Share of the makespan that lies above the bound, 0 if it is rounding alone; None without a bound."""
        gap = None if self.lower_bound is None else relative_gap(self.makespan, self.lower_bound)
        return 0.0 if gap is not None and gap <= SOLVED else gap

    @property
    def status(self) -> str:
        """``optimal`` or ``feasible``."""
        return "optimal" if self.gap is not None and self.gap <= OPTIMALITY_GAP else "feasible"

    @property
    def document(self) -> dict[str, Any]:
        """The schedule in the format ``taut-schedule/1``."""
        fields = schedule_fields(self.placed, self.schedule, self.times)
        orders = fields.pop("orders")
        return {
            **fields,
            "status": self.status,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "source": self.source,
            "bounds": {name: bound if math.isfinite(bound) else None for name, bound in self.bounds.items()},
            "compared": [vars(each) for each in self.compared],
            "certificate": self.certificate,
            "provenance": {"taut": version("taut"), **self.provenance},
            "orders": orders,
        }


MOST_LISTED = 12
"""Devices whose figures fit into a line."""


def summary(found: "FoundSchedule", *, width: int = 110) -> str:
    """Text of a schedule that was found."""
    compared: list[str | Table] = ["", _table(found)] if found.compared else []
    return report(_pipeline_line(found), *compared, "\n".join(_lines(found)), width=width)


def head_line(found: "FoundSchedule") -> str:
    """Kind, placement and size of a schedule, for titles."""
    return (
        f"{found.schedule.kind}: {found.problem.num_devices} devices, {found.problem.num_micro_batches} micro-batches; "
        f"makespan {duration(found, found.makespan)}, bubble {found.times.bubble:.1%}, "
        f"peak memory {_peak(found):.3g} of 1F1B's"
    )


def proof_line(found: "FoundSchedule") -> str:
    """What is proven of a schedule, for titles."""
    if found.lower_bound is None:
        return "nothing is proven of other orders"
    words = "proven optimal: " if found.status == "optimal" else ""
    limits = _limit_words(found)
    return f"{words}no order within {limits} ends before {duration(found, found.lower_bound)}, gap {percent(found.gap)}"


def duration(found: "FoundSchedule", value: float) -> str:
    """A time with its unit, if the pipeline states one."""
    return f"{value:.6g} {found.placed.unit}".rstrip()


def time_axis(found: "FoundSchedule") -> str:
    """Name of the time axis with its unit."""
    return f"time ({found.placed.unit})" if found.placed.unit else "time (in the unit of the given times)"


def chunk_words(shades: int) -> str:
    """What the shades of a colour mean."""
    return "" if shades == 1 else " (dark to light: first to last chunk of a device)"


def _peak(found: "FoundSchedule") -> float:
    return float(found.times.peak_memory.max()) / found.reference_memory


def _limit_words(found: "FoundSchedule") -> str:
    limits = sorted(set((found.problem.memory_limit / found.reference_memory).tolist()))
    if math.isinf(limits[0]):
        return "any memory"
    if len(limits) == 1:
        return f"a memory of {limits[0]:.4g}"
    return f"memory limits of {limits[0]:.4g} to {limits[-1]:.4g}"


def _pipeline_line(found: "FoundSchedule") -> str:
    return (
        f"{found.problem.num_devices} devices, {found.problem.num_micro_batches} micro-batches, {_limit_words(found)} "
        f"(relative to 1F1B's peak)"
    )


def _table(found: "FoundSchedule") -> "Table":
    """One row per kind, the fastest first, with those that do not fit at the end."""
    table = grid("kind", "placement", ">makespan", ">span", ">bubble", ">peak memory", "")
    for each in found.compared:
        table.add_row(
            each.kind,
            each.placement,
            f"{each.makespan:.6g}",
            f"{each.span:.6g}",
            f"{each.bubble:.1%}",
            f"{each.peak_memory:.3f}",
            "" if each.fits else "over the limit",
        )
    return table


def _lines(found: "FoundSchedule") -> list[str]:
    proven = "nothing is proven" if found.lower_bound is None else (
        f"lower bound {duration(found, found.lower_bound)} ({found.source}), gap {percent(found.gap)}"
    )  # fmt: skip
    return [
        "",
        f"schedule    {found.schedule.kind} on the placement {found.placed.placement}",
        f"time        makespan {duration(found, found.makespan)}, span {duration(found, found.times.span)}, "
        f"bubble {found.times.bubble:.1%}",
        f"memory      peak {_peak(found):.4g} of 1F1B's; {_by_device(found)}",
        f"status      {found.status}: {proven}",
        *_space_line(found),
    ]


def _by_device(found: "FoundSchedule") -> str:
    held = (found.times.peak_memory / found.reference_memory).tolist()
    if len(held) > MOST_LISTED:
        return f"from {min(held):.3g} to {max(held):.3g} by device"
    return "by device " + " ".join(f"{share:.3g}" for share in held)


def _space_line(found: "FoundSchedule") -> list[str]:
    if not found.bounds:
        return []
    shown = ", ".join(f"{name} {bound:.6g}" for name, bound in found.bounds.items())
    return [f"space       every order within the limits; no earlier end by placement: {shown}"]


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
        faults=(
            *_absent(spec, placed.placement),
            *_misstated(spec, placed, schedule),
            *_overstated(spec, claims, placed.placement),
        ),
        makespan=claims["makespan"],
        lower_bound=claims["lower_bound"],
        gap=claims["gap"],
        claimed_bound=claims["claimed_bound"],
        placement=placed.placement,
        unwitnessed=tuple(name for name in spec.bounds if name != placed.placement),
    )


FIGURES = ("makespan", "span", "bubble", "peak_memory", "peak_per_device", "status", "lower_bound", "gap", "bounds")
"""What every document states, be it that nothing is known."""


def _absent(spec: ScheduleSpec, placement: str) -> Iterator[str]:
    """Figures that were taken out of the document, and a bound without that of the certificate's placement."""
    yield from (f"{name}: is missing" for name in FIGURES if name not in spec.model_fields_set)
    if spec.lower_bound is not None and spec.bounds.get(placement) is None:
        yield f"bounds: has none of the placement {placement}, but lower_bound is {spec.lower_bound!r}"


def _misstated(spec: ScheduleSpec, placed: PlacedProblem, schedule: Schedule) -> Iterator[str]:
    """Figures of the document that its orders do not have."""
    derived = schedule_fields(placed, schedule, timetable(placed.problem, schedule))
    for name in ("makespan", "span", "bubble", "peak_memory"):
        stated = getattr(spec, name)
        if not _same(stated, derived[name]):
            yield f"{name}: {stated!r}, derived {derived[name]!r}"
    peaks = derived["peak_per_device"]
    stated = spec.peak_per_device
    if stated is None or not (len(stated) == len(peaks) and all(map(_same, stated, peaks))):
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
    if not _same(spec.gap, gap):
        yield f"gap: {spec.gap!r}, but makespan and lower_bound make it {gap!r}"
    status = "optimal" if gap is not None and gap <= OPTIMALITY_GAP else "feasible"
    if spec.status != status:
        yield f"status: {spec.status!r}, but makespan and lower_bound make it {status!r}"


def _same(stated: float | None, derived: float | None) -> bool:
    """Whether a stated figure is the derived one but for rounding."""
    if stated is None or derived is None:
        return stated is derived
    return math.isclose(stated, derived, rel_tol=SOLVED, abs_tol=SOLVED)
