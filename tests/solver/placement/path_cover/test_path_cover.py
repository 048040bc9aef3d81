"""Bound ``cover``: none is above the exact optimum, and no altered witness is accepted."""

import copy
import json
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Flags, Floats, Ints
from taut.data.spec import digest
from taut.formulations.links import PairTable
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.partition import partition_problem
from taut.formulations.rings import RingRates, ring_by_byte
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.branch_and_bound.stop import unraised
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.layer_division.divide import solve_partition
from taut.solver.placement.annealing.paths import PathAnnealing, first_stage
from taut.solver.placement.exact import joint
from taut.solver.placement.exact.joint import SubsetSolver
from taut.solver.placement.path_cover.bound import cover_bound, has_cover, witness_of, witnessed
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.cases import CaseCertificate, PathProof, certified_bound
from taut.solver.placement.path_cover.certificate import (
    DualCertificate,
    NodeMultipliers,
    certified_seconds,
    forest_bound,
    subgradient_ascent,
)
from taut.solver.placement.path_cover.cliques import bottleneck_clique_bound, clique_sets, has_no_clique
from taut.solver.placement.path_cover.path_bound import LongestPathBound
from taut.solver.placement.path_cover.pricing import cheapest_patterns
from taut.solver.placement.path_cover.proving import CoverCache, CoverSearch
from taut.solver.placement.path_cover.racks import WHOLE
from taut.solver.placement.slots import SlotGraph, between_cards
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
SHAPES = [(2, 2), (3, 2), (2, 3), (4, 1), (6, 1), (2, 4), (4, 2), (8, 1), (3, 3), (5, 2), (2, 5), (4, 3)]
SHARED = [
    (2, [2, 2]),
    (3, [2, 2, 2]),
    (2, [2, 2, 2]),
    (4, [4, 4]),
    (2, [4, 4]),
    (8, [2, 2, 2, 2]),
    (4, [2, 2, 2, 2]),
    (2, [2, 2, 2, 2]),
    (3, [3, 3, 3]),
    (5, [2, 2, 2, 2, 2]),
    (6, [4, 4, 4]),
    (4, [4, 4, 2, 2]),
    (3, [1, 2, 3]),
    (4, [3, 3, 3, 3]),
    (2, [1, 1, 2, 4]),
    (10, [5, 5]),
]
"""Slots of a path, and slots by node."""
ROUNDING = 1 + 1e-9


