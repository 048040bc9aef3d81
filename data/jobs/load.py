"""
Reading jobs from a file.

A file is YAML (``restart_s``, ``jobs``) or CSV, one row a job with the fields of ``JobSpec`` as columns, where lists
and ``rates`` stand as ``8|16`` and ``8:0.1|16:0.19`` and an empty cell is the default.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.jobs.spec import JobSpec, JobTrace
from taut.data.named import Name
from taut.data.read import MORE, read_text, read_yaml, rows_of
from taut.data.suggest import nearest
from taut.errors import DataError

EXPECTED = "jobs: YAML with a list jobs, or CSV with a row a job"
LISTS = ("device_types", "gpu_counts")
"""Columns of a CSV file that hold several values."""


def load_jobs(source: Name | Mapping[str, Any] | JobTrace) -> JobTrace:
    """
    Jobs from a YAML or CSV file, or from plain values.

    Raises ``DataError`` if there is no such file, or it is wrong: file, field or row, value, what was expected.

    Examples
    --------
    >>> trace = load_jobs({"jobs": [{"name": "a", "steps": 100, "rates": {8: 0.5}}]})
    >>> trace.jobs[0].rates
    {8: 0.5}
    """
    if isinstance(source, JobTrace):
        return source
    if isinstance(source, Mapping):
        return _trace({"name": "jobs", **source}, "jobs")
    path = Path(source)
    if path.suffix == ".csv":
        return _from_csv(path)
    if path.suffix not in (".yaml", ".yml"):
        raise DataError(f"jobs {str(path)!r}: expected a .yaml or .csv file")
    return _trace({"name": path.stem, **read_yaml(path, EXPECTED)}, str(path))


def _trace(values: Mapping[str, Any], source: str) -> JobTrace:
    """A trace whose jobs are parsed one by one, so that a message names the job."""
    jobs = values.get("jobs")
    if not isinstance(jobs, list | tuple) or not jobs:
        raise DataError(f"{source}: jobs: expected a list of jobs with at least one")
    parsed = [_job(job, f"{source} jobs.{number}") for number, job in enumerate(jobs)]
    return JobTrace.parse({**values, "jobs": tuple(parsed)}, source)


def _job(values: object, source: str) -> JobSpec:
    return values if isinstance(values, JobSpec) else JobSpec.parse(values, source)


def _from_csv(path: Path) -> JobTrace:
    columns, rows = rows_of(read_text(path, EXPECTED), path, EXPECTED)
    for column in columns:
        if column not in JobSpec.model_fields:
            near = nearest(column, JobSpec.model_fields)
            raise DataError(f"{path}: unknown column {column!r}" + (f", did you mean {near}?" if near else ""))
    jobs = []
    for number, row in enumerate(rows, start=1):
        if MORE in row:
            raise DataError(f"{path} row {number}: has more cells than the header, expected {len(columns)}")
        cells = {column: _cell(column, text, f"{path} row {number}") for column, text in row.items() if text.strip()}
        jobs.append(JobSpec.parse_cells({"name": str(number), **cells}, f"{path} row {number}"))
    return _trace({"name": path.stem, "jobs": jobs}, str(path))


def _cell(column: str, text: str, source: str) -> object:
    parts = [part.strip() for part in text.split("|")]
    if column in LISTS:
        return parts
    if column != "rates":
        return text.strip()
    pairs = [part.partition(":") for part in parts]
    try:
        return {gpus.strip(): float(rate) for gpus, _, rate in pairs}
    except ValueError:
        raise DataError(f"{source}: rates: is {text!r}, expected GPUS:RATE|GPUS:RATE") from None
