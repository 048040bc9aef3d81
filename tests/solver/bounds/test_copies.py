"""Bounds by cases of the first stage, of several copies or a tied embedding, against enumeration."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.gradient_reductions import slowest_rings
from taut.formulations.problem import PlanningProblem, Recent
from taut.formulations.terms import reductions_of
from taut.solver.bounds.copies import cases, has_cases, least_reduction_of_copies
from taut.solver.bounds.least_rings import least_reduction
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.ladder.computations import order, partition
from taut.solver.ladder.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.instances import random_costs, random_problem
from tests.support.oracle import enumerate_candidate
from tests.support.unlike import filling_problem


def several_copies(seed: int, tp: int = 1) -> PlanningProblem:
    """A random problem with one stage, whose replicas are two to a copy where they are four or more."""
    given = random_problem(seed, large=seed % 2 == 0, measured=seed % 6 == 5)
    fixed: dict[str, int | str | bool] = {"pp": 1, "tp": tp, "dp_shard": 2}
    space = given.space.model_copy(
        update={
            "zero": [2, 3],
            "pipeline_zero": None,
            "recompute": ["none"],
            "recompute_by_stage": True,
            "fixed": fixed,
        }
    )
    return replace(given, space=space, latency_model="step")


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6, first=2))
def test_no_bound_of_copies_is_above_the_optimum(block: int) -> None:
    """Of twenty random problems the bound of the first candidate with copies is no larger than its best placement."""
    for seed in range(20 * block, 20 * block + 20):
        given = several_copies(seed)
        for candidate in [choice for choice in given.candidates if choice.dp_shard][:1]:
            best = enumerate_candidate(given, candidate).seconds
            assert partition(Ladder(given), candidate).seconds <= best * (1 + 1e-9), seed


@pytest.mark.proof
def test_no_bound_of_copies_is_above_the_optimum_where_tensor_groups_span_nodes() -> None:
    """Two tensor ranks on nodes of one device: the rings of each rank touch one node of every group."""
    checked = 0
    for seed in range(0, 400, 2):
        given = several_copies(seed, tp=2)
        if int(given.links.gpus_per_node.max()) > 1:
            continue
        for candidate in [choice for choice in given.candidates if choice.dp_shard][:1]:
            best = enumerate_candidate(given, candidate).seconds
            assert partition(Ladder(given), candidate).seconds <= best * (1 + 1e-9), seed
            checked += 1
    assert checked > 3


def stages_with_shards(seed: int) -> PlanningProblem:
    """A random problem with two or more stages and sharded weights, embeddings tied but for one in four."""
    given = random_problem(seed, large=seed % 2 == 0, measured=seed % 6 == 5)
    space = given.space.model_copy(
        update={"zero": [2, 3], "pipeline_zero": None, "recompute": ["none"], "recompute_by_stage": True}
    )
    model = given.model.model_copy(update={"vocab": 64, "tied_embedding": seed % 4 > 0})
    costs = random_costs(np.random.default_rng(seed), model, given.cluster, space)
    return replace(given, model=model, costs=costs, space=space, latency_model="step")


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6, first=2))
def test_no_bound_of_sharded_stages_is_above_the_optimum(block: int) -> None:
    """Of twenty random problems the bounds of a candidate with stages and shards are below its best placement."""
    for seed in range(20 * block, 20 * block + 20):
        given = stages_with_shards(seed)
        several = [choice for choice in given.candidates if choice.pp > 1 and has_cases(given, choice)]
        several.sort(key=lambda choice: not choice.dp_shard)
        for candidate in several[:1]:
            best = enumerate_candidate(given, candidate).seconds
            ladder = Ladder(given)
            assert ladder.relaxation(candidate) <= best * (1 + 1e-9), seed
            assert partition(ladder, candidate).seconds <= best * (1 + 1e-9), seed


def orders_with_copies(seed: int) -> PlanningProblem:
    """A random problem of two stages on alike devices or not, priced by their order, with two replicas to a copy."""
    given = stages_with_shards(2 * seed) if seed % 3 else filling_problem(seed, [(2, 2, 2, 2), (4, 4)][seed % 2])
    zero, fixed = [[2, 3], [1]][seed % 5 == 0], {"pp": 2, "dp_shard": 2}
    changes = {"zero": zero, "pipeline_zero": None, "recompute": ["none"], "schedules": ["zb-h1", "zb-h2"]}
    space = given.space.model_copy(update={**changes, "recompute_by_stage": True, "fixed": fixed})
    return replace(given, space=space, latency_model="step")


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10))
def test_no_placement_has_quicker_rings_of_copies_than_the_least_case(block: int) -> None:
    """Two thousand candidates, two hundred a block, each in two hundred placements of its blocks: none is quicker."""
    checked, attained, seed = 0, 0, 60_000 * block
    while checked < 200:
        seed += 1
        given, rng = orders_with_copies(seed), np.random.default_rng(seed)
        best = BestLinks(given.links, given.rings)
        for candidate in [each for each in given.candidates if each.dp_shard][:4]:
            devices = np.arange(given.cluster.num_devices).reshape(-1, candidate.width)
            ways = np.array([np.arange(len(devices)), *(rng.permutation(len(devices)) for _ in range(200))])
            placed = devices[ways].reshape(len(ways), candidate.pp, candidate.pipelines, candidate.width)
            reduced = reductions_of(given.terms(candidate))[0]
            found = float(reduced.rate(slowest_rings(given, placed)).min())
            least = least_reduction_of_copies(given, candidate, best)
            assert least <= found * (1 + 1e-9), (seed, candidate)
            checked, attained = checked + 1, attained + (least >= found * (1 - 1e-9))
    assert attained > 10


@pytest.mark.proof
@pytest.mark.parametrize(
    "seed", [209, 394, *(pytest.param(seed, marks=pytest.mark.long) for seed in (128, 304, 358, 376, 377))]
)
def test_no_bound_of_an_order_with_copies_is_above_the_optimum(seed: int) -> None:
    """Where the rings of copies take more together than each asks for alone, on eight devices."""
    given = orders_with_copies(seed)
    ladder = Ladder(given)
    candidate = next(each for each in given.candidates if each.dp_shard)
    reduction = least_reduction_of_copies(given, candidate, ladder.links)
    assert reduction > 1.01 * least_reduction(given, candidate, ladder.links)
    assert order(ladder, candidate).seconds <= enumerate_candidate(given, candidate).seconds * (1 + 1e-9)


def test_copies_of_two_racks_cross_between_them_in_gathers_or_in_rings() -> None:
    """With slow links between racks no case has both its gathers and its rings on fast links, (4)."""
    given = several_copies(0)
    nodes = given.cluster.nodes[0].model_copy(update={"count": 4, "gpus_per_node": 2, "nic_bandwidth_gbps": None})
    fast, slow = 10.0, 0.1
    rack = np.arange(4) // 2
    rows = np.where(np.equal.outer(rack, rack), fast, slow).tolist()
    cluster = given.cluster.model_validate(
        {"name": "racks", "nodes": [nodes.model_dump()], "bandwidth_matrix": {"unit": "Gb/s", "rows": rows}}
    )
    space = given.space.model_copy(update={"global_batch": 8})
    found = replace(given, cluster=cluster, space=space, _shared=Recent(0))
    candidate = next(choice for choice in found.candidates if choice.dp_shard)
    across = 1 / (slow * 1e9 / 8)
    for case in cases(found, candidate, BestLinks(found.links, found.rings)):
        assert max(case.gather, case.reduction) >= across * (1 - 1e-9)
