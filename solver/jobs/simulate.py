r"""
A trace of jobs, event by event, under a policy that decides who holds which configuration.

At every arrival, completion, failure, repair and moment that the policy asked for, it sees what has arrived and says
which configuration each job is to hold from now on. A job whose configuration changes, or that is taken up again,
begins a new segment of ``taut.formulations.jobs.problem`` with :math:`\rho` seconds without work; others go on.

Nodes fail one by one where ``mean_seconds_between_failures`` of a node is given: moments are exponential, the node is
drawn evenly, and so is a job that holds it, in proportion to the nodes that are held. That job begins anew where it was
(checkpoints cost nothing here), and the pool lacks the node for ``repair_s``. One seed gives one trace of events.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import SolverError
from taut.formulations.jobs.problem import JobsProblem, Schedule, Segment

MOST_EVENTS = 2_000_000


class View(NamedTuple):
    """
    What a policy sees: the moment, jobs that have arrived and are not complete in order of arrival, work left (J,).

    ``held`` is the configuration of every job, -1 without (J,), ``starting`` the seconds until it works (J,), and
    ``capacity`` the devices that are up (P,).
    """

    problem: JobsProblem
    now: float
    waiting: tuple[int, ...]
    left: Floats
    held: Ints
    starting: Floats
    capacity: Ints


class Policy(Protocol):
    """Says who holds what from now on, and when it wants to be asked again at the latest."""

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """The configuration by job, where jobs without one rest, and the moment to be asked at the latest."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures of nodes: mean seconds between two of one node, seconds of a repair, and the seed."""

    mean_seconds_between_failures: float
    repair_s: float = 3600.0
    seed: int = 0


def simulate(problem: JobsProblem, policy: Policy, failures: Failures | None = None) -> Schedule:
    """Every segment of a trace under a policy; jobs that it leaves without devices for good are not complete."""
    return _Run(problem, policy, failures).schedule()


