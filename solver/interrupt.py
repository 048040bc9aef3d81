"""
Ctrl-C as a request: the search finishes what it is doing and returns its best plan with its bound.

An exception raised in the middle of a compiled call would lose both. A second Ctrl-C raises ``KeyboardInterrupt``
as usual, and outside the main thread nothing is changed. Of nested blocks every one is told.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_open: list[threading.Event] = []
"""One event for each block that the main thread is in."""


@contextmanager
def interrupt_requested() -> Iterator[Callable[[], bool]]:
    """Inside the block, the yielded function tells whether Ctrl-C was pressed."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        for event in _open:
            event.set()

    _open.append(asked)
    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
        _open.remove(asked)
