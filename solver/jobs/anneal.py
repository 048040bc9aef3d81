r"""
Simulated annealing over list schedules: the order of the jobs, and how thrifty each is.

A move takes a job to another place of the order, or multiplies its :math:`\lambda_j` of
(1) by a power of two. It is kept with probability :math:`e^{-\Delta / T}`, where T falls
geometrically from ``HOT`` to ``COLD`` times the first value over the steps of a round (Kirkpatrick et al., 1983). It
yields schedules and no bounds.

List scheduling places jobs in a given order, each whole, at once, where it costs least. A job is placed in one
configuration without interruption. Of its configurations, each at the earliest moment from its arrival at which the
devices are free throughout, the one with the least

(1) :math:`C + \lambda_j A` is taken, with C the completion and A the device-seconds over the devices of the pool;

under ``cost`` the one with the fewest dollars, and then the least C. Under ``deadlines`` and ``cost`` completions after
the deadline are not considered, and a job without any is left out.
"""

from collections.abc import Callable
from math import exp, inf
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.jobs.problem import JobsProblem, Objective, Schedule, Segment


class ListData(NamedTuple):
    """What the compiled loop reads: jobs' arrival, due date and first configuration; configurations' figures."""

    arrival: Floats
    due: Floats
    first: Ints
    pool: Ints
    gpus: Ints
    seconds: Floats
    area: Floats
    dollars: Floats
    capacity: Ints
    by_dollars: bool


def list_data(problem: JobsProblem, objective: Objective) -> ListData:
    """The figures of a problem for ``list_schedule``; the objective says whether deadlines and dollars count."""
    seconds = problem.restart_s + problem.work[problem.job] / problem.rate
    due = problem.deadline if objective in ("deadlines", "cost") else np.full(problem.num_jobs, inf)
    return ListData(
        arrival=problem.arrival,
        due=due,
        first=problem.first,
        pool=problem.pool.astype(np.int64),
        gpus=problem.gpus.astype(np.int64),
        seconds=seconds,
        # A pool may have no node that is up.
        area=seconds * problem.gpus / np.maximum(problem.capacity[problem.pool], 1),
        dollars=seconds * problem.price,
        capacity=problem.capacity,
        by_dollars=objective == "cost",
    )


@jit
def list_schedule(data: ListData, order: Ints, thrift: Floats) -> tuple[Floats, Ints]:
    """Start and configuration of every job (J,), infinity and -1 where it is left out; ``thrift`` is lambda (1)."""
    jobs, pools = len(data.arrival), len(data.capacity)
    times, free = np.zeros((pools, 2 * jobs + 2)), np.zeros((pools, 2 * jobs + 2), np.int64)
    pieces = np.ones(pools, np.int64)
    for pool in range(pools):
        times[pool, 0], free[pool, 0] = -np.inf, data.capacity[pool]
    starts, chosen = np.full(jobs, np.inf), np.full(jobs, -1)
    for job in order:
        best, best_end = np.inf, np.inf
        for c in range(data.first[job], data.first[job + 1]):
            pool = data.pool[c]
            if data.gpus[c] > data.capacity[pool]:
                continue
            start = _earliest(times[pool], free[pool], pieces[pool], data.arrival[job], data.gpus[c], data.seconds[c])
            end = start + data.seconds[c]
            if end > data.due[job]:
                continue
            price = data.dollars[c] if data.by_dollars else end + thrift[job] * data.area[c]
            if price < best or (price == best and end < best_end):
                best, best_end, starts[job], chosen[job] = price, end, start, c
        if chosen[job] >= 0:
            pool, c = data.pool[chosen[job]], chosen[job]
            pieces[pool] = _cut(times[pool], free[pool], pieces[pool], starts[job])
            pieces[pool] = _cut(times[pool], free[pool], pieces[pool], starts[job] + data.seconds[c])
            for piece in range(pieces[pool]):
                if starts[job] <= times[pool, piece] < starts[job] + data.seconds[c]:
                    free[pool, piece] -= data.gpus[c]
    return starts, chosen


@jit_inside
def _earliest(times: Floats, free: Ints, pieces: int, arrival: float, gpus: int, seconds: float) -> float:
    """The earliest start from an arrival on at which devices stay free for so many seconds."""
    start = arrival
    for piece in range(pieces):
        until = times[piece + 1] if piece + 1 < pieces else np.inf
        if until <= start:
            continue
        if free[piece] < gpus:
            start = until
        elif start + seconds <= until:
            return start
    return start


@jit_inside
def _cut(times: Floats, free: Ints, pieces: int, moment: float) -> int:
    """Let a piece begin at a moment; returns the number of pieces."""
    place = pieces
    while times[place - 1] > moment:
        place -= 1
    if times[place - 1] == moment:
        return pieces
    for piece in range(pieces, place, -1):
        times[piece], free[piece] = times[piece - 1], free[piece - 1]
    times[place], free[place] = moment, free[place - 1]
    return pieces + 1