def random_links(seed: int, n: int, kind: int) -> tuple[Floats, Floats]:
    """Hops and inverse rates of n nodes: different links, racks, a slow node, ties, all links equal."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(0, 0.4, (n, n)))
    if kind == 1:
        rack = rng.integers(0, 2, n)
        rate *= np.where(np.equal.outer(rack, rack), 1.0, 0.25)
    elif kind == 2:
        rate[0] *= 0.3
        rate[:, 0] *= 0.3
    elif kind == 3:
        rate = rng.choice([0.5, 1.0, 1.0], (n, n))
    elif kind == 4:
        rate = np.ones((n, n))
    one_way = 1.0 / rate + (rng.uniform(0, 0.5, (n, n)) if rng.random() < 0.3 else 0.0)
    return one_way + one_way.T, np.maximum(1.0 / rate, 1.0 / rate.T)


def random_graph(seed: int) -> SlotGraph:
    """Up to twelve nodes of one slot each."""
    pp, dp = SHAPES[seed % len(SHAPES)]
    hops, inverse = random_links(seed, pp * dp, seed // len(SHAPES) % 5)
    return with_cards(seed, hops, inverse, np.ones(pp * dp, np.int64), pp)


def with_cards(seed: int, hops: Floats, inverse: Floats, capacity: Ints, pp: int) -> SlotGraph:
    """A graph whose nodes have no cards that count, equal ones or unlike ones."""
    rng, dp = np.random.default_rng((seed, 8)), int(capacity.sum()) // pp
    card = [np.zeros(len(hops)), np.full(len(hops), rng.uniform(0.5, 4.0)), rng.uniform(0.5, 4.0, len(hops))][seed % 3]
    # Every other graph has rates that are raised to what cards take at least already.
    least = card / np.minimum(capacity, max(dp - 1, 1)) * (seed % 2)
    return SlotGraph(hops=hops, inverse=between_cards(inverse, least), capacity=capacity, pp=pp, replicas=dp, card=card)


def shared_graph(seed: int) -> SlotGraph:
    """Nodes of several slots, at most twelve in all, with links inside that are fast, or not even that."""
    pp, sizes = SHARED[seed % len(SHARED)]
    capacity = np.array(sizes)
    hops, inverse = random_links(seed, len(sizes), seed // len(SHARED) % 5)
    inside = [0.05, 0.3, 1.2][seed // (5 * len(SHARED)) % 3]
    rng = np.random.default_rng((seed, 9))
    np.fill_diagonal(hops, inside * rng.uniform(1.0, 1.5, len(sizes)))
    np.fill_diagonal(inverse, 0.5 * np.diag(hops))
    return with_cards(seed, hops, inverse, capacity, pp)


def optimum(graph: SlotGraph, gradients: float) -> float:
    """Exact least of longest path plus ring, by subset dynamic programming over the slots."""
    node = np.repeat(np.arange(len(graph.hops)), graph.capacity)
    solver = SubsetSolver(graph.hops[np.ix_(node, node)], node, graph.pp)
    rings = node_ring(graph, node[solver.start_sets])
    return solver.solve(gradients * rings).seconds


def node_ring(graph: SlotGraph, nodes: Ints) -> Floats:
    return ring_by_byte(RingRates(PairTable.of_matrix(graph.inverse), graph.card), nodes, nodes)


def _slowest(inverse: Floats, nodes: tuple[int, ...]) -> float:
    return max((float(inverse[a, b]) for a, b in combinations(nodes, 2)), default=0.0)


def refined(graph: SlotGraph, gradients: float, target: float, steps: int = 25) -> CaseSearch:
    cover = CaseSearch(graph=graph, gradients=gradients, target=target, longest=target)
    for _ in range(steps):
        if not cover.refine(rounds=10):
            break
    return cover


def check(graph: SlotGraph, seed: int) -> float:
    """The refined bound and the bound derived again are at most the optimum; returns the share of it that is proven."""
    rng = np.random.default_rng((seed, 1))
    gradients = float(rng.choice([0.0, 0.3, 1.0, 4.0]))
    exact = optimum(graph, gradients)
    cover = refined(graph, gradients, exact)
    assert cover.value <= exact * ROUNDING, seed
    derived = certified_bound(graph, cover.certificate())
    assert derived is not None, seed
    assert derived.seconds(1.0, np.array([gradients]))[0] == pytest.approx(cover.value, rel=1e-12), seed
    # The same certificate bounds every other number of gradient bytes.
    other = float(rng.uniform(0, 3))
    assert derived.seconds(1.0, np.array([other]))[0] <= optimum(graph, other) * ROUNDING, seed
    return cover.value / exact


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_is_above_the_optimum(block: int) -> None:
    """1,020 instances of every shape with one slot a node: no bound exceeds the optimum."""
    for seed in range(block * 51, block * 51 + 51):
        check(random_graph(seed), seed)


@pytest.mark.parametrize("block", blocks(40))
def test_no_bound_over_shared_nodes_is_above_the_optimum(block: int) -> None:
    """1,000 instances with several slots a node, of any sizes: no bound exceeds it, and most reach 98 %."""
    shares = [check(shared_graph(seed), seed) for seed in range(block * 25, block * 25 + 25)]
    assert np.mean(np.array(shares) > 0.98) > 0.5


def test_no_bound_over_groups_of_nodes_is_above_the_optimum() -> None:
    """Tensor groups of two nodes: every rank's pipeline is a path and its replicas a ring; against enumeration."""
    for seed in range(100):
        pp, dp = [(2, 2), (4, 1), (2, 1), (3, 1)][seed % 4]
        n = 2 * pp * dp
        hops, inverse = random_links(seed, n, seed // 4 % 5)
        graph = SlotGraph(
            hops=hops, inverse=inverse, capacity=np.ones(n, np.int64), pp=pp, replicas=dp, card=np.zeros(len(hops))
        )
        gradients = 0.7 * 2 * (dp - 1) / dp
        orders = np.array(list(permutations(range(n)))).reshape(-1, dp, 2, pp)
        longest = hops[orders[..., :-1], orders[..., 1:]].sum(axis=-1).max(axis=(1, 2))
        first = orders[..., 0]
        linked = np.where(np.eye(n, dtype=bool), 0.0, inverse)
        ring = linked[first[:, :, None], first[:, None]].max(axis=(1, 2, 3))
        exact = float((longest + gradients * ring).min())
        cover = refined(graph, 0.7, exact)
        assert cover.value <= exact * ROUNDING, seed
        derived = certified_bound(graph, cover.certificate())
        assert derived is not None and derived.seconds(1.0, np.array([0.7]))[0] <= exact * ROUNDING, seed


def test_the_subset_optimum_is_that_of_all_placements() -> None:
    """The yardstick of these tests against enumeration of all orders of six and eight slots, shared or not."""
    for seed in (1, 13, 25, 37, 49, 5):
        for graph in (random_graph(seed), shared_graph(3 * seed % 9)):
            node = np.repeat(np.arange(len(graph.hops)), graph.capacity)
            least = np.inf
            for order in set(permutations(node.tolist())):
                rows = np.array(order).reshape(-1, graph.pp)
                longest = graph.hops[rows[:, :-1], rows[:, 1:]].sum(axis=1).max()
                least = min(least, longest + 0.7 * float(node_ring(graph, rows[None, :, 0])[0]))
            assert optimum(graph, 0.7) == pytest.approx(least, rel=1e-12)


def test_equal_links_are_closed_at_once() -> None:
    """Equal links: 2 hops of 2 s and a ring of 5/3 s; the forest proves 4 s, the cliques the rest."""
    ones = np.ones((18, 18))
    graph = SlotGraph(
        hops=2 * ones, inverse=ones, capacity=np.ones(18, np.int64), pp=3, replicas=6, card=np.zeros(len(ones))
    )
    cover = CaseSearch(graph=graph, gradients=1.0, target=4 + 5 / 3, longest=4.0)
    for _ in range(4):
        cover.refine()
    assert cover.value == pytest.approx(4 + 5 / 3, rel=1e-10)
    assert not cover.refine()


def test_two_racks_are_closed() -> None:
    """Two racks of eight nodes, two pipelines of eight that both start in one rack: both must cross."""
    # A hop or ring link takes 1 s in a rack, 4 s between racks. Stage 0 in one rack: 100 x 1 + 6 x 1 + 4 = 110 s;
    # in both: 100 x 4 + 7 x 1 s.
    rack = np.arange(16) // 8
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0)
    graph = SlotGraph(
        hops=hops, inverse=hops, capacity=np.ones(16, np.int64), pp=8, replicas=2, card=np.zeros(len(hops))
    )
    cover = refined(graph, 100.0, 110.0)
    assert cover.value == pytest.approx(110.0, rel=3e-3)


