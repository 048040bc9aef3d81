"""Whether inputs, space and workload of a plan's document are what their digests and the problem say they are."""

from collections.abc import Iterator
from typing import Any

from taut.data.spec import digest
from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.document import DocumentFrame, inputs_of, problem_digest, workload_of


def input_faults(document: DocumentFrame, problem: PlanningProblem) -> list[str]:
    """
    Inputs with another SHA-256, name or form of a value than stated, and a problem with another SHA-256.

    ``problem``: what was read of it.
    """
    sections, stated = document.inputs, document.certificate
    faults = [
        f"inputs.{role} does not have the stated sha256"
        for role, section in sections.items()
        if digest(section.spec) != section.sha256
    ]
    named: dict[str, Any] = {str(role): {"sha256": section.sha256} for role, section in sections.items()}
    overlaps = stated.overlap_grad_reduce
    if problem_digest(named, stated.space, stated.latency_model, overlap_grad_reduce=overlaps) != stated.problem_sha256:
        faults.append("inputs, space, latency model and overlap do not have the stated problem_sha256")
    return faults + list(_forms(document, problem)) + list(_modules(problem))


def _modules(problem: PlanningProblem) -> Iterator[str]:
    """Modules that the space names and the cost table does not have, where it says what its figures are of."""
    space, costs = problem.space, problem.costs
    named = "recompute_modules", "offload_modules"
    said = any(getattr(costs, name) for name in named)
    for name in named:
        stated, priced = set(getattr(space, name)), set(getattr(costs, name))
        if said and stated != priced:
            words = (", ".join(sorted(each)) or "none" for each in (stated, priced))
            yield "certificate.space.{} is {}, inputs.costs has {}".format(name, *words)


def _forms(document: DocumentFrame, problem: PlanningProblem) -> Iterator[str]:
    """Names and figures that are not those of the specs, and values in another form than they are read as."""
    sections = {str(role): section for role, section in document.inputs.items()}
    for role, read in inputs_of(problem).items():
        if sections[role].name != read["name"]:
            yield f"inputs.{role}.name is {sections[role].name!r}, its spec's is {read['name']!r}"
        yield from retyped(f"inputs.{role}.spec", sections[role].spec, read["spec"])
    yield from retyped("certificate.space", document.certificate.space, problem.space.model_dump(mode="json"))
    stated = {} if document.workload is None else document.workload.model_dump()
    for name, value in workload_of(problem).items():
        if stated and stated[name] != value:
            yield f"workload.{name} is {stated[name]!r}, the inputs say {value!r}"


def retyped(path: str, stated: Any, read: Any) -> Iterator[str]:
    """
    Say where a text or a truth value stands for another kind of value.

    ``path``: name of the value for messages; ``read``: the same as it was read, as plain values; defaults may stand
    beside what is stated.
    """
    if isinstance(read, dict) and isinstance(stated, dict):
        for name in stated.keys() & read.keys():
            yield from retyped(f"{path}.{name}", stated[name], read[name])
    elif isinstance(read, list) and isinstance(stated, list) and len(read) == len(stated):
        for index, (a, b) in enumerate(zip(stated, read, strict=True)):
            yield from retyped(f"{path}.{index}", a, b)
    elif isinstance(stated, str | bool) and type(stated) is not type(read):
        yield f"{path} is {stated!r}, expected {read!r}"
