"""
Bound ``node-sets``: never above the enumerated optimum of the whole step, the optimum itself where it says so.

Labels over sets of nodes: dominated ones go.
"""

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.formulations.latency import step_time
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.strategy import Strategy
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.placement.exact import node_sets
from taut.solver.placement.exact.joint import Kept
from taut.solver.placement.exact.node_sets import (
    Labels,
    Placements,
    Waiting,
    has_node_sets,
    least_placement,
    sets_of,
    solve_by_node_sets,
    undominated,
)
from taut.solver.result import Limits, Source, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, model, problem

ROUNDING = 1 + 1e-9


def rates(nodes: int, seed: int) -> Floats:
    """Links of two racks, of racks and noise, of noise alone, or of one slow node."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(-3, [0.1, 0.4, 0.8][seed % 3], (nodes, nodes)))
    if seed % 4 < 2:
        rack = np.arange(nodes) % 2
        rate *= np.where(np.equal.outer(rack, rack), 1.0, 0.25)
    if seed % 5 == 0:
        rate[0] *= 0.3
        rate[:, 0] *= 0.3
    return np.asarray(rate)


def planned(seed: int, pp: int = 3, further: int = 2) -> PlanningProblem:
    """Stages of two replicas on nodes of one device, with gradients from small to all that counts."""
    rng = np.random.default_rng(seed)
    spec = model(pp + int(rng.integers(0, further + 1)), unlike=bool(seed % 7 == 0))
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-11, -5)))), optimizer=1e-9)
    memory = [1.0, 1e-3, 2.4e-3][seed % 3]
    latency, nic = 20.0 * (seed % 2), 0.5 if seed % 6 == 0 else None
    nodes = cluster(2 * pp, 1, rows=rates(2 * pp, seed).tolist(), latency_us=latency, nic_gbps=nic, memory_gib=memory)
    fixed = {"pp": pp, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": ["1f1b", "gpipe"][seed // 2 % 2]}
    batch = 2 * int(rng.integers(1, 9))
    given = problem(nodes, spec, table=table, latency_model="step", global_batch=batch, fixed=fixed)
    return replace(given, overlap_grad_reduce=seed % 3 == 1)


def sixteen_nodes(kind: str, stages: int) -> PlanningProblem:
    """Sixteen layers of 0.1 ms each, on nodes in two racks or in racks of six, with a quarter of the rate between."""
    rack = np.arange(16) // (8 if kind == "racks" else 6)
    noise = np.exp(np.random.default_rng(3).normal(0, 0.1, (16, 16)))
    rows = np.where(np.equal.outer(rack, rack), 1.0, 0.25) * (noise + noise.T)
    spec = model(16)
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, 1e-4))
    fixed = {"pp": stages, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    nodes = cluster(16, 1, rows=rows.tolist())
    return problem(nodes, spec, table=table, latency_model="step", global_batch=64, fixed=fixed)


def check(seed: int) -> tuple[float, bool] | None:
    """Check one instance: how much of its optimum is proven, and whether it is said to be exact."""
    given = planned(seed)
    (choice,) = given.candidates
    kept, best = Kept(), BestLinks(given.links, given.rings)
    if not has_node_sets(given, choice, kept):
        return None
    optimum = enumerate_candidate(given, choice).seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_sets, "_attained", lambda *given: False)  # Labels are to decide, whatever is known before.
        found = solve_by_node_sets(given, choice, best, kept)
    assert found.lower_bound <= optimum * ROUNDING, seed
    if not np.isfinite(optimum):
        assert not found.partition.feasible, seed
        return None
    strategy = Strategy(candidate=choice, division=found.partition.division)
    placed = placement_problem(given, strategy)
    assert placed.cost(found.positions) >= optimum / ROUNDING, seed
    if found.exact and given.tables(choice).equal_messages:
        assert found.lower_bound == pytest.approx(optimum, rel=1e-8), seed
        assert placed.cost(found.positions) == pytest.approx(optimum, rel=1e-8), seed
    return found.lower_bound / optimum, found.exact


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_is_above_the_optimum(block: int) -> None:
    """
    600 instances with overlap, different messages and little memory.

    None is above it, and of equal messages it is the optimum, which the placement found attains.
    """
    checked = [found for seed in range(30 * block, 30 * block + 30) if (found := check(seed)) is not None]
    assert len(checked) > 8
    assert sum(share > 1 - 1e-8 for share, _ in checked) > len(checked) / 2


@pytest.mark.proof
@pytest.mark.parametrize("seed", blocks(41, first=13)[1:])
def test_four_stages_are_placed_best(seed: int) -> None:
    """One division on eight nodes: no placement out of 40,320 takes less than the one found, nor than the bound."""
    given = replace(planned(seed, 4, 0), memory=planned(1).memory)
    (choice,) = given.candidates
    kept, best = Kept(), BestLinks(given.links, given.rings)
    if not has_node_sets(given, choice, kept):
        pytest.skip("this instance has two nodes that can change places")
    found = solve_by_node_sets(given, choice, best, kept)
    if not found.partition.feasible:
        pytest.skip("nothing fits memory")
    strategy = Strategy(candidate=choice, division=found.partition.division)
    orders = np.array(list(permutations(range(8)))).reshape(-1, 4, 2, 1)
    least = float(step_time(given, strategy, orders).total.min())
    assert found.lower_bound <= least * ROUNDING
    if given.tables(choice).equal_messages and found.exact:
        assert placement_problem(given, strategy).cost(found.positions) == pytest.approx(least, rel=1e-9)


@pytest.mark.proof
def test_placement_of_three_stages_by_hand() -> None:
    """
    Six nodes in a row of pairs, hops of 1 s along two rows and 10 s across: a pipeline stays in its row.

    Rings take 1 s within the first pair and nothing elsewhere, so it is not the pair of stage 0: 2 + 0 s, not 2 + 1.
    """
    row = np.arange(6) % 2
    hops = np.where(np.equal.outer(row, row), 1.0, 10.0)
    sets = sets_of(6, 2)
    rings = np.where((sets.members == [0, 1]).all(axis=1), 1.0, 0.0)
    waiting = Waiting(seconds=np.zeros(3), exchanged=np.ones(3), unhidden=np.zeros(3), hiding=np.zeros(3))
    seconds, nodes = least_placement(Placements(sets=sets, rings=rings, hops=hops, net=hops), waiting, 1.0)
    assert seconds == pytest.approx(2.0)
    assert nodes is not None
    assert [set(row[pipeline].tolist()) for pipeline in nodes] in ([{0}, {1}], [{1}, {0}])


@pytest.mark.proof
def test_limit_and_labels_leave_a_valid_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimum is 2 s: a limit of 1.5 s is refuted, and one label a stage refutes no more than the bound."""
    sets = sets_of(6, 2)
    hops = np.ones((6, 6))
    waiting = Waiting(seconds=np.zeros(3), exchanged=np.zeros(3), unhidden=np.zeros(3), hiding=np.zeros(3))
    given = Placements(sets=sets, rings=np.zeros(15), hops=hops, net=hops)
    assert least_placement(given, waiting, 1.0, 1.5) == (1.5, None)
    monkeypatch.setattr(node_sets, "MOST_LABELS", 1)
    seconds, nodes = least_placement(given, waiting, 1.0)
    assert 1.0 <= seconds <= 2.0
    assert nodes is None


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "stages"), [("sixes", 4), ("racks", 8)])
def test_sixteen_nodes_in_racks_are_solved(kind: str, stages: int) -> None:
    """Under the whole step the plan is proven optimal by this bound, and the checker derives it again."""
    given = sixteen_nodes(kind, stages)
    limits = Limits(workers=1, time_limit=60.0)
    result = search(given, limits)
    assert result.status is Status.OPTIMAL
    assert {bound.source for bound in result.bounds} == {Source.NODE_SETS}
    document = json.loads(json.dumps(plan_document(given, result, limits)))
    assert verify_document(document).gap == pytest.approx(0.0, abs=1e-6)
    document["certificate"]["candidates"][0]["lower_bound_s"] *= 1.001
    document["certificate"]["lower_bound_s"] *= 1.001
    assert not verify_document(document).holds


