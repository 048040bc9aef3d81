"""Bugs planted in what search and check share: nearly every false certificate is refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from taut.formulations.problem import PlanningProblem
from tests.support.alike import alike_problem
from tests.support.expert_ranks import with_expert_copies, with_expert_shards
from tests.support.instances import random_problem
from tests.support.planted_bugs import BUGS, Instance, instances, planted, table, tally
from tests.support.small import cluster, costs, model, problem
from tests.support.unlike import filling_problem, slow_between_types, unlike_problem

pytestmark = pytest.mark.proof

QUICK = (
    "data-parallel ring halved",
    "last stage at half price",
    "candidates with pp=2 forgotten",
    "relaxation +10 %",
    "reductions of later stages forgotten",
)


def several_copies(seed: int) -> PlanningProblem:
    """Two nodes of two devices with slow links between, ZeRO-2 or 3, and layers too short to hide gathers."""
    rng = np.random.default_rng(seed)
    slow = float(rng.uniform(0.01, 0.1))
    nodes = cluster(2, 2, rows=[[0.0, slow], [slow, 0.0]])
    spec = model(int(rng.integers(2, 4)))
    table = costs(spec, seconds={"block": float(rng.uniform(1e-5, 1e-3))})
    given = problem(nodes, spec, table=table, latency_model="step", max_tp=1, zero=[2 + seed % 2], recompute=["none"])
    return replace(given, space=given.space.model_copy(update={"fixed": {"dp_shard": 2, "dp": 4}}))


def two_contexts(count: int) -> list[PlanningProblem]:
    """The first random problems with two context ranks to a block, at most five layers on four devices."""
    found: list[PlanningProblem] = []
    for seed in range(1, 1000, 3):
        given = random_problem(seed)
        space = given.space.model_copy(update={"fixed": {"cp": 2}})
        given = replace(given, space=space, latency_model="step")
        if given.candidates and given.cluster.num_devices <= 4:
            found.append(given)
        if len(found) == count:
            break
    return found


def sharded_experts(count: int, *, copies: bool = False) -> list[PlanningProblem]:
    """
    The first random problems with sharded experts that several devices hold, five layers on four devices at most.

    With ``copies`` every two replicas have one, also beside expert ranks.
    """
    found: list[PlanningProblem] = []
    for seed in range(1000):
        given = (with_expert_copies if copies else with_expert_shards)(seed, orders=False)
        given = replace(given, space=given.space.model_copy(update={"recompute": ["none"]}))
        small = given.cluster.num_devices <= 4 and len(given.model.blocks) <= 5
        if small and any(each.ep > 1 and each.edp > 1 and (each.dp_shard or not copies) for each in given.candidates):
            found.append(given)
        if len(found) == count:
            break
    return found


def two_classes(count: int) -> list[PlanningProblem]:
    """The first random problems on two or three types of device with slow links between, on at most four devices."""
    found: list[PlanningProblem] = []
    for seed in range(1000):
        given = slow_between_types(unlike_problem(seed), seed)
        fixed = {"pp": 2, "vpp": 1, "schedule": "1f1b"}
        space = given.space.model_copy(update={"fixed": fixed, "recompute": ["none"]})
        given = replace(given, space=space, latency_model="step")
        if given.candidates and given.cluster.num_devices <= 4 and len(given.model.blocks) <= 5:
            found.append(given)
        if len(found) == count:
            break
    return found


def filled_nodes(count: int) -> list[PlanningProblem]:
    """The first random problems of two stages and replicas on two nodes of two devices of unlike types."""
    found: list[PlanningProblem] = []
    fixed = {"pp": 2, "dp": 2, "vpp": 1, "schedule": "1f1b"}
    for seed in range(1000):
        given = filling_problem(seed, (2, 2))
        space = given.space.model_copy(update={"fixed": fixed, "zero": [0, 1], "recompute": ["none"]})
        given = replace(given, space=space, latency_model="step")
        if given.candidates and len(given.model.blocks) <= 5:
            found.append(given)
        if len(found) == count:
            break
    return found


def alike_nodes(count: int) -> list[PlanningProblem]:
    """The first random problems by AMP's model of two stages and replicas on two alike nodes of two devices."""
    found: list[PlanningProblem] = []
    for seed in range(1000):
        given = alike_problem(seed, (2, 2))
        space = given.space.model_copy(
            update={"fixed": {"pp": 2, "dp": 2, "vpp": 1, "schedule": "1f1b"}, "zero": [0], "recompute": ["none"]}
        )
        given = replace(given, space=space)
        if given.candidates and len(given.model.blocks) <= 5:
            found.append(given)
        if len(found) == count:
            break
    return found