def test_pipelines_inside_nodes_are_closed() -> None:
    """Four nodes of four slots, two pipelines of eight: two nodes each, one hop, or stage 0 together and two hops."""
    # Inside a node 0.1 s a hop and 0.05 s a byte, between nodes 1 s and 1 s. Each pipeline on two nodes: 1 + 6 x 0.1 s,
    # and a ring of 2 x 1/2 x 10 bytes x 1 s. Both stages 0 in one node: 2 slots of it each, then two more nodes each
    # of which one is shared: 2 hops, 2 + 5 x 0.1 s, and a ring of 4 x 1/2 x 10 x 0.05 s = 1 s.
    hops = np.where(np.eye(4, dtype=bool), 0.1, 1.0)
    inverse = np.where(np.eye(4, dtype=bool), 0.05, 1.0)
    graph = SlotGraph(hops=hops, inverse=inverse, capacity=np.full(4, 4), pp=8, replicas=2, card=np.zeros(len(hops)))
    assert optimum_by_hand(graph) == pytest.approx(3.5)
    assert refined(graph, 10.0, 3.5, steps=60).value == pytest.approx(3.5, rel=3e-3)


def optimum_by_hand(graph: SlotGraph) -> float:
    """Step of the second placement of the test above, by its paths."""
    paths = np.array([[0, 0, 1, 1, 1, 1, 3, 3], [0, 0, 2, 2, 2, 2, 3, 3]])
    longest = graph.hops[paths[:, :-1], paths[:, 1:]].sum(axis=1).max()
    return float(longest + 10.0 * node_ring(graph, paths[None, :, 0])[0])


