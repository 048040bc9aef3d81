"""
Computing the rungs of the ladder (``taut.solver.ladder.ladder``) for a candidate, with what they find on the way.

Rungs that take no witness are computed as they are checked. ``order`` and ``order-memory`` seek their witness
(``taut.solver.order_priced.bound``). ``cover`` is no single computation: the search refines it step by step
(``taut.solver.placement.path_cover.proving``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taut.data.units import KIB
from taut.formulations.order_division import ROUNDING as ORDER_ROUNDING
from taut.formulations.partition import partition_problem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.pipelines_by_type import bound_by_type
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.ladder.ladder import EXACT_PLACEMENTS, Ladder, Level
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.bound import OrderBound, order_bound
from taut.solver.order_priced.layer_bounds import linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.placement.exact.joint import Joint
from taut.solver.result import Source


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """
    The bound of one source, and what its computation found.

    ``seconds``: the bound; infinite if nothing fits; ``source``, ``witness``: what proves it; ``partition``: the
    division that attains the bound, for sources that divide the layers in closed form; ``placed``: division and
    placement that attain the bound, for sources that place; ``divided``: the division of the pipelines of every type,
    for an uneven batch; ``order``: what is known of divisions into chunks, for an order-priced candidate.
    """

    seconds: float
    source: Source
    witness: dict[str, Any] = field(default_factory=dict)
    partition: Partition | None = None
    placed: Joint | None = None
    divided: tuple[Partition, ...] = ()
    order: OrderBound | None = None


Compute = Callable[[Ladder, Candidate, float], Evaluation]
"""The bound of a candidate, and seconds beyond which a bound is of no use."""


def strongest(
    ladder: Ladder, candidate: Candidate, limit: float = np.inf, through: Level = Level.PLACEMENT
) -> Evaluation:
    """The largest bound of the rungs ``through`` a level, from the weakest on until one reaches the limit."""
    best = relaxation(ladder, candidate)
    for rung in ladder.rungs(candidate, through):
        if best.seconds >= limit:
            break
        if rung.source in COMPUTATIONS:
            best = max(best, COMPUTATIONS[rung.source](ladder, candidate, limit), key=lambda found: found.seconds)
    return best


def relaxation(ladder: Ladder, candidate: Candidate, limit: float = np.inf) -> Evaluation:
    """Bound ``relaxation``."""
    return Evaluation(seconds=ladder.relaxation(candidate), source=Source.RELAXATION)


def first(ladder: Ladder, candidate: Candidate) -> Evaluation:
    """The bound that is known without further work: ``relaxation``, or ``balance`` where that is not."""
    seconds, source = ladder.first(candidate)
    return Evaluation(seconds=seconds, source=source)


def partition(ladder: Ladder, candidate: Candidate, limit: float = np.inf) -> Evaluation:
    """Bound ``partition``, or ``memory`` where no division fits; the witness is the limit where that was reached."""
    if (missing := ladder.missing(candidate))[0] > 0:
        return _without_memory(*missing)
    if candidate.pipelines_by_type:
        return _by_type(ladder, candidate)
    gather = least_gather(ladder.problem, candidate, ladder.links)
    stages = partition_problem(ladder.problem, candidate, margin=ladder.margin, gather=gather)
    comm = ladder.communication(candidate)
    seconds, found = partition_bound(
        ladder.problem, candidate, comm, margin=ladder.margin, stages=stages, links=ladder.links, limit=limit
    )
    if not found.feasible:
        return _without_memory(*missing)
    limited = {"limit_s": limit} if seconds >= limit * (1 - 2 * ROUNDING) else {}
    return Evaluation(seconds=seconds, source=Source.PARTITION, witness=limited, partition=found)


def _by_type(ladder: Ladder, candidate: Candidate) -> Evaluation:
    """Bound ``partition`` of replicas that divide the batch unevenly, with the division of the slowest of them."""
    found = bound_by_type(ladder.problem, candidate, ladder.links, margin=ladder.margin)
    if not found.divided:
        return _without_memory(*ladder.missing(candidate))
    return Evaluation(seconds=found.seconds, source=Source.PARTITION, divided=found.divided)


def _without_memory(excess: int, stage: int) -> Evaluation:
    """No division fits: what the leanest lacks, and where."""
    witness = {"missing_kib": -(-excess // KIB), "stage": stage}
    return Evaluation(seconds=np.inf, source=Source.MEMORY, witness=witness)


def counted(ladder: Ladder, candidate: Candidate, limit: float) -> Evaluation | None:
    """Bound ``order`` by the layers that devices take within a limit alone, as ``order``; None where none are lines."""
    if (lacking := _lacking(ladder, candidate, limit)) is not None or ladder.lists(candidate):
        return lacking
    given = ladder.chunked(candidate)
    if not (paths := linear_paths(given)):
        return None
    tree = LayerTree(given, paths, limit, ())
    return Evaluation(seconds=tree.seconds * (1 - ORDER_ROUNDING), source=Source.ORDER, witness=tree.witness())


def _lacking(ladder: Ladder, candidate: Candidate, limit: float) -> Evaluation | None:
    """What shows that no division into chunks fits, as far as it is known in closed form; None otherwise."""
    if (lacking := ladder.missing_of_chunks(candidate, limit)) > 0:
        witness: dict[str, Any] = {"missing": lacking, "missing_kib": -(-lacking // KIB)}
        return Evaluation(seconds=np.inf, source=Source.ORDER_MEMORY, witness=witness)
    # Where divisions are listed their memory is known exactly.
    if not ladder.lists(candidate) and (missing := ladder.missing(candidate))[0] > 0:
        return _without_memory(*missing)
    return None


def order(ladder: Ladder, candidate: Candidate, limit: float = np.inf, brief: bool = False) -> Evaluation:
    """Bound ``order``, maybe a ``brief`` one, or ``memory`` or ``order-memory`` where no division fits."""
    if (lacking := _lacking(ladder, candidate, limit)) is not None:
        return lacking
    found = order_bound(ladder.chunked(candidate), limit, brief)
    if math.isinf(found.seconds):
        witness = dict(found.witness)
        if math.isfinite(found.missing):  # Not where no chunk at all fits its device.
            witness["missing_kib"] = math.ceil(found.missing / KIB)
        if "missing" in witness:
            ladder.note_missing(candidate, witness["missing"])
        return Evaluation(seconds=np.inf, source=Source.ORDER_MEMORY, witness=witness)
    return Evaluation(seconds=found.seconds, source=Source.ORDER, witness=found.witness, order=found)


def placement(ladder: Ladder, candidate: Candidate) -> Evaluation | None:
    """The bound over all placements that applies to a candidate, with the placement that attains it; or None."""
    source = next((rung.source for rung in ladder.rungs(candidate) if rung.source in EXACT_PLACEMENTS), None)
    return None if source is None else _placed(source, ladder, candidate)


def _placed(source: Source, ladder: Ladder, candidate: Candidate, limit: float = np.inf) -> Evaluation:
    found = ladder.place(source, candidate)
    return Evaluation(seconds=found.lower_bound, source=source, placed=found)


COMPUTATIONS: dict[Source, Compute] = {
    Source.BALANCE: lambda ladder, candidate, limit: Evaluation(
        seconds=ladder.balance(candidate), source=Source.BALANCE
    ),
    Source.RELAXATION: relaxation,
    Source.PARTITION: partition,
    Source.ORDER: order,
    **{source: partial(_placed, source) for source in EXACT_PLACEMENTS},
}
"""What is computed in one go; infeasibility is found by the rungs that divide the layers."""
