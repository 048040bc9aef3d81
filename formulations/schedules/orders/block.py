r"""
Building blocks: the passes of one micro-batch in time, repeated for every micro-batch.

Time is counted in slots, one for each pass that a device runs for a micro-batch: with v chunks a device the block is
repeated every :math:`3 v` slots. From one device to the next the forward passes move by ``down`` slots where the device
number rises and by ``up`` slots where it falls, gradients the same, and the pass after a turn (the next chunk on the
same device, or the first gradient) starts at the first slot that fits ``turns``. So chunk c of micro-batch i has its
slots

.. math:: F_{c,i} = F_c + 3 v i, \qquad I_{c,i} = I_c + 3 v i, \tag{1}

and holds memory for :math:`I_c - F_c` slots, :math:`(I_c - F_c) / 3v` micro-batches at a time. On the V, where device d
has chunks d and 2p - 1 - d, that sums to :math:`2 p (\text{down} + \text{up}) + O(1)` slots on every device: peak
memory is the share :math:`(\text{down} + \text{up}) / 6` of 1F1B's [1]_. (2)

V-Min is down = up = 1, V-Half down = 2 and up = 1; their turns, in the slots of device d, are

.. math::
    \text{V-Min:} \quad & F = d,\; f = 2p - 1 - d,\; I = 2p + e + d,\; i = 4p + e - 1 - d, \quad
        e = 2 [3 \mid p], \tag{3} \\
    \text{V-Half:} \quad & F = 2d,\; f = 3p - 2 - d,\; I = 3p - 1 + e + 2d,\; i = 6p - 2 + e - d, \quad
        e = 3 [2 \mid p]. \tag{4}

Gradients by the weights are not part of the block: each takes the first free slot after its I. (5)

References
----------
.. [1] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37,
       section 3.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem


@dataclass(frozen=True, eq=False)
class Block:
    """
    Slots of one micro-batch.

    ``forward``, ``input_gradient``: slot of each chunk's passes (C,); ``period``: slots after which the next
    micro-batch follows.
    """

    forward: Ints
    input_gradient: Ints
    period: int


def v_min(stages: int) -> Block:
    """Block of V-Min, (3): a third of 1F1B's memory."""
    d = np.arange(stages)
    extra = 2 if stages % 3 == 0 else 0
    return v_block(d, 2 * stages - 1 - d, 2 * stages + extra + d, 4 * stages + extra - 1 - d)


def v_half(stages: int) -> Block:
    """Block of V-Half, (4): half of 1F1B's memory."""
    d = np.arange(stages)
    extra = 3 if stages % 2 == 0 else 0
    first = 3 * stages - 1 + extra
    return v_block(2 * d, 3 * stages - 2 - d, first + 2 * d, 6 * stages - 2 + extra - d)


def v_block(down: Ints, up: Ints, gradient_of_up: Ints, gradient_of_down: Ints) -> Block:
    """Block of the V from slots by device."""
    return Block(np.concatenate((down, up[::-1])), np.concatenate((gradient_of_down, gradient_of_up[::-1])), 6)


def repeat(problem: ScheduleProblem, block: Block, kind: str) -> Schedule:
    """
    Repeat a block for every micro-batch and run each device's passes in the order of their slots, (1) and (5).

    ``block``: slots of one micro-batch; passes of one device that share a slot keep the order F, I, W; ``kind``: what
    to call the schedule. Returns feasible but for the memory limit.
    """
    m, chunks = problem.num_micro_batches, problem.num_chunks
    slots = np.stack((block.forward, block.input_gradient, _weights(problem, block)))
    when = slots[:, :, None] + block.period * np.arange(m)
    passes = np.stack(np.meshgrid(np.arange(3), np.arange(chunks), np.arange(m), indexing="ij"), axis=-1)
    orders = []
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d)
        orders.append(passes[:, hosted].reshape(-1, 3)[np.argsort(when[:, hosted].ravel(), kind="stable")])
    return Schedule(kind, tuple(orders))


def _weights(problem: ScheduleProblem, block: Block) -> Ints:
    """Slots of the gradients by the weights, (5), in the order of the gradients by the input."""
    found = np.zeros(problem.num_chunks, dtype=np.int64)
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d)
        taken = {int(s) % block.period for s in (*block.forward[hosted], *block.input_gradient[hosted])}
        for c in hosted[np.argsort(block.input_gradient[hosted])]:
            slot = int(block.input_gradient[c]) + 1
            while slot % block.period in taken and len(taken) < block.period:
                slot += 1
            taken.add(slot % block.period)
            found[c] = slot
    return found
