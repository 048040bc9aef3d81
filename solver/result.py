"""What a search returns: limits in, status, bounds by candidate and incumbent out."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from taut.data.arrays import Ints
from taut.formulations.schedules.plan_orders import GivenOrder
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy

OPTIMALITY_GAP = 1e-6
SOLVED = 1e-9
"""Relative difference up to which a bound equals a value; both are sums of floats."""


class Status(StrEnum):
    """What is known when the search stops."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class State(StrEnum):
    """What is known of one candidate."""

    INFEASIBLE = "infeasible"
    PRUNED = "pruned"
    SOLVED = "solved"
    OPEN = "open"


class Source(StrEnum):
    """The algorithm that proves a bound (``taut.solver.bounds.ladder``). Its name stands in the file format."""

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
    """Why a search ended."""

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


@dataclass(slots=True, kw_only=True)
class CandidateBound:
    """The best known bound of a candidate, its source, and the state that follows."""

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
class SearchResult:
    """
    Outcome of the branch and bound over candidates.

    ``orders`` are those that it added to the problem's space, ``relaxations`` the candidates' bounds in closed form,
    ``history`` the moments of ``taut.solver.branch_and_bound.progress``.
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

    @property
    def gap(self) -> float | None:
        """Relative gap of the step time; None without an incumbent."""
        return None if self.incumbent is None else relative_gap(self.incumbent.seconds, self.lower_bound)


def relative_gap(objective: float, bound: float) -> float | None:
    """(objective - bound) / |objective|; 0 if both are equal, None if it is undefined."""
    if objective == bound:
        return 0.0
    if not math.isfinite(bound) or not math.isfinite(objective) or objective == 0.0:
        return None
    return max((objective - bound) / abs(objective), 0.0)
