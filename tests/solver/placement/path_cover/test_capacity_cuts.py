"""Cuts on visits: no placement violates one, they cut off every fraction, and they close the gap on racks."""

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from taut.data.spec import digest
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.cases import certified_bound
from taut.solver.placement.path_cover.certificate import Cut, CutArrays, DualCertificate, certified_seconds, cut_arrays
from taut.solver.placement.path_cover.path_bound import CutPool, RestrictedMaster
from taut.solver.placement.slots import SlotGraph
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.solver.placement.path_cover.test_path_cover import covered_entry, optimum
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
RACKS = [
    (2, [3, 5]),
    (4, [5, 3]),
    (3, [4, 4, 4]),
    (5, [6, 4]),
    (4, [4, 4, 4]),
    (6, [4, 4, 4]),
    (2, [1, 3, 3, 5]),
    (4, [5, 5, 6]),
    (8, [4, 4, 4, 4]),
]
"""Slots of a path, and nodes by rack."""
RING = 0.3
"""Weight of the ring; the hop is that of the path."""


def random_graph(rng: np.random.Generator) -> SlotGraph:
    """Nodes of one to three slots in different places."""
    pp, paths, n = int(rng.integers(2, 7)), int(rng.integers(1, 5)), 0
    capacity: list[int] = []
    while (n := sum(capacity)) < pp * paths:
        capacity.append(int(rng.integers(1, min(3, pp * paths - n) + 1)))
    place = rng.random((len(capacity), 2))
    hops = np.linalg.norm(place[:, None] - place[None], axis=-1)
    return SlotGraph(
        hops=hops, inverse=hops, capacity=np.array(capacity), pp=pp, replicas=paths, card=np.zeros(len(hops))
    )


def racks(pp: int, sizes: list[int], noise: float, seed: int) -> SlotGraph:
    """Nodes of one slot, with a hop of 1 inside a rack and 4 between racks, up to some noise."""
    rng, rack = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    spread = np.triu(np.exp(rng.normal(0, noise, (len(rack), len(rack)))), 1)
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0) * (spread + spread.T)
    return SlotGraph(
        hops=hops,
        inverse=hops,
        capacity=np.ones(len(rack), np.int64),
        pp=pp,
        replicas=len(rack) // pp,
        card=np.zeros(len(hops)),
    )


def every_cut(graph: SlotGraph, rng: np.random.Generator) -> tuple[Cut, ...]:
    """Cuts of both kinds for random sets."""
    sets = [tuple(np.flatnonzero(rng.random(len(graph.hops)) < rng.random()).tolist()) for _ in range(8)]
    return tuple(Cut(nodes=nodes, mir=mir) for nodes in sets for mir in (False, True))


def test_no_placement_violates_a_cut() -> None:
    """Random paths through all slots satisfy every cut of random sets, and some with equality."""
    exactly = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng)
        cuts = cut_arrays(graph, every_cut(graph, rng))
        for _ in range(20):
            node = np.repeat(np.arange(len(graph.hops)), graph.capacity)
            near = np.argsort(rng.random(len(graph.hops)))[node] if rng.random() < 0.5 else rng.random(len(node))
            counts = cuts.coefficients(node[np.argsort(near, kind="stable")].reshape(-1, graph.pp)).sum(axis=0)
            assert (counts >= cuts.least).all(), seed
            exactly += int((counts == cuts.least).sum())
    assert exactly > 1000


def test_cuts_are_the_convex_hull_of_integer_visits() -> None:
    """The integer ways to visit b slots satisfy both cuts, and every corner that the cuts leave is integer."""
    for pp in range(2, 9):
        for b in range(1, 25):
            graph = SlotGraph(
                hops=np.ones((1, 1)),
                inverse=np.ones((1, 1)),
                capacity=np.array([b]),
                pp=pp,
                replicas=1,
                card=np.zeros(1),
            )
            cuts = cut_arrays(graph, (Cut(nodes=(0,), mir=False), Cut(nodes=(0,), mir=True)))
            lines = [((pp - 1), 1, b), (1, -1, 0), (0, 1, 0)]
            lines += list(zip(*(table.tolist() for table in (cuts.visit, cuts.start, cuts.least)), strict=True))
            v, s = np.meshgrid(np.arange(b + 1), np.arange(b + 1))
            whole = ((pp - 1) * v + s >= b) & (s <= v)
            assert all((a * v + c * s >= least)[whole].all() for a, c, least in lines), (pp, b)
            for corner in _corners(lines):
                assert np.allclose(corner, np.rint(corner)), (pp, b, corner)


