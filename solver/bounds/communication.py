r"""
Least communication of a candidate, whatever its stages and placement.

With the hops of ``taut.solver.bounds.least_hops`` (1) to (4), for :math:`k` the nodes that stage 0's replicas touch:

(1) On k nodes the ring of stage 0 takes at least ``taut.solver.bounds.least_rings`` (2), and the pipelines make at
    least the hops for k. The communication is at least the least sum of both over k. The exchange of a tied embedding,
    (8) there, counts in the place of the ring if it takes longer. For a single stage the ring takes (3) there.
(2) k counts the nodes of all holders of a stage. It says nothing of other groups, such as a copy. Each ring of such a
    group takes its own least.
(3) With mixed devices there are two cases. Either stage 0 fills its k nodes, and every pipeline makes the hops of
    ``taut.solver.bounds.least_hops`` (5). Or stage 0 touches more nodes, and its rings run between these.

In the latency model ``step`` a step waits for later stages too. Stage x takes its ring at the best k, over its own
bytes, after all hops; the hops before stage x count without their way back (``taut.formulations.partition`` (1')). A
hop between nodes adds at least the less of what it adds with its way back and without.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import least_bytes, overlaps
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.shards import holders, optimized_parameters, optimizer_shards
from taut.formulations.partition import NO_CROSSING, Crossing, LaterStages, waits_for_later_stages
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.terms import in_one_ring, reductions_of
from taut.solver.bounds.least_hops import crossing, hops_before, hops_between, hops_of_others, least_edges
from taut.solver.bounds.least_rings import (
    Spread,
    exchanged_bytes,
    flat_ring,
    groups_of_node,
    least_expert_ring,
    least_mixed_rings,
    least_place,
    least_reduction,
    least_ring,
    least_rings_by_class,
    ring_per_byte,
    spreads,
    spreads_of_first,
    telling,
    tied_exchange,
)
from taut.solver.bounds.link_bounds import BestLinks


@dataclass(frozen=True)
class Communication:
    """
    Least communication of a candidate in seconds, by layer, to be added to any division of the layers.

    ``edge[j]``: a cut before layer j, (L+1,). ``tail[j]``: everything after the passes of a stage 0 that ends at layer
    j, (L+1,): reduction, constant, and optimizer. ``later``: what later stages wait for; with several stages in
    ``step`` it has the optimizer in the place of ``tail``. ``ring`` and ``ring_latency``: seconds per gradient byte and
    seconds of AMP's ring, which depends on the largest stage; 0 elsewhere. ``crossing``: what a hop between classes of
    device adds.
    """

    edge: Floats
    tail: Floats
    ring: float = 0.0
    ring_latency: float = 0.0
    later: LaterStages | None = None
    crossing: Crossing = NO_CROSSING


def communication(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Communication:
    """Least communication of a closed form over all divisions and placements, (1) and (2)."""
    found = _of_one_class(problem, candidate, best)
    if not _crosses_types(problem, candidate):
        return found
    return replace(found, crossing=crossing(problem, candidate, best))


def _crosses_types(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a pipeline may have hops between types of device."""
    return len(problem.device_types) > 1 and not candidate.pipelines_by_type and candidate.pp > 1


