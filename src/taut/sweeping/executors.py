"""
Where the points of a sweep run: processes of this machine (``taut.processes``), a cluster of Dask, or processes of MPI.

Each is a ``concurrent.futures.Executor``; what they need beyond it is imported when it is asked for. Before the first
plan one worker of every machine compiles the loops, and the others load what it compiled.

A sweep goes on where one of its processes dies. The processes of this machine hold two points each at a time. Where one
dies (killed, or out of memory), all that are held are lost, and nobody says whose fault it was. So each of them is run
alone: one that ends its process again is a row with that error, and the others go on. An executor of the caller's that
breaks ends the sweep.

A point solved is a row. A wrong point is one as well, with ``status`` ``error`` (or ``infeasible``, ``unknown``) and
the words of its error; one whose process died is ``lost``. Only an interrupt ends a sweep: a search that was told to
stop has a plan that an undisturbed one need not have, so it is no result.
"""

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from taut.data.samples import ConfigurationRow
from taut.data.suggest import one_of
from taut.errors import DataError, FieldError, InfeasibleError, NothingFoundError, SolverError, TautError
from taut.formulations.space import SWEEP_COLUMNS
from taut.planning.request import PlanRequest
from taut.planning.solve import plan, plan_one_degree
from taut.prediction.rows import predict
from taut.processes import local_executor
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.sweeping.point import Fields, Kind, Point

RESULTS = (
    "status",
    *SWEEP_COLUMNS,
    "recompute",
    "stages",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "lower_bound_s",
    "gap",
    "memory_bytes",
    "fits",
    "tokens_per_s",
    "mfu",
    "hfu",
    "bubble",
    "tasks",
    "error",
    "seconds",
)
"""Columns of every row, after those of the point; ``seconds`` is wall time, the one that differs from run to run."""
INTERRUPTED, LOST = "interrupted", "lost"
Row = dict[str, Any]


def solved(point: Point) -> Row:
    """Results of a point; a wrong one has its error. One thread, unless the point says otherwise."""
    begin, row = time.monotonic(), dict.fromkeys(RESULTS)
    with interrupt_requested() as interrupted, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row |= _results(point)
        if interrupted():
            row["status"] = INTERRUPTED
    return row | {"seconds": round(time.monotonic() - begin, 3)}


def lost(error: str) -> Row:
    """Results of a point whose process ended without any; another run tries it again."""
    return {**dict.fromkeys(RESULTS), "status": LOST, "error": error, "seconds": 0.0}


def warm() -> None:
    """Compile the loops of a plan, or load what was compiled; where many processes share a cache, one does it first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan("gpt2-345m", "dgx-a100", global_batch=8, fix={"tp": 1, "micro_batch": 1}, workers=1)


def _results(point: Point) -> Row:
    try:
        if point.error:
            return {"status": "error", "error": point.error}
        return _SOLVE[point.kind](point.fields)
    except InfeasibleError as error:
        return {"status": "infeasible", "error": str(error)}
    except NothingFoundError as error:
        return {"status": "unknown", "error": str(error)}
    except TautError as error:
        return {"status": "error", "error": str(error)}
    except (Exception, KeyboardInterrupt) as error:
        return {"status": "error", "error": f"{type(error).__name__}: {error}"}


def _planned(fields: Fields) -> Row:
    found = plan_one_degree(PlanRequest(**{"model": None, "cluster": None, "workers": 1, **fields}))
    chosen, figures = found.strategy, found.predicted
    return {
        "status": found.status,
        **{name: getattr(chosen, name) for name in SWEEP_COLUMNS},
        **_division(chosen.stages, chosen.recompute),
        "step_time_s": found.step_time_s,
        "lower_bound_s": found.lower_bound_s,
        "gap": found.gap,
        "memory_bytes": max(figures.memory_bytes),
        "fits": True,
        "tokens_per_s": figures.tokens_per_s,
        "mfu": figures.mfu,
        "hfu": figures.hfu,
        "error": "",
    }


def _division(stages: Iterable[Sequence[int]], recompute: Sequence[str]) -> Row:
    """Layers of every stage, and its recompute; one word where that is the same everywhere."""
    words = recompute[0] if len(set(recompute)) == 1 else "|".join(recompute)
    return {"stages": "|".join(str(end - first) for first, end in stages), "recompute": words}


def _simulated(fields: Fields) -> Row:
    from taut.simulation import simulate

    found = simulate(PlanRequest(**{"model": None, "cluster": None, "workers": 1, **fields}))
    candidate, division = found.strategy.candidate, found.strategy.division
    return {
        "status": "simulated",
        **{name: getattr(candidate, name) for name in SWEEP_COLUMNS},
        **_division(found.strategy.layer_stages, division.recompute),
        "step_time_s": found.step_time_s,
        "memory_bytes": max(found.memory_bytes),
        "fits": found.fits,
        "bubble": found.bubble,
        "tasks": found.tasks,
        "error": "",
    }


def _predicted(fields: Fields) -> Row:
    given = {name: value for name, value in fields.items() if name in ConfigurationRow.model_fields}
    found = predict([given], fields.get("calibration"), fields.get("memory_model"))[0]
    row = {name: found[name] for name in RESULTS if name in found}
    if isinstance(row.get("stages"), list):
        row["stages"] = "|".join(map(str, row["stages"]))
    if row["error"]:
        return {**row, "status": "error", "error": row["error"].removeprefix("row 1: ")}
    whole = ConfigurationRow.parse({name: value for name, value in given.items() if value is not None}, "row")
    names = ("pp", "tp", "cp", "dp", "vpp", "micro_batch", "num_micro_batches", "zero", "recompute")
    said = {name: getattr(whole, name) for name in names}
    return {**row, **said, "schedule": whole.run_schedule, "status": "predicted"}


_SOLVE: dict[Kind, Callable[[Fields], Row]] = {"plan": _planned, "predict": _predicted, "simulate": _simulated}


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
def named_executor(name: str, scheduler: str | None = None) -> Iterator[Executor | None]:
    """The executor of a sweep that a command names, None for this machine; loops of plans are compiled first."""
    if name not in NAMES:
        raise FieldError("executor", name, f"expected {one_of(name, NAMES)}")
    if (scheduler is not None) != (name == "dask"):
        reason = "missing, expected the address of Dask's scheduler, such as tcp://10.0.0.1:8786"
        raise FieldError("scheduler", scheduler, reason if scheduler is None else "expected none without executor dask")
    if name == LOCAL:
        yield None
    elif name == "mpi":
        with _mpi() as executor:
            yield executor
    else:
        with _dask(str(scheduler)) as executor:
            yield executor


@contextmanager
def _dask(scheduler: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise DataError("--executor dask: needs dask.distributed: pip install 'taut[cluster]'") from None
    try:
        client = Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise FieldError("scheduler", scheduler, f"does not answer ({type(error).__name__})") from None
    with client:
        hosts = {worker["host"]: address for address, worker in client.scheduler_info(-1)["workers"].items()}
        client.run(warm, workers=list(hosts.values()), on_error="ignore")
        with client.get_executor(pure=False) as executor:
            yield executor


@contextmanager
def _mpi() -> Iterator[Executor]:
    try:
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError):
        # Without a library of MPI the import of mpi4py ends in a RuntimeError.
        raise DataError("--executor mpi: needs mpi4py and an MPI library: pip install 'taut[mpi]'") from None
    with MPIPoolExecutor() as executor:
        executor.submit(warm).result()
        yield executor