def test_any_multipliers_give_a_valid_bound() -> None:
    """Random multipliers never exceed the exact longest path; subgradient ascent is no worse than zero."""
    for seed in range(120):
        graph = random_graph(seed)
        exact = optimum(graph, 0.0)
        rng = np.random.default_rng((seed, 2))
        wild = NodeMultipliers(values=tuple(rng.integers(-(1 << 40), 1 << 40, len(graph.hops)).tolist()))
        assert forest_bound(graph, wild) <= exact * ROUNDING, seed
        none = forest_bound(graph, NodeMultipliers(values=(0,) * len(graph.hops)))
        best, climbed = subgradient_ascent(graph, longest=exact, rounds=200)
        assert none <= best <= exact * ROUNDING, seed
        assert forest_bound(graph, climbed) == best


def test_any_duals_give_a_valid_bound() -> None:
    """Random prices by node and length prove nothing that is not so, whatever set the paths start in."""
    proven = 0
    for seed in range(600):
        graph = (random_graph if seed % 2 else shared_graph)(seed % 97)
        rng = np.random.default_rng((seed, 3))
        exact, n, longest = optimum(graph, 0.0), len(graph.hops), int(graph.capacity.max())
        mean = np.arange(1, longest + 1) * 1000
        spread = 400 if seed % 4 < 2 else 5
        first, later = (np.maximum(rng.normal(mean, spread, (n, longest)), 0).astype(int).tolist() for _ in range(2))
        quantum = float(rng.uniform(0.2, 1.3)) * exact / 64
        proof = DualCertificate(
            quantum=quantum,
            limit=int(rng.integers(2, 64)),
            later=tuple(map(tuple, later)),
            first=tuple(map(tuple, first)) if seed % 3 else None,
        )
        everything = np.ones(n, dtype=bool)
        found = certified_seconds(graph, everything, ~everything, (graph.min_touched, graph.max_touched), proof)
        assert found <= exact * ROUNDING, seed
        proven += np.isfinite(found)
    assert proven > 40


