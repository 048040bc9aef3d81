r"""
Lower bounds on a candidate, each a minimum over partition, recompute and placement together.

With the least communication of ``taut.solver.bounds.communication``, each is at least as strong as the one before; they
are named by what they minimise exactly:

``relaxation``  closed forms without memory (``taut.solver.bounds.relaxation``);
``partition``   the exact partition (``taut.solver.layer_division.divide``), plus that communication;
``placement``   the same with the exact placement for the layers of stage 0
                (``taut.solver.placement.exact.joint``);
``every-placement``  the least over all placements, each with its own groups, where they are few and different
                     (``taut.solver.placement.exact.enumerate``);
``cover``       the same with the case distinction of ``taut.solver.placement.path_cover.cases``,
                for any number of nodes;
``order``       of a schedule that is priced by its order, the paths of ``taut.solver.order_priced.bound``, in racks by
                the cases of ``taut.solver.ladder.chunk_racks``.
"""

from dataclasses import replace
from itertools import product

import numpy as np

from taut.formulations.order_division import ChunkProblem, chunk_problem
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import NO_GATHERS
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import Communication, by_first_stage
from taut.solver.bounds.copies import divided, has_cases, least_reduction_of_copies
from taut.solver.bounds.least_hops import least_edges
from taut.solver.bounds.least_rings import least_gather, least_weighted_ring, tied_exchange
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.node_parts import node_parts
from taut.solver.bounds.rack_cases import least_of_cases, rack_cases
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.bounds.ring_members import MemberBound, has_members
from taut.solver.layer_division.divide import Beside, Partition, Passed, pipeline_cases, solve_pair, solve_partition


def chunked(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True, exchange: bool = True
) -> ChunkProblem:
    """
    The division into chunks of a candidate whose schedule is priced by its order, at the best links.

    ``exchange``: whether the reduction may stand for the exchange of a tied embedding.
    """
    edge, _ = least_edges(problem, candidate, best)
    reduction, gather = least_reduction_of_copies(problem, candidate, best), least_gather(problem, candidate, best)
    ring = least_weighted_ring(problem, candidate, best, reduction)
    least = tied_exchange(problem, candidate, best)
    tied = min(least.inside, least.apart) if exchange else 0.0
    return chunk_problem(problem, candidate, edge, ring, gather=gather, tied=tied, margin=margin)


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
    Bound ``partition``, infinite where no division fits, and of no use beyond ``limit``.

    With ``links`` it is the least over cases: of copies, of two classes of device (``taut.solver.bounds.communication``
    (3)), and in ``step`` of the members of rings or of racks. For ``amp`` it is the least over caps on the largest
    stage's gradients, by which the ring is priced.
    """
    if stages is None:
        gather = NO_GATHERS if links is None else least_gather(problem, candidate, links)
        stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    if comm.ring == 0.0:
        limit -= comm.ring_latency
        firsts = () if links is None else by_first_stage(problem, candidate, links, comm)
        found = _of_every_pipeline(stages, comm, limit, firsts)
        if links is not None and has_cases(problem, candidate) and found.seconds < limit:
            found = _of_cases(problem, candidate, comm, links, found, margin=margin, limit=limit)
        if links is not None and found.seconds < limit:
            found = _of_placements(problem, candidate, links, stages, comm, found, limit)
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


def _of_placements(
    problem: PlanningProblem,
    candidate: Candidate,
    links: BestLinks,
    stages: PartitionProblem,
    comm: Communication,
    found: Partition,
    limit: float,
) -> Partition:
    """A partition, or those of the members of rings or of the racks of stages that are branched on."""
    if has_members(problem, candidate):
        return max(
            found, MemberBound(problem, candidate, links, stages, comm).least(limit), key=lambda one: one.seconds
        )
    racks = rack_cases(problem, candidate, links)
    if racks is None:
        return found
    found = max(found, least_of_cases(stages, comm, racks, limit=limit), key=lambda one: one.seconds)
    parts = node_parts(problem, candidate, links) if found.feasible and found.seconds < limit else None
    return found if parts is None else max(found, parts.least(stages, comm, racks, limit), key=lambda one: one.seconds)


def _of_every_pipeline(
    stages: PartitionProblem, comm: Communication, limit: float, firsts: tuple[Communication, ...] = ()
) -> Partition:
    """The exact partition, with two classes of device also of single pipelines and pairs, by cases of stage 0."""
    edge, tail, later, crossing = comm.edge, comm.tail, comm.later, comm.crossing
    if stages.low.shape[0] == 1 or stages.pp == 1:
        return solve_partition(stages, edge, tail, later=later, crossing=crossing, limit=limit)
    cases, several = list(pipeline_cases(stages)), firsts or (comm,)
    single = [_of_one(stages, each, case, limit) for case in cases if isinstance(case, Passed) for each in several]
    pairs = [case for case in cases if isinstance(case, Beside)]
    others = min(limit, *(one.seconds for one in single))
    # A pair takes no less than its all-slow pipeline: where that says enough, none is divided for.
    alone = [_of_one(stages, each, pairs[0].alone, others).seconds for each in several if pairs]
    known = min(others, *alone) if pairs else others
    found = solve_partition(stages, edge, tail, later=later, crossing=crossing, limit=limit, known=known)
    if found.feasible and found.seconds < limit and known < others:
        known = _least_of_pairs(stages, several, pairs, others)
    if not np.isfinite(known):
        # Where no case fits, nothing does, but what lacks is another bound's to say.
        return found
    # A division in which all pipelines are as the one that it is for is a better start than one of mixed stages.
    start = next((one for one in single if found.feasible and known == one.seconds and _is_alike(stages, one)), found)
    return replace(start, seconds=max(found.seconds, known))


def _least_of_pairs(
    stages: PartitionProblem, several: tuple[Communication, ...], pairs: list[Beside], others: float
) -> float:
    """Least seconds of pairs of pipelines in any case of stage 0, at most those of the other cases."""
    for case, comm in product(pairs, several):
        edge, tail, later, crossing = comm.edge, comm.tail, comm.later, comm.crossing
        others = solve_pair(stages, edge, tail, case, later=later, crossing=crossing, limit=others)
    return others


def _of_one(stages: PartitionProblem, comm: Communication, passed: Passed, limit: float) -> Partition:
    """The division of a pipeline that any placement has in some case."""
    edge, tail, later, crossing = comm.edge, comm.tail, comm.later, comm.crossing
    return solve_partition(stages, edge, tail, later=later, crossing=crossing, passed=passed, limit=limit)


def _is_alike(stages: PartitionProblem, found: Partition) -> bool:
    """Whether all pipelines may pass the stages of one on blocks of its classes."""
    return found.feasible and 2 not in found.patterns and found.patterns.count(1) * stages.dp == stages.slow_groups


def _of_cases(
    problem: PlanningProblem,
    candidate: Candidate,
    comm: Communication,
    links: BestLinks,
    found: Partition,
    *,
    margin: bool,
    limit: float,
) -> Partition:
    """The least partition of all cases; of several stages the one ``found``, with the larger bound."""
    cases = (
        _of_every_pipeline(case.stages, replace(comm, tail=case.tail), limit)
        for case in divided(problem, candidate, links, margin=margin)
    )
    least = min(cases, key=lambda each: each.seconds)
    return least if candidate.pp == 1 else replace(found, seconds=max(found.seconds, least.seconds))