def _corners(lines: list[tuple[int, int, int]]) -> list[np.ndarray]:
    """Points where two lines meet and none is crossed."""
    found = []
    for k, (a, c, least) in enumerate(lines):
        for other, further, bound in lines[:k]:
            if a * further != c * other:
                point = np.linalg.solve(np.array([[a, c], [other, further]], float), np.array([least, bound], float))
                if all(x * point[0] + y * point[1] >= z - 1e-9 for x, y, z in lines):
                    found.append(point)
    return found


def test_hops_and_starts_collect_the_prices_of_cuts() -> None:
    """The prices of a route's first node and of its hops sum to its coefficients times the prices of the cuts."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng)
        cuts = cut_arrays(graph, every_cut(graph, rng))
        duals = rng.integers(0, 50, len(cuts.least))
        hops, starts = cuts.hop_duals(duals), cuts.start_duals(duals)
        routes = rng.integers(0, len(graph.hops), (20, graph.pp))
        for route, counts in zip(routes.tolist(), cuts.coefficients(routes), strict=True):
            assert starts[route[0]] + sum(hops[a, b] for a, b in pairwise(route) if a != b) == counts @ duals


def test_cuts_of_clusters_may_be_violated_by_fractions() -> None:
    """Every cut sought is for racks and more than (1) says; racks that paths divide evenly have none."""
    everything = np.ones(9, dtype=bool)
    pool = CutPool(racks(4, [3, 3, 3], 0.01, 0))
    found = pool.candidates(everything)
    assert {cut.nodes for cut in found} >= {(0, 1, 2), (3, 4, 5), (6, 7, 8)}
    assert pool.candidates(~everything) == found
    even = CutPool(racks(3, [3, 3, 3], 0.0, 0)).candidates(everything)
    assert all(cut.mir for cut in even if len(cut.nodes) == 3)


def refined(graph: SlotGraph, target: float) -> CaseSearch:
    """A case distinction with as many refinements as a second takes."""
    cover = CaseSearch(graph=graph, gradients=RING, target=target, longest=target)
    for _ in range(120):
        if not cover.refine(rounds=20):
            break
    return cover


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_racks_are_proven(noise: float) -> None:
    """On racks that paths do not divide evenly the bound nearly reaches the optimum, and never exceeds it."""
    by_cuts = 0
    for seed, (pp, sizes) in enumerate(RACKS):
        graph = racks(pp, sizes, noise, seed)
        exact = optimum(graph, RING)
        cover = refined(graph, exact)
        assert exact * 0.985 <= cover.value <= exact * (1 + 1e-9), (pp, sizes)
        derived = certified_bound(graph, cover.certificate())
        assert derived is not None
        assert derived.seconds(1.0, np.array([RING]))[0] == pytest.approx(cover.value, rel=1e-12)
        proofs = [proof.by for proof in cover.certificate().proofs]
        by_cuts += any(proof.cuts for proof in proofs if isinstance(proof, DualCertificate))
    assert by_cuts > 3


def test_racks_need_the_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cuts one and a quarter paths fill a rack, and the bound stays far below the optimum."""
    monkeypatch.setattr(RestrictedMaster, "separate_cuts", lambda _: 0)
    graph = racks(4, [5, 5, 6], 0.0, 0)
    exact = optimum(graph, RING)
    assert refined(graph, exact).value < 0.8 * exact


