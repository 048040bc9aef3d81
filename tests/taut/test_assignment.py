"""A strategy's placement as a quadratic assignment: of a plan and of stated degrees, in words, JSON and QAPLIB."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import taut
from taut.assignment import place_by_leaves
from taut.commands.app import app
from taut.errors import DataError
from taut.formulations.latency import step_time
from taut.formulations.placement import placement_problem
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof

FIX = {"tp": 4, "pp": 4, "micro_batch": 2, "zero": 1}
MATRIX = [[0, 9, 8, 3], [9, 0, 8.5, 3.1], [8, 8.5, 0, 9.2], [3, 3.1, 9.1, 0]]
"""Measured GB/s between four nodes."""


def measured() -> taut.ClusterSpec:
    """Four nodes of eight A100 with unlike links: eight blocks of four ranks, two on a node."""
    node = {"count": 4, "device": "a100-80gb", "gpus_per_node": 8, "intra_bandwidth_gbps": 2400}
    values = {"name": "measured", "nodes": [node], "bandwidth_matrix": {"unit": "GB/s", "rows": MATRIX}}
    return taut.ClusterSpec.parse(values, "measured")


@pytest.fixture(scope="module")
def plan() -> taut.Plan:
    """A plan of eight blocks."""
    return taut.plan("gpt-8.1b", measured(), global_batch=32, fix=FIX, time_limit=10.0)


def test_placement_of_a_plan_reports_both_objectives(plan: taut.Plan) -> None:
    """The permutation costs what its matrices say, its step time is the evaluator's, and the bounds hold."""
    found = taut.place_strategy(plan, time_limit=4.0)
    assert len(found.permutation) == 8
    assert found.instance.cost(np.array(found.permutation)) == pytest.approx(found.objective)
    assert found.status == "optimal"
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    assert found.known_s == pytest.approx(plan.step_time_s)
    assert found.annealed_s <= min(found.step_s, plan.step_time_s) * (1 + 1e-12)
    assert found.step_bound_s <= found.annealed_s
    problem = planning_problem(PlanRequest("gpt-8.1b", measured(), global_batch=32, fix=FIX))
    given = placement_problem(problem, found.strategy)
    devices = given.devices(given.slots[list(found.permutation)])
    assert float(step_time(problem, found.strategy, devices).total) == pytest.approx(found.step_s)


def test_placement_without_a_plan_takes_the_best_strategy_of_the_values() -> None:
    """From model, cluster and fixed values: the strategy that CP-SAT chooses among them is placed."""
    found = taut.place_strategy(PlanRequest("gpt-8.1b", measured(), global_batch=32, fix=FIX), time_limit=2.0)
    assert found.known_s is None
    assert found.strategy.candidate.tp == 4
    assert found.step_bound_s <= found.annealed_s


def test_traffic_of_a_plan_is_the_flow_of_its_assignment(plan: taut.Plan) -> None:
    """Bytes between the devices of a rank are the flow between blocks, and each kind stands on its own."""
    flow = taut.place_strategy(plan, time_limit=1.0).instance.flow
    graph = plan.to_networkx()
    assert len(graph) == 32
    assert sum(edge["bytes"] for _, _, edge in graph.edges(data=True)) == pytest.approx(4 * flow.sum())
    for a, b, edge in graph.edges(data=True):
        one, other = graph.nodes[a], graph.nodes[b]
        assert one["rank"] == other["rank"]
        assert edge["bytes"] == pytest.approx(edge["pipeline"] + edge["data_parallel"])
        assert (edge["pipeline"] > 0) == (one["replica"] == other["replica"])


def test_command_writes_an_instance_that_it_reads_again(plan: taut.Plan, run: Run, tmp_path: Path) -> None:
    """``taut place plan.json --out`` writes QAPLIB's format; ``taut place`` of that file finds the same optimum."""
    path, instance = tmp_path / "plan.json", tmp_path / "instance.dat"
    plan.write(path)
    report = json.loads(run("place", path, "--out", instance, "--json").out)
    again = json.loads(run("place", instance, "--json", "--quiet").out)
    assert again["objective"] == pytest.approx(report["objective"])
    assert {"objective", "lower_bound", "gap", "status", "permutation", "wall_s"} <= report.keys()
    words = run("place", path).out
    assert "8 blocks on 8 slots" in words
    assert "no placement beats" in words


def test_what_cannot_be_placed_is_refused(plan: taut.Plan, run: Run, tmp_path: Path) -> None:
    """A single block, no file and no model, and a file beside a model."""
    with pytest.raises(DataError, match="1 blocks"):
        taut.place_strategy(PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix={"tp": 8}))
    path = tmp_path / "plan.json"
    plan.write(path)
    refused(run("place"), "--model: missing")
    refused(run("place", "--model", "gpt-8.1b"), "--cluster: missing")
    refused(run("place", path, "--model", "gpt-8.1b"), "given together with a plan")
    refused(run("place", tmp_path / "a.dat", "--global-batch", 8), "given together with a QAPLIB instance")


def test_a_plan_is_placed_by_the_leaves_that_its_groups_span(tmp_path: Path) -> None:
    """Four stages of four replicas on four racks: 1 and 4 leaves, 4 and 1, or squares; wrong weights are refused."""
    racks = [{"nodes": [k], "bandwidth_gbps": 200} for k in range(4)]
    nodes = [{"count": 4, "device": "a100-80gb", "gpus_per_node": 4, "intra_bandwidth_gbps": 2400}]
    spec = {"name": "leaves", "nodes": nodes, "network": {"bandwidth_gbps": 50, "racks": racks}}
    fix: dict[str, int | str] = {"tp": 1, "pp": 4, "dp": 4, "micro_batch": 1, "schedule": "1f1b"}
    plan = taut.plan("gpt2-345m", taut.ClusterSpec.parse(spec, "leaves"), global_batch=32, fix=fix, time_limit=5.0)
    spans = {}
    for weight in (0.1, 0.5, 0.9):
        found = place_by_leaves(plan, weight)
        spans[weight] = found.spans.replicas, found.spans.stages
        assert found.spans.objective == found.spans.lower_bound
        assert sorted(found.devices.ravel().tolist()) == list(range(16))
        assert plan.lower_bound_s is not None and found.step_s >= plan.lower_bound_s * (1 - 1e-9)
    assert spans == {0.1: (4, 1), 0.5: (2, 2), 0.9: (1, 4)}
    plan.write(tmp_path / "plan.json")
    said = CliRunner().invoke(app, ["place", str(tmp_path / "plan.json"), "--spans", "0.5"]).stdout
    assert said.startswith("replicas of a stage on at most 2 leaf switches, stages of a pipeline on 2;")
    shown = ["place", str(tmp_path / "plan.json"), "--spans", "0.5", "--plot", str(tmp_path / "spans.png")]
    assert CliRunner().invoke(app, shown).exit_code == 0
    assert (tmp_path / "spans.png").read_bytes().startswith(b"\x89PNG")
    assert isinstance(CliRunner().invoke(app, [*shown[:2], *shown[4:]]).exception, DataError)
    with pytest.raises(DataError, match="expected a weight from 0 to 1"):
        place_by_leaves(plan, 2.0)
    alone = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2}, time_limit=5.0)
    with pytest.raises(DataError, match="expected racks that hold every node"):
        place_by_leaves(alone, 0.5)
