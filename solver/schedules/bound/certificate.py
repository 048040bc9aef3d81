r"""
The certificate of a schedule: what is claimed of it, and what derives the bound again without any solver.

(1) the orders run every pass once, do not deadlock and keep the memory limits;
(2) makespan = end of the last pass of the orders, started as early as possible;
(3) lower bound = what the witness stands for (``taut.solver.schedules.bound.witness``);
(4) gap = (makespan - lower bound) / makespan.

A larger bound that only CP-SAT states is ``claimed_bound`` and enters nothing else (5).
"""

import math
from collections.abc import Mapping
from typing import Any

from taut.errors import CertificateError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.result import relative_gap
from taut.solver.schedules.bound.closed_form_bounds import ScheduleBound
from taut.solver.schedules.bound.witness import rederived

FIELDS = ("makespan", "lower_bound", "gap", "claimed_bound", "witness")
_ROUNDING = 1e-12


def certificate(makespan: float, bound: ScheduleBound, claimed_bound: float | None = None) -> dict[str, Any]:
    """
    State the claims as plain JSON values.

    ``makespan``: seconds of the schedule; ``bound``: a lower bound with its witness; ``claimed_bound``: seconds that a
    solver states as a bound, None if none does, (5).
    """
    return {
        "makespan": makespan,
        "lower_bound": bound.lower_bound,
        "gap": relative_gap(makespan, bound.lower_bound),
        "claimed_bound": claimed_bound,
        "witness": dict(bound.witness),
    }


def complaints(problem: ScheduleProblem, schedule: Schedule, claims: Mapping[str, Any]) -> tuple[str, ...]:
    """
    Check a certificate.

    ``schedule``: what the certificate is of. Returns one sentence for each claim that does not hold; empty if all do.
    """
    if set(claims) != set(FIELDS):
        return (f"certificate: fields {sorted(map(str, claims))}, expected {sorted(FIELDS)}",)
    broken = violations(problem, schedule)
    if broken:
        return broken
    witness = claims["witness"]
    if not isinstance(witness, Mapping):
        return (f"witness: {witness!r}, expected an object",)
    makespan = timetable(problem, schedule).makespan
    try:
        bound = rederived(problem, witness)
    except CertificateError as error:
        return (str(error),)
    derived = {"makespan": makespan, "lower_bound": bound, "gap": relative_gap(makespan, bound)}
    return (
        *(
            f"{name}: {claims[name]!r}, derived {value!r}"
            for name, value in derived.items()
            if not _same(claims[name], value)
        ),
        *_claimed(claims["claimed_bound"], bound, makespan),
    )


def _same(stated: object, derived: float | None) -> bool:
    """Whether a stated number is the derived one but for rounding."""
    if stated is None or derived is None or isinstance(stated, bool) or not isinstance(stated, int | float):
        return stated is None and derived is None
    try:
        return math.isclose(stated, derived, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    except OverflowError:
        # A whole number that no float holds is no figure of a schedule.
        return False


def _claimed(stated: object, bound: float, makespan: float) -> tuple[str, ...]:
    """A claimed bound lies between the derived one and the makespan."""
    if stated is None:
        return ()
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not bound <= stated <= makespan:
        return (f"claimed_bound: {stated!r}, expected null or a number from {bound!r} to {makespan!r}",)
    return ()
