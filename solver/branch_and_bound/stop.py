"""
When a search ends: at an interrupt, a gap that is small enough, or a limit of seconds or of work.

A search asks for the reason between two refinements. A long refinement asks the stop itself, which knows the interrupt
and the time alone. A part of a search has a stop of its own, ``within`` the one of the whole.
"""

import math
from contextlib import ExitStack
from dataclasses import replace

from taut.solver.interrupt import interrupt_requested
from taut.solver.result import Limits, StoppedBy, relative_gap
from taut.solver.stopwatch import Stopwatch
from taut.solver.threads import never


class Stop:
    """
    When one search ends. Its clock runs while it is entered as a context, and Ctrl-C is heard there.

    ``limits``: of time, work and gap; to compile loops takes no time of the limit.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._watch, self._interrupted = limits, Stopwatch(), never
        self._entered = ExitStack()

    def __enter__(self) -> "Stop":
        """Start the clock, and listen."""
        self._entered.enter_context(self._watch)
        self._interrupted = self._entered.enter_context(interrupt_requested())
        return self

    def __exit__(self, *raised: object) -> None:
        """Listen no longer; the clock can still be read."""
        self._entered.close()

    def __call__(self) -> bool:
        """Whether the interrupt or the time ends the search now."""
        return self._interrupted() or self.left <= 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self._watch.seconds

    @property
    def left(self) -> float:
        """Seconds left, infinite without a limit."""
        limit = self._limits.time_limit
        return math.inf if limit is None else limit - self._watch.seconds

    def share(self, part: float) -> "Stop":
        """The stop of what may take so large a part of the time limit, from the beginning on."""
        limit = self._limits.time_limit
        return self._until(math.inf if limit is None else part * limit)

    def within(self, seconds: float) -> "Stop":
        """The stop of what may take so many seconds from now on."""
        return self._until(self._watch.seconds + min(seconds, self.left))

    def _until(self, end: float) -> "Stop":
        part = Stop(replace(self._limits, time_limit=end if math.isfinite(end) else None))
        part._watch, part._interrupted = self._watch, self._interrupted
        return part

    def reason(self, incumbent: float, lower_bound: float, work: int) -> StoppedBy | None:
        """Why to stop at an incumbent (infinite without one), a lower bound, and so much work; None to go on."""
        if self._interrupted():
            return StoppedBy.INTERRUPT
        gap = relative_gap(incumbent, lower_bound) if math.isfinite(incumbent) else None
        if gap is not None and gap <= self._limits.gap:
            return StoppedBy.GAP
        if self.left <= 0.0:
            return StoppedBy.TIME
        over = self._limits.work_limit is not None and work >= self._limits.work_limit
        return StoppedBy.WORK if over else None
