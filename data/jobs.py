r"""
What is to be trained on a shared cluster: a list of jobs with arrivals and deadlines.

A job is so many steps of a model at a global batch, or as many tokens; (1) :math:`W = \lceil \text{tokens} / (B s)
\rceil` steps of batch :math:`B` and sequence :math:`s`. Times are seconds since the trace began. Instead of a model a
job may bring ``rates``, measured steps per second by number of GPUs; then nothing is planned for it.

A file of jobs is YAML (``restart_s``, ``jobs``) or CSV, one row a job with the fields of ``JobSpec``
as columns, where lists and ``rates`` stand as ``8|16`` and ``8:0.1|16:0.19`` and an empty cell is the default.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from taut.data.load import Name
from taut.data.read import MORE, read_text, rows_of
from taut.data.read_yaml import read_yaml
from taut.data.spec import NotNegative, Positive, Spec, name_of_file, with_names
from taut.data.suggest import nearest
from taut.errors import DataError

Whole = Annotated[int, Field(gt=0, le=10**15)]
MOST_JOBS = 100_000


class JobSpec(Spec):
    """One job: what is trained, for how long, from when and until when."""

    name: str
    model: str | None = None
    global_batch: Whole | None = None
    seq: Whole | None = None
    steps: Whole | None = None
    tokens: Whole | None = None
    arrival_s: NotNegative = 0.0
    deadline_s: Annotated[Positive | None, Field(description="Seconds since the trace began, not since arrival")] = None
    priority: Annotated[Positive, Field(description="Weight of the job in every mean and count")] = 1.0
    device_types: tuple[str, ...] | None = None
    gpu_counts: tuple[Whole, ...] | None = None
    rates: Annotated[dict[int, float] | None, Field(description="Steps per second by number of GPUs")] = None

    @field_validator("device_types", "gpu_counts", mode="before")
    @classmethod
    def _tuples(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("rates", mode="before")
    @classmethod
    def _rates(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        found = {}
        for gpus, rate in value.items():
            count = int(gpus) if str(gpus).isdecimal() else 0
            real = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not (count and real and math.isfinite(rate) and rate > 0):
                raise ValueError(f"holds {gpus}: {rate}, expected a number of GPUs and steps per second above 0")
            found[count] = float(rate)
        return found

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        if (self.steps is None) == (self.tokens is None):
            raise ValueError("steps: expected steps or tokens, one of them")
        if self.rates is None and (self.model is None or self.global_batch is None):
            missing = "model" if self.model is None else "global_batch"
            raise ValueError(f"{missing}: missing, expected model and global_batch, or rates")
        if self.rates is not None and self.steps is None:
            raise ValueError("steps: missing, expected steps with rates")
        if self.deadline_s is not None and self.deadline_s <= self.arrival_s:
            raise ValueError(f"deadline_s: is {self.deadline_s:g}, expected after the arrival at {self.arrival_s:g}")
        return self

    def work(self, seq: int | None = None) -> int:
        """Steps of the job (1); tokens of a sequence are needed where the job states tokens."""
        if self.steps is not None:
            return self.steps
        assert self.tokens is not None and self.global_batch is not None and seq is not None
        return -(-self.tokens // (self.global_batch * seq))


class JobTrace(Spec):
    """Jobs, and the seconds that every start of one takes before it works (loading, a checkpoint, compilation)."""

    name: str
    restart_s: NotNegative = 0.0
    jobs: tuple[JobSpec, ...]

    @field_validator("jobs", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _named(self) -> "JobTrace":
        if not 0 < len(self.jobs) <= MOST_JOBS:
            raise ValueError(f"jobs: {len(self.jobs)} of them, expected 1 to {MOST_JOBS}")
        seen: set[str] = set()
        for job in self.jobs:
            if job.name in seen:
                raise ValueError(f"jobs: name {job.name!r} stands twice, expected once")
            seen.add(job.name)
        return self


EXPECTED = "jobs: YAML with a list jobs, or CSV with a row a job"
LISTS = ("device_types", "gpu_counts")
"""Columns of a CSV file that hold several values."""


def load_jobs(source: Name | Mapping[str, Any] | JobTrace) -> JobTrace:
    """
    Jobs from a YAML or CSV file, or from plain values; ``DataError`` if something is missing or wrong.

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
    return _trace({"name": name_of_file(path.stem), **read_yaml(path, EXPECTED)}, str(path))


def _trace(values: Mapping[str, Any], source: str) -> JobTrace:
    """A trace whose jobs are parsed one by one, so that a message names the job."""
    jobs = values.get("jobs")
    if not isinstance(jobs, list | tuple) or not jobs:
        raise DataError(f"{source}: jobs: expected a list of jobs with at least one")
    parsed = [_job(job, f"{source} jobs.{number}") for number, job in enumerate(jobs)]
    return with_names(JobTrace.parse({**values, "jobs": tuple(parsed)}, source), source)


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
    return _trace({"name": name_of_file(path.stem), "jobs": jobs}, str(path))


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
