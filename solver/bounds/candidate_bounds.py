r"""
Lower bounds on a candidate, each a minimum over partition, recompute and placement together.

With the least communication of ``taut.solver.bounds.communication``, each is at least as strong as the one before; they
are named by what they minimise exactly:

``relaxation``  ideal balance without memory, on devices of several types by (5), plus (4); where a schedule is priced
                by its order, m times what the busiest device does at least with whole layers, or a micro-batch's trip
                there and back, plus its ring and optimizer;
``partition``   the exact partition (``taut.solver.layer_partition``), plus that communication;
``placement``   the same with the exact placement for the layers of stage 0
                (``taut.solver.placement.exact.subset``);
``every-placement``  the least over all placements, each with its own groups, where they are few and unlike
                     (``taut.solver.placement.exact.enumerate``);
``cover``       the same with the case distinction of ``taut.solver.placement.path_cover.cases``,
                for any number of nodes;
``order``       of a schedule that is priced by its order, the paths of ``taut.solver.order_priced.bound``.

(5) Let a type t take at least :math:`\rho_t \ge 1` times the least seconds of any type for every layer. A stage is as
    slow as the slowest of its dp b devices, b a block's. At least :math:`\lceil N / (dp\,b) \rceil` stages have one of
    the N slowest devices; so with the devices in order, the slowest first, the i-th slowest stage is no faster than
    device i dp b, and within :math:`\theta` it takes at most the layers whose least seconds, the shortest first, add up
    to :math:`\theta / \rho_{i\,dp\,b}`. The slowest stage takes the least :math:`\theta` in which all stages take L
    layers, and at least the least seconds of all layers over :math:`\sum_i 1 / \rho_{i\,dp\,b}`.
"""

from dataclasses import replace

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.order_division import ChunkProblem, chunk_problem
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import ON_V, SPLIT
from taut.formulations.sharding import half_ring, pass_bytes
from taut.formulations.space import Candidate
from taut.formulations.tables.least_traffic import least_within
from taut.solver.bounds.communication import Communication, fixed_seconds
from taut.solver.bounds.copies import cases
from taut.solver.bounds.least_hops import least_edges
from taut.solver.bounds.least_rings import least_gather, least_mean_ring
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.ring_members import MemberBound, has_members
from taut.solver.layer_partition import Partition, solve_partition
from taut.solver.order_priced.pricing import ROUNDING as ORDER_ROUNDING

ROUNDING = 1e-12
"""Relative allowance for the rounding of sums in floating point, taken off every bound."""


def chunked(problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True) -> ChunkProblem:
    """The division into chunks of a candidate whose schedule is priced by its order, at the best links."""
    edge, _ = least_edges(problem, candidate, best)
    ring, gather = least_mean_ring(problem, candidate, best), least_gather(problem, candidate, best)
    return chunk_problem(problem, candidate, edge, ring, gather=gather, margin=margin)


def relaxation_bound(problem: PlanningProblem, candidate: Candidate, comm: Communication, gather: float = 0.0) -> float:
    """
    Bound ``relaxation``: perfect balance over the stages by (5), memory ignored, plus communication.

    A pass of sharded weights takes at least its gathers and scatters, ``gather`` seconds per byte.
    """
    tables, m = problem.tables(candidate), candidate.num_micro_batches
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    # Layer by layer: one type may be the fastest for some layers, another for the others.
    layers = np.arange(tables.num_layers)
    within = least_within(problem, candidate, tables.traffic.at(slice(None), layers, layers + 1))
    seconds = (tables.seconds[:, :, layers, layers + 1] + within)[:, allowed]
    by_type = seconds.min(axis=1)
    least = by_type.min(axis=0)
    whole = max(least.sum(), _whole_gathers(problem, candidate, gather))
    straggler = max(whole / candidate.pp, _slowest_stage(least, _paces(problem, candidate, by_type)), least.max())
    if candidate.is_order_priced:
        computing = _busiest(least, candidate) + candidate.vpp * _least_waits(problem, candidate, gather)
        busiest = max(straggler, computing)
        trip = _trip(problem, candidate, seconds)
        return float((max(m * busiest, trip) + comm.tail[1:].min()) * (1 - ORDER_ROUNDING))
    cuts = (candidate.pp - 1) * comm.edge[1:-1].min(initial=np.inf) if candidate.pp > 1 else 0.0
    gradients = problem.gradient_bytes(candidate)[0, -1] / candidate.pp
    ring = comm.ring * gradients + comm.ring_latency
    if comm.later is not None:
        ring += comm.later.optimizer * float(comm.later.parameters[0, -1]) / candidate.pp
    return float((whole + (m - 1) * straggler + cuts + comm.tail[1:].min() + ring) * (1 - ROUNDING))


