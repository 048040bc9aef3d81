r"""
Canonical schedules: every whole backward pass split, the micro-batches of each chunk and kind of pass in order.

Sets and data are those of ``taut.formulations.schedules.schedule``. Two dominance rules remove symmetric schedules:

1. I and W in the place of a pass B let the gradient leave no later and give memory back no later.
2. Micro-batches are interchangeable, so the k-th pass of a kind on a chunk may be given to micro-batch k, for
   :math:`k = 0, 1, \dots, m - 1`. If every pass of one kind and chunk follows, by a fixed delay, the end of its own
   micro-batch's pass of another, then the k-th start follows the k-th end by that delay; memory depends on counts
   alone.

So for every schedule there is a canonical one within the same memory that is not longer. Bounds and searches need to
look at canonical schedules alone.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable


def canonical_schedule(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    """
    The canonical schedule of a schedule, by rules 1 and 2.

    Returns feasible in the same memory, and not longer.
    """
    orders = []
    for order in schedule.orders:
        rows = np.asarray(order)
        fused = rows[:, 0] > WEIGHT_GRADIENT
        split = np.repeat(rows, 1 + fused, axis=0)
        place = np.flatnonzero(np.repeat(fused, 1 + fused))
        split[place[::2], 0], split[place[1::2], 0] = INPUT_GRADIENT, WEIGHT_GRADIENT
        for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT):
            for c in range(problem.num_chunks):
                mine = (split[:, 0] == kind) & (split[:, 1] == c)
                split[mine, 2] = np.arange(int(mine.sum()))
        orders.append(split)
    return Schedule(schedule.kind, tuple(orders))


def canonical_starts(problem: ScheduleProblem, schedule: Schedule) -> Floats:
    """
    Starts of the passes of the canonical schedule.

    Returns seconds by kind F, I, W, chunk and micro-batch (3, C, m).
    """
    split = canonical_schedule(problem, schedule)
    table, begin = timetable(problem, split), np.zeros((3, problem.num_chunks, problem.num_micro_batches))
    for order, start in zip(split.orders, table.start, strict=True):
        begin[tuple(np.asarray(order).T)] = start
    return begin
