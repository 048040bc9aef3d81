"""What the memory margin costs at most: a bound as if there were none."""

from dataclasses import replace

import pytest

from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.margin_free import bound_without_margin
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9
ORDERS = ["zb-h1", "zb-v", "v-min", "interleaved-1f1b"]


def with_margin(given: PlanningProblem, margin: float) -> PlanningProblem:
    """The problem with another share of the memory kept free."""
    return replace(given, memory=given.memory.model_copy(update={"margin": margin}))


def instance(kind: str, seed: int) -> PlanningProblem:
    """A random problem: links by node, or measured by device, or schedules that are priced by their order."""
    return random_orders(seed, ORDERS) if kind == "orders" else random_problem(seed, measured=kind == "measured")


@pytest.mark.parametrize("kind", ["nodes", "measured", "orders"])
def test_margin_does_not_matter(kind: str) -> None:
    """With three tenths of the memory kept free the bound is that of the problem without a margin."""
    for seed in range(12):
        given = instance(kind, seed)
        free = bound_without_margin(with_margin(given, 0.0))
        assert bound_without_margin(with_margin(given, 0.3)) == free, seed


def test_no_plan_without_a_margin_is_faster() -> None:
    """The bound is at most the enumerated optimum where the margin is dropped."""
    for seed in range(12):
        given = random_problem(seed)
        assert bound_without_margin(given) <= enumerate_all(with_margin(given, 0.0)).seconds * TOLERANCE, seed
