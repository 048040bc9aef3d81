"""
Checking a schedule document without trusting the search that wrote it.

The orders are run again and the bound of their placement is derived from its witness, as
``taut.solver.schedules.bound.certificate`` says. A larger bound that CP-SAT alone states is passed on as its claim.
Bounds of other placements are no part of the certificate: the claim checked is about the pipeline in the document.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.schedule import ScheduleSpec
from taut.schedules.document import parsed_schedule
from taut.solver.result import SOLVED
from taut.solver.schedules.bound.certificate import complaints


@dataclass(frozen=True, kw_only=True)
class ScheduleVerification:
    """
    Outcome of a check: what does not hold, and the figures that were derived.

    ``claimed_bound`` is a larger bound that the document holds on a solver's word alone, None if it holds none.
    """

    faults: tuple[str, ...]
    makespan: float
    lower_bound: float
    gap: float | None
    claimed_bound: float | None = None

    @property
    def holds(self) -> bool:
        """Whether every claim was derived again."""
        return not self.faults


def verify_schedule(path: Path) -> ScheduleVerification:
    """
    Check a schedule document.

    Parameters
    ----------
    path
        JSON file, format ``taut-schedule/1``.

    Raises
    ------
    DataError
        If the file is no such document.
    """
    spec, placed, schedule = parsed_schedule(path)
    claims = spec.certificate
    faults = complaints(placed.problem, schedule, claims)
    if faults:
        return ScheduleVerification(faults=faults, makespan=float("nan"), lower_bound=float("-inf"), gap=None)
    return ScheduleVerification(
        faults=tuple(_overstated(spec, claims)),
        makespan=claims["makespan"],
        lower_bound=claims["lower_bound"],
        gap=claims["gap"],
        claimed_bound=claims["claimed_bound"],
    )


def _overstated(spec: ScheduleSpec, claims: Mapping[str, Any]) -> Iterator[str]:
    """Figures of the document that say more than its certificate."""
    bound = claims["lower_bound"] if claims["claimed_bound"] is None else claims["claimed_bound"]
    if spec.makespan is None or not math.isclose(spec.makespan, claims["makespan"], rel_tol=SOLVED):
        yield f"makespan: {spec.makespan!r}, but the certificate is of {claims['makespan']!r}"
    if spec.lower_bound is not None and spec.lower_bound > bound * (1 + SOLVED):
        yield f"lower_bound: {spec.lower_bound!r}, but the certificate is of {bound!r}"
