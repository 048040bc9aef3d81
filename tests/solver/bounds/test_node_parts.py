"""Bound ``partition`` by parts of stages on nodes with room: never above the least of all placements."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.model import ModelSpec
from taut.formulations.latency import step_time
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds import candidate_bounds
from taut.solver.bounds import rack_cases as rack_case_bounds
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.node_parts import Kind, NodeParts, Packing, kinds_of, node_parts
from taut.solver.bounds.rack_cases import _Hop, least_of_cases, rack_cases
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search import refinement
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.small import cluster, costs, problem

pytestmark = pytest.mark.proof

Change = Callable[[NodeParts], NodeParts]
ROUNDING = 1 + 1e-9
SHAPES = [(3, 2, 2, 3), (3, 2, 2, 3), (5, 2, 2, 5)]
"""Blocks of a node, nodes, blocks of a stage, and stages."""
RARE = (4, 3, 3, 4)
"""34,650 placements, which take a second."""


def of_experts(seed: int, room: int, nodes: int, members: int, pp: int) -> tuple[PlanningProblem, Candidate]:
    """A candidate of blocks of two expert ranks: every third layer dense, gradients from small to all that counts."""
    rng = np.random.default_rng(seed)
    experts = {"num_experts": 2, "experts_per_token": 1, "expert_ffn_hidden": int(rng.choice([16, 256]))}
    shape = {"hidden": 64, "heads": 4, "seq": 96}
    each = [
        {"kind": f"of{x % 3}", **shape, **({"experts": experts} if (x + seed) % 3 else {})}
        for x in range(pp + seed // 2 % 2)
    ]
    spec = ModelSpec.parse({"name": "small", "layers": each}, "small")
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-13, -9)))))
    apart = [row.model_copy(update={"ep": 2, "etp": 1}) for row in table.rows if row.tp == 1]
    update = {"rows": [*table.rows, *apart], "optimizer_s_per_parameter": {"d": 1e-9 * (seed % 2)}}
    table = table.model_copy(update=update)
    rate = np.exp(rng.normal(0, 0.3, (nodes, nodes)))
    nic = float(rng.uniform(2, 16)) if seed % 4 else None
    rows, latency = rate.tolist() if seed % 3 == 0 else None, float(rng.choice([0, 5]))
    links = cluster(nodes, 2 * room, rows=rows, nic_gbps=nic, latency_us=latency)
    fixed: dict[str, Any] = {"pp": pp, "tp": 1, "dp": 2 * members, "ep": 2, "zero": seed % 2, "micro_batch": 1}
    fixed |= {"schedule": ["1f1b", "gpipe"][seed // 3 % 2], "sequence_parallel": False}
    planning = problem(
        links, spec, table=table, latency_model="step", global_batch=2 * members * int(rng.integers(1, 9)),
        fixed=fixed, recompute=["none"], max_ep=2, max_tp=1, zero=[0, 1],
    )  # fmt: skip
    planning = replace(planning, overlap_grad_reduce=seed % 5 == 1)
    (choice,) = planning.candidates
    return planning, choice


@cache
def placements(room: int, nodes: int, members: int, pp: int) -> Ints:
    """Node of every block (placements, pp, members), of every placement."""

    def fill(left: tuple[int, ...], node: int) -> Iterator[dict[int, int]]:
        if node == nodes:
            yield {}
            return
        for taken in combinations(left, room):
            others = tuple(each for each in left if each not in taken)
            yield from ({**rest, **dict.fromkeys(taken, node)} for rest in fill(others, node + 1))

    every = [[found[block] for block in range(pp * members)] for found in fill(tuple(range(pp * members)), 0)]
    return np.array(every).reshape(-1, pp, members)


def optimum(planning: PlanningProblem, choice: Candidate, room: int, nodes: int) -> float:
    """Least step time over every division and every node of every block; devices of a node are alike."""
    node_of = placements(room, nodes, choice.pipelines, choice.pp)
    flat = node_of.reshape(len(node_of), -1)
    rank = np.array([[(line[:i] == line[i]).sum() for i in range(len(line))] for line in flat]).reshape(node_of.shape)
    devices = ((node_of * room + rank) * choice.width)[..., None] + np.arange(choice.width)
    layers, best = len(planning.model.blocks), np.inf
    for cuts in combinations(range(1, layers), choice.pp - 1):
        division = Division.of_ends(np.array([*cuts, layers]), np.zeros(choice.pp, dtype=np.int64))
        best = min(best, step_time(planning, Strategy(candidate=choice, division=division), devices).total.min())
    return float(best)


def check(seed: int, change: Change = lambda parts: parts) -> tuple[float, float] | None:
    """Check one instance; returns how much of the optimum is proven with and without parts."""
    room, nodes, members, pp = RARE if seed % 40 == 39 else SHAPES[seed % len(SHAPES)]
    planning, choice = of_experts(seed, room, nodes, members, pp)
    best = BestLinks(planning.links, planning.rings)
    parts, racks = node_parts(planning, choice, best), rack_cases(planning, choice, best)
    assert parts is not None and racks is not None
    parts, exact = change(parts), optimum(planning, choice, room, nodes)
    stages, comm = partition_problem(planning, choice), communication(planning, choice, best)
    found = parts.least(stages, comm, racks, np.inf).seconds
    assert found <= exact * ROUNDING, seed
    assert partition_bound(planning, choice, comm, links=best)[0] <= exact * ROUNDING, seed
    limit = exact * (0.97 + 0.02 * (seed % 3))
    assert min(parts.least(stages, comm, racks, limit).seconds, limit) == min(found, limit)
    return found / exact, least_of_cases(stages, comm, racks).seconds / exact


@pytest.mark.parametrize("block", blocks(10))
def test_no_bound_by_parts_is_above_the_optimum(block: int) -> None:
    """Two hundred instances: rings of experts and others, hops with and without their way back, unlike links."""
    shares = np.array([check(seed) for seed in range(20 * block, 20 * block + 20)])
    assert (shares[:, 0] > 1 - 1e-9).mean() > 0.2
    assert (shares[:, 0] > shares[:, 1] * (1 + 1e-6)).mean() > 0.4


@pytest.mark.parametrize("seed", [0, 25, 33])
def test_stages_that_touch_several_nodes_at_the_least_may_all_do_so(seed: int) -> None:
    """Three blocks on nodes with room for two: each of two stages touches two of three nodes, and none has a third."""
    planning, choice = of_experts(seed, 2, 3, 3, 2)
    best = BestLinks(planning.links, planning.rings)
    found = partition_bound(planning, choice, communication(planning, choice, best), links=best)[0]
    assert found <= optimum(planning, choice, 2, 3) * ROUNDING


def test_kinds_whose_rings_change_places_with_the_layers_are_bounded() -> None:
    """Where links between nodes are nearly as quick as inside, the best kind depends on what a stage has of experts."""
    for seed in (2, 8, 25, 29, 44):
        room, nodes, *more = SHAPES[seed % 3]
        planning, _ = of_experts(seed, room, nodes, *more)
        rate = 10 * np.exp(np.random.default_rng((seed, 3)).uniform(-0.7, 0.1, (nodes, nodes)))
        planning = replace(planning, cluster=cluster(nodes, 2 * room, rows=rate.tolist()))
        (choice,) = planning.candidates
        best = BestLinks(planning.links, planning.rings)
        parts, racks = node_parts(planning, choice, best), rack_cases(planning, choice, best)
        assert parts is not None and racks is not None
        comm = communication(planning, choice, best)
        found = parts.least(partition_problem(planning, choice), comm, racks, np.inf).seconds
        assert found <= optimum(planning, choice, room, nodes) * ROUNDING, seed


def without_kind(parts: NodeParts) -> NodeParts:
    """Parts without the widest kind, which some packing needs."""
    return replace(parts, kinds=parts.kinds[:-1], seconds=parts.seconds[:-1], unhidden=parts.unhidden[:-1])


PLANTED: dict[str, Change] = {
    "rings dearer": lambda parts: replace(parts, seconds=1.2 * parts.seconds, unhidden=1.2 * parts.unhidden),
    "a kind left out": without_kind,
    "a node more": lambda parts: replace(parts, nodes=parts.nodes + 1),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_shows(planted: str) -> None:
    """With a bug some instance is bounded above its optimum."""
    with pytest.raises(AssertionError):
        for seed in range(20):
            check(seed, PLANTED[planted])


def test_hops_counted_too_often_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packings that may make one hop fewer are too few."""
    of = Packing.of
    monkeypatch.setattr(Packing, "of", lambda self, allowed, most, *steps: of(self, allowed, most - 1, *steps))
    with pytest.raises(AssertionError):
        for seed in range(20):
            check(seed)


