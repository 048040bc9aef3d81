r"""
The bound over numbers of nodes in a plan document, derived again.

A plan on k* of K equal nodes was chosen for its value v, seconds a step, dollars or GPUs, among plans in time. With
LB(k) a lower bound on the step time of every plan on k nodes, infinite where there is none, S steps and q dollars an
hour of a GPU, and n GPUs on k nodes,

(1) a plan of t seconds a step takes :math:`S t / 86400` days and costs :math:`q n S t / 3600` dollars;
(2) w(k) is the value that LB(k) has, infinite where LB(k) is past the deadline, and no plan in time on 1 to K nodes
    has a value below :math:`\min(v, \min_k w(k))`.

For k* the bound is the plan's own. For every other k the section ``node_counts`` holds the problem's inputs, each of
them once by its SHA-256, its space, and the bound of every candidate with its source and witness; LB(k) is the least of
them. A k that was not searched has 0. One without candidates is checked by enumerating those of the plan's space there.
Model, nodes, network and space have to be the plan's; cost table, calibration and memory model may differ, since a
stack may have others for one node than for many, and those that do are named.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from taut.data.cluster import ClusterSpec
from taut.data.spec import digest, first_complaint
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.document import CandidateSection, InputSection, PlanDocument, Section, problem_of
from taut.solver.certificate.examined import case_of, is_close, is_close_or_small
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import relative_gap

NAME = "node_counts"
ROUNDING = 1e-12
"""Days are sums of floats: so much over the deadline is in time."""
Positive = Annotated[float, Field(gt=0)]


class CountSection(Section):
    """One number of nodes: bound, null where there is no plan; problem and candidates, where it has its own."""

    nodes: int
    lower_bound_s: float | None
    inputs: dict[Literal["model", "cluster", "costs", "memory_model", "calibration"], str] | None = None
    space: dict[str, Any] | None = None
    candidates: list[CandidateSection] = []

    @property
    def seconds(self) -> float:
        """The bound, infinite where there is no plan."""
        return math.inf if self.lower_bound_s is None else self.lower_bound_s


class NodeCountsSection(Section):
    """What was asked, the value and its bound, and every number of nodes."""

    objective: Literal["time", "cost", "gpus"]
    steps: int | None
    price: Positive | None
    deadline_days: Positive | None
    value: float
    lower_bound: float
    gap: float | None
    inputs: dict[str, InputSection]
    counts: list[CountSection]

    def value_of(self, gpus: int, seconds: float) -> float:
        """What is to be small, (1); infinite past the deadline."""
        days = (self.steps or 0) * seconds / 86_400
        if math.isinf(seconds) or (self.deadline_days is not None and days > self.deadline_days * (1 + ROUNDING)):
            return math.inf
        if self.objective == "cost":
            return (self.price or 0.0) * gpus * (self.steps or 0) * seconds / 3600
        return float(gpus) if self.objective == "gpus" else seconds


@dataclass(frozen=True, slots=True)
class OverNodes:
    """What was derived of numbers of nodes: value, bound (2), how many, and inputs that are not the plan's on some."""

    value: float
    lower_bound: float
    counts: int
    differing: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def gap(self) -> float | None:
        """Gap of the derived bound."""
        return relative_gap(self.value, self.lower_bound)


def check_node_counts(
    values: object, document: PlanDocument, problem: PlanningProblem, lower_bound: float
) -> OverNodes | None:
    """Derive the bound over numbers of nodes again, (2), with the checked plan's; None where none is stated."""
    if not isinstance(values, Mapping) or NAME not in values:
        return None
    try:
        section = NodeCountsSection.model_validate(values[NAME])
    except ValidationError as error:
        return OverNodes(math.nan, -math.inf, 0, (), (f"{NAME}: {first_complaint(error)}",))
    return _Check(section, document, problem, lower_bound).run()


