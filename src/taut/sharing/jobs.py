"""``taut.jobs``: who holds how many GPUs of one cluster, when, under which plan, with a bound on all schedules."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.jobs import JobTrace, load_jobs
from taut.data.load import Name, load_cluster
from taut.data.memory import MemoryModel
from taut.data.stack import Stack
from taut.data.suggest import one_of
from taut.errors import FieldError, InfeasibleError
from taut.formulations.jobs.problem import OBJECTIVES, Objective, violations
from taut.sharing.instance import HOUR, PLANS, Instance, Told, instance
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.jobs.bounds import JobsBound, lower_bound
from taut.solver.jobs.simulate import Failures
from taut.solver.jobs.solve import NAMES, Found, solve_jobs
from taut.solver.result import relative_gap
from taut.words import csv_text, percent, text_table

MOST_SHOWN = 12
"""Jobs that the report lists; the others are in the CSV file and in JSON."""


@dataclass(frozen=True, kw_only=True)
class JobsSchedule:
    """
    A schedule of a trace on a cluster, with its bound.

    Parameters
    ----------
    instance
        Trace, cluster and configurations.
    objective, policy
        What was minimised, and by what.
    found
        Segments and what they achieve.
    bound
        On the objective over all schedules.
    wall_s
        Seconds of schedule and bound.
    """

    instance: Instance
    objective: Objective
    policy: str
    found: Found
    bound: JobsBound
    wall_s: float

    @property
    def value(self) -> float:
        """The objective: weight of missed deadlines, seconds, or dollars; infinite where jobs are not complete."""
        return self.found.measures.value(self.objective)

    @property
    def lower_bound(self) -> float:
        """What no schedule is below."""
        return self.bound.value

    @property
    def gap(self) -> float | None:
        """Relative gap; None where it is not defined."""
        return relative_gap(self.value, self.lower_bound)

    @property
    def deadline_ratio(self) -> float | None:
        """Share of the jobs with a deadline that meet it."""
        return self.found.measures.deadline_ratio

    @property
    def deadline_ratio_bound(self) -> float | None:
        """Share that no schedule exceeds, where that was bounded and all jobs count alike."""
        weight = self.instance.problem.weight[np.isfinite(self.instance.problem.deadline)]
        if self.objective != "deadlines" or not len(weight) or np.ptp(weight) > 0:
            return None
        return 1 - self.lower_bound / float(weight.sum())

    @property
    def utilisation(self) -> float:
        """Share of all GPU seconds from the first arrival to the last completion that jobs hold."""
        problem = self.instance.problem
        ends = [segment.end for segment in self.found.schedule]
        span = max(ends, default=0.0) - float(problem.arrival.min())
        return self.found.measures.busy_gpu_seconds / (span * float(problem.capacity.sum())) if span > 0 else 0.0

    @cached_property
    def jobs(self) -> list[dict[str, Any]]:
        """One record a job: arrival, start, completion, deadline and whether it is met, segments with GPUs and plan."""
        completion = self.found.measures.completion
        own: dict[int, list[dict[str, Any]]] = {}
        for segment in self.found.schedule:
            own.setdefault(segment.job, []).append(self._segment(segment.column, segment.start, segment.end))
        records = []
        for number, job in enumerate(self.instance.trace.jobs):
            due, segments = job.deadline_s, own.get(number, [])
            done = float(completion[number])
            records.append(
                {
                    "name": job.name,
                    "arrival_s": job.arrival_s,
                    "start_s": segments[0]["start_s"] if segments else None,
                    "completion_s": _finite(done),
                    "deadline_s": due,
                    "met": None if due is None else bool(done <= due + 1e-6 + 1e-9 * due),
                    "segments": segments,
                }
            )
        return records

    def _segment(self, column: int, start: float, end: float) -> dict[str, Any]:
        problem = self.instance.problem
        device = problem.pools[int(problem.pool[column])].device
        gpus = int(problem.gpus[column])
        return {
            "start_s": start,
            "end_s": end,
            "device": device,
            "gpus": gpus,
            "steps_per_s": float(problem.rate[column]),
            "plan": self.instance.plans[column],
        }

    def usage(self) -> tuple[Floats, Floats]:
        """GPUs in use from each moment on: moments, and numbers."""
        gpus = self.instance.problem.gpus
        changes: dict[float, int] = {}
        for segment in self.found.schedule:
            held = int(gpus[segment.column])
            changes[segment.start] = changes.get(segment.start, 0) + held
            changes[segment.end] = changes.get(segment.end, 0) - held
        moments = sorted(changes)
        return np.array(moments), np.cumsum([float(changes[moment]) for moment in moments])

    def check(self) -> list[str]:
        """What an independent check of capacity, arrivals and work finds wrong; empty where nothing is."""
        return violations(self.instance.problem, self.found.schedule)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, those of ``taut jobs --json``."""
        measures = ("mean_completion_s", "makespan_s", "dollars")
        return {
            "objective": _finite(self.value),
            "lower_bound": _finite(self.lower_bound),
            **{name: getattr(self, name) for name in ("gap", "deadline_ratio", "deadline_ratio_bound")},
            **{name: _finite(getattr(self.found.measures, name)) for name in measures},
            "utilisation": self.utilisation,
            "minimised": self.objective,
            "policy": self.policy,
            "found_by": self.found.by,
            "bound_source": self.bound.source,
            "wall_s": self.wall_s,
            "jobs": self.jobs,
        }

    def csv(self) -> str:
        """One row a segment: job, from, to, device, GPUs, steps per second, plan."""
        heads = ("job", "start_s", "end_s", "device", "gpus", "steps_per_s", "plan")
        formats = {"start_s": ".3f", "end_s": ".3f", "steps_per_s": ".9g"}
        parts = [(job["name"], each) for job in self.jobs for each in job["segments"]]
        cells = ([name, *(format(each[head], formats.get(head, "")) for head in heads[1:])] for name, each in parts)
        return csv_text([heads, *cells])

    def __str__(self) -> str:
        """The figures, and the first jobs."""
        return "\n".join([*self._head(), "", text_table([_HEADS, *map(_cells, self.jobs[:MOST_SHOWN])]), *self._rest()])

    def _head(self) -> list[str]:
        problem, by = self.instance.problem, self.found.by
        made = self.policy if by == self.policy else f"{self.policy}, found by {by}"
        jobs = f"{problem.num_jobs} job{'s' * (problem.num_jobs != 1)}"
        unit = {"deadlines": "missed", "completion": "mean", "makespan": "makespan", "cost": "dollars"}[self.objective]
        shown = _shown(self.objective, self.value), _shown(self.objective, self.lower_bound)
        ratio = self.deadline_ratio
        lines = [
            f"{jobs} on {self.instance.cluster.name}, {int(problem.capacity.sum())} GPUs, by {made}",
            f"{self.objective}: {unit} {shown[0]}, no schedule is below {shown[1]}, gap {percent(self.gap, places=2)}",
        ]
        if ratio is not None:
            most = self.deadline_ratio_bound
            bound = "" if most is None else f", at most {percent(most, places=2)} is possible"
            lines.append(f"deadlines met {percent(ratio, places=2)}{bound}")
        measured = self.found.measures
        figures = f"mean completion {_hours(measured.mean_completion_s)}, makespan {_hours(measured.makespan_s)}"
        figures = figures if isfinite(measured.makespan_s) else "not all jobs are completed"
        dollars = f", {measured.dollars:,.2f} dollars" if measured.dollars > 0 else ""
        return [*lines, f"{figures}, utilisation {percent(self.utilisation, places=2)}{dollars}"]

    def _rest(self) -> list[str]:
        left = len(self.jobs) - MOST_SHOWN
        return [f"... and {left} more"] if left > 0 else []


