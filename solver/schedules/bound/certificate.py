r"""
The certificate of a schedule: what is claimed of it, and what derives the bound again without any solver.

(1) the orders run every pass once, do not deadlock and keep the memory limits;
(2) makespan = end of the last pass of the orders, started as early as possible;
(3) lower bound = what the witness stands for;
(4) gap = (makespan - lower bound) / makespan.

A larger bound that only CP-SAT states is ``claimed_bound`` and enters nothing else (5).

A bound is derived again from its witness alone. A witness names its source: "memory" (no schedule
exists), "work", "path" or "memory-area", which are worked out again
(``taut.solver.schedules.bound.closed_form_bounds``, (4) and (1) to (3)); or, with the largest time unit T that is
refuted (``taut.solver.schedules.bound.destructive_bound``),

(6) "single-device": a device, and the number of the sweep that keeps no label
    (``taut.solver.schedules.bound.single_device``);
(7) "propagation": the number of the visit to a device that refutes T (``taut.solver.schedules.bound.heads_tails``).

No schedule ends by T, so the bound is the seconds of the next time unit.
"""

import math
from collections.abc import Mapping
from typing import Any

from taut.errors import CertificateError
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable, violations
from taut.solver.result import relative_gap
from taut.solver.schedules.bound.closed_form_bounds import CLOSED_FORMS, Relaxed, ScheduleBound, is_feasible, relaxed
from taut.solver.schedules.bound.heads_tails import MOST_VISITS, refute_by_propagation
from taut.solver.schedules.bound.single_device import MOST_SWEEPS, refute

_LARGEST = 1 << 60
"""No sum of rounded durations is as large."""
_MORE_FIELDS = {"single-device": {"device", "target", "sweeps"}, "propagation": {"target", "visits"}}


def rederived(problem: ScheduleProblem, witness: Mapping[str, Any]) -> float:
    """
    The bound in seconds that a witness stands for, worked out again.

    ``witness``: of a ``ScheduleBound``. Returns seconds; infinite if the witness says that no schedule exists. Raises
    ``CertificateError`` if the witness is none of these, or does not show what it says.
    """
    source = witness.get("source")
    if not isinstance(source, str):
        raise CertificateError(f"witness: source {source!r}, expected a name")
    expected = {"source"} | _MORE_FIELDS.get(source, set())
    if set(witness) != expected:
        raise CertificateError(f"witness: fields {sorted(map(str, witness))}, expected {sorted(expected)}")
    if source == "memory" and not is_feasible(problem):
        return math.inf
    given = relaxed(problem)
    if source in CLOSED_FORMS:
        return given.rounded.seconds(CLOSED_FORMS[source](given) - 1)
    if source not in _MORE_FIELDS:
        raise CertificateError(f"witness: source {source!r} does not hold")
    target = _count(witness, "target", _LARGEST)
    if not (_alone if source == "single-device" else _together)(given, witness, target):
        raise CertificateError(f"witness: the time unit {target} is not refuted as it says")
    return given.rounded.seconds(target)


def _alone(given: Relaxed, witness: Mapping[str, Any], target: int) -> bool:
    """Whether a time unit is refuted as (6) says."""
    device = given.device(_count(witness, "device", len(given.rounded.limit)))
    sweeps = _count(witness, "sweeps", MOST_SWEEPS + 1)
    return device is not None and refute(device, target, sweeps=sweeps).refuted == sweeps


def _together(given: Relaxed, witness: Mapping[str, Any], target: int) -> bool:
    """Whether a time unit is refuted as (7) says."""
    visits = _count(witness, "visits", MOST_VISITS + 1)
    return refute_by_propagation(given.rounded, given.head, given.tail, target, visits=visits).visits == visits


def _count(witness: Mapping[str, Any], name: str, end: int) -> int:
    """A whole number from 0 to below ``end`` of a witness."""
    value = witness[name]
    if type(value) is not int or not 0 <= value < end:
        raise CertificateError(f"witness: {name} {value!r}, expected a whole number from 0 to {end - 1}")
    return value


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
