"""
Where a candidate stands between its refinements, and what the next ones begin with.

Candidates have classes in the heap of the branch and bound: a good plan of one class shortens those of the next.

The best plan of a search so far: every placement that is found is priced by the one evaluator and kept if best.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.latency import step_time, violations
from taut.formulations.placement import FoundPlacement, PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.ladder.computations import Evaluation
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.branch_and_bound import BranchAndBound
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.placement.path_cover.proving import CoverSearch
from taut.solver.result import SOLVED, CandidateBound, Incumbent, Nearest, Source, State
from taut.solver.search.rack_trees import RackTrees

Branching = BranchAndBound | LayerTree | RackTrees


class Best:
    """
    The incumbent of a search, if there is one.

    Every placement passes through here. The evaluator prices it, and a placement that breaks a rule is dropped. What
    found the placement, and at which price, does not matter.
    """

    def __init__(self, problem: PlanningProblem, incumbent: Incumbent | None = None) -> None:
        self._problem, self.incumbent, self.nearest = problem, incumbent, Nearest()

    @property
    def seconds(self) -> float:
        """Seconds of the incumbent, infinite without one."""
        return math.inf if self.incumbent is None else self.incumbent.seconds

    def offer(self, bound: CandidateBound, problem: PlacementProblem, placed: FoundPlacement) -> None:
        """Price a placement; keep it if best, mark the candidate solved if its bound is met."""
        self.take(bound, problem.strategy, problem.devices(placed.positions))

    def take(self, bound: CandidateBound, strategy: Strategy, devices: Ints) -> float:
        """Price a strategy on devices (pp, pipelines, width), and keep it as ``offer`` does; returns its seconds."""
        if violations(self._problem, strategy, devices):
            return math.inf
        seconds = float(step_time(self._problem, strategy, devices).total)
        plan = Incumbent(strategy=strategy, devices=devices, seconds=seconds)
        self.nearest.add(plan)
        if seconds < self.seconds:
            self.incumbent = plan
        if seconds - bound.lower_bound <= SOLVED * seconds:
            bound.state = State.SOLVED
        return seconds

    def settle(self) -> None:
        """
        Change the incumbent where it costs nothing: to sequence parallelism, and to the order of the devices.

        Launchers place workers in the order of the devices. What sequence parallelism takes off the traffic between a
        layer's parts has no price, so a plan without it may have the same price: 1 to 13 % more in measured steps.
        """
        if self.incumbent is None:
            return
        candidate = self.incumbent.strategy.candidate
        alike = candidate.changed(sequence_parallel=True)
        if not candidate.sequence_parallel and alike in self._problem.candidates:
            self._exchange(replace(self.incumbent.strategy, candidate=alike), self.incumbent.devices)
        devices = self.incumbent.devices
        self._exchange(self.incumbent.strategy, np.sort(devices, axis=None).reshape(devices.shape))

    def _exchange(self, strategy: Strategy, devices: Ints) -> None:
        """Keep a plan that takes no longer than the incumbent."""
        if not violations(self._problem, strategy, devices):
            seconds = float(step_time(self._problem, strategy, devices).total)
            if seconds <= self.seconds:
                self.incumbent = Incumbent(strategy=strategy, devices=devices, seconds=seconds)


ABOVE = 1 + 1e-9
"""Limit of a bound as a multiple of the incumbent, beyond the allowance for rounding that is taken off."""


class Stage(Enum):
    """Where a candidate stands, named by the refinement that is next."""

    DIVIDE = 2
    IMPROVE = 3
    PLACE = 4
    COVER = 5
    BRANCH = 6
    DONE = 7


class Priority(IntEnum):
    """Classes of candidates, those whose turn comes first before the others."""

    CLOSED_FORM = 0
    ORDER_PRICED = 1
    DIVIDED = 2
    BRANCHING = 3


DIVES = 16
"""Branchings of a tree before others, as long as it has a division that is quicker than the best plan: a quarter of a
second or two. The division may fit no memory."""

_OF_STAGE = {Stage.DIVIDE: Priority.ORDER_PRICED, Stage.BRANCH: Priority.BRANCHING}


@dataclass(slots=True)
class Standing:
    """
    What the next refinements of a candidate begin with: a division to improve or place, cases, branches.

    ``divide`` raises the bound to that of a division, and returns whether another refinement is left; ``by_order`` is
    whether it prices an order, ``by_class`` whether devices are of several types, ``waits`` whether placements wait for
    the divisions of orders, which are the faster plans there, ``counted`` whether layers have been counted,
    and ``shared`` whether the bound is that of a candidate that dominates. ``unbranched`` is the limit in seconds
    within which the devices of an order have too many options to branch on; None where they have not.
    ``brief`` is whether the bound of an order left out what takes long. ``uncooled`` is a division to anneal from where
    an order has no branches. ``dives`` are branchings left of a tree that go before others for the sake of its
    division.
    """

    divide: Callable[[CandidateBound, "Standing"], bool]
    by_order: bool
    by_class: bool = False
    waits: bool = False
    counted: bool = False
    shared: bool = False
    stage: Stage = Stage.DIVIDE
    draft: Partition | None = None
    division: Partition | None = None
    covering: CoverSearch | None = None
    branching: Branching | None = None
    unbranched: float | None = None
    brief: bool = False
    uncooled: Division | None = None
    dives: int = DIVES

    def advance(self) -> bool:
        """Go on to the next refinement that has something to begin with; returns whether there is one."""
        if self.draft is not None:
            self.stage = Stage.IMPROVE
        elif self.division is not None:
            self.stage = Stage.PLACE
        elif self.covering is not None:
            self.stage = Stage.COVER
        else:
            left = self.branching, self.unbranched, self.uncooled
            self.stage = Stage.BRANCH if self.brief or any(each is not None for each in left) else Stage.DONE
        return self.stage is not Stage.DONE

    @property
    def found_seconds(self) -> float:
        """Seconds of the division that is to be improved or placed."""
        found = self.draft or self.division
        return math.inf if found is None else found.seconds

    def promises(self, seconds: float) -> bool:
        """Whether a tree is to be branched on since it has a division that takes less than so many seconds."""
        if self.stage is not Stage.BRANCH or self.branching is None or self.dives <= 0:
            return False
        return self.branching.incumbent[0] < seconds


def infeasible(bound: CandidateBound, found: Evaluation) -> bool:
    """Note that nothing fits, and what proves it; there is no further refinement."""
    bound.state, bound.lower_bound = State.INFEASIBLE, math.inf
    bound.source, bound.witness = found.source, found.witness
    return False


def placing(problem: PlanningProblem, candidate: Candidate, found: Partition) -> PlacementProblem:
    """The placement of a division."""
    return placement_problem(problem, Strategy(candidate=candidate, division=found.division))


def turn(bound: CandidateBound, at: Standing, best: float) -> tuple[Priority, float]:
    """Class of a candidate, and its key in there; divided ones, and trees that promise a plan, by their divisions."""
    waits = at.waits and at.stage in (Stage.PLACE, Stage.COVER)
    if bound.source is Source.BALANCE or not (at.by_order or waits):
        return Priority.CLOSED_FORM, bound.lower_bound
    if at.promises(best) and at.branching is not None:
        return Priority.DIVIDED, at.branching.incumbent[0]
    shared = at.shared and at.stage is Stage.DIVIDE
    priority = Priority.BRANCHING if shared else _OF_STAGE.get(at.stage, Priority.DIVIDED)
    return priority, at.found_seconds if priority is Priority.DIVIDED else bound.lower_bound
