"""Writing the bound over numbers of nodes into a plan document (``taut.solver.certificate.node_counts``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.closeness import finite
from taut.solver.certificate.document import inputs_of
from taut.solver.certificate.node_counts import NodeCountsSection
from taut.solver.certificate.write import candidate_values
from taut.solver.result import SearchResult, relative_gap


@dataclass(frozen=True, slots=True)
class Searched:
    """A number of nodes with its problem and the search that bounded it; ``bound`` alone where there is none."""

    nodes: int
    bound: float
    problem: PlanningProblem | None = None
    result: SearchResult | None = None


def node_counts_section(
    asked: Mapping[str, Any], document: Mapping[str, Any], chosen: int, searched: Sequence[Searched]
) -> dict[str, Any]:
    """
    The section of a plan document.

    ``asked``: ``objective``, ``steps``, ``price`` and ``deadline_days``; ``chosen``: its number of nodes; ``searched``:
    every number of nodes, ascending.
    """
    own = document["certificate"]["lower_bound_s"] or 0.0
    inputs: dict[str, Any] = {}
    counts = [_count(each, inputs, own if each.nodes == chosen else None) for each in searched]
    section = {**asked, "value": 0.0, "lower_bound": 0.0, "gap": None, "inputs": inputs, "counts": counts}
    typed = NodeCountsSection.model_validate(section)
    per_node = document["workload"]["num_devices"] // chosen
    value = typed.value_of(per_node * chosen, document["certificate"]["objective_s"])
    bound = min(value, *(typed.value_of(per_node * each.nodes, each.seconds) for each in typed.counts))
    return section | {"value": value, "lower_bound": bound, "gap": relative_gap(value, bound)}


def _count(each: Searched, inputs: dict[str, Any], own: float | None) -> dict[str, Any]:
    if own is not None or each.problem is None or each.result is None:
        return {"nodes": each.nodes, "lower_bound_s": finite(each.bound if own is None else own)}
    problem = each.problem.with_orders(each.result.orders)
    stated = inputs_of(problem)
    inputs |= {section["sha256"]: section for section in stated.values()}
    return {
        "nodes": each.nodes,
        "lower_bound_s": finite(min(bound.lower_bound for bound in each.result.bounds)),
        "inputs": {role: section["sha256"] for role, section in stated.items()},
        "space": problem.space.model_dump(mode="json"),
        "candidates": [candidate_values(bound) for bound in each.result.bounds],
    }
