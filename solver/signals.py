"""
Ctrl-C, and what ``kill``, ``timeout`` and batch systems send before they end a process.

Blocks of the main thread listen, one within another. The first signal asks all of them to end with what they have, a
second one raises ``KeyboardInterrupt``. A command is the outermost block; before its first search there is nothing to
keep, and a signal ends it at once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_S = 2.0
"""Seconds after a signal in which work that is cut short may end by itself."""
_open: list[threading.Event] = []
"""One event for each block that the main thread is in."""
_searches, _cut = threading.Event(), threading.Event()
"""Whether a search began since the command did, and whether work is cut short after a signal."""


def _elsewhere() -> bool:
    return threading.current_thread() is not threading.main_thread()


def search_began() -> None:
    """Say that there may be something to keep from now on."""
    if not _elsewhere():
        _searches.set()


def was_interrupted() -> bool:
    """Whether a signal has asked a block that is open to end; other threads than the main one do not ask."""
    return not _elsewhere() and any(each.is_set() for each in _open)


@contextmanager
def listening(asked: threading.Event, ends: Callable[[], bool]) -> Iterator[None]:
    """
    Hear the signals within the block.

    ``asked``: set by a signal, with those of all open blocks; ``ends``: whether a signal raises ``KeyboardInterrupt``.
    """
    if _elsewhere():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if ends():
            raise KeyboardInterrupt
        for each in _open:
            each.set()
        if _cut.is_set():
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    _open.append(asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            # A handler that was not set from Python has no value here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _open.remove(asked)


@contextmanager
def interruptible_command() -> Iterator[None]:
    """The whole of a command: a signal ends it at once while no search has begun, and else asks all to end."""
    asked = threading.Event()
    _searches.clear()
    with listening(asked, lambda: asked.is_set() or not _searches.is_set()):
        yield


@contextmanager
def cut_short() -> Iterator[None]:
    """Within the block what runs is interrupted some seconds after a signal, by ``KeyboardInterrupt``."""
    if _elsewhere() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def cut(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, cut)
    _cut.set()
    try:
        yield
    finally:
        _cut.clear()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
