"""
Many points, each a plan, a prediction or a simulation, as one table.

A sweep of n points has n rows in the order of the points, whoever finishes first. Points that are the same have one
result. With a file to write, every finished point is kept beside it at once (``taut.sweeping.journal``), so that a
second run after a kill solves what is left and writes the same file, but for the seconds that points took. Points with
a time limit, and they alone, depend on the speed of the machine.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack
from os import PathLike
from pathlib import Path

from taut.errors import NothingFoundError
from taut.files import write_atomically
from taut.processes import cores
from taut.sweeping.journal import Journal, journal_path
from taut.sweeping.point import Point, points_of
from taut.sweeping.row import LOST, Row
from taut.sweeping.spec import SweepInput, expanded, read_spec
from taut.sweeping.table import check_table, rows_of_points, table
from taut.sweeping.tasks import run_here, run_on

Told = Callable[[int, int, Row | None], None]
"""Called with the points that are finished, all points, and the last results."""


def sweep(
    spec: SweepInput,
    *,
    out: str | PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Told | None = None,
) -> list[Row]:
    """
    Plan, predict or simulate many points.

    Parameters
    ----------
    spec
        YAML file or plain values: fields of ``taut.plan`` (with ``kind: simulate`` of ``taut.simulate``, with ``kind:
        predict`` of ``taut.predict``). A list stands for several values, and the points are all combinations;
        ``points`` holds several such blocks.
    out
        CSV or Parquet file to write; what is finished is kept beside it, and a second run goes on from there.
    executor
        Where points run, any ``concurrent.futures.Executor``; processes of this machine without one.
    jobs
        Processes of this machine; by default one a core.
    progress
        Called with the points that are finished, all points, and the last results.

    Returns
    -------
    list of dict
        One record a point: what was asked, ``status``, strategy, ``step_time_s``, ``lower_bound_s``, ``gap``,
        ``memory_bytes``, ``error`` and ``seconds``. A point that is wrong or infeasible is a record with its error.

    Raises
    ------
    DataError
        If the sweep or the file is wrong.
    SolverError
        If the given executor breaks.
    NothingFoundError
        If the sweep is interrupted; with ``out``, what is finished is kept.

    Examples
    --------
    >>> import taut
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> row = {"kind": "predict", "gpu": "A100", "hidden": 2048, "layers": 24, "global_batch": 64}
    >>> with ThreadPoolExecutor(1) as executor:
    ...     rows = taut.sweep(row | {"n_gpus": 8, "tp": [1, 2, 3]}, executor=executor)
    >>> [row["status"] for row in rows]
    ['predicted', 'predicted', 'error']
    """
    given, source = read_spec(spec)
    points, path = points_of(expanded(given, source)), None if out is None else Path(out)
    if path is not None:
        check_table(path)
    with ExitStack() as stack:
        journal = None if path is None else stack.enter_context(Journal(journal_path(path)))
        results = _results(points, journal, executor, jobs or cores(), progress or _silent)
        rows = rows_of_points(points, [results[point.key] for point in points])
        if path is not None:
            write_atomically(path, table(rows, path.suffix))
    return rows


def _silent(done: int, total: int, row: Row | None) -> None:
    """Say nothing."""


def _results(
    points: list[Point], journal: Journal | None, executor: Executor | None, jobs: int, told: Told
) -> dict[str, Row]:
    """Results of all points by their key."""
    wanted = {point.key: point for point in points}
    found = {} if journal is None else {key: row for key, row in journal.done.items() if key in wanted}
    told(len(found), len(wanted), None)

    def finished(point: Point, row: Row) -> None:
        if journal is not None and row["status"] != LOST:
            journal.add(point.key, row)
        found[point.key] = row
        told(len(found), len(wanted), row)

    left = [point for key, point in wanted.items() if key not in found]
    try:
        if executor is None:
            run_here(left, finished, min(jobs, len(left)))
        else:
            run_on(executor, left, finished)
    except KeyboardInterrupt:
        kept = "" if journal is None else f", kept in {journal.path}: the same command goes on from there"
        raise NothingFoundError(f"interrupted after {len(found)} of {len(wanted)} points{kept}") from None
    return found
