r"""
Best-first branch and bound over all candidates.

Every candidate c carries a lower bound LB(c) over its stages, recompute and placement together. The candidate with
the least bound is refined, step by step, until none with a bound below the incumbent can be refined further:

(1) ``relaxation``: closed form, for all candidates at once;
(2) ``partition``: exact stages and recompute within memory, and a first placement;
(3) ``placement``: exact for few tensor groups, annealing otherwise (which lowers the incumbent, not the bound);
(4) ``cover``: on alike devices, the pipelines are annealed on their own, first shortly, then at length in turn with
    the refinement of a staircase of proofs, as long as the candidate has the least bound.

A schedule that is priced by its order has ``order`` in the place of (2), weighted paths through it
(``taut.solver.order_bound``), then divisions of the layers polished by its evaluator; (3) anneals with stages in the
place of devices, and (4) does not apply. Such candidates come after all others, whose incumbent they can be refuted
by. Every placement is priced by the one evaluator.

Global bound = min(incumbent, min over unsolved c of LB(c)). A limit or an interrupt leaves the incumbent with it.
"""

import heapq
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from taut.data.units import KIB
from taut.formulations.latency import Strategy, step_time, violations
from taut.formulations.partition import partition_problem
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.anneal import Annealed, anneal, best_start, move_cost
from taut.solver.bestlinks import BestLinks
from taut.solver.bounds import chunked, communication, partition_bound, relaxation_bound
from taut.solver.covered import CoverCache, Covering, has_cover, load
from taut.solver.interrupt import interrupt_requested
from taut.solver.joint import SubsetCache, has_joint, solve_joint
from taut.solver.order_bound import order_bound
from taut.solver.partition import Partition, least_excess, solve_partition
from taut.solver.polish import polished
from taut.solver.result import (
    OPTIMALITY_GAP,
    SOLVED,
    CandidateBound,
    Incumbent,
    Limits,
    Progress,
    SearchResult,
    State,
    Status,
    relative_gap,
)

RESTARTS = 4
MOVES_PER_POSITION = 1500
MOST_MOVES = 150_000
MOST_LOOK_UPS = 400_000_000
"""Limits of one annealing run, so that Ctrl-C is answered within a second or two."""


