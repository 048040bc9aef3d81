"""Flows between tensor groups, distances of slots and their price, by hand."""

import numpy as np
import pytest

from benchmarks.placement_clusters import problem as benchmark_problem
from benchmarks.placement_clusters import rates
from taut.formulations.latency import step_time
from taut.formulations.placement import (
    PlacementProblem,
    group_flow,
    placement_assignment,
    placement_problem,
    slot_distance,
)
from taut.formulations.strategy import Division, Strategy
from tests.support.small import candidate, cluster, problem, strategy

LAYER = 12 * 64 * 64 + 13 * 64


def placed(nodes: int, stages: int, tp: int) -> PlacementProblem:
    """The workload of the placement benchmark in equal stages on a fat tree."""
    given = benchmark_problem(nodes, stages, tp, "fat-tree", 1, "pipette")
    division = Division.of_ends(96 // stages * np.arange(1, stages + 1), np.full(stages, 2))
    return placement_problem(given, Strategy(candidate=given.candidates[0], division=division))


def test_pipeline_sends_every_micro_batch_there_and_back() -> None:
    """Two stages, eight micro-batches: a trip counts 8 / 2 = 4 times, with 12,800 bytes each way."""
    flow = group_flow(placement_problem(problem(cluster(2, 1)), strategy(candidate(2, 1, 1), 2, 4)))
    assert flow.tolist() == [[0.0, 4 * 12_800.0], [4 * 12_800.0, 0.0]]


def test_rings_send_to_the_next_replica() -> None:
    """Four replicas send 2 x 3/4 of the gradients (4 B a parameter)."""
    flow = group_flow(placement_problem(problem(cluster(4, 1)), strategy(candidate(1, 1, 4, m=2), 4)))
    assert flow[0, 1] == flow[3, 0] == pytest.approx(1.5 * 4 * LAYER * 4)
    assert np.count_nonzero(flow) == 4


def test_distance_is_seconds_per_byte() -> None:
    """Inside a node 10 GB/s, between nodes 1 GB/s."""
    distance = slot_distance(placement_problem(problem(cluster(2, 2)), strategy(candidate(4, 1, 1), 1, 2, 3, 4)))
    assert distance[0].tolist() == pytest.approx([0.0, 1e-10, 1e-9, 1e-9])


def test_assignment_costs_all_transfers_one_after_the_other() -> None:
    """Four stages of one pipeline inside a node or across: 8 / 4 = 2 times 12,800 B each way, at 10 or at 1 GB/s."""
    given = placement_problem(problem(cluster(2, 2)), strategy(candidate(4, 1, 1), 1, 2, 3, 4))
    assignment = placement_assignment(given)
    hop = 2 * 2 * 12_800
    assert assignment.cost([0, 1, 2, 3]) == pytest.approx(hop * (1e-10 + 1e-9 + 1e-10))
    assert assignment.cost([0, 2, 1, 3]) == pytest.approx(hop * 3e-9)


def test_flows_are_the_bytes_of_every_link() -> None:
    """
    8 nodes, 4 stages, 2 replicas: 512 / (2 * 2) = 128 micro-batches, a trip counts 128 / 4 = 32 times.

    A hop carries 2 sequences * 2048 * 3072 * 2 bytes each way, 32 times. The ring carries 2 (2 - 1) / 2 = 1 times the
    gradients of 24 layers: 12 * 3072^2 weights each (and some vectors), 4 bytes, on one of 8 tensor ranks.
    """
    flow = group_flow(placed(8, 4, 8))
    hop = 32 * 2 * 2048 * 3072 * 2
    assert flow[0, 1] == flow[1, 0] == flow[6, 7] == pytest.approx(hop)
    assert flow[3, 4] == flow[0, 2] == flow[1, 5] == 0.0
    assert flow[0, 4] == flow[4, 0] == pytest.approx(24 * 12 * 3072**2 * 4 / 8, rel=2e-3)
    assert np.count_nonzero(flow) == 2 * 2 * 3 + 2


def test_distances_are_inverse_rates_between_the_nodes_of_slots() -> None:
    """8 nodes with two groups each: slots 0 and 1 share a node of 600 GB/s, 0 and 2 are as far as nodes 0 and 1."""
    distance = slot_distance(placed(8, 4, 4))
    assert distance.shape == (16, 16)
    assert distance[0, 1] == pytest.approx(1 / 600e9)
    assert distance[0, 2] == distance[1, 3] == pytest.approx(1 / (1e9 * rates(8, "fat-tree", 1)[0, 1]))


def test_surrogate_of_one_pipeline_is_its_price() -> None:
    """One replica has no maximum to lose: flow times distance are the seconds of its transfers, in any order."""
    given = placed(8, 8, 8)
    assignment = placement_assignment(given)
    order = np.random.default_rng(0).permutation(8)
    priced = step_time(given.problem, given.strategy, given.devices(given.slots[order]))
    assert assignment.cost(order) == pytest.approx(float(priced.pipeline_transfers))
