r"""
Dominance between candidates that differ in ZeRO and sequence parallelism alone.

(1) If two division problems have the same order, micro-batches and counts, no figure of the first is larger and its
    budget is no smaller, then every division that fits the second fits the first and is no slower there. So a lower
    bound on the divisions of the first bounds those of the second.

Sequence parallelism saves activations and sends a part of them, and the distributed optimizer saves states and
seconds; so one bound serves up to four candidates. The figures are compared, whatever they come from.

A witness names the other candidate and holds what proves its bound: ``{"of": {...}, "by": {...}}``.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.space import Candidate

ALONE = {"zero", "sequence_parallel"}
"""In what the candidates differ."""


def dominates(one: ChunkProblem, other: ChunkProblem) -> bool:
    """Whether a division problem is no harder than another by (1)."""
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
    """The witness of a bound that a dominating candidate's witness proves."""
    return {"of": {"zero": other.zero, "sequence_parallel": other.sequence_parallel}, "by": witness}


def stated(candidate: Candidate, witness: dict[str, Any]) -> tuple[Candidate, dict[str, Any]] | None:
    """The dominating candidate that a witness names, and what proves its bound; None where it names none."""
    of, by = witness.get("of"), witness.get("by")
    if witness.keys() != {"of", "by"} or not isinstance(of, dict) or not isinstance(by, dict) or of.keys() != ALONE:
        return None
    zero, sequence_parallel = of["zero"], of["sequence_parallel"]
    if type(zero) is not int or zero not in (0, 1) or type(sequence_parallel) is not bool or candidate.zero > 1:
        return None
    return replace(candidate, zero=zero, sequence_parallel=sequence_parallel), by
