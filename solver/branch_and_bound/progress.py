"""
What a search tells of itself: one record of where it stands, and the history of these records.

A long search changes its bound thousands of times. Of more than ``MOST`` moments the history drops every second one,
whatever the clock says, so that two runs of the same work keep the same moments.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taut.solver.result import CandidateBound

MOST = 400
"""Moments kept; a curve of 200 or more has no steps that the eye could tell from the whole."""


class Progress(NamedTuple):
    """
    Where a search stands.

    Seconds so far, value of the incumbent (infinite without one), lower bound (minus infinity without one), what was
    done last in words, and units of work so far. Incumbent and bound are in the unit of what is searched. The list of
    candidates with their bounds is the search's own, which changes; it is empty where a search shares none.
    """

    wall_s: float
    incumbent: float
    lower_bound: float
    doing: str
    work: int = 0
    candidates: Sequence[CandidateBound] = ()


Listener = Callable[[Progress], None]
"""Called with where a search stands, again and again."""


@dataclass(slots=True)
class History:
    """How the gap of one search closed: where it stood whenever the incumbent or the bound had changed."""

    moments: list[Progress] = field(default_factory=list)

    def note(self, moment: Progress) -> None:
        """Keep a moment if incumbent or bound differ from the last one's."""
        if self.moments and self.moments[-1][1:3] == moment[1:3]:
            return
        self.moments.append(moment)
        if len(self.moments) > MOST:
            # From the end, so that the last moment stays.
            self.moments = self.moments[::-1][::2][::-1]

    def as_dicts(self) -> tuple[dict[str, float | None], ...]:
        """The moments of a search of step times as plain JSON values, None for what is unknown."""
        return tuple(
            {
                "work": moment.work,
                "wall_s": moment.wall_s,
                "objective_s": moment.incumbent if math.isfinite(moment.incumbent) else None,
                "lower_bound_s": moment.lower_bound if math.isfinite(moment.lower_bound) else None,
            }
            for moment in self.moments
        )
