"""What ``taut.jobs`` returns: who holds how many GPUs, when, under which plan, with a bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.jobs.check import violations
from taut.formulations.jobs.problem import Objective
from taut.sharing.instance import HOUR, Instance
from taut.solver.jobs.bounds import JobsBound
from taut.solver.jobs.solve import Found
from taut.solver.result import relative_gap
from taut.words import percent, text_table

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
        measured = self.found.measures
        return {
            "objective": _finite(self.value),
            "lower_bound": _finite(self.lower_bound),
            "gap": self.gap,
            "deadline_ratio": self.deadline_ratio,
            "deadline_ratio_bound": self.deadline_ratio_bound,
            "mean_completion_s": _finite(measured.mean_completion_s),
            "makespan_s": _finite(measured.makespan_s),
            "dollars": _finite(measured.dollars),
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
        head = "job,start_s,end_s,device,gpus,steps_per_s,plan"
        rows = [
            f"{job['name']},{each['start_s']:.3f},{each['end_s']:.3f},{each['device']},{each['gpus']},"
            f"{each['steps_per_s']:.9g},{each['plan']}"
            for job in self.jobs
            for each in job["segments"]
        ]
        return "\n".join([head, *rows]) + "\n"

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
