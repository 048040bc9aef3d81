"""Processes of this machine, as a ``concurrent.futures.Executor``: one thread each, and none outlives its parent."""

import os
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

GROWTH = int(1.5e9)
"""Bytes by which a process may grow before loky replaces it: a plan of 10,000 GPUs leaves some 400 MB of tables, and a
new process has to load the compiled loops anew."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ENVIRONMENT = {**dict.fromkeys(THREADS, "1"), "LOKY_MAX_MEMORY_LEAK_SIZE": str(GROWTH)}
"""Of a process: a task has one thread, and the processes share the cores."""
LOOK_S = 1.0
"""Seconds between two looks of a process whether its sweep is still there; none outlives one that was killed."""


def cores() -> int:
    """Cores that this process may use, as limits of containers have it."""
    from loky import cpu_count

    return int(cpu_count())


def _end_with(parent: int) -> None:
    """Let this process end when its parent does."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def local_executor(jobs: int) -> Iterator[Executor]:
    """Processes of this machine, which end with the block; what they do is given up where it ends in an error."""
    from loky import ProcessPoolExecutor

    from taut.solver.signals import was_interrupted

    pool = ProcessPoolExecutor(max_workers=jobs, env=ENVIRONMENT, initializer=_end_with, initargs=(os.getpid(),))
    with warnings.catch_warnings():
        # A process that has grown much is replaced between two points, which loses nothing.
        warnings.filterwarnings("ignore", "A worker was restarted", UserWarning)
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, kill_workers=True)
            raise
        # What still runs after a signal is of no use any more.
        pool.shutdown(wait=not was_interrupted(), kill_workers=was_interrupted())
