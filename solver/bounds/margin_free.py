"""
The global lower bound with the memory margin set to zero: what the margin costs at most.

It is (2) of ``taut.solver.bounds.checks``. Every plan that keeps a margin also fits without one, so it bounds the
problem with its margin too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut.solver.bounds.checks import Proof
from taut.solver.bounds.computations import first, strongest
from taut.solver.bounds.ladder import Ladder
from taut.solver.result import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginFreeBound:
    """The bound in seconds, and what proves it."""

    seconds: float
    proofs: tuple[Proof, ...]


def margin_free_bound(ladder: Ladder, stop: Callable[[], bool] = lambda: False) -> MarginFreeBound:
    """
    Global lower bound if no memory margin had to be kept.

    The least bound over all candidates, each by the strongest rungs that apply; those whose closed form is no better
    than the least so far are not bounded further. Order-priced candidates come last, as in the search.

    ``ladder``: the problem, with or without its margin; ``stop``: asked before every candidate; from where it says so
    on closed forms count alone, those that are known already.
    """
    free, candidates = ladder.without_margin(), ladder.problem.candidates
    least, proofs = np.inf, list[Proof]()
    for index in sorted(range(len(candidates)), key=lambda i: _turn(free, i)):
        candidate = candidates[index]
        if free.first(candidate)[0] >= least:
            continue
        found = first(free, candidate) if stop() else strongest(free, candidate, least)
        if found.source is not Source.RELAXATION:
            proofs.append(Proof(candidate=index, source=str(found.source), witness=found.witness))
        least = min(least, found.seconds)
    needed = tuple(proof for proof in proofs if _matters(free, proof, least))
    return MarginFreeBound(seconds=float(least), proofs=needed)


def _matters(free: Ladder, proof: Proof, least: float) -> bool:
    """Whether a bound that takes no proof is not as good."""
    seconds, source = free.first(free.problem.candidates[proof.candidate])
    return source is Source.BALANCE or seconds < least


def _turn(free: Ladder, index: int) -> tuple[bool, float]:
    """Closed forms first, each kind by its closed form."""
    candidate = free.problem.candidates[index]
    return candidate.is_order_priced, free.first(candidate)[0]
