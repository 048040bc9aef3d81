r"""
vTrain's second case study: a cluster scheduler with the best plan at every number of GPUs, and what a bound leaves.

For every trace four figures stand side by side, of deadlines met, mean completion
or makespan: ElasticFlow with data parallelism on the least tensor and pipeline degrees (:math:`x_0`, the paper's
baseline), ElasticFlow with our plans (the paper's own case), the better of that and our schedule that knows all
arrivals (``annealing``), and the bound b on every schedule with any plan of the space. Of a figure x

(1) the ratio is :math:`x / x_0`, and
(2) the share of the possible gain :math:`(x - x_0) / (b - x_0)`.

Traces are made as section V-B says, and what that leaves open as stated here. Stated in the paper: 128 nodes of 8 A100;
N consecutive arrival points of a real trace within a fixed period; each job one of the models of table II with its
batch, drawn evenly; random iterations; (3) deadline = arrival :math:`+ \lambda` duration, :math:`\lambda` uniform in
[0.5, 1.5]; ten traces of 64 and of 128 jobs with deadlines, nine of 32 without, five of 16 to 72 jobs that arrive
together.

Assumed: the duration is uniform in ``DURATION_H`` hours on a requested number of GPUs, which is 2, 4 or 8 times the
least replica of data parallelism, at data parallelism's rate; (4) steps = duration times that rate. The period is
``PERIOD_H`` hours, so that 64 jobs ask on average for all GPU hours that the period has (3,050 each of 195,000), and
128 for twice as many. Without a file, arrivals are those of a Poisson process; (5) of either the N points are stretched
to the period.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.jobs import JobSpec, JobTrace
from taut.data.load import load_cluster
from taut.data.suggest import one_of
from taut.errors import DataError, FieldError, NothingFoundError
from taut.formulations.jobs.problem import Objective
from taut.papers.compared import CUT_OFF, gap_cell, legend, rows_so_far
from taut.sharing.instance import Instance, instance
from taut.solver.jobs.bounds import lower_bound
from taut.solver.jobs.solve import solve_jobs
from taut.solver.result import OPTIMALITY_GAP, relative_gap
from taut.words import percent, text_table

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
    objective: Objective
    jobs: tuple[int, ...]
    published: str


STUDIES = (
    Study("deadlines of 64 jobs (figure 12 a)", "deadlines", (64,) * 10, "1.17 times as many met"),
    Study("deadlines of 128 jobs (figure 12 b)", "deadlines", (128,) * 10, "1.30 times as many met"),
    Study("completion of 32 jobs (figure 13)", "completion", (32,) * 9, "52.59 % shorter"),
    Study("makespan (figure 14)", "makespan", (16, 30, 44, 58, 72), "up to 26.43 % shorter"),
)


ROWS = (
    "figure 12 a: deadlines met, 64 jobs",
    "figure 12 b: deadlines met, 128 jobs",
    "figure 13: completion shorter by",
    "figure 14: makespan shorter by",
)
"""Rows of the paper (``taut.papers.published_rows``) in the order of the studies."""


def arrival_points(path: Path) -> Floats:
    """Moments of arrival of a real trace: the column ``submit_time`` of a CSV file, in seconds."""
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
    """Trace ``number`` of a study, with arrivals of a Poisson process unless moments of a real trace are given."""
    random = np.random.default_rng([number, *study.name.encode()])
    count = study.jobs[number]
    arrivals = np.zeros(count) if study.objective == "makespan" else _arrivals(count, points, random, period_h * HOUR)
    jobs = [_job(index, float(moment), study, rates, random) for index, moment in enumerate(arrivals)]
    return JobTrace(name=f"{study.name} {number}", restart_s=RESTART_S, jobs=tuple(jobs))


def _arrivals(count: int, points: Floats | None, random: np.random.Generator, period_s: float) -> Floats:
    """So many consecutive points, stretched to the period (5)."""
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


CLUSTER = "dgx-a100:128"
SECONDS, WITHIN = 10.0, 1800.0
"""Of the planned schedule of a trace, and after which no further trace begins."""
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A trace: jobs, and the figures of baseline, ElasticFlow with our plans, our schedule, and the bound."""

    study: str
    number: int
    jobs: int
    baseline: float
    elasticflow: float
    ours: float
    bound: float

    def ratio(self, value: float) -> float:
        """Ratio (1); infinite where the baseline is 0 and the value is not."""
        return value / self.baseline if self.baseline else float("inf") if value else 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """Our figure and the bound, the larger first: annealing ends at its limit unless both are equal."""
        return max(self.ours, self.bound), min(self.ours, self.bound)

    @property
    def is_cut_off(self) -> bool:
        """Whether the limit ended the search for our schedule."""
        return (relative_gap(*self.ends) or 0.0) > OPTIMALITY_GAP

    def share(self, value: float) -> float | None:
        """Share (2), None where nothing could be gained."""
        possible = self.bound - self.baseline
        return (value - self.baseline) / possible if abs(possible) > 1e-9 * abs(self.bound) else None


