r"""
Refinements of one candidate: how its bound rises and its plan falls.

(1) ``relaxation``: closed form;
(2) ``partition``: exact stages and recompute within memory, and a first placement;
(3) ``every-placement`` where there are few placements of unlike groups, ``placement`` for few like tensor groups;
    annealing otherwise (which lowers the incumbent, not the bound);
(4) ``cover``: on alike devices, the pipelines are annealed on their own, first shortly, then at length in turn with
    the refinement of a staircase of proofs.

A schedule that is priced by its order has ``order`` in the place of (2), what devices can take and weighted paths
through it (``taut.solver.order_priced.bound``), then divisions of the layers polished by its evaluator; (3) anneals
with stages in the place of devices, and in the place of (4) the bound rises branch by branch
(``taut.solver.order_priced.branch_and_bound``) (5).
"""

import math
from collections.abc import Sequence

import numpy as np

from taut.data.units import KIB
from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds.candidate_bounds import chunked, communication, partition_bound, relaxation_bound
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_partition import Partition, least_excess, solve_partition
from taut.solver.order_priced.bound import order_bound
from taut.solver.order_priced.branch_and_bound import Branching
from taut.solver.order_priced.division import ROUNDING as ORDER_ROUNDING
from taut.solver.order_priced.local_search import WORTH, polished
from taut.solver.placement.annealing.anneal import Annealed, anneal_restarts, best_start
from taut.solver.placement.exact.enumerate import ListCache, has_every, solve_every
from taut.solver.placement.exact.joint import Joint, SubsetCache, has_joint, solve_joint
from taut.solver.placement.path_cover.bound import has_cover
from taut.solver.placement.path_cover.candidate import CoverCache, Covering, load
from taut.solver.result import CandidateBound, Limits, State
from taut.solver.search.incumbent import Best
from taut.solver.search.order_adaptation import Drafts


