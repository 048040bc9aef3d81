"""Replicas that are alike are simulated once, with the same result."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import ACTIVITIES, activity_seconds
from tests.formulations.simulation.test_graph import devices_of, random_case
from tests.support.small import candidate, cluster, costs, in_order, model, problem, strategy


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_simulating_each_replica_changes_nothing(seed: int, overlap: bool) -> None:
    """On random strategies and unlike devices every task of every replica starts when its representative's does."""
    given, plan = random_case(seed, schedules=SCHEDULES, one_type=False)
    given = replace(given, overlap_grad_reduce=overlap)
    once = operator_graph(given, plan, devices_of(plan))
    every = operator_graph(given, plan, devices_of(plan), every_replica=True)
    start, starts = once.times(), every.times()
    assert float((starts + every.seconds).max()) == pytest.approx(float((start + once.seconds).max()), rel=1e-12)
    assert len(every.replicas.simulated) == plan.candidate.dp
    for replica, pipeline in enumerate(once.replicas.like.tolist()):
        mine = starts[every.row[replica, 0] : every.row[replica, -1]]
        assert mine == pytest.approx(start[once.row[pipeline, 0] : once.row[pipeline, -1]], rel=1e-12)
    ranks, like = plan.candidate.pp, once.replicas.like
    spent = activity_seconds(once, start).reshape(-1, ranks, len(ACTIVITIES) + 1)[like]
    assert activity_seconds(every, starts).reshape(-1, ranks, len(ACTIVITIES) + 1) == pytest.approx(
        spent, rel=1e-9, abs=1e-9
    )


def test_replicas_on_unlike_devices_are_simulated_apart() -> None:
    """Of four replicas two are on each type: two are simulated, and the step waits for the slower."""
    table = costs(model(), devices={"d": 1.0, "e": 2.0})
    given = problem(cluster(2, 2, devices=("d", "e")), table=table, latency_model="step", max_tp=1)
    plan = strategy(candidate(1, 1, 4, m=2), 4)
    graph = operator_graph(given, plan, in_order(plan.candidate))
    assert graph.replicas.like.tolist() == [graph.replicas.like[0]] * 2 + [graph.replicas.like[2]] * 2
    assert len(graph.replicas.simulated) == 2
    # 2 micro-batches of 4 layers of 3 s on the faster, 6 s on the slower type.
    ends = [float((graph.times() + graph.seconds)[graph.last[k, -1]]) for k in graph.replicas.like[[0, 2]]]
    assert ends == pytest.approx([24.0, 48.0])


def test_a_large_job_has_one_replica() -> None:
    """Sixteen like replicas have the tasks of one pipeline."""
    given = problem(cluster(4, 4), latency_model="step", max_tp=1)
    plan = strategy(candidate(1, 1, 16, m=2), 4)
    graph = operator_graph(given, plan, np.arange(16).reshape(1, 16, 1))
    # A layer: attention and MLP, forward and backward; a reduction, the norm, the optimizer.
    assert graph.tasks == 2 * 4 * 4 + 3
