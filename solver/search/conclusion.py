"""
What a search ends with: states of candidates, and the status, that follow from its plan and bounds.

At any moment the global bound = min over
candidates that are not solved of their lower bounds; with an incumbent, its seconds if less.
"""

import math
from dataclasses import fields
from typing import Any

import numpy as np

from taut.solver.result import (
    OPTIMALITY_GAP,
    CandidateBound,
    Incumbent,
    SearchResult,
    State,
    Status,
    StoppedBy,
    relative_gap,
)


def concluded(
    bounds: list[CandidateBound],
    incumbent: Incumbent | None,
    lower_bound: float,
    stopped: StoppedBy | None,
    **more: Any,
) -> SearchResult:
    """The result of a search that has ended, ``stopped`` for a reason or None; bounds above the plan are pruned."""
    seconds = math.inf if incumbent is None else incumbent.seconds
    for bound in bounds:
        if bound.state is State.OPEN and bound.lower_bound >= seconds:
            bound.state = State.PRUNED
    if incumbent is None:
        done = stopped is None and all(bound.state is State.INFEASIBLE for bound in bounds)
        status = Status.INFEASIBLE if done else Status.UNKNOWN
    else:
        gap = relative_gap(incumbent.seconds, lower_bound)
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return SearchResult(
        status=status,
        stopped_by=stopped or StoppedBy.EXHAUSTED,
        incumbent=incumbent,
        lower_bound=lower_bound,
        bounds=sorted(bounds, key=lambda bound: bound.candidate),
        **more,
    )


def with_incumbent(result: SearchResult, incumbent: Incumbent) -> SearchResult:
    """The result with a better plan, which refutes no fewer candidates."""
    known = {each.name: getattr(result, each.name) for each in fields(SearchResult)}
    more = {name: known[name] for name in known.keys() - {"status", "stopped_by", "incumbent", "lower_bound", "bounds"}}
    least = min(result.lower_bound, incumbent.seconds)
    return concluded(result.bounds, incumbent, least, result.stopped_by, **more)


class Bounds:
    """The bounds so far, by place of the candidate, for ``count`` of them at first; others may join."""

    def __init__(self, count: int) -> None:
        self.each: list[CandidateBound] = []
        self._unsolved = np.full(count, np.inf)

    def make_room(self, more: int) -> None:
        """Room for so many further candidates."""
        self._unsolved = np.append(self._unsolved, np.full(more, np.inf))

    def add(self, bound: CandidateBound) -> int:
        """Take in a candidate with its first bound; returns its place."""
        self.each.append(bound)
        self.note(len(self.each) - 1)
        return len(self.each) - 1

    def note(self, index: int) -> None:
        """Look again at the bound of a candidate, after it changed."""
        bound = self.each[index]
        self._unsolved[index] = bound.lower_bound if bound.state in (State.OPEN, State.PRUNED) else math.inf

    @property
    def least(self) -> float:
        """Least bound of a candidate that is not solved, infinite without one."""
        return float(self._unsolved.min(initial=math.inf))

    @property
    def left(self) -> list[int]:
        """Places of the open candidates."""
        return [index for index, bound in enumerate(self.each) if bound.state is State.OPEN]

    @property
    def all_infeasible(self) -> bool:
        """Whether no candidate has a plan that fits."""
        return all(bound.state is State.INFEASIBLE for bound in self.each)
