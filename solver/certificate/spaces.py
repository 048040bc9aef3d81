r"""
The bound of two spaces together: plans of one degree for all stages, and plans of meshes.

(1) The better plan's document holds the document of the other space's best plan as ``other_space``. With the bounds L
    and L' of the two, no plan of either space takes less than :math:`\min(L, L')`, which ``both_spaces`` states with
    the gap and the status that follow. Where the other space has no plan that fits, or none was found in time,
    ``other_space`` states that, and a bound; neither has a proof, so that a check derives no bound of the two.
(2) A check of both documents proves (1) if they are about the same problem: model, cluster, memory model, calibration,
    batch and what is fixed are the same, and every cost that both tables have is equal.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import ValidationError

from taut.data.spec import first_complaint
from taut.errors import DataError
from taut.solver.certificate.document import FORMAT, MESHES, PRICES, AnyDocument, Section, parse_plan, problem_of
from taut.solver.certificate.figures import status_of
from taut.solver.result import Status, relative_gap

NAME, BOTH = "other_space", "both_spaces"
SAME = ("global_batch", "stack", "recompute", "recompute_modules", "fixed")
"""Fields of the space that both searches have alike."""


class WithoutPlan(Section):
    """What is known of a space without a plan."""

    status: Literal["infeasible", "unknown"]
    lower_bound_s: float | None = None


OtherSpace = AnyDocument | WithoutPlan | None


def other_space(values: Mapping[str, Any], source: str) -> OtherSpace:
    """
    Read what a document says of the other space; None where one space alone was searched.

    Raises ``DataError`` if it is neither a plan's document nor a state.
    """
    stated, where = values.get(NAME), f"{source}: {NAME}"
    if stated is None:
        return None
    if isinstance(stated, dict) and stated.get("format") in (FORMAT, MESHES):
        if stated["format"] == values.get("format"):
            raise DataError(f"{where}: format: is {stated['format']}, expected that of the other space")
        return parse_plan(stated, where)
    try:
        return WithoutPlan.model_validate(stated)
    except ValidationError as error:
        raise DataError(f"{where}: {first_complaint(error)}, expected a plan, or a status without one") from None


def bound_of_both(own: float | None, other: OtherSpace) -> float | None:
    """The least of both bounds, (1); None where one of them is unknown."""
    if other is None or other.status == "infeasible":
        return own
    bound = other.lower_bound_s if isinstance(other, WithoutPlan) else other.certificate.lower_bound_s
    return None if own is None or bound is None else min(own, bound)


def gap_of_both(objective: float, own: float | None, other: OtherSpace) -> float | None:
    """Relative gap of a plan to the bound of both spaces; None where that is unknown."""
    bound = bound_of_both(own, other)
    return None if bound is None else relative_gap(objective, bound)


def status_of_both(objective: float, own: float | None, other: OtherSpace) -> Status:
    """What the gap to the bound of both makes of the plan, (1)."""
    return status_of(gap_of_both(objective, own, other))


def claim_of_both(document: AnyDocument, other: OtherSpace) -> dict[str, Any]:
    """Status, bound and gap of both spaces, (1)."""
    objective, own = document.certificate.objective_s, document.certificate.lower_bound_s
    return {
        "status": str(status_of_both(objective, own, other)),
        "lower_bound_s": bound_of_both(own, other),
        "gap": gap_of_both(objective, own, other),
    }


def with_other_space(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's document that holds what is known of the other space, and the claim about both, (1)."""
    found = {**values, NAME: other}
    return {**found, BOTH: claim_of_both(parse_plan(values, "a plan"), other_space(found, "a plan"))}


def differing_spaces(one: AnyDocument, other: AnyDocument, source: str) -> Iterator[str]:
    """What the two documents are not alike in, (2)."""
    for role in ("model", "cluster", "memory_model", "calibration"):
        pair = [
            {str(name): each.sha256 for name, each in document.inputs.items()}.get(role) for document in (one, other)
        ]
        if pair[0] != pair[1]:
            yield f"{NAME}.inputs.{role} is another one than the plan's"
    for name in PRICES:
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
