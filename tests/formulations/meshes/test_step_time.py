"""Step time of pipelines of meshes, beside that of ordinary plans and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.cluster import ClusterSpec
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.links import links
from taut.formulations.meshes.choice import Mesh, MeshChoice
from taut.formulations.meshes.step_time import common_shares, crossing, mesh_memory, mesh_step, mesh_violations
from taut.formulations.strategy import Strategy
from tests.support.meshes import mesh_choices, mesh_problem, random_plan
from tests.support.small import cluster


@pytest.mark.parametrize("start", [0, pytest.param(20, marks=pytest.mark.proof)])
def test_equal_degrees_are_an_ordinary_plan(start: int) -> None:
    """Meshes of one tp and dp cost what the ordinary evaluator says of their stages in a row, and hold as much."""
    compared = 0
    for seed in range(start, start + 20):
        problem, rng = mesh_problem(seed), np.random.default_rng(seed)
        alike = [c for c in mesh_choices(problem) if len({(mesh.tp, mesh.dp) for mesh in c.meshes}) == 1]
        for choice in alike[:: max(len(alike) // 3, 1)]:
            plan = random_plan(rng, problem, choice)
            strategy, devices = Strategy(candidate=choice.candidate(0), division=plan.division), plan.devices
            ordinary = step_time(problem, strategy, np.concatenate(devices))
            assert mesh_step(problem, plan).total == pytest.approx(float(ordinary.total), rel=1e-12)
            assert mesh_memory(problem, plan) == memory_bytes(problem, strategy)
            compared += 1
    assert compared > 10


def test_ranks_share_what_their_parts_have_in_common() -> None:
    """Thirds and halves: the middle third is half in either half; shares of the whole add up to it."""
    assert common_shares(3, 2) == pytest.approx(np.array([[2, 0], [1, 1], [0, 2]]) / 6)
    assert common_shares(4, 4) == pytest.approx(np.eye(4) / 4)


def test_a_rank_sends_its_pieces_in_turn() -> None:
    """
    One rank of tp 1 sends halves of 12 GB to the two of tp 2 on another node, at 1 GB/s and 2 s of latency.

    It takes 2 (2 + 6) = 16 s for both, and each of the two, which receives 8 s, is there after the sender is done.
    """
    network = links(cluster(2, 2, latency_us=2e6))
    found = crossing(network, 1.0 / network.rate, np.array([[0]]), np.array([[2, 3]]), 12e9)
    assert found.forth.tolist() == found.back.tolist() == [[16.0, 16.0]]


def test_pipelines_are_replicas_that_share_no_sequence() -> None:
    """Four replicas before six are two pipelines, of two and three replicas; each with degrees of an own candidate."""
    choice = MeshChoice((Mesh(0, 2, 4, 1, 3), Mesh(1, 1, 6, 2, 2)), 5, 1)
    assert (choice.pp, choice.pipelines, choice.mesh_of_stage) == (3, 2, [0, 1, 1])
    assert (choice.candidate(1).pp, choice.candidate(1).dp, choice.candidate(1).sequence_parallel) == (3, 6, False)


def test_violations_name_what_is_wrong() -> None:
    """Devices of another type, torn tensor groups, devices used twice and stages out of order are refused."""
    seed = next(s for s in range(100) if any(c.meshes[0].tp > 1 and c.meshes[0].pp > 1 for c in _choices(s)))
    problem = mesh_problem(seed)
    choice = next(c for c in _choices(seed) if c.meshes[0].tp > 1 and c.meshes[0].pp > 1)
    plan = random_plan(np.random.default_rng(0), problem, choice)
    swapped = [devices.copy() for devices in plan.devices]
    swapped[0].flat[0], swapped[1].flat[0] = plan.devices[1].flat[0], plan.devices[0].flat[0]
    words = [str(broken) for broken in mesh_violations(problem, replace(plan, devices=tuple(swapped)))]
    assert any("another type" in line for line in words) and any("several nodes" in line for line in words)
    twice = (np.zeros_like(plan.devices[0]), *plan.devices[1:])
    assert [*map(str, mesh_violations(problem, replace(plan, devices=twice)))] == [
        "not every device is used exactly once"
    ]
    less = replace(plan.division, stages=plan.division.stages[::-1])
    assert [*map(str, mesh_violations(problem, replace(plan, division=less)))] == [
        "the stages do not divide the layers in order"
    ]


def _choices(seed: int) -> list[MeshChoice]:
    return mesh_choices(mesh_problem(seed))


def test_cards_are_shared_by_the_ranks_of_a_pipeline() -> None:
    """Two replicas of tp 2 that feed one of tp 2: four ranks of a node send at once, each a quarter of its cards."""
    from taut.formulations.meshes.step_time import hop_inverse

    seed = next(s for s in range(100) if _choices(s))
    problem = mesh_problem(seed)
    values = cluster(2, 4, nic_gbps=16, devices=("d0", "d1"))
    given = replace(problem, cluster=ClusterSpec.parse(values.model_dump(), "cards"))
    inverse = hop_inverse(given, MeshChoice((Mesh(0, 2, 2, 1, 1), Mesh(1, 2, 1, 2, 2)), 1, 0))
    # 2 GB/s of cards by four ranks on one side, by two on the other: the slower of 0.5 and 1 GB/s.
    assert float(inverse[0, 1]) == pytest.approx(1 / 0.5e9)
