"""A schedule with its pipeline and what is proven of it, and the document that it is written as."""

import math
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from taut.formulations.schedules.pipeline import ScheduleProblem
from taut.formulations.schedules.placed import PlacedProblem
from taut.formulations.schedules.schedule import Schedule, Timetable
from taut.schedules.document import schedule_fields
from taut.solver.result import OPTIMALITY_GAP, SOLVED, relative_gap


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

    Parameters
    ----------
    placed
        The pipeline of the schedule.
    schedule, times
        Its orders, and when their passes run.
    lower_bound
        No order of the placements in ``bounds`` within the memory limits ends earlier; None if nothing is proven.
    source
        What the bound rests on.
    bounds
        Lower bound by placement.
    compared
        The kinds that were built, each on its best placement; the fastest first, what does not fit last.
    certificate
        What derives the bound of the schedule's own placement again.
    provenance
        How it was found.
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