@pytest.mark.proof
def test_rings_that_are_too_slow_make_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rings three times as slow in this bound alone it is above the plan, and no certificate of it holds."""
    given, limits = sixteen_nodes("sixes", 4), Limits(workers=1, time_limit=60.0)
    monkeypatch.setattr(node_sets, "ring_by_byte", lambda *figures: 3.0 * ring_by_byte(*figures))
    result = search(given, limits)
    assert result.incumbent is not None
    assert result.bounds[0].lower_bound > result.incumbent.seconds
    document = json.loads(json.dumps(plan_document(given, result, limits)))
    document["certificate"]["lower_bound_s"] = result.bounds[0].lower_bound
    assert not verify_document(document).holds


def test_dominated_labels_are_dropped_within_their_state() -> None:
    """Of two labels of one state the one with less left and no less time goes; that of another state stays."""
    of_state = np.array([3, 3, 5]), np.array([0, 0, 0])
    net, left = np.array([[1.0, 2.0], [1.0, 2.5], [9.0, 9.0]]), np.array([[4.0, 4.0], [4.0, 3.0], [0.0, 0.0]])
    none = np.zeros(3, np.int64)
    kept = undominated(Labels(*of_state, net, left, none, none))
    assert sorted(kept.net[:, 1].tolist()) == [2.0, 9.0]
