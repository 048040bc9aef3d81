"""Progress on stderr: a live line on a terminal, at most one line a second elsewhere, nothing when quiet."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import heard_at_compilation
from taut.solver.result import relative_gap
from taut.words import percent

COMPILING = "compiling inner loops, some 10 s to a minute in all; later runs load them"
SECONDS_BETWEEN = 1.0
SECONDS_BETWEEN_LIVE = 0.1


@contextmanager
def live_lines(quiet: bool) -> Iterator[Callable[[str], None]]:
    """
    A way to say how far one is, for the duration of the work.

    ``quiet``: whether nothing is to be printed.
    """
    live, stream = sys.stderr.isatty(), sys.stderr
    last = time.monotonic()

    def say(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if quiet or now - last < (SECONDS_BETWEEN_LIVE if live else SECONDS_BETWEEN):
            return
        last = now
        print(f"\r\x1b[2K{line}" if live else line, end="" if live else "\n", file=stream, flush=True)

    def announce() -> None:
        if not quiet:
            print(COMPILING, file=stream, flush=True)

    try:
        with heard_at_compilation(announce):
            yield say
    finally:
        if live and not quiet:
            print("\r\x1b[2K", end="", file=stream, flush=True)


@contextmanager
def progress_lines(quiet: bool) -> Iterator[Listener | None]:
    """
    A progress callback for the duration of a search, or None if quiet.

    ``quiet``: whether nothing is to be printed.
    """
    if quiet:
        yield None
        return
    with live_lines(quiet) as say:

        def report(at: Progress) -> None:
            plan = "no plan yet" if math.isinf(at.incumbent) else f"plan {at.incumbent:.6g}"
            proven = "no bound yet" if math.isinf(at.lower_bound) else f"lower bound {at.lower_bound:.6g}"
            gap = relative_gap(at.incumbent, at.lower_bound)
            say(f"{at.wall_s:7.1f}s  {plan}  {proven}  {'' if gap is None else f'gap {percent(gap)}  '}{at.doing}")

        yield report
