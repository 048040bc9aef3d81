"""Refinements of order-priced candidates: those with too many options to branch on, once a better plan is known."""

import json
from dataclasses import replace

import pytest

import taut
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import CandidateBound, Incumbent, Limits, Source
from taut.solver.search.order_refinement import OrderRefining
from taut.solver.search.search import search
from taut.solver.search.standing import DIVES, Best, Priority, Stage, Standing, turn
from tests.solver.order_priced.test_bound import random_orders
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, model, problem

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def few_options(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let devices have so many options at most, and bounds have a limit far above the divisions that they know."""
    monkeypatch.setattr("taut.solver.order_priced.device_options.MOST_OPTIONS", 0)
    monkeypatch.setattr("taut.solver.order_priced.device_options.MOST_WITHIN", most)
    monkeypatch.setattr("taut.solver.order_priced.bound.SLACK", 3.0)


def test_a_tree_with_a_quicker_division_goes_before_others() -> None:
    """Eleven layers in four chunks on two devices: for some branchings, while its division is quicker than the plan."""
    given = problem(
        cluster(2, 1), model(11), latency_model="step", schedules=["interleaved-1f1b"], max_vpp=2, recompute=["none"],
        fixed={"pp": 2, "vpp": 2, "micro_batch": 1},
    )  # fmt: skip
    (candidate,) = given.candidates
    optimum = enumerate_candidate(given, candidate)
    assert optimum.strategy is not None and optimum.devices is not None
    known = Incumbent(strategy=optimum.strategy, devices=optimum.devices, seconds=1.9 * optimum.seconds)
    best = Best(given, known)
    refining = OrderRefining(given, Limits(gap=0.0), best, Ladder(given))
    at = Standing(refining.divide, by_order=True, stage=Stage.BRANCH)
    bound = CandidateBound(candidate=candidate, lower_bound=0.0, source=Source.RELAXATION)
    refining.divide(bound, at)
    assert at.branching is not None
    least, best.incumbent = at.branching.incumbent[0], known
    assert turn(bound, at, best.seconds) == (Priority.DIVIDED, least)
    assert turn(bound, at, least) == (Priority.BRANCHING, bound.lower_bound)
    refining.branch(bound, at)
    assert at.dives == DIVES - 1
    at.dives = 0
    assert turn(bound, at, best.seconds)[0] is Priority.BRANCHING


def test_a_better_plan_lets_a_candidate_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Eleven layers on a V of two devices.

    Up to 1.9 times the optimum a device has the C(9, 2) = 36 pairs of up to nine layers, close to it those of up to six
    layers, C(6, 2) = 15. With room for 15 the candidate waits until the limit is that low, and then branches.
    """
    few_options(monkeypatch, 15)
    given = problem(cluster(2, 1), model(11), latency_model="step", schedules=["v-half"], fixed={"pp": 2})
    candidate = max(given.candidates, key=lambda c: c.num_micro_batches)
    optimum = enumerate_candidate(given, candidate)
    assert optimum.strategy is not None and optimum.devices is not None
    best = Best(given, Incumbent(strategy=optimum.strategy, devices=optimum.devices, seconds=1.9 * optimum.seconds))
    known = best.incumbent
    assert known is not None
    refining = OrderRefining(given, Limits(gap=0.0), best, Ladder(given))
    at = Standing(refining.divide, by_order=True)
    bound = CandidateBound(candidate=candidate, lower_bound=0.0, source=Source.RELAXATION)
    assert refining.divide(bound, at)
    before = bound.lower_bound
    assert at.branching is None and at.unbranched == known.seconds

    best.incumbent = known
    assert not refining.has_lower_limit(at) and not refining.branch(bound, at)
    assert at.branching is None and at.unbranched == known.seconds

    best.incumbent = replace(known, seconds=1.001 * optimum.seconds)
    assert refining.has_lower_limit(at) and refining.branch(bound, at)
    assert at.branching is not None and at.unbranched is None
    for _ in range(20):
        refining.branch(bound, at)
    assert before < bound.lower_bound <= optimum.seconds * TOLERANCE


def test_candidates_wait_for_a_better_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some candidates are bounded anew; the bound is below the plan of another search, and its certificate holds."""
    given, limits = random_orders(601, ["zb-h1", "zb-v", "v-half", "interleaved-1f1b"]), Limits(workers=1)
    other = search(given, limits)
    few_options(monkeypatch, 2)
    waited, has_lower_limit = list[bool](), OrderRefining.has_lower_limit

    def noted(refining: OrderRefining, at: Standing) -> bool:
        waited.append(has_lower_limit(refining, at))
        return waited[-1]

    monkeypatch.setattr(OrderRefining, "has_lower_limit", noted)
    result = search(given, limits)
    assert True in waited and False in waited
    assert result.incumbent is not None and other.incumbent is not None
    assert (
        max(result.lower_bound, other.lower_bound) <= min(result.incumbent.seconds, other.incumbent.seconds) * TOLERANCE
    )
    assert verify_document(json.loads(json.dumps(plan_document(given, result, limits)))).faults == ()


def test_a_division_that_trees_find_early_is_placed() -> None:
    """Two nodes have cases of their own, whose trees find the division of the best plan before the first refinement."""
    fixed: dict[str, int | str] = {"pp": 2, "tp": 1, "vpp": 8, "micro_batch": 1, "zero": 1, "recompute": "none"}
    plan = taut.plan("llama3-8b", "dgx-h100:2", global_batch=64, fix=fixed, work_limit=1_000, time_limit=None)
    assert plan.gap is not None and plan.gap < 1e-3


def test_a_division_that_a_tree_ends_with_is_placed_as_it_is() -> None:
    """The best division where every stage fills a node makes 15 hops between nodes: at the best links others win."""
    fixed: dict[str, int | str] = {
        **{"pp": 16, "tp": 4, "vpp": 2, "micro_batch": 2, "zero": 1, "recompute": "none"},
        "sequence_parallel": True,
    }
    plan = taut.plan("opt-30b", "pipette-high-end", global_batch=128, fix=fixed, work_limit=100, time_limit=None)
    assert plan.gap is not None and plan.gap < 1e-3
