"""Rules of visits: no placement breaks one, they cut off every fraction, and they close the gap on racks."""

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
from taut.solver.placement.path_cover.build import Cover
from taut.solver.placement.path_cover.capacity_cuts import Rule, RuleBook, Rules, rules_of
from taut.solver.placement.path_cover.cases import bound_of
from taut.solver.placement.path_cover.certificate import Refutation, refuted_seconds
from taut.solver.placement.path_cover.master import Master
from taut.solver.placement.slots import Slots
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


def random_slots(rng: np.random.Generator) -> Slots:
    """Nodes of one to three slots in unlike places."""
    pp, paths, n = int(rng.integers(2, 7)), int(rng.integers(1, 5)), 0
    capacity: list[int] = []
    while (n := sum(capacity)) < pp * paths:
        capacity.append(int(rng.integers(1, min(3, pp * paths - n) + 1)))
    place = rng.random((len(capacity), 2))
    hops = np.linalg.norm(place[:, None] - place[None], axis=-1)
    return Slots(hops=hops, inverse=hops, capacity=np.array(capacity), pp=pp, replicas=paths)


def racks(pp: int, sizes: list[int], noise: float, seed: int) -> Slots:
    """Nodes of one slot, with a hop of 1 inside a rack and 4 between racks, up to some noise."""
    rng, rack = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    spread = np.triu(np.exp(rng.normal(0, noise, (len(rack), len(rack)))), 1)
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0) * (spread + spread.T)
    return Slots(hops=hops, inverse=hops, capacity=np.ones(len(rack), np.int64), pp=pp, replicas=len(rack) // pp)


def every_rule(given: Slots, rng: np.random.Generator) -> tuple[Rule, ...]:
    """Rules of both kinds for random sets."""
    sets = [tuple(np.flatnonzero(rng.random(len(given.hops)) < rng.random()).tolist()) for _ in range(8)]
    return tuple(Rule(nodes=nodes, begun=begun) for nodes in sets for begun in (False, True))


def test_no_placement_breaks_a_rule() -> None:
    """Random paths through all slots count as much as every rule of random sets says, and some exactly that."""
    exactly = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        given = random_slots(rng)
        rules = rules_of(given, every_rule(given, rng))
        for _ in range(20):
            node = np.repeat(np.arange(len(given.hops)), given.capacity)
            near = np.argsort(rng.random(len(given.hops)))[node] if rng.random() < 0.5 else rng.random(len(node))
            counts = rules.counts(node[np.argsort(near, kind="stable")].reshape(-1, given.pp)).sum(axis=0)
            assert (counts >= rules.least).all(), seed
            exactly += int((counts == rules.least).sum())
    assert exactly > 1000


def test_rules_are_the_hull_of_whole_visits() -> None:
    """Of all ways to visit b slots, the whole ones keep both rules, and every corner that the rules leave is whole."""
    for pp in range(2, 9):
        for b in range(1, 25):
            given = Slots(hops=np.ones((1, 1)), inverse=np.ones((1, 1)), capacity=np.array([b]), pp=pp, replicas=1)
            rules = rules_of(given, (Rule(nodes=(0,), begun=False), Rule(nodes=(0,), begun=True)))
            lines = [((pp - 1), 1, b), (1, -1, 0), (0, 1, 0)]
            lines += list(zip(*(table.tolist() for table in (rules.visit, rules.begin, rules.least)), strict=True))
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


def test_hops_and_starts_gain_what_walks_count() -> None:
    """The gains of a walk's first node and of its hops sum to its counts times the gains of a count."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        given = random_slots(rng)
        rules = rules_of(given, every_rule(given, rng))
        gains = rng.integers(0, 50, len(rules.least))
        hops, starts = rules.by_hop(gains), rules.by_start(gains)
        walks = rng.integers(0, len(given.hops), (20, given.pp))
        for walk, counts in zip(walks.tolist(), rules.counts(walks), strict=True):
            assert starts[walk[0]] + sum(hops[a, b] for a, b in pairwise(walk) if a != b) == counts @ gains


def test_rules_of_clusters_are_broken_by_fractions() -> None:
    """Every rule sought is for racks and more than (1) says; racks that paths divide evenly have none."""
    everything = np.ones(9, dtype=bool)
    book = RuleBook(racks(4, [3, 3, 3], 0.01, 0))
    found = book.possible(everything)
    assert {rule.nodes for rule in found} >= {(0, 1, 2), (3, 4, 5), (6, 7, 8)}
    assert book.possible(~everything) == found
    even = RuleBook(racks(3, [3, 3, 3], 0.0, 0)).possible(everything)
    assert all(rule.begun for rule in even if len(rule.nodes) == 3)


def refined(given: Slots, target: float) -> Cover:
    """A staircase with as many refinements as a second takes."""
    cover = Cover(given=given, gradients=RING, target=target, longest=target)
    for _ in range(120):
        if not cover.refine(rounds=20):
            break
    return cover


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_racks_are_proven(noise: float) -> None:
    """On racks that paths do not divide evenly the bound nearly reaches the optimum, and never exceeds it."""
    by_rules = 0
    for seed, (pp, sizes) in enumerate(RACKS):
        given = racks(pp, sizes, noise, seed)
        exact = optimum(given, RING)
        cover = refined(given, exact)
        assert exact * 0.985 <= cover.value <= exact * (1 + 1e-9), (pp, sizes)
        derived = bound_of(given, cover.staircase())
        assert derived is not None
        assert derived.seconds(1.0, np.array([RING]))[0] == pytest.approx(cover.value, rel=1e-12)
        proofs = [proof.by for proof in cover.staircase().proofs]
        by_rules += any(proof.rules for proof in proofs if isinstance(proof, Refutation))
    assert by_rules > 3


def test_racks_need_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rules one and a quarter paths fill a rack, and the bound stays far below the optimum."""
    monkeypatch.setattr(Master, "take_up_rules", lambda _: 0)
    given = racks(4, [5, 5, 6], 0.0, 0)
    exact = optimum(given, RING)
    assert refined(given, exact).value < 0.8 * exact


def test_any_rules_give_a_valid_bound() -> None:
    """Random gains by rules of random sets, beside random gains by node, prove nothing that is not so."""
    proven = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        pp, sizes = RACKS[seed % 6]
        given = racks(pp, sizes, 0.1, seed % 30)
        exact, n = optimum(given, 0.0), len(given.hops)
        sets = [tuple(np.flatnonzero(np.repeat(np.arange(len(sizes)), sizes) == r).tolist()) for r in range(len(sizes))]
        rules = tuple((Rule(nodes=nodes, begun=bool(rng.integers(2))), int(rng.integers(0, 900))) for nodes in sets)
        later = tuple((int(gain),) for gain in rng.normal(100, 3, n))
        quantum = float(rng.uniform(0.1, 0.7)) * exact / 64
        proof = Refutation(quantum=quantum, levels=int(rng.integers(2, 64)), later=later, rules=rules)
        everything = np.ones(n, dtype=bool)
        found = refuted_seconds(given, everything, ~everything, (given.fewest, given.most), proof)
        assert found <= exact * (1 + 1e-9), seed
        proven += np.isfinite(found)
    assert proven > 40


def test_what_is_no_rule_is_refused() -> None:
    """Nodes that are none or twice there, and gains below zero or huge, prove nothing."""
    given = racks(4, [3, 3, 2], 0.0, 0)
    everything = np.ones(8, dtype=bool)

    def proves(*rules: tuple[Rule, int]) -> bool:
        proof = Refutation(quantum=0.02, levels=100, later=((1,),) * 8, rules=rules)
        return refuted_seconds(given, everything, ~everything, (given.fewest, given.most), proof) > 0

    good = tuple((Rule(nodes=nodes, begun=False), 100) for nodes in ((0, 1, 2), (3, 4, 5), (6, 7)))
    assert proves(*good)
    assert not proves()
    assert not proves(*good[:2])
    assert not proves(*good, (Rule(nodes=(0, 8), begun=False), 100))
    assert not proves(*good, (Rule(nodes=(0, -1), begun=False), 100))
    assert not proves(*good, (Rule(nodes=(0, 0), begun=False), 100))
    assert not proves(*good, (Rule(nodes=(0,), begun=False), -1))
    assert not proves(*good, (Rule(nodes=(0,), begun=False), 1 << 40))
    assert isinstance(rules_of(given, ()), Rules)


@pytest.fixture(scope="module")
def plan() -> Document:
    """Twenty-four nodes in three racks, on which paths of six nodes are proven by rules."""
    given = racks(6, [7, 8, 9], 0.02, 3)
    table = costs(spec := model(6), seconds={"block": 0.01})
    fixed = {"pp": 6, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    rows = (1e-4 / (given.hops + np.eye(24))).tolist()
    planning = problem(cluster(24, 1, rows=rows), spec, table=table, global_batch=24, fixed=fixed)
    limits = Limits(work_limit=40, workers=1)
    document: Document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    assert any("rules" in proof for proof in covered_entry(document)["witness"]["proofs"])
    return document


def test_rules_in_a_plan_hold(plan: Document) -> None:
    """The certificate with rules is accepted, with its bound."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)


def _no_rules(proof: Document) -> None:
    del proof["rules"]


def _more_gain(proof: Document) -> None:
    for rule in proof["rules"]:
        rule["gain"] *= 20


def _all_nodes(proof: Document) -> None:
    for rule in proof["rules"]:
        rule["nodes"] = list(range(24))


def _one_node(proof: Document) -> None:
    for rule in proof["rules"]:
        rule["nodes"] = rule["nodes"][:1]


def _other_rule(proof: Document) -> None:
    for rule in proof["rules"]:
        rule["begun"] = not rule["begun"]


def _unknown_rule(proof: Document) -> None:
    proof["rules"][0]["begun"] = "both"


def _negative_gain(proof: Document) -> None:
    proof["rules"][0]["gain"] = -1


def _node_twice(proof: Document) -> None:
    proof["rules"][0]["nodes"] *= 2


@pytest.mark.parametrize(
    "tamper",
    [_no_rules, _more_gain, _all_nodes, _one_node, _other_rule, _unknown_rule, _negative_gain, _node_twice],
    ids=lambda tamper: tamper.__name__.strip("_"),
)
def test_tampered_rules_are_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """With its digest made to match, a witness with other rules proves another bound or none."""
    changed = copy.deepcopy(plan)
    witness = covered_entry(changed)["witness"]
    for proof in witness["proofs"]:
        if "rules" in proof:
            tamper(proof)
    witness["sha256"] = digest({name: value for name, value in witness.items() if name != "sha256"})
    assert not verify_document(changed).holds