@pytest.mark.parametrize(("members", "room", "nodes"), [(2, 3, 2), (3, 4, 3), (2, 5, 2)])
def test_packings_are_those_of_an_enumeration(members: int, room: int, nodes: int) -> None:
    """Random kinds of every stage: a packing is found where a placement has these kinds and so few hops."""
    pp, rng = room * nodes // members, np.random.default_rng(members)
    every, packing = kinds_of(members, nodes), Packing(members, room, nodes)
    counts = (placements(room, nodes, members, pp)[..., None] == np.arange(nodes)).sum(axis=2)
    hops = (members - np.minimum(counts[:, 1:], counts[:, :-1]).sum(axis=2)).sum(axis=1)
    known: dict[tuple[Kind, ...], int] = {}
    for line, made_hops in zip(-np.sort(-counts, axis=2), hops.tolist(), strict=True):
        kinds = tuple(tuple(part for part in kind if part) for kind in line.tolist())
        known[kinds] = min(known.get(kinds, made_hops), made_hops)
    for _ in range(60):
        allowed = [[kind for kind in every if rng.random() < 0.6] or every for _ in range(pp)]
        fits = [number for kinds, number in known.items() if all(map(list.__contains__, allowed, kinds))]
        for most in range(pp):
            found = packing.of(allowed, most)
            assert (found is not None) == (min(fits, default=pp * members) <= members * most)
            if found is not None:
                assert_packs(found, allowed, room, nodes)


