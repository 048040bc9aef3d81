r"""
Refinements of one candidate: how its bound rises and its plan falls.

(1) Closed forms: bound ``balance``, then ``relaxation``.
(2) Division: bound ``partition``, exact stages and recompute within memory, and a plan by a first placement. If a
    candidate that dominates this one is beaten already, its bound is taken instead
    (``taut.solver.ladder.dominance``).
(3) Placement: bound ``every-placement`` if there are few placements of different groups, or ``placement`` for few
    tensor groups that are equal. Otherwise, and if the exact placement does not close the gap, annealing finds a plan
    and no bound. With several types of device, plans by type are tried too (``taut.solver.search.typed_plans``). On
    many such devices this follows the orders' divisions.
(4) Cover: bound ``cover``, on equal devices. The pipelines are annealed on their own, first briefly, then at length in
    turn with the refinement of a case distinction.

(5) With an uneven batch, (2) divides for every type of device, and plans by type replace (3) and (4)
    (``taut.solver.search.typed_plans``).

No step follows once the bound reaches the incumbent. Where annealing has a guide alone, as for ranks of experts or
contexts, exchanges that the evaluator prices improve what it found (``taut.solver.order_priced.placing``). So it is for
an order-priced candidate, which is annealed with a stage for each device and has steps of its own
(``taut.solver.search.order_refinement``); where the nodes of each type and their links are alike, the constructed
placements are best or nearly so, on several types if stages fill whole nodes, and neither is done. These keep to the
classes of one case, so that few blocks, ``FEW_BLOCKS``, are annealed all the same.
"""

from typing import Any

import numpy as np

from taut.formulations.divisions import families_of, is_stated
from taut.formulations.partition import partition_problem, waits_for_later_stages
from taut.formulations.placement import FoundPlacement, PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.branch_and_bound.stop import Stopping
from taut.solver.ladder.computations import Evaluation, partition, placement
from taut.solver.ladder.dominance import (
    PartitionData,
    dominates_in_division,
    inherited,
    likely_dominating,
    partition_data,
)
from taut.solver.ladder.ladder import Ladder
from taut.solver.layer_division.divide import Partition, solve_partition
from taut.solver.order_priced.placing import best_of, constructed, improved
from taut.solver.placement.annealing.anneal import anneal_restarts, best_start
from taut.solver.placement.exact.memory_assignment import Assignment, least_missing
from taut.solver.placement.path_cover.bound import has_cover
from taut.solver.placement.path_cover.proving import CoverCache, CoverSearch, load
from taut.solver.result import CandidateBound, Limits, Source, State
from taut.solver.search.order_refinement import OrderRefining
from taut.solver.search.standing import ABOVE, Best, Stage, Standing, infeasible, placing
from taut.solver.search.typed_plans import typed_plans, uneven_plans

FEW_BLOCKS = 32
"""Blocks up to which orders on several types are annealed, in milliseconds: constructed plans took thrice as long."""
PLACED_FIRST = 32
"""Devices of several types up to which closed forms are placed at once; on 96 a placement takes six seconds."""