def test_any_cuts_give_a_valid_bound() -> None:
    """Random prices of cuts of random sets, beside random prices by node, prove nothing that is not so."""
    proven, drawn = 0, []
    for seed in range(30):
        graph = racks(*RACKS[seed % 6], 0.1, seed)
        drawn.append((graph, optimum(graph, 0.0)))
    for seed in range(400):
        rng = np.random.default_rng(seed)
        (graph, exact), sizes = drawn[seed % 30], RACKS[seed % 6][1]
        n = len(graph.hops)
        sets = [tuple(np.flatnonzero(np.repeat(np.arange(len(sizes)), sizes) == r).tolist()) for r in range(len(sizes))]
        cuts = tuple((Cut(nodes=nodes, mir=bool(rng.integers(2))), int(rng.integers(0, 900))) for nodes in sets)
        later = tuple((int(dual),) for dual in rng.normal(100, 3, n))
        quantum = float(rng.uniform(0.1, 0.7)) * exact / 64
        proof = DualCertificate(quantum=quantum, limit=int(rng.integers(2, 64)), later=later, cuts=cuts)
        everything = np.ones(n, dtype=bool)
        found = certified_seconds(graph, everything, ~everything, (graph.min_touched, graph.max_touched), proof)
        assert found <= exact * (1 + 1e-9), seed
        proven += np.isfinite(found)
    assert proven > 40


def test_what_is_no_cut_is_refused() -> None:
    """Nodes that are none or twice there, and prices below zero or huge, prove nothing."""
    graph = racks(4, [3, 3, 2], 0.0, 0)
    everything = np.ones(8, dtype=bool)

    def proves(*cuts: tuple[Cut, int]) -> bool:
        proof = DualCertificate(quantum=0.02, limit=100, later=((1,),) * 8, cuts=cuts)
        return certified_seconds(graph, everything, ~everything, (graph.min_touched, graph.max_touched), proof) > 0

    good = tuple((Cut(nodes=nodes, mir=False), 100) for nodes in ((0, 1, 2), (3, 4, 5), (6, 7)))
    assert proves(*good)
    assert not proves()
    assert not proves(*good[:2])
    assert not proves(*good, (Cut(nodes=(0, 8), mir=False), 100))
    assert not proves(*good, (Cut(nodes=(0, -1), mir=False), 100))
    assert not proves(*good, (Cut(nodes=(0, 0), mir=False), 100))
    assert not proves(*good, (Cut(nodes=(0,), mir=False), -1))
    assert not proves(*good, (Cut(nodes=(0,), mir=False), 1 << 40))
    assert isinstance(cut_arrays(graph, ()), CutArrays)


@pytest.fixture(scope="module")
def plan() -> Document:
    """Twenty-four nodes in three racks, on which paths of six nodes are proven by cuts."""
    graph = racks(6, [7, 8, 9], 0.02, 3)
    table = costs(spec := model(6), seconds={"block": 0.01})
    fixed = {"pp": 6, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    rows = (1e-4 / (graph.hops + np.eye(24))).tolist()
    planning = problem(cluster(24, 1, rows=rows), spec, table=table, global_batch=24, fixed=fixed)
    limits = Limits(work_limit=40, workers=1)
    document: Document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    assert any("rules" in proof for proof in covered_entry(document)["witness"]["proofs"])
    return document


def test_cuts_in_a_plan_hold(plan: Document) -> None:
    """The certificate with cuts is accepted, with its bound."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)


def _no_cuts(proof: Document) -> None:
    del proof["rules"]


def _larger_price(proof: Document) -> None:
    for cut in proof["rules"]:
        cut["gain"] *= 20


def _all_nodes(proof: Document) -> None:
    for cut in proof["rules"]:
        cut["nodes"] = list(range(24))


def _one_node(proof: Document) -> None:
    for cut in proof["rules"]:
        cut["nodes"] = cut["nodes"][:1]


def _other_cut(proof: Document) -> None:
    for cut in proof["rules"]:
        cut["begun"] = not cut["begun"]


def _unknown_cut(proof: Document) -> None:
    proof["rules"][0]["begun"] = "both"


def _negative_price(proof: Document) -> None:
    proof["rules"][0]["gain"] = -1


def _node_twice(proof: Document) -> None:
    proof["rules"][0]["nodes"] *= 2


@pytest.mark.parametrize(
    "tamper",
    [_no_cuts, _larger_price, _all_nodes, _one_node, _other_cut, _unknown_cut, _negative_price, _node_twice],
    ids=lambda tamper: tamper.__name__.strip("_"),
)
def test_tampered_cuts_are_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """With its digest made to match, a witness with other cuts proves another bound or none."""
    changed = copy.deepcopy(plan)
    witness = covered_entry(changed)["witness"]
    for proof in witness["proofs"]:
        if "rules" in proof:
            tamper(proof)
    witness["sha256"] = digest({name: value for name, value in witness.items() if name != "sha256"})
    assert not verify_document(changed).holds
