r"""
Which reductions an annealing of pipelines waits for.

Sets: leading stages x. Data: a division, :math:`b_x` backward seconds of a micro-batch on stage x and c of the shortest
way back; h the weight of a trip; G bytes of gradients by stage.

(1) Stage x ends :math:`A_x = \sum_{y < x} (b_y + c)` before stage 0. A step waits
    :math:`\max_x G_x \rho_x - A_x` for rings of :math:`\rho_x` seconds per byte; in seconds of hops all is divided
    by h.
(2) With overlap (``taut.formulations.gradient_reductions`` (2)) a stage has two reductions: the bytes that no backward
    pass hides, and all of them with the further slack :math:`b_x`.
(3) A stage counts where its slowest ring would outlast the fastest of stage 0; slack grows by a backward pass a stage,
    so few do.

The papers' latency models wait for stage 0 alone.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, overlaps, tied_bytes
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.placement.annealing.path_waits import Reductions, first_stage
from taut.solver.placement.slots import Box, SlotGraph

MOST_STAGES = 16
"""Leading stages whose rings are priced: each costs time in every move, and later ones end long before stage 0. With 4
of 8, annealed placements of 8 nodes of 8 devices took 0.4 % longer, as rings of later stages became the slowest."""


def leading_reductions(
    problem: PlanningProblem, candidate: Candidate, graph: SlotGraph, stages: PartitionProblem, division: Division
) -> Reductions:
    """
    Reductions that a placement of a division may wait for, in seconds of hops.

    ``stages``: seconds of ranges of layers; ``division``: layers and recompute of the stages. Returns those of (3), by
    (1) and (2).
    """
    first, end = np.array(division.stages[:MOST_STAGES]).T
    weight, unhidden = problem.transfer_weight(candidate), least_bytes(problem, candidate)[first, end]
    if not problem.latency.waits_for_every_stage or stages.forward is None:
        return first_stage(float(unhidden[0]) / weight)
    recompute = [RECOMPUTE.index(name) for name in division.recompute[:MOST_STAGES]]
    backward = stages.low[0, recompute, first, end] - stages.forward[0, first, end]
    back = problem.coefficient("pipeline") * graph.shortest_hop() / 2
    slack = np.concatenate([[0.0], (backward + back).cumsum()[:-1]])
    least, most = _extremes(graph)
    gradients = problem.gradient_bytes(candidate)[first, end]
    told = [(x, float(unhidden[x]), float(slack[x])) for x in range(len(first))]
    if overlaps(problem, candidate):
        told += [(x, float(gradients[x]), float(slack[x] + backward[x])) for x in range(len(first))]
    floor = least * unhidden[0]
    kept = [entry for entry in told if entry[0] == 0 or entry[1] * most - entry[2] > floor]
    kept = [entry for entry in kept if entry[1] > 0.0]
    columns: Floats = np.array(kept, dtype=np.float64).reshape(-1, 3)
    tied = tied_bytes(problem, candidate) / weight
    return Reductions(columns[:, 0].astype(np.int64), columns[:, 1] / weight, columns[:, 2] / weight, tied)


def _extremes(graph: SlotGraph) -> tuple[float, float]:
    """Seconds per byte of the fastest ring at least and of the slowest at most."""
    numbers = range(graph.min_touched, graph.max_touched + 1)
    boxes = [Box(min_touched=k, max_touched=k, low=0.0, high=np.inf) for k in numbers]
    apart = ~np.eye(len(graph.hops), dtype=bool)
    shared = graph.capacity > 1
    between = max(float(graph.inverse[apart].max(initial=0.0)), float(graph.card.max()))
    inside = float(np.diag(graph.inverse)[shared].max(initial=0.0))
    members = min(graph.replicas, int(graph.capacity.max()))
    slowest = inside_factor(members) * inside + ring_factor(graph.max_touched) * between
    return min(map(graph.ring_bound, boxes)), slowest
