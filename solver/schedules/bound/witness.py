r"""
Deriving a lower bound on the makespan again, from its witness alone.

A witness names its source: "memory" (no schedule exists), "work", "path" or "memory-area", which are worked out again
(``taut.solver.schedules.bound.closed_form_bounds``, (4) and (1) to (3)); or, with the largest time unit T that is
refuted (``taut.solver.schedules.bound.destructive_bound``),

(1) "single-device": a device, and the number of the sweep that keeps no label
    (``taut.solver.schedules.bound.single_device``);
(2) "propagation": the number of the visit to a device that refutes T (``taut.solver.schedules.bound.propagation``).

No schedule ends by T, so the bound is the seconds of the next time unit.
"""

import math
from collections.abc import Mapping
from typing import Any

from taut.errors import CertificateError
from taut.formulations.schedules.schedule import ScheduleProblem
from taut.solver.schedules.bound.closed_form_bounds import CLOSED_FORMS, Relaxed, is_feasible, relaxed
from taut.solver.schedules.bound.propagation import MOST_VISITS, refute_by_propagation
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
    """Whether a time unit is refuted as (1) says."""
    device = given.device(_count(witness, "device", len(given.rounded.limit)))
    sweeps = _count(witness, "sweeps", MOST_SWEEPS + 1)
    return device is not None and refute(device, target, sweeps=sweeps).refuted == sweeps


def _together(given: Relaxed, witness: Mapping[str, Any], target: int) -> bool:
    """Whether a time unit is refuted as (2) says."""
    visits = _count(witness, "visits", MOST_VISITS + 1)
    return refute_by_propagation(given.rounded, given.head, given.tail, target, visits=visits).visits == visits


def _count(witness: Mapping[str, Any], name: str, end: int) -> int:
    """A whole number from 0 to below ``end`` of a witness."""
    value = witness[name]
    if type(value) is not int or not 0 <= value < end:
        raise CertificateError(f"witness: {name} {value!r}, expected a whole number from 0 to {end - 1}")
    return value