class Refining:
    """The refinements of all candidates of one search, with the ladder, the standing of each, and the incumbent."""

    def __init__(
        self,
        problem: PlanningProblem,
        limits: Limits,
        best: Best,
        stopping: Stopping,
        relaxations: dict[Candidate, float] | None = None,
        *,
        apart: bool = True,
    ) -> None:
        self._problem, self._limits, self._best, self._stopping = problem, limits, best, stopping
        self.ladder, self._covers = Ladder(problem, relaxations=relaxations), CoverCache()
        self._standing: dict[Candidate, Standing] = {}
        self._divided: dict[Candidate, tuple[float, dict[str, Any]]] = {}
        self._by_class = apart and len(problem.device_types) > 1
        orders = len(problem.closed_forms) < len(problem.candidates)
        self._waits = self._by_class and orders and problem.cluster.num_devices > PLACED_FIRST
        self._alike = len(problem.device_types) > 1 and types_are_alike(problem)
        self._by_order = OrderRefining(problem, limits, best, self.ladder, apart=apart)
        self.orders, self.state_witnesses = self._by_order.orders, self._by_order.state_witnesses

    def first(self, candidate: Candidate) -> CandidateBound:
        """A candidate with its first bound, (1)."""
        seconds, source = self.ladder.first(candidate)
        return CandidateBound(candidate=candidate, lower_bound=seconds, source=source)

    def relax(self, bound: CandidateBound) -> None:
        """Raise the bound of a candidate to ``relaxation``, unless a larger one is known."""
        seconds = self.ladder.relaxation(bound.candidate)
        bound.lower_bound, bound.source = max(bound.lower_bound, seconds), Source.RELAXATION

    def standing(self, candidate: Candidate) -> Standing:
        """Where a candidate stands."""
        found = self._standing.get(candidate)
        if found is None:
            by_order = candidate.is_order_priced
            found = Standing(
                self._by_order.divide if by_order else self._partition, by_order, self._by_class, self._waits
            )
            self._standing[candidate] = found
        return found

    def awaits_partition(self, bound: CandidateBound) -> bool:
        """Whether a closed form is not divided yet."""
        at = self.standing(bound.candidate)
        return at.stage is Stage.DIVIDE and not at.by_order

    def awaits_plan(self, bound: CandidateBound) -> bool:
        """Whether a candidate is left that a better plan would let branch."""
        return bound.state is State.OPEN and self.standing(bound.candidate).unbranched is not None

    def has_lower_limit(self, bound: CandidateBound) -> bool:
        """Whether the incumbent by now lets the candidate branch."""
        return self._by_order.has_lower_limit(self.standing(bound.candidate))

    def refine(self, bound: CandidateBound) -> bool:
        """Refine a candidate by one step; returns whether another step is left."""
        if bound.source is Source.BALANCE:
            # What a refinement states counts beside the relaxation, as the checker derives it.
            self.relax(bound)
        at = self.standing(bound.candidate)
        if at.by_order and not at.counted:
            at.counted = True
            return self._by_order.count(bound, at)
        if at.by_order and at.stage is Stage.DIVIDE and self._by_order.share(bound, at):
            return bound.lower_bound < self._best.seconds * (1 - self._limits.gap)
        if at.stage is Stage.DIVIDE:
            more = at.divide(bound, at)
        elif at.stage is Stage.IMPROVE and at.draft is not None:
            more = self._by_order.improve(bound, at, at.draft)
        elif at.stage is Stage.COVER and at.covering is not None:
            more = self._cover(bound, at.covering)
        elif at.stage is Stage.PLACE and at.division is not None:
            more = self._placement(bound, at, at.division)
        else:
            more = self._by_order.branch(bound, at)
        return more and at.advance() and bound.state is State.OPEN

    def _partition(self, bound: CandidateBound, at: Standing) -> bool:
        """Raise the bound to ``partition``, and offer a constructed placement, (2)."""
        if self._inherit(bound):
            return False
        found = partition(self.ladder, bound.candidate, self._best.seconds * ABOVE)
        if found.divided:
            return self._place_by_type(bound, found)
        if found.partition is None:
            return infeasible(bound, found)
        bound.lower_bound, bound.source = max(bound.lower_bound, found.seconds), found.source
        bound.witness = found.witness
        self._divided[bound.candidate] = found.seconds, found.witness
        at.division = found.partition
        if bound.lower_bound < self._best.seconds:
            problem = placing(self._problem, bound.candidate, found.partition)
            self._best.offer(bound, problem, best_start(problem, found.partition.patterns))
        return True

    def _place_by_type(self, bound: CandidateBound, found: Evaluation) -> bool:
        """Offer plans with the divisions of each type of device, (5)."""
        bound.lower_bound, bound.source = max(bound.lower_bound, found.seconds), found.source
        if bound.lower_bound < self._best.seconds:
            divisions = (each.division for each in found.divided)
            for plan in uneven_plans(self._problem, bound.candidate, divisions, self._limits.seed):
                self._best.take(bound, plan.strategy, plan.devices)
        return False

    def _inherit(self, bound: CandidateBound) -> bool:
        """Take the bound of a beaten candidate that dominates this one; returns whether there is such a candidate."""
        data: PartitionData | None = None
        for other in likely_dominating(bound.candidate, self._divided):
            seconds, witness = self._divided[other]
            if seconds < self._best.seconds:
                continue
            data, known = data or partition_data(self.ladder, bound.candidate), partition_data(self.ladder, other)
            if data is None or known is None or not dominates_in_division(known, data):
                continue
            bound.lower_bound, bound.source = seconds, Source.PARTITION
            bound.witness = inherited(bound.candidate, other, witness)
            return True
        return False

    def _placement(self, bound: CandidateBound, at: Standing, found: Partition) -> bool:
        """Place exactly if that is cheap, and anneal if the gap is not closed, (3)."""
        candidate, at.division, closed = bound.candidate, None, False
        if at.by_order and found.seconds >= self._best.seconds * (1 - self._limits.gap):
            # No placement is faster than the division at the best links, which a constructed one often attains.
            return True
        computed = placement(self.ladder, candidate)
        if computed is not None and computed.placed is not None:
            placed = computed.placed
            if not placed.partition.feasible:
                return infeasible(bound, computed)
            bound.lower_bound, bound.source = max(bound.lower_bound, computed.seconds), computed.source
            if bound.lower_bound >= self._best.seconds:
                return False
            problem = placing(self._problem, candidate, placed.partition)
            exact = FoundPlacement(seconds=problem.cost(placed.positions), positions=placed.positions)
            self._best.offer(bound, problem, exact)
            # Where later stages are waited for, the exact longest pipeline and first ring are a bound alone.
            if is_stated(placed.partition.division.layers, families_of(self._problem, candidate)):
                found, closed = placed.partition, placed.exact and not waits_for_later_stages(self._problem, candidate)
        if bound.state is not State.OPEN:
            return False
        covering = None
        if not closed and has_cover(self._problem, candidate):
            covering = CoverSearch(self._problem, candidate, found, self.ladder.links, self._covers)
        # Where the search for ``cover`` anneals pipelines itself, another annealing would find them twice.
        alone = fill_whole_nodes(self._problem, candidate) if self._alike else self._problem.cluster.is_uniform
        # On two types a case of other classes may place this division better; annealing of few blocks finds it.
        few = self._alike and candidate.pp * candidate.pipelines <= FEW_BLOCKS
        constructed_best = at.by_order and alone and not few
        if bound.lower_bound < self._best.seconds and (covering is None or covering.annealed) and not constructed_best:
            self._anneal(bound, found)
        if len(self._problem.device_types) > 1 and not at.by_order:
            self._anneal_cautious(bound)
            for plan in typed_plans(self._problem, candidate, self._limits, self._stopping):
                self._best.take(bound, plan.strategy, plan.devices)
        at.covering = covering
        return True

    def _cover(self, bound: CandidateBound, covering: CoverSearch) -> bool:
        """Anneal pipelines, then refine the case distinction once, (4)."""
        if not covering.annealed:
            problem = placing(self._problem, bound.candidate, covering.partition)
            limits = self._limits
            for positions in covering.anneal(limits.seed, limits.workers, stopping=self._stopping):
                self._best.offer(bound, problem, FoundPlacement(seconds=problem.cost(positions), positions=positions))
        if not covering.begun:
            return True
        more = covering.refine(self._best.seconds)
        if covering.lower_bound > bound.lower_bound:
            bound.lower_bound, bound.source = covering.lower_bound, Source.COVER
            bound.witness = covering.witness()
        return more or not covering.annealed

    def decide(self, bound: CandidateBound) -> Assignment | None:
        """The assignment that lacks least memory, None if unknown; if it fits, offer it, annealed too."""
        found = least_missing(self._problem, bound.candidate)
        if found is not None and not any(found.missing):
            problem = placement_problem(self._problem, found.strategy)
            start = FoundPlacement(seconds=problem.cost(found.positions), positions=found.positions)
            self._best.offer(bound, problem, start)
            self._best.offer(bound, problem, self._annealed(problem, start))
        return found

    def _anneal(self, bound: CandidateBound, found: Partition) -> None:
        """Offer the best of some annealing runs."""
        problem = placing(self._problem, bound.candidate, found)
        start = best_start(problem, found.patterns)
        runs = self._annealed(problem, start)
        if bound.candidate.is_order_priced or not bound.candidate.of_tensor_groups:
            # Annealing prices these by a guide alone (``taut.formulations.placement``).
            built = constructed(problem, found.patterns)
            runs = improved(problem, best_of(problem, [built.positions, runs.positions]), seed=self._limits.seed)
        self._best.offer(bound, problem, runs)

    def _annealed(self, problem: PlacementProblem, start: FoundPlacement) -> FoundPlacement:
        """The best of some annealing runs."""
        limits = self._limits
        return anneal_restarts(problem, start, seed=limits.seed, workers=limits.workers, stopping=self._stopping)

    def _anneal_cautious(self, bound: CandidateBound) -> None:
        """Anneal a division that fits every device type: the division of (2) may fit no placement, or place badly."""
        stages = partition_problem(self._problem, bound.candidate, cautious=True)
        no_edges = np.zeros(stages.num_layers + 1)
        found = solve_partition(stages, no_edges, no_edges)
        if found.feasible:
            self._anneal(bound, found)


def fill_whole_nodes(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether no two stages share a node."""
    return not (candidate.pipelines * candidate.width % problem.links.gpus_per_node).any()


def types_are_alike(problem: PlanningProblem) -> bool:
    """Whether nodes of one type, and the links from and to them, are alike."""
    links = problem.links
    kinds = np.stack((problem.type_of_node[links.node_of_site], links.rate.blocks.of, links.latency.blocks.of))
    return links.by_node and np.unique(kinds, axis=1).shape[1] == len(problem.device_types)


def load_loops(problem: PlanningProblem) -> None:
    """Load the compiled loops that most of the search needs, or compile them, by a first division and placement."""
    by_degree = {candidate.tp: candidate for candidate in problem.candidates if candidate.pp > 1 and candidate.is_plain}
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
