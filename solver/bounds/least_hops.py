r"""
Least seconds of a candidate's hops between stages, whatever its stages and placement.

With :math:`c` the most tensor groups a node holds, :math:`k` the nodes that stage 0's replicas touch, and
:math:`g = \lceil dp / k \rceil` replicas on the fullest of them:

(1) Some replica's first run of stages inside a node has at most :math:`\lfloor c / g \rfloor` stages, and every later
    run at most c. This replica makes at least :math:`I(k) = \lceil (pp - \lfloor c/g \rfloor) / c \rceil` hops between
    nodes.
(2) All pipelines together connect the n nodes into at most dp pieces. Their hops between nodes weigh at least as much
    as the n - dp lightest edges of a minimum spanning tree of the nodes, and the hops of the slowest pipeline at least
    the dp-th part.
(3) With mixed devices the slowest stage and the longest trip may lie in different pipelines. Only what every pipeline
    takes counts then, in the place of (1) and (2): :math:`\lceil pp / c \rceil - 1` hops between nodes.
(4) A hop between the slowest type and another type adds its least seconds beyond a hop between nodes, which (3) has
    counted (``taut.formulations.partition`` (6)). A pipeline with n stages on one class touches at least
    :math:`\lceil n / c \rceil + \lceil (pp - n) / c \rceil` nodes.
(5) If stage 0 touches k nodes and :math:`k c \le dp`, it fills them, and no other stage is there. Every pipeline, with
    mixed devices too, then makes :math:`\lceil (pp - 1) / c \rceil` hops between nodes, and (4) counts the stages after
    stage 0.
"""

from typing import Protocol

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.links import Links
from taut.formulations.partition import NO_CROSSING, Crossing, slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.least_rings import groups_of_node
from taut.solver.bounds.link_bounds import BestLinks


class Between(Protocol):
    """Least seconds that hops between nodes add to the quickest hops, by the nodes k of stage 0, (1) and (2)."""

    def __call__(self, k: int, hops: int = 0) -> float:
        """Seconds if stage 0 touches k nodes and a pipeline makes at least ``hops`` hops between nodes."""


def least_edges(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, Between]:
    """Seconds of the quickest hop by cut (L+1,), and what hops between nodes add to these as a function of k."""
    return best.of_latest(problem, candidate, lambda: _least_edges(problem, candidate, best))


def _least_edges(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, Between]:
    tables, pp = problem.tables(candidate), candidate.pp
    both_ways = problem.latency.both_ways
    edge = np.zeros(tables.num_layers + 1)
    if pp == 1:
        return edge, lambda k, hops=0: 0.0
    groups = groups_of_node(problem, candidate.width)
    width, further = candidate.width, np.inf
    for message in set(tables.message[1:-1].tolist()):
        inside, apart = best.hops(width, float(message), both_ways)
        least = apart if groups == 1 else min(inside, apart)
        edge[1:-1][tables.message[1:-1] == message] = least
        further = min(further, apart - least)
    if len(problem.device_types) > 1:
        # The slowest stage and the longest trip may lie in different pipelines: only what every trip takes counts.
        return edge, lambda k, hops=0: max(hops_between(problem, candidate, k), hops) * further
    forest = 0.0
    if tables.equal_messages and candidate.width <= problem.links.gpus_per_node.max() and problem.links.num_nodes > 1:
        forest = _forest(problem, candidate, best, float(tables.message[1]), float(edge[1]))

    def between(k: int, hops: int = 0) -> float:
        hops = max(hops_between(problem, candidate, k), hops)
        return max(hops * further, forest) if hops else forest

    return edge, between


def _forest(problem: PlanningProblem, candidate: Candidate, best: BestLinks, message: float, least: float) -> float:
    """Least seconds by which the hops of the slowest pipeline exceed pp - 1 of the quickest hops, (2)."""
    tree = best.tree(candidate.width, message, problem.latency.both_ways)
    joined = max(problem.links.num_nodes - candidate.pipelines, 0)
    total = tree[:joined].sum() - joined * least
    return max(float(total) / candidate.pipelines, 0.0)


def hops_before(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, float]:
    """Least seconds of a cut without its way back (L+1,), and the least that a hop between nodes adds."""
    tables, width, links = problem.tables(candidate), candidate.width, problem.links
    weight, coefficient = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    single = is_single(links, width)
    edge, further = np.zeros(tables.num_layers + 1), np.inf
    for message in np.unique(tables.message[1:-1]).tolist():
        inside, apart = best.hops(width, message, True)
        before = best.hops_before(width, message, weight, coefficient, single=single)
        if groups_of_node(problem, candidate.width) == 1:
            inside, before = np.inf, (np.inf, before[1])
        edge[1:-1][tables.message[1:-1] == message] = min(before)
        further = min(further, weight * (apart - min(inside, apart)), before[1] - min(before))
    return edge, float(further)


def hops_between(problem: PlanningProblem, candidate: Candidate, k: int) -> int:
    """Least hops between nodes of the slowest pipeline, (1), or of every pipeline with mixed or wider blocks, (3)."""
    pp, groups = candidate.pp, groups_of_node(problem, candidate.width)
    if len(problem.device_types) > 1 or not candidate.of_tensor_groups:
        return -(-pp // groups) - 1
    first_run = groups // (-(-candidate.dp // k))
    return -(-(pp - first_run) // groups) if pp > first_run else 0


def hops_of_others(problem: PlanningProblem, candidate: Candidate) -> int:
    """Least hops between nodes of every pipeline if stage 0 shares no node, (5)."""
    return -(-(candidate.pp - 1) // groups_of_node(problem, candidate.width))


def crossing(problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, alone: bool = False) -> Crossing:
    """What a hop between types adds, (4), nothing if blocks span nodes; ``alone`` stage 0 shares no node, (5)."""
    width, links, slow = candidate.width, problem.links, problem.type_of_node == slowest_type(problem, candidate)
    if width > links.gpus_per_node.max():
        return NO_CROSSING
    weight, coefficient = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    edge, between = least_edges(problem, candidate, best)
    edge_before, further = hops_before(problem, candidate, best)
    whole, before = np.inf, np.inf
    for message, cut in zip(*np.unique(problem.tables(candidate).message[1:-1], return_index=True), strict=True):
        hop = links.hop_seconds(width, float(message), both_ways=problem.latency.both_ways)
        first = best.seconds_before(width, float(message), weight, coefficient, single=is_single(links, width))
        whole = min(whole, weight * (best.least_across(hop, slow) - edge[cut + 1]))
        before = min(before, best.least_across(first, slow) - edge_before[cut + 1])
    hops = hops_of_others(problem, candidate) if alone else hops_between(problem, candidate, 1)
    # Hops between nodes are counted as the quickest, of which this is one.
    counted = np.array([weight * between(1, hops) / hops, further]) if hops else np.zeros(2)
    whole, before = np.maximum([whole, before] - counted, 0.0).tolist()
    return Crossing(whole, min(whole, before), float(counted.min()), groups_of_node(problem, candidate.width), alone)


def is_single(links: Links, width: int) -> bool:
    """Whether a hop takes equally long for all ranks of a block."""
    return width == 1 or (links.by_node and width <= int(links.gpus_per_node.max()))
