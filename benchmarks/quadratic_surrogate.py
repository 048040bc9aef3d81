r"""
Placement as a quadratic assignment, for peers that know no maxima (Koopmans and Beckmann).

Sets: positions :math:`p = z \cdot pp + x` and slots :math:`s`, as in ``taut.formulations.placement``.
Data: flow :math:`F_{pq}` in bytes of a step, distance :math:`D_{st} = 1 / B_{st}` in seconds per byte, the rate inside
the node for two slots of one.

(1) Pipelines: :math:`F_{pq} = F_{qp} = h M_x` between stages x and x + 1 of a replica, h the weight of a trip.
(2) Rings: :math:`F_{pq} = 2 \frac{dp - 1}{dp} G_x` from a replica to the next, and from the last to the first.
(3) minimise :math:`\sum_{pq} F_{pq} D_{f(p) f(q)}` over one-to-one f.

The sums stand for the maxima of the true objective, which then prices what is found.
"""

import time

import numpy as np
from scipy.optimize import quadratic_assignment

from benchmarks.pipette_annealing import identity
from taut.data.arrays import Floats, Ints
from taut.formulations.placement import PlacementProblem

MOST_FAQ, MOST_TWO_OPT = 512, 128
"""Positions beyond which scipy takes minutes."""


def koopmans_beckmann(given: PlacementProblem) -> tuple[Floats, Floats]:
    """Flow between positions, (1) and (2), and distance between slots, of groups that lie in one node each."""
    pp, dp = given.candidate.pp, given.candidate.dp
    weight = given.problem.transfer_weight(given.candidate)
    position = np.arange(pp * dp).reshape(dp, pp)
    flow = np.zeros((pp * dp, pp * dp))
    hops = np.broadcast_to(weight * given.messages, (dp, pp - 1))
    flow[position[:, :-1], position[:, 1:]] = flow[position[:, 1:], position[:, :-1]] = hops
    flow[position, np.roll(position, -1, axis=0)] += 2 * (dp - 1) / dp * given.gradients
    sites = given.slots[:, 0]
    distance = 1.0 / given.links.rate[np.ix_(sites, sites)]
    np.fill_diagonal(distance, 0.0)
    return flow, distance


def scipy_placement(given: PlacementProblem) -> tuple[float, float]:
    """
    Step seconds of the best placement from scipy's quadratic assignment, and the seconds it takes.

    The best, by the true objective, of FAQ, 2-opt from there, and 2-opt from identity order; not a number where there
    are too many positions.
    """
    size = len(given.slots)
    if size > MOST_FAQ:
        return np.nan, np.nan
    started = time.perf_counter()
    flow, distance = koopmans_beckmann(given)
    found = [quadratic_assignment(flow, distance, method="faq").col_ind]
    if size <= MOST_TWO_OPT:
        for start in (found[0], _slots_of(given, identity(given))):
            guess = np.column_stack([np.arange(size), start])
            found.append(quadratic_assignment(flow, distance, "2opt", {"partial_guess": guess}).col_ind)
    seconds = time.perf_counter() - started
    return min(given.cost(given.slots[slots]) for slots in found), seconds


def _slots_of(given: PlacementProblem, positions: Ints) -> Ints:
    """Slot of every position; those of one node are alike and taken in order."""
    slots, taken = np.empty(len(positions), np.int64), np.argsort(positions[:, 0], kind="stable")
    slots[taken] = np.argsort(given.slots[:, 0], kind="stable")
    return slots
