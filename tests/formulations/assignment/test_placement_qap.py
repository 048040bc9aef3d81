"""Traffic between workers and its price, by hand."""

import numpy as np
import pytest

from taut.formulations.assignment.placement_qap import device_distance, placement_assignment, worker_flow
from tests.support.small import candidate, cluster, problem, strategy

LAYER = 12 * 64 * 64 + 13 * 64


def test_pipeline_sends_every_micro_batch_there_and_back() -> None:
    """Two stages, eight micro-batches of 12,800 bytes, each way."""
    flow = worker_flow(problem(cluster(2, 1)), strategy(candidate(2, 1, 1), 2, 4))
    assert flow.tolist() == [[0.0, 8 * 12_800.0], [8 * 12_800.0, 0.0]]


def test_rings_send_to_the_next_worker() -> None:
    """Four replicas send 2 x 3/4 of the gradients (4 B a parameter), two tensor ranks 2 x 1/2 of 16 all-reduces."""
    data = worker_flow(problem(cluster(4, 1)), strategy(candidate(1, 1, 4, m=2), 4))
    assert data[0, 1] == data[3, 0] == pytest.approx(1.5 * 4 * LAYER * 4)
    assert np.count_nonzero(data) == 4
    tensor = worker_flow(problem(cluster(1, 2)), strategy(candidate(1, 2, 1), 4))
    assert tensor[0, 1] == tensor[1, 0] == pytest.approx(8 * 16 * 12_800)


def test_distance_is_seconds_per_byte() -> None:
    """Inside a node 10 GB/s, between nodes 1 GB/s."""
    distance = device_distance(problem(cluster(2, 2)).links)
    assert distance[0].tolist() == pytest.approx([0.0, 1e-10, 1e-9, 1e-9])


def test_assignment_costs_all_transfers_one_after_the_other() -> None:
    """Stage 0 and 1 of one pipeline inside a node or across: 2 x 8 x 12,800 B at 10 GB/s or at 1 GB/s."""
    given = problem(cluster(2, 2))
    assignment = placement_assignment(given, strategy(candidate(4, 1, 1), 1, 2, 3, 4))
    hop = 2 * 8 * 12_800
    assert assignment.cost([0, 1, 2, 3]) == pytest.approx(hop * (1e-10 + 1e-9 + 1e-10))
    assert assignment.cost([0, 2, 1, 3]) == pytest.approx(hop * 3e-9)
