"""Flows that share a node's cards: by hand, and never sooner than alone."""

from dataclasses import replace

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.errors import FormulationError
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import CardFlows, operator_graph, shared_seconds
from taut.formulations.simulation.operator_graph import children
from taut.formulations.simulation.passes import RETURN, SEND
from tests.formulations.simulation.test_graph import devices_of, random_case, seconds
from tests.support.small import candidate, cluster, in_order, model, problem, strategy

pytestmark = pytest.mark.proof

SLOW = 1.28e-5
"""GB/s at which a message of 12,800 bytes takes a second."""


def took(alone: list[float], after: list[list[int]], of: list[int], loads: list[dict[int, float]]) -> list[float]:
    """Seconds of tasks that wait for others; flow ``of`` each, and what flows load by card."""
    first = np.cumsum([0, *map(len, after)])
    waits = np.array([u for each in after for u in each], np.int32)
    card = np.array([card for each in loads for card in each])
    load = np.array([load for each in loads for load in each.values()])
    rows = np.cumsum([0, *map(len, loads)])
    flows = CardFlows(np.array(of), rows, card, load, int(card.max()) + 1)
    return [float(each) for each in shared_seconds(np.array(alone), first, children(first, waits), flows)]


def test_two_flows_halve_each_other_while_both_are_there() -> None:
    """10 s from 0 and 4 s from 4 on one card: at 4 s six are left, at half speed both until 12 s, then two: 14 s."""
    found = took([4.0, 10.0, 4.0], [[], [], [0]], [-1, 0, 1], [{0: 1.0}, {0: 1.0}])
    assert found == pytest.approx([4.0, 14.0, 8.0])


def test_flows_that_leave_room_for_each_other_are_not_slowed() -> None:
    """Loads of 0.4 and 0.6 fill a card; with 0.8 and 0.6 both go on at 1 / 1.4, 5 s take 7 s."""
    assert took([5.0, 5.0], [[], []], [0, 1], [{0: 0.4}, {0: 0.6}]) == [5.0, 5.0]
    assert took([5.0, 5.0], [[], []], [0, 1], [{0: 0.8}, {0: 0.6}]) == pytest.approx([7.0, 7.0])


def test_a_flow_is_as_slow_as_its_fullest_card() -> None:
    """The first meets the second on card 0 and the third on card 1 too; the others meet it alone."""
    found = took([6.0, 6.0, 6.0], [[], [], []], [0, 1, 2], [{0: 1.0, 1: 1.0}, {0: 1.0}, {1: 1.0}])
    assert found == pytest.approx([12.0, 12.0, 12.0])


def test_tasks_in_a_circle_are_refused() -> None:
    """Two tasks that wait for each other never run."""
    with pytest.raises(FormulationError, match="2 tasks wait for each other for ever"):
        took([1.0, 1.0], [[1], [0]], [-1, 0], [{0: 1.0}])


def two_nodes(nic_gbytes: float) -> PlanningProblem:
    """Two nodes of two devices, 1 s a message between any two devices of them."""
    rows = [[0.0, SLOW], [SLOW, 0.0]]
    return problem(cluster(2, 2, rows=rows, nic_gbps=8 * nic_gbytes), model(4), latency_model="step", max_tp=1)


def test_messages_of_two_replicas_meet_on_the_cards_of_their_nodes() -> None:
    """
    One micro-batch through two stages on two nodes, two replicas: 4 layers of 3 s, a message forth and one back.

    Each replica's message takes 1 s alone; where the cards carry one such message, both at once take 2 s, so that the
    passes end 2 s later. Cards of twice the rate carry both.
    """
    plan = strategy(candidate(2, 1, 2, m=1), 1, 4)
    for nic, more in ((SLOW, 2.0), (2 * SLOW, 0.0)):
        given, devices = two_nodes(nic), in_order(plan.candidate)
        alone, shared = (operator_graph(given, plan, devices, share_links=shared) for shared in (False, True))
        last = alone.last[0, int(alone.order.first[1]) - 1]
        end = [float((graph.times() + graph.seconds)[last]) for graph in (alone, shared)]
        assert end == pytest.approx([12.0 + 2.0, 14.0 + more], rel=1e-6), nic
        assert len(shared.replicas.simulated) == 1


def test_replicas_of_which_one_sends_alone_are_kept_apart() -> None:
    """Four replicas, two on nodes that they share and two that cross with another placement: cards tell them apart."""
    rows = (np.full((4, 4), SLOW) * (1 - np.eye(4))).tolist()
    given = problem(cluster(4, 2, rows=rows, nic_gbps=8 * SLOW), model(4), latency_model="step", max_tp=1)
    plan = strategy(candidate(2, 1, 4, m=1), 1, 4)
    # Replicas 0 and 1 send from node 0 to node 1; replicas 2 and 3 each from node 2 to 3 and from 3 to 2.
    devices = np.array([[[0], [1], [4], [6]], [[2], [3], [7], [5]]])
    graph = operator_graph(given, plan, devices, share_links=True)
    assert graph.replicas.like[0] == graph.replicas.like[1] != graph.replicas.like[2] == graph.replicas.like[3]
    assert len(operator_graph(given, plan, devices).replicas.simulated) == 1
    assert sorted(graph.seconds[graph.kind == SEND].tolist()) == pytest.approx([1.0, 2.0], rel=1e-6)
    # Those of replicas 0 and 1 back take 2 s beside each other, and meet the reduction of their rank on the way.
    assert sorted(graph.seconds[graph.kind == RETURN].tolist())[0] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_sharing_only_delays_and_replicas_stand_for_each_other(seed: int) -> None:
    """On random strategies no task takes less or starts sooner, and simulating every replica changes nothing."""
    given, plan = random_case(seed, schedules=SCHEDULES, one_type=False)
    given = replace(given, overlap_grad_reduce=bool(seed % 2))
    devices = devices_of(plan)
    alone = operator_graph(given, plan, devices, every_replica=True)
    every = operator_graph(given, plan, devices, every_replica=True, share_links=True)
    assert np.all(every.seconds >= alone.seconds)
    assert np.all(every.times() >= alone.times() * (1 - 1e-12))
    once = operator_graph(given, plan, devices, share_links=True)
    assert seconds(once) == pytest.approx(seconds(every), rel=1e-9)
