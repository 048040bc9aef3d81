"""
Bound ``node-slots``: states of slots against enumeration, the bound against the optimum, and AMP's settings.

Cases of bound ``node-slots`` with whole hops: hand-computed values, enumeration, and AMP's unlike layers.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice, product

import numpy as np
import pytest

import taut
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS, LatencyName
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.placement.exact import node_slots
from taut.solver.placement.exact.joint import Kept
from taut.solver.placement.exact.node_slots import (
    has_node_slots,
    least_wait,
    most_hops,
    slot_positions,
    slot_states,
    solve_by_slots,
)
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.support.alike import alike_problem
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate

TOLERANCE = 1 + 1e-9


def test_states_of_two_nodes_are_those_counted_by_hand() -> None:
    """Two alike nodes of two slots, two stages of two blocks: both on one node or one on each."""
    found = slot_states(np.array([2, 2]), np.array([0, 0]), 2, 2)
    assert found is not None
    assert found.vectors.tolist() == [[0, 2], [1, 1], [2, 0]]
    # Stage 0 on one node, whichever, leaves the other whole; on both it leaves one slot of each.
    assert found.first.tolist() == [0, 2, 4]
    assert found.begin.tolist() == [0, 1, 2, 3, 4]
    assert found.following.tolist()[:2] == [0, 1]


def test_different_nodes_do_not_change_places() -> None:
    """As many ways through the states as there are assignments of blocks to the slots of different nodes."""
    slots, pp, dp = np.array([2, 1, 3]), 3, 2
    found = slot_states(slots, np.arange(3), pp, dp)
    assert found is not None
    ways = np.zeros(len(found.vector) + 1, np.int64)
    for x in range(pp - 1, -1, -1):
        for state in range(found.first[x], found.first[x + 1]):
            after = found.following[found.begin[state] : found.begin[state + 1]]
            ways[state] = 1 if x == pp - 1 else ways[found.first[x + 1] + after].sum()
    vectors = [u for u in product(range(3), range(2), range(4)) if sum(u) == dp]
    wanted = sum(1 for chosen in product(vectors, repeat=pp) if (np.sum(chosen, axis=0) == slots).all())
    assert ways[: found.first[1]].sum() == wanted


def test_too_many_states_are_not_listed() -> None:
    """Forty nodes of eight slots have more totals than are listed."""
    assert slot_states(np.full(40, 8), np.zeros(40, np.int64), 8, 40) is None


def test_positions_use_every_slot_once_and_stay_on_nodes() -> None:
    """Two stages on each of two nodes: replicas stay where they are, and each node is used as often as it has slots."""
    vectors = np.array([[1, 1], [1, 1], [0, 2]])
    positions = slot_positions(vectors, np.array([2, 4]), np.array([0, 1])).reshape(2, 3)
    assert sorted(positions.ravel().tolist()) == [0, 0, 1, 1, 1, 1]
    assert positions[:, 0].tolist() == positions[:, 1].tolist()


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_bound_is_at_most_the_optimum_and_exact_for_one_pipeline(block: int) -> None:
    """
    A hundred candidates a block under every latency model, infeasible ones included.

    For one pipeline it is the optimum where stage 0 alone is waited for and optimizers take as long on every type.
    """
    checked, exact, infeasible, seed = 0, 0, 0, 50_000 * (block + 1)
    while checked < 100:
        seed += 1
        given = replace(random_problem(seed, large=seed % 7 == 0), latency_model=[*LATENCY_MODELS][seed % 4])
        kept, best = Kept(), BestLinks(given.links, given.rings)
        chosen = [each for each in given.candidates if has_node_slots(given, each, kept)]
        for choice in np.random.default_rng(seed).permutation(len(chosen))[:4].tolist():
            candidate = chosen[choice]
            optimum = enumerate_candidate(given, candidate).seconds
            found = solve_by_slots(given, candidate, best, kept).lower_bound
            assert found <= optimum * TOLERANCE, (seed, candidate)
            checked, infeasible = checked + 1, infeasible + (not np.isfinite(optimum))
            closed = given.latency_model != "step" and np.ptp(optimizer_seconds(given, candidate)) == 0.0
            if candidate.dp == 1 and closed and not candidate.uniform_recompute:
                assert found == pytest.approx(optimum, rel=1e-9), (seed, candidate)
                exact += 1
    assert exact >= 5 and infeasible >= 1


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_exchange_of_a_tied_embedding_is_bounded_by_its_holders(block: int) -> None:
    """
    Sixty candidates a block in ``step`` with a tied embedding: no bound is above the optimum.

    It is at least what it is without cases, and above it where the holders cannot all share a node.
    """
    checked, raised, seed = 0, 0, 70_000 * (block + 1)
    while checked < 60:
        seed += 1
        given = random_problem(seed, large=seed % 3 == 0)
        if not given.model.tied_embedding:
            continue
        # Of a larger vocabulary the exchange takes long, where it fits.
        model = given.model.model_copy(update={"vocab": (64, 1024)[seed % 2]})
        given = replace(given, model=model, latency_model="step", overlap_grad_reduce=seed % 4 == 1)
        kept, best = Kept(), BestLinks(given.links, given.rings)
        chosen = [each for each in given.candidates if each.pp > 1 and has_node_slots(given, each, kept)]
        for choice in np.random.default_rng(seed).permutation(len(chosen))[:4].tolist():
            candidate = chosen[choice]
            found = solve_by_slots(given, candidate, best, kept).lower_bound
            assert found <= enumerate_candidate(given, candidate).seconds * TOLERANCE, (seed, candidate)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(node_slots, "tied_cases", lambda *given: iter([(given[2], given[3])]))
                plain = solve_by_slots(given, candidate, best, kept).lower_bound
            assert found >= plain * (1 - 1e-12), (seed, candidate)
            checked, raised = checked + 1, raised + (found > plain * (1 + 1e-9))
    assert raised >= 1


def test_least_exchange_counts_holders_that_have_no_partner_on_their_node() -> None:
    """Nodes that exchange in 1 s inside and 9 between: 2 and 0 holders have partners at 1 and 1, one of them apart."""
    seconds = np.array([[1.0, 9.0], [9.0, 1.0]])
    assert least_wait(seconds, np.array([2, 0]), np.array([2, 0])) == 1.0
    assert least_wait(seconds, np.array([2, 0]), np.array([1, 1])) == 9.0
    assert least_wait(np.array([[1.0, 9.0], [9.0, 4.0]]), np.array([1, 1]), np.array([1, 1])) == 4.0


@pytest.mark.proof
@pytest.mark.parametrize("latency_model", ["amp", "step"])
def test_alike_nodes_may_change_places(latency_model: LatencyName, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every node a class of its own the bound is the same."""
    fix = {"pp": 8, "tp": 1, "zero": 0, "micro_batch": 1}
    given = planning_problem(
        PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, latency_model=latency_model, fix=fix)
    )
    candidate, best = given.candidates[0], BestLinks(given.links, given.rings)
    together = solve_by_slots(given, candidate, best, Kept()).lower_bound
    monkeypatch.setattr(node_slots, "interchangeable", lambda links, types: np.arange(links.num_nodes))
    assert solve_by_slots(given, candidate, best, Kept()).lower_bound == pytest.approx(together, rel=1e-12)


