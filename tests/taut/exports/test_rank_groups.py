"""
Groups of processes that degrees imply, beside those that megatron-core builds.

The package is asked where it is installed (``pip install 'taut[launchers]'``).
"""

import csv
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import TautError
from taut.exports.job import rank_table
from taut.formulations.space import Candidate
from tests.support.launches import (
    ROUTED_BATCH,
    asked,
    groups_of_rank,
    launched_on,
    model_with_experts,
    small_cluster,
)
from tests.support.rank_groups import rank_groups

CONFIGURATIONS = 200
RANKS = 3
"""Processes of each configuration whose groups are compared."""
SHAPES = [(1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (3, 6), (4, 8), (8, 8), (4, 12)]
"""Nodes, and GPUs of each."""


def drawn(rng: np.random.Generator) -> tuple[dict[str, int], int, int, int]:
    """Degrees, number of experts, nodes, and GPUs of each; nine in ten times the degrees divide the devices."""
    nodes, gpus = SHAPES[rng.integers(len(SHAPES))]
    while True:
        tp = int(rng.choice([1, 2, 3, 4]))
        degrees = {
            "pp": int(rng.choice([1, 1, 2, 3, 4])),
            "tp": tp,
            "cp": int(rng.choice([1, 1, 2, 3, 4])),
            "ep": int(rng.choice([1, 2, 2, 3, 4, 4, 6, 8, 16])),
            "etp": tp if rng.random() < 0.4 else int(rng.choice([1, 1, 1, 2, 4])),
        }
        sizes = [degrees["pp"] * tp * degrees["cp"], degrees["pp"] * degrees["ep"] * degrees["etp"]]
        if not any(nodes * gpus % size for size in sizes) or rng.random() < 0.1:
            return degrees, int(rng.choice([8, 12, 16, 48])), nodes, gpus


def own_rule(degrees: dict[str, int], gpus: int) -> str:
    """Which of the space's own rules rules out degrees that megatron-core builds groups for, or nothing."""
    tp, replica, held = degrees["tp"], degrees["tp"] * degrees["cp"], degrees["ep"] * degrees["etp"]
    if degrees["etp"] not in ((1, tp) if degrees["ep"] > 1 else (tp,)):
        return "tensor ranks of experts"
    if held % tp or (held % replica and replica % held):
        return "nested blocks"
    apart = degrees["ep"] > 1 or degrees["cp"] > 1
    if gpus % tp and (apart or tp % gpus):
        return "tensor groups on nodes"
    if any(gpus % size and size % gpus for size in (replica, held)):
        return "blocks on nodes"
    return ""


def taken(degrees: dict[str, int], experts: int, nodes: int, gpus: int, **more: int) -> Candidate | None:
    """The candidate of the degrees and of more fixed values, or nothing where no candidate has them."""
    request = taut.PlanRequest(
        model_with_experts(experts), small_cluster(nodes, gpus), global_batch=ROUTED_BATCH, stack="any", seq=None,
        max_tp=nodes * gpus, fix={**degrees, **more, "micro_batch": 1, "recompute": "none", "schedule": "1f1b"},
    )  # fmt: skip
    try:
        return taut.planning_problem(request).candidates[0]
    except TautError:
        return None


def asked_of(degrees: dict[str, int], experts: int, world: int, ranks: list[int], copies: int = 1) -> dict[str, Any]:
    """The configuration in megatron-core's words."""
    config = {
        "num_layers": 12,
        "hidden_size": 576,
        "num_attention_heads": 24,
        "num_moe_experts": experts,
        "add_bias_linear": False,
        "tensor_model_parallel_size": degrees["tp"],
        "pipeline_model_parallel_size": degrees["pp"],
        "context_parallel_size": degrees["cp"],
        "expert_model_parallel_size": degrees["ep"],
        "expert_tensor_parallel_size": degrees["etp"],
        "sequence_parallel": degrees["tp"] > 1,
    }
    return {
        "config": config,
        "degrees": degrees,
        "layout": None,
        "num_layers": 12,
        "ranks": ranks,
        "world": world,
        "copies": copies,
    }


@pytest.mark.proof
@pytest.mark.skipif(find_spec("megatron") is None, reason="megatron-core is not installed")
def test_megatron_core_builds_the_same_groups_and_refuses_the_same() -> None:
    """200 random configurations: taken by both with equal groups, or refused by both, or by a rule of the space."""
    rng = np.random.default_rng(24)
    drawn_cases = [drawn(rng) for _ in range(CONFIGURATIONS)]
    cases = [
        asked_of(degrees, experts, nodes * gpus, rng.integers(nodes * gpus, size=RANKS).tolist())
        for degrees, experts, nodes, gpus in drawn_cases
    ]
    counts = {"taken": 0, "refused by both": 0, "own rule": 0}
    for given, case, said in zip(drawn_cases, cases, asked("megatron", cases), strict=True):
        degrees, _, _, gpus = given
        candidate = taken(*given)
        if "refusal" in said:
            assert candidate is None, (given, said)
            counts["refused by both"] += 1
        elif rule := own_rule(degrees, gpus):
            assert candidate is None, (given, rule)
            counts["own rule"] += 1
        else:
            assert candidate is not None, given
            groups = rank_groups(candidate)
            assert said["groups"] == [groups_of_rank(groups, rank) for rank in case["ranks"]], given
            counts["taken"] += 1
    print(counts)
    assert min(counts.values()) >= 20, counts


@pytest.mark.proof
@pytest.mark.skipif(not (find_spec("megatron") and find_spec("einops")), reason="megatron-core is not installed")
def test_megatron_core_builds_the_same_groups_of_copies() -> None:
    """Two, three or four instances of the optimizer: equal shard groups of dense weights and of experts, or refused."""
    rng = np.random.default_rng(25)
    configurations: list[tuple[dict[str, int], int, int, int, int]] = []
    while len(configurations) < CONFIGURATIONS:
        (degrees, experts, nodes, gpus), copies = drawn(rng), int(rng.choice([2, 2, 3, 4]))
        stage = nodes * gpus // degrees["pp"]
        degrees["cp"], tp = 1, degrees["tp"]
        # A copy of one replica, and one whose replicas are not alike, are none of the space.
        if stage % tp == 0 and nodes * gpus % degrees["pp"] == 0 and stage // tp % copies == 0 and stage > tp * copies:
            configurations.append((degrees, experts, nodes, gpus, copies))
    cases = [
        asked_of(degrees, experts, nodes * gpus, rng.integers(nodes * gpus, size=RANKS).tolist(), copies)
        for degrees, experts, nodes, gpus, copies in configurations
    ]
    counts = {"taken": 0, "refused by both": 0, "own rule": 0}
    for configuration, case, said in zip(configurations, cases, asked("megatron", cases), strict=True):
        degrees, experts, nodes, gpus, copies = configuration
        shards = nodes * gpus // (degrees["pp"] * degrees["tp"] * copies)
        candidate = taken(degrees, experts, nodes, gpus, zero=2, dp_shard=shards)
        if "refusal" in said:
            assert candidate is None, (configuration, said)
            counts["refused by both"] += 1
        elif rule := own_rule(degrees, gpus):
            assert candidate is None, (configuration, rule)
            counts["own rule"] += 1
        else:
            assert candidate is not None, configuration
            groups = rank_groups(candidate)
            assert said["groups"] == [groups_of_rank(groups, rank) for rank in case["ranks"]], configuration
            assert len(said["groups"][0]["edp_shard"]) == candidate.expert_shards
            counts["taken"] += 1
    print(counts)
    assert min(counts.values()) >= 15, counts


def test_copies_hold_whole_groups_of_experts() -> None:
    """Eight devices in two copies: four share dense weights, two each expert, and like places of both pair."""
    chosen = Candidate(1, 1, 8, 1, 1, 4, "1f1b", 3, False, (), 4, ep=2, etp=1)
    groups = rank_groups(chosen)
    assert groups["dp_shard"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups["edp_shard"].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["dp_replicate"].tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_every_process_is_in_one_group_of_each_name() -> None:
    """Groups of a name are disjoint and hold all processes, and groups of copies and of experts share one process."""
    chosen = Candidate(2, 2, 6, 1, 1, 4, "1f1b", 1, True, cp=2, ep=4, etp=2)
    groups = rank_groups(chosen)
    for rows in groups.values():
        assert sorted(rows.ravel().tolist()) == list(range(48))
    for rank in range(48):
        mine = groups_of_rank(groups, rank)
        assert set(mine["expert"]) & set(mine["edp"]) == {rank}
        assert set(mine["tp"]) & set(mine["dp_cp"]) == {rank}
        assert len(mine["expert"]) * len(mine["edp"]) == len(mine["tp"]) * len(mine["dp_cp"])


def test_torchtitans_mesh_of_experts_has_the_groups() -> None:
    """Its meshes (pp, fsdp, tp) and (pp, efsdp, ep) count the last dimension fastest: the plan's groups for etp = 1."""
    chosen = Candidate(2, 2, 6, 1, 1, 4, "1f1b", 2, True, cp=2, ep=8, etp=1)
    groups, ranks = rank_groups(chosen), np.arange(48)
    dense, sparse = ranks.reshape(2, 12, 2), ranks.reshape(2, 3, 8)
    assert groups["dp_cp"].tolist() == dense.swapaxes(1, 2).reshape(-1, 12).tolist()
    assert groups["ep"].tolist() == sparse.reshape(-1, 8).tolist()
    assert groups["edp"].tolist() == sparse.swapaxes(1, 2).reshape(-1, 3).tolist()


def test_torchtitans_mesh_of_copies_has_the_groups() -> None:
    """Its meshes (pp, dp_replicate, fsdp, tp) and (pp, dp_replicate, efsdp, ep) for etp = 1."""
    chosen = Candidate(2, 2, 12, 1, 1, 4, "1f1b", 2, True, (), 6, ep=4, etp=1)
    groups, ranks = rank_groups(chosen), np.arange(48)
    dense, sparse = ranks.reshape(2, 2, 6, 2), ranks.reshape(2, 2, 3, 4)
    assert groups["dp_shard"].tolist() == dense.swapaxes(2, 3).reshape(-1, 6).tolist()
    assert groups["edp_shard"].tolist() == sparse.swapaxes(2, 3).reshape(-1, 3).tolist()
    assert groups["dp_replicate"].tolist() == np.moveaxis(dense, 1, -1).reshape(-1, 2).tolist()
    assert groups["dp_replicate"].tolist() == np.moveaxis(sparse, 1, -1).reshape(-1, 2).tolist()


def test_the_table_of_processes_holds_the_ranks_of_experts() -> None:
    """Processes with the same copy and expert tensor rank on a stage are the groups that exchange tokens."""
    fixed = {"pp": 2, "tp": 2, "ep": 4, "etp": 1, "micro_batch": 1, "schedule": "1f1b", "recompute": "none"}
    job = launched_on(small_cluster(), model_with_experts(8), **fixed)
    rows = list(csv.DictReader(StringIO(rank_table(job))))
    for group in rank_groups(job.strategy)["ep"].tolist():
        mine = [rows[rank] for rank in group]
        assert len({(row["stage"], row["expert_copy"], row["expert_tensor_rank"]) for row in mine}) == 1
        assert [int(row["expert_rank"]) for row in mine] == list(range(4))
