"""
Bounds of all candidates of a search, and the global one that follows from them at any moment.

Global bound = min over candidates that are not solved of their lower bounds; with an incumbent, its seconds if less.
"""

import math

import numpy as np

from taut.solver.result import CandidateBound, State


class Bounds:
    """
    The bounds so far, by place of the candidate.

    Parameters
    ----------
    count
        Candidates that the search begins with; others may join.
    """

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
