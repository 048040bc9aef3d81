"""
Schedules with every whole backward pass split and micro-batches in order.

A pass B is never needed, and the micro-batches of each chunk and kind may run in order, k = 0, 1, ..., m - 1 (1): for
every schedule there is one like that, within the same memory, which is not longer
(:mod:`taut.solver.schedules.bound.ticks`, (4), (5)).
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, timetable


def in_order(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    """The schedule with every B split and the micro-batches of each kind and chunk in order, (1); it is not longer."""
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


def starts(problem: ScheduleProblem, schedule: Schedule) -> Floats:
    """
    Start of F, I and W of every chunk and micro-batch (3, C, m), in seconds; a pass B is taken as I and W.

    Parameters
    ----------
    problem
        The pipeline.
    schedule
        A feasible schedule that runs the micro-batches of each chunk and kind in order, or not.

    Returns
    -------
    Array
        Seconds, of the same schedule with micro-batches in order.
    """
    split = in_order(problem, schedule)
    table, begin = timetable(problem, split), np.zeros((3, problem.num_chunks, problem.num_micro_batches))
    for order, start in zip(split.orders, table.start, strict=True):
        begin[tuple(np.asarray(order).T)] = start
    return begin