@pytest.mark.proof
@pytest.mark.parametrize("cluster", ["amp-homogeneous", "amp-heterogeneous"])
def test_amps_clusters_are_solved(cluster: str) -> None:
    """The best plan of AMP's two clusters is proven optimal under its latency model, and the checker derives it."""
    given = planning_problem(PlanRequest("gpt2-345m", cluster, global_batch=32, latency_model="amp"))
    limits = Limits(workers=1)
    result = search(given, limits)
    assert result.status is Status.OPTIMAL
    outcome = verify_document(json.loads(json.dumps(plan_document(given, result, limits))))
    assert outcome.holds and outcome.gap is not None and outcome.gap <= 1e-6


def test_hops_of_four_pipelines_are_those_counted_by_hand() -> None:
    """All leave at the first cut, two of four at the second: one of them pays both, and the mean says half of it."""
    assert most_hops((4, 2, 0), [1.0, 3.0, 9.0], 4) == 4.0
    # Three of four at two cuts are six in all, so some pipeline leaves at both.
    assert most_hops((3, 3), [1.0, 2.0], 4) == 3.0
    # Of one and one nobody has to leave twice, so the dearer hop alone is sure.
    assert most_hops((1, 1), [1.0, 2.0], 4) == 2.0
    assert most_hops((0, 0), [1.0, 2.0], 4) == 0.0


