r"""
Traces for vTrain's second case study, made as its section V-B says, and what that leaves open as stated here.

Stated in the paper: 128 nodes of 8 A100; N consecutive arrival points of a real trace within a fixed period; each job
one of the models of table II with its batch, drawn evenly; random iterations; (1) deadline = arrival
:math:`+ \lambda` duration, :math:`\lambda` uniform in [0.5, 1.5]; ten traces of 64 and of 128 jobs with deadlines, nine
of 32 without, five of 16 to 72 jobs that arrive together.

Assumed: the duration is uniform in ``DURATION_H`` hours on a requested number of GPUs, which is 2, 4 or 8 times the
least replica of data parallelism, at data parallelism's rate; (2) steps = duration times that rate. The period is
``PERIOD_H`` hours, so that 64 jobs ask on average for all GPU hours that the period has (3,050 each of 195,000), and
128 for twice as many. Without a file, arrivals are those of a Poisson process; (3) of either the N points are stretched
to the period.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.jobs.spec import JobSpec, JobTrace
from taut.errors import DataError

MODELS = {"gpt-18.4b": 1024, "gpt-39.1b": 1536, "gpt-81.2b": 1792}
"""Models of table II with their batches."""
PERIOD_H, DURATION_H = 190.0, (10.0, 60.0)
REPLICAS = (2, 4, 8)
FACTORS = (0.5, 1.5)
COUNTS = tuple(8 << k for k in range(8))
"""Numbers of GPUs: whole nodes by powers of two, as ElasticFlow has them."""
RESTART_S = 60.0
"""Seconds of a start or a resizing: loading a checkpoint of up to a terabyte on many nodes at once."""
HOUR = 3600.0


class Study(NamedTuple):
    """One comparison of the paper: its objective, the numbers of jobs of its traces, and what the paper reports."""

    name: str
    objective: str
    jobs: tuple[int, ...]
    published: str


STUDIES = (
    Study("deadlines of 64 jobs (figure 12 a)", "deadlines", (64,) * 10, "1.17 times as many met"),
    Study("deadlines of 128 jobs (figure 12 b)", "deadlines", (128,) * 10, "1.30 times as many met"),
    Study("completion of 32 jobs (figure 13)", "completion", (32,) * 9, "52.59 % shorter"),
    Study("makespan (figure 14)", "makespan", (16, 30, 44, 58, 72), "up to 26.43 % shorter"),
)


def arrival_points(path: Path) -> Floats:
    """
    Moments of arrival of a real trace: the column ``submit_time`` of a CSV file, in seconds.

    Raises ``DataError`` if the file cannot be read or has no such column of numbers.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            points = [float(row["submit_time"]) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: expected a CSV file with a column submit_time in seconds") from None
    if len(points) < max(max(study.jobs) for study in STUDIES):
        raise DataError(f"{path}: has {len(points)} arrivals, expected 128 or more")
    return np.sort(np.array(points))


def trace(
    study: Study,
    number: int,
    rates: dict[str, dict[int, float]],
    points: Floats | None = None,
    period_h: float = PERIOD_H,
) -> JobTrace:
    """
    One trace of a study; the same for the same number.

    ``number``: of the trace within it; ``rates``: steps per second of data parallelism, by model and number of GPUs;
    ``points``: moments of arrival of a real trace; a Poisson process without them; ``period_h``: hours in which jobs
    arrive.
    """
    random = np.random.default_rng([number, *study.name.encode()])
    count = study.jobs[number]
    arrivals = np.zeros(count) if study.objective == "makespan" else _arrivals(count, points, random, period_h * HOUR)
    jobs = [_job(index, float(moment), study, rates, random) for index, moment in enumerate(arrivals)]
    return JobTrace(name=f"{study.name} {number}", restart_s=RESTART_S, jobs=tuple(jobs))


def _arrivals(count: int, points: Floats | None, random: np.random.Generator, period_s: float) -> Floats:
    """So many consecutive points, stretched to the period (3)."""
    if points is None:
        found = np.cumsum(random.exponential(1.0, count))
    else:
        first = int(random.integers(len(points) - count + 1))
        found = points[first : first + count]
    span = float(found[-1] - found[0])
    return np.asarray((found - found[0]) * (period_s / span if span > 0 else 0.0))


def _job(
    index: int, arrival: float, study: Study, rates: dict[str, dict[int, float]], random: np.random.Generator
) -> JobSpec:
    model = str(random.choice(list(MODELS)))
    gpus = min(rates[model]) * int(random.choice(REPLICAS))
    duration = float(random.uniform(*DURATION_H)) * HOUR
    factor = float(random.uniform(*FACTORS))
    return JobSpec(
        name=f"{model} {index}",
        model=model,
        global_batch=MODELS[model],
        steps=max(round(duration * rates[model][gpus]), 1),
        arrival_s=arrival,
        deadline_s=arrival + factor * duration if study.objective == "deadlines" else None,
        gpu_counts=COUNTS,
    )
