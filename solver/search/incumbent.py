"""The best plan of a search so far: every placement that is found is priced by the one evaluator and kept if best."""

import math

from taut.data.arrays import Ints
from taut.formulations.latency import step_time, violations
from taut.formulations.placement import PlacementProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.placement.result import FoundPlacement
from taut.solver.result import SOLVED, CandidateBound, Incumbent, State


class Best:
    """
    The incumbent of a search, if there is one.

    Every placement passes through here. The evaluator prices it, and a placement that breaks a rule is dropped. What
    found the placement, and at which price, does not matter.
    """

    def __init__(self, problem: PlanningProblem, incumbent: Incumbent | None = None) -> None:
        self._problem, self.incumbent = problem, incumbent

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
        if seconds < self.seconds:
            self.incumbent = Incumbent(strategy=strategy, devices=devices, seconds=seconds)
        if seconds - bound.lower_bound <= SOLVED * seconds:
            bound.state = State.SOLVED
        return seconds
