"""Why a search ended with a gap, and what would close the gap, in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut.solver.result import StoppedBy
from taut.words import percent

if TYPE_CHECKING:
    from taut.solver.certificate.document import AnyDocument

NOTHING_LEFT = "the search stopped: nothing was left to refine, more time would change nothing"


def why_stopped(plan: "AnyDocument") -> str:
    """Why the search of a plan ended with a gap; nothing where the gap is another method's, or closed."""
    named = _named(plan)
    if plan.status == "optimal" or ("method" in plan.provenance and named in (StoppedBy.GAP, StoppedBy.EXHAUSTED)):
        # The search that bounds another method's plan ended by itself; the gap is that plan's.
        return ""
    limits, spent = _figures(plan.provenance.get("limits")), _figures(plan.provenance)
    if named == StoppedBy.GAP:
        asked = f", as asked (--gap {limits['gap']:g})" if "gap" in limits else ""
        return f"stopped at a gap of {percent(plan.certificate.gap)}{asked}"
    if named == StoppedBy.TIME:
        seconds = limits.get("time_s", spent.get("wall_s"))
        return "stopped by the time limit" if seconds is None else f"stopped after {seconds:.3g} s of search"
    if named == StoppedBy.WORK:
        # The numbers of nodes of an objective are searched in turns, which no user limits.
        return f"stopped after {spent.get('work', limits['work']):g} refinements" if "work" in limits else ""
    if named == StoppedBy.INTERRUPT:
        return "stopped by an interrupt"
    return NOTHING_LEFT


def goes_on(plan: "AnyDocument") -> str:
    """What would close the gap that a search left; nothing where no refinement is left."""
    words = {
        StoppedBy.GAP: "--gap 0 goes on",
        StoppedBy.TIME: "--time-limit none goes on",
        StoppedBy.WORK: "a larger --work-limit goes on",
        StoppedBy.INTERRUPT: "a run to its end goes on",
    }
    return next((said for reason, said in words.items() if reason == _named(plan)), "")


def is_within(plan: "AnyDocument") -> bool:
    """Whether the search stopped at the gap that was asked for, larger than that of an optimal plan."""
    return plan.status != "optimal" and "method" not in plan.provenance and _named(plan) == StoppedBy.GAP


def _named(plan: "AnyDocument") -> str:
    """Why the search stopped, as the document states it; plans of older versions leave out that nothing was left."""
    named = plan.provenance.get("stopped_by")
    return named if isinstance(named, str) else StoppedBy.EXHAUSTED


def _figures(values: object) -> dict[str, float]:
    """The numbers of a section that no check has looked at."""
    given: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
    return {name: each for name, each in given.items() if isinstance(each, int | float) and not isinstance(each, bool)}