def _paces(problem: PlanningProblem, candidate: Candidate, by_type: Floats) -> Floats:
    """Seconds of every stage by the least seconds of its layers at least, the slowest stage first (pp,), (5)."""
    least = by_type.min(axis=0)
    if not least.any():
        return np.ones(candidate.pp)
    ratio = (by_type[:, least > 0] / least[least > 0]).min(axis=1)
    of_device = np.repeat(ratio[problem.type_of_node], problem.links.gpus_per_node)
    slowest_first = np.sort(of_device)[::-1]
    return np.asarray(slowest_first[:: candidate.pipelines * candidate.width])


def _slowest_stage(least: Floats, paces: Floats) -> float:
    """Least seconds of the slowest stage, over whole layers in any groups, (5)."""
    within = np.cumsum(np.sort(least))
    steps = np.unique(within[:, None] * np.unique(paces))
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        # A stage of this pace may end within its step by the rounding of their quotient.
        held = np.searchsorted(within, steps[middle] / paces * (1 + ROUNDING), side="right").sum()
        low, high = (low, middle) if held >= len(within) else (middle + 1, high)
    return float(max(steps[low] if len(steps) else 0.0, least.sum() / (1.0 / paces).sum()))


def _whole_gathers(problem: PlanningProblem, candidate: Candidate, gather: float) -> float:
    """Seconds of a micro-batch's passes over all layers, each as long as its computation or its gathers at least."""
    if gather == 0.0:
        return 0.0
    layers, passes = np.arange(problem.tables(candidate).num_layers), problem.passes(candidate)
    forward, backward = passes.forward, passes.input_gradient + passes.weight_gradient
    least = [each[:, :, layers, layers + 1].min(axis=(0, 1)).sum() for each in (forward, backward)]
    sent = pass_bytes(problem, candidate)
    gathers = [sent.forward_alone + sent.forward_beside, sent.backward_alone + sent.backward_beside]
    return float(sum(max(one, gather * every[0, -1]) for one, every in zip(least, gathers, strict=True)))


def _trip(problem: PlanningProblem, candidate: Candidate, seconds: Floats) -> float:
    """Least seconds of one micro-batch through all layers and back, after which the first device ends."""
    layers = np.arange(problem.tables(candidate).num_layers)
    if candidate.schedule in SPLIT:
        allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
        seconds = seconds - problem.passes(candidate).weight_gradient[:, allowed][..., layers, layers + 1]
    return float(seconds.min(axis=(0, 1)).sum())


def _least_waits(problem: PlanningProblem, candidate: Candidate, gather: float) -> float:
    """Seconds that the passes of a stage or chunk wait at least for the first gather and the last scatter of each."""
    if gather == 0.0:
        return 0.0
    layers, sent = np.arange(problem.tables(candidate).num_layers), pass_bytes(problem, candidate)
    alone = sent.forward_alone + sent.backward_alone
    return gather * float(alone[layers, layers + 1].min())


