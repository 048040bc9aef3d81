"""Annealing: its incremental prices are the evaluator's, its work is deterministic, its rules hold."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.model import ModelSpec
from taut.formulations.compiled import jit
from taut.formulations.latency import step_time, violations
from taut.formulations.placement import FoundPlacement, PlacementProblem, placement_problem
from taut.formulations.strategy import Strategy
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_division.divide import Partition
from taut.solver.placement.annealing.anneal import anneal, best_start, random_move
from taut.solver.placement.annealing.prices import Prices, prices_of
from taut.solver.placement.annealing.starts import starts
from tests.solver.bounds.test_sharding import eight_devices, sharded
from tests.support.blocks import blocks
from tests.support.expert_ranks import with_copies_of_states
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.racked import measured, racked
from tests.support.small import candidate, cluster, costs, model, problem, strategy

pytestmark = pytest.mark.proof


def random_placement(seed: int) -> tuple[PlacementProblem, Partition] | None:
    """The placement problem of some candidate of a random problem, if one fits."""
    given = random_problem(seed, large=seed % 3 == 0)
    choices = [choice for choice in given.candidates if choice.cp == 1]
    if not choices:
        return None
    choice = choices[np.random.default_rng(seed).integers(len(choices))]
    found = partition_bound(given, choice, communication(given, choice, BestLinks(given.links, given.rings)))[1]
    if not found.feasible:
        return None
    return placement_problem(given, Strategy(candidate=choice, division=found.division)), found


@pytest.mark.parametrize("block", blocks(8, first=3))
def test_annealed_seconds_are_the_evaluators(block: int) -> None:
    """Start and result cost what the evaluator says (optimizer and constant apart), and keep every rule."""
    for seed in range(block * 25, block * 25 + 25):
        made = random_placement(seed)
        if made is None:
            continue
        given, found = made
        start = best_start(given, found.patterns)
        done = anneal(given, start, moves=400, seed=seed)
        assert done.seconds <= start.seconds
        assert given.violations(done.positions) == ()
        if np.isfinite(done.seconds):
            devices = given.devices(done.positions)
            assert violations(given.problem, given.strategy, devices) == ()
            time = step_time(given.problem, given.strategy, devices)
            wanted = float(time.total - time.optimizer - time.constant)
            assert done.seconds == pytest.approx(wanted, rel=1e-12), seed


@pytest.mark.parametrize("block", blocks(4))
def test_annealed_seconds_are_the_evaluators_where_weights_are_sharded(block: int) -> None:
    """The same under ZeRO-2 and 3, with gathers that show, in one copy or several; or several copies of states."""
    checked = 0
    for seed in range(block * 40, block * 40 + 40):
        given = (sharded(seed), eight_devices(seed), sharded(seed), with_copies_of_states(seed, large=True))[seed % 4]
        choices = [c for c in given.candidates if c.zero >= 2 or (c.zero == 1 and c.dp_shard)]
        choices = [c for c in choices if not c.is_order_priced and c.cp == c.ep == 1]
        if not choices:
            continue
        choice = choices[np.random.default_rng(seed).integers(len(choices))]
        found = partition_bound(given, choice, communication(given, choice, BestLinks(given.links, given.rings)))[1]
        if found.feasible:
            placed = placement_problem(given, Strategy(candidate=choice, division=found.division))
            done = anneal(placed, best_start(placed, found.patterns), moves=200, seed=seed)
            if np.isfinite(done.seconds):
                time = step_time(given, placed.strategy, placed.devices(done.positions))
                wanted = float(time.total - time.optimizer - time.constant)
                assert done.seconds == pytest.approx(wanted, rel=1e-12), (seed, choice)
                checked += 1
    assert checked > 10


def test_context_ranks_are_placed_by_the_guide() -> None:
    """Annealed placements keep blocks and tensor groups whole, and what is known of their rings is a guide alone."""
    checked = 0
    for seed in range(1, 120, 3):
        given = replace(random_problem(seed, large=True), latency_model="step")
        choices = [choice for choice in given.candidates if choice.cp > 1 and not choice.is_order_priced]
        if not choices:
            continue
        choice = choices[np.random.default_rng(seed).integers(len(choices))]
        best = BestLinks(given.links, given.rings)
        found = partition_bound(given, choice, communication(given, choice, best))[1]
        if found.feasible:
            placed = placement_problem(given, Strategy(candidate=choice, division=found.division))
            done = anneal(placed, best_start(placed, found.patterns), moves=200, seed=seed)
            assert placed.violations(done.positions) == ()
            if np.isfinite(done.seconds):
                assert violations(given, placed.strategy, placed.devices(done.positions)) == ()
                checked += 1
    assert checked > 10


@jit
def one_move(prices: Prices, pos: Ints) -> tuple[int, int, int]:
    """One random move."""
    return random_move(prices, pos)


def test_a_move_changes_none_but_the_replicas_that_are_priced_again() -> None:
    """Of 2000 moves none leaves the replicas that it says, or loses a site; some exchange whole stages of all three."""
    given = placement_problem(problem(cluster(12, 1)), strategy(candidate(4, 1, 3, m=4), 1, 2, 3, 4))
    prices, before, stages = prices_of(given), np.arange(12).reshape(3, 4), 0
    # This seeds the moves that follow.
    anneal(given, best_start(given, (0,) * 4), moves=1, seed=0)
    for _ in range(2000):
        pos = before.reshape(-1, 1).copy()
        first, last, step = one_move(prices, pos)
        after = pos.reshape(before.shape)
        touched = range(first, last + 1, step) if step else ()
        assert {*np.flatnonzero((after != before).any(axis=1)).tolist()} <= {*touched}
        assert sorted(pos.ravel().tolist()) == list(range(12))
        stages += sorted(map(tuple, after.T)) == sorted(map(tuple, before.T)) and (after != before).any()
    assert stages > 10


def test_same_seed_gives_the_same_placement() -> None:
    """Annealing is a function of seed, start and moves."""
    rows = np.random.default_rng(0).uniform(0.5, 2, (8, 8)).tolist()
    given = placement_problem(problem(cluster(8, 1, rows=rows)), strategy(candidate(4, 1, 2, m=4), 1, 2, 3, 4))
    start = best_start(given, (0,) * 4)
    one, other = (anneal(given, start, moves=5000, seed=7) for _ in range(2))
    assert one.seconds == other.seconds
    assert (one.positions == other.positions).all()


def test_annealing_finds_the_optimum_of_small_instances() -> None:
    """On six nodes with random links a short anneal reaches the enumerated optimum."""
    for seed in range(5):
        rows = np.random.default_rng(seed).uniform(0.01, 2, (6, 6)).tolist()
        given = problem(cluster(6, 1, rows=rows), global_batch=12, recompute=["none"])
        choice = candidate(3, 1, 2, m=6)
        optimum = enumerate_candidate(given, choice)
        assert optimum.strategy is not None
        placed = placement_problem(given, optimum.strategy)
        done = anneal(placed, best_start(placed, (0,) * 3), moves=20_000, seed=seed)
        assert done.seconds == pytest.approx(optimum.seconds, rel=1e-12)


def test_slow_devices_go_where_the_partition_wants_them() -> None:
    """A partition with one slow stage is placed with that stage on the slow node."""
    from tests.support.small import costs, model

    nodes = cluster(2, 1, devices=("a", "b"))
    given = problem(nodes, table=costs(model(), devices={"a": 1.0, "b": 3.0}))
    placed = placement_problem(given, strategy(candidate(2, 1, 1), 3, 4))
    assert best_start(placed, (0, 1)).positions.tolist() == [[0], [1]]
    assert best_start(placed, (1, 0)).positions.tolist() in ([[1], [0]], [[0], [1]])


@pytest.mark.parametrize("seed", range(20))
def test_levels_anneal_as_their_matrix(seed: int) -> None:
    """Racks and kinds of node cost what the same cluster with matrices costs, move by move."""
    spec = racked(np.random.default_rng(seed), 4)
    chosen = strategy(candidate(4, 1, 2, m=4), 1, 2, 3, 4)
    found = []
    for each in (spec, measured(spec)):
        given = placement_problem(problem(each), chosen)
        start = FoundPlacement(seconds=np.inf, positions=np.random.default_rng(seed).permutation(given.slots))
        found.append(anneal(given, start, moves=500, seed=seed))
        assert found[-1].seconds == pytest.approx(given.cost(found[-1].positions), rel=1e-12)
    assert found[0].seconds == pytest.approx(found[1].seconds, rel=1e-12)


def test_pipelines_laid_out_in_order_cross_few_nodes() -> None:
    """
    Sixteen stages, eight replicas, nodes of eight: stage 0 on one node, and at most three hops between nodes.

    Fifteen further stages take two nodes at least, so two hops; laid out one after the other they touch three.
    """
    given = problem(cluster(16, 8), model(16), global_batch=64, max_tp=1)
    placed = placement_problem(given, strategy(candidate(16, 1, 8), *range(1, 17)))
    best = min(
        max(int((np.diff(nodes) != 0).sum()) for nodes in positions[:, 0].reshape(8, 16))
        for positions in starts(placed, (0,) * 16)
        if len(set(positions[:, 0].reshape(8, 16)[:, 0].tolist())) == 1
    )
    assert best == 3


def four_racks(bandwidth_gbps: float) -> PlacementProblem:
    """Four stages and four replicas on sixteen nodes, four in a rack, whose numbers are not consecutive."""
    given = cluster(16, 2)
    racks = [{"nodes": list(range(r, 16, 4)), "bandwidth_gbps": 400.0} for r in range(4)]
    values = {**given.model_dump(mode="json"), "network": {"bandwidth_gbps": bandwidth_gbps, "racks": racks}}
    planned = problem(ClusterSpec.parse(values, "test"), model(8), global_batch=16, max_tp=2, latency_model="step")
    return placement_problem(planned, strategy(candidate(4, 2, 4), 2, 4, 6, 8))


def test_leading_stages_lie_inside_racks_in_some_start() -> None:
    """One, two or all stages have a rack each: three leave one to the last. Every start takes every node once."""
    confined = set()
    for positions in starts(four_racks(4.0), (0,) * 4):
        sites = positions[:, 0].reshape(4, 4)
        assert sorted(sites.ravel().tolist()) == list(range(16))
        alone = [len(set((sites[:, x] % 4).tolist())) == 1 for x in range(4)]
        confined.add(alone.index(False) if False in alone else 4)
    assert {1, 2, 4} <= confined


def test_last_stages_share_the_room_that_whole_stages_leave() -> None:
    """Nodes of five and stages of two: two stages a node, and the last ones on what is left, in some start."""
    given = problem(cluster(4, 5), model(10), global_batch=8, max_tp=1, latency_model="step")
    placed = placement_problem(given, strategy(candidate(10, 1, 2, m=4), *range(1, 11)))
    shared = [0, 0, 1, 1, 2, 2, 3, 3]
    nodes = [positions[:, 0].reshape(2, 10) for positions in starts(placed, (0,) * 10)]
    found = [each for each in nodes if each[0, :8].tolist() == each[1, :8].tolist() == shared]
    assert found and all(np.bincount(each.ravel()).tolist() == [5] * 4 for each in found)


def test_stages_that_leave_room_lie_in_few_parts_of_nearly_equal_size() -> None:
    """
    Nine stages of eight on eight nodes of nine: parts on two nodes beat one stage with a member on each node.

    A ring of a part of one and others is bound by the one, which only late stages have the time for.
    """
    spec = ModelSpec.parse({"name": "small", "layers": 9, "hidden": 64, "heads": 4, "seq": 1}, "small")
    prices = costs(spec, devices={"d": 1e-6})
    given = problem(cluster(8, 9), spec, table=prices, global_batch=72, max_tp=1, latency_model="step")
    placed = placement_problem(given, strategy(candidate(9, 1, 8, m=9), *range(1, 10)))
    built = sorted(starts(placed, (0,) * 9), key=placed.cost)
    parts = [[np.bincount(x, minlength=8) for x in each[:, 0].reshape(8, 9).T] for each in built]
    assert all((np.sum(each, axis=0) == 9).all() for each in parts)
    assert all((stage > 0).sum() <= 2 for stage in parts[0]) and all(1 not in stage for stage in parts[0][:6])
    scattered = next(k for k, each in enumerate(parts) if all(stage.max() == 8 for stage in each[:8]))
    assert placed.cost(built[0]) < 0.85 * placed.cost(built[scattered])


def test_sites_in_any_order_have_the_start_of_sites_in_a_row() -> None:
    """Copies of weights lie within sites, whose links are 500 times as fast, however the nodes of two sites mix."""
    found = []
    for site in ([0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 0, 1]):
        rows = [[10.0 if a == b else 0.02 for b in site] for a in site]
        for choice in (candidate(1, 1, 8, m=1, zero=3, dp_shard=4), candidate(2, 1, 4, m=2)):
            given = problem(cluster(4, 2, rows=rows), model(), latency_model="step")
            placed = placement_problem(given, strategy(choice, *(4,) if choice.pp == 1 else (2, 4)))
            start = best_start(placed, (0,) * choice.pp)
            assert placed.violations(start.positions) == ()
            assert start.seconds == pytest.approx(placed.cost(start.positions), rel=1e-12)
            found.append(start.seconds)
    assert found[2:] == pytest.approx(found[:2] * 2, rel=1e-9)
