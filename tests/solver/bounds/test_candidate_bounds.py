"""No bound is above the optimum found by enumeration, on random instances of every shape."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.data.calibration import TERMS, Calibration
from taut.data.costs import CostTable
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import mean_stage, relaxation_bound
from taut.solver.placement.exact.joint import Kept, has_joint, solve_joint
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all, enumerate_candidate
from tests.support.small import candidate, cluster, costs, model, problem

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def check_search(seed: int, *, large: bool = False) -> None:
    """
    Global bound <= optimum <= plan, and no plan where the enumeration finds none.

    With one or two device types infeasibility is proven; with three, classes relax memory, and it may stay unknown.
    """
    given = random_problem(seed, large=large)
    optimum = enumerate_all(given)
    result = search(given, Limits(workers=1))
    if not np.isfinite(optimum.seconds):
        assert result.incumbent is None, seed
        assert result.status == "infeasible" or (len(given.device_types) > 2 and result.status == "unknown"), seed
        return
    assert result.incumbent is not None, seed
    assert result.lower_bound <= optimum.seconds * TOLERANCE, seed
    assert result.incumbent.seconds >= optimum.seconds / TOLERANCE, seed
    if result.status == "optimal":
        assert result.incumbent.seconds == pytest.approx(optimum.seconds, rel=2e-6), seed


@pytest.mark.parametrize("block", blocks(50))
def test_global_bound_is_valid_on_random_instances(block: int) -> None:
    """500 instances: the search's bound never exceeds the enumerated optimum, and infeasibility is exact."""
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        check_search(seed)


@pytest.mark.parametrize("seed", blocks(6))
def test_global_bound_is_valid_on_eight_devices(seed: int) -> None:
    """The same with all 40,320 placements of eight devices."""
    check_search(seed, large=True)


@pytest.mark.parametrize("block", blocks(10))
def test_candidate_bounds_are_valid_and_ordered(block: int) -> None:
    """Each of the three bounds of a candidate is at most its optimum; of one or two types the later are no weaker."""
    for seed in range(block * 10, block * 10 + 10):
        given = random_problem(seed)
        best, kept = BestLinks(given.links, given.rings), Kept()
        for choice in given.candidates[::5]:
            optimum = enumerate_candidate(given, choice).seconds
            comm = communication(given, choice, best)
            relaxed = relaxation_bound(given, choice, comm)
            exact = partition_bound(given, choice, comm)[0]
            # The relaxation knows every type of device, the partition two classes of them.
            stronger = exact if len(given.device_types) <= 2 else optimum
            assert relaxed <= stronger * TOLERANCE, (seed, choice)
            assert exact <= optimum * TOLERANCE, (seed, choice)
            if has_joint(given, choice, kept):
                joint = solve_joint(given, choice, best, kept).lower_bound
                assert joint <= optimum * TOLERANCE, (seed, choice)


def test_exact_placement_closes_equal_devices() -> None:
    """With one device type, equal messages and stage 0's gradients alone the placement bound is the optimum itself."""
    closed = 0
    for seed in range(300):
        given = random_problem(seed)
        if len(given.device_types) > 1 or not given.candidates or given.latency_model == "step":
            continue
        best, kept = BestLinks(given.links, given.rings), Kept()
        choice = given.candidates[-1]
        uniform = len({node.intra_bandwidth_gbps for node in given.cluster.node_list}) == 1
        if not (has_joint(given, choice, kept) and given.tables(choice).equal_messages and uniform):
            continue
        optimum = enumerate_candidate(given, choice).seconds
        joint = solve_joint(given, choice, best, kept).lower_bound
        if np.isfinite(optimum):
            assert joint == pytest.approx(optimum, rel=1e-9), (seed, choice)
            closed += 1
    assert closed >= 10


def unlike_pair(rows: Floats, slower: float, global_batch: int) -> PlanningProblem:
    """Two fast and two slow devices in two pipelines of two stages, no ring: 3 s a layer on the fast ones."""
    spec = model(2)
    free = Calibration(name="no ring", coefficients=dict.fromkeys(TERMS, 1.0) | {"data_parallel": 0.0, "constant": 0.0})
    table = costs(spec, devices={"a": 1.0, "b": slower})
    fixed = {"tp": 1, "pp": 2, "micro_batch": 1, "zero": 0, "schedule": "1f1b"}
    nodes = cluster(4, 1, rows=rows.tolist(), devices=("a", "b"))
    return replace(problem(nodes, spec, table=table, global_batch=global_batch, fixed=fixed), calibration=free)


