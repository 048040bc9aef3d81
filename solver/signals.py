"""
Ctrl-C, and what ``kill``, ``timeout`` and batch systems send before they end a process.

Blocks of the main thread listen, one within another. A command is the outermost block.

======  ==================================================================================================
signal  what it does
======  ==================================================================================================
first   ends a command that has begun no search; asks all open blocks to end, and allows them ``GRACE_S``
second  ends the work that runs in ``cut_short`` now; what this work has found so far is kept
third   ends the command, and drops what was found
======  ==================================================================================================

Work that runs in ``cut_short`` also ends ``GRACE_S`` after the first signal: an alarm raises ``KeyboardInterrupt`` in
it, whatever it does (compile a loop, solve a linear program, wait for threads). ``cut_short`` takes this exception,
and what stands behind the block goes on with the best plan and the bounds so far. Calls of LLVM end first: of an object
that is handed over there, an exception would leave two owners, who both free it. So do numba's registers of types,
which are filled once for each process.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_S, AGAIN_S = 1.5, 0.5
"""Seconds after a signal in which work may end by itself, and then between two alarms, one for each block of work."""
SOON_S = 0.02
"""Seconds between two looks whether a call that has to end has ended; those of LLVM take some tenths mostly."""
MOST_SIGNALS = 3
"""The signal that ends a command in any case."""
_open: list[threading.Event] = []
"""One event for each block that the main thread is in."""
_searches, _kept = threading.Event(), threading.Event()
"""Whether a search began since the command did, and whether work ended that has found something."""
_heard = 0
"""Signals since the outermost block was entered."""
_cuts = 0
"""Blocks of work that may be cut short, one within another, in which the main thread is."""


def _elsewhere() -> bool:
    return threading.current_thread() is not threading.main_thread()


def search_began() -> None:
    """Say that there may be something to keep from now on."""
    if not _elsewhere():
        _searches.set()


def was_interrupted() -> bool:
    """Whether a signal has asked a block that is open to end; other threads than the main one do not ask."""
    return not _elsewhere() and any(each.is_set() for each in _open)


def heard_again() -> bool:
    """Whether a second signal came to the outermost block that is open."""
    return _heard > 1


@contextmanager
def listening(asked: threading.Event, ends: Callable[[], bool]) -> Iterator[None]:
    """Hear signals, which set ``asked`` of all open blocks, or raise where work cannot be cut short and ``ends()``."""
    if _elsewhere():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        global _heard
        _heard += 1
        again = was_interrupted()
        ending = (again if _cuts else ends()) and not (again and _kept.is_set() and not _cuts)
        is_late = bool(_cuts) and _has_to_end(frame)
        if _heard >= MOST_SIGNALS or (ending and not is_late):
            raise KeyboardInterrupt
        for each in _open:
            each.set()
        if _cuts:
            _set_alarm(SOON_S if ending else GRACE_S)

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    _open.append(asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            # A handler that was not set from Python has no value here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _open.remove(asked)
        if not _open:
            _forget()


def _forget() -> None:
    """Begin anew, where no block is open."""
    global _heard
    _heard = 0
    _kept.clear()


@contextmanager
def interruptible_command() -> Iterator[None]:
    """The whole of a command: a signal ends it at once while no search has begun, and else asks all to end."""
    asked = threading.Event()
    _searches.clear()
    with listening(asked, lambda: asked.is_set() or not _searches.is_set()):
        yield


def _set_alarm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)


def _has_to_end(frame: FrameType | None) -> bool:
    """Whether a frame is in a call of LLVM, or where numba fills its registers of types."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("llvmlite") or (module.startswith("numba.") and frame.f_code.co_name == "refresh"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def cut_short() -> Iterator[None]:
    """Work that a first signal ends after ``GRACE_S``, a second at once; ``was_interrupted`` tells who listens."""
    global _cuts
    was_cut = False
    if _elsewhere() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def cut(number: int, frame: FrameType | None) -> None:
        nonlocal was_cut
        if _cuts and _has_to_end(frame):
            _set_alarm(SOON_S)
        elif _cuts:
            was_cut = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, cut)
    if was_interrupted() and not _cuts:
        _set_alarm(GRACE_S)
    _cuts += 1
    try:
        yield
    except KeyboardInterrupt:
        if not was_interrupted() or _heard >= MOST_SIGNALS:
            raise
    except Exception:
        # A callback from compiled code swallows the interrupt, and what called it fails later for lack of its result.
        if not (was_cut or (was_interrupted() and _heard > 1)):
            raise
    finally:
        _cuts -= 1
        _kept.set()
        if not _cuts:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
