"""
How the gap of a search closed: incumbent and bound at every refinement that changed one of them.

A long search changes its bound thousands of times; of more than ``MOST`` moments every second one is dropped, all of
them the same whatever the clock says, so that two runs of the same work keep the same moments.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

MOST = 400
"""Moments kept; a curve of 200 or more has no steps that the eye could tell from the whole."""


class Moment(NamedTuple):
    """Refinements and seconds so far, and the incumbent (infinite without one) and global bound then, in seconds."""

    work: int
    wall_s: float
    objective_s: float
    lower_bound_s: float

    def as_dict(self) -> dict[str, float | None]:
        """The moment as plain JSON values, None for what is unknown."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


@dataclass(slots=True)
class History:
    """The moments of one search, in order."""

    moments: list[Moment] = field(default_factory=list)

    def note(self, moment: Moment) -> None:
        """Keep a moment if incumbent or bound differ from the last one's."""
        if self.moments and self.moments[-1][2:] == moment[2:]:
            return
        self.moments.append(moment)
        if len(self.moments) > MOST:
            # From the end, so that the last moment stays.
            self.moments = self.moments[::-1][::2][::-1]