_HEADS = ("job", "arrival h", "start h", "completion h", "deadline h", "met", "GPUs")


def _cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    times = (job[name] for name in ("arrival_s", "start_s", "completion_s", "deadline_s"))
    hours = tuple("-" if time is None else f"{time / HOUR:.2f}" for time in times)
    sizes = [str(each["gpus"]) for each in job["segments"]]
    shown = " ".join(sizes[:4]) + (" ..." if len(sizes) > 4 else "")
    return (job["name"], *hours, {None: "-", True: "yes", False: "no"}[job["met"]], shown or "-")


def _shown(objective: Objective, value: float) -> str:
    if not isfinite(value):
        return "infinite" if value == inf else "unknown"
    if objective == "deadlines":
        return f"{value:g}"
    return f"{value:,.2f}" if objective == "cost" else _hours(value)


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:.2f} h" if isfinite(seconds) else "infinite"


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def jobs(
    trace: Name | Mapping[str, Any] | JobTrace,
    cluster: Name | Mapping[str, Any] | ClusterSpec,
    *,
    policy: str = "cp-sat",
    objective: str = "deadlines",
    plans: str = "best",
    prices: Mapping[str, float] | None = None,
    stack: Name | Stack | None = None,
    calibration: Name | Calibration | None = None,
    memory_model: Name | MemoryModel | None = None,
    time_limit: float | None = 60.0,
    rounds: int | None = None,
    seed: int = 0,
    restart_s: float | None = None,
    workers: int = 1,
    processes: int | None = None,
    failures: Failures | None = None,
    progress: Listener | None = None,
    told: Told | None = None,
) -> JobsSchedule:
    """
    Schedule many jobs on one cluster.

    Parameters
    ----------
    trace
        A YAML or CSV file, or plain values (``taut.data.jobs``).
    cluster
        As for ``taut.plan``.
    policy
        ``cp-sat`` or ``cbc``, the best of everything; ``annealing``; or a cluster scheduler from its paper,
        ``elasticflow``, ``fair-share``, ``first-come`` or ``shortest-first``; or ``rolling``, the integer program of
        what has arrived at every event.
    objective
        ``deadlines``, ``completion``, ``makespan`` or ``cost``.
    plans
        ``best``, the best plan at every number of GPUs; or ``data-parallel``, the least tensor and pipeline degrees.
    prices
        Dollars of a GPU hour by device type.
    stack, calibration, memory_model
        By which plans are priced, as for ``taut.plan``.
    time_limit
        Seconds of plans that are made first and of the schedule, which has half at least, None for no limit; the
        bound comes on top, and takes less.
    rounds
        Rounds of annealing, after which it ends whatever the time; then the schedule depends on the seed alone.
    seed, workers
        Of random moves; threads of CP-SAT.
    restart_s
        Seconds of every start; those of the trace without it.
    processes
        Plans that are made at the same time; one a core by default.
    failures
        Failures of nodes, for policies from papers.
    progress, told
        Called with a ``Progress``, its ``incumbent`` the value; and with words while columns are planned.

    Raises
    ------
    DataError
        If an input is wrong.
    InfeasibleError
        If a job fits nowhere and all are to be completed.

    Examples
    --------
    >>> import taut
    >>> work = {"steps": 3600, "rates": {8: 1.0, 16: 1.8}}
    >>> trace = {"jobs": [{"name": "a", **work}, {"name": "b", **work}]}
    >>> found = taut.jobs(trace, "dgx-a100:2", objective="makespan", policy="first-come")
    >>> found.value, round(found.lower_bound)
    (4000.0, 3600)
    """
    kind, begun = _checked(policy, objective, plans, time_limit), time.perf_counter()
    stated = instance(
        _trace(trace, restart_s),
        cluster if isinstance(cluster, ClusterSpec) else load_cluster(cluster),
        plans="best" if plans == "best" else "data-parallel",
        prices=prices,
        pricing={"stack": stack, "calibration": calibration, "memory_model": memory_model},
        processes=processes,
        told=told,
        time_limit=None if time_limit is None else (1 - LEAST_SHARE) * time_limit,
    )
    _check_feasible(stated, kind)
    began = time.perf_counter()
    left = None if time_limit is None else max(time_limit - (began - begun), LEAST_SHARE * time_limit)

    def better(value: float, by: str) -> None:
        if progress is not None:
            progress(Progress(time.perf_counter() - began, value, -inf, by))

    with interrupt_requested() as interrupted:
        # The bound of completions needs to know when a schedule ends; of the others it ends the search early.
        first = None if kind == "completion" else lower_bound(stated.bounding, kind)
        found = solve_jobs(
            stated.problem,
            kind,
            policy,
            time_limit=left,
            seed=seed,
            workers=workers,
            rounds=rounds,
            failures=failures,
            target=0.0 if first is None else first.value,
            stop=interrupted,
            told=better,
        )
        ends = [segment.end for segment in found.schedule]
        bound = first or lower_bound(stated.bounding, kind, horizon=max(ends, default=None))
    wall = time.perf_counter() - began
    return JobsSchedule(instance=stated, objective=kind, policy=policy, found=found, bound=bound, wall_s=wall)


