"""
Deriving the bounds of a certificate again, each by the deterministic algorithm that its source names.

The checks are those of ``taut.solver.bounds.checks``. Neither the branch and bound, nor annealing, nor any external
solver takes part.
"""

from collections.abc import Sequence

from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.checks import Proof, derived_bound, derived_margin_free
from taut.solver.bounds.ladder import Ladder
from taut.solver.certificate.document import BoundSection, CandidateSection, ProofSection
from taut.solver.result import Source


class Derivation:
    """Derives the bounds of a problem again."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._ladder = Ladder(problem)

    def prepare(self, candidates: Sequence[Candidate], entries: Sequence[CandidateSection]) -> None:
        """Relax the candidates whose bound is ``relaxation``, alike ones in a row."""
        relaxed = str(Source.RELAXATION)
        self._ladder.relax([c for c, entry in zip(candidates, entries, strict=True) if entry.source == relaxed])

    def derive(self, candidate: Candidate, entry: BoundSection) -> float:
        """The bound of a candidate that its entry's source and witness yield, in seconds."""
        return derived_bound(self._ladder, candidate, entry.source, entry.witness)

    def margin_free(self, entries: Sequence[ProofSection]) -> float:
        """The global bound without a memory margin that its proofs yield, in seconds."""
        return derived_margin_free(
            self._ladder,
            [Proof(candidate=entry.candidate, source=entry.source, witness=entry.witness) for entry in entries],
        )