@pytest.mark.parametrize(("seed", "most"), [(3, 1), (241, 1)])
def test_a_state_that_failed_is_asked_again_after_fewer_hops(seed: int, most: int) -> None:
    """Six stages of five blocks on five nodes with room for six: what fails after many hops may do after fewer."""
    rng, every = np.random.default_rng(seed), kinds_of(5, 5)
    allowed = [[kind for kind in every if rng.random() < 0.6] or every for _ in range(6)]
    found = Packing(5, 6, 5).of(allowed, most)
    assert found is not None
    assert_packs(found, allowed, 6, 5)


def assert_packs(found: list[tuple[tuple[int, int], ...]], allowed: list[list[Kind]], room: int, nodes: int) -> None:
    """Every stage has parts of a kind that it allows, and every node is full."""
    held = np.zeros(nodes, dtype=np.int64)
    for stage, kinds in zip(found, allowed, strict=True):
        assert tuple(sorted((part for _, part in stage), reverse=True)) in kinds
        assert len({node for node, _ in stage}) == len(stage)
        np.add.at(held, [node for node, _ in stage], [part for _, part in stage])
    assert (held == room).all()


def made(seed: int) -> dict[str, Any]:
    """A plan of an instance whose bound tells parts apart."""
    planning, _ = of_experts(seed, *SHAPES[seed % len(SHAPES)])
    limits = Limits(work_limit=30, workers=1)
    document: dict[str, Any] = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    return document


def test_a_certificate_by_parts_holds_and_a_planted_bug_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is derived again, is more than without parts, and that of a search with dearer rings is refused."""
    outcome, document = verify_document(made(3)), made(3)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(document["certificate"]["lower_bound_s"], rel=1e-12)

    def changed(change: Change) -> Callable[..., NodeParts | None]:
        def told(*given: Any) -> NodeParts | None:
            parts = node_parts(*given)
            return None if parts is None else change(parts)

        return told

    with monkeypatch.context() as patched:
        patched.setattr(candidate_bounds, "node_parts", lambda *_: None)
        assert made(3)["certificate"]["lower_bound_s"] < outcome.lower_bound * (1 - 1e-4)
    for change in PLANTED.values():
        with monkeypatch.context() as patched:
            patched.setattr(candidate_bounds, "node_parts", changed(change))
            false = [made(seed) for seed in (4, 10, 16)]
        assert any(not verify_document(each).holds for each in false)


def test_a_bug_that_search_and_check_share_is_refused_by_exchanged_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Hops between nodes count half as much again: what undercuts the bound has two whole stages in other places.

    The search that made the plan exchanges none, or its own plan would undercut the bound.
    """
    planning, choice = of_experts(2, *SHAPES[2])
    hop = rack_case_bounds._hop
    monkeypatch.setattr(rack_case_bounds, "_hop", lambda *given: _Hop(*(1.5 * each for each in hop(*given))))
    monkeypatch.setattr(refinement, "improved", lambda _, start, **__: start)
    limits = Limits(work_limit=30, workers=1)
    document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    assert document["certificate"]["lower_bound_s"] > optimum(planning, choice, *SHAPES[2][:2]) * 1.02
    assert "sampled plan" in str(verify_document(document).faults)
