"""
A plan's file before anything of it is used: a file comes from anywhere.

Inputs and space have to be what their digests say, names to be names, and strategy and placement to keep the rules of
the stated problem. Then every word that a launcher reads is one of the words that taut knows, or a number. Whether the
bound holds is another question, which ``taut verify`` answers.
"""

from taut.data.names import with_names
from taut.errors import DataError
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.solver.certificate.document import (
    AnyDocument,
    MeshDocument,
    check_stages,
    devices_of,
    mesh_plan_of,
    problem_of,
)
from taut.solver.certificate.examined import Examined, case_of
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.verify import input_faults


def check_plan(plan: Plan) -> None:
    """
    Refuse a plan that contradicts itself.

    Raises ``DataError`` if an input is not what its digest says, a name is none, or the plan breaks a rule.
    """
    document, source = plan.sections, plan.source
    problem = problem_of(document, source)
    for role in (problem.model, problem.cluster, problem.costs, problem.memory, problem.calibration):
        if role is not None:
            with_names(role, source)
    if faults := input_faults(document, problem) or _rules_broken(document, problem, source):
        raise DataError(f"{source}: {faults[0]}; not exported, as the plan contradicts itself")


def _rules_broken(document: AnyDocument, problem: PlanningProblem, source: str) -> list[str]:
    """What is wrong with strategy and placement, one line each."""
    if isinstance(document, MeshDocument):
        mesh_plan_of(document, problem, source)
        return []
    check_stages(document.strategy, source)
    case = case_of(problem)
    placed = Examined.of_section(case, document.strategy, devices_of(document, source))
    if placed.choice not in candidates(case):
        return [f"strategy {placed.choice} is not a candidate of the stated space"]
    return placed.violations
