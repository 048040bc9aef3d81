r"""
List scheduling: jobs in a given order, each placed whole, at once, where it costs least.

A job is placed in one configuration without interruption. Of its configurations, each at the earliest moment from its
arrival at which the devices are free throughout, the one with the least

(1) :math:`C + \lambda_j A` is taken, with C the completion and A the device-seconds over the devices of the pool;

under ``cost`` the one with the fewest dollars, and then the least C. Under ``deadlines`` and ``cost`` completions after
the deadline are not considered, and a job without any is left out.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
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
    """
    The figures of a problem for ``list_schedule``.

    ``objective``: whether deadlines and dollars count.
    """
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


@jit
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


@jit
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
    """
    The segments of a list schedule, in order of their starts.

    ``data``: figures of the problem; ``starts``, ``chosen``: what ``list_schedule`` returned.
    """
    placed = np.flatnonzero(chosen >= 0).tolist()
    found = (Segment(j, int(chosen[j]), float(starts[j]), float(starts[j] + data.seconds[chosen[j]])) for j in placed)
    return tuple(sorted(found, key=lambda segment: (segment.start, segment.job)))
