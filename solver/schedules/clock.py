"""
Running orders of numbered passes again and again, as a search does.

A clock says where a run stands. Set back to a time t before which an order is as it was, it keeps what started before t
and runs the rest, so a small late change costs little. Rows, numbers and lags are those of
:mod:`taut.solver.schedules.chains`; every pass starts as early as its device and the pass it waits for allow.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.schedules.chains import Chains

ROUNDING = 1e-12
"""Share of a time by which sums of the same seconds in another order may differ."""


class Clock(NamedTuple):
    """Where running an order stands: ends of passes, devices that wait for a pass, rows and times of devices."""

    end: Floats
    waiting: Ints
    row: Ints
    now: Floats
    todo: Ints


def makespan(chains: Chains, order: Ints) -> float:
    """Makespan of an order; infinite if it deadlocks."""
    return float(run_once(chains, order))


@jit
def run_once(chains: Chains, order: Ints) -> float:
    """Makespan of an order; infinite if it deadlocks. For compiled callers."""
    return run(chains, order, np.inf, start_clock(chains))


@jit
def start_clock(chains: Chains) -> Clock:
    """Clock before the first pass."""
    passes, devices = len(chains.before), len(chains.first) - 1
    return Clock(
        np.full(passes, -1.0),
        np.full(passes, -1),
        chains.first[:-1].copy(),
        np.zeros(devices),
        np.zeros(2 * devices, dtype=np.int64),
    )


@jit
def rewind(chains: Chains, order: Ints, end: Floats, since: float, clock: Clock) -> None:
    """
    Set the clock back to a time: what started before stands as in ``end``, the rest has yet to run.

    A change of the order at that time or later cannot move what started before. What seems to have started just before
    it may have done so by rounding alone, and runs again.
    """
    first = chains.first
    for d in range(len(first) - 1):
        low, high = first[d], first[d + 1]
        while low < high:
            middle = (low + high) // 2
            x = order[middle]
            if end[x] - chains.seconds[x] < since - ROUNDING * end[x]:
                low = middle + 1
            else:
                high = middle
        clock.row[d] = low
        clock.now[d] = end[order[low - 1]] if low > first[d] else 0.0
        for r in range(low, first[d + 1]):
            clock.end[order[r]] = -1.0


@jit
def run(chains: Chains, order: Ints, limit: float, clock: Clock) -> float:
    """Run from where the clock stands: the makespan, infinite if above the limit or if devices wait for each other."""
    first, before, lag, seconds = chains.first, chains.before, chains.lag, chains.seconds
    end, waiting = clock.end, clock.waiting
    devices = len(first) - 1
    waiting[:] = -1
    longest = 0.0
    for d in range(devices):
        clock.todo[d] = d
    depth = devices
    while depth > 0:
        depth -= 1
        d = clock.todo[depth]
        now, r = clock.now[d], clock.row[d]
        while r < first[d + 1]:
            x = order[r]
            y = before[x]
            if y >= 0:
                if end[y] < 0:
                    waiting[y] = d
                    break
                now = max(now, end[y] + lag[x])
            now += seconds[x]
            end[x] = now
            r += 1
            if waiting[x] >= 0:
                clock.todo[depth] = waiting[x]
                depth += 1
        clock.row[d], clock.now[d] = r, now
        longest = max(longest, now)
        if longest > limit:
            return np.inf
    for d in range(devices):
        if clock.row[d] < first[d + 1]:
            return np.inf
    return longest
