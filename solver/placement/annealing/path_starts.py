"""
Where annealing of pipelines begins: runs in phases, short ones first.

Pipelines that take near nodes are short; stages that take near nodes have fast rings. Where stage 0 alone is waited
for, the best runs begin with either, with nodes in random order, or with stage 0 on a set of fast links. Where several
stages are, a run that begins with stages across racks seldom leaves them, so most begin with every stage on near nodes;
without racks that a stage fits none is near, and those with stage 0 alone on fast links come first.
Few placements have fast rings on all of them and results vary, so more runs follow from the starts that led farthest.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.solver.placement.annealing.paths import HOT, MILD, WARM
from taut.solver.placement.clusters import fast_link_sets, linkage_order
from taut.solver.placement.path_cover.racks.visits import fast_clusters
from taut.solver.placement.slots import SlotGraph

MAX_FAST_SETS = 8
"""Sets of fast links from which annealing begins, the first two at length: stage 0 of a good placement lies in one."""
MANY_NODES = 192
"""Nodes beyond which annealing always begins with near nodes together: its moves do not suffice to find them."""
FURTHER = 10
"""
Further pairs of runs where several stages are waited for, from the two starts that led to the best so far.

On clusters of 64 and 128 nodes the best of eight runs is 0.3 to 1.5 % of the communication below the median.
"""


@dataclass(frozen=True, slots=True)
class PathStart:
    """
    Start of an annealing run.

    ``near`` nodes together or in random order; slots of so many ``leading`` stages taken stage by stage before all
    others, which are taken path by path, or of as many as is best (None); first temperature ``hot``; ``share`` of the
    moves at length; ``first``, nodes with fast links that the first slots are to have.
    """

    near: bool
    leading: int | None
    hot: float
    share: float
    first: tuple[int, ...] | None = None

    def options(self, graph: SlotGraph, seed: int) -> list[Ints]:
        """
        Build the paths.

        ``seed``: seed of the random order. Returns nodes, (paths, pp), of which the best are to be taken.
        """
        n = len(graph.hops)
        order = linkage_order(graph.hops) if self.near else np.random.default_rng(seed).permutation(n)
        if self.first is not None:
            order = np.concatenate([self.first, order[~np.isin(order, self.first)]])
        numbers = range(graph.pp) if self.leading is None else [self.leading]
        return [first_paths(graph, order, leading) for leading in numbers]


def first_paths(graph: SlotGraph, order: Ints, leading: int = 0) -> Ints:
    """Paths (paths, pp) that take the nodes' slots in order, those of leading stages stage by stage before all else."""
    taken, first = np.repeat(order, graph.capacity[order]), leading * graph.num_paths
    stages = taken[:first].reshape(leading, graph.num_paths).T
    return np.hstack([stages, taken[first:].reshape(graph.num_paths, -1)])


def phases(graph: SlotGraph) -> list[list[PathStart]]:
    """
    List the runs of a graph of which stage 0 alone is waited for.

    Returns starts of the runs of each phase.
    """
    if len(graph.capacity) > MANY_NODES:
        return [[PathStart(True, None, MILD, share), PathStart(True, 0, WARM, share)] for share in (0.1, 1.0)]
    if (graph.capacity == 1).all():
        brief = [PathStart(near, 0, HOT, 0.1) for near in (True, False)]
        random = [PathStart(False, 0, hot, 1.0) for hot in (HOT, WARM)]
        sets = [tuple(nodes) for nodes in fast_link_sets(graph.inverse, graph.num_paths)[:MAX_FAST_SETS].tolist()]
        tight = [PathStart(True, 1, MILD, 1.0 if place < 2 else 0.1, first) for place, first in enumerate(sets)]
        return [phase for phase in (brief, random, tight[:2], tight[2:]) if phase]
    return [
        [PathStart(True, None, MILD, 0.1), PathStart(True, 0, HOT, 0.1)],
        [PathStart(True, None, MILD, 1.0), PathStart(False, 0, WARM, 1.0)],
        [PathStart(False, None, MILD, 1.0), PathStart(False, 0, HOT, 1.0)],
    ]


def stagewise(graph: SlotGraph) -> list[list[PathStart]]:
    """
    List the runs of a graph of whose stages several are waited for.

    Returns starts of the runs of each phase.
    """
    if (graph.capacity > 1).any():
        return phases(graph)
    every, sets = graph.pp, [tuple(v) for v in fast_link_sets(graph.inverse, graph.num_paths)[:2].tolist()]
    brief = [PathStart(True, every, WARM, 0.1), PathStart(True, every, WARM, 0.1, sets[0])]
    apart = [PathStart(True, 1, MILD, 1.0, sets[0]), PathStart(False, 0, WARM, 1.0)]
    whole = [PathStart(True, every, MILD, 1.0), *(PathStart(True, every, WARM, 1.0, first) for first in sets)]
    rack = fast_clusters(graph.inverse, graph.capacity)
    racked = rack is not None and int(np.bincount(rack).max()) >= graph.num_paths
    at_length = [whole[:2], apart] if racked else [apart, whole[:2]]
    return [brief, *at_length, [*whole[2:], PathStart(True, every, HOT, 1.0)]]
