r"""
Dominance between candidates that differ in ZeRO, sequence parallelism and context ranks alone.

(1) Let two division problems under an order have the same order, micro-batches, counts and divisions to choose from.
    Let no figure of the first be larger, not even what devices hold for a moment, and no budget smaller. Bytes of the
    loss, which a gradient takes the place of, may not be fewer. Every division that fits the second then fits the
    first, and takes no longer there. A lower bound on the first therefore bounds the second.
(2) Compare the data of bound ``partition`` (``taut.formulations.partition``, ``taut.solver.bounds.communication``). Let
    both have the same stages, replicas, micro-batches, blocks of the slow class, and hops between racks. Let no figure
    of the first be larger, and no budget smaller. The seconds of a division, (1) or (1') there, rise with every figure,
    also with overlap. The optimum of the first is therefore no larger, and a lower bound on it bounds the second.

(3) Let two candidates be bounded by the same cases (``taut.solver.ladder.chunk_types``,
    ``taut.solver.ladder.chunk_racks``): the same slow devices and stages that fill nodes. Let the first dominate as in
    (1), with no more hops between nodes, and let no hop, ring, exchange or pass on a slow device take longer. A plan of
    the second is in one of the cases. In the same case of the first it takes no longer. So the least of the first's
    cases bounds the second.

Sequence parallelism saves activations and divides messages, and the distributed optimizer saves states and seconds.
Fewer context ranks, with as many more replicas of as much smaller micro-batches, leave every GPU its tokens and save
the exchange of keys and values. So one bound serves several candidates. The check compares the figures and does not ask
where they come from.
Some candidates have prices beyond the figures of (2) and are left out: with AMP's ring, with several copies, with
uneven batches, and with rings that are branched on by their members.

A witness says what the other candidate has otherwise, always with its context ranks, and holds what proves its bound:
``{"of": {...}, "by": {...}}``.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import LaterStages, PartitionProblem, partition_problem
from taut.formulations.space import Candidate
from taut.formulations.terms import in_one_ring
from taut.solver.bounds.communication import Communication, by_first_stage
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.node_parts import NodeParts, node_parts
from taut.solver.bounds.rack_cases import RackCases, rack_cases
from taut.solver.bounds.ring_members import has_members
from taut.solver.ladder.chunk_racks import ChunkRacks
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import Source

CHANGED = "zero", "sequence_parallel"
"""Choices in which the two candidates differ, beside context ranks with micro-batch and replicas."""


class PartitionData(NamedTuple):
    """All data of a candidate from which bound ``partition`` is computed."""

    stages: PartitionProblem
    comm: Communication
    racks: RackCases | None
    parts: NodeParts | None
    firsts: tuple[Communication, ...]


def partition_data(ladder: Ladder, candidate: Candidate) -> PartitionData | None:
    """The data of a candidate; None if it has no such bound, or the bound needs more than these."""
    if not ladder.has(Source.PARTITION, candidate):
        return None
    comm = ladder.communication(candidate)
    apart = candidate.pipelines_by_type or not in_one_ring(ladder.problem.terms(candidate))
    if apart or comm.ring or has_members(ladder.problem, candidate):
        return None
    gather = least_gather(ladder.problem, candidate, ladder.links)
    stages = partition_problem(ladder.problem, candidate, margin=ladder.margin, gather=gather)
    firsts = by_first_stage(ladder.problem, candidate, ladder.links, comm)
    racks = rack_cases(ladder.problem, candidate, ladder.links)
    return PartitionData(stages, comm, racks, node_parts(ladder.problem, candidate, ladder.links), firsts)


def dominates_under_an_order(one: ChunkProblem, other: ChunkProblem) -> bool:
    """Whether a lower bound on ``one`` bounds ``other`` by (1)."""
    alike = len(_order(one)) == len(_order(other)) and all(map(np.array_equal, _order(one), _order(other)))
    return alike and _none_is_larger(_chunk_figures(one), _chunk_figures(other))


def dominates_in_cases(some: Sequence[ChunkRacks], others: Sequence[ChunkRacks]) -> bool:
    """Whether a lower bound on all cases of one candidate bounds those of another by (3)."""
    if len(some) != len(others) or not some or not dominates_under_an_order(some[0].given, others[0].given):
        return False
    return all(
        _places(one) == _places(other) and _none_is_larger(_case_figures(one), _case_figures(other))
        for one, other in zip(some, others, strict=True)
    )


def _places(case: ChunkRacks) -> tuple[Any, ...]:
    """What two cases have in common."""
    slower = case.given.slower
    return case.fills, None if slower is None else slower.devices.tolist()


def _case_figures(case: ChunkRacks) -> list[Any]:
    """What makes a division in a case slower as it grows, beside the figures of its chunks."""
    slower = case.given.slower
    return [
        case.crossings,
        case.hop,
        case.ring,
        case.exchange,
        *([] if slower is None else [slower.passes, slower.ring]),
    ]


def dominates_in_division(one: PartitionData, other: PartitionData) -> bool:
    """Whether the optimum of ``one`` bounds ``other`` from below by (2)."""
    return _same(one) == _same(other) and _none_is_larger(_figures(one), _figures(other))


def _none_is_larger(some: list[Any], others: list[Any]) -> bool:
    """Whether no figure is larger than its like."""
    figures = zip(some, others, strict=True)
    return all(a is b or (np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a) <= b))) for a, b in figures)


def _order(given: ChunkProblem) -> list[Any]:
    order = given.order
    alike = given.micro_batches, given.waits_for_all, given.stated, given.ends
    return [*alike, order.passes, order.first, order.device, *given.counts]


def _chunk_figures(given: ChunkProblem) -> list[Any]:
    """What makes a division of chunks slower or larger as it grows."""
    seconds = [given.passes, given.edge, given.ring, given.optimizer, given.constant]
    held = [given.always - given.passing, given.passing, given.moments, given.closing, -given.losses, -given.budget]
    return [*seconds, given.loads, given.activation, given.beside, *held]


def _same(data: PartitionData) -> tuple[Any, ...]:
    stages, later = data.stages, data.comm.later
    blocks = stages.slow_groups, stages.more_slow_groups
    waits = later is None, later is not None and later.overlap, stages.forward is None
    racks = None if data.racks is None else tuple(data.racks.crossings.tolist())
    kinds = None if data.parts is None else (data.parts.members, data.parts.room, data.parts.nodes)
    # What hops between nodes add falls as a node holds more blocks, unlike the other figures.
    rooms = [(one.crossing.room, one.crossing.alone) for one in (data.comm, *data.firsts)]
    return stages.pp, stages.dp, stages.micro_batches, *blocks, *waits, racks, kinds, *rooms


def _figures(data: PartitionData) -> list[Any]:
    """What makes a division slower or larger as it grows."""
    stages, comm = data.stages, data.comm
    forward = [] if stages.forward is None else [stages.forward]
    held = [stages.fixed, stages.activation, stages.in_flight, -stages.budget]
    sums = [stages.low, stages.high, *forward, comm.edge, comm.tail, *comm.crossing]
    waits = [] if comm.later is None else _waits(comm.later)
    firsts = [figure for first in data.firsts for figure in _of_first(first)]
    rings = [] if data.parts is None else [data.parts.seconds, data.parts.unhidden]
    return [*sums, *held, *waits, *firsts, *([] if data.racks is None else _of_racks(data.racks)), *rings]


def _of_first(comm: Communication) -> list[Any]:
    return [comm.tail, *comm.crossing, 0.0 if comm.later is None else comm.later.others]


def _of_racks(racks: RackCases) -> list[Any]:
    return [racks.whole, racks.before, racks.ring, racks.confined, racks.spanning, racks.constant]


def _waits(later: LaterStages) -> list[Any]:
    rings = [later.ring, later.class_ring, later.mixed_rings, later.exchanged, later.unhidden]
    return [later.edge, *rings, later.others, later.each, later.parameters, later.optimizer]


def likely_dominating(candidate: Candidate, known: Collection[Candidate]) -> Iterator[Candidate]:
    """Candidates among the known ones that may dominate another, the likeliest to do so closely first."""
    if candidate.zero <= 1:
        for cp in range(candidate.cp, 0, -1):
            for zero in dict.fromkeys((candidate.zero, 1)):
                for sequence_parallel in dict.fromkeys((candidate.sequence_parallel, True)):
                    if (zero, sequence_parallel, cp) != (candidate.zero, candidate.sequence_parallel, candidate.cp):
                        other = _alike(candidate, zero, sequence_parallel, cp)
                        if other is not None and other in known:
                            yield other


def _alike(candidate: Candidate, zero: int, sequence_parallel: bool, cp: int) -> Candidate | None:
    """The candidate with other choices and as many tokens a GPU; None where micro-batches cannot be divided so."""
    fewer = candidate.cp // cp
    if candidate.cp % cp or candidate.micro_batch % fewer:
        return None
    size = {"cp": cp, "dp": candidate.dp * fewer, "micro_batch": candidate.micro_batch // fewer} if fewer > 1 else {}
    return candidate.changed(zero=zero, sequence_parallel=sequence_parallel, **size)


def inherited(candidate: Candidate, other: Candidate, witness: dict[str, Any]) -> dict[str, Any]:
    """The witness of a dominated candidate: what the dominating one has otherwise, and the witness of its bound."""
    of = {name: getattr(other, name) for name in CHANGED if getattr(other, name) != getattr(candidate, name)}
    return {"of": {**of, "cp": other.cp}, "by": witness}


def stated(candidate: Candidate, witness: dict[str, Any]) -> tuple[Candidate, dict[str, Any]] | None:
    """The dominating candidate that a witness names, and the witness of its bound; None if it names none."""
    of, by = witness.get("of"), witness.get("by")
    if witness.keys() != {"of", "by"} or not isinstance(of, dict) or not isinstance(by, dict):
        return None
    own = {name: getattr(candidate, name) for name in (*CHANGED, "cp")}
    # Documents of before context ranks were told apart state both choices, also those that are the same.
    if of.keys() != {*CHANGED} and ("cp" not in of or any(of.get(name) == own[name] for name in CHANGED)):
        return None
    zero, sequence_parallel, cp = (own | of).values() if not of.keys() - own.keys() else (None, None, None)
    if type(zero) is not int or zero not in (0, 1) or type(sequence_parallel) is not bool:
        return None
    if candidate.zero > 1 or type(cp) is not int or cp < 1:
        return None
    other = _alike(candidate, zero, sequence_parallel, cp)
    return None if other in (None, candidate) else (other, by)
