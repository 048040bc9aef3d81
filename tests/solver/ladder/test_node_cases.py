"""Bounds by the first stage on more nodes than it needs: no case is above the least of its placements."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Flags, Ints
from taut.data.cluster import ClusterSpec
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds import rack_cases as module
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.rack_cases import rack_cases, share_nodes, solved_case
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.chunk_racks import ChunkRacks, chunk_racks, listed_in_cases, rederived_by_racks
from taut.solver.order_priced.stated import number_of, stated_seconds
from taut.solver.result import Limits
from taut.solver.search import order_refinement
from taut.solver.search.rack_trees import rack_trees
from taut.solver.search.search import search
from tests.solver.bounds.test_rack_cases import Document, layers
from tests.solver.ladder.test_chunk_racks import ROUNDING, order_divisions, proven, racked_problem
from tests.support.blocks import blocks
from tests.support.expert_ranks import SECONDS, with_expert_ranks
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, problem

pytestmark = pytest.mark.proof

SHAPES = [
    *((2, 1, 1, 2, 2), (2, 1, 1, 3, 2), (3, 1, 1, 3, 2), (2, 1, 1, 2, 3), (4, 2, 1, 2, 2), (2, 1, 1, 4, 1)),
    *((2, 1, 1, 2, 4), (3, 1, 1, 2, 3), (4, 1, 2, 2, 2)),
]
"""Devices of a node, tensor and context degree, stages and replicas: a stage fills nodes or leaves room."""


def confined_in(planning: PlanningProblem, choice: Candidate, place: int, *, spans: bool) -> Callable[[Ints], Flags]:
    """Flags of the placements (placements, pp, pipelines, width) of a case."""
    held = int(planning.links.gpus_per_node[0]) // choice.width
    fewest = -(-choice.pipelines // held)

    def holds(devices: Ints) -> Flags:
        of = np.sort(planning.links.node_of[devices].reshape(*devices.shape[:2], -1), axis=2)
        apart = 1 + (np.diff(of, axis=2) != 0).sum(axis=2) > fewest
        leading = ~apart[:, :place].any(axis=1)
        return np.asarray(leading & apart[:, place] if spans else leading)

    return holds


def check(seed: int, change: Callable[[ChunkRacks], ChunkRacks] = lambda nodes: nodes) -> list[float]:
    """Check every case of an order on its own, and all together; returns how much of each optimum is proven."""
    planning, choice, _ = racked_problem(seed, SHAPES)
    nodes = chunk_racks(planning, choice, BestLinks(planning.links, planning.rings))
    assert nodes is not None
    nodes, shares, optimum = change(nodes), list[float](), enumerate_candidate(planning, choice).seconds
    for place in range(nodes.most + 1):
        for spans in [False, True][: 1 + (place < nodes.most)]:
            exact = enumerate_candidate(planning, choice, confined_in(planning, choice, place, spans=spans)).seconds
            found = proven(nodes.case(place, spans=spans), 1.5 * optimum)
            assert found <= exact * ROUNDING, f"above the optimum: {seed}, {place}, {spans}"
            shares += [found / exact] if np.isfinite(exact) else []
    trees = rack_trees(nodes, 1.5 * optimum, order_divisions(nodes.given))
    if trees is not None:
        trees.branch_early()
        assert trees.seconds * (1 - 1e-9) <= optimum, f"above the optimum: {seed}"
        derived = rederived_by_racks(nodes, json.loads(json.dumps(trees.witness())))
        assert derived == pytest.approx(trees.seconds, rel=1e-8)
    if number_of(nodes.given) and (listed := listed_in_cases(nodes, 1.5 * optimum, 0.0)):
        assert listed.seconds <= optimum * ROUNDING, f"a list above the optimum: {seed}"
        assert rederived_by_racks(nodes, json.loads(json.dumps(listed.witness))) == listed.seconds
    return shares


@pytest.mark.parametrize("block", blocks(25))
def test_no_case_of_an_order_is_above_the_optimum_of_its_placements(block: int) -> None:
    """225 instances: stage p on more nodes than it needs, or anywhere, after p stages that need all they have."""
    shares = np.array([share for seed in range(9 * block, 9 * block + 9) for share in check(seed)])
    assert len(shares) > 10
    assert (shares > 0.8).mean() > 0.25


def with_experts(seed: int) -> PlanningProblem:
    """A problem with experts, one in three with context ranks too, on two nodes of four devices, or four of two."""
    given, rng = with_expert_ranks(seed, orders=False), np.random.default_rng((seed, 11))
    nodes, gpus = ((2, 4), (2, 4), (4, 2))[seed % 3]
    (first, *_) = given.cluster.model_dump(mode="json")["nodes"]
    rates = {"intra_bandwidth_gbps": 80.0 * rng.choice([1, 4]), "nic_bandwidth_gbps": float(rng.choice([4, 16, 32]))}
    network = {"bandwidth_gbps": 16, "latency_us": 3}
    spec = {"name": "nodes", "nodes": [{**first, "count": nodes, "gpus_per_node": gpus, **rates}], "network": network}
    # Rings count where layers take little time.
    factor = 10.0 ** rng.uniform(-4, 0)
    rows = [row.model_copy(update={name: factor * getattr(row, name) for name in SECONDS}) for row in given.costs.rows]
    table = given.costs.model_copy(update={"rows": rows})
    return replace(given, costs=table, cluster=ClusterSpec.parse(spec, "test"))


def check_experts(seed: int) -> list[float]:
    """Check every case of closed forms with expert or context ranks; returns how much of each optimum is proven."""
    planning, shares = with_experts(seed), list[float]()
    best = BestLinks(planning.links, planning.rings)
    closed = [choice for choice in planning.candidates if not (choice.is_order_priced or choice.of_tensor_groups)]
    told = [choice for choice in closed if share_nodes(planning, choice)]
    for choice in told[:: max(len(told) // 3, 1)]:
        nodes, comm = rack_cases(planning, choice, best), communication(planning, choice, best)
        assert nodes is not None
        stages, optimum = partition_problem(planning, choice), enumerate_candidate(planning, choice).seconds
        for place in range(len(nodes.crossings)):
            for spans in [False, True][: 1 + (place < len(nodes.crossings) - 1)]:
                among = confined_in(planning, choice, place, spans=spans)
                exact = enumerate_candidate(planning, choice, among).seconds
                found = solved_case(stages, comm, nodes, place, spans=spans, limit=np.inf).seconds
                assert found <= exact * ROUNDING, f"above the optimum: {seed}, {choice}, {place}, {spans}"
                shares += [found / exact] if np.isfinite(exact) else []
        assert partition_bound(planning, choice, comm, links=best)[0] <= optimum * ROUNDING, (
            f"above the optimum: {seed}"
        )
    return shares


@pytest.mark.parametrize("block", blocks(20))
def test_no_case_with_experts_is_above_the_optimum_of_its_placements(block: int) -> None:
    """120 instances in closed form, whose rings of experts and context ranks go where the stage goes."""
    shares = np.array([share for seed in range(6 * block, 6 * block + 6) for share in check_experts(seed)])
    assert len(shares) > 5
    assert (shares > 0.8).mean() > 0.25


PLANTED: dict[str, Callable[[ChunkRacks], ChunkRacks]] = {
    "ring doubled": lambda nodes: replace(nodes, ring=2 * nodes.ring),
    "hops between nodes tenfold": lambda nodes: replace(nodes, hop=10 * nodes.hop),
    "one hop more": lambda nodes: replace(nodes, crossings=nodes.crossings + 1),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_shows(planted: str) -> None:
    """Each of the terms of the bound is needed: without it some instance is bounded above its optimum."""
    with pytest.raises(AssertionError, match="above the optimum"):
        for seed in range(40):
            check(seed, PLANTED[planted])


def test_listed_divisions_of_all_cases_prove_more() -> None:
    """Of 60 instances the list of every case is no less than the list at the best links, more in some, and optimal."""
    told, plain = list[float](), list[float]()
    for seed in range(60):
        planning, choice, _ = racked_problem(seed, SHAPES)
        nodes = chunk_racks(planning, choice, BestLinks(planning.links, planning.rings))
        optimum = enumerate_candidate(planning, choice).seconds
        if nodes is None or not number_of(nodes.given) or not np.isfinite(optimum):
            continue
        plain.append(stated_seconds(nodes.given, 2 * optimum)[0] / optimum)
        if listed := listed_in_cases(nodes, 2 * optimum, plain[-1] * optimum):
            told.append(listed.seconds / optimum)
            assert plain[-1] * (1 - 1e-9) <= told[-1] <= ROUNDING
    assert len(plain) > 30
    assert sum(share > 0.999 for share in told) >= 3


def test_rings_of_experts_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rings across nodes half as long again some case with experts is bounded above its optimum."""
    old = module._seconds_across
    monkeypatch.setattr(module, "_seconds_across", lambda *given: 1.5 * old(*given))
    with pytest.raises(AssertionError, match="above the optimum"):
        for seed in range(24):
            check_experts(seed)