def as_schedule(data: ListData, starts: Floats, chosen: Ints) -> Schedule:
    """The segments of a list schedule, in order of their starts."""
    placed = np.flatnonzero(chosen >= 0).tolist()
    found = (Segment(j, int(chosen[j]), float(starts[j]), float(starts[j] + data.seconds[chosen[j]])) for j in placed)
    return tuple(sorted(found, key=lambda segment: (segment.start, segment.job)))


HOT, COLD = 0.01, 1e-5
"""Temperatures as shares of the first value: one move in some hundred changes it by so much."""
STEPS = 4_000
"""Of a round; 128 jobs take some 0.1 ms a step."""
THRIFTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Values of lambda that all jobs begin with, each with every order of ``_orders``."""


def anneal(
    problem: JobsProblem,
    objective: Objective,
    *,
    seed: int = 0,
    rounds: int | None = None,
    target: float = 0.0,
    stop: Callable[[], bool] = bool,
) -> Schedule:
    """The best list schedule of some rounds, until ``stop`` if None, or of a value down to ``target``."""
    found = _Annealing(problem, objective, seed)
    return found.run(rounds, lambda: stop() or found.best_value <= target)


class _Annealing:
    def __init__(self, problem: JobsProblem, objective: Objective, seed: int) -> None:
        self.problem, self.objective = problem, objective
        self.data = list_data(problem, objective)
        self.random = np.random.default_rng(seed)
        self.best, self.best_value = (np.arange(problem.num_jobs), np.zeros(problem.num_jobs)), inf

    def value(self, order: Ints, thrift: Floats) -> float:
        """The objective of a list schedule; remembers the best."""
        starts, chosen = list_schedule(self.data, order, thrift)
        value = _value(self.problem, self.objective, self.data, starts, chosen)
        if value < self.best_value:
            self.best, self.best_value = (order.copy(), thrift.copy()), value
        return value

    def run(self, rounds: int | None, stop: Callable[[], bool]) -> Schedule:
        """Constructed orders, then rounds of moves from the best."""
        jobs, done = self.problem.num_jobs, 0
        for thrift in THRIFTS:
            for order in _orders(self.problem):
                if stop() and self.best_value < inf:
                    break
                self.value(order, np.full(jobs, thrift))
        while jobs > 1 and (rounds is None or done < rounds) and not stop():
            self._round(stop)
            done += 1
        return as_schedule(self.data, *list_schedule(self.data, *self.best))

    def _round(self, stop: Callable[[], bool]) -> None:
        order, thrift = self.best[0].copy(), self.best[1].copy()
        value = scale = self.best_value
        for step in range(STEPS):
            if stop():
                return
            temperature = scale * HOT * (COLD / HOT) ** (step / STEPS)
            other_order, other_thrift = self._moved(order, thrift)
            other = self.value(other_order, other_thrift)
            if other <= value or self.random.random() < exp((value - other) / temperature):
                order, thrift, value = other_order, other_thrift, other

    def _moved(self, order: Ints, thrift: Floats) -> tuple[Ints, Floats]:
        first, to = self.random.integers(len(order), size=2).tolist()
        if self.random.random() < 0.5:
            rest = np.delete(order, first)
            return np.insert(rest, to, order[first]), thrift
        changed = thrift.copy()
        changed[first] = max(changed[first], 0.25) * 2.0 ** self.random.integers(-2, 3) * (self.random.random() > 0.1)
        return order, changed


def _value(problem: JobsProblem, objective: Objective, data: ListData, starts: Floats, chosen: Ints) -> float:
    placed = chosen >= 0
    if objective == "deadlines":
        return float(problem.weight[~placed & np.isfinite(problem.deadline)].sum())
    ends = np.where(placed, starts + data.seconds[chosen], data.seconds.sum() + data.arrival.max())
    if objective == "completion":
        return float(problem.weight @ (ends - problem.arrival) / problem.weight.sum())
    if objective == "makespan":
        # A little of the mean tells apart schedules of equal ends.
        return float(ends.max() - problem.arrival.min() + 1e-3 * ends.mean())
    return float(data.dollars[chosen[placed]].sum() + (~placed).sum() * data.dollars.sum())


def _orders(problem: JobsProblem) -> list[Ints]:
    """By arrival, by seconds alone, longest first, by due date, by least device-seconds, and by slack."""
    # A job that fits nowhere is left out wherever it stands.
    least = np.minimum(problem.least_seconds, 1e30)
    area = np.full(problem.num_jobs, inf)
    np.minimum.at(area, problem.job, problem.gpus / problem.rate * problem.work[problem.job])
    keys = (problem.arrival, least, -least, problem.deadline, area, -area, problem.deadline - problem.arrival - least)
    return [np.argsort(key, kind="stable") for key in keys]