@cache
def known(problems: Callable[..., list[PlanningProblem]], count: int, **options: bool) -> list[Instance]:
    """The first problems with their truth, which is enumerated once for all bugs."""
    return [Instance(each) for each in problems(count, **options)]


@pytest.fixture(scope="module")
def small() -> list[Instance]:
    """Ten small problems with their truth, so that each of the bugs makes a certificate false."""
    return instances(10)


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_refused(bug: str, small: list[Instance]) -> None:
    """Under a bug some certificates are false, and every false one is refused."""
    found = tally(bug, small)
    assert found.false > 0
    assert found.refused == found.false


@pytest.fixture(scope="module")
def gathered(small: list[Instance]) -> list[Instance]:
    """The same problems with weights and gradients sharded in every candidate with replicas."""
    spaces = [each.problem.space.model_copy(update={"zero": [2, 3]}) for each in small]
    return [
        Instance(replace(each.problem, space=space, latency_model="step"))
        for each, space in zip(small, spaces, strict=True)
    ]


@pytest.mark.parametrize("bug", ["gathers hidden altogether", "gathers of bounds doubled"])
def test_a_planted_bug_of_gathers_is_refused(bug: str, gathered: list[Instance]) -> None:
    """The same where gathers show."""
    found = tally(bug, gathered)
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", ["copies never summed", "cases of copies +30 %"])
def test_a_planted_bug_of_copies_is_refused(bug: str) -> None:
    """The same where four replicas on two nodes have two copies, which is faster than one that crosses nodes."""
    given = [Instance(several_copies(seed)) for seed in range(6)]
    found = tally(bug, given)
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize(
    "bug",
    [
        "hops between classes tripled",
        "rings of mixed stages tripled",
        "an all-slow pipeline beside another +30 %",
    ],
)
def test_a_planted_bug_of_two_classes_is_refused(bug: str) -> None:
    """The same on two types of device with slow links between, in two stages or more."""
    found = tally(bug, known(two_classes, 10))
    assert found.false > 0
    assert found.refused == found.false


def test_a_planted_bug_of_filled_nodes_is_refused() -> None:
    """The same on two nodes of two devices, where stage 0 fills one of them or is on both."""
    found = tally("ten more hops where stage 0 fills its nodes", known(filled_nodes, 12))
    assert found.false > 0
    assert found.refused == found.false


def test_a_planted_bug_of_whole_hops_is_refused() -> None:
    """The same on two alike nodes of two devices, where replicas of a stage leave their nodes together."""
    found = tally("hops between alike nodes ten times as long", known(alike_nodes, 12))
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize(
    "bug",
    ["keys and values sent for nothing", "contexts of bounds at half the rate", "context ranks in rings forgotten"],
)
def test_a_planted_bug_of_contexts_is_refused(bug: str) -> None:
    """The same where every block has two context ranks."""
    found = tally(bug, known(two_contexts, 6))
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", ["copies never summed", "cases of copies +30 %"])
def test_a_planted_bug_of_copies_beside_expert_ranks_is_refused(bug: str) -> None:
    """The same where candidates with and without expert ranks have two replicas to a copy."""
    found = tally(bug, known(sharded_experts, 8, copies=True))
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize(
    "bug",
    ["rings of experts forgotten", "reductions of experts forgotten", "gathers of experts in bounds tenfold"],
)
def test_a_planted_bug_of_sharded_experts_is_refused(bug: str) -> None:
    """The same where gradients are sharded everywhere, some weights as well, and experts over fewer devices."""
    found = tally(bug, known(sharded_experts, 16))
    assert found.false > 0
    assert found.refused == found.false


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_has_its_place(bug: str) -> None:
    """What a bug replaces is still there."""
    with planted(bug):
        pass


def test_without_a_bug_no_certificate_is_false(small: list[Instance]) -> None:
    """The search's certificates hold, and say what the enumeration says."""
    found = tally("", small)
    assert found.written > 0
    assert found.false == 0


@pytest.mark.long
def test_nine_of_ten_false_certificates_are_refused() -> None:
    """Over all bugs, at least twenty of which make certificates false, the check refuses at least 90 %."""
    given = instances(12)
    found = [tally(bug, given) for bug in BUGS]
    false, refused = sum(each.false for each in found), sum(each.refused for each in found)
    assert sum(each.false > 0 for each in found) >= 20, table(found)
    assert refused >= 0.9 * false, table(found)
