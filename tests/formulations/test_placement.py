"""Sites and devices of the placement problem."""

import numpy as np
import pytest

from taut.formulations.placement import placement_problem, slot_sites
from tests.support.small import candidate, cluster, in_order, problem, strategy


def test_slots_are_node_shares_nodes_or_devices() -> None:
    """Groups inside a node take shares of it, larger groups take nodes, measured devices stand for themselves."""
    by_node = problem(cluster(2, 4)).links
    assert slot_sites(by_node, 2).tolist() == [[0], [0], [1], [1]]
    assert slot_sites(by_node, 8).tolist() == [[0, 1]]
    by_device = problem(cluster(1, 4, rows=np.ones((4, 4)).tolist())).links
    assert slot_sites(by_device, 2).tolist() == [[0, 1], [2, 3]]


def test_sites_become_devices_in_node_order() -> None:
    """The n-th group on a node gets the node's n-th share of devices."""
    # Positions are replica by replica: replica 0 stages 0, 1 on nodes 1, 0; replica 1 on nodes 0, 1.
    given = problem(cluster(2, 4))
    placed = placement_problem(given, strategy(candidate(2, 2, 2, m=4), 2, 4))
    devices = placed.devices(np.array([[1], [0], [0], [1]]))
    assert devices.tolist() == [[[4, 5], [2, 3]], [[0, 1], [6, 7]]]


def test_cost_is_the_evaluators_step_time() -> None:
    """The placement problem prices by the one evaluator."""
    given = problem(cluster(2, 1))
    placed = placement_problem(given, strategy(candidate(2, 1, 1), 2, 4))
    assert placed.cost(np.array([[0], [1]])) == pytest.approx(54.0 + 4 * 25.6e-6)
    assert placed.violations(np.array([[0], [1]])) == ()
    assert placed.violations(np.array([[0], [0]])) != ()


def test_stage_that_does_not_fit_a_type_is_infinite() -> None:
    """A stage has no finite seconds on a device type whose memory it exceeds."""
    given = problem(cluster(2, 1, memory_gib=1e-4))
    placed = placement_problem(given, strategy(candidate(2, 1, 1), 2, 4))
    assert np.isinf(placed.stage_seconds).all()


def test_only_priced_stages_have_gradients() -> None:
    """Pipette prices stage 0's ring alone, AMP every stage's; without replicas there is none."""
    choice = candidate(2, 1, 2, m=4)
    pipette = placement_problem(problem(cluster(4, 1)), strategy(choice, 2, 4))
    amp = placement_problem(problem(cluster(4, 1), latency_model="amp"), strategy(choice, 2, 4))
    alone = placement_problem(problem(cluster(2, 1)), strategy(candidate(2, 1, 1), 2, 4))
    assert np.count_nonzero(pipette.gradients) == 1
    assert np.count_nonzero(amp.gradients) == 2
    assert np.count_nonzero(alone.gradients) == 0
    assert in_order(choice).shape == (2, 2, 1)