class Refining:
    """All candidates of one search: what is known of them beyond their bounds, and the best plan that it led to."""

    def __init__(self, problem: PlanningProblem, limits: Limits, best: Best) -> None:
        self._problem, self._limits, self._best = problem, limits, best
        self._best_links = BestLinks(problem.links)
        self._subsets, self._lists, self._covers = SubsetCache(), ListCache(), CoverCache()
        self._partitions: dict[Candidate, Partition] = {}
        self._covering: dict[Candidate, Covering] = {}
        self._branching: dict[Candidate, Branching] = {}
        self.drafts = Drafts(problem, self._best_links, best, limits.seed)
        # Above the bound of a candidate that has no more branches those of another no longer raise the global bound.
        self._highest = math.inf

    def relaxed(self, candidate: Candidate) -> CandidateBound:
        """A candidate with its first bound, (1)."""
        comm = communication(self._problem, candidate, self._best_links)
        seconds = relaxation_bound(self._problem, candidate, comm)
        return CandidateBound(candidate=candidate, lower_bound=seconds, source="relaxation")

    def is_branching(self, bound: CandidateBound) -> bool:
        """Whether all that is left of a candidate are branches of its divisions, (5)."""
        candidate = bound.candidate
        return candidate.is_order_priced and bound.source != "relaxation" and candidate not in self._partitions

    def refine(self, bound: CandidateBound) -> bool:
        """Refine a candidate by one step; returns whether there is another."""
        if bound.source == "relaxation":
            more = self._order(bound) if bound.candidate.is_order_priced else self._partition(bound)
        elif bound.candidate in self._covering:
            more = self._cover(bound)
        elif bound.candidate in self._partitions:
            more = self._placement(bound)
        else:
            more = self._branch(bound)
        return more and bound.state is State.OPEN

    def _partition(self, bound: CandidateBound) -> bool:
        """Exact stages within memory and a constructed placement, (2)."""
        stages = partition_problem(self._problem, bound.candidate)
        comm = communication(self._problem, bound.candidate, self._best_links)
        value, found = partition_bound(self._problem, bound.candidate, comm, stages=stages)
        if not found.feasible:
            return self._does_not_fit(bound, stages)
        bound.lower_bound, bound.source = max(bound.lower_bound, value), "partition"
        self._partitions[bound.candidate] = found
        if bound.lower_bound < self._best.seconds:
            problem = self._placing(bound.candidate, found)
            self._best.offer(bound, problem, best_start(problem, found.patterns))
        return True

    def _does_not_fit(self, bound: CandidateBound, stages: PartitionProblem) -> bool:
        """Note that no division fits, and what the leanest lacks."""
        excess, stage = least_excess(stages)
        bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, "memory"
        bound.witness = {"missing_kib": -(-excess // KIB), "stage": stage}
        return False

    def _order(self, bound: CandidateBound) -> bool:
        """What devices can take and weighted paths, then good divisions and a constructed placement."""
        stages = partition_problem(self._problem, bound.candidate)
        if least_excess(stages)[0] > 0:
            return self._does_not_fit(bound, stages)
        given = chunked(self._problem, bound.candidate, self._best_links)
        found = order_bound(given, self._best.seconds)
        if math.isinf(found.seconds):
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, "order-memory"
            bound.witness = {**found.witness, "missing_kib": math.ceil(found.missing / KIB)}
            return False
        bound.lower_bound, bound.source = max(bound.lower_bound, found.seconds), "order"
        bound.witness = found.witness
        beaten = bound.lower_bound >= self._best.seconds
        if not beaten or self.drafts.wanted(bound.candidate, bound.lower_bound):
            self._polish(bound, given, [*found.divisions, *self.drafts.divisions(bound.candidate)])
        if beaten:
            return False
        if found.branching is not None:
            self._branching[bound.candidate] = found.branching
        return bound.candidate in self._partitions or found.branching is not None

    def _polish(self, bound: CandidateBound, given: ChunkProblem, divisions: Sequence[Division]) -> None:
        """A division that fits as a draft, and a constructed placement where it may be part of a better plan."""
        candidate = bound.candidate
        division = polished(self._problem, candidate, given, divisions, self._best.seconds)
        if division is None:
            return
        self.drafts.note(candidate, division)
        # No placement of a division is faster than its least makespan.
        if division.seconds < self._best.seconds:
            self._partitions[candidate] = division
            problem = self._placing(candidate, division)
            self._best.offer(bound, problem, best_start(problem, division.patterns))

    def _branch(self, bound: CandidateBound) -> bool:
        """Another branch of the divisions of an order, (5)."""
        if bound.lower_bound > self._highest:
            return False
        branching = self._branching[bound.candidate]
        known, more = branching.quickest[0], branching.refine()
        seconds = branching.seconds * (1 - ORDER_ROUNDING)
        if seconds > bound.lower_bound:
            bound.lower_bound, bound.witness = seconds, branching.witness()
        quickest, division = branching.quickest
        if division is not None and quickest < min(known, self._best.seconds * (1 + WORTH)):
            self._polish(bound, branching.given, [division])
        if not more and bound.lower_bound < self._best.seconds:
            self._highest = min(self._highest, bound.lower_bound)
        return more or bound.candidate in self._partitions

    def _placement(self, bound: CandidateBound) -> bool:
        """Exact placement where it is cheap, annealing otherwise, (3)."""
        candidate, found, closed = bound.candidate, self._partitions.pop(bound.candidate), False
        source, placed = self._placed(candidate)
        if placed is not None and placed.partition.feasible:
            bound.lower_bound, bound.source = max(bound.lower_bound, placed.lower_bound), source
            if bound.lower_bound >= self._best.seconds:
                return False
            problem = self._placing(candidate, placed.partition)
            exact = Annealed(seconds=problem.cost(placed.positions), positions=placed.positions)
            self._best.offer(bound, problem, exact)
            found, closed = placed.partition, placed.exact
        if bound.state is not State.OPEN:
            return False
        covering = None
        if not closed and has_cover(self._problem, candidate):
            covering = Covering(self._problem, candidate, found, self._best_links, self._covers)
        # Where the staircase's own annealing finds pipelines, another would find them twice.
        if bound.lower_bound < self._best.seconds and (covering is None or covering.annealed):
            self._anneal(bound, found)
        if len(self._problem.device_types) > 1 and not candidate.is_order_priced:
            self._anneal_cautious(bound)
        if covering is not None:
            self._covering[candidate] = covering
        return covering is not None or candidate in self._branching

    def _placed(self, candidate: Candidate) -> tuple[str, Joint | None]:
        """The bound over all placements that applies to a candidate, with its source; none for many of them."""
        if has_every(self._problem, candidate):
            return "every-placement", solve_every(self._problem, candidate, self._best_links, self._lists)
        if has_joint(self._problem, candidate, self._subsets):
            return "placement", solve_joint(self._problem, candidate, self._best_links, self._subsets)
        return "partition", None

    def _cover(self, bound: CandidateBound) -> bool:
        """Better pipelines, then one refinement of the staircase, (4)."""
        covering = self._covering[bound.candidate]
        if not covering.annealed:
            problem = self._placing(bound.candidate, covering.partition)
            for positions in covering.anneal(self._limits.seed, self._limits.workers):
                self._best.offer(bound, problem, Annealed(seconds=problem.cost(positions), positions=positions))
        if not covering.begun:
            return True
        more = covering.refine(self._best.seconds)
        if covering.lower_bound > bound.lower_bound:
            bound.lower_bound, bound.source = covering.lower_bound, "cover"
            bound.witness = covering.witness()
        return more or not covering.annealed

    def _anneal(self, bound: CandidateBound, found: Partition) -> None:
        """Offer the best of some annealing runs."""
        problem = self._placing(bound.candidate, found)
        start = best_start(problem, found.patterns)
        runs = anneal_restarts(problem, start, seed=self._limits.seed, workers=self._limits.workers)
        self._best.offer(bound, problem, runs)

    def _anneal_cautious(self, bound: CandidateBound) -> None:
        """Stages that fit every device type, for when the relaxed ones fit no placement or place badly."""
        stages = partition_problem(self._problem, bound.candidate, cautious=True)
        no_edges = np.zeros(stages.num_layers + 1)
        found = solve_partition(stages, no_edges, no_edges)
        if found.feasible:
            self._anneal(bound, found)

    def _placing(self, candidate: Candidate, found: Partition) -> PlacementProblem:
        strategy = Strategy(candidate=candidate, division=found.division)
        return placement_problem(self._problem, strategy)


def load_loops(problem: PlanningProblem) -> None:
    """Load the compiled loops that most of the search needs, or compile them, by a first division and placement."""
    by_degree = {
        candidate.tp: candidate
        for candidate in problem.candidates
        if candidate.pp > 1 and not candidate.is_order_priced
    }
    covered = [candidate for candidate in by_degree.values() if has_cover(problem, candidate)]
    if not covered:
        return
    load()
    stages = partition_problem(problem, covered[0])
    free = np.zeros(stages.num_layers + 1)
    found = solve_partition(stages, free, free)
    if found.feasible:
        strategy = Strategy(candidate=covered[0], division=found.division)
        best_start(placement_problem(problem, strategy), found.patterns)
