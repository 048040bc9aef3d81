r"""
What a step on a slot graph waits for once its paths have ended: the reductions of gradients, and by how long.

Sets: leading stages x. Data: gradient bytes :math:`G_t` and slack :math:`A_t` seconds of reductions t, each of a stage
x(t), whose ring takes :math:`\rho_{x(t)}` seconds per byte (``taut.solver.placement.annealing.path_prices`` (1)); a
division, :math:`b_x` backward seconds of a micro-batch on stage x and c of the shortest way back; h the weight of a
trip.

(1) A stage ends :math:`A_t` before stage 0, so that the step waits :math:`\max_t G_t \rho_{x(t)} - A_t` for
    reductions; stage 0 has no slack, and the papers' latency models wait for it alone.
(2) First and last slot of a path may exchange a tied embedding as well (``path_prices`` (3)).
(3) Stage x ends :math:`\sum_{y < x} (b_y + c)` before stage 0. In seconds of hops all is divided by h.
(4) With overlap (``taut.formulations.gradient_reductions`` (2)) a stage has two reductions: the bytes that no backward
    pass hides, and all of them with the further slack :math:`b_x`.
(5) A stage counts where its slowest ring would outlast the fastest of stage 0; slack grows by a backward pass a stage,
    so few do.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.compiled import jit
from taut.formulations.gradient_reductions import least_bytes, overlaps, tied_bytes
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.placement.slots import Box, SlotGraph

MOST_STAGES = 16
"""Leading stages whose rings are priced: each costs time in every move, and later ones end long before stage 0. With 4
of 8, annealed placements of 8 nodes of 8 devices took 0.4 % longer, as rings of later stages became the slowest."""


class Reductions(NamedTuple):
    """
    Reductions of the leading stages that the step may wait for, (1).

    Parameters
    ----------
    stages
        Stage of every reduction, (reductions,).
    gradients
        Bytes, (reductions,).
    slack
        Seconds that the stage ends before stage 0, (reductions,).
    tied
        Bytes of a tied embedding that first and last stage exchange, (2).
    """

    stages: Ints
    gradients: Floats
    slack: Floats
    tied: float = 0.0

    @property
    def num_stages(self) -> int:
        """Leading stages up to the last that has a reduction."""
        return int(self.stages.max(initial=-1)) + 1


def first_stage(gradients: float) -> Reductions:
    """
    Wait for stage 0 alone.

    ``gradients``: its gradient bytes. Returns its reduction, or none without gradients.
    """
    some = int(gradients > 0.0)
    return Reductions(np.zeros(some, np.int64), np.full(some, gradients), np.zeros(some))


class Waits(NamedTuple):
    """Reductions by stage: bytes and slack of each, (stages, most of any); without a byte where there are fewer."""

    gradients: Floats
    slack: Floats


def by_stage(reductions: Reductions) -> Waits:
    """
    List reductions by their stage.

    ``reductions``: bytes and slack, in any order. Returns the same figures.
    """
    most = int(np.bincount(reductions.stages, minlength=1).max())
    waits = Waits(np.zeros((reductions.num_stages, most)), np.zeros((reductions.num_stages, most)))
    taken = np.zeros(reductions.num_stages, np.int64)
    for t, x in enumerate(reductions.stages.tolist()):
        waits.gradients[x, taken[x]], waits.slack[x, taken[x]] = reductions.gradients[t], reductions.slack[t]
        taken[x] += 1
    return waits


@jit
def stage_wait(waits: Waits, x: int, ring: float) -> float:
    """
    Find for how long the step waits for the reductions of one stage, (1).

    ``waits``: bytes and slack by stage; ``ring``: seconds per byte of its ring. Returns seconds after the end of stage
    0, at least zero.
    """
    longest = 0.0
    for t in range(waits.gradients.shape[1]):
        longest = max(longest, waits.gradients[x, t] * ring - waits.slack[x, t])
    return longest


def leading_reductions(
    problem: PlanningProblem, candidate: Candidate, graph: SlotGraph, stages: PartitionProblem, division: Division
) -> Reductions:
    """
    Reductions that a placement of a division may wait for, in seconds of hops.

    ``stages``: seconds of ranges of layers; ``division``: layers and recompute of the stages. Returns those of (5), by
    (3) and (4).
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
