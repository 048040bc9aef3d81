"""Where annealing of pipelines begins: every start takes every slot once, and stages as it says."""

import numpy as np
import pytest

from taut.solver.placement.annealing.paths import phases, stagewise
from taut.solver.placement.slots import SlotGraph


def racks(slots: int) -> SlotGraph:
    """Twelve nodes in two racks, three or more pipelines of four."""
    rack = np.arange(12) % 2
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0) + np.add.outer(np.arange(12), np.arange(12)) / 100
    capacity = np.full(12, slots)
    return SlotGraph(hops=hops, inverse=hops, capacity=capacity, pp=4, replicas=3 * slots, card=np.zeros(12))


@pytest.mark.parametrize("slots", [1, 2])
def test_every_start_takes_every_slot_once(slots: int) -> None:
    """The paths of every start, whatever stages are waited for, take each node as often as it has slots."""
    graph = racks(slots)
    for start in {start for runs in (*phases(graph), *stagewise(graph)) for start in runs}:
        for paths in start.options(graph, 1):
            assert paths.shape == (graph.num_paths, graph.pp)
            assert (np.bincount(paths.ravel(), minlength=12) == graph.capacity).all()


def test_stages_lie_in_racks_where_several_are_waited_for() -> None:
    """Stage by stage near nodes fill a rack first, and a set of fast links begins the pipelines it is given for."""
    graph = racks(1)
    starts = [start for runs in stagewise(graph) for start in runs]
    whole = next(start for start in starts if start.leading == graph.pp and start.first is None)
    stages = whole.options(graph, 0)[0].T % 2
    assert (stages == stages[:, :1]).all()
    for start in starts:
        if start.first is not None:
            assert set(start.options(graph, 0)[0][:, 0].tolist()) == set(start.first)
            assert len({v % 2 for v in start.first}) == 1


def test_fast_links_of_the_first_stage_come_first_without_racks() -> None:
    """Of nodes with links that hardly differ, the first run at length takes the slots of one stage stage by stage."""
    rate = np.random.default_rng(0).uniform(1.0, 1.2, (12, 12))
    hops = np.maximum(rate, rate.T)
    graph = SlotGraph(hops=hops, inverse=hops, capacity=np.ones(12, np.int64), pp=4, replicas=3, card=np.zeros(12))
    assert [start.leading for start in stagewise(graph)[1]] == [1, 0]
    assert [start.leading for start in stagewise(racks(1))[1]] == [4, 4]