def test_slowest_stage_and_longest_trip_may_lie_in_different_pipelines() -> None:
    """Unlike devices with unlike links: the pipeline of slow devices may have the short trip."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        # 12,800 B there and back in up to 2 to 30 s, comparable with the 3 and 6 s of a layer.
        rows = 2 * 12_800 / 1e9 / rng.uniform(2, 30) / np.maximum(rng.uniform(0.05, 1, (4, 4)) ** 2, 1e-3)
        given = unlike_pair(rows, 2.0, 4)
        result = search(given, Limits(workers=1))
        exact = enumerate_candidate(given, given.candidates[0]).seconds
        assert result.bounds[0].lower_bound <= exact * TOLERANCE, seed


def test_one_fast_link_between_slow_devices_does_not_burden_their_pipeline() -> None:
    """Slow devices linked fast, everything else slow: the forest's mean trip is not on top of the slowest stage."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = np.full((4, 4), 2 * 12_800 / 1e9 / rng.uniform(1, 12))
        rows[2, 3] = rows[3, 2] = 1.0
        given = unlike_pair(rows, float(rng.uniform(1.5, 6)), 16)
        choice = given.candidates[0]
        bound = partition_bound(given, choice, communication(given, choice, BestLinks(given.links, given.rings)))[0]
        assert bound <= enumerate_candidate(given, choice).seconds * TOLERANCE, seed


def test_hops_between_nodes_are_counted() -> None:
    """Four stages of one pipeline on nodes of two devices: at least one hop between nodes, two inside."""
    # 12,800 B both ways: 2.56 us inside at 10 GB/s, 25.6 us between at 1 GB/s; m / pp = 2 trips.
    given = problem(cluster(2, 2))
    choice = candidate(4, 1, 1)
    comm = communication(given, choice, BestLinks(given.links, given.rings))
    assert comm.edge[1:4].tolist() == pytest.approx([2 * 2.56e-6] * 3)
    assert comm.tail[1] == pytest.approx(2 * (25.6e-6 - 2.56e-6))


def test_ring_of_all_measured_devices_is_exact() -> None:
    """One stage on two nodes of three devices with links of their own: every placement is the same ring."""
    for seed in range(20):
        rows = np.random.default_rng(seed).uniform(0.001, 1, (6, 6))
        given = problem(cluster(2, 3, rows=rows.tolist()), global_batch=6)
        choice = candidate(1, 1, 6, m=1)
        bound = partition_bound(given, choice, communication(given, choice, BestLinks(given.links, given.rings)))[0]
        devices = np.arange(6).reshape(1, 6, 1)
        strategy = Strategy(candidate=choice, division=Division(((0, 4),), ("none",)))
        assert bound == pytest.approx(float(step_time(given, strategy, devices).total), rel=1e-9), seed


def test_ring_bound_uses_the_best_clique() -> None:
    """Three replicas on four nodes of which one is slow: the ring can avoid it, four cannot."""
    rows = np.ones((4, 4))
    rows[3, :] = rows[:, 3] = 0.1
    given = problem(cluster(4, 1, rows=rows.tolist()))
    best = BestLinks(given.links, given.rings)
    assert best.core(3) == pytest.approx(1e-9)
    assert best.core(4) == pytest.approx(1e-8)
    assert best.core(1) == 0.0


def test_spanning_tree_joins_two_fast_pairs_by_a_slow_link() -> None:
    """Two pairs of nodes with slow links between: one pipeline must cross once, two need not."""
    rows = np.full((4, 4), 0.1)
    rows[0, 1] = rows[1, 0] = rows[2, 3] = rows[3, 2] = 1.0
    given = problem(cluster(4, 1, rows=rows.tolist()))
    tree = BestLinks(given.links, given.rings).tree(1, 12_800.0, True)
    assert tree.tolist() == pytest.approx([25.6e-6, 25.6e-6, 256e-6])
    one = communication(given, candidate(4, 1, 1), BestLinks(given.links, given.rings))
    assert one.tail[1] == pytest.approx(2 * (256e-6 - 25.6e-6))


def test_amp_ring_caps_the_largest_stage() -> None:
    """AMP's bound weighs the largest stage's gradients against the balance of the stages."""
    spec = model(4, unlike=True)
    given = problem(cluster(4, 1), spec, table=costs(spec), latency_model="amp")
    choice = candidate(2, 1, 2, m=4)
    bound = partition_bound(given, choice, communication(given, choice, BestLinks(given.links, given.rings)))[0]
    assert bound == pytest.approx(enumerate_candidate(given, choice).seconds, rel=1e-9)


def test_a_layer_that_no_type_is_slower_for_does_not_hide_the_others_ratios() -> None:
    """Four layers of a second, three of which take three on the slow stage: (0.4 + 3) / (1 / 2.5 + 1) by (2')."""
    planning, by_type = problem(cluster(2, 1, devices=("d", "e")), table=both()), np.array([[1.0] * 4, [1.0, 3, 3, 3]])
    assert mean_stage(planning, candidate(2, 1, 1), by_type, 4.0) == pytest.approx(3.4 / 1.4)


def both() -> CostTable:
    """Costs of two types of device."""
    return costs(model(), devices={"d": 1.0, "e": 2.0})
