"""
When a search ends: at an interrupt, a small gap, or a limit of seconds or of work; and what it tells of itself.

A search asks for the reason between two refinements. A long refinement asks the stop itself, which knows the interrupt
and the time alone. A part of a search has a stop of its own, ``within`` the one of the whole.

Compiled loops release the interpreter but cannot ask it
whether to stop. They read a flag (1,) between two moves; the thread that waits for them asks every ``LOOK_S`` seconds
and raises it. What they have found so far is their result.

At Ctrl-C or a request to terminate the search finishes what it is doing and returns its best plan with its bound. An
exception raised in the middle of a compiled call would lose both. A second signal, or time, cuts short what does not
end by itself (``taut.solver.signals``), and outside the main thread nothing is changed. Of nested blocks every one is
told.

numba compiles a loop when it is first called and keeps the code for later processes, so a first run takes up to
two minutes longer than the next. A time limit is one of work: the watch stands still from the start to the end of every
compilation, whatever thread it runs in. Loading kept code is work.

A search tells where it stands in one record, and keeps the history of these records. A long search changes its bound
thousands of times. Of more than ``MOST`` moments the history drops every second one, whatever the clock says, so that
two runs of the same work keep the same moments.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba.core import event

from taut.data.arrays import Flags
from taut.solver.result import CandidateBound, Limits, StoppedBy, relative_gap
from taut.solver.signals import listening, search_began, was_interrupted

COMPILING = "numba:compile"
_EVENTS: Any = event
"""numba's events, which have no types."""


class Stopwatch(event.Listener):
    """
    A watch that runs while it is entered as a context.

    Examples
    --------
    >>> with Stopwatch() as watch:
    ...     watch.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._excluded, self._since = 0.0, 0.0
        self._began = perf_counter()

    def __enter__(self) -> "Stopwatch":
        """Begin to count."""
        _EVENTS.register(COMPILING, self)
        self._began = perf_counter()
        return self

    def __exit__(self, *raised: object) -> None:
        """Hear of no further compilations."""
        _EVENTS.unregister(COMPILING, self)

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, without those of compilations."""
        with self._lock:
            now = self._since if self._running else perf_counter()
            return now - self._began - self._excluded

    def on_start(self, started: Any) -> None:
        """Stand still; loops that a loop calls are compiled within its compilation."""
        with self._lock:
            outermost, self._running = self._running == 0, self._running + 1
            self._since = perf_counter() if outermost else self._since

    def on_end(self, ended: Any) -> None:
        """Go on where no compilation is left."""
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._excluded += perf_counter() - self._since


class _First(event.Listener):
    """Calls a function when the first loop is compiled."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._heard = act, False

    def on_start(self, started: Any) -> None:
        """Call it at the first time alone."""
        if not self._heard:
            self._heard = True
            self._act()

    def on_end(self, ended: Any) -> None:
        """Do nothing."""


@contextmanager
def heard_at_compilation(act: Callable[[], None]) -> Iterator[None]:
    """Call a function once, before the first loop that is compiled within the context; kept code does not count."""
    listener = _First(act)
    _EVENTS.register(COMPILING, listener)
    try:
        yield
    finally:
        _EVENTS.unregister(COMPILING, listener)


@contextmanager
def interrupt_requested() -> Iterator[Callable[[], bool]]:
    """Inside the block, the yielded function tells whether a signal came to the block or to one around it."""
    asked = threading.Event()
    if was_interrupted():
        asked.set()
    search_began()
    with listening(asked, asked.is_set):
        yield asked.is_set


LOOK_S = 0.1
"""Seconds between two questions: a tenth of the shortest limit that is of use."""

Stopping = Callable[[], bool]
"""Whether work is to end now."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def never() -> bool:
    """Answer that work goes on."""
    return False


def unraised() -> Flags:
    """A flag (1,) that nobody raises, for work outside of ``run_in_threads``."""
    return np.zeros(1, dtype=np.bool_)


def run_in_threads(
    work: Callable[[Item, Flags], Result], items: Iterable[Item], *, workers: int, stopping: Stopping = never
) -> list[Result]:
    """
    Results of a function on every item and a flag, in order, by ``workers`` threads; ``stopping`` raises the flag.

    Examples
    --------
    >>> run_in_threads(lambda item, stop: item + int(stop[0]), [1, 2], workers=2)
    [1, 2]
    """
    flag = unraised()
    with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
        futures = [pool.submit(work, item, flag) for item in items]
        running = set(futures)
        try:
            while running:
                running = wait(running, timeout=LOOK_S).not_done
                flag[0] |= stopping()
        finally:
            flag[0] = True
    return [future.result() for future in futures]


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


class EndedError(Exception):
    """Raised by a listener to end a search of candidates, which returns what it has as at Ctrl-C."""


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