def test_start_sets_and_required_nodes_are_respected() -> None:
    """Paths that start in a set and touch a node: the proven seconds are at most those of the best, by enumeration."""
    for seed in range(40):
        graph = (random_graph if seed % 2 else shared_graph)((seed // 2) * 3 % 16)
        if graph.num_slots > 8:
            continue
        n = len(graph.hops)
        rng = np.random.default_rng((seed, 4))
        starts, required = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
        starts[rng.choice(n, n // 4, replace=False)] = False
        if seed % 3:
            required[rng.choice(np.flatnonzero(starts))] = True
        exact = _from_set(graph, starts, required)
        touched = (graph.min_touched, graph.max_touched)
        nothing = PathProof(nodes=tuple(range(n)), touched=touched)
        path = LongestPathBound(graph, starts, required, touched, 0.0, nothing)
        goal = exact if np.isfinite(exact) else 20.0
        for _ in range(12):
            path.raise_towards(1.5 * goal, rounds=20)
        assert path.seconds <= exact * ROUNDING, seed
        if isinstance(path.evidence.by, DualCertificate):
            again = certified_seconds(graph, starts, required, touched, path.evidence.by)
            assert again == pytest.approx(path.seconds, rel=1e-12)


def test_finer_resource_units_prove_more_and_nothing_false() -> None:
    """Doubling a coarse resource limit raises the bound of some instances, and none above the exact optimum."""
    raised = 0
    for seed in range(24):
        graph = (random_graph if seed % 2 else shared_graph)(seed)
        exact, everything = optimum(graph, 0.0), np.ones(len(graph.hops), dtype=bool)
        touched = (graph.min_touched, graph.max_touched)
        nothing = PathProof(nodes=tuple(range(len(graph.hops))), touched=touched)
        path = LongestPathBound(graph, everything, ~everything, touched, 0.0, nothing, limit=64)
        proved = []
        for _ in range(4):
            for _ in range(8):
                path.raise_towards(1.5 * exact, rounds=20)
            proved.append(path.seconds)
            sharper = path.refine_resource()
        assert not sharper
        assert proved == sorted(proved)
        assert proved[-1] <= exact * ROUNDING, seed
        raised += proved[-1] > proved[0] * 1.001
        if isinstance(path.evidence.by, DualCertificate):
            again = certified_seconds(graph, everything, ~everything, touched, path.evidence.by)
            assert again == pytest.approx(path.seconds, rel=1e-12)
    assert raised > 2


def _from_set(graph: SlotGraph, starts: Flags, required: Flags) -> float:
    node = np.repeat(np.arange(len(graph.hops)), graph.capacity)
    least = np.inf
    for order in set(permutations(node.tolist())):
        rows = np.array(order).reshape(-1, graph.pp)
        if starts[rows[:, 0]].all() and set(np.flatnonzero(required)) <= set(rows[:, 0].tolist()):
            least = min(least, graph.hops[rows[:, :-1], rows[:, 1:]].sum(axis=1).max())
    return float(least)


def test_patterns_are_the_cheapest() -> None:
    """Least prices of a node's patterns, with and without first segments, against enumeration of all of them."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(1, 7))
        first, later = (np.r_[0, rng.integers(-9, 10, size)].astype(np.float64)[None, :] for _ in range(2))
        least, counts = cheapest_patterns(first, later, np.array([size]))
        expected = [np.inf, np.inf]
        for runs in _compositions(size):
            for kinds in range(1 << len(runs)):
                value = sum((first if kinds >> i & 1 else later)[0, run] for i, run in enumerate(runs))
                expected[kinds > 0] = min(expected[kinds > 0], value)
        assert least[0].tolist() == expected
        for touched in range(2):
            dual_values = counts[0, touched, 0] @ first[0] + counts[0, touched, 1] @ later[0]
            assert dual_values == expected[touched]
            assert counts[0, touched].sum(axis=0) @ np.arange(size + 1) == size


def _compositions(size: int) -> list[list[int]]:
    if size == 0:
        return [[]]
    return [[run, *rest] for run in range(1, size + 1) for rest in _compositions(size - run)]


def test_clique_sets_hold_every_clique() -> None:
    """Every clique of links below a threshold lies in one of the sets, and none is named where there is none."""
    for seed in range(80):
        graph = random_graph(seed)
        inverse, size = graph.inverse, graph.replicas
        below = float(np.quantile(inverse, 0.2 + 0.7 * (seed % 7) / 7))
        sets = clique_sets(inverse, below, size)
        cliques = [c for c in combinations(range(len(inverse)), size) if size == 1 or _slowest(inverse, c) < below]
        assert all(any(part[list(clique)].all() for part in sets) for clique in cliques), seed
        least = min(_slowest(inverse, c) for c in combinations(range(len(inverse)), size))
        assert bottleneck_clique_bound(inverse, size) == (least if size > 1 else 0.0)


def test_a_hidden_clique_is_found_and_no_other() -> None:
    """Twelve of sixty nodes are linked faster than any other twelve: just where their slowest link is."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        inverse = np.triu(rng.uniform(1.0, 2.0, (60, 60)), 1)
        hidden = np.sort(rng.choice(60, 12, replace=False))
        inverse[np.ix_(hidden, hidden)] = np.triu(rng.uniform(0.5, 1.2, (12, 12)), 1)
        inverse += inverse.T
        slowest = _slowest(inverse, tuple(hidden.tolist()))
        assert bottleneck_clique_bound(inverse, 12) == slowest, seed
        assert len(clique_sets(inverse, slowest, 12)) == 0
        assert any(part[hidden].all() for part in clique_sets(inverse, np.nextafter(slowest, np.inf), 12))


def test_no_clique_is_claimed_only_where_there_is_none() -> None:
    """However few its branches, the branch and bound never denies a clique; with all of them it denies every other."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, size = int(rng.integers(2, 10)), int(rng.integers(1, 6))
        linked = np.triu(rng.random((n, n)) < rng.uniform(0.3, 0.9), 1)
        linked |= linked.T
        among = rng.random(n) < 0.9
        some = any(
            all(linked[a, b] for a, b in combinations(nodes, 2)) for nodes in combinations(np.flatnonzero(among), size)
        )
        denied = [has_no_clique(linked, among, size, most) for most in (0, 1, 2, 3, 5, 8, 10_000)]
        assert denied[-1] != some, seed
        assert not (some and any(denied)), seed


@pytest.mark.parametrize("block", blocks(24))
def test_candidate_bound_is_below_the_enumerated_optimum(block: int) -> None:
    """With stages, recompute, gradients and asymmetric links: the bound of a candidate is at most its optimum."""
    checked = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        n, gpus = (6, 1) if seed % 12 == 7 else [(4, 1), (2, 2), (4, 1), (2, 3)][seed % 4]
        rows = np.exp(rng.normal(-6, 0.8, (n, n)) if seed % 8 < 6 else rng.normal(-6, 0.8, (n * gpus, n * gpus)))
        spec = model(int(rng.integers(4, 6)), unlike=bool(seed % 3 == 0))
        table = costs(spec, seconds=dict.fromkeys(spec.kinds, 0.01), optimizer=1e-8)
        nodes = cluster(n, gpus, rows=rows.tolist(), latency_us=50.0 * (seed % 2), memory_gib=2e-3)
        planning = problem(nodes, spec, table=table, latency_model=[*LATENCY_MODELS][seed % 2], global_batch=12)
        best = BestLinks(planning.links, planning.rings)
        for choice in planning.candidates[(seed + block) % 24 :: 24]:
            if not has_cover(planning, choice):
                continue
            exact = enumerate_candidate(planning, choice).seconds
            if not np.isfinite(exact):
                continue
            stages = partition_problem(planning, choice)
            free = np.zeros(stages.num_layers + 1)
            covering = CoverSearch(planning, choice, solve_partition(stages, free, free), best, CoverCache())
            while not covering.annealed:
                covering.anneal(0, 1, moves=2000)
            for _ in range(10):
                if not covering.refine(exact):
                    break
            assert covering.lower_bound <= exact * ROUNDING, (seed, choice)
            proven = witnessed(planning, choice, json.loads(json.dumps(covering.witness())))
            assert proven is not None
            assert cover_bound(planning, choice, best, proven)[0] == pytest.approx(covering.lower_bound, rel=1e-12)
            checked += 1
    assert checked > 4


def test_different_devices_have_no_bound() -> None:
    """The pipeline of the slowest stage need not make the longest trip, so that their sum is no bound."""
    unlike = problem(cluster(4, 1, devices=("a", "b")), table=costs(model(), devices={"a": 1.0, "b": 2.0}))
    assert not any(has_cover(unlike, choice) for choice in unlike.candidates)


def test_annealing_finds_the_optimum_of_small_instances() -> None:
    """The best of the annealed pipelines is at least the optimum, and mostly equal to it."""
    met = 0
    for seed in range(48):
        graph = (random_graph if seed % 2 else shared_graph)(seed)
        start = np.repeat(np.arange(len(graph.hops)), graph.capacity).reshape(-1, graph.pp)
        run = PathAnnealing(graph, first_stage(0.5), start, moves=60_000, seed=seed)
        while not run.finished:
            run.advance(unraised())
        exact = optimum(graph, 0.5)
        assert sorted(run.best.ravel().tolist()) == sorted(start.ravel().tolist())
        assert run.seconds >= exact / ROUNDING
        met += run.seconds <= exact * ROUNDING
    assert met >= 44


def made(nodes: int, gpus: int, pp: int, spread: float, work: int, seed: int = 4) -> Document:
    """A plan without the exact dynamic program, whose one candidate carries a ``cover`` witness."""
    rows = np.exp(np.random.default_rng(seed).normal(-7.5, spread, (nodes, nodes))).tolist()
    spec = model(6)
    table = costs(spec, seconds={"block": 0.01})
    fixed = {"pp": pp, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    planning = problem(cluster(nodes, gpus, rows=rows), spec, table=table, global_batch=24, fixed=fixed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "few_multisets", lambda *_: False)
        result = search(planning, Limits(work_limit=work, workers=1))
    document: Document = json.loads(json.dumps(plan_document(planning, result, Limits(work_limit=work))))
    return document


@pytest.fixture(scope="module")
def plan() -> Document:
    """Twenty-four slots on six nodes: prices, those of first segments, splits, several numbers of touched nodes."""
    document = made(6, 4, 6, 0.5, 200, seed=2)
    witness = covered_entry(document)["witness"]
    assert any("first_gains" in proof for proof in witness["proofs"])
    assert any(isinstance(part["proof"], dict) for case in witness["boxes"] for part in case["parts"])
    assert len({tuple(case["touched"]) for case in witness["boxes"]}) > 1
    return document


@pytest.fixture(scope="module")
def single() -> Document:
    """Twenty-four nodes of one slot: multipliers and dual prices."""
    document = made(24, 1, 6, 0.5, 60)
    kinds = {"gains" if "gains" in p else "potentials" for p in covered_entry(document)["witness"]["proofs"]}
    assert "gains" in kinds
    return document


def covered_entry(document: Document) -> Document:
    entries: list[Document] = document["certificate"]["candidates"]
    return next(entry for entry in entries if entry["source"] == "cover")


@pytest.mark.parametrize("name", ["plan", "single"])
def test_a_certificate_in_a_plan_holds(name: str, request: pytest.FixtureRequest) -> None:
    """The document is accepted, its bound derived from the witness, and better than without it."""
    document = request.getfixturevalue(name)
    outcome = verify_document(document)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(document["certificate"]["lower_bound_s"], rel=1e-12)


def test_same_work_gives_the_same_plan() -> None:
    """The plan and its bound depend on seed and work alone, not on threads."""
    rng = np.random.default_rng(6)
    rows = np.exp(rng.normal(-7.5, 0.4, (24, 24))).tolist()
    graph = problem(cluster(24, 1, rows=rows), model(6), global_batch=24, fixed={"pp": 4, "tp": 1, "zero": 0})
    one, other = (search(graph, Limits(work_limit=25, workers=workers)) for workers in (1, 2))
    assert one.incumbent is not None and other.incumbent is not None
    assert one.incumbent.seconds == other.incumbent.seconds
    assert one.lower_bound == other.lower_bound
    assert [bound.witness for bound in one.bounds] == [bound.witness for bound in other.bounds]


def _quantum(witness: Document) -> None:
    _proof(witness, "gains")["quantum_s"] *= 1.2


def _levels(witness: Document) -> None:
    _proof(witness, "gains")["levels"] += 30


def _even_duals(witness: Document) -> None:
    duals = _proof(witness, "gains")["gains"]
    duals[:] = [[1, 2, 3, 4]] * len(duals)


def _other_first_duals(witness: Document) -> None:
    for proof in witness["proofs"]:
        if "first_gains" in proof:
            proof["first_gains"] = [[dual + 10**6 * v for dual in row] for v, row in enumerate(proof["first_gains"])]


def _no_first_duals(witness: Document) -> None:
    for proof in witness["proofs"]:
        proof.pop("first_gains", None)


def _short_duals(witness: Document) -> None:
    del _proof(witness, "gains")["gains"][0]


def _short_row(witness: Document) -> None:
    del _proof(witness, "gains")["gains"][0][0]


def _huge_duals(witness: Document) -> None:
    _proof(witness, "gains")["gains"][0][0] = 1 << 80


def _dropped_box(witness: Document) -> None:
    witness["boxes"].remove(_box(witness))


def _later_box(witness: Document) -> None:
    _box(witness)["from_s_per_byte"] += 1e-12


def _empty_box(witness: Document) -> None:
    _box(witness)["below_s_per_byte"] = _box(witness)["from_s_per_byte"]


def _fewer_touched(witness: Document) -> None:
    case = next(case for case in witness["boxes"] if case["touched"][0] < case["touched"][1] or case["touched"][0] > 1)
    case["touched"][1] -= 1


def _no_touched(witness: Document) -> None:
    _box(witness)["touched"] = [0, 0]


def _no_parts(witness: Document) -> None:
    _box(witness)["parts"] = []


def _no_proof(witness: Document) -> None:
    _box(witness)["parts"][0]["proof"] = None


def _unknown_proof(witness: Document) -> None:
    _box(witness)["parts"][0]["proof"] = len(witness["proofs"])


def _negative_proof(witness: Document) -> None:
    _box(witness)["parts"][0]["proof"] = -1


def _smaller_part(witness: Document) -> None:
    for case in witness["boxes"]:
        for part in case["parts"]:
            del part["nodes"][-1]


def _smaller_set(witness: Document) -> None:
    for proof in witness["proofs"]:
        del proof["nodes"][-1]


def _narrower_proofs(witness: Document) -> None:
    for proof in witness["proofs"]:
        proof["touched"] = [6, 6]


def _required_everywhere(witness: Document) -> None:
    for proof in witness["proofs"]:
        proof["required"] = [0]


def _repeated_node(witness: Document) -> None:
    witness["proofs"][0]["nodes"] = [0, 0]


def _no_such_node(witness: Document) -> None:
    witness["proofs"][0]["nodes"] = [6]


def _no_such_required(witness: Document) -> None:
    witness["proofs"][0]["required"] = [-1]


def _branch_cut_off(witness: Document) -> None:
    split = _split(witness)
    split["none" if split["none"] is not None else "some"] = None


def _split_at_all(witness: Document) -> None:
    _split(witness)["touching"] = [0, 1, 2, 3, 4, 5]


def _split_at_no_node(witness: Document) -> None:
    _split(witness)["touching"] = [6]


def _no_kind(witness: Document) -> None:
    _proof(witness, "gains").update(gains=None, first_gains=None, quantum_s=None, levels=None)


def _no_boxes(witness: Document) -> None:
    witness["boxes"] = []


def _text(witness: Document) -> None:
    witness["proofs"] = "none"


def _proof(witness: Document, name: str) -> Document:
    """The first proof with a key."""
    proofs: list[Document] = [proof for proof in witness["proofs"] if name in proof]
    return proofs[0]


def _box(witness: Document) -> Document:
    cases: list[Document] = witness["boxes"]
    return next(case for case in cases if case["parts"])


def _splits(witness: Document) -> list[tuple[Document, int]]:
    found, trees = [], [(part["proof"], case["touched"][1]) for case in witness["boxes"] for part in case["parts"]]
    while trees:
        tree, most = trees.pop()
        if isinstance(tree, dict):
            found.append((tree, most))
            trees += [(tree["some"], most), (tree["none"], most)]
    return found


def _split(witness: Document) -> Document:
    return _splits(witness)[0][0]


HELPERS = ("_proof", "_box", "_splits", "_split")
TAMPERED = [v for k, v in list(globals().items()) if k.startswith("_") and callable(v) and v.__module__ == __name__]
TAMPERED = [v for v in TAMPERED if v.__name__ not in ("_slowest", "_from_set", "_compositions", *HELPERS)]


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__.strip("_"))
def test_a_tampered_witness_is_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """With its digest made to match, a changed witness proves another bound or none."""
    changed = copy.deepcopy(plan)
    witness = covered_entry(changed)["witness"]
    tamper(witness)
    witness["sha256"] = digest({name: value for name, value in witness.items() if name != "sha256"})
    assert not verify_document(changed).holds


def test_any_changed_figure_of_a_witness_is_refused(plan: Document) -> None:
    """Without a new digest no number of the witness can be changed unnoticed."""
    for number in range(40):
        changed = copy.deepcopy(plan)
        witness = covered_entry(changed)["witness"]
        rng = np.random.default_rng(number)
        proofs = [proof for proof in witness["proofs"] if "gains" in proof]
        row = proofs[rng.integers(len(proofs))]["gains"][rng.integers(6)]
        row[rng.integers(4)] += 1
        assert not verify_document(changed).holds


def test_a_bound_beyond_the_witness_is_refused(plan: Document) -> None:
    """Stating more than the witness proves, or naming the source without a witness, fails the check."""
    changed = copy.deepcopy(plan)
    covered_entry(changed)["lower_bound_s"] *= 1.001
    assert not verify_document(changed).holds
    changed = copy.deepcopy(plan)
    covered_entry(changed)["witness"] = {}
    assert not verify_document(changed).holds


def test_a_certificate_with_a_set_left_out_proves_nothing() -> None:
    """Two racks, stage 0 in either: proofs for one rack do not cover the other."""
    rack = np.arange(18) // 9
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0) + np.random.default_rng(0).uniform(0, 0.1, (18, 18))
    hops = hops + hops.T
    graph = SlotGraph(
        hops=hops, inverse=hops, capacity=np.ones(18, np.int64), pp=6, replicas=3, card=np.zeros(len(hops))
    )
    whole = refined(graph, 3.0, 100.0).certificate()
    assert certified_bound(graph, whole) is not None
    for index, case in enumerate(whole.boxes):
        if case.parts:
            boxes = (*whole.boxes[:index], case.model_copy(update={"parts": ()}), *whole.boxes[index + 1 :])
            assert certified_bound(graph, CaseCertificate(proofs=whole.proofs, boxes=boxes)) is None
    written = witness_of(None, {WHOLE: whole})
    assert written["sha256"] == digest({k: v for k, v in written.items() if k != "sha256"})
