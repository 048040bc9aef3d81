"""Memory over time: its peak is the evaluator's figure."""

import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.latency import memory_bytes
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.memory import memory_curves
from tests.formulations.simulation.test_graph import devices_of, random_case, small
from tests.support.small import candidate, in_order, strategy


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
