"""
Running points on an executor, and going on where one of its processes dies.

The processes of this machine hold two points each at a time. Where one dies (killed, or out of memory), all that are
held are lost, and nobody says whose fault it was. So each of them is run alone: one that ends its process again is a
row with that error, and the others go on. An executor of the caller's that breaks ends the sweep.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from queue import SimpleQueue

from taut.errors import SolverError
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
    """
    Run points on a caller's executor.

    Raises ``SolverError`` if the executor breaks.
    """
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
