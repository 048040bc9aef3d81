r"""
A pipeline as a disjunctive graph, the form of a job-shop problem that compiled loops read.

Sets and data are those of ``taut.formulations.schedules.schedule``. The nodes are the passes. Pass (kind, chunk c,
micro-batch i) with kinds F = 0, I = 1 and W = 2 has the number

.. math:: x = (\text{kind} \cdot C + c) \, m + i. \tag{1}

Conjunctive arcs are the precedences that every schedule keeps. Each pass x has one predecessor :math:`\pi(x)` at most,
and starts no earlier than :math:`\ell_x` seconds after its end [1]_:

.. math::
    \pi(F_{c,i}) = F_{c-1,i}, \quad \pi(I_{c,i}) = I_{c+1,i}, \quad \pi(I_{C-1,i}) = F_{C-1,i}, \quad
    \pi(W_{c,i}) = I_{c,i}. \tag{2}

That F precedes I on the same chunk follows along this chain. Disjunctive arcs join the passes of one device; a schedule
orients them, so it is an order of the passes for every device, kept as one *flat order*: numbers of passes, device
after device (3). A whole backward pass B counts as its I followed by its W: both end when B ends, so I hands its
gradient on no earlier (4).

References
----------
.. [1] Balas, E. (1969). Machine sequencing via disjunctive graphs: an implicit enumeration algorithm. Operations
       Research 17: 941-957.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.schedules.schedule import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Schedule, ScheduleProblem


class DisjunctiveGraph(NamedTuple):
    """
    The n = 3 C m passes of a pipeline by number (1).

    Parameters
    ----------
    predecessor
        Number of the pass that each waits for (n,), -1 if none, (2).
    lag
        Seconds from the predecessor's end until the pass may start (n,).
    successors
        Numbers of the passes that wait for each (n, 2), -1 where there are fewer.
    seconds
        Duration of each pass (n,).
    device
        Device of each pass (n,).
    memory_change
        Units that each pass adds to the memory of its device (n,).
    allowed
        Memory limit of each device with room for rounding, in units (devices,).
    first
        Row of each device's first pass in a flat order, then n (devices + 1,), (3).
    """

    predecessor: Ints
    lag: Floats
    successors: Ints
    seconds: Floats
    device: Ints
    memory_change: Floats
    allowed: Floats
    first: Ints


def disjunctive_graph(problem: ScheduleProblem) -> DisjunctiveGraph:
    """
    Number the passes of a pipeline and list their conjunctive arcs, (1) and (2).

    Returns durations in seconds, memory in the units of the pipeline.
    """
    m, chunks = problem.num_micro_batches, problem.num_chunks
    grid = np.arange(3 * chunks * m).reshape(3, chunks, m)
    predecessor, lag = np.full((3, chunks, m), -1), np.zeros((3, chunks, m))
    predecessor[0, 1:], lag[0, 1:] = grid[0, :-1], problem.transfer[:, None]
    predecessor[1, :-1], lag[1, :-1] = grid[1, 1:], problem.transfer[:, None]
    predecessor[1, -1] = grid[0, -1]
    predecessor[2] = grid[1]
    successors = np.full((3, chunks, m, 2), -1)
    successors[0, :-1, :, 0], successors[0, -1, :, 0] = grid[0, 1:], grid[1, -1]
    successors[1, :, :, 0], successors[1, 1:, :, 1] = grid[2], grid[1, :-1]
    kept = problem.kept_for_weight
    memory_change = np.stack((problem.activation, kept - problem.activation, -kept))
    return DisjunctiveGraph(
        predecessor.ravel(),
        lag.ravel(),
        successors.reshape(-1, 2),
        np.repeat(problem.seconds[:3].ravel(), m),
        np.repeat(np.tile(problem.device, 3), m),
        np.repeat(memory_change.ravel(), m),
        problem.allowed,
        first_rows(problem),
    )


def first_rows(problem: ScheduleProblem) -> Ints:
    """
    Row of each device's first pass in a flat order, (3).

    Returns rows, then the number of passes (devices + 1,).
    """
    hosted = np.bincount(problem.device, minlength=problem.num_devices)
    return np.concatenate(([0], np.cumsum(3 * problem.num_micro_batches * hosted))).astype(np.int64)


def flat_order(problem: ScheduleProblem, schedule: Schedule) -> Ints:
    """
    Flat order of a schedule, (3); B becomes I and W, (4).

    Returns numbers of the passes, device after device (3 C m,).
    """
    m, chunks = problem.num_micro_batches, problem.num_chunks
    passes, _ = schedule.flat
    fused = passes[:, 0] == BACKWARD
    kinds = np.where(fused, INPUT_GRADIENT, passes[:, 0])
    split = np.repeat((kinds * chunks + passes[:, 1]) * m + passes[:, 2], 1 + fused)
    second = np.cumsum(1 + fused)[fused] - 1
    split[second] += (WEIGHT_GRADIENT - INPUT_GRADIENT) * chunks * m
    return np.asarray(split, dtype=np.int64)


def schedule_of(problem: ScheduleProblem, order: Ints, kind: str) -> Schedule:
    """
    Turn a flat order into a schedule.

    ``order``: numbers of its passes, device after device (3 C m,); ``kind``: name of the schedule. Returns orders of
    (kind of pass, chunk, micro-batch) for every device.
    """
    m = problem.num_micro_batches
    cell, micro_batch = np.divmod(order, m)
    passes = np.column_stack((*np.divmod(cell, problem.num_chunks), micro_batch))
    return Schedule(kind, tuple(np.split(passes, first_rows(problem)[1:-1])))