def made() -> Document:
    """A plan of two interleaved stages of four replicas on two nodes of four devices, whose network is slow."""
    spec, values = layers(11, unlike=False), {**cluster(2, 4).model_dump(mode="json"), "network": {"bandwidth_gbps": 2}}
    fixed = {"pp": 2, "tp": 1, "dp": 4, "zero": 0, "micro_batch": 1, "schedule": "interleaved-1f1b", "vpp": 2}
    planning = problem(
        ClusterSpec.parse(values, "nodes"), spec, table=costs(spec, seconds={"of64": 1e-4}), global_batch=16,
        latency_model="step", fixed=fixed, schedules=["interleaved-1f1b"], max_vpp=2, recompute=["none"], max_tp=1,
    )  # fmt: skip
    limits = Limits(work_limit=30, workers=1)
    document: Document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    return document


def test_a_certificate_by_nodes_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is derived again, and is more than without nodes; without a case it is refused."""
    document = made()
    outcome, (entry,) = verify_document(document), document["certificate"]["candidates"]
    assert outcome.faults == ()
    assert "racks" in entry["witness"]
    monkeypatch.setattr(order_refinement, "chunk_cases", lambda *_: [])
    (without,) = made()["certificate"]["candidates"]
    assert without["lower_bound_s"] < entry["lower_bound_s"] * (1 - 1e-4)
    entry["witness"]["racks"].pop()
    assert not verify_document(document).holds