LEAST_SHARE = 0.5
"""Of the time limit, what the schedule has at least, however long its plans took."""


def _checked(policy: str, objective: str, plans: str, time_limit: float | None) -> Objective:
    """Refuse wrong words."""
    if policy not in NAMES:
        raise FieldError("policy", policy, f"expected {one_of(policy, NAMES)}")
    if plans not in PLANS:
        raise FieldError("plans", plans, f"expected {one_of(plans, PLANS)}")
    if time_limit is not None and not time_limit > 0:
        raise FieldError("time_limit", f"{time_limit:g}", "expected a number above 0")
    for known in OBJECTIVES:
        if known == objective:
            return known
    raise FieldError("objective", objective, f"expected {one_of(objective, OBJECTIVES)}")


def _trace(trace: Name | Mapping[str, Any] | JobTrace, restart_s: float | None) -> JobTrace:
    """The trace, with the seconds of every start where they are given."""
    given = load_jobs(trace)
    if restart_s is None:
        return given
    return JobTrace.parse({**dict(given), "restart_s": float(restart_s)}, "restart_s")


def _check_feasible(stated: Instance, objective: Objective) -> None:
    """Refuse a job that fits nowhere where every job is to be completed."""
    for number, seconds in enumerate(stated.problem.least_seconds.tolist()):
        if seconds == inf and objective != "deadlines":
            name = stated.trace.jobs[number].name
            raise InfeasibleError(f"job {name}: has no plan on any number of GPUs of {stated.cluster.name}")
