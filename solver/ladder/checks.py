r"""
The bound of a candidate, derived again from its source and witness.

Every source of the ladder (``taut.solver.ladder.ladder``) has a check here: a deterministic exact algorithm, run again,
or the check of a witness. With :math:`b_s` what the check of source s yields,

.. math:: b = \max(b_s, \max_{w \text{ weaker}} b_w), \qquad b = \infty \text{ where nothing fits}, \qquad
    b = -\infty \text{ otherwise} \tag{1}

is what holds: the last where the source does not apply or the witness does not show what it says. No check runs an
external solver, a search or annealing.

Without a memory margin, a bound on every candidate gives

.. math:: B = \min_c b_c \tag{2}

A proof of B names the source and the witness of those candidates alone whose bound is another than ``relaxation``,
which ignores memory and takes no witness, and is not computed where ``balance`` is no less than B already.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from taut.data.units import KIB
from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import partition_problem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.pipelines_by_type import bound_by_type
from taut.solver.ladder.chunk_racks import ChunkRacks
from taut.solver.ladder.chunk_types import chunk_cases, most_within, of_cases, rederived_by_cases, rederived_by_count
from taut.solver.ladder.dominance import (
    PartitionData,
    dominates_in_cases,
    dominates_in_division,
    dominates_under_an_order,
    partition_data,
    stated,
)
from taut.solver.ladder.ladder import EXACT_PLACEMENTS, RUNGS, Ladder, Rung
from taut.solver.order_priced.witness import missing_bytes, rederived
from taut.solver.placement.path_cover.bound import cover_bound, witnessed
from taut.solver.result import Source

Witness = dict[str, Any]
Check = Callable[[Ladder, Candidate, Witness], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the bound of one candidate rests on; ``candidate`` is its place among those of the problem."""

    candidate: int
    source: str
    witness: Witness = field(default_factory=dict)


def derived_margin_free(ladder: Ladder, candidates: Sequence[Candidate], proofs: Iterable[Proof]) -> float:
    """The global bound (2) in seconds that proofs show, in any order; minus infinity where one does not hold."""
    free = ladder.without_margin()
    known = {proof.candidate: proof for proof in proofs}
    if not known.keys() <= set(range(len(candidates))):
        return -math.inf
    prepare(free, ((candidates[index], proof.source, proof.witness) for index, proof in known.items()))
    least = math.inf
    for index, proof in known.items():
        least = min(least, derived_bound(free, candidates[index], proof.source, proof.witness))
    others = [candidate for index, candidate in enumerate(candidates) if index not in known]
    for index in free.turns(others):
        if free.first(others[index])[0] < least:
            least = min(least, free.relaxation(others[index]))
    return least


def prepare(ladder: Ladder, claims: Iterable[tuple[Candidate, str, Witness]]) -> None:
    """Derive what many bounds, by candidate, source and witness, need of alike candidates together."""
    every = list(claims)
    ladder.relax([candidate for candidate, source, _ in every if source == Source.RELAXATION])
    lacking = (each for each in every if each[1] == Source.ORDER_MEMORY and isinstance(each[2].get("missing"), int))
    ladder.find_missing(candidate for candidate, _, _ in lacking)


def derived_bound(ladder: Ladder, candidate: Candidate, source: str, witness: Witness) -> float:
    """The bound (1) of a candidate from source and witness; infinite if infeasible, minus infinity if unshown."""
    rung = _RUNGS.get(source)
    if rung is None or not rung.applies(ladder, candidate):
        return -math.inf
    seconds = _CHECKS[rung.source](ladder, candidate, witness)
    if not math.isfinite(seconds):
        return seconds
    return max(seconds, *(_CHECKS[weaker](ladder, candidate, {}) for weaker in rung.weaker), -math.inf)


