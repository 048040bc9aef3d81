"""Plans on what is left: against enumeration, certificates, slow and spare nodes, names, and what is refused."""

import contextlib
import json
import math
import warnings
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import DataError, FieldError, InfeasibleError
from taut.formulations.latency import step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.replanning.left import (
    LeastSeconds,
    Site,
    cluster_of,
    largest_count,
    node_number,
    parts_of,
    site_sets,
    sites_left,
    slow_node,
)
from taut.replanning.replan import _Replanning
from taut.solver.certificate.document import devices_of, problem_of, strategy_of
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search
from taut.solver.simple_plans import even_strategy, rank_order
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate
from tests.taut.conftest import Run, refused

MODEL, CLUSTER = "gpt2-345m", "dgx-a100:4"
EXACT = Limits(gap=0.0, workers=1)
SHARE = 0.5
"""Share of the batch that plans of small problems may leave out; else few would be left."""


@cache
def small_plan() -> Plan:
    """A plan of 4 nodes with one replica a node: pp=2, tp=4."""
    fix: Any = {"pp": 2, "tp": 4, "micro_batch": 2, "schedule": "1f1b"}
    return taut.plan(MODEL, CLUSTER, global_batch=48, fix=fix, workers=1)


def random_replanning(seed: int) -> _Replanning | None:
    """A plan of a random problem, without one of its nodes, some with a slow one; None where there is no plan."""
    problem = replace(random_problem(seed), latency_model="step")
    if problem.cluster.num_nodes < 2 or not problem.candidates:
        return None
    found = search(problem, Limits(work_limit=30, workers=1))
    if found.incumbent is None:
        return None
    plan = Plan(plan_document(problem, found, EXACT))
    slow = {0: 0.5} if seed % 3 == 0 else {}
    lost = problem.cluster.num_nodes - 1
    sites = sites_left(problem.cluster, [lost], slow)
    names = [f"node-{k}" for k in range(problem.cluster.num_nodes)]
    return _Replanning(plan, sites, SHARE, names, EXACT, None)


def wanted_parts(asked: _Replanning) -> list[tuple[tuple[Site, ...], PlanningProblem]]:
    """What (1) and (2) allow, one problem for each set of nodes and batch, written apart from the search of parts."""
    found, batch = [], asked._batch
    for sites in site_sets(asked._sites):
        for fewer in range(math.ceil(batch * (1 - SHARE)), batch + 1):
            found.append((sites, asked._problem(sites, fewer, {})))
    return found


