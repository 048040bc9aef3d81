"""
Ctrl-C or a request to terminate: the search finishes what it is doing and returns its best plan with its bound.

An exception raised in the middle of a compiled call would lose both. A second signal raises ``KeyboardInterrupt``, and
outside the main thread nothing is changed. Of nested blocks every one is told.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what ``kill``, ``timeout`` and batch systems send before they end a process."""
_open: list[threading.Event] = []
"""One event for each block that the main thread is in."""


@contextmanager
def interrupt_requested() -> Iterator[Callable[[], bool]]:
    """Inside the block, the yielded function tells whether one of the signals came."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        for event in _open:
            event.set()

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    _open.append(asked)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            # A handler that was not set from Python has no value here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _open.remove(asked)
