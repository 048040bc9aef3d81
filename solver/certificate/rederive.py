r"""
Deriving the bound of a candidate again, by the deterministic algorithm that its source names.

With :math:`b_0` the closed form and :math:`b_s` what the source s yields for the candidate and the witness,

.. math:: b = \max(b_0, b_s), \qquad b = \infty \text{ where nothing fits}, \qquad b = -\infty \text{ otherwise} \tag{1}

is what holds: the last where the source does not apply or the witness does not show what it says.

``relaxation``, ``partition``  closed form, and exact dynamic programming (``taut.solver.bounds.candidate_bounds``);
``placement``                  exact subset dynamic programming (``taut.solver.placement.exact.joint``);
``every-placement``            all placements, one by one (``taut.solver.placement.exact.enumerate``);
``cover``                      the staircase of proofs in its witness, each checked alone
                               (``taut.solver.placement.path_cover.bound``);
``memory``                     no division of the layers fits, by exact dynamic programming over the excess;
``order``, ``order-memory``    what devices can take, weighted paths through a schedule's order, and priced memory, by
                               the figures in its witness (``taut.solver.order_priced.witness``).

Neither the branch and bound, nor annealing, nor any external solver takes part.
"""

import math

from taut.data.units import KIB
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import chunked, communication, partition_bound, relaxation_bound
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.document import CandidateSection
from taut.solver.layer_partition import least_excess
from taut.solver.order_priced.witness import missing_bytes, rederived
from taut.solver.placement.exact.enumerate import ListCache, has_every, solve_every
from taut.solver.placement.exact.joint import SubsetCache, has_joint, solve_joint
from taut.solver.placement.path_cover.bound import cover_bound, has_cover
from taut.solver.placement.path_cover.witness import witnessed


class Derivation:
    """Derives the bounds of candidates again, each by its source."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        self._best_links = BestLinks(problem.links)
        self._subsets, self._lists = SubsetCache(), ListCache()

    def derive(self, candidate: Candidate, entry: CandidateSection) -> float:
        """The bound (1) that the entry's source yields."""
        comm = communication(self._problem, candidate, self._best_links)
        relaxed = relaxation_bound(self._problem, candidate, comm)
        if entry.source == "relaxation":
            return relaxed
        if candidate.is_order_priced and entry.source != "memory":
            return self._ordered(candidate, entry, relaxed)
        if entry.source == "partition":
            return max(relaxed, partition_bound(self._problem, candidate, comm)[0])
        if entry.source == "placement" and has_joint(self._problem, candidate, self._subsets):
            joint = solve_joint(self._problem, candidate, self._best_links, self._subsets).lower_bound
            return max(relaxed, partition_bound(self._problem, candidate, comm)[0], joint)
        if entry.source == "every-placement" and has_every(self._problem, candidate):
            every = solve_every(self._problem, candidate, self._best_links, self._lists).lower_bound
            return max(relaxed, partition_bound(self._problem, candidate, comm)[0], every)
        if entry.source == "cover" and has_cover(self._problem, candidate):
            covered = witnessed(self._problem, candidate, entry.witness)
            if covered is None:
                return -math.inf
            bound = cover_bound(self._problem, candidate, self._best_links, covered)[0]
            return max(relaxed, partition_bound(self._problem, candidate, comm)[0], bound)
        if entry.source == "memory":
            return self._excess(candidate, entry)
        return -math.inf

    def _ordered(self, candidate: Candidate, entry: CandidateSection, relaxed: float) -> float:
        """The bound that the witness proves, infinity if it proves that nothing fits."""
        given = chunked(self._problem, candidate, self._best_links)
        if entry.source == "order":
            found = rederived(given, entry.witness)
            return max(relaxed, found) if math.isfinite(found) else found
        missing = missing_bytes(given, entry.witness) if entry.source == "order-memory" else -math.inf
        named = missing > 0 and math.ceil(missing / KIB) == entry.witness.get("missing_kib")
        return math.inf if named else -math.inf

    def _excess(self, candidate: Candidate, entry: CandidateSection) -> float:
        """Infinity if no division fits and the witness names the least excess; minus infinity otherwise."""
        stages = partition_problem(self._problem, candidate)
        comm = communication(self._problem, candidate, self._best_links)
        excess, stage = least_excess(stages)
        infeasible = excess > 0
        if not candidate.is_order_priced:
            infeasible = not partition_bound(self._problem, candidate, comm, stages=stages)[1].feasible
        named = entry.witness == {"missing_kib": -(-excess // KIB), "stage": stage}
        return math.inf if infeasible and named else -math.inf
