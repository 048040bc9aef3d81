"""
Progress on stderr: a live line on a terminal; elsewhere a line where what it tells has changed; nothing when quiet.

Lines are at least a second apart. What is told last is printed in any case.
"""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from taut.solver.branch_and_bound.stop import Listener, Progress, heard_at_compilation
from taut.solver.result import relative_gap
from taut.words import percent

COMPILING = "compiling inner loops, up to two minutes in all, beyond the limit; later runs load them"
SECONDS_BETWEEN = 1.0
SECONDS_BETWEEN_LIVE = 0.1


class Say(Protocol):
    """Called with a line, and with what the line tells where a part of it is beside the point, such as the time."""

    def __call__(self, line: str, told: str | None = None) -> None:
        """Say a line."""


@contextmanager
def live_lines(quiet: bool) -> Iterator[Say]:
    """A way to say how far one is, for the duration of the work, unless it is to be quiet."""
    live, stream = sys.stderr.isatty(), sys.stderr
    last, printed, waiting = time.monotonic(), "", ""

    def say(line: str, told: str | None = None) -> None:
        nonlocal last, printed, waiting
        told = line if told is None else told
        now, changed = time.monotonic(), live or told != printed
        waiting = line if changed else ""
        if quiet or not changed or now - last < (SECONDS_BETWEEN_LIVE if live else SECONDS_BETWEEN):
            return
        last, printed, waiting = now, told, ""
        print(f"\r\x1b[2K{line}" if live else line, end="" if live else "\n", file=stream, flush=True)

    def announce() -> None:
        if not quiet:
            print(COMPILING, file=stream, flush=True)

    try:
        with heard_at_compilation(announce):
            yield say
    finally:
        if not quiet and (live or waiting):
            print("\r\x1b[2K" if live else waiting, end="" if live else "\n", file=stream, flush=True)


@contextmanager
def progress_lines(quiet: bool) -> Iterator[Listener | None]:
    """A progress callback for the duration of a search, None if quiet; a line tells plan and bound."""
    if quiet:
        yield None
        return
    with live_lines(quiet) as say:

        def report(at: Progress) -> None:
            plan = "no plan yet" if math.isinf(at.incumbent) else f"plan {at.incumbent:.6g}"
            proven = "no bound yet" if math.isinf(at.lower_bound) else f"lower bound {at.lower_bound:.6g}"
            refuted = math.isinf(at.incumbent) and at.lower_bound == math.inf
            gap = None if refuted else relative_gap(at.incumbent, at.lower_bound)
            known = "no plan fits" if refuted else f"{plan}  {proven}"
            say(f"{at.wall_s:7.1f}s  {known}  {'' if gap is None else f'gap {percent(gap)}  '}{at.doing}", known)

        yield report
