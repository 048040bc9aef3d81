"""
A plainer plan as a plan of its own, to be shown, verified and exported like any other.

It is a plan of the whole space. Its certificate is the one of the plan that lists it, so its gap says how much faster
the best plan may be; what is proven of its restriction stands where the bound of a method stands.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut.data.suggest import one_of
from taut.errors import DataError
from taut.formulations.latency import step_time
from taut.formulations.plainer import FASTEST, restricted, restriction_of, widened
from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.document import (
    PlainerSection,
    PlanDocument,
    by_replica,
    communication_gap,
    devices_of,
    problem_of,
    status_of,
    strategy_of,
    strategy_values,
)
from taut.solver.certificate.examined import TOLERANCE
from taut.solver.certificate.write import beyond_values, paid, predicted
from taut.solver.result import Incumbent, relative_gap

if TYPE_CHECKING:
    from taut.planning.plan import Plan


def plainer_document(plan: "Plan", name: str) -> dict[str, Any]:
    """The document of a plainer plan that a plan lists, by the name of its restriction."""
    listed = {tie.restriction: tie for tie in plan.plainer}
    if name not in listed:
        expected = one_of(name, [*listed]) if listed else "none, as the plan lists no plainer ones"
        raise DataError(f"{plan.source}: plainer {name!r}: expected {expected}")
    return _document(plan.document, plan.typed, listed[name], plan.source)


def _document(values: Mapping[str, Any], plan: PlanDocument, tie: PlainerSection, source: str) -> dict[str, Any]:
    problem = problem_of(plan, source)
    strategy, devices = widened(strategy_of(tie.strategy, source), problem.candidates), devices_of(tie, source)
    priced = step_time(problem, strategy, devices)
    seconds = float(priced.total)
    entries = [_entry(entry, seconds) for entry in values["certificate"]["candidates"]]
    open_s = [entry["lower_bound_s"] for entry in entries if entry["state"] in ("open", "pruned")]
    bound = max(min([seconds, *open_s]), plan.certificate.lower_bound_no_margin_s or 0.0)
    gap = relative_gap(seconds, bound)
    claim = {
        "objective_s": seconds,
        "lower_bound_s": bound,
        "gap": gap,
        "verified_gap": gap,
        "communication_gap": communication_gap(seconds, paid(priced), bound),
        "candidates": entries,
    }
    incumbent = Incumbent(strategy=strategy, devices=devices, seconds=seconds)
    provenance = {name: value for name, value in values["provenance"].items() if name != "history"}
    return {name: values[name] for name in ("format", "workload", "inputs") if name in values} | {
        "status": str(status_of(gap)),
        "strategy": strategy_values(strategy),
        "placement": {"order": "pp,dp,tp", "devices": by_replica(strategy.candidate, devices).tolist()},
        "predicted": predicted(problem, strategy, incumbent, priced),
        "certificate": values["certificate"] | claim,
        **beyond_values(problem, strategy),
        "provenance": provenance | ({} if tie.restriction == FASTEST else {"method": _method(problem, plan, tie)}),
    }


def _entry(entry: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A candidate's entry beside another plan: its state follows from its bound."""
    bound = entry["lower_bound_s"]
    below = bound is not None and bound < seconds * (1 - TOLERANCE)
    return {**entry, "state": "infeasible" if bound is None else "open" if below else "pruned"}


def _method(problem: PlanningProblem, plan: PlanDocument, tie: PlainerSection) -> dict[str, Any]:
    """What made the plan: the search of the restriction, with its bound on those candidates."""
    restriction = restriction_of(tie.restriction, problem.calibration)
    kept = [] if restriction is None else filter(restriction.keeps, restricted(problem, restriction).candidates)
    return {
        "name": tie.restriction,
        "candidates": len([*kept]),
        "lower_bound_s": tie.lower_bound_s,
        "best_s": plan.certificate.objective_s,
    }
