r"""
Assembly of schedules on the V from building blocks: repeat, squeeze, reorder [1]_.

The construction counts slots, as if all passes were equal and transfers free, so one pass over all blocks serves every
memory limit and all times. For p devices and m micro-batches:

1. *Repeat.* Every block of the V (``taut.solver.schedules.construct.v_blocks``) without collisions is repeated every 6
   slots, for :math:`\max(m, 2p)` micro-batches, each W in the next free slot. Let M be the chunks that it holds, at
   most 2p. All that follows keeps to M, so the schedule is feasible for every limit from M on.
2. *Reorder the warm-up* (``taut.solver.schedules.construct.v_reordering``), in one of two ways, or leave it.
3. *Truncate*: surplus micro-batches, if m < 2p, leave.
4. *Squeeze* the schedule and reorder the cool-down.
5. *Backfill* (``taut.solver.schedules.construct.backfilling``): where a device waits, the first later pass that is
   ready moves ahead. Where micro-batches have left, step 4 and this one run once more, and both schedules count.

The blocks of V-Min and V-Half are also backfilled as they are. Distinct schedules are kept for each (p, m) and priced
with the times and limits given. For equal passes, no transfers, :math:`m \ge p` and M chunks on each device, from
V-Min's memory to 2p, the best takes

.. math:: 6m + \max(6p - 1 - 3M, \; 3p - 1 - M) \tag{1}

slots on up to 16 devices, which is the proven optimum wherever one is known. On larger pipelines the number of blocks
is bounded by the number of their passes.

References
----------
.. [1] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.schedules.orders.block import Block, v_half, v_min
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, v_shape
from taut.solver.schedules.construct.backfilling import backfill
from taut.solver.schedules.construct.v_blocks import collision_free_blocks, repeat_block
from taut.solver.schedules.construct.v_reordering import (
    AS_IS,
    BY_FORWARDS,
    BY_GRADIENTS,
    reorder_cool_down,
    reorder_warm_up,
)
from taut.solver.schedules.construct.v_sequences import Sequences, flatten, peak_chunks, squeeze, truncate
from taut.solver.schedules.disjunctive_graph import DisjunctiveGraph, disjunctive_graph, schedule_of
from taut.solver.schedules.longest_path import longest_path

_PASSES = 8_000_000
"""Passes of all schedules that are assembled for one (p, m): eight megabytes, and about a second."""


def assembled_schedules(problem: ScheduleProblem, count: int) -> list[Schedule]:
    """
    Shortest of the assembled schedules that the memory limits of a pipeline allow.

    ``problem``: the pipeline, of any times and limits; ``count``: most schedules to return. Returns schedules of
    distinct makespans, shortest first; empty if the chunks are not on the V or nothing fits.
    """
    if not np.array_equal(problem.device, v_shape(problem.num_devices)):
        return []
    sequences = assembled_sequences(problem.num_devices, problem.num_micro_batches)
    lengths = _lengths(disjunctive_graph(problem), sequences)
    distinct, places = np.unique(lengths, return_index=True)
    best = places[np.isfinite(distinct)][:count]
    return [schedule_of(problem, _flattened(sequences[place]), "blocks") for place in best]


def _flattened(sequences: Sequences) -> Ints:
    order = np.empty(sequences.size, dtype=np.int64)
    flatten(sequences, order)
    return order


@jit
def _lengths(graph: DisjunctiveGraph, sequences: npt.NDArray[np.int8]) -> Floats:
    """Makespan of each order; infinite if it breaks a memory limit."""
    lengths = np.full(len(sequences), np.inf)
    order = np.empty(sequences[0].size, dtype=np.int64)
    for a in range(len(sequences)):
        flatten(sequences[a], order)
        if _keeps_limits(graph, order):
            lengths[a] = longest_path(graph, order)
    return lengths


@jit
def _keeps_limits(graph: DisjunctiveGraph, order: Ints) -> bool:
    for d in range(len(graph.first) - 1):
        held = 0.0
        for r in range(graph.first[d], graph.first[d + 1]):
            held += graph.memory_change[order[r]]
            if held > graph.allowed[d]:
                return False
    return True


@lru_cache(maxsize=8)
def assembled_sequences(stages: int, m: int) -> npt.NDArray[np.int8]:
    """
    All distinct schedules of an assembly, as sequences of types of pass.

    ``stages``, ``m``: devices and micro-batches. Returns types of pass (schedules, p, 6m), read-only, in a fixed order.
    """
    left = max(1, _PASSES // (6 * stages * max(m, 2 * stages)))
    fixed = np.stack([_by_device(block(stages)) for block in (v_min, v_half)])
    sequences = [_backfilled(fixed, m)]
    slots = collision_free_blocks(stages)
    for by in (BY_FORWARDS, AS_IS, BY_GRADIENTS):
        some = np.linspace(0, len(slots) - 1, min(left, len(slots))).astype(np.int64)
        sequences.append(_assembled(slots[some], m, by))
        left -= len(some)
    found = np.concatenate(sequences)
    _, places = np.unique(found.reshape(len(found), -1).view(f"V{found[0].size}"), return_index=True)
    found = found[np.sort(places)]
    found.setflags(write=False)
    return found


def _by_device(block: Block) -> Ints:
    """Slots of F, f, I, i by device (p, 4)."""
    down, up = np.split(block.forward, 2)
    gradient_of_down, gradient_of_up = np.split(block.input_gradient, 2)
    return np.stack((down, up[::-1], gradient_of_up[::-1], gradient_of_down), axis=1)


@jit
def _assembled(slots: Ints, m: int, by: int) -> npt.NDArray[np.int8]:
    """Schedules of blocks by steps 1 to 5; those that hold more than 2p chunks or cannot run are left out."""
    blocks, stages, _ = slots.shape
    rounds = 1 if m >= 2 * stages else 2
    found = np.empty((rounds * blocks, stages, 6 * m), dtype=np.int8)
    whole = np.empty((stages, 6 * max(m, 2 * stages)), dtype=np.int8)
    warm, slot = whole.copy(), np.empty((stages, 6 * m), dtype=np.int64)
    short, cool = np.empty((stages, 6 * m), dtype=np.int8), np.empty((stages, 6 * m), dtype=np.int8)
    n = 0
    for a in range(blocks):
        repeat_block(slots[a], whole)
        most = peak_chunks(whole)
        if most > 2 * stages:
            continue
        if by == AS_IS:
            truncate(whole, m, short)
        else:
            reorder_warm_up(whole, most, by, warm)
            truncate(warm, m, short)
        for _ in range(rounds):
            if not squeeze(short, slot):
                break
            reorder_cool_down(short, slot, most, cool)
            if not backfill(cool, most, found[n]):
                break
            short[:] = found[n]
            n += 1
    return found[:n].copy()


@jit
def _backfilled(slots: Ints, m: int) -> npt.NDArray[np.int8]:
    """Schedules of blocks by steps 1 and 5 alone."""
    blocks, stages, _ = slots.shape
    found = np.empty((blocks, stages, 6 * m), dtype=np.int8)
    sequence = np.empty((stages, 6 * m), dtype=np.int8)
    for a in range(blocks):
        repeat_block(slots[a], sequence)
        backfill(sequence, peak_chunks(sequence), found[a])
    return found
