r"""
What the stages of a division wait for, and the sets of nodes that they take: data of bound ``node-sets``.

For the layers and the recompute of every stage x of a division (``taut.formulations.partition`` (1')), with cut(y)
seconds of the further bytes of the cut after stage y,

(1) :math:`C_x = (m - 1) \max_y high(y) + optimizer \max_y P_y + \sum_{y < x} forward(y) + \sum_{y \ge x} (low(y) +
    cut(y)) + constant`;
(2) :math:`R_x(\rho) = \max(\rho \, unhidden(x), \rho \, exchanged(x) - (low(x) - forward(x)))` with overlap,
    :math:`\rho \, exchanged(x)` without.
"""

from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.placement.exact.node_sets.labels import NodeSets


@dataclass(frozen=True, kw_only=True)
class Placements:
    """Sets of nodes of a stage, seconds per byte of their rings (K,), and seconds of hops (nodes, nodes)."""

    sets: NodeSets
    rings: Floats
    hops: Floats
    net: Floats


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Seconds C_x of a division (pp,), bytes of reductions (pp,), those never hidden, and seconds that hide others."""

    seconds: Floats
    exchanged: Floats
    unhidden: Floats
    hiding: Floats

    def allowed(self, x: int, rings: Floats) -> Floats:
        """Seconds -C_x - R_x by seconds per byte of a ring, which T leaves for hops."""
        reduced = np.maximum(rings * self.exchanged[x] - self.hiding[x], rings * self.unhidden[x])
        return np.asarray(-self.seconds[x] - reduced)


def placements_of(problem: PlanningProblem, candidate: Candidate, smallest: float) -> Placements:
    """
    Sets of nodes with their rings, and hops.

    ``smallest``: bytes that price the hops.
    """
    links, tp, nodes = problem.links, candidate.tp, problem.links.num_nodes
    sets = sets_of(nodes, candidate.dp)
    pairs = np.arange(nodes)[:, None], np.arange(nodes)[None, :]
    hops = problem.transfer_weight(candidate) * links.hop_seconds(tp, smallest, both_ways=True)[pairs]
    back = links.latency[pairs] + smallest * (1.0 / links.pipeline_rate(tp))[pairs]
    return Placements(
        sets=sets,
        rings=ring_by_byte(problem.rings, sets.members, links.node_of_site[sets.members]),
        hops=hops,
        net=hops - problem.coefficient("pipeline") * back.T,
    )


def sets_of(nodes: int, size: int) -> NodeSets:
    """All sets of so many nodes."""
    members = np.array(list(combinations(range(nodes), size)), dtype=np.int64)
    orders = np.array(list(permutations(range(size))), dtype=np.int64)
    return NodeSets(members, (1 << members).sum(axis=1), orders)


def waiting_of(
    stages: PartitionProblem, division: Division, edge: Floats, later: LaterStages, constant: float
) -> Waiting:
    """
    What the stages of a division wait for but hops, (1) and (2).

    ``stages``: seconds of ranges, of one device type; ``division``: layers and recompute of every stage; ``edge``:
    seconds of the further bytes of a cut before layer j, (L+1,); ``later``: bytes of reductions, and the optimizer;
    ``constant``: seconds of every step. Returns ``Waiting``: by stage.
    """
    within = division.starts, division.ends
    low, high = (figures[0][division.recompute_index, *within] for figures in (stages.low, stages.high))
    assert stages.forward is not None
    forward = stages.forward[0][within]
    cuts = np.append(edge[division.ends[:-1]], 0.0)
    slowest = (stages.micro_batches - 1) * high.max() + later.optimizer * later.parameters[within].max()
    after = np.cumsum((low + cuts)[::-1])[::-1]
    before = np.cumsum(forward) - forward
    return Waiting(
        seconds=slowest + constant + before + after + later.each,
        exchanged=later.exchanged[within],
        unhidden=later.unhidden[within],
        hiding=low - forward if later.overlap else np.zeros(len(low)),
    )