@dataclass(frozen=True, slots=True)
class Table:
    """All traces that had time, and how many each study was asked for."""

    rows: tuple[Row, ...]
    asked: Mapping[str, int] = field(default_factory=dict)

    def of(self, study: Study) -> list[Row]:
        """The rows of a study."""
        return [row for row in self.rows if row.study == study.name]

    def cut_off(self, study: Study) -> bool:
        """Whether some traces of a study had no time."""
        return len(self.of(study)) < self.asked.get(study.name, 0)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        studies = [
            {"study": each.name, "published": each.published, **_means(self.of(each)), "cut_off": self.cut_off(each)}
            for each in STUDIES
            if self.of(each)
        ]
        return {"cluster": CLUSTER, "studies": studies, "rows": [asdict(row) for row in self.rows]}

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.published_rows``)."""
        found = {}
        for study, key in zip(STUDIES, ROWS, strict=True):
            if rows := self.of(study):
                means = _means(rows)
                ratio, least = means["ratio_elasticflow"] or 0.0, means["least_ratio_elasticflow"] or 0.0
                met = study.objective == "deadlines"
                shorter = 1 - (least if study.objective == "makespan" else ratio)
                mark = CUT_OFF * self.cut_off(study)
                found[key] = (f"{ratio:.2f}x" if met else percent(shorter, places=2)) + mark
        return found

    def __str__(self) -> str:
        """A table for each study with its means beside the paper's, and whether it is cut off."""
        parts = [_shown(study, rows) + self._left(study) for study in STUDIES if (rows := self.of(study))]
        marked = [row.is_cut_off for row in self.rows] + [self.cut_off(study) for study in STUDIES]
        return "\n\n".join([*parts, *legend(marked)])

    def _left(self, study: Study) -> str:
        """How many traces a study that is cut off has, in words."""
        return (
            f"; cut off after {len(self.of(study))} of {self.asked[study.name]} traces" if self.cut_off(study) else ""
        )


def reproduce_vtrain_jobs(
    *,
    arrivals: Path | None = None,
    only: str | None = None,
    traces: int | None = None,
    time_limit: float = SECONDS,
    within: float = WITHIN,
    told: Told | None = None,
) -> Table:
    """The comparisons of figures 12 to 14, or ``only`` one, on at most so many ``traces``, begun ``within`` seconds."""
    names = sorted({study.objective for study in STUDIES})
    if only is not None and only not in names:
        raise FieldError("only", only, f"expected {one_of(only, names)}")
    points = None if arrivals is None else arrival_points(arrivals)
    rates = data_parallel_rates(told)
    chosen = [study for study in STUDIES if only in (None, study.objective)]
    asked = [(study, number) for study in chosen for number in range(len(study.jobs[:traces]))]
    # Traces of all studies in turn, so that each has some when the time is over.
    asked.sort(key=lambda each: each[1])
    began = perf_counter()

    def made(of: tuple[int, tuple[Study, int]]) -> Row:
        done, (study, number) = of
        taken = perf_counter() - began
        say = partial(_told, told, f"{study.name}, trace {number}: {done} of {len(asked)} done in {taken:.0f} s")
        return _row(study, number, rates, points, time_limit, say)

    rows = rows_so_far(takewhile(lambda of: not of[0] or perf_counter() - began <= within, enumerate(asked)), made)
    if not rows:
        raise NothingFoundError("interrupted before the first trace was done")
    return Table(rows, {study.name: sum(each is study for each, _ in asked) for study in chosen})


def _told(told: Told | None, where: str, doing: str) -> None:
    if told is not None:
        told(f"{where}, {doing}")


