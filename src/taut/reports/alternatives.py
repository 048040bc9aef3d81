"""
Candidates beside a plan's own: their names, the nearest of them, and why each lost.

A candidate's bound b says that nothing in it is faster. Beside the plan's J seconds it lost by at least b / J - 1 where
b >= J, and where b < J it is open: something in it may be faster by up to 1 - b / J.
"""

from typing import TYPE_CHECKING

from taut.formulations.space import Candidate
from taut.solver.result import SOLVED

if TYPE_CHECKING:
    from taut.solver.certificate.document import CandidateSection, PlanDocument

WHY = {
    "balance": "what it computes",
    "relaxation": "its closed-form bound",
    "partition": "its best division of the layers on the fastest links",
    "order-memory": "its order within the memory",
    "order": "its order's weighted paths",
    "every-placement": "every placement of its divisions",
    "node-slots": "its stages in whole nodes",
    "node-sets": "the best nodes of every stage of its divisions",
    "placement": "the best placement of its divisions",
    "cover": "paths over the real links",
    "memory": "memory",
}
"""Sources of bounds in the words of a report."""


def candidate_name(entry: "CandidateSection") -> str:
    """A candidate in one line, as progress and messages name it."""
    known = _candidate(entry)
    return " ".join(f"{name}={value}" for name, value in entry.strategy.items()) if known is None else str(known)


def _candidate(entry: "CandidateSection") -> Candidate | None:
    """The candidate of an entry; None where it has other fields."""
    try:
        return Candidate.from_dict(entry.strategy)
    except TypeError:
        return None


def own_entry(plan: "PlanDocument") -> "CandidateSection | None":
    """The entry of the plan's own candidate, None where the document lacks it."""
    own = plan.strategy.candidate
    return next((entry for entry in plan.certificate.candidates if _candidate(entry) == own), None)


def nearest(plan: "PlanDocument", count: int) -> "list[CandidateSection]":
    """The candidates with the least bounds that are not the plan's own, in the order of their bounds."""
    own = own_entry(plan)
    others = [entry for entry in plan.certificate.candidates if entry is not own and entry.lower_bound_s is not None]
    return sorted(others, key=lambda entry: entry.lower_bound_s or 0.0)[:count]


def why_lost(entry: "CandidateSection", objective: float) -> str:
    """What decides between a candidate and the plan."""
    source, bound = WHY.get(entry.source, entry.source), entry.lower_bound_s
    if bound is None:
        return "does not fit the memory"
    if entry.state == "open":
        return f"open: may be faster by up to {_share(1 - bound / objective)}, {source}" if objective else "open"
    more = bound / objective - 1 if objective else 0.0
    if more <= SOLVED:
        return f"no faster: {source}"
    return f"at least {_share(more)} slower: {source}"


def _share(value: float) -> str:
    """A share in per cent, to a hundredth."""
    return f"{100 * value:.2f} %" if value >= 5e-5 else "less than 0.01 %"
