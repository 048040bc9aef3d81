"""
What devices wait for: exposed communication, and the bubble.

Memory over time: its peak is the evaluator's figure.
"""

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.latency import memory_bytes
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import ACTIVITIES, activity_seconds, memory_curves
from taut.formulations.simulation.passes import STREAMS
from tests.formulations.simulation.test_graph import devices_of, random_case, small
from tests.formulations.test_sharding import GATHER, SCATTER, pair
from tests.support.small import candidate, in_order, strategy


def test_the_bubble_of_1f1b_is_the_known_share() -> None:
    """Two even stages and 4 micro-batches of 6 s: of 30 s each device idles 6."""
    plan = strategy(candidate(2, 2, 1, m=4), 2, 4)
    graph = operator_graph(small(), plan, in_order(plan.candidate))
    spent = activity_seconds(graph, graph.times())
    named = dict(zip((*ACTIVITIES, "bubble"), spent.T.tolist(), strict=True))
    assert named["compute"] == pytest.approx([24.0, 24.0])
    assert named["bubble"] == pytest.approx([6.0, 6.0], rel=1e-3)


def test_only_what_computation_does_not_hide_is_exposed() -> None:
    """Layers of 20 s hide all but two gathers and a scatter of a micro-batch."""
    plan = strategy(candidate(1, 1, 2, m=4, zero=3), 4)
    graph = operator_graph(pair(20.0), plan, in_order(plan.candidate))
    ((compute, *rest),) = activity_seconds(graph, graph.times())
    assert compute == pytest.approx(4 * 240)
    assert rest[ACTIVITIES.index("sharding") - 1] == pytest.approx(4 * (2 * GATHER + SCATTER))
    assert rest[-1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_step_add_up(seed: int) -> None:
    """On random strategies of every schedule nothing is counted twice, and no bubble is negative."""
    given, plan = random_case(seed, schedules=SCHEDULES, one_type=False)
    graph = operator_graph(given, plan, devices_of(plan))
    start = graph.times()
    spent, whole = activity_seconds(graph, start), float((start + graph.seconds).max())
    assert spent.sum(axis=1) == pytest.approx(np.full(graph.devices, whole))
    assert spent.min() >= -1e-9 * whole
    computing = (graph.stream % len(STREAMS) == 0) & (graph.stream < len(STREAMS) * graph.devices)
    busy = np.bincount(
        graph.stream[computing] // len(STREAMS), weights=graph.seconds[computing], minlength=graph.devices
    )
    assert spent[:, 0] == pytest.approx(busy)


@pytest.mark.parametrize("seed", range(30))
def test_the_peak_is_what_the_memory_model_says(seed: int) -> None:
    """On random strategies of every schedule; and at the end nothing of a micro-batch is held."""
    given, plan = random_case(seed, schedules=SCHEDULES, one_type=False)
    graph = operator_graph(given, plan, devices_of(plan))
    curves = memory_curves(given, plan, graph, graph.times())
    assert [curve.held.max() for curve in curves] == pytest.approx(memory_bytes(given, plan))
    for curve in curves:
        assert curve.held[-1] == pytest.approx(curve.held[0])
        assert (curve.moment[1:] >= curve.moment[:-1]).all()


def test_the_first_stage_fills_before_its_first_backward_pass() -> None:
    """Two stages of two layers: 2 micro-batches of 2,000 B on the first when its second forward pass starts at 2 s."""
    plan = strategy(candidate(2, 1, 2, m=4), 2, 4)
    graph = operator_graph(small(), plan, in_order(plan.candidate))
    first, _ = memory_curves(small(), plan, graph, graph.times())
    assert (first.held[:3] - first.held[0]).tolist() == [0.0, 2000.0, 4000.0]
    assert first.moment[:3] == pytest.approx([0.0, 0.0, 2.0])
