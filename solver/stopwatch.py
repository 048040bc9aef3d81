"""
Seconds of work, without those in which numba compiles loops.

numba compiles a loop when it is first called and keeps the code for later processes, so a first run takes some 10 s
longer than the next. A time limit is one of work: the watch stands still from the start to the end of every
compilation, whatever thread it runs in. Loading kept code is work.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event

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
