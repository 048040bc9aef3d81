"""Searches beside the enumerated optimum."""

import json

from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, SearchResult
from taut.solver.search.search import search
from tests.support.oracle import enumerate_all


def check_search(given: PlanningProblem, seed: int) -> tuple[SearchResult, float]:
    """Search; the optimum lies between bound and plan, infinite where none is found, and the certificate holds."""
    best, found = enumerate_all(given).seconds, search(given, Limits())
    if found.incumbent is None:
        assert best == float("inf"), seed
        return found, best
    assert found.incumbent.seconds >= best * (1 - 1e-9), seed
    assert found.lower_bound <= best * (1 + 1e-9), seed
    made = json.loads(json.dumps(plan_document(given, found, Limits())))
    assert verify_document(made).faults == (), seed
    return found, best
