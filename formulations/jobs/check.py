"""
Judging a schedule: an independent check of (1) to (3) of ``taut.formulations.jobs.problem``, and its objectives.

Nothing here is shared with what makes schedules. Times are compared with a tolerance of a millionth of a second and a
billionth of their size, work with a billionth of it, as schedules are sums of floats.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.jobs.problem import JobsProblem, Objective, Segment

SECONDS, SHARE = 1e-6, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """
    What a schedule achieves: completions (J,), infinite where a job is not complete, and the four objectives.

    ``deadline_ratio`` is the share of jobs with a deadline that meet it, None where no job has one.
    """

    completion: Floats
    deadline_ratio: float | None
    missed: float
    mean_completion_s: float
    makespan_s: float
    dollars: float
    busy_gpu_seconds: float

    def value(self, objective: Objective) -> float:
        """The objective's value, infinite where a job is to be completed and is not."""
        if objective == "deadlines":
            return self.missed
        if objective == "completion":
            return self.mean_completion_s
        if objective == "makespan":
            return self.makespan_s
        return self.dollars if self.missed == 0 and np.all(self.completion < inf) else inf


def violations(problem: JobsProblem, schedule: Iterable[Segment]) -> list[str]:
    """
    What is wrong with a schedule, in words; empty where nothing is.

    ``schedule``: segments in any order.
    """
    segments = sorted(schedule, key=lambda segment: (segment.job, segment.start))
    found = [fault for segment in segments if (fault := _segment_fault(problem, segment))]
    for before, after in pairwise(segments):
        if before.job == after.job and after.start < before.end - _slack(before.end):
            found.append(f"job {after.job}: two segments overlap at {after.start:g} s")
    return found if found else _crowded(problem, segments)


def _slack(time: float) -> float:
    return SECONDS + SHARE * abs(time)


def _segment_fault(problem: JobsProblem, segment: Segment) -> str | None:
    name = f"job {segment.job}"
    if not 0 <= segment.column < len(problem.job) or problem.job[segment.column] != segment.job:
        return f"{name}: configuration {segment.column} is not one of its own"
    if not (np.isfinite(segment.start) and np.isfinite(segment.end) and segment.end > segment.start):
        return f"{name}: a segment from {segment.start:g} to {segment.end:g} s"
    arrival = float(problem.arrival[segment.job])
    if segment.start < arrival - _slack(arrival):
        return f"{name}: starts at {segment.start:g} s, before it arrives at {arrival:g} s"
    return None


def _crowded(problem: JobsProblem, segments: list[Segment]) -> list[str]:
    """Moments at which a pool has too few devices (2); ends come before starts of the same moment."""
    found = []
    for number, pool in enumerate(problem.pools):
        events = []
        for segment in segments:
            if problem.pool[segment.column] == number:
                gpus = int(problem.gpus[segment.column])
                events += [(segment.start + _slack(segment.start), gpus), (segment.end, -gpus)]
        used = 0
        for time, gpus in sorted(events):
            used += gpus
            if used > pool.gpus:
                found.append(f"pool {pool.device}: {used} devices in use at {time:g} s, it has {pool.gpus}")
                break
    return found


def completion_times(problem: JobsProblem, schedule: Iterable[Segment]) -> Floats:
    """The moments (3) at which jobs are complete (J,), infinite where one is not."""
    done, completion = np.zeros(problem.num_jobs), np.full(problem.num_jobs, inf)
    for segment in sorted(schedule, key=lambda segment: segment.start):
        job, rate = segment.job, float(problem.rate[segment.column])
        work, needed = float(problem.work[job]), float(problem.work[job] - done[job])
        if completion[job] < inf:
            continue
        done[job] += rate * max(0.0, segment.end - segment.start - problem.restart_s)
        if done[job] >= work * (1 - SHARE):
            completion[job] = min(segment.end, segment.start + problem.restart_s + max(needed, 0.0) / rate)
    return completion


def measures(problem: JobsProblem, schedule: Iterable[Segment]) -> Measures:
    """
    Completions and objectives of a schedule; whether it is valid is for ``violations`` to say.

    ``schedule``: segments in any order.
    """
    segments = tuple(schedule)
    completion = completion_times(problem, segments)
    due = np.isfinite(problem.deadline)
    late = completion > problem.deadline + SECONDS + SHARE * np.abs(np.where(due, problem.deadline, 0.0))
    late &= due
    held = [(segment.end - segment.start, segment.column) for segment in segments]
    dollars = sum(seconds * float(problem.price[column]) for seconds, column in held)
    return Measures(
        completion=completion,
        deadline_ratio=1 - late.sum() / due.sum() if due.any() else None,
        missed=float(problem.weight[late].sum()),
        mean_completion_s=float(problem.weight @ (completion - problem.arrival) / problem.weight.sum()),
        makespan_s=float(completion.max() - problem.arrival.min()),
        dollars=dollars,
        busy_gpu_seconds=sum(seconds * int(problem.gpus[column]) for seconds, column in held),
    )


def trimmed(problem: JobsProblem, schedule: Iterable[Segment]) -> tuple[Segment, ...]:
    """The schedule without what a job holds after it is complete, ordered by start."""
    segments = sorted(schedule, key=lambda segment: (segment.start, segment.job))
    completion = completion_times(problem, segments)
    cut = (segment._replace(end=min(segment.end, float(completion[segment.job]))) for segment in segments)
    return tuple(segment for segment in cut if segment.end > segment.start)