@dataclass(frozen=True)
class _Check:
    section: NodeCountsSection
    document: PlanDocument
    problem: PlanningProblem
    lower_bound: float

    def run(self) -> OverNodes:
        section, nodes = self.section, self.problem.cluster.num_nodes
        faults = list(self._forms())
        if faults:
            return OverNodes(section.value, -math.inf, len(section.counts), (), tuple(faults))
        per_node = self.problem.cluster.num_devices // nodes
        value = section.value_of(per_node * nodes, self.document.certificate.objective_s)
        bound, differing = value, set[str]()
        for count in section.counts:
            derived, wrong, others = self._derived(count)
            faults += wrong
            differing |= others
            if not wrong and not is_close(derived, count.seconds):
                faults.append(f"{NAME}: {count.nodes} nodes: bound is {count.lower_bound_s}, derived {derived}")
            bound = min(bound, section.value_of(per_node * count.nodes, derived))
        figures = {"value": value, "lower_bound": bound, "gap": relative_gap(value, bound)}
        for name, figure in figures.items():
            if not is_close_or_small(figure, getattr(section, name), value):
                faults.append(f"{NAME}.{name} is {getattr(section, name)}, derived {figure}")
        return OverNodes(value, bound, len(section.counts), tuple(sorted(differing)), tuple(faults))

    def _forms(self) -> Iterator[str]:
        """What keeps the section from saying anything."""
        section, cluster = self.section, self.problem.cluster
        if [count.nodes for count in section.counts] != list(range(1, len(section.counts) + 1)):
            yield f"{NAME}: expected 1, 2, 3, ... nodes"
        if len(cluster.nodes) != 1 or cluster.num_nodes > len(section.counts):
            yield f"{NAME}: the plan is on none of these numbers of nodes of one kind"
        if section.steps is None and (section.objective == "cost" or section.deadline_days is not None):
            yield f"{NAME}.steps: missing, expected steps with a cost or a deadline"
        if (section.objective == "cost" and section.price is None) or (section.steps or 1) < 1:
            yield f"{NAME}: expected a price with a cost, and steps above 0"
        for sha256, stated in section.inputs.items():
            try:
                is_stated = digest(stated.spec) == sha256
            except ValueError:
                # A number that JSON has no words for has no digest.
                is_stated = False
            if not is_stated:
                yield f"{NAME}.inputs: {stated.name} does not have the stated sha256"

    def _derived(self, count: CountSection) -> tuple[float, list[str], set[str]]:
        """LB of a number of nodes, what is wrong with its entry, and inputs that are not the plan's."""
        name = f"{NAME}: {count.nodes} nodes"
        if count.nodes == self.problem.cluster.num_nodes:
            return self.lower_bound, [], set()
        if count.inputs is None or count.space is None:
            if count.lower_bound_s is not None:
                return 0.0, [], set()
            found = candidates(case_of(replace(self.problem, cluster=self._part(count.nodes))))
            return math.inf, [f"{name}: has {len(found)} candidates and no bound"] if found else [], set()
        if missing := set(count.inputs.values()) - self.section.inputs.keys():
            return 0.0, [f"{name}: input {min(missing)} is missing"], set()
        inputs = {role: self.section.inputs[sha256] for role, sha256 in count.inputs.items()}
        certificate = self.document.certificate.model_copy(update={"space": count.space})
        posed = problem_of(self.document.model_copy(update={"inputs": inputs, "certificate": certificate}), name)
        if wrong := self._other(count.nodes, posed):
            return 0.0, [f"{name}: {wrong} is not the plan's"], set()
        stated = {role: section.sha256 for role, section in self.document.inputs.items()}
        differing = {
            str(role) for role in {*inputs, *stated} - {"cluster"} if count.inputs.get(role) != stated.get(role)
        }
        return (*self._least(posed, count, name), differing)

    def _other(self, nodes: int, posed: PlanningProblem) -> str:
        """What a number of nodes must have in common with the plan and has not; empty if nothing."""
        if posed.model != self.problem.model:
            return "model"
        if posed.cluster.model_copy(update={"name": ""}) != self._part(nodes).model_copy(update={"name": ""}):
            return "cluster"
        spaces = [each.space.model_copy(update={"orders": []}) for each in (posed, self.problem)]
        return "space" if spaces[0] != spaces[1] else ""

    def _part(self, nodes: int) -> ClusterSpec:
        """So many nodes of the plan's cluster."""
        group = self.problem.cluster.nodes[0].model_copy(update={"count": nodes})
        return self.problem.cluster.model_copy(update={"nodes": [group]})

    def _least(self, posed: PlanningProblem, count: CountSection, name: str) -> tuple[float, list[str]]:
        """The least bound of the candidates, each derived by its source and witness."""
        wanted, ladder = candidates(case_of(posed)), Ladder(posed)
        if [entry.strategy for entry in count.candidates] != [each.as_dict() for each in wanted]:
            return 0.0, [f"{name}: the {len(count.candidates)} candidates are not the {len(wanted)} of the space"]
        least = math.inf
        for choice, entry in zip(wanted, count.candidates, strict=True):
            least = min(least, derived_bound(ladder, Candidate.of(choice), entry.source, entry.witness))
        return least, []
