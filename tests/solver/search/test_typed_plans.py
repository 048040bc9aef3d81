"""
Plans by types on unlike devices: they break no rule, and the search is no worse than planners that use types.

Layouts of unlike devices, by stage and by replica.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.formulations.latency import step_time, violations
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.methods.named import method_of
from taut.solver.result import Limits
from taut.solver.search import refinement
from taut.solver.search.refinement import types_are_alike
from taut.solver.search.search import search
from taut.solver.search.typed_plans import layouts, typed_plans
from tests.solver.order_priced.test_bound import random_orders
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof


def test_typed_plans_get_better_and_break_no_rule() -> None:
    """Random problems of several types: plans are feasible, priced by the evaluator, and none is slower than before."""
    seen = 0
    for seed in range(120):
        given = random_problem(seed)
        if len(given.device_types) < 2:
            continue
        for candidate in [each for each in given.candidates if not each.is_order_priced][:5]:
            plans = list(typed_plans(given, candidate, Limits()))
            for plan in plans:
                assert not violations(given, plan.strategy, plan.devices), seed
                assert plan.seconds == pytest.approx(float(step_time(given, plan.strategy, plan.devices).total))
            assert all(after.seconds <= before.seconds for before, after in itertools.pairwise(plans))
            seen += bool(plans)
    assert seen >= 20


@pytest.mark.parametrize("latency_model", ["amp", "step"])
def test_search_is_no_worse_than_amp_and_hethub_on_amps_mixed_cluster(latency_model: str) -> None:
    """12 V100 and 4 T4: AMP's slow stages in the middle of the pipeline are found, within 28 refinements."""
    given = planning_problem(
        PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, latency_model=latency_model)
    )
    found = search(given, Limits(work_limit=28)).incumbent
    assert found is not None
    for name in ("amp", "hethub"):
        other = method_of(name)(given, Limits(), None).incumbent
        assert other is not None
        assert found.seconds <= other.seconds * (1 + 1e-9)


def test_layouts_hold_with_memory_that_fits_one_type_alone() -> None:
    """With half the memory on every device plans still fit, or there is none."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix={"pp": 8, "tp": 1}))
    groups = [
        group.model_copy(
            update={"device": group.device.model_copy(update={"memory_gib": 0.4 * group.device.memory_gib})}
        )
        for group in given.cluster.nodes
    ]
    tight = replace(given, cluster=given.cluster.model_copy(update={"nodes": groups}))
    for candidate in tight.candidates[:6]:
        for plan in typed_plans(tight, candidate, Limits()):
            assert not violations(tight, plan.strategy, plan.devices)


def test_every_layout_places_every_device_once() -> None:
    """On 12 V100 and 4 T4 in eight stages of two replicas no device is left out and none is used twice."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix={"pp": 8, "tp": 1}))
    found = list(layouts(given, given.candidates[0]))
    assert all((np.sort(devices.ravel()) == np.arange(16)).all() for devices in found)
    assert len({devices.tobytes() for devices in found}) == len(found) > 9


def test_some_layout_leaves_one_replica_on_one_type() -> None:
    """The four T4 are the last four stages of the one replica, and the other has V100 alone."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix={"pp": 8, "tp": 1}))
    rare = int(np.bincount(given.type_of_node).argmin())
    is_rare = [given.type_of_node[given.links.node_of[each]] == rare for each in layouts(given, given.candidates[0])]
    wanted = np.zeros((8, 2), dtype=bool)
    wanted[4:, 0] = True
    assert any((each[..., 0] == wanted).all() for each in is_rare)


@pytest.mark.parametrize(("rows", "alike"), [(None, True), ([1.0, 2.0, 3.0, 4.0], False)])
def test_constructed_placements_are_left_where_nodes_of_a_type_are_alike(rows: list[float] | None, alike: bool) -> None:
    """Four nodes of two types: with one rate between all of them, and with a rate of its own for each node's links."""
    rates = (
        None
        if rows is None
        else [[0.0 if x == y else min(one, other) for y, other in enumerate(rows)] for x, one in enumerate(rows)]
    )
    table = costs(model(4), devices={"a": 1.0, "b": 2.0})
    given = problem(cluster(4, 2, rows=rates, devices=("a", "b")), model(4), table=table, latency_model="step")
    assert types_are_alike(given) == alike


def test_orders_whose_stages_share_nodes_are_annealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2 345M on AMP's mixed cluster, two stages a node: a plan of 0.3768 s is not among constructed ones."""
    fix: dict[str, Any] = {"pp": 8, "tp": 1, "vpp": 2, "micro_batch": 2, "zero": 1, "schedule": "interleaved-1f1b"}
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix=fix))
    found = search(given, Limits(work_limit=40)).incumbent
    assert found is not None and found.seconds < 0.377
    monkeypatch.setattr(refinement, "fill_whole_nodes", lambda *of: True)
    monkeypatch.setattr(refinement, "FEW_BLOCKS", 0)
    constructed = search(given, Limits(work_limit=40)).incumbent
    assert constructed is not None and constructed.seconds > 1.05 * found.seconds


def test_orders_of_few_blocks_are_annealed_too() -> None:
    """Plans of a division in another case of classes than its own are found, which constructed placements miss."""
    for seed in (17, 175, 596, 1094, 2011, 3602):
        given = random_orders(seed, ["interleaved-1f1b"])
        found = search(given, Limits(workers=1)).incumbent
        assert found is not None and types_are_alike(given) and len(given.device_types) == 2
        assert found.seconds == pytest.approx(enumerate_all(given).seconds, rel=1e-9), seed
