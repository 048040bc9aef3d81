"""
Seconds of work, without those in which numba compiles loops.

numba compiles a loop when it is first called and keeps the code for later processes, so a first run takes some 20 s
longer than the next. A time limit is one of work: the watch stands still from the start to the end of every
compilation, whatever thread it runs in, and says what is compiled. Loading kept code is work.
"""

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from numba.core import event

COMPILING = "numba:compile"
_EVENTS: Any = event
"""numba's events, which have no types."""


class Stopwatch(event.Listener):
    """
    A watch that runs while it is entered as a context.

    Parameters
    ----------
    told
        Called with words on every loop that is compiled, in the thread that compiles it.

    Examples
    --------
    >>> with Stopwatch() as watch:
    ...     watch.seconds < 1.0
    True
    """

    def __init__(self, told: Callable[[str], None] | None = None) -> None:
        self._told, self._lock = told, threading.Lock()
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
        loop = started.data["dispatcher"].py_func
        # numba's own functions, which loops call, say nothing to a reader.
        if self._told is not None and not loop.__module__.startswith("numba."):
            self._told(f"compiling {loop.__module__}.{loop.__name__}, once for this and later runs")

    def on_end(self, ended: Any) -> None:
        """Go on where no compilation is left."""
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._excluded += perf_counter() - self._since
