"""Progress on stderr: a live line on a terminal, at most one line a second elsewhere, nothing when quiet."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from taut.report import percent
from taut.solver.result import Progress, relative_gap

SECONDS_BETWEEN = 1.0
SECONDS_BETWEEN_LIVE = 0.1


@contextmanager
def progress_lines(quiet: bool) -> Iterator[Progress | None]:
    """
    A progress callback for the duration of a search, or None if quiet.

    Parameters
    ----------
    quiet
        Whether nothing is to be printed.
    """
    if quiet:
        yield None
        return
    live, stream = sys.stderr.isatty(), sys.stderr
    last = time.monotonic()

    def report(elapsed: float, incumbent: float, bound: float, doing: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (SECONDS_BETWEEN_LIVE if live else SECONDS_BETWEEN):
            return
        last = now
        gap = percent(relative_gap(incumbent, bound))
        line = f"{elapsed:7.1f}s  incumbent {incumbent:.6g}  bound {bound:.6g}  gap {gap}  {doing}"
        print(f"\r\x1b[2K{line}" if live else line, end="" if live else "\n", file=stream, flush=True)

    try:
        yield report
    finally:
        if live:
            print("\r\x1b[2K", end="", file=stream, flush=True)
