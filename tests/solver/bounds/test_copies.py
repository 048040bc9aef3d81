"""Bounds by cases of the first stage, of several copies or a tied embedding, against enumeration."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from taut.formulations.tables.recent import Recent
from taut.solver.bounds.computations import partition
from taut.solver.bounds.copies import cases, has_cases
from taut.solver.bounds.ladder import Ladder
from taut.solver.bounds.link_bounds import BestLinks
from tests.support.instances import random_costs, random_problem
from tests.support.oracle import enumerate_candidate


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
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_bound_of_copies_is_above_the_optimum(first: int) -> None:
    """Of twenty random problems the bound of the first candidate with copies is no larger than its best placement."""
    for seed in range(first, first + 20):
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
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_bound_of_sharded_stages_is_above_the_optimum(first: int) -> None:
    """Of twenty random problems the bounds of a candidate with stages and shards are below its best placement."""
    for seed in range(first, first + 20):
        given = stages_with_shards(seed)
        several = [choice for choice in given.candidates if choice.pp > 1 and has_cases(given, choice)]
        several.sort(key=lambda choice: not choice.dp_shard)
        for candidate in several[:1]:
            best = enumerate_candidate(given, candidate).seconds
            ladder = Ladder(given)
            assert ladder.relaxation(candidate) <= best * (1 + 1e-9), seed
            assert partition(ladder, candidate).seconds <= best * (1 + 1e-9), seed


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
