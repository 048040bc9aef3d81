r"""
The bound of two spaces together: plans of one degree for all stages, and plans of meshes.

(1) The better plan's document holds that of the other space's best plan as ``other_space``. With the bounds L and L' of
    the two, no plan of either space takes less than :math:`\min(L, L')`, which ``both_spaces`` states with the gap and
    the status that follow. Where the other space has no plan that fits,
    or none was found in time, ``other_space`` states that, and a bound; neither has a proof, so that a check derives no
    bound of the two.
(2) A check of both documents proves (1) if they are about the same problem: model, cluster, memory model, calibration,
    batch and what is fixed are the same, every cost that both tables have is equal, and the other plan is no faster.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError

from taut.data.spec import first_complaint
from taut.errors import DataError
from taut.solver.certificate.closeness import TOLERANCE
from taut.solver.certificate.document import (
    FORMAT,
    MESHES,
    DocumentFrame,
    Section,
    parse_document,
    problem_of,
)
from taut.solver.certificate.figures import status_of
from taut.solver.certificate.verify import Verification, verify_document
from taut.solver.meshes.document import parse_meshes
from taut.solver.meshes.verify import verify_meshes
from taut.solver.result import Status, relative_gap

NAME, BOTH = "other_space", "both_spaces"
SAME = ("global_batch", "stack", "recompute", "recompute_modules", "fixed")
"""Fields of the space that both searches have alike."""


class WithoutPlan(Section):
    """What is known of a space without a plan."""

    status: Literal["infeasible", "unknown"]
    lower_bound_s: float | None = None


def other_space(values: Mapping[str, Any], source: str) -> DocumentFrame | WithoutPlan | None:
    """
    Read what a document says of the other space.

    Raises ``DataError`` if it is neither a plan's document nor a state.
    """
    stated, where = values.get(NAME), f"{source}: {NAME}"
    if stated is None:
        return None
    if isinstance(stated, dict) and stated.get("format") in (FORMAT, MESHES):
        if stated["format"] == values.get("format"):
            raise DataError(f"{where}: format: is {stated['format']}, expected that of the other space")
        return parse_meshes(stated, where) if stated["format"] == MESHES else parse_document(stated, where)
    try:
        return WithoutPlan.model_validate(stated)
    except ValidationError as error:
        raise DataError(f"{where}: {first_complaint(error)}, expected a plan, or a status without one") from None


def bound_of_both(own: float | None, other: DocumentFrame | WithoutPlan | None) -> float | None:
    """The least of both bounds, (1); None where one of them is unknown."""
    if other is None or other.status == "infeasible":
        return own
    bound = other.certificate.lower_bound_s if isinstance(other, DocumentFrame) else other.lower_bound_s
    return None if own is None or bound is None else min(own, bound)


def with_other_space(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's document that holds what is known of the other space, and the claim about both, (1)."""
    found = {**values, NAME: other}
    stated = values["certificate"]
    return {**found, BOTH: _claim(stated["objective_s"], stated["lower_bound_s"], other_space(found, "a plan"))}


def status_of_both(objective: float, own: float | None, other: DocumentFrame | WithoutPlan | None) -> Status:
    """What the gap to the bound of both makes of the plan, (1)."""
    return status_of(_gap(objective, bound_of_both(own, other)))


def _claim(objective: float, own: float | None, other: DocumentFrame | WithoutPlan | None) -> dict[str, Any]:
    """Status, bound and gap of both spaces, (1)."""
    bound = bound_of_both(own, other)
    status = str(status_of_both(objective, own, other))
    return {"status": status, "lower_bound_s": bound, "gap": _gap(objective, bound)}


def _gap(objective: float, bound: float | None) -> float | None:
    return None if bound is None else relative_gap(objective, bound)


def verify_plan(values: dict[str, Any], source: str = "plan") -> Verification:
    """
    Check a document of either space, with the other one's where it holds one, (2).

    ``values``: what its JSON file holds. Raises ``DataError`` if this is no such document.
    """
    own, other = _verified(values, source), other_space(values, source)
    if other is None:
        return own if values.get(BOTH) is None else replace(own, faults=(*own.faults, f"{BOTH} has no {NAME}"))
    document = parse_meshes(values, source) if values["format"] == MESHES else parse_document(values, source)
    claim = _claim(document.certificate.objective_s, document.certificate.lower_bound_s, other)
    faults = [] if values.get(BOTH) in (None, claim) else [f"{BOTH} is {values[BOTH]}, both documents make it {claim}"]
    if isinstance(other, WithoutPlan):
        claimed = (*own.claimed, f"{NAME}.status")
        return replace(own, faults=(*own.faults, *faults), lower_bound=-math.inf, claimed=claimed)
    second = _verified(values[NAME], f"{source}: {NAME}")
    faults += [*own.faults, *(f"{NAME}: {fault}" for fault in second.faults)]
    if not faults:
        faults += _differing(document, other, source)
        if second.objective < own.objective * (1 - TOLERANCE):
            faults.append(f"{NAME} has a plan of {second.objective!r} s, faster than {own.objective!r} s")
    bound = -math.inf if faults else min(own.lower_bound, second.lower_bound)
    sampled, feasible = own.sampled + second.sampled, own.feasible_samples + second.feasible_samples
    return replace(
        own,
        faults=tuple(faults),
        lower_bound=bound,
        sampled=sampled,
        feasible_samples=feasible,
        narrowed=tuple(dict.fromkeys((*own.narrowed, *second.narrowed))),
        claimed=(*own.claimed, *(f"{NAME}.{name}" for name in second.claimed)),
    )


def _verified(values: dict[str, Any], source: str) -> Verification:
    """Check of one document alone."""
    return verify_meshes(values, source) if values.get("format") == MESHES else verify_document(values, source)


def _differing(one: DocumentFrame, other: DocumentFrame, source: str) -> Iterator[str]:
    """What the two documents are not alike in, (2)."""
    for role in ("model", "cluster", "memory_model", "calibration"):
        pair = [each.inputs[role].sha256 if role in each.inputs else None for each in (one, other)]
        if pair[0] != pair[1]:
            yield f"{NAME}.inputs.{role} is another one than the plan's"
    for name in ("latency_model", "overlap_grad_reduce"):
        if getattr(one.certificate, name) != getattr(other.certificate, name):
            yield f"{NAME}.certificate.{name} is another one than the plan's"
    for name in SAME:
        if one.certificate.space.get(name) != other.certificate.space.get(name):
            yield f"{NAME}.certificate.space.{name} is another one than the plan's"
    tables = [problem_of(each, source).costs for each in (one, other)]
    if tables[0].optimizer_s_per_parameter != tables[1].optimizer_s_per_parameter or any(
        tables[1].by_key[key] != cost for key, cost in tables[0].by_key.items() if key in tables[1].by_key
    ):
        yield f"{NAME}.inputs.costs has other prices than the plan's"
