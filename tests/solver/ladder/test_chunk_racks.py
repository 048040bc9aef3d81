"""Bound ``order`` by racks: no case is above the least of its placements, whatever the division into racks."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.formulations.order_division import ChunkProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.chunk_racks import ChunkRacks, chunk_racks, rederived_by_racks
from taut.solver.ladder.chunk_types import chunk_cases, rederived_by_cases
from taut.solver.ladder.dominance import dominates_in_cases, inherited
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced.bound import order_bound
from taut.solver.order_priced.layer_bounds import linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.witness import rederived
from taut.solver.result import Limits
from taut.solver.search import order_refinement
from taut.solver.search.rack_trees import case_trees, rack_trees
from taut.solver.search.search import search
from tests.solver.bounds.test_rack_cases import best_links, layers, placed_in, with_contexts
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
ROUNDING = 1 + 1e-9
SHAPES = [(1, 1, 1, 2, 2), (1, 1, 1, 3, 2), (1, 1, 1, 2, 3), (1, 1, 2, 2, 1), (1, 1, 2, 3, 1), (2, 2, 1, 2, 1)]
"""Devices of a node, tensor and context degree, stages and replicas, of up to six devices."""


def racked_problem(
    seed: int, shapes: Sequence[tuple[int, int, int, int, int]] = SHAPES
) -> tuple[PlanningProblem, Candidate, Ints]:
    """One interleaved candidate on nodes in random racks: gradients from small to all that counts."""
    rng = np.random.default_rng(seed)
    gpus, tp, cp, pp, dp = shapes[seed % len(shapes)]
    vpp = 1 if seed % 9 == 8 else 2
    nodes = pp * dp * tp * cp // gpus
    rack = rng.permutation(np.arange(nodes) // max(nodes // pp, 1) if seed % 2 else rng.integers(0, 3, nodes))
    slower = float(rng.choice([1.5, 4.0, 10.0]))
    rate = np.exp(rng.normal(-3, 0.3, (nodes, nodes))) / np.where(np.equal.outer(rack, rack), 1.0, slower)
    spec = layers(max(pp * vpp, 3) + int(rng.integers(0, 2)), unlike=False)
    table = with_contexts(costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-11, -6))))))
    table = table.model_copy(update={"optimizer_s_per_parameter": {"d": 1e-9 * (seed % 2)}})
    links = cluster(nodes, gpus, rows=rate.tolist(), latency_us=20.0 * (seed % 3))
    fixed = {
        **{"pp": pp, "tp": tp, "cp": cp, "dp": dp, "zero": 0, "micro_batch": 1, "sequence_parallel": False},
        "schedule": "interleaved-1f1b" if vpp > 1 else "zb-h1",
        "vpp": vpp,
    }
    batch = dp * pp * int(rng.integers(1, 4))
    planning = problem(
        links, spec, table=table, latency_model="step", global_batch=batch, fixed=fixed, recompute=["none"], max_cp=4,
        schedules=[str(fixed["schedule"])], max_vpp=vpp,
    )  # fmt: skip
    planning = replace(planning, overlap_grad_reduce=seed % 3 == 1)
    (choice,) = planning.candidates
    return planning, choice, np.asarray(np.unique(rack, return_inverse=True)[1], dtype=np.int64)


def proven(given: ChunkProblem, limit: float) -> float:
    """Seconds that the whole tree of a case proves, derived again."""
    divisions = order_divisions(given)
    tree = LayerTree(given, linear_paths(given), limit, divisions)
    while tree.branch():
        continue
    found = rederived(given, json.loads(json.dumps(tree.witness())))
    assert found == pytest.approx(tree.seconds, rel=1e-8)
    return found


def order_divisions(given: ChunkProblem) -> tuple[Division, ...]:
    """Divisions to begin with."""
    return order_bound(given).divisions


def check(seed: int, change: Callable[[ChunkRacks], ChunkRacks] = lambda racks: racks) -> list[float]:
    """Check every case on its own, and all together; returns how much of the optimum of each case is proven."""
    planning, choice, rack = racked_problem(seed)
    best = best_links(planning, rack)
    racks = chunk_racks(planning, choice, best)
    if racks is None:
        return []
    racks, shares, optimum = change(racks), list[float](), enumerate_candidate(planning, choice).seconds
    for place in range(racks.most + 1):
        for spans in [False, True][: 1 + (place < choice.pp)]:
            exact = enumerate_candidate(planning, choice, placed_in(planning, rack, place, spans=spans)).seconds
            found = proven(racks.case(place, spans=spans), 1.5 * optimum)
            assert found <= exact * ROUNDING, f"above the optimum: {seed}, {place}, {spans}"
            shares += [found / exact] if np.isfinite(exact) else []
    every = rack_trees(racks, 1.5 * optimum, order_divisions(racks.given))
    if every is None:
        return shares
    every.branch_early()
    assert every.seconds <= optimum * ROUNDING, f"above the optimum: {seed}"
    assert rederived_by_racks(racks, json.loads(json.dumps(every.witness()))) == pytest.approx(every.seconds, rel=1e-8)
    return shares


def test_racks_are_told_apart_before_a_plan_is_known() -> None:
    """Without a limit in seconds the cases are bounded up to a multiple of a division, and derived again."""
    told = 0
    for seed in range(12):
        planning, choice, rack = racked_problem(seed)
        racks = chunk_racks(planning, choice, best_links(planning, rack))
        found = None if racks is None else rack_trees(racks, np.inf, order_divisions(racks.given))
        if racks is None or found is None:
            continue
        told += 1
        assert 0 < found.seconds <= enumerate_candidate(planning, choice).seconds * ROUNDING, seed
        derived = rederived_by_racks(racks, json.loads(json.dumps(found.witness())))
        assert derived == pytest.approx(found.seconds, rel=1e-8)
    assert told > 2


@pytest.mark.parametrize("block", blocks(25))
def test_no_case_is_above_the_optimum_of_its_placements(block: int) -> None:
    """200 instances: stage p spans racks, or may lie anywhere, after p confined ones; blocks of one node or two."""
    shares = np.array([share for seed in range(8 * block, 8 * block + 8) for share in check(seed)])
    assert len(shares) > 10
    assert (shares > 0.6).mean() > 0.25


def test_cases_of_racks_bound_what_they_dominate() -> None:
    """
    Bounds of the distributed optimizer, in all cases, are derived for the plain one, and are below its optimum.

    A witness that claims 1.2 optima, or lacks a case, proves nothing beyond the optimum.
    """
    shared = 0
    for seed in range(16):
        planning, plain, _ = racked_problem(seed)
        ladder, lean = Ladder(planning), plain.changed(zero=1)
        some, others = (chunk_cases(planning, one, ladder.links) for one in (lean, plain))
        divisions = order_divisions(some[0].given) if some else ()
        optimum = enumerate_candidate(planning, plain).seconds
        limit = 1.5 * optimum if np.isfinite(optimum) else 1e3
        trees = case_trees(some, limit, divisions, 0.0)
        if trees is None or not dominates_in_cases(some, others):
            continue
        shared += 1
        trees.branch_early()
        witness = json.loads(json.dumps(trees.witness()))
        derived = derived_bound(ladder, plain, "order", inherited(plain, lean, witness))
        assert 0.999 * trees.seconds <= derived <= optimum * ROUNDING, seed
        higher = {"racks": [], "rest": {"limit_s": 1.2 * limit}}
        fewer = {**witness, "racks": witness["racks"][:-1]}
        for wrong in (higher, fewer, {"rest": witness["rest"]}):
            assert derived_bound(ladder, plain, "order", inherited(plain, lean, wrong)) <= optimum * ROUNDING, seed
    assert shared > 5


def test_the_first_stage_waits_for_the_longer_of_ring_and_exchange() -> None:
    """An exchange between the ring on the best links and that across racks counts unless stage 0 spans racks."""
    planning, choice, rack = racked_problem(1)
    racks = chunk_racks(planning, choice, best_links(planning, rack))
    assert racks is not None
    given = racks.given
    mean = given.loads[0, -1] / choice.pp
    ring, exchange = 3 * given.rings[0], 2 * given.rings[0] * mean
    assert ring > 0
    racks = replace(racks, ring=np.full(choice.pp, ring), exchange=(exchange, exchange))
    cases = [racks.case(0, spans=True), racks.case(0, spans=False), racks.case(1, spans=True)]
    ends = np.zeros((1, choice.pp))
    first, alone, later = (case.seconds(ends, mean * np.eye(1, choice.pp))[0] - case.constant for case in cases)
    optimizer = given.optimizer * mean
    assert first == pytest.approx(ring * mean + optimizer)
    assert alone == later == pytest.approx(exchange + optimizer)


PLANTED: dict[str, Callable[[ChunkRacks], ChunkRacks]] = {
    "ring doubled": lambda racks: replace(racks, ring=2 * racks.ring),
    "hops between racks tenfold": lambda racks: replace(racks, hop=10 * racks.hop),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_shows(planted: str) -> None:
    """Each of the terms of the bound is needed: without it some instance is bounded above its optimum."""
    with pytest.raises(AssertionError, match="above the optimum"):
        for seed in range(20):
            check(seed, PLANTED[planted])


def made() -> Document:
    """A plan for four stages of two replicas, interleaved, on four racks of two nodes."""
    own = [{"nodes": list(range(2 * number, 2 * number + 2)), "bandwidth_gbps": 32} for number in range(4)]
    values = {**cluster(8, 1).model_dump(mode="json"), "network": {"bandwidth_gbps": 2, "racks": own}}
    spec = layers(11, unlike=False)
    fixed = {"pp": 4, "tp": 1, "dp": 2, "zero": 0, "micro_batch": 1, "schedule": "interleaved-1f1b", "vpp": 2}
    planning = problem(
        ClusterSpec.parse(values, "racks"), spec, table=costs(spec, seconds={"of64": 1e-4}), global_batch=16,
        latency_model="step", fixed=fixed, schedules=["interleaved-1f1b"], max_vpp=2, recompute=["none"], max_tp=1,
    )  # fmt: skip
    limits = Limits(work_limit=30, workers=1)
    document: Document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    return document


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan whose bound tells racks apart."""
    return made()