def test_no_way_to_leave_takes_less_than_said() -> None:
    """Of two to four pipelines at one to three cuts, every way to say which leave where, for random seconds."""
    rng, attained = np.random.default_rng(5), 0
    for dp, cuts in product((2, 3, 4), (1, 2, 3)):
        for left in product(range(dp + 1), repeat=cuts):
            more = rng.uniform(0.1, 2.0, cuts).tolist()
            ways = product(*(combinations(range(dp), number) for number in left))
            least = min(_slowest(way, more, dp) for way in ways)
            found = most_hops(left, more, dp)
            assert found <= least * (1 + 1e-12)
            attained += found >= least * (1 - 1e-12)
    assert attained > 150


def _slowest(way: tuple[tuple[int, ...], ...], more: list[float], dp: int) -> float:
    return max(sum(each for each, leave in zip(more, way, strict=True) if z in leave) for z in range(dp))


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_by_whole_hops_is_above_the_optimum(block: int) -> None:
    """A hundred candidates a block on alike nodes by AMP's model; each bound is that without the cases, or more."""
    raised, exact = 0, 0
    for given, candidate, seed in islice(_candidates(block), 100):
        optimum = enumerate_candidate(given, candidate).seconds
        found = solve_by_slots(given, candidate, BestLinks(given.links, given.rings), Kept()).lower_bound
        assert found <= optimum * (1 + 1e-9), (seed, candidate)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_slots, "hop_cases", lambda *given: iter(()))
            plain = solve_by_slots(given, candidate, BestLinks(given.links, given.rings), Kept()).lower_bound
        assert found >= plain * (1 - 1e-12), (seed, candidate)
        raised += np.isfinite(plain) and found > plain * (1 + 1e-9)
        exact += np.isfinite(optimum) and found >= optimum * (1 - 1e-9)
    assert raised >= 1 and exact >= 50


def _candidates(block: int) -> Iterator[tuple[PlanningProblem, Candidate, int]]:
    """Candidates of several stages and replicas of random problems on alike nodes."""
    seed = 60_000 * (block + 1)
    while True:
        seed += 1
        given = alike_problem(seed)
        for candidate in given.candidates:
            if candidate.pp > 1 and candidate.dp > 1 and has_node_slots(given, candidate, Kept()):
                yield given, candidate, seed


@pytest.mark.proof
def test_layers_of_unlike_sizes_are_solved() -> None:
    """AMP's generator on four nodes of four V100 (arXiv 2210.07297, section 4.5) has a gap of zero by AMP's model."""
    plan = taut.plan(
        "transgan-generator",
        "amp-unlike-layers",
        global_batch=64,
        latency_model="amp",
        stack="any",
        schedules=["1f1b"],
        max_tp=4,
        fix={"zero": 0, "recompute": "none", "sequence_parallel": False},
    )
    assert plan.gap is not None and plan.gap < 1e-6
    assert plan.verify().holds
