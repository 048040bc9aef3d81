"""The links of a cluster as a graph: what the planner's own links say, edge by edge."""

import numpy as np
import pytest

from taut.formulations.links import links
from tests.support.instances import random_problem
from tests.support.racked import racked


@pytest.mark.parametrize("measured", [False, True])
def test_edges_are_the_links_that_plans_are_priced_with(measured: bool) -> None:
    """Sixty random clusters, with racks, measured by node and by device: bandwidth and latency of every pair."""
    for seed in range(60):
        drawn = random_problem(seed, measured=measured).cluster
        cluster = racked(np.random.default_rng(seed), 5) if seed % 3 == 0 and not measured else drawn
        graph, wanted = cluster.to_networkx(), links(cluster)
        rate, latency = wanted.rate.dense(), wanted.latency.dense()
        assert len(graph) == wanted.num_sites
        assert graph.number_of_edges() == wanted.num_sites * (wanted.num_sites - 1)
        for a, b, edge in graph.edges(data=True):
            assert edge["bandwidth"] == pytest.approx(rate[a, b]), seed
            assert edge["latency"] == pytest.approx(latency[a, b]), seed


def test_nodes_say_what_they_are() -> None:
    """Every device stands on one graph node, which knows its rack, its type and its links inside."""
    cluster = random_problem(3).cluster
    graph = cluster.to_networkx()
    assert sorted(device for _, about in graph.nodes(data=True) for device in about["devices"]) == list(
        range(cluster.num_devices)
    )
    for _, about in graph.nodes(data=True):
        group = cluster.node_list[about["node"]]
        assert about["device"] == group.device.name
        assert about["intra_bandwidth"] == group.intra_bandwidth_gbps * 1e9 / 8