def communication_of_order(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Communication:
    """Least communication of an order over all divisions and placements: its hops, and what follows its passes."""
    edge, _ = least_edges(problem, candidate, best)
    return Communication(problem.coefficient("pipeline") * edge, _after_order(problem, candidate, best))


def _of_one_class(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Communication:
    """Least communication of a candidate, without ``crossing``."""
    weight = problem.transfer_weight(candidate)
    optimizer = fixed_seconds(problem, candidate)
    edge, between = least_edges(problem, candidate, best)
    gradients = least_bytes(problem, candidate)[0]
    if problem.latency.rings_are_flat:
        farthest = weight * min(between(k) for k in telling(problem, candidate, best))
        tail = np.full_like(edge, farthest + problem.least_constant(candidate))
        return Communication(weight * edge, tail, *flat_ring(problem, candidate, best))
    if candidate.pp == 1:
        experts = least_expert_ring(problem, candidate, best)
        of_experts = _expert_seconds(problem, candidate, experts)[0]
        ring = reductions_of(problem.terms(candidate))[0].rate(least_place(problem, candidate, best))
        exchanged = exchanged_bytes(problem, candidate, ring, experts)
        later = _alone(problem, candidate, ring, exchanged) if overlaps(problem, candidate) else None
        return Communication(edge, gradients * ring + of_experts + optimizer, later=later)
    tail = _tail_on(problem, candidate, best, spreads(problem, holders(candidate), best.num_nodes))
    if not problem.latency.waits_for_every_stage:
        return Communication(weight * edge, tail)
    return Communication(weight * edge, tail, later=_later(problem, candidate, best))


def by_first_stage(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, comm: Communication
) -> tuple[Communication, ...]:
    """The least communication in both cases of (3); empty if the cases say no more than (1)."""
    if not _crosses_types(problem, candidate) or problem.latency.rings_are_flat:
        return ()
    if not in_one_ring(problem.terms(candidate)):
        return ()
    spread, each = spreads(problem, holders(candidate), best.num_nodes), groups_of_node(problem, candidate.tp)
    filled = candidate.dp_cp // each
    alone = crossing(problem, candidate, best, alone=True)
    if filled not in spread or groups_of_node(problem, candidate.width) == 1 or alone.further == 0.0:
        return ()
    hops, later = hops_of_others(problem, candidate), comm.later
    tail = _tail_on(problem, candidate, best, range(filled, filled + 1), hops)
    if later is not None:
        more = hops - hops_between(problem, candidate, filled)
        later = replace(later, others=later.others + more * hops_before(problem, candidate, best)[1])
    found = (replace(comm, tail=tail, later=later, crossing=alone),)
    if filled + 1 == spread.stop:
        return found
    return *found, replace(comm, tail=_tail_on(problem, candidate, best, range(filled + 1, spread.stop)))


def _tail_on(problem: PlanningProblem, candidate: Candidate, best: BestLinks, spread: range, hops: int = 0) -> Floats:
    """Least seconds after the passes by the end of stage 0, (L+1,), on a number of nodes in ``spread``, (1)."""
    tied, reduced = tied_exchange(problem, candidate, best), reductions_of(problem.terms(candidate))[0]
    firsts = spreads_of_first(tied, candidate.dp_cp, spread, best)

    def on_nodes(k: int) -> float:
        """Seconds per byte where the holders of the stage touch so many nodes."""
        return reduced.rate(
            lambda group: (
                ring_per_byte(group.members, k, best) if group.kind == "replicas" else least_ring(problem, group, best)
            )
        )

    return tail_of_first(
        problem,
        candidate,
        best,
        ((first._replace(hops=max(first.hops, hops)), on_nodes(first.k)) for first in firsts),
        least_expert_ring(problem, candidate, best),
    )


def tail_of_first(
    problem: PlanningProblem,
    candidate: Candidate,
    best: BestLinks,
    choices: Iterable[tuple[Spread, float]],
    experts: float,
) -> Floats:
    """Seconds after a stage 0 that ends at layer j, (L+1,), (1): the least over its cases and their rings."""
    weight, (_, between) = problem.transfer_weight(candidate), least_edges(problem, candidate, best)
    gradients = least_bytes(problem, candidate)[0]
    of_experts = _expert_seconds(problem, candidate, experts)[0]
    waits = [
        weight * between(first.k, first.hops) + np.maximum(gradients * ring + of_experts, first.tied)
        for first, ring in choices
    ]
    return np.asarray(np.min(waits, axis=0) + fixed_seconds(problem, candidate))


def _expert_seconds(problem: PlanningProblem, candidate: Candidate, rate: float) -> Floats:
    """Seconds of the rings of experts by range at a rate, (L+1, L+1); without such rings one zero, (1, 1)."""
    if rate == 0.0:
        return np.zeros((1, 1))
    return rate * least_bytes(problem, candidate, problem.gradient_bytes(candidate, "experts"))


def optimizer_per_parameter(problem: PlanningProblem, candidate: Candidate) -> float:
    """Optimizer seconds for a parameter of a tensor rank, on the fastest type or, if all are used, on the slowest."""
    seconds = optimizer_seconds(problem, candidate)
    return float(seconds.max() if candidate.pipelines_by_type else seconds.min()) / optimizer_shards(candidate)


def fixed_seconds(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """The calibration's constant, and stage 0's optimizer unless ``later`` has it, by the end of stage 0, (L+1,)."""
    parameters = optimized_parameters(problem.tables(candidate), candidate)[0]
    if waits_for_later_stages(problem, candidate):
        return np.full(len(parameters), problem.least_constant(candidate))
    return np.asarray(optimizer_per_parameter(problem, candidate) * parameters + problem.least_constant(candidate))


def _later(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> LaterStages:
    """Least seconds that stages after the first wait for, as ``taut.formulations.partition`` (1') takes them."""
    ring = least_reduction(problem, candidate, best)
    edge, further = hops_before(problem, candidate, best)
    hops = min(hops_between(problem, candidate, k) for k in telling(problem, candidate, best))
    # A group of several types may be slow in one pass and fast in the other, so what hides is not known.
    overlap = overlaps(problem, candidate)
    alike = len(problem.device_types) == 1
    experts = least_expert_ring(problem, candidate, best)
    exchanged = exchanged_bytes(problem, candidate, ring, experts)
    unhidden = least_bytes(problem, candidate, exchanged)
    apart = experts > 0.0 or candidate.pipelines_by_type
    return LaterStages(
        edge=edge,
        ring=np.full(candidate.pp, ring),
        exchanged=exchanged if alike or not overlap else unhidden,
        unhidden=unhidden,
        overlap=overlap and alike,
        # On one node nothing is said of hops between nodes, of which there are none.
        others=(hops * further if hops else 0.0) + problem.least_constant(candidate),
        parameters=optimized_parameters(problem.tables(candidate), candidate).astype(float),
        optimizer=optimizer_per_parameter(problem, candidate),
        class_ring=np.zeros(3) if apart else least_rings_by_class(problem, candidate, best),
        mixed_rings=np.zeros(1) if apart else least_mixed_rings(problem, candidate, best),
    )


def _alone(problem: PlanningProblem, candidate: Candidate, ring: float, exchanged: Floats) -> LaterStages | None:
    """What a single stage waits for if its reduction overlaps its backward pass; None with mixed devices."""
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


def _after_order(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> Floats:
    """Least seconds after an order's passes by the end of the first chunk, (L+1,); in ``step`` of any layer."""
    each = least_reduction(problem, candidate, best) * least_bytes(problem, candidate)
    each = each + _expert_seconds(problem, candidate, least_expert_ring(problem, candidate, best))
    optimized = optimized_parameters(problem.tables(candidate), candidate)
    each = each + optimizer_per_parameter(problem, candidate) * optimized
    if problem.latency.waits_for_every_stage:
        each = np.broadcast_to(np.diagonal(each, 1).min(), each.shape)
    return np.asarray(each[0] + problem.least_constant(candidate))