def data_parallel_rates(told: Told | None = None) -> dict[str, dict[int, float]]:
    """Steps per second of data parallelism by model and number of GPUs."""
    jobs = [
        {"name": model, "model": model, "global_batch": batch, "steps": 1, "gpu_counts": COUNTS}
        for model, batch in MODELS.items()
    ]
    one_each = JobTrace.model_validate({"name": "rates", "jobs": jobs})
    stated = instance(one_each, load_cluster(CLUSTER), plans="data-parallel", told=told)
    found: dict[str, dict[int, float]] = {model: {} for model in MODELS}
    for job, gpus, rate in zip(stated.problem.job, stated.problem.gpus, stated.problem.rate, strict=True):
        found[list(MODELS)[int(job)]][int(gpus)] = float(rate)
    return found


def _row(
    study: Study, number: int, rates: dict[str, dict[int, float]], points: Floats | None, time_limit: float, say: Told
) -> Row:
    jobs, cluster = trace(study, number, rates, points), load_cluster(CLUSTER)
    plain, best = instance(jobs, cluster, plans="data-parallel", told=say), instance(jobs, cluster, told=say)
    kind = study.objective
    say("ElasticFlow")
    baseline = solve_jobs(plain.problem, kind, "elasticflow")
    elastic = solve_jobs(best.problem, kind, "elasticflow")
    say("bound")
    first = lower_bound(best.bounding, kind, horizon=max(segment.end for segment in elastic.schedule))
    say(f"annealing, up to {time_limit:g} s")
    ours = solve_jobs(best.problem, kind, "annealing", time_limit=time_limit, target=first.value)
    better = min(ours, elastic, key=lambda found: found.measures.value(kind))
    values = [found.measures.value(kind) for found in (baseline, elastic, better)]
    figures = [_figure(study, best, value) for value in (*values, first.value)]
    names = ("baseline", "elasticflow", "ours", "bound")
    return Row(study=study.name, number=number, jobs=len(jobs.jobs), **dict(zip(names, figures, strict=True)))


def _figure(study: Study, stated: Instance, value: float) -> float:
    """The share of deadlines met in place of the number missed; hours."""
    return 1 - value / stated.problem.num_jobs if study.objective == "deadlines" else value / 3600


def _means(rows: Sequence[Row]) -> dict[str, float | None]:
    """Means over traces of ratios and shares of the possible gain."""

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    return {
        "ratio_elasticflow": mean([row.ratio(row.elasticflow) for row in rows]),
        "ratio_ours": mean([row.ratio(row.ours) for row in rows]),
        "ratio_bound": mean([row.ratio(row.bound) for row in rows]),
        "least_ratio_elasticflow": min(row.ratio(row.elasticflow) for row in rows),
        "share_elasticflow": mean([row.share(row.elasticflow) for row in rows]),
        "share_ours": mean([row.share(row.ours) for row in rows]),
    }


def _shown(study: Study, rows: Sequence[Row]) -> str:
    met = study.objective == "deadlines"
    unit = "deadlines met" if met else "hours"
    head = ("trace", "jobs", "baseline", "ElasticFlow", "ours", "at most" if met else "at least")
    heads = (*head, "gap", "ratio", "ours", "bound", "of the gain", "ours")
    lines = [_cells(row, met) for row in rows]
    means = _means(rows)
    ratios = (f"{means[f'ratio_{name}']:.3f}" for name in ("elasticflow", "ours", "bound"))
    shares = (percent(means[f"share_{name}"], places=2) for name in ("elasticflow", "ours"))
    lines.append(("mean", "", "", "", "", "", "", *ratios, *shares))
    elastic = means["ratio_elasticflow"] or 0.0
    least = means["least_ratio_elasticflow"] or 0.0
    said = f"{elastic:.2f} times as many met" if met else f"{100 * (1 - elastic):.2f} % shorter"
    said += f", up to {100 * (1 - least):.2f} %" if study.objective == "makespan" else ""
    return f"{study.name}, {unit}\n{text_table([heads, *lines])}\npublished: {study.published}; here: {said}"


def _cells(row: Row, met: bool) -> tuple[str, ...]:
    figures = (row.baseline, row.elasticflow, row.ours, row.bound)
    shown = (f"{100 * value:.1f} %" if met else f"{value:.2f}" for value in figures)
    ratios = (f"{row.ratio(value):.3f}" for value in figures[1:])
    shares = (percent(row.share(value), places=2) for value in figures[1:3])
    return (str(row.number), str(row.jobs), *shown, gap_cell(*row.ends), *ratios, *shares)
