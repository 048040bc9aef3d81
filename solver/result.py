"""What a search takes and returns: its limits; its status, the bounds of all candidates, and the incumbent."""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from taut.data.arrays import Ints
from taut.formulations.schedules.orders import GivenOrder
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy

OPTIMALITY_GAP = 1e-6
SOLVED = 1e-9
"""Relative difference up to which a bound equals a value; both are sums of floats."""


class Status(StrEnum):
    """
    What is known when a search stops.

    ``optimal``: the gap is at most ``OPTIMALITY_GAP``. ``feasible``: there is a plan, and the gap is larger.
    ``infeasible``: it is proven that no plan fits. ``unknown``: neither a plan nor such a proof was found.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class State(StrEnum):
    """
    What is known of one candidate, from its bound and the incumbent.

    ``infeasible``: no division fits the memory. ``pruned``: the bound is at least the incumbent's seconds. ``solved``:
    the bound equals the best plan of the candidate. ``open``: the bound is below the incumbent's seconds.
    """

    INFEASIBLE = "infeasible"
    PRUNED = "pruned"
    SOLVED = "solved"
    OPEN = "open"


class Source(StrEnum):
    """The algorithm that proves a bound (``taut.solver.ladder.ladder``). Its name stands in the file format."""

    BALANCE = "balance"
    RELAXATION = "relaxation"
    MEMORY = "memory"
    PARTITION = "partition"
    ORDER_MEMORY = "order-memory"
    ORDER = "order"
    EVERY_PLACEMENT = "every-placement"
    NODE_SLOTS = "node-slots"
    PLACEMENT = "placement"
    NODE_SETS = "node-sets"
    COVER = "cover"


class StoppedBy(StrEnum):
    """Why a search ended: a limit, an interrupt, a gap that is small enough, or no candidate left to refine."""

    GAP = "gap"
    TIME = "time"
    WORK = "work"
    INTERRUPT = "interrupt"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    When to stop: seconds, deterministic work units, or a gap that is small enough.

    A unit of work is one refinement of one candidate. ``workers`` threads anneal at the same time; the plan does not
    depend on their number.
    """

    time_limit: float | None = None
    work_limit: int | None = None
    gap: float = OPTIMALITY_GAP
    seed: int = 0
    workers: int = 2

    def shared(self, seconds: float, searches: int) -> "Limits":
        """The limits of the next of so many searches, which share the time that is left after so many seconds."""
        limit = None if self.time_limit is None else max(self.time_limit - seconds, 0.0) / searches
        return replace(self, time_limit=limit)


@dataclass(slots=True, kw_only=True)
class CandidateBound:
    """The best known bound of a candidate in seconds, the source and witness that prove it, and the state."""

    candidate: Candidate
    lower_bound: float
    source: Source
    state: State = State.OPEN
    witness: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best plan found: strategy, device of every worker (pp, dp, tp), seconds."""

    strategy: Strategy
    devices: Ints
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NearTie:
    """The best plan under a restriction (``taut.formulations.plainer``), its larger bounds, why its search ended."""

    restriction: str
    incumbent: Incumbent
    lower_bound: float
    bounds: list[CandidateBound]
    stopped_by: StoppedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """
    Outcome of the branch and bound over candidates.

    ``bounds`` has an entry for every candidate. ``orders`` were added to the problem's space during the search.
    ``relaxations`` are the bounds ``relaxation`` that were computed. ``history`` lists the changes of incumbent and
    bound (``taut.solver.branch_and_bound.stop``). ``work`` counts refinements. ``nearest`` are the fastest plans that
    were found of a few candidates, by ascending seconds: none may take less than the bound of its candidate.
    """

    status: Status
    stopped_by: StoppedBy
    incumbent: Incumbent | None
    lower_bound: float
    bounds: list[CandidateBound]
    work: int
    wall_s: float
    orders: tuple[GivenOrder, ...] = ()
    relaxations: dict[Candidate, float] = field(default_factory=dict)
    history: tuple[dict[str, float | None], ...] = ()
    nearest: tuple[Incumbent, ...] = ()

    @property
    def gap(self) -> float | None:
        """Relative gap of the step time; None without an incumbent."""
        return None if self.incumbent is None else relative_gap(self.incumbent.seconds, self.lower_bound)


NEAREST = 5
"""Candidates whose fastest plans are kept: that of the plan, and four that a check prices in some tens of
milliseconds."""


class Nearest:
    """The fastest plans of a few candidates."""

    def __init__(self) -> None:
        self._plans: dict[Candidate, Incumbent] = {}

    def add(self, plan: Incumbent) -> None:
        """Keep a plan if it is the fastest of its candidate, and that is one of the fastest."""
        candidate, known = plan.strategy.candidate, self._plans
        if candidate not in known or plan.seconds < known[candidate].seconds:
            known[candidate] = plan
            if len(known) > NEAREST:
                del known[max(known, key=lambda one: known[one].seconds)]

    @property
    def plans(self) -> tuple[Incumbent, ...]:
        """The plans by ascending seconds."""
        return tuple(sorted(self._plans.values(), key=lambda plan: plan.seconds))


def relative_gap(objective: float, bound: float) -> float | None:
    """(objective - bound) / |objective|; 0 if both are equal, None if it is undefined."""
    if objective == bound:
        return 0.0
    if not math.isfinite(bound) or not math.isfinite(objective) or objective == 0.0:
        return None
    return max((objective - bound) / abs(objective), 0.0)