def entry(document: Document) -> Document:
    """The candidate with the plan."""
    (found,) = document["certificate"]["candidates"]
    return dict(found)


def test_a_certificate_by_racks_holds(plan: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is derived again, and is more than without racks."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert "racks" in entry(plan)["witness"]
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)
    monkeypatch.setattr(order_refinement, "chunk_cases", lambda *_: [])
    assert entry(made())["lower_bound_s"] < entry(plan)["lower_bound_s"] * (1 - 1e-3)


def _bound_raised(document: Document) -> None:
    document["certificate"]["candidates"][0]["lower_bound_s"] *= 1 + 1e-6


def _case_left_out(document: Document) -> None:
    document["certificate"]["candidates"][0]["witness"]["racks"].pop()


def _cases_are_numbers(document: Document) -> None:
    document["certificate"]["candidates"][0]["witness"]["racks"] = [0] * 12


@pytest.mark.parametrize("tamper", [_bound_raised, _case_left_out, _cases_are_numbers])
def test_a_tampered_bound_is_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """A bound that is raised, a case that is left out, and a witness that is none."""
    document = copy.deepcopy(plan)
    tamper(document)
    assert not verify_document(document).holds


def test_a_witness_of_cases_proves_nothing_without_racks() -> None:
    """On links that are alike, and with keys or cases that there are not."""
    planning, choice, rack = racked_problem(1)
    racks = chunk_racks(planning, choice, best_links(planning, rack))
    assert racks is not None
    rest = {"limit_s": 1e-9}
    assert rederived_by_racks(racks, {"racks": [], "rest": rest}) > 0
    assert rederived_by_cases([], {"racks": [], "rest": rest}) == -np.inf
    assert rederived_by_cases([racks, racks], {"classes": [{"racks": [], "rest": rest}]}) == -np.inf
    assert rederived_by_racks(racks, {"racks": [rest] * (racks.most + 1), "rest": rest}) == -np.inf
    assert rederived_by_racks(racks, {"racks": [], "rest": rest, "more": 0}) == -np.inf
    assert rederived_by_racks(racks, {"racks": []}) == -np.inf
