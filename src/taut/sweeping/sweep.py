"""
Many points, each a plan, a prediction or a simulation, as one table.

A sweep of n points has n rows in the order of the points, whoever finishes first. Points that are the same have one
result. With a file to write, every finished point is kept beside it at once, so that a second run after a kill solves
what is left and writes the same file, but for the seconds that points took. Points with a time limit, and they alone,
depend on the speed of the machine.

The result is a file, CSV or Parquet by its name. Columns are ``point`` (the place in the sweep), ``kind``, the fields
of all points in the order in which they first appear, and the results. A field whose name a result has is ``given_``
and its name, such as ``given_gap``.

The journal beside the result is a file of lines, one JSON object each: a header, then key and results of every finished
point. A line is written whole and synchronised with the disk before the next point is reported. A kill can only cut the
last line, which is dropped when the journal is opened again. Two sweeps cannot hold one journal at the same time.
"""

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from importlib import import_module
from io import BytesIO
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from taut.data.spec import Spec
from taut.errors import DataError, NothingFoundError
from taut.files import write_atomically
from taut.processes import cores
from taut.sweeping.executors import LOST, RESULTS, Row, run_here, run_on
from taut.sweeping.point import Point, SweepInput, expanded, points_of, read_spec
from taut.words import csv_text

HEADER = {"format": "taut-sweep-journal/1"}


def journal_path(out: Path) -> Path:
    """The journal of a result."""
    return out.with_name(out.name + ".journal")


class Journal:
    """The journal beside a result, made where it is not there yet, and open for one sweep at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.done = self._read()
        except OSError:
            self._file.close()
            raise DataError(f"{path}: another sweep is writing it, expected another --out") from None
        except DataError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, key: str, results: dict[str, Any]) -> None:
        """Keep the results of a point."""
        self._write({"key": key, "results": results})
        self.done[key] = results

    def _write(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> dict[str, dict[str, Any]]:
        """Results by key; what a kill cut is dropped from the file."""
        self._file.seek(0)
        whole, _, cut = self._file.read().rpartition(b"\n")
        if cut and not (whole or json.dumps(HEADER).encode().startswith(cut)):
            raise self._other()
        if cut:
            self._file.truncate(len(whole) + 1 if whole else 0)
        lines = whole.split(b"\n") if whole else []
        if not lines:
            self._write(HEADER)
        elif lines[0] != json.dumps(HEADER).encode():
            raise self._other()
        return dict(self._line(text, number) for number, text in enumerate(lines[1:], start=2))

    def _line(self, text: bytes, number: int) -> tuple[str, dict[str, Any]]:
        try:
            values = json.loads(text)
            return str(values["key"]), dict(values["results"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self.path} line {number}: is no finished point, expected the file removed") from None

    def _other(self) -> DataError:
        return DataError(f"{self.path}: is no journal of taut sweep, expected another --out")


PARQUET = (".parquet", ".pq")
ENDS = (".csv", *PARQUET)


def check_table(path: Path) -> None:
    """Refuse before a sweep a file that could not be made after it."""
    if path.suffix not in ENDS:
        raise DataError(f"{path}: expected a name that ends in {', '.join(ENDS)}")
    if path.suffix in PARQUET:
        try:
            import_module("pyarrow.parquet")
        except ImportError:
            raise DataError(f"{path}: Parquet needs pyarrow: pip install 'taut[sweep]'") from None


def rows_of_points(points: Sequence[Point], results: Sequence[Row]) -> list[Row]:
    """One record a point: what was asked, and what came of it."""
    names = list(dict.fromkeys(name for point in points for name in point.given))
    titles = {name: f"given_{name}" if name in RESULTS else name for name in names}
    return [
        {"point": number, "kind": point.kind}
        | {titles[name]: _shown(name, point.given.get(name)) for name in names}
        | result
        for number, (point, result) in enumerate(zip(points, results, strict=True))
    ]


def _shown(name: str, value: Any) -> Any:
    """A field as a cell: ``tp=8,pp=4`` for what is fixed, the name of a spec, JSON of what is described in place."""
    if isinstance(value, Spec):
        return getattr(value, "name", type(value).__name__)
    if name == "fix" and isinstance(value, dict):
        return ",".join(f"{key}={str(each).lower() if isinstance(each, bool) else each}" for key, each in value.items())
    if isinstance(value, dict):
        return value["name"] if isinstance(value.get("name"), str) else json.dumps(value, sort_keys=True, default=str)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def table(rows: Sequence[Row], suffix: str) -> str | bytes:
    """The rows in the format of a suffix."""
    if suffix in PARQUET:
        return _parquet(rows)
    return csv_text([rows[0], *([_cell(value) for value in row.values()] for row in rows)])


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else value


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    out = BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def _column(values: list[Any]) -> Any:
    """Values of one type: whole numbers, numbers, truth values, or text where they are of several."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    types: list[tuple[set[type], Any]] = [({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())]
    if (kind := next((kind for allowed, kind in types if kinds and kinds <= allowed), None)) is not None:
        return pa.array(values, kind)
    return pa.array([None if value is None else str(_cell(value)) for value in values], pa.string())


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
