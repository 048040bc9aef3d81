r"""
Scheduling elastic jobs on pools of devices: data, schedules and objectives.

Data. Pools p of :math:`N_p` nodes with :math:`G_p` devices. Jobs j with arrival :math:`a_j`, work :math:`W_j` (steps),
deadline :math:`d_j` (possibly infinite) and weight :math:`w_j`. Configurations c of job :math:`j(c)` on pool
:math:`p(c)`: :math:`g_c` devices and a rate :math:`r_c` in steps per second. Every start of a segment takes
:math:`\rho` seconds in which devices are held and no work is done.

A schedule is for each job a list of segments, half-open intervals of time [s, e) with a configuration, where

(1) :math:`s \ge a_j`, and no two segments of a job overlap;
(2) at any time, the devices of the configurations on pool p are at most :math:`N_p G_p`;
(3) the work of a segment is :math:`r_c \max(0, e - s - \rho)`, and a job is complete at the first moment
    :math:`C_j` at which the work of its segments so far is :math:`W_j`.

:math:`g_c` is a whole number of nodes or a fraction :math:`G_p / 2^i` of one. Then (2) is all that packing asks for:
fractions of which each divides the next fill nodes without waste at every moment. A fraction may be moved from one
node to another when others start, which costs nothing here, as in ElasticFlow's buddy allocation (Gu et al., 2023,
section 4.3); whole nodes are never moved.

Objectives, all minimised:

==============  ====================================================================================================
``deadlines``   (4) :math:`\sum_j w_j [C_j > d_j]` over jobs with a deadline
``completion``  (5) :math:`\sum_j w_j (C_j - a_j) / \sum_j w_j`
``makespan``    (6) :math:`\max_j C_j - \min_j a_j`
``cost``        (7) :math:`\sum` over segments of :math:`\pi_p g_c (e - s)`, dollars at :math:`\pi_p` a device-second
==============  ====================================================================================================

Under (5) to (7) every job is to be completed, and under (7) by its deadline; a schedule that fails costs infinity.

Schedules are judged by (1) to (3) apart from what makes them. Times are compared with a tolerance of a millionth of a
second and a billionth of their size, work with a billionth of it, as schedules are sums of floats.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Literal, NamedTuple, get_args

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.errors import FormulationError

Objective = Literal["deadlines", "completion", "makespan", "cost"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


class Pool(NamedTuple):
    """Equal nodes: the name of their device, how many, devices in each, dollars of a device-second."""

    device: str
    nodes: int
    gpus_per_node: int
    price: float = 0.0

    @property
    def gpus(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.gpus_per_node


class Segment(NamedTuple):
    """A job in a configuration (its number in the problem) from ``start`` to ``end``."""

    job: int
    column: int
    start: float
    end: float


Schedule = tuple[Segment, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class JobsProblem:
    """Pools, jobs (J,) and configurations (C,) by job, in seconds, steps, devices; ``deadline`` may be infinite."""

    pools: tuple[Pool, ...]
    arrival: Floats
    work: Floats
    deadline: Floats
    weight: Floats
    job: Ints
    pool: Ints
    gpus: Ints
    rate: Floats
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        jobs, columns = len(self.arrival), len(self.job)
        if not self.pools or not jobs:
            raise FormulationError("jobs: expected at least one pool and one job")
        if any(len(part) != jobs for part in (self.work, self.deadline, self.weight)):
            raise FormulationError("jobs: arrival, work, deadline and weight differ in length")
        if any(len(part) != columns for part in (self.pool, self.gpus, self.rate)):
            raise FormulationError("jobs: job, pool, gpus and rate differ in length")
        if columns and (np.any(np.diff(self.job) < 0) or self.job[0] < 0 or self.job[-1] >= jobs):
            raise FormulationError("jobs: configurations are not ordered by job")
        if np.any(self.work <= 0) or np.any(self.weight <= 0) or np.any(self.rate <= 0) or self.restart_s < 0:
            raise FormulationError("jobs: work, weight and rate are above 0, and restarts take no negative time")
        for column in range(columns):
            self._check_packing(int(self.gpus[column]), self.pools[self.pool[column]])

    @staticmethod
    def _check_packing(gpus: int, pool: Pool) -> None:
        per_node = pool.gpus_per_node
        share = per_node // gpus if gpus > 0 and per_node % gpus == 0 else 0
        if not (gpus > 0 and gpus % per_node == 0) and (share == 0 or share & (share - 1)):
            raise FormulationError(
                f"jobs: {gpus} GPUs on nodes of {per_node}, expected whole nodes or a half, a quarter, ... of one"
            )

    @property
    def num_jobs(self) -> int:
        """Jobs."""
        return len(self.arrival)

    @cached_property
    def first(self) -> Ints:
        """Number of the first configuration of every job, and of all at the end (J + 1,)."""
        return np.searchsorted(self.job, np.arange(self.num_jobs + 1)).astype(np.int64)

    @cached_property
    def capacity(self) -> Ints:
        """Devices of every pool (P,)."""
        return np.array([pool.gpus for pool in self.pools], dtype=np.int64)

    @cached_property
    def price(self) -> Floats:
        """Dollars of a second of every configuration (C,)."""
        return np.array([pool.price for pool in self.pools])[self.pool] * self.gpus

    @cached_property
    def fits(self) -> Flags:
        """Whether a configuration has at most its pool's devices (C,)."""
        return np.asarray(self.gpus <= self.capacity[self.pool])

    @cached_property
    def least_seconds(self) -> Floats:
        """Seconds of every job alone on the cluster, start included (J,); infinite where it cannot run."""
        return np.asarray(self.restart_s + self.least_of(self.work[self.job] / self.rate))

    def least_of(self, figures: Floats) -> Floats:
        """Least of figures (C,) over the configurations of every job that fit (J,); infinite without one."""
        least = np.full(self.num_jobs, inf)
        np.minimum.at(least, self.job[self.fits], figures[self.fits])
        return least

    def columns(self, job: int) -> range:
        """Numbers of a job's configurations."""
        return range(int(self.first[job]), int(self.first[job + 1]))


SECONDS, SHARE = 1e-6, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Completions (J,), infinite where a job is not complete, and objectives; no ratio without deadlines."""

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
    """What is wrong with a schedule of segments in any order, in words; empty where nothing is."""
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
    """Completions and objectives of a schedule; whether it is valid is for ``violations`` to say."""
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