@dataclass
class Search:
    """One run of the branch and bound: the heap, the incumbent and the bounds so far."""

    problem: PlanningProblem
    limits: Limits
    progress: Progress | None = None
    incumbent: Incumbent | None = None
    bounds: list[CandidateBound] = field(default_factory=list)
    work: int = 0

    def __post_init__(self) -> None:
        self._best_links = BestLinks(self.problem.links)
        self._subsets = SubsetCache()
        self._covers = CoverCache()
        self._covering: dict[int, Covering] = {}
        self._heap: list[tuple[bool, float, int]] = []
        self._started = time.perf_counter()
        self._partitions: dict[int, Partition] = {}

    def run(self) -> SearchResult:
        """Search until proven, stopped or interrupted."""
        stopped: str | None = None
        with interrupt_requested() as interrupted:
            self._relax_all()
            while self._heap and stopped is None:
                stopped = "interrupt" if interrupted() else self._step()
        return self._result(stopped)

    @property
    def value(self) -> float:
        """Seconds of the incumbent, infinite without one."""
        return math.inf if self.incumbent is None else self.incumbent.seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def lower_bound(self) -> float:
        """Global bound, valid at any moment."""
        unsolved = (b.lower_bound for b in self.bounds if b.state in (State.OPEN, State.PRUNED))
        return min(self.value, min(unsolved, default=math.inf))

    def _relax_all(self) -> None:
        """Give every candidate its first bound, (1)."""
        self.bounds = [
            CandidateBound(candidate=candidate, lower_bound=-math.inf, source="none")
            for candidate in self.problem.candidates
        ]
        for index, bound in enumerate(self.bounds):
            comm = communication(self.problem, bound.candidate, self._best_links)
            bound.lower_bound = relaxation_bound(self.problem, bound.candidate, comm)
            bound.source = "relaxation"
            self._push(index)

    def _step(self) -> str | None:
        """Refine the candidate with the least bound; returns why to stop, or None."""
        if reason := self._reason_to_stop():
            return reason
        last, _, index = heapq.heappop(self._heap)
        bound = self.bounds[index]
        if bound.lower_bound >= self.value:
            self._heap = [entry for entry in self._heap if entry[0] != last]
            heapq.heapify(self._heap)
            return None
        self.work += 1
        if bound.source == "relaxation" and bound.candidate.is_ordered:
            self._refine_order(index)
        elif bound.source == "relaxation":
            self._refine_partition(index)
        elif index in self._covering:
            self._refine_cover(index)
        else:
            self._refine_placement(index)
        if self.progress is not None:
            self.progress(self.elapsed, self.value, self.lower_bound(), str(bound.candidate))
        return None

    def _push(self, index: int) -> None:
        """Take a candidate up again; those that are priced by their order come last, as a good plan shortens them."""
        bound = self.bounds[index]
        heapq.heappush(self._heap, (bound.candidate.is_ordered, bound.lower_bound, index))

    def _reason_to_stop(self) -> str | None:
        gap = relative_gap(self.value, self.lower_bound()) if self.incumbent else None
        if gap is not None and gap <= self.limits.gap:
            return "gap"
        if self.limits.time_limit is not None and self.elapsed >= self.limits.time_limit:
            return "time"
        if self.limits.work_limit is not None and self.work >= self.limits.work_limit:
            return "work"
        return None

    def _refine_partition(self, index: int) -> None:
        """Exact stages within memory and a constructed placement, (2)."""
        bound = self.bounds[index]
        stages = partition_problem(self.problem, bound.candidate)
        comm = communication(self.problem, bound.candidate, self._best_links)
        value, found = partition_bound(self.problem, bound.candidate, comm, stages=stages)
        if not found.feasible:
            excess, stage = least_excess(stages)
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, "memory"
            bound.witness = {"missing_kib": -(-excess // KIB), "stage": stage}
            return
        bound.lower_bound, bound.source = max(bound.lower_bound, value), "partition"
        self._partitions[index] = found
        if bound.lower_bound < self.value:
            problem = self._placement(bound.candidate, found)
            self._offer(index, problem, best_start(problem, found.patterns))
        if bound.state is State.OPEN:
            self._push(index)

    def _refine_order(self, index: int) -> None:
        """Weighted paths within memory, then good divisions and a constructed placement."""
        bound = self.bounds[index]
        excess, stage = least_excess(partition_problem(self.problem, bound.candidate))
        if excess > 0:
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, "memory"
            bound.witness = {"missing_kib": -(-excess // KIB), "stage": stage}
            return
        given = chunked(self.problem, bound.candidate, self._best_links)
        found = order_bound(given, self.value)
        if math.isinf(found.seconds):
            bound.state, bound.lower_bound, bound.source = State.INFEASIBLE, math.inf, "order-memory"
            bound.witness = {**found.witness, "missing_kib": math.ceil(found.missing / KIB)}
            return
        if found.seconds > bound.lower_bound:
            bound.lower_bound = found.seconds
        bound.source, bound.witness = "order", found.witness
        if bound.lower_bound >= self.value:
            self._push(index)
            return
        division = polished(self.problem, bound.candidate, given, found.divisions)
        # No placement of a division is faster than its least makespan.
        if division is not None and division.seconds < self.value:
            self._partitions[index] = division
            problem = self._placement(bound.candidate, division)
            self._offer(index, problem, best_start(problem, division.patterns))
            if bound.state is State.OPEN:
                self._push(index)

    def _refine_placement(self, index: int) -> None:
        """Exact placement where it is cheap, annealing otherwise, (3)."""
        bound, found, closed = self.bounds[index], self._partitions[index], False
        if has_joint(self.problem, bound.candidate):
            joint = solve_joint(self.problem, bound.candidate, self._best_links, self._subsets)
            bound.lower_bound, bound.source = max(bound.lower_bound, joint.lower_bound), "placement"
            if bound.lower_bound >= self.value:
                return
            problem = self._placement(bound.candidate, joint.partition)
            exact = Annealed(seconds=problem.cost(joint.positions), positions=joint.positions)
            self._offer(index, problem, exact)
            found, closed = joint.partition, joint.exact
        covering = None
        if bound.state is State.OPEN and not closed and has_cover(self.problem, bound.candidate):
            covering = Covering(self.problem, bound.candidate, found, self._best_links, self._covers)
        pipelines = covering is not None and not covering.annealed
        if bound.state is State.OPEN and bound.lower_bound < self.value and not pipelines:
            problem = self._placement(bound.candidate, found)
            self._offer(index, problem, self._annealed(problem, found))
        if bound.candidate.is_ordered:
            return
        if bound.state is State.OPEN and len(self.problem.device_types) > 1:
            self._offer_cautious(index)
        if bound.state is State.OPEN and covering is not None:
            self._covering[index] = covering
            self._push(index)

    def _refine_cover(self, index: int) -> None:
        """Better pipelines, then one refinement of the staircase, (4)."""
        bound, covering = self.bounds[index], self._covering[index]
        if not covering.annealed:
            problem = self._placement(bound.candidate, covering.partition)
            for positions in covering.anneal(self.limits.seed, self.limits.workers):
                self._offer(index, problem, Annealed(seconds=problem.cost(positions), positions=positions))
        if covering.begun:
            more = covering.refine(self.value)
            if covering.lower_bound > bound.lower_bound:
                bound.lower_bound, bound.source = covering.lower_bound, "cover"
                bound.witness = covering.witness()
            if not more and covering.annealed:
                return
        if bound.state is State.OPEN:
            self._push(index)

    def _offer_cautious(self, index: int) -> None:
        """Stages that fit every device type, for when the relaxed ones fit no placement or place badly."""
        candidate = self.bounds[index].candidate
        stages = partition_problem(self.problem, candidate, cautious=True)
        no_edges = np.zeros(stages.num_layers + 1)
        found = solve_partition(stages, no_edges, no_edges)
        if found.feasible:
            problem = self._placement(candidate, found)
            self._offer(index, problem, self._annealed(problem, found))

    def _placement(self, candidate: Candidate, found: Partition) -> PlacementProblem:
        strategy = Strategy(candidate=candidate, stages=found.stages, recompute=found.recompute)
        return placement_problem(self.problem, strategy)

    def _annealed(self, problem: PlacementProblem, found: Partition) -> Annealed:
        """The best of some annealing runs, each from the best constructed placement."""
        start = best_start(problem, found.patterns)
        moves = min(MOVES_PER_POSITION * len(start.positions), MOST_MOVES, MOST_LOOK_UPS // move_cost(problem))
        seeds = [self.limits.seed * RESTARTS + restart for restart in range(RESTARTS)]
        with ThreadPoolExecutor(max_workers=max(self.limits.workers, 1)) as pool:
            runs = pool.map(lambda seed: anneal(problem, start, moves=moves, seed=seed), seeds)
        return min(runs, key=lambda run: run.seconds)

    def _offer(self, index: int, problem: PlacementProblem, placed: Annealed) -> None:
        """Price a placement with the one evaluator; keep it if best, mark the candidate solved if its bound is met."""
        bound = self.bounds[index]
        devices = problem.devices(placed.positions)
        if violations(self.problem, problem.strategy, devices):
            return
        seconds = float(step_time(self.problem, problem.strategy, devices).total)
        if seconds < self.value:
            self.incumbent = Incumbent(strategy=problem.strategy, devices=devices, seconds=seconds)
        if seconds - bound.lower_bound <= SOLVED * seconds:
            bound.state = State.SOLVED

    def _result(self, stopped: str | None) -> SearchResult:
        for bound in self.bounds:
            if bound.state is State.OPEN and bound.lower_bound >= self.value:
                bound.state = State.PRUNED
        lower_bound = self.lower_bound()
        gap = relative_gap(self.value, lower_bound) if self.incumbent else None
        if self.incumbent is None:
            done = stopped is None and all(b.state is State.INFEASIBLE for b in self.bounds)
            status = Status.INFEASIBLE if done else Status.UNKNOWN
        else:
            status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
        return SearchResult(
            status=status,
            stopped_by=stopped,
            incumbent=self.incumbent,
            lower_bound=lower_bound,
            bounds=self.bounds,
            work=self.work,
            wall_s=self.elapsed,
        )


def search(problem: PlanningProblem, limits: Limits, progress: Progress | None = None) -> SearchResult:
    """
    Best plan of a problem, with a bound on every candidate.

    Parameters
    ----------
    problem
        What is planned.
    limits
        When to stop; the time counts from when the compiled loops of the staircase are loaded.
    progress
        Called after every refinement.
    """
    _load(problem)
    return Search(problem, limits, progress).run()


def _load(problem: PlanningProblem) -> None:
    """Load the compiled loops that most of the search needs, or compile them, by a first division and placement."""
    by_degree = {candidate.tp: candidate for candidate in problem.candidates if candidate.pp > 1}
    covered = [candidate for candidate in by_degree.values() if has_cover(problem, candidate)]
    if not covered:
        return
    load()
    stages = partition_problem(problem, covered[0])
    free = np.zeros(stages.num_layers + 1)
    found = solve_partition(stages, free, free)
    if found.feasible:
        strategy = Strategy(candidate=covered[0], stages=found.stages, recompute=found.recompute)
        best_start(placement_problem(problem, strategy), found.patterns)
