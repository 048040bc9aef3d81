"""The pipeline schedule of a plan: its makespan and its memory are those that the plan is priced with."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.latency import memory_bytes, violations
from taut.formulations.order_division import chunk_pipelines
from taut.formulations.schedules.orders import ORDER_PRICED
from taut.formulations.schedules.schedule import timetable
from taut.formulations.schedules.schedule import violations as order_violations
from taut.formulations.tables.memory import stage_memory
from taut.schedules.reading import planned_schedule
from tests.formulations.schedules.test_plan_orders import chosen
from tests.support.instances import random_problem
from tests.support.small import cluster, costs, in_order, model, problem


@pytest.mark.parametrize("kind", ORDER_PRICED)
def test_makespan_is_that_of_the_slowest_replica(kind: str) -> None:
    """On unlike links and chunks, with all-reduces in the tensor groups."""
    vpp = 1 if kind.startswith("zb-h") else 2
    rows = np.random.default_rng(1).uniform(1e-3, 1e-2, (8, 8)).tolist()
    given = problem(cluster(8, 2, rows=rows), model(9), table=costs(model(9), seconds={"block": 1e-3}), global_batch=16)
    ends = (1, 3, 5, 9) if vpp == 1 else (2, 3, 5, 9)
    single = chosen(kind, len(ends) // vpp, vpp, 4, *ends, tp=2)
    choice = replace(single.candidate, dp=8 * vpp // 4)
    strategy = replace(single, candidate=choice)
    nodes = np.random.default_rng(2).permutation(8).reshape(choice.pp, choice.dp, 1)
    devices = 2 * nodes + np.arange(2)
    pipeline, schedule, _ = planned_schedule(given, strategy, devices)
    replicas = chunk_pipelines(given, strategy, devices).total
    assert len(np.unique(replicas)) == choice.dp > 1
    assert timetable(pipeline, schedule).makespan == pytest.approx(replicas.max(), rel=1e-12)


def test_even_1f1b_and_gpipe_have_their_formula() -> None:
    """Two layers a stage, no hops to speak of: (m + pp - 1)(F + I + W)."""
    given = problem(cluster(4, 1), model(8), table=costs(model(8)))
    for kind in ("1f1b", "gpipe"):
        strategy = chosen(kind, 4, 1, 8, 2, 4, 6, 8)
        pipeline, schedule, _ = planned_schedule(given, strategy, in_order(strategy.candidate))
        hops = float(pipeline.transfer.sum())
        assert schedule.kind == kind and 0 < hops < 1e-4
        assert timetable(pipeline, schedule).makespan == pytest.approx((8 + 3) * 6.0, abs=8 * 2 * hops)


def test_limits_leave_what_the_plan_leaves_free() -> None:
    """Peak and free bytes make the limit; a plan fits if and only if its order does."""
    fitted = set()
    for seed in range(40):
        given = random_problem(seed)
        single = [c for c in given.candidates if c.schedule == "1f1b" and c.dp == c.width == 1 < c.pp]
        for choice in single if "none" in given.space.recompute else []:
            layers = len(given.model.blocks)
            ends = [layers * (x + 1) // choice.pp for x in range(choice.pp)]
            strategy = chosen("1f1b", choice.pp, 1, choice.num_micro_batches, *ends)
            devices = in_order(strategy.candidate)
            pipeline, schedule, _ = planned_schedule(given, strategy, devices)
            types = given.type_of_node[given.links.node_of[devices.ravel()]]
            free = stage_memory(given, strategy.candidate).budget[types] - np.array(memory_bytes(given, strategy))
            peak = timetable(pipeline, schedule).peak_memory
            assert pipeline.memory_limit == pytest.approx(np.maximum(peak + free, 0.0)), seed
            fits = not violations(given, strategy, devices)
            assert fits == (not order_violations(pipeline, schedule)), seed
            fitted.add(fits)
    assert fitted == {True, False}