def optimum(asked: _Replanning) -> float:
    """Least seconds a sequence of all plans that are allowed, by enumeration."""
    best, largest = math.inf, dict[Any, int]()
    measured = {row.micro_batch for row in asked._base.costs.rows}
    for sites, problem in wanted_parts(asked):
        slow = any(site.slow for site in sites)
        for c in problem.candidates:
            devices = problem.cluster.num_devices
            key = slow, c.pp, c.tp, c.cp
            if largest.setdefault(key, devices) != devices or c.micro_batch not in measured:
                continue
            most = largest_count(c.schedule, c.pp, asked._batch // (c.dp * c.micro_batch))
            if c.num_micro_batches == most:
                seconds = enumerate_candidate(problem, c).seconds
                best = min(best, seconds / problem.space.global_batch)
    return best


@pytest.mark.parametrize("block", blocks(42, proof=True))
def test_the_best_plan_is_that_of_enumeration(block: int) -> None:
    """On 12 random problems a block, the plan is the optimum of all parts, and the bound is no higher."""
    for seed in range(12 * block, 12 * block + 12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = random_replanning(seed)
            if asked is None or len(asked._site) > 4:
                continue
            least = optimum(asked)
            if math.isinf(least):
                with pytest.raises(InfeasibleError):
                    asked.best(None)
                continue
            found = asked.best(None)
        assert found.rate_bound <= least * (1 + 1e-9), seed
        assert found.rate >= least * (1 - 1e-9), seed
        assert math.isclose(found.rate, least, rel_tol=1e-6) or found.gap, seed


@pytest.mark.parametrize("block", blocks(42, proof=True))
def test_kept_plans_are_between_bound_and_enumeration(block: int) -> None:
    """On 12 random problems a block, no placement of the kept strategy is below its bound; nothing moves but states."""
    for seed in range(12 * block, 12 * block + 12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = random_replanning(seed)
            if asked is None or len(asked._site) > 4:
                continue
            kept, why = asked.kept()
            if kept is None:
                assert why
                continue
            document = kept.plan.typed
            problem, strategy = problem_of(document, "test"), strategy_of(document.strategy, "test")
            shape = devices_of(document, "test").shape
            every = np.array([np.reshape(way, shape) for way in permutations(range(int(np.prod(shape))))])
            allowed = np.array([way for way in every if not violations(problem, strategy, way)])
            least = float(step_time(problem, strategy, allowed).total.min())
        assert kept.rate_bound * kept.batch <= least * (1 + 1e-9), seed
        assert kept.plan.step_time_s >= least * (1 - 1e-9), seed
        assert kept.moved is not None and kept.moved.weights <= 1.0, seed
        assert kept.moved.least is not None and kept.moved.least <= kept.moved.weights + kept.moved.states + 1.0, seed


@pytest.mark.proof
def test_bounds_of_layers_are_below_every_plan() -> None:
    """On 500 random problems no candidate's simple computation is below (4), and some are near it."""
    near = 0
    for seed in range(500):
        problem = replace(random_problem(seed), latency_model="step")
        least = LeastSeconds(problem).of(problem.cluster.devices)
        for c in problem.candidates[:: max(len(problem.candidates) // 3, 1)]:
            if c.pipelines_by_type:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                strategy = even_strategy(problem, c, problem.recompute_of(c)[0])
                seconds = float(step_time(problem, strategy, rank_order(c)).total)
            bound = least.get((c.tp, c.cp, c.micro_batch), 0.0) * (c.num_micro_batches + c.pp - 1) / c.pp
            assert bound <= seconds * (1 + 1e-9), (seed, str(c))
            near += bound > 0.5 * seconds
    assert near > 100


def test_a_lost_node_takes_its_replica_along() -> None:
    """As many replicas are left as the scarcest stage has blocks; they share the batch, and no weights move."""
    before = small_plan()
    assert (before.strategy.pp, before.strategy.dp, before.strategy.tp) == (2, 4, 4)
    found = taut.replan(before, without=["node-1"], time_limit=None, workers=1)
    assert found.kept is not None and found.kept.moved is not None
    kept = found.kept
    left = min(sum(d[0] // 8 != 1 for d in stage) for stage in before.devices)
    assert (kept.plan.strategy.dp, kept.batch) == (left, 48)
    assert "node-1" not in kept.nodes
    assert found.kept.moved.weights == 0.0
    assert kept.rate_bound <= kept.rate and found.best.rate <= kept.rate and found.best.rate_bound <= found.best.rate
    for each in (kept, found.best):
        assert each.plan.verify().holds
    assert "node-1" in str(found) and json.loads(json.dumps(found.as_dict()))["kept"]["global_batch"] == 48


def test_two_lost_nodes_of_one_stage_and_of_two() -> None:
    """Stages on nodes of their own: losses of two stages cost one replica, as what is left is put together anew."""
    fix: Any = {"pp": 2, "tp": 8, "micro_batch": 2, "schedule": "1f1b"}
    before = taut.plan(MODEL, CLUSTER, global_batch=16, fix=fix, workers=1)
    (a0,), (a1,), (b0,), (b1,) = ({d // 8 for d in before.devices[x][z]} for x in (0, 1) for z in (0, 1))
    apart = taut.replan(before, without=[f"node-{a0}", f"node-{b1}"], batch_share=0.6, time_limit=5, workers=1)
    assert apart.kept is not None and apart.kept.plan.strategy.dp == 1
    assert apart.kept.moved is not None and apart.kept.moved.weights == 0.0
    gone = taut.replan(before, without=[f"node-{a0}", f"node-{a1}"], batch_share=0.6, time_limit=5, workers=1)
    assert gone.kept is None and "holds stage 0" in gone.why_none
    assert b0 != b1


def test_a_spare_node_takes_the_place_of_a_lost_one() -> None:
    """With a spare node the plan stays as it was, and the spare node gets one replica's weights and states."""
    before = small_plan()
    found = taut.replan(before, without=["node-1"], spares=1, time_limit=None, workers=1)
    assert found.kept is not None and found.kept.moved is not None
    assert found.kept.plan.strategy.dp == 4 and found.kept.nodes[-1] == "spare-1"
    assert math.isclose(found.kept.rate * 48, before.step_time_s, rel_tol=1e-9)
    assert found.kept.moved.weights > 0


def test_a_slow_node_is_priced_or_left_out() -> None:
    """A node at 0.9 of its speed: kept with all replicas; at 0.2: better without it."""
    before = small_plan()
    mild = taut.replan(before, slow=["node-2=0.9"], time_limit=None, workers=1)
    assert mild.kept is not None and mild.kept.plan.strategy.dp == 4
    assert before.step_time_s < mild.kept.plan.step_time_s < before.step_time_s / 0.9 * (1 + 1e-9)
    strong = taut.replan(before, slow=["node-2=0.2"], time_limit=None, workers=1)
    assert strong.kept is not None and "node-2" not in strong.kept.nodes
    for found in (mild, strong):
        assert found.kept is not None and found.kept.plan.verify().holds and found.best.plan.verify().holds
        assert found.best.rate <= found.kept.rate


def test_the_fastest_devices_of_a_stage_run() -> None:
    """Stage 0 needs two of its four blocks, those on node 2, not on the slow node 0; stage 1 has node 1 alone."""
    slow = taut.replan(small_plan(), without=["node-3"], slow=["node-0=0.5", "node-1=0.9"], batch_share=SHARE).kept
    quick = taut.replan(small_plan(), without=["node-3"], batch_share=SHARE).kept
    assert slow is not None and quick is not None and slow.nodes == ("node-1", "node-2")
    assert quick.rate < slow.rate < 1.12 * quick.rate


def test_planted_bugs_are_refused() -> None:
    """A plan whose lost node is used, whose slow node is priced as a fast one, or whose bound is raised."""
    found = taut.replan(small_plan(), slow=["node-2=0.9"], time_limit=None, workers=1)
    assert found.kept is not None
    good = found.kept.plan.document
    fast = json.loads(json.dumps(good))
    for row in fast["inputs"]["costs"]["spec"]["rows"]:
        if row["device"].endswith(" at 0.9"):
            row["forward_s"] *= 0.9
    high = json.loads(json.dumps(good))
    high["certificate"]["lower_bound_s"] = good["certificate"]["objective_s"] * 1.01
    gone = json.loads(json.dumps(good))
    gone["inputs"]["cluster"]["spec"]["nodes"][0]["count"] -= 1
    for bad in (fast, high, gone):
        with contextlib.suppress(DataError):
            assert not Plan(bad).verify().holds


NAMES = [
    ({"without": ["node-128"]}, "node-128"),
    ({"without": ["nod-1"]}, "did you mean node-1?"),
    ({"without": ["rack-1"]}, "expected node-0 to node-3"),
    ({"without": ["node-1", "1"]}, "names a node twice"),
    ({"without": ["node-0", "node-1", "node-2", "node-3"]}, "leaves no node"),
    ({"slow": ["node-1"]}, "expected NODE=SHARE"),
    ({"slow": ["node-1=1.5"]}, "above 0 and below 1"),
    ({"slow": ["node-1=nan"]}, "above 0 and below 1"),
    ({"slow": ["node-1=0.5"], "without": ["node-1"]}, "--without too"),
    ({"without": ["node-1"], "batch_share": 1.0}, "expected a share"),
    ({"without": ["node-1"], "names": ["a", "b"]}, "has 2 names, expected 4"),
    ({"without": ["alpah"], "names": ["alpha", "beta", "gamma", "delta"]}, "did you mean alpha?"),
    ({}, "expected a node that is lost"),
]


@pytest.mark.parametrize(("given", "words"), NAMES)
def test_wrong_names_and_shares_are_refused(given: dict[str, Any], words: str) -> None:
    """Each in one line, with what was expected and the nearest right name."""
    with pytest.raises(FieldError) as error:
        taut.replan(small_plan(), **given)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_names_of_nodes() -> None:
    """A node by its number, by its usual name, or by a name of a list."""
    assert [node_number(text, 4) for text in ("node-3", "3")] == [3, 3]
    assert node_number("beta", 2, ["alpha", "beta"]) == 1
    assert slow_node("node-2=0.8", 4) == (2, 0.8)


def test_the_command_line(run: Run, tmp_path: Path) -> None:
    """Both plans are written and verified by the command line; wrong input ends with 2 and writes nothing."""
    plan, best, kept = (tmp_path / name for name in ("plan.json", "best.json", "kept.json"))
    small_plan().write(plan)
    asked = ["replan", plan, "--time-limit", "20", "--quiet"]
    done = run(*asked, "--without", "node-3", "--out", best, "--out-kept", kept)
    assert done.code == 0 and "no weights moved" in done.out
    assert run("verify", best).code == run("verify", kept).code == 0
    assert json.loads(run(*asked, "--without", "node-3", "--json").out)["without"] == ["node-3"]
    absent = tmp_path / "absent.json"
    refused(run(*asked, "--without", "node-9", "--out", absent), "--without node-9: is no node of the plan")
    refused(run(*asked, "--slow", "node-1=2", "--out", absent), "--slow node-1=2: expected NODE=SHARE")
    refused(run(*asked), "--without: missing")
    refused(
        run(*asked, *(f"--without=node-{k}" for k in (0, 1, 2)), "--out", absent, "--out-kept", absent), "--out-kept"
    )
    assert not absent.exists()


def test_hosts_name_nodes(run: Run, tmp_path: Path) -> None:
    """With a file of names, nodes are asked for and printed by them, and a wrong one has the nearest beside it."""
    plan, hosts = tmp_path / "plan.json", tmp_path / "hosts"
    small_plan().write(plan)
    hosts.write_text("alpha\nbeta\ngamma\ndelta\n")
    asked = ["replan", plan, "--hosts", hosts, "--quiet", "--time-limit", "20"]
    found = json.loads(run(*asked, "--without", "beta", "--json").out)
    assert found["without"] == ["beta"] and "beta" not in found["best"]["nodes"] and "alpha" in found["best"]["nodes"]
    refused(run(*asked, "--without", "betta"), "did you mean beta?")


def test_idle_nodes_are_those_of_the_smallest_rack() -> None:
    """Racks of 3 and 2 nodes: without one of the second, its other node stays idle first; racks keep their nodes."""
    cluster = taut.ClusterSpec.parse(
        {
            "name": "racked",
            "nodes": [{"count": 5, "device": "a100-80gb", "gpus_per_node": 8, "intra_bandwidth_gbps": 2400}],
            "network": {"bandwidth_gbps": 100, "racks": [[0, 1, 2], [3, 4]]},
        },
        "test",
    )
    left = sites_left(cluster, [4])
    sets = [[site.number for site in sites] for sites in site_sets(left)]
    assert sets[:2] == [[0, 1, 2, 3], [0, 1, 2]]
    assert [rack.nodes for rack in cluster_of(cluster, left).network.racks] == [[0, 1, 2], [3]]


def test_expert_ranks_may_ask_for_fewer_nodes() -> None:
    """Eight expert ranks do not divide the 12 devices of a stage on three nodes, so two nodes are a part as well."""
    fix: Any = {"pp": 2, "tp": 1, "ep": 8, "etp": 1}
    request = taut.PlanRequest("qwen3-30b-a3b", "dgx-h100:4", global_batch=64, fix=fix)
    problem = taut.planning_problem(request)
    found = [*parts_of(problem, sites_left(problem.cluster, [2]), 45, math.inf)]
    assert {len(part.sites) for part in found} == {2} and {part.fixed["dp"] for part in found} == {8}


def test_sites_of_a_measured_cluster_keep_their_links() -> None:
    """Without node 1 of 3, rows and columns 0 and 2 of a matrix are left; spare nodes have no links there."""
    cluster = taut.ClusterSpec.parse(
        {
            "name": "measured",
            "nodes": [{"count": 3, "device": "a100-80gb", "gpus_per_node": 1, "intra_bandwidth_gbps": 2400}],
            "bandwidth_matrix": {"unit": "GB/s", "rows": [[0, 1, 2], [3, 0, 4], [5, 6, 0]]},
        },
        "test",
    )
    left = cluster_of(cluster, sites_left(cluster, [1]))
    assert left.bandwidth_matrix is not None
    assert np.array(left.bandwidth_matrix.rows).tolist() == [[0, 2], [5, 0]]
    with pytest.raises(FieldError, match="expected 0"):
        sites_left(cluster, [1], spares=1)
