"""
Where the points of a sweep run: processes of this machine, a cluster of Dask, or processes of MPI.

Each is a ``concurrent.futures.Executor``; what they need beyond it is imported when it is asked for. Before the first
plan one worker of every machine compiles the loops, and the others load what it compiled.
"""

import os
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from taut.data.suggest import one_of
from taut.errors import DataError, FieldError
from taut.sweeping.row import warm

LOCAL = "local"
NAMES = (LOCAL, "dask", "mpi")
GROWTH = int(1.5e9)
"""Bytes by which a process may grow before loky replaces it: a plan of 10,000 GPUs leaves some 400 MB of tables, and a
new process has to load the compiled loops anew."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ENVIRONMENT = {**dict.fromkeys(THREADS, "1"), "LOKY_MAX_MEMORY_LEAK_SIZE": str(GROWTH)}
"""Of a process: a task has one thread, and the processes share the cores."""
LOOK_S = 1.0
"""Seconds between two looks of a process whether its sweep is still there; none outlives one that was killed."""
CONNECT_S = 20
"""Seconds in which a scheduler answers."""


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

    pool = ProcessPoolExecutor(max_workers=jobs, env=ENVIRONMENT, initializer=_end_with, initargs=(os.getpid(),))
    with warnings.catch_warnings():
        # A process that has grown much is replaced between two points, which loses nothing.
        warnings.filterwarnings("ignore", "A worker was restarted", UserWarning)
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, kill_workers=True)
            raise
        pool.shutdown(wait=True)


@contextmanager
def named_executor(name: str, scheduler: str | None = None, *, plans: bool = True) -> Iterator[Executor | None]:
    """
    The executor that a command names, for the duration of a sweep; None for the processes of this machine.

    Parameters
    ----------
    name
        ``local``, ``dask`` or ``mpi``.
    scheduler
        Address of Dask's scheduler.
    plans
        Whether there are plans to make, for which loops are compiled first.

    Raises
    ------
    DataError
        If the name is unknown, Dask has no address or none that answers, or what is needed is not installed.
    """
    if name not in NAMES:
        raise FieldError("executor", name, f"expected {one_of(name, NAMES)}")
    if (scheduler is not None) != (name == "dask"):
        reason = "missing, expected the address of Dask's scheduler, such as tcp://10.0.0.1:8786"
        raise FieldError("scheduler", scheduler, reason if scheduler is None else "expected none without executor dask")
    if name == LOCAL:
        yield None
    elif name == "mpi":
        with _mpi(plans) as executor:
            yield executor
    else:
        with _dask(str(scheduler), plans) as executor:
            yield executor


@contextmanager
def _dask(scheduler: str, plans: bool) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise DataError("--executor dask: needs dask.distributed: pip install 'taut[cluster]'") from None
    try:
        client = Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise FieldError("scheduler", scheduler, f"does not answer ({type(error).__name__})") from None
    with client:
        if plans:
            hosts = {worker["host"]: address for address, worker in client.scheduler_info(-1)["workers"].items()}
            client.run(warm, workers=list(hosts.values()), on_error="ignore")
        with client.get_executor(pure=False) as executor:
            yield executor


@contextmanager
def _mpi(plans: bool) -> Iterator[Executor]:
    try:
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError):
        # Without a library of MPI the import of mpi4py ends in a RuntimeError.
        raise DataError("--executor mpi: needs mpi4py and an MPI library: pip install 'taut[mpi]'") from None
    with MPIPoolExecutor() as executor:
        if plans:
            executor.submit(warm).result()
        yield executor
