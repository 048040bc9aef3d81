r"""
Least communication of a candidate, whatever its stages and placement.

With :math:`c` the most tensor groups a node holds, :math:`k` the nodes that stage 0's replicas touch, and
:math:`g = \lceil dp / k \rceil` replicas on the fullest of them:

(1) some replica's first run of stages inside a node has at most :math:`\lfloor c / g \rfloor` of them and every later
    run at most c, so it makes at least :math:`I(k) = \lceil (pp - \lfloor c/g \rfloor) / c \rceil` hops between nodes;
(2) all pipelines together connect the nodes into at most dp pieces, so their hops between nodes weigh at least the
    n - dp lightest edges of a minimum spanning tree of the n nodes, and the slowest pipeline at least the dp-th part;
(3) T_DP is at least that of ``taut.solver.bounds.least_rings`` (2) on k nodes; the communication is the least over k of
    (1) or (2) with it, and of a single stage that of (3) there.
(4) Where every s replicas have a copy of weights and gradients, the nodes of a stage say nothing of its rings, and the
    least of both is taken apart.

In the latency model ``step``, stages after the first are waited for as well: the ring of (3) at the k that is best for
it, over the bytes of stage x, after hops of which those before stage x count without their way back
(``taut.formulations.partition`` (1')); of the hops between nodes of (1) each adds at least the less of both. A tied
embedding adds its bytes over the best link of any two devices after the longest trip.

With unlike devices the slowest stage and the longest trip may lie in different pipelines, so (1) and (2) are replaced
by what every pipeline takes: :math:`\lceil pp / c \rceil - 1` hops between nodes.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import (
    least_bytes,
    optimized_parameters,
    optimizer_shards,
    overlaps,
    tied_bytes,
)
from taut.formulations.partition import LaterStages
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.least_rings import (
    every_device,
    exchanged_bytes,
    flat_ring,
    groups_of_node,
    least_expert_ring,
    least_ring,
    least_rings_by_class,
    ring_per_byte,
    telling,
)
from taut.solver.bounds.link_bounds import BestLinks


@dataclass(frozen=True)
class Communication:
    """
    Least communication seconds of a candidate.

    ``edge[j]`` for a cut before layer j, ``tail[j]`` for a stage 0 that ends at layer j (optimizer included, unless
    ``later`` has it). For ``amp``, whose ring is the slowest over all stages, ``ring`` seconds per gradient byte and
    ``ring_latency`` come on top.
    """

    edge: Floats
    tail: Floats
    ring: float = 0.0
    ring_latency: float = 0.0
    later: LaterStages | None = None


def communication(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Communication:
    """Least communication of a candidate, whatever its stages and placement, (1) to (4)."""
    weight = problem.transfer_weight(candidate)
    optimizer = fixed_seconds(problem, candidate)
    edge, between = least_edges(problem, candidate, best)
    gradients = least_bytes(problem, candidate)[0]
    if candidate.is_order_priced:
        return Communication(problem.coefficient("pipeline") * edge, _after_order(problem, candidate, best))
    if problem.latency_model == "amp":
        farthest = weight * min(between(k) for k in telling(problem, candidate, best))
        tail = np.full_like(edge, farthest + problem.constant_seconds)
        return Communication(weight * edge, tail, *flat_ring(problem, candidate, best))
    if candidate.dp_shard:
        return _of_copies(problem, candidate, best, edge, between)
    experts = least_expert_ring(problem, candidate, best)
    of_experts = experts * least_bytes(problem, candidate, problem.expert_gradient_bytes(candidate))[0]
    if candidate.pp == 1:
        ring = every_device(problem.links, candidate, best)
        exchanged = exchanged_bytes(problem, candidate, ring, experts)
        later = _alone(problem, candidate, ring, exchanged) if overlaps(problem, candidate) else None
        return Communication(edge, gradients * ring + of_experts + optimizer, later=later)
    numbers = telling(problem, candidate, best)
    choices = [weight * between(k) + gradients * ring_per_byte(candidate.dp_cp, k, best) for k in numbers]
    tail = np.min(choices, axis=0) + of_experts + optimizer
    if problem.latency_model != "step":
        return Communication(weight * edge, tail)
    farthest = weight * min(between(k) for k in numbers)
    tail = np.maximum(tail, optimizer + farthest + _least_tied(problem, candidate, best))
    return Communication(weight * edge, tail, later=_later(problem, candidate, best))


def _of_copies(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, edge: Floats, between: "Between"
) -> Communication:
    """Least communication where groups of replicas have a copy each, (4)."""
    weight, gradients = problem.transfer_weight(candidate), problem.gradient_bytes(candidate)[0]
    fixed, ring = fixed_seconds(problem, candidate), least_ring(problem, candidate, best)
    if candidate.pp == 1:
        return Communication(edge, gradients * ring + fixed)
    farthest = weight * min(between(k) for k in telling(problem, candidate, best))
    tail = farthest + np.maximum(gradients * ring, _least_tied(problem, candidate, best)) + fixed
    return Communication(weight * edge, tail, later=_later(problem, candidate, best))


def waits_for_every_stage(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a closed form waits for more stages than the first."""
    return problem.latency_model == "step" and candidate.pp > 1 and not candidate.is_order_priced


