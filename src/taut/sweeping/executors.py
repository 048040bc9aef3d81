"""
Where the points of a sweep run: processes of this machine (``taut.processes``), a cluster of Dask, or processes of MPI.

Each is a ``concurrent.futures.Executor``; what they need beyond it is imported when it is asked for. Before the first
plan one worker of every machine compiles the loops, and the others load what it compiled.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from taut.data.suggest import one_of
from taut.errors import DataError, FieldError
from taut.sweeping.row import warm

LOCAL = "local"
NAMES = (LOCAL, "dask", "mpi")
CONNECT_S = 20
"""Seconds in which a scheduler answers."""


@contextmanager
def named_executor(name: str, scheduler: str | None = None, *, plans: bool = True) -> Iterator[Executor | None]:
    """
    The executor that a command names, for the duration of a sweep; None for the processes of this machine.

    ``name``: ``local``, ``dask`` or ``mpi``; ``scheduler``: address of Dask's scheduler; ``plans``: whether there are
    plans to make, for which loops are compiled first. Raises ``DataError`` if the name is unknown, Dask has no address
    or none that answers, or what is needed is not installed.
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
