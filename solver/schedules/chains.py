"""
Passes as numbers: pass (kind, chunk, micro-batch) is number (kind C + chunk) m + micro-batch, with kinds F, I and W.

Each pass waits for one other at most: F for F of the chunk before, I for I of the chunk after, or on the last chunk for
F, and W for its I. That own F precedes I follows along the chain. A whole backward pass counts as its I and, right
after it, its W: both end when it ends, and I hands its gradient on no later.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.schedule import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Schedule, ScheduleProblem


class Chains(NamedTuple):
    """
    What compiled loops read of a pipeline, by number of pass.

    ``before`` is the pass that it waits for, -1 if none, and ``lag`` for how long after that one's end; ``after`` are
    those that wait for it (n, 2); ``change`` is what it adds to the memory of its device.
    """

    before: Ints
    lag: Floats
    after: Ints
    seconds: Floats
    device: Ints
    change: Floats
    allowed: Floats
    first: Ints


def chains(problem: ScheduleProblem) -> Chains:
    """Lay a pipeline out by number of pass."""
    m, chunks = problem.num_micro_batches, problem.num_chunks
    grid = np.arange(3 * chunks * m).reshape(3, chunks, m)
    before, lag = np.full((3, chunks, m), -1), np.zeros((3, chunks, m))
    before[0, 1:], lag[0, 1:] = grid[0, :-1], problem.transfer[:, None]
    before[1, :-1], lag[1, :-1] = grid[1, 1:], problem.transfer[:, None]
    before[1, -1] = grid[0, -1]
    before[2] = grid[1]
    after = np.full((3, chunks, m, 2), -1)
    after[0, :-1, :, 0], after[0, -1, :, 0] = grid[0, 1:], grid[1, -1]
    after[1, :, :, 0], after[1, 1:, :, 1] = grid[2], grid[1, :-1]
    kept = problem.kept_for_weight
    change = np.stack((problem.activation, kept - problem.activation, -kept))
    return Chains(
        before.ravel(),
        lag.ravel(),
        after.reshape(-1, 2),
        np.repeat(problem.seconds[:3].ravel(), m),
        np.repeat(np.tile(problem.device, 3), m),
        np.repeat(change.ravel(), m),
        problem.allowed,
        rows_of_devices(problem),
    )


def rows_of_devices(problem: ScheduleProblem) -> Ints:
    """Row of the first pass of each device in a flat order, and the number of passes (devices + 1,)."""
    hosted = np.bincount(problem.device, minlength=problem.num_devices)
    return np.concatenate(([0], np.cumsum(3 * problem.num_micro_batches * hosted))).astype(np.int64)


def numbers(problem: ScheduleProblem, schedule: Schedule) -> Ints:
    """Flat order of a schedule as numbers of passes; B becomes I and W."""
    m, chunks = problem.num_micro_batches, problem.num_chunks
    passes, _ = schedule.flat
    fused = passes[:, 0] == BACKWARD
    kinds = np.where(fused, INPUT_GRADIENT, passes[:, 0])
    split = np.repeat((kinds * chunks + passes[:, 1]) * m + passes[:, 2], 1 + fused)
    second = np.cumsum(1 + fused)[fused] - 1
    split[second] += (WEIGHT_GRADIENT - INPUT_GRADIENT) * chunks * m
    return np.asarray(split, dtype=np.int64)


def schedule_of(problem: ScheduleProblem, order: Ints, kind: str) -> Schedule:
    """Turn a flat order of numbers of passes into a schedule."""
    m = problem.num_micro_batches
    cell, micro_batch = np.divmod(order, m)
    passes = np.column_stack((*np.divmod(cell, problem.num_chunks), micro_batch))
    return Schedule(kind, tuple(np.split(passes, rows_of_devices(problem)[1:-1])))