class _Run:
    def __init__(self, problem: JobsProblem, policy: Policy, failures: Failures | None) -> None:
        jobs = problem.num_jobs
        self.problem, self.policy, self.failures = problem, policy, failures
        self.left, self.capacity = problem.work.astype(np.float64).copy(), problem.capacity.copy()
        self.held, self.since = np.full(jobs, -1), np.zeros(jobs)
        self.waiting, self.segments, self.repairs = list[int](), list[Segment](), list[tuple[float, int]]()
        self.arrivals = [(float(problem.arrival[job]), job) for job in np.argsort(problem.arrival, kind="stable")]
        self.random = np.random.default_rng(failures.seed if failures else 0)
        self.nodes = sum(pool.nodes for pool in problem.pools)
        self.fails = self._next_failure(0.0)

    def schedule(self) -> Schedule:
        """Event after event until nothing is left that could happen."""
        now, wake, position = -inf, inf, 0
        for _ in range(MOST_EVENTS):
            upcoming = self.arrivals[position][0] if position < len(self.arrivals) else inf
            repaired = self.repairs[0][0] if self.repairs else inf
            ends = self._completions()
            if upcoming == inf and not self.waiting:
                break
            running = bool(np.any(self.held >= 0))
            failure = self.fails if running or upcoming < inf else inf
            moment = min(upcoming, repaired, wake, failure, min(ends.values(), default=inf))
            if moment == inf:
                break
            now = max(now, moment)
            self._complete(now, ends)
            while position < len(self.arrivals) and self.arrivals[position][0] <= now:
                self.waiting.append(int(self.arrivals[position][1]))
                position += 1
            self._break_and_repair(now)
            wake = self._ask(now)
            if position == len(self.arrivals) and not self.repairs and np.all(self.held < 0):
                # Whoever is left fits nowhere, or is dropped.
                break
        else:
            raise SolverError(f"jobs: more than {MOST_EVENTS} events")
        return tuple(sorted(self.segments, key=lambda segment: (segment.start, segment.job)))

    def _completions(self) -> dict[int, float]:
        problem = self.problem
        running = np.flatnonzero(self.held >= 0)
        ends = self.since[running] + problem.restart_s + self.left[running] / problem.rate[self.held[running]]
        return dict(zip(running.tolist(), ends.tolist(), strict=True))

    def _complete(self, now: float, ends: Mapping[int, float]) -> None:
        """End the segments of jobs that are complete by now."""
        for job, end in ends.items():
            if end <= now:
                self.segments.append(Segment(job, int(self.held[job]), float(self.since[job]), end))
                self.held[job], self.left[job] = -1, 0.0
                self.waiting.remove(job)

    def _end(self, job: int, now: float) -> None:
        """End a job's segment before the job is complete."""
        column = int(self.held[job])
        if now > self.since[job]:
            self.segments.append(Segment(job, column, float(self.since[job]), now))
            self.left[job] -= self._done(job, now)
        self.held[job] = -1

    def _done(self, job: int, now: float) -> float:
        seconds = max(0.0, now - float(self.since[job]) - self.problem.restart_s)
        return float(self.problem.rate[self.held[job]]) * seconds

    def _ask(self, now: float) -> float:
        left = self.left.copy()
        for job in np.flatnonzero(self.held >= 0).tolist():
            left[job] -= self._done(job, now)
        starting = np.where(self.held >= 0, np.maximum(self.since + self.problem.restart_s - now, 0.0), 0.0)
        seen = tuple(self.waiting)
        view = View(self.problem, now, seen, left, self.held.copy(), starting, self.capacity.copy())
        wanted, wake = self.policy.decide(view)
        self._check(wanted)
        for job in self.waiting:
            column = wanted.get(job, -1)
            if column == self.held[job]:
                continue
            if self.held[job] >= 0:
                self._end(job, now)
            if column >= 0:
                self.held[job], self.since[job] = column, now
        return wake if wake > now else inf

    def _check(self, wanted: Mapping[int, int]) -> None:
        used = np.zeros(len(self.problem.pools), dtype=np.int64)
        for job, column in wanted.items():
            if self.problem.job[column] != job or job not in self.waiting:
                raise SolverError(f"jobs: the policy gives job {job} configuration {column}, which it may not hold")
            used[self.problem.pool[column]] += self.problem.gpus[column]
        if np.any(used > self.capacity):
            raise SolverError(f"jobs: the policy hands out {used.tolist()} of {self.capacity.tolist()} devices")

    def _next_failure(self, now: float) -> float:
        if self.failures is None:
            return inf
        return now + float(self.random.exponential(self.failures.mean_seconds_between_failures / self.nodes))

    def _break_and_repair(self, now: float) -> None:
        pools = self.problem.pools
        while self.repairs and self.repairs[0][0] <= now:
            pool = heapq.heappop(self.repairs)[1]
            self.capacity[pool] += pools[pool].gpus_per_node
        if self.failures is None or self.fails > now:
            return
        self.fails = self._next_failure(now)
        pool = int(self.random.choice(len(pools), p=[each.nodes / self.nodes for each in pools]))
        if self.capacity[pool] >= pools[pool].gpus_per_node:
            self.capacity[pool] -= pools[pool].gpus_per_node
            heapq.heappush(self.repairs, (now + self.failures.repair_s, pool))
            self._hit(pool, now)

    def _hit(self, pool: int, now: float) -> None:
        """Begin the job anew that holds the node, if one does."""
        own = [job for job in self.waiting if self._devices(job, pool)]
        held = [self._devices(job, pool) for job in own]
        place = self.random.uniform(0, self.problem.pools[pool].gpus)
        for job, end in zip(own, np.cumsum(held).tolist(), strict=True):
            if place < end:
                self._end(job, now)
                return

    def _devices(self, job: int, pool: int) -> int:
        column = int(self.held[job])
        return int(self.problem.gpus[column]) if column >= 0 and self.problem.pool[column] == pool else 0
