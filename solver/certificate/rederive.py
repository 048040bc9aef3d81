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
from taut.solver.certificate.document import CandidateSection, ProofSection


class Derivation:
    """Derives the bounds of a problem again."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._ladder = Ladder(problem)

    def derive(self, candidate: Candidate, entry: CandidateSection) -> float:
        """The bound of a candidate that its entry's source and witness yield, in seconds."""
        return derived_bound(self._ladder, candidate, entry.source, entry.witness)

    def margin_free(self, entries: Sequence[ProofSection]) -> float:
        """The global bound without a memory margin that its proofs yield, in seconds."""
        return derived_margin_free(
            self._ladder,
            [Proof(candidate=entry.candidate, source=entry.source, witness=entry.witness) for entry in entries],
        )
