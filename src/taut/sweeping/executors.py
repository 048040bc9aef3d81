"""
Where the points of a sweep run: processes of this machine (``taut.processes``), a cluster of Dask, or processes of MPI.

Each is a ``concurrent.futures.Executor``; what they need beyond it is imported when it is asked for. Before the first
plan one worker of every machine compiles the loops, and the others load what it compiled.

A sweep goes on where one of its processes dies. The processes of this machine hold two points each at a time. Where one
dies (killed, or out of memory), all that are held are lost, and nobody says whose fault it was. So each of them is run
alone: one that ends its process again is a row with that error, and the others go on. An executor of the caller's that
breaks ends the sweep.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from taut.data.suggest import one_of
from taut.errors import DataError, FieldError, SolverError
from taut.processes import local_executor
from taut.sweeping.point import Point
from taut.sweeping.row import INTERRUPTED, Row, lost, solved, warm

DIED = "its process ended without a result, as one does that is killed or out of memory"
Finished = Callable[[Point, Row], None]
Points = Sequence[Point]


def run_here(points: Points, finished: Finished, jobs: int) -> None:
    """Run points on processes of this machine."""
    waiting = points
    while waiting:
        with local_executor(jobs) as pool:
            if jobs > 1 and any(point.kind == "plan" for point in waiting):
                with suppress(BrokenExecutor):
                    pool.submit(warm).result()
            held, waiting = _run(waiting, finished, pool, 2 * jobs)
        for point in held:
            with local_executor(1) as pool:
                if any(_run([point], finished, pool, 1)):
                    finished(point, lost(DIED))


def run_on(executor: Executor, points: Points, finished: Finished) -> None:
    """Run points on a caller's executor."""
    held, waiting = _run(points, finished, executor, len(points))
    if left := len(held) + len(waiting):
        raise SolverError(f"the executor broke with {left} of {len(points)} points left")


def _run(points: Points, finished: Finished, pool: Executor, most: int) -> tuple[list[Point], list[Point]]:
    """Run points, so many at a time at most; those held when the pool broke, and those not begun."""
    waiting, done = deque(points), SimpleQueue[Future[Row]]()
    running: dict[Future[Row], Point] = {}
    held: list[Point] = []
    try:
        while waiting or running:
            while waiting and len(running) < most and not held:
                future = pool.submit(solved, waiting[0])
                running[future] = waiting.popleft()
                future.add_done_callback(done.put)
            if not running:
                break
            future = done.get()
            point = running.pop(future)
            if not _ended(future, point, finished):
                held.append(point)
    except BrokenExecutor:
        held.extend(running.values())
    finally:
        for future in running:
            future.cancel()
    return held, list(waiting)


def _ended(future: Future[Row], point: Point, finished: Finished) -> bool:
    """Take the result of a task; False where its pool broke."""
    try:
        row = future.result()
    except (BrokenExecutor, CancelledError):
        return False
    except Exception as error:
        row = lost(f"{type(error).__name__}: {error}")
    if row["status"] == INTERRUPTED:
        raise KeyboardInterrupt
    finished(point, row)
    return True


LOCAL = "local"
NAMES = (LOCAL, "dask", "mpi")
CONNECT_S = 20
"""Seconds in which a scheduler answers."""


@contextmanager
def named_executor(name: str, scheduler: str | None = None, *, plans: bool = True) -> Iterator[Executor | None]:
    """The executor of a sweep that a command names, None for this machine; loops of plans are compiled first."""
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
