r"""
Placement as a quadratic assignment problem (Koopmans and Beckmann): traffic between groups times distance of slots.

Sets
    Positions :math:`p = z \cdot pp + x` of stage x in replica z, one tensor group each; slots s, as many
    (``taut.formulations.placement``).

Data
    Flow :math:`F_{pq}` in bytes of a step on one tensor rank, distance :math:`D_{st} = 1 / B_{st}` in seconds per byte,
    the rate inside the node for two slots of one node.

    (1) Pipelines: :math:`F_{pq} = F_{qp} = h M_x` between stages x and x + 1 of a replica, h the weight of a trip and
        :math:`M_x` the bytes of a message.
    (2) Rings: :math:`F_{pq} = 2 \frac{dp - 1}{dp} G_x` from a replica to the next, and from the last to the first,
        :math:`G_x` being the gradient bytes of stage x that are priced.

Variables
    A permutation f, the slot of every position.

Objective
    (3) :math:`\min \sum_{pq} F_{pq} D_{f(p) f(q)}`, the seconds of all transfers one after the other.

The sum replaces the maxima of the step time, which pays the slowest pipeline and the slowest ring alone. So (3) is a
surrogate in the form that solvers and bounds for quadratic assignment take; its value is no bound on the step time.
What a tensor group exchanges stays in its slot and is left out. Source: T. C. Koopmans and M. Beckmann, Assignment
problems and the location of economic activities, Econometrica 25 (1957).
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment.assignment import QuadraticAssignment
from taut.formulations.placement import PlacementProblem
from taut.formulations.rings import ring_factor


def placement_assignment(given: PlacementProblem) -> QuadraticAssignment:
    """
    The quadratic assignment of a strategy's tensor groups to slots, (3).

    ``given``: the placement problem of a strategy whose tensor groups lie in one node each. Returns flow in bytes and
    distance in seconds per byte, both (dp pp, dp pp).
    """
    problem = given.problem
    name = f"{problem.model.name} on {problem.cluster.name}"
    return QuadraticAssignment(flow=group_flow(given), distance=slot_distance(given), name=name)


def hop_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step between every stage and the next, one way, (pp - 1,), by (1)."""
    weight = given.problem.transfer_weight(given.candidate)
    return np.broadcast_to(np.asarray(weight * given.messages, dtype=float), (given.candidate.pp - 1,))


def replica_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step from a replica of every stage to the next one, (pp,), by (2)."""
    per_stage = ring_factor(given.candidate.pipelines) * np.asarray(given.gradients, dtype=float)
    return np.broadcast_to(per_stage, (given.candidate.pp,))


def group_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step from every position to every other, (dp pp, dp pp), by (1) and (2)."""
    return trip_flow(given) + ring_flow(given)


def trip_flow(given: PlacementProblem) -> Floats:
    """Bytes of activations and gradients between stages, (dp pp, dp pp), by (1)."""
    flow, position = _empty(given)
    hops = np.broadcast_to(hop_flow(given), (given.candidate.pipelines, given.candidate.pp - 1))
    flow[position[:, :-1], position[:, 1:]] = flow[position[:, 1:], position[:, :-1]] = hops
    return flow


def ring_flow(given: PlacementProblem) -> Floats:
    """Bytes of the rings of gradients, (dp pp, dp pp), by (2)."""
    flow, position = _empty(given)
    if given.candidate.pipelines > 1:
        flow[position, np.roll(position, -1, axis=0)] += replica_flow(given)
    return flow


def _empty(given: PlacementProblem) -> tuple[Floats, Ints]:
    """No flow, and the position of every stage in every replica, (dp, pp)."""
    pp, dp = given.candidate.pp, given.candidate.pipelines
    return np.zeros((pp * dp, pp * dp)), np.arange(pp * dp).reshape(dp, pp)


def slot_distance(given: PlacementProblem) -> Floats:
    """Seconds per byte from every slot to every other, (slots, slots), zero on the diagonal."""
    sites = given.slots[:, 0]
    distance = 1.0 / given.links.rate[np.ix_(sites, sites)]
    np.fill_diagonal(distance, 0.0)
    return np.asarray(distance)
