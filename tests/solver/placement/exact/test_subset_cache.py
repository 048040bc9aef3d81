"""Slots of one kind can change places, and no others are of one kind."""

from itertools import pairwise

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.formulations.links import Links, links
from taut.formulations.rings import ring_rates
from taut.solver.placement.exact.joint import MAX_KINDS, slot_kinds
from tests.support.small import cluster


def racked(counts: list[int], gpus: int, **network: object) -> ClusterSpec:
    """Nodes in racks with 100 Gb/s inside and 25 between."""
    device = {"name": "d", "memory_gib": 1, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}
    node = {"count": sum(counts), "gpus_per_node": gpus, "intra_bandwidth_gbps": 800, "device": device}
    ends = np.cumsum([0, *counts])
    racks = [{"nodes": f"{a}-{b - 1}", "bandwidth_gbps": 100} for a, b in pairwise(ends.tolist())]
    values = {"bandwidth_gbps": 25, "latency_us": 5, "racks": racks, **network}
    return ClusterSpec.parse({"name": "racked", "nodes": [node], "network": values}, "test")


def _found(given: Links, tp: int) -> Ints | None:
    return slot_kinds(given, ring_rates(given, by_members=False), tp)


def kinds_of(spec: ClusterSpec, tp: int) -> list[int]:
    found = _found(links(spec), tp)
    assert found is not None
    return [int(kind) for kind in found]


def test_single_slots_of_a_rack_are_alike() -> None:
    """Nodes that one tensor group fills are of their rack's kind; those of several groups are kinds of their own."""
    given = racked([3, 2], 4)
    assert kinds_of(given, 4) == [0, 0, 0, 1, 1]
    assert kinds_of(given, 2) == np.repeat(np.arange(5), 2).tolist()
    assert kinds_of(given, 1) == np.repeat(np.arange(5), 4).tolist()


def test_one_unlike_link_makes_a_kind() -> None:
    """A single slower direction between two nodes sets both apart; latencies and cards do too."""
    rates = np.ones((6, 6))
    assert kinds_of(cluster(6, 2, rows=rates.tolist()), 2) == [0] * 6
    rates[1, 4] = 0.5
    assert kinds_of(cluster(6, 2, rows=rates.tolist()), 2) == [0, 1, 0, 0, 2, 0]
    rates[4, 1] = 0.5
    assert kinds_of(cluster(6, 2, rows=rates.tolist()), 2) == [0, 1, 0, 0, 1, 0]
    spec = racked([3, 2], 4, racks=[{"nodes": "0-2", "latency_us": 1}, {"nodes": "3-4", "latency_us": 2}])
    assert kinds_of(spec, 4) == [0, 0, 0, 1, 1]


def test_devices_measured_one_by_one() -> None:
    """Devices of one node with equal links are of one kind, but not devices of two nodes."""
    node = np.arange(6) // 3
    rates = np.where(np.equal.outer(node, node), 4.0, 1.0)
    assert kinds_of(cluster(2, 3, rows=rates.tolist()), 1) == [0, 0, 0, 1, 1, 1]
    rates[0, 1] = rates[1, 0] = 3.0
    assert kinds_of(cluster(2, 3, rows=rates.tolist()), 1) == [0, 0, 1, 2, 2, 2]


def test_many_kinds_are_none() -> None:
    """Beyond the most kinds there is no answer, however many slots can be exchanged."""
    rows = np.random.default_rng(0).uniform(1, 2, (MAX_KINDS + 2, MAX_KINDS + 2)).tolist()
    assert _found(links(cluster(MAX_KINDS + 2, 1, rows=rows)), 1) is None


@pytest.mark.parametrize("gpus", [1, 2])
def test_alike_slots_change_places(gpus: int) -> None:
    """Exchanging the sites of two slots of one kind leaves every table of links as it is."""
    exchanged = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        kind = rng.integers(0, 3, 6)
        rates = rng.choice([1.0, 2.0], (3, 3))[np.ix_(kind, kind)]
        given = links(cluster(6, gpus, rows=rates.tolist()))
        kinds = _found(given, gpus)
        assert kinds is not None
        for u, v in zip(*np.nonzero(np.triu(np.equal.outer(kinds, kinds), 1)), strict=True):
            order = np.arange(6)
            order[[u, v]] = v, u
            for table in (given.latency, given.pipeline_rate(gpus), given.ring_inverse):
                assert np.array_equal(table[np.ix_(order, order)], table.dense())
            exchanged += 1
    assert exchanged > 50