def _busiest(least: Floats, candidate: Candidate) -> float:
    """
    Least seconds for a micro-batch of the busiest device, over whole layers in any groups.

    First and last layer, with embedding and head, lie on one device under a V and on two elsewhere. With k of the
    other n layers beside them, some other device has at least the mean of the rest, rounded up.
    """
    inner = np.concatenate([[0.0], np.cumsum(np.sort(least[1:-1]))])
    n, others = len(inner) - 1, candidate.pp - (1 if candidate.schedule in ON_V else 2)
    first = np.arange(n + 1)[:, None]
    if candidate.schedule in ON_V:
        rest, edges = n - first, least[0] + least[-1] + inner[first]
    else:
        last = np.arange(n + 1)[None, :]
        rest, edges = n - first - last, np.maximum(least[0] + inner[first], least[-1] + inner[last])
    possible = (rest >= 0) & ((others > 0) | (rest == 0))
    mean = inner[np.where(possible, -(-rest // max(others, 1)), 0)]
    return float(np.where(possible, np.maximum(edges, mean), np.inf).min())


def partition_bound(
    problem: PlanningProblem,
    candidate: Candidate,
    comm: Communication,
    *,
    margin: bool = True,
    stages: PartitionProblem | None = None,
    links: BestLinks | None = None,
    limit: float = np.inf,
) -> tuple[float, Partition]:
    """
    Bound ``partition``: exact stages and recompute within memory, with the least communication.

    Returns infinity where no division fits. For ``amp`` the largest stage's gradients are tried in ascending order
    as a cap, since the ring is priced by them: the least over caps of (partition under the cap, ring at the cap).
    A single stage with several copies is bounded by cases (``taut.solver.bounds.copies``), and
    in ``step`` the members of rings are branched on (``taut.solver.bounds.ring_members``) where ``links`` are given.
    Beyond a limit in seconds the bound is of no use and may be the limit.
    """
    if stages is None:
        gather = 0.0 if links is None else least_gather(problem, candidate, links)
        stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    if links is not None and candidate.dp_shard and candidate.pp == 1:
        return _of_copies(problem, candidate, comm, links, margin=margin, limit=limit)
    if comm.ring == 0.0:
        limit -= comm.ring_latency
        found = _of_every_pipeline(stages, comm, limit)
        if links is not None and found.seconds < limit and has_members(problem, candidate):
            found = MemberBound(problem, candidate, links, stages, comm).least(limit)
        return (found.seconds + comm.ring_latency) * (1 - ROUNDING), found
    least = solve_partition(stages, comm.edge, comm.tail, crossing=comm.crossing)
    best, best_found = np.inf, least
    first, end = np.triu_indices(stages.gradients.shape[0], 1)
    for cap in np.unique(stages.gradients[first, end]):
        ring = comm.ring * cap + comm.ring_latency
        if least.seconds + ring >= best:
            break
        found = solve_partition(stages, comm.edge, comm.tail, crossing=comm.crossing, gradient_cap=float(cap))
        if found.seconds + ring < best:
            best, best_found = found.seconds + ring, found
    return float(best * (1 - ROUNDING)), best_found


def _of_every_pipeline(stages: PartitionProblem, comm: Communication, limit: float) -> Partition:
    """The exact partition, with two classes of device also of the pipeline with the most slow blocks."""
    found = solve_partition(stages, comm.edge, comm.tail, later=comm.later, crossing=comm.crossing, limit=limit)
    if stages.low.shape[0] == 1 or min(stages.pp, stages.dp) == 1 or found.seconds >= limit:
        return found
    later = None if comm.later is None else comm.later.of_one_pipeline
    slowest = solve_partition(
        stages.of_one_pipeline, comm.edge, comm.tail, later=later, crossing=comm.crossing, limit=limit
    )
    return replace(found, seconds=max(found.seconds, slowest.seconds))


def _of_copies(
    problem: PlanningProblem, candidate: Candidate, comm: Communication, links: BestLinks, *, margin: bool, limit: float
) -> tuple[float, Partition]:
    """Bound ``partition`` of a single stage with several copies: the least of its cases."""
    gradients, fixed = problem.gradient_bytes(candidate)[0], fixed_seconds(problem, candidate)
    found = []
    for case in cases(problem, candidate, links):
        gather = float(half_ring(problem, case.gather))
        stages = partition_problem(problem, candidate, margin=margin, gather=gather)
        found.append(solve_partition(stages, comm.edge, gradients * case.reduction + fixed, limit=limit))
    least = min(found, key=lambda each: each.seconds)
    return least.seconds * (1 - ROUNDING), least
