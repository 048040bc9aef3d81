r"""
Refinements of one candidate: how its bound rises and its plan falls.

(1) ``relaxation``: closed form;
(2) ``partition``: exact stages and recompute within memory, and a first placement;
(3) ``every-placement`` where there are few placements of unlike groups, ``placement`` for few like tensor groups;
    annealing otherwise (which lowers the incumbent, not the bound);
(4) ``cover``: on alike devices, the pipelines are annealed on their own, first shortly, then at length in turn with
    the refinement of a case distinction.

A schedule that is priced by its order has ``order`` in the place of (2), what devices can take and weighted paths
through it (``taut.solver.order_priced.bound``), then a local search for divisions; (3) anneals
with stages in the place of devices, exchanges positions where that is better by the order itself
(``taut.solver.order_priced.placing``), and in the place of (4) the bound rises branch by branch
(``taut.solver.order_priced.branch_and_bound``) (5).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import partition_problem
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.computations import Evaluation, order, partition, placement
from taut.solver.bounds.ladder import Ladder
from taut.solver.layer_partition import Partition, solve_partition
from taut.solver.order_priced.branch_and_bound import BranchAndBound
from taut.solver.order_priced.dominance import dominates, inherited, likely_dominating
from taut.solver.order_priced.local_search import REACH, improved_division
from taut.solver.order_priced.placing import best_of, constructed, improved
from taut.solver.order_priced.pricing import ROUNDING as ORDER_ROUNDING
from taut.solver.placement.annealing.anneal import anneal_restarts, best_start
from taut.solver.placement.exact.memory_assignment import Assignment, least_missing
from taut.solver.placement.path_cover.bound import has_cover
from taut.solver.placement.path_cover.candidate import CoverCache, CoverSearch, load
from taut.solver.placement.result import FoundPlacement
from taut.solver.result import CandidateBound, Limits, Source, State
from taut.solver.search.incumbent import Best
from taut.solver.search.order_adaptation import OrderAdaptation

ABOVE = 1 + 1e-9
"""Limit of a bound as a multiple of the incumbent, beyond the allowance for rounding that is taken off."""


class Stage(Enum):
    """Where a candidate stands, named by the refinement that is next."""

    DIVIDE = 2
    PLACE = 3
    COVER = 4
    BRANCH = 5
    DONE = 6


@dataclass(slots=True)
class _Standing:
    """What the next refinements of a candidate begin with: a division to place, a case distinction, branches."""

    stage: Stage = Stage.DIVIDE
    division: Partition | None = None
    covering: CoverSearch | None = None
    branching: BranchAndBound | None = None

    def advance(self) -> bool:
        """Go on to the next refinement that has something to begin with; returns whether there is one."""
        if self.division is not None:
            self.stage = Stage.PLACE
        elif self.covering is not None:
            self.stage = Stage.COVER
        else:
            self.stage = Stage.DONE if self.branching is None else Stage.BRANCH
        return self.stage is not Stage.DONE


class Refining:
    """All candidates of one search: what is known of them beyond their bounds, and the best plan that it led to."""

    def __init__(self, problem: PlanningProblem, limits: Limits, best: Best) -> None:
        self._problem, self._limits, self._best = problem, limits, best
        self.ladder, self._covers = Ladder(problem), CoverCache()
        self._standing: dict[Candidate, _Standing] = {}
        self._proven: dict[Candidate, tuple[float, dict[str, Any]]] = {}
        self.orders = OrderAdaptation(problem, self.ladder.links, best, limits.seed)
        # Above the bound of a candidate that has no more branches those of another no longer raise the global bound.
        self._highest = math.inf

    def relaxed(self, candidate: Candidate) -> CandidateBound:
        """A candidate with its first bound, (1)."""
        self._standing[candidate] = _Standing()
        return CandidateBound(
            candidate=candidate, lower_bound=self.ladder.relaxation(candidate), source=Source.RELAXATION
        )

    def stage(self, candidate: Candidate) -> Stage:
        """Where a candidate stands."""
        return self._standing[candidate].stage

    def refine(self, bound: CandidateBound) -> bool:
        """Refine a candidate by one step; returns whether there is another."""
        at = self._standing[bound.candidate]
        if at.stage is Stage.DIVIDE:
            more = self._order(bound, at) if bound.candidate.is_order_priced else self._partition(bound, at)
        elif at.stage is Stage.COVER and at.covering is not None:
            more = self._cover(bound, at.covering)
        elif at.stage is Stage.PLACE and at.division is not None:
            more = self._placement(bound, at, at.division)
        else:
            more = at.branching is not None and self._branch(bound, at, at.branching)
        return more and at.advance() and bound.state is State.OPEN

    def _partition(self, bound: CandidateBound, at: _Standing) -> bool:
        """Exact stages within memory and a constructed placement, (2)."""
        found = partition(self.ladder, bound.candidate, self._best.seconds * ABOVE)
        if found.partition is None:
            return _infeasible(bound, found)
        bound.lower_bound, bound.source = max(bound.lower_bound, found.seconds), found.source
        bound.witness = found.witness
        at.division = found.partition
        if bound.lower_bound < self._best.seconds:
            problem = self._placing(bound.candidate, found.partition)
            self._best.offer(bound, problem, best_start(problem, found.partition.patterns))
        return True

    def _order(self, bound: CandidateBound, at: _Standing) -> bool:
        """What devices can take and weighted paths, then good divisions and a constructed placement."""
        if self._inherit(bound) and bound.lower_bound >= self._best.seconds:
            return False
        computed = order(self.ladder, bound.candidate, self._best.seconds * ABOVE)
        found = computed.order
        if found is None:
            return _infeasible(bound, computed)
        self._proven[bound.candidate] = found.seconds, found.witness
        if found.seconds >= bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = found.seconds, computed.source, found.witness
        beaten = bound.lower_bound >= self._best.seconds
        at.branching = None if beaten else found.branching
        if not beaten or self.orders.is_within_reach(bound.candidate, bound.lower_bound):
            given = chunked(self._problem, bound.candidate, self.ladder.links)
            self._search_division(bound, at, given, [*found.divisions, *self.orders.divisions(bound.candidate)])
        return not beaten

    def _inherit(self, bound: CandidateBound) -> bool:
        """Take the bound of a candidate that dominates this one; returns whether it is larger."""
        others = {other: self._proven[other] for other in likely_dominating(bound.candidate, self._proven)}
        other = max(others, key=lambda one: others[one][0], default=None)
        if other is None or others[other][0] <= bound.lower_bound:
            return False
        of, given = (chunked(self._problem, one, self.ladder.links) for one in (other, bound.candidate))
        if not dominates(of, given):
            return False
        bound.lower_bound, bound.source = others[other][0], Source.ORDER
        bound.witness = inherited(other, others[other][1])
        return True

    def _search_division(
        self, bound: CandidateBound, at: _Standing, given: ChunkProblem, divisions: Sequence[Division]
    ) -> None:
        """A division that fits, for an order to adapt to, and a placement where it may be part of a better plan."""
        candidate = bound.candidate
        division = improved_division(self._problem, candidate, given, divisions, self._best.seconds)
        if division is None:
            return
        self.orders.add(candidate, division)
        if at.branching is not None:
            at.branching.learn(division.division)
        # No placement of a division is faster than its least makespan.
        if division.seconds < self._best.seconds:
            at.division = division
            problem = self._placing(candidate, division)
            self._best.offer(bound, problem, constructed(problem, division.patterns))

    def _branch(self, bound: CandidateBound, at: _Standing, branching: BranchAndBound) -> bool:
        """Another branch of the divisions of an order, (5)."""
        if bound.lower_bound > self._highest:
            return False
        known, more = branching.incumbent[0], branching.branch()
        seconds = branching.seconds * (1 - ORDER_ROUNDING)
        if seconds > bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = seconds, Source.ORDER, branching.witness()
        least, division = branching.incumbent
        if division is not None and least < min(known, self._best.seconds * (1 + REACH)):
            self._search_division(bound, at, branching.given, [division])
        if not more and bound.lower_bound < self._best.seconds:
            self._highest = min(self._highest, bound.lower_bound)
        return more or at.division is not None

    def _placement(self, bound: CandidateBound, at: _Standing, found: Partition) -> bool:
        """Exact placement where it is cheap, annealing otherwise, (3)."""
        candidate, at.division, closed = bound.candidate, None, False
        computed = placement(self.ladder, candidate)
        if computed is not None and computed.placed is not None:
            placed = computed.placed
            if not placed.partition.feasible:
                return _infeasible(bound, computed)
            bound.lower_bound, bound.source = max(bound.lower_bound, computed.seconds), computed.source
            if bound.lower_bound >= self._best.seconds:
                return False
            problem = self._placing(candidate, placed.partition)
            exact = FoundPlacement(seconds=problem.cost(placed.positions), positions=placed.positions)
            self._best.offer(bound, problem, exact)
            found, closed = placed.partition, placed.exact
        if bound.state is not State.OPEN:
            return False
        covering = None
        if not closed and has_cover(self._problem, candidate):
            covering = CoverSearch(self._problem, candidate, found, self.ladder.links, self._covers)
        # Where the search for ``cover`` anneals pipelines itself, another annealing would find them twice.
        if bound.lower_bound < self._best.seconds and (covering is None or covering.annealed):
            self._anneal(bound, found)
        if len(self._problem.device_types) > 1 and not candidate.is_order_priced:
            self._anneal_cautious(bound)
        at.covering = covering
        return True

    def _cover(self, bound: CandidateBound, covering: CoverSearch) -> bool:
        """Better pipelines, then one refinement of the case distinction, (4)."""
        if not covering.annealed:
            problem = self._placing(bound.candidate, covering.partition)
            for positions in covering.anneal(self._limits.seed, self._limits.workers):
                self._best.offer(bound, problem, FoundPlacement(seconds=problem.cost(positions), positions=positions))
        if not covering.begun:
            return True
        more = covering.refine(self._best.seconds)
        if covering.lower_bound > bound.lower_bound:
            bound.lower_bound, bound.source = covering.lower_bound, Source.COVER
            bound.witness = covering.witness()
        return more or not covering.annealed

    def decide(self, bound: CandidateBound) -> Assignment | None:
        """The assignment that lacks least memory, None if unknown; where it fits it is offered and annealed."""
        found = least_missing(self._problem, bound.candidate)
        if found is not None and found.missing == 0:
            problem = placement_problem(self._problem, found.strategy)
            start = FoundPlacement(seconds=problem.cost(found.positions), positions=found.positions)
            self._best.offer(bound, problem, start)
            runs = anneal_restarts(problem, start, seed=self._limits.seed, workers=self._limits.workers)
            self._best.offer(bound, problem, runs)
        return found

    def _anneal(self, bound: CandidateBound, found: Partition) -> None:
        """Offer the best of some annealing runs."""
        problem = self._placing(bound.candidate, found)
        start = best_start(problem, found.patterns)
        runs = anneal_restarts(problem, start, seed=self._limits.seed, workers=self._limits.workers)
        if bound.candidate.is_order_priced:
            by_order = constructed(problem, found.patterns)
            better = best_of(problem, [by_order.positions, runs.positions])
            runs = improved(problem, better, seed=self._limits.seed)
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


def _infeasible(bound: CandidateBound, found: Evaluation) -> bool:
    """Note that nothing fits, and what proves it; there is no further refinement."""
    bound.state, bound.lower_bound = State.INFEASIBLE, math.inf
    bound.source, bound.witness = found.source, found.witness
    return False


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
