r"""
Dominance between candidates that differ in ZeRO and sequence parallelism alone.

(1) Let two division problems have the same order, micro-batches and counts. Let no figure of the first be larger, and
    no budget smaller. Every division that fits the second then fits the first, and takes no longer there. A lower bound
    on the first therefore bounds the second.

Sequence parallelism saves activations and divides messages, and the distributed optimizer saves states and seconds. One
bound therefore serves up to four candidates. The check compares the figures and does not ask where they come from.

A witness names the other candidate and holds what proves its bound: ``{"of": {...}, "by": {...}}``.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.space import Candidate

ALONE = {"zero", "sequence_parallel"}
"""Fields in which the two candidates differ."""


def dominates(one: ChunkProblem, other: ChunkProblem) -> bool:
    """Whether a lower bound on ``one`` bounds ``other`` by (1)."""
    same = one.micro_batches == other.micro_batches and one.waits_for_all == other.waits_for_all
    orders = zip(_order(one), _order(other), strict=False)
    if not same or len(_order(one)) != len(_order(other)) or not all(np.array_equal(a, b) for a, b in orders):
        return False
    figures = zip(_figures(one), _figures(other), strict=True)
    return all(np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a) <= b)) for a, b in figures)


def _order(given: ChunkProblem) -> list[Any]:
    return [given.order.passes, given.order.first, given.order.device, *given.counts]


def _figures(given: ChunkProblem) -> list[Any]:
    """What makes a division slower or larger as it grows."""
    seconds = [given.passes, given.edge, given.ring, given.optimizer, given.constant]
    return [*seconds, given.parameters, given.held, given.activation, given.beside, given.always, -given.budget]


def likely_dominating(candidate: Candidate, known: Collection[Candidate]) -> Iterator[Candidate]:
    """Candidates among the known ones that may dominate another, the likeliest to do so closely first."""
    if candidate.zero <= 1:
        for zero, sequence_parallel in ((candidate.zero, True), (1, candidate.sequence_parallel), (1, True)):
            other = replace(candidate, zero=zero, sequence_parallel=sequence_parallel)
            if other != candidate and other in known:
                yield other


def inherited(other: Candidate, witness: dict[str, Any]) -> dict[str, Any]:
    """The witness of a dominated candidate: the dominating candidate, and the witness of its bound."""
    return {"of": {"zero": other.zero, "sequence_parallel": other.sequence_parallel}, "by": witness}


def stated(candidate: Candidate, witness: dict[str, Any]) -> tuple[Candidate, dict[str, Any]] | None:
    """The dominating candidate that a witness names, and the witness of its bound; None if it names none."""
    of, by = witness.get("of"), witness.get("by")
    if witness.keys() != {"of", "by"} or not isinstance(of, dict) or not isinstance(by, dict) or of.keys() != ALONE:
        return None
    zero, sequence_parallel = of["zero"], of["sequence_parallel"]
    if type(zero) is not int or zero not in (0, 1) or type(sequence_parallel) is not bool or candidate.zero > 1:
        return None
    return replace(candidate, zero=zero, sequence_parallel=sequence_parallel), by
