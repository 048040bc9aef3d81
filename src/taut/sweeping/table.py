"""
The result of a sweep as a file: CSV, or Parquet by its name.

Columns are ``point`` (the place in the sweep), ``kind``, the fields of all points in the order in which they first
appear, and the results. A field whose name a result has is ``given_`` and its name, such as ``given_gap``.
"""

import csv
import json
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from taut.data.spec import Spec
from taut.errors import DataError
from taut.sweeping.point import Point
from taut.sweeping.row import RESULTS, Row

PARQUET = (".parquet", ".pq")
ENDS = (".csv", *PARQUET)


def check_table(path: Path) -> None:
    """
    Refuse before a sweep a file that could not be made after it.

    Raises ``DataError`` if the name ends in no known format, or the format needs what is not installed.
    """
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
    return _parquet(rows) if suffix in PARQUET else _csv(rows)


def _csv(rows: Sequence[Row]) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return out.getvalue()


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
