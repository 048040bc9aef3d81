"""
A plan and the best one at one point of the prices: the search runs again, with the plan as its first incumbent.

Its bound holds for the problem at these prices, however early it was stopped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from taut.data.arrays import Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.sensitivity.terms import at_prices
from taut.solver.certificate.devices import devices_of
from taut.solver.certificate.document import PlanDocument, problem_of, strategy_of
from taut.solver.result import Limits
from taut.solver.search.search import search
from taut.solver.simple_plans import priced

GAP = 1e-4
"""Gap at which a search stops: a hundredth of a per cent, a fifth of what the least published spread of runs is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    Seconds of the plan, the least proven and found ones, and whose these are, at factors of the terms.

    ``seconds`` are infinite where the plan does not fit, ``bound`` 0 where nothing is proven.
    """

    links: float
    memory: float
    imbalance: float
    seconds: float
    bound: float
    best: float
    candidate: str


@dataclass
class Points:
    """
    The points of a plan that were asked for, each searched once.

    Parameters
    ----------
    problem, strategy, devices
        What is planned, and the plan.
    time_limit
        Seconds of a search.
    tell
        Called with what is searched next.
    """

    problem: PlanningProblem
    strategy: Strategy
    devices: Ints
    time_limit: float | None = None
    tell: Callable[[str], None] | None = None
    known: dict[tuple[float, float, float], Point] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: PlanDocument, source: str, time_limit: float | None, tell: Callable[[str], None] | None = None
    ) -> "Points":
        """The points of a plan's document."""
        strategy, devices = strategy_of(plan.strategy, source), devices_of(plan, source)
        return cls(problem_of(plan, source), strategy, devices, time_limit, tell)

    def at(self, links: float = 1.0, memory: float = 1.0, imbalance: float = 1.0) -> Point:
        """The point at these factors."""
        key = (links, memory, imbalance)
        if key not in self.known:
            if self.tell is not None:
                uneven = f", {imbalance:.4g} times the imbalance" if imbalance != 1.0 else ""
                self.tell(f"searching with links {links:.4g} times as slow, {memory:.4g} times the memory{uneven}")
            self.known[key] = self._searched(links, memory, imbalance)
        return self.known[key]

    def _searched(self, links: float, memory: float, imbalance: float) -> Point:
        problem = at_prices(self.problem, links=links, memory=memory, imbalance=imbalance)
        own = priced(problem, self.strategy, self.devices)
        limits = Limits(time_limit=self.time_limit, gap=GAP)
        found = search(problem, limits, incumbent=own)
        best = found.incumbent
        return Point(
            links=links,
            memory=memory,
            imbalance=imbalance,
            seconds=math.inf if own is None else own.seconds,
            bound=max(found.lower_bound, 0.0),
            best=math.inf if best is None else best.seconds,
            candidate="" if best is None else str(best.strategy.candidate),
        )
