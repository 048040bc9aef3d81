r"""
Plainer plans in a plan document, each with the bound of its restriction, checked.

Let :math:`b_w` be the derived bounds of the plan's certificate, C the candidates of a restriction as the reference
enumerates them, and w(c) the candidate of the whole space that has all plans of c. A section ``plainer`` lists bounds
that are larger, each with source and witness; with :math:`b'_c` what the check of these derives in the restricted
problem, minus infinity where none is listed, no plan of the restriction takes less than

.. math:: \min(J', \min_{c \in C} \max(b_{w(c)}, b'_c)). \tag{1}

A section holds if its plan is a plan of the restricted problem by the reference evaluator, in J' seconds, not faster
than the plan; if every listed bound is that of a candidate in C and is derived; if (1) is the bound that is stated; and
if the bound of the plan's own candidate does not exceed J'.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from taut.data.costs import Recompute
from taut.data.stack import Form
from taut.errors import DataError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.document import PlainerSection, check_stages, devices_of
from taut.solver.certificate.examined import Examined, case_of
from taut.solver.certificate.figures import TOLERANCE, Derivation, is_close
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.plainer import candidates_of, divisions_of, is_known, recompute_of, whole
from taut.solver.certificate.reference.space import Choice

NAME = "plainer"


def plainer_faults(
    sections: list[PlainerSection],
    problem: PlanningProblem,
    objective: float,
    derived: Mapping[Choice, float],
    derivation: Derivation,
) -> Iterator[str]:
    """
    What is wrong with the plainer plans of a document.

    ``problem``, ``objective``: the plan's, in seconds; ``derived``: the derived bound of every candidate of the whole
    space, in seconds; ``derivation``: of the problem's bounds.
    """
    names = [section.restriction for section in sections]
    for section in sections:
        path = f"{NAME}.{section.restriction}"
        if names.count(section.restriction) > 1 or not is_known(section.restriction):
            yield f"{path}: unknown, or there several times"
            continue
        try:
            yield from (f"{path}: {fault}" for fault in _faults(section, problem, objective, derived, derivation))
        except DataError as error:
            yield f"{path}: {error}"


def _faults(
    section: PlainerSection,
    problem: PlanningProblem,
    objective: float,
    derived: Mapping[Choice, float],
    derivation: Derivation,
) -> Iterator[str]:
    """Faults of one section, the first that keep it from saying anything alone."""
    given = _restricted(problem, section.restriction)
    if given is not problem:
        derivation = Derivation(given)
    case, seconds = case_of(given), section.step_time_s
    # The candidates of the whole space are those that the certificate was checked to list.
    wanted = candidates_of(derived if given is problem else candidates(case), section.restriction, problem.calibration)
    check_stages(section.strategy, "its plan")
    plan = Examined.of_section(case, section.strategy, devices_of(section, "its plan"))
    if plan.choice not in wanted:
        yield f"strategy {plan.choice} is not a candidate of the restriction"
        return
    if broken := plan.violations:
        yield from broken
        return
    if not is_close(plan.seconds, seconds):
        yield f"step_time_s is {seconds}, the evaluator gives {plan.seconds}"
    if seconds < objective * (1 - TOLERANCE):
        yield f"its plan of {seconds} s is faster than the plan of {objective} s"
    bounds = {choice: derived.get(whole(choice, derived), -math.inf) for choice in wanted}
    listed = {_key(choice.as_dict()): choice for choice in wanted}
    for entry in section.bounds:
        choice = listed.pop(_key(entry.strategy), None)
        if choice is None:
            yield f"a bound is of no candidate of the restriction, or of one that has another: {entry.strategy}"
            continue
        found = derivation.derive(Candidate.of(choice), entry)
        if not is_close(found, math.inf if entry.lower_bound_s is None else entry.lower_bound_s):
            yield f"candidate {choice}: {entry.source} bound is {entry.lower_bound_s}, derived {found}"
        bounds[choice] = max(bounds[choice], found)
    if bounds[plan.choice] > seconds * (1 + TOLERANCE):
        yield f"the bound {bounds[plan.choice]} of its plan's candidate exceeds its {seconds} s"
    least = min(seconds, *bounds.values())
    if not is_close(least, section.lower_bound_s):
        yield f"lower_bound_s is {section.lower_bound_s}, derived {least}"


def _restricted(problem: PlanningProblem, name: str) -> PlanningProblem:
    """The problem with the divisions and recompute of a restriction; itself where these are its own."""
    case = case_of(problem)
    # The reference side reads plain values, so that its forms are text; they are ones of the space or its own two.
    left = cast("list[Form]", divisions_of(case, name))
    kinds = cast("list[Recompute]", recompute_of(case, name))
    if left == problem.space.divisions and kinds == problem.space.recompute:
        return problem
    return replace(problem, space=problem.space.model_copy(update={"divisions": left, "recompute": kinds}))


def _key(strategy: Mapping[str, Any]) -> tuple[tuple[str, str, Any], ...]:
    """Fields in order, each with its type: true is not 1."""
    return tuple(
        (name, type(value).__name__, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(strategy.items())
    )
