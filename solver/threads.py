"""
Compiled work in threads, which a time limit or Ctrl-C ends.

Compiled loops release the interpreter but cannot ask it whether to stop. They read a flag (1,) between two moves; the
thread that waits for them asks every ``LOOK_S`` seconds and raises it. What they have found so far is their result.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from taut.data.arrays import Flags

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
    Call a function on every item, several at a time.

    ``work``: called with an item and the flag; it ends soon after the flag is raised; ``workers``: threads; at least
    one is used; ``stopping``: asked again and again while threads run; once it is true the flag stays raised. Returns
    results in the order of the items.

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