def _partition(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    """The exact partition, up to the limit that the witness names if any, or that of a candidate that dominates it."""
    if "of" in witness:
        return _dominated_partition(ladder, candidate, witness)
    if candidate.pipelines_by_type:
        found = bound_by_type(ladder.problem, candidate, ladder.links, margin=ladder.margin)
        return found.seconds if not witness else -math.inf
    comm, limit = ladder.communication(candidate), witness.get("limit_s", math.inf)
    if witness.keys() - {"limit_s"} or not isinstance(limit, float) or not limit > 0:
        return -math.inf
    return partition_bound(ladder.problem, candidate, comm, margin=ladder.margin, links=ladder.links, limit=limit)[0]


def _named(ladder: Ladder, candidate: Candidate, witness: Witness) -> tuple[Candidate, Witness] | None:
    """The dominating candidate that a witness names, which has prices, and the witness of its bound."""
    named = stated(candidate, witness)
    return named if named and (named[0].cp == candidate.cp or named[0] in ladder.every) else None


def _dominated_partition(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    named = _named(ladder, candidate, witness)
    if named is None or "of" in named[1]:
        return -math.inf

    def make() -> tuple[PartitionData | None, float]:
        data = partition_data(ladder, named[0])
        return data, -math.inf if data is None else _partition(ladder, *named)

    (one, seconds), other = ladder.named(*named, make), partition_data(ladder, candidate)
    return seconds if one and other and dominates_in_division(one, other) else -math.inf


def _memory(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    """Infinity if no division fits and the witness names the least excess; minus infinity otherwise."""
    excess, stage = ladder.missing(candidate)
    infeasible = excess > 0
    if not infeasible and ladder.has(Source.PARTITION, candidate):
        # With two classes of device each stage may fit one of them, and no division the blocks that they have.
        comm, stages = (
            ladder.communication(candidate),
            partition_problem(ladder.problem, candidate, margin=ladder.margin),
        )
        infeasible = not partition_bound(ladder.problem, candidate, comm, stages=stages)[1].feasible
    named = witness == {"missing_kib": -(-excess // KIB), "stage": stage}
    return math.inf if infeasible and named else -math.inf


def _order(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    """What the witness proves, for the candidate or for one that dominates it."""
    if of_cases(witness):
        return rederived_by_cases(chunk_cases(ladder.problem, candidate, ladder.links, margin=ladder.margin), witness)
    if "counted_s" in witness:
        return rederived_by_count(most_within(ladder.problem, candidate, ladder.links, margin=ladder.margin), witness)
    given = ladder.chunked(candidate)
    if "of" not in witness:
        return rederived(given, witness)
    named = _named(ladder, candidate, witness)
    if named is None:
        return -math.inf
    if of_cases(named[1]):
        return _dominated_cases(ladder, candidate, *named)

    def make() -> tuple[ChunkProblem, float]:
        other = ladder.chunked(named[0])
        return other, rederived(other, named[1])

    other, seconds = ladder.named(*named, make)
    return seconds if dominates_under_an_order(other, given) else -math.inf


def _dominated_cases(ladder: Ladder, candidate: Candidate, other: Candidate, witness: Witness) -> float:
    """What a witness of all cases proves of another candidate that dominates this one."""

    def cases(one: Candidate) -> list[ChunkRacks]:
        return chunk_cases(ladder.problem, one, ladder.links, margin=ladder.margin)

    def make() -> tuple[list[ChunkRacks], float]:
        return (found := cases(other)), rederived_by_cases(found, witness)

    known, seconds = ladder.named(other, witness, make)
    return seconds if dominates_in_cases(known, cases(candidate)) else -math.inf


def _order_memory(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    """Infinity if the witness proves the missing bytes that it names; minus infinity otherwise."""
    named = witness.get("missing")
    if isinstance(named, int) and named > 0 and ladder.lacks(candidate, named):
        # In closed form, or derived before with another margin.
        return math.inf if witness == {"missing": named, "missing_kib": -(-named // KIB)} else -math.inf
    missing = missing_bytes(ladder.chunked(candidate), witness)
    needed = math.ceil(missing / KIB) if math.isfinite(missing) else None
    if not (missing > 0 and needed == witness.get("missing_kib")):
        return -math.inf
    if "missing" in witness:
        ladder.note_missing(candidate, int(missing))
    return math.inf


def _exact(source: Source, ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    return ladder.place(source, candidate).lower_bound


def _cover(ladder: Ladder, candidate: Candidate, witness: Witness) -> float:
    """The case distinction in the witness, each proof checked alone."""
    covered = witnessed(ladder.problem, candidate, witness)
    if covered is None:
        return -math.inf
    return cover_bound(ladder.problem, candidate, ladder.links, covered, margin=ladder.margin)[0]


_RUNGS: dict[str, Rung] = {rung.source: rung for rung in RUNGS}
_CHECKS: dict[Source, Check] = {
    Source.BALANCE: lambda ladder, candidate, witness: ladder.balance(candidate),
    Source.RELAXATION: lambda ladder, candidate, witness: ladder.relaxation(candidate),
    Source.MEMORY: _memory,
    Source.PARTITION: _partition,
    Source.ORDER_MEMORY: _order_memory,
    Source.ORDER: _order,
    **{source: partial(_exact, source) for source in EXACT_PLACEMENTS},
    Source.COVER: _cover,
}