def optimizer_per_parameter(problem: PlanningProblem, candidate: Candidate) -> float:
    """Least seconds of the optimizer for a parameter of a tensor rank."""
    return float(problem.optimizer_seconds.min()) / optimizer_shards(candidate)


def fixed_seconds(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """The constant, and the optimizer of a stage 0 that ends at layer j where that alone is priced, (L+1,)."""
    parameters = optimized_parameters(problem, candidate)[0]
    if waits_for_every_stage(problem, candidate):
        return np.full(len(parameters), problem.constant_seconds)
    return np.asarray(optimizer_per_parameter(problem, candidate) * parameters + problem.constant_seconds)


def _least_tied(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Least seconds in which the holders of a tied embedding exchange it."""
    message, alone = tied_bytes(problem, candidate), problem.links.num_nodes == 1
    return message * min(best.inside_inverse, np.inf if alone else best.between(2, 2)) if message else 0.0


def _later(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> LaterStages:
    """What stages after the first wait for at least."""
    ring = least_ring(problem, candidate, best)
    edge, further = hops_before(problem, candidate, best)
    hops = min(_hops_between(problem, candidate, k) for k in telling(problem, candidate, best))
    # A group of several types may be slow in one pass and fast in the other, so what hides is not known.
    overlap = overlaps(problem, candidate)
    alike = len(problem.device_types) == 1
    experts = least_expert_ring(problem, candidate, best)
    exchanged = exchanged_bytes(problem, candidate, ring, experts)
    unhidden = least_bytes(problem, candidate, exchanged)
    return LaterStages(
        edge=edge,
        ring=np.full(candidate.pp, ring),
        exchanged=exchanged if alike or not overlap else unhidden,
        unhidden=unhidden,
        overlap=overlap and alike,
        # On one node nothing is said of hops between nodes, of which there are none.
        others=(hops * further if hops else 0.0) + problem.constant_seconds,
        parameters=optimized_parameters(problem, candidate).astype(float),
        optimizer=optimizer_per_parameter(problem, candidate),
        class_ring=np.zeros(3) if experts else least_rings_by_class(problem, candidate, best),
    )


def _alone(problem: PlanningProblem, candidate: Candidate, ring: float, exchanged: Floats) -> LaterStages | None:
    """What a single stage waits for where its reduction overlaps its backward pass; of unlike devices unknown."""
    if len(problem.device_types) > 1:
        return None
    tables = problem.tables(candidate)
    return LaterStages(
        edge=np.zeros(tables.num_layers + 1),
        ring=np.array([ring]),
        exchanged=exchanged,
        unhidden=least_bytes(problem, candidate, exchanged),
        overlap=True,
        others=float(fixed_seconds(problem, candidate)[-1]),
        parameters=tables.parameters.astype(float),
        optimizer=0.0,
    )


def hops_before(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, float]:
    """Least seconds of a cut without its way back (L+1,), and the least that a hop between nodes adds to either."""
    tables, width, links = problem.tables(candidate), candidate.width, problem.links
    weight, coefficient = problem.transfer_weight(candidate), problem.coefficient("pipeline")
    single = width == 1 or (links.by_node and width <= links.gpus_per_node.max())
    edge, further = np.zeros(tables.num_layers + 1), np.inf
    for message in np.unique(tables.message[1:-1]).tolist():
        inside, apart = best.hops(width, message, True)
        before = best.hops_before(width, message, weight, coefficient, single=single)
        if groups_of_node(problem, candidate) == 1:
            inside, before = np.inf, (np.inf, before[1])
        edge[1:-1][tables.message[1:-1] == message] = min(before)
        further = min(further, weight * (apart - min(inside, apart)), before[1] - min(before))
    return edge, float(further)


def _hops_between(problem: PlanningProblem, candidate: Candidate, k: int) -> int:
    """Hops between nodes that some pipeline makes at least, (1); of unlike devices, or wider blocks, every one."""
    pp, groups = candidate.pp, groups_of_node(problem, candidate)
    if len(problem.device_types) > 1 or not candidate.of_tensor_groups:
        return -(-pp // groups) - 1
    first_run = groups // (-(-candidate.dp // k))
    return -(-(pp - first_run) // groups) if pp > first_run else 0


def _after_order(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """
    Least seconds of reduction and optimizer after the passes of an order, by the end of the first chunk, (L+1,).

    In ``step`` it is what a single layer asks for, since the device that ends last may hold any.
    """
    each = least_ring(problem, candidate, best) * least_bytes(problem, candidate)
    of_experts = least_bytes(problem, candidate, problem.expert_gradient_bytes(candidate))
    each = each + least_expert_ring(problem, candidate, best) * of_experts
    each = each + optimizer_per_parameter(problem, candidate) * optimized_parameters(problem, candidate)
    if problem.latency_model == "step":
        each = np.broadcast_to(np.diagonal(each, 1).min(), each.shape)
    return np.asarray(each[0] + problem.constant_seconds)


class Between(Protocol):
    """Least further seconds for the hops between nodes given k, (1) and (2), which are so many at least."""

    def __call__(self, k: int, hops: int = 0) -> float:
        """Seconds with k nodes and ``hops`` hops between them at least."""


def least_edges(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, Between]:
    """Least hop seconds by cut, and the least further seconds for hops between nodes."""
    tables, pp = problem.tables(candidate), candidate.pp
    both_ways = problem.latency_model != "amp"
    edge = np.zeros(tables.num_layers + 1)
    if pp == 1:
        return edge, lambda k, hops=0: 0.0
    groups = groups_of_node(problem, candidate)
    width, further = candidate.width, np.inf
    for message in set(tables.message[1:-1].tolist()):
        inside, apart = best.hops(width, float(message), both_ways)
        least = apart if groups == 1 else min(inside, apart)
        edge[1:-1][tables.message[1:-1] == message] = least
        further = min(further, apart - least)
    if len(problem.device_types) > 1:
        # The slowest stage and the longest trip may lie in different pipelines: only what every trip takes counts.
        return edge, lambda k, hops=0: max(_hops_between(problem, candidate, k), hops) * further
    forest = 0.0
    if tables.equal_messages and candidate.width <= problem.links.gpus_per_node.max() and problem.links.num_nodes > 1:
        forest = _forest(problem, candidate, best, float(tables.message[1]), float(edge[1]))

    def between(k: int, hops: int = 0) -> float:
        hops = max(_hops_between(problem, candidate, k), hops)
        return max(hops * further, forest) if hops else forest

    return edge, between


def _forest(problem: PlanningProblem, candidate: Candidate, best: BestLinks, message: float, least: float) -> float:
    """Seconds beyond pp - 1 least hops that the slowest pipeline takes at least, (2)."""
    tree = best.tree(candidate.width, message, problem.latency_model != "amp")
    joined = max(problem.links.num_nodes - candidate.pipelines, 0)
    total = tree[:joined].sum() - joined * least
    return max(float(total) / candidate.pipelines, 0.0)
