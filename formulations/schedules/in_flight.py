r"""
The counts of micro-batches in flight that a device goes through, compiled.

A forward pass of chunk c adds one to :math:`n_c`, and the pass that yields the gradient by the weights, or a whole
backward pass, takes it away. Of the counts n in between only those matter that no other one reaches in every chunk. (1)
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT


@jit
def largest_counts(kinds: Ints, chunks: Ints, number: int) -> Ints:
    """
    Counts (1) of one device.

    ``kinds``, ``chunks``: kind of every pass in execution order, and which of the device's chunks it is of (n,);
    ``number``: chunks of the device. Returns distinct counts (states, chunks), in no order.
    """
    counts, kept, found = np.zeros(number, np.int64), np.empty((64, number), np.int64), 0
    for row in range(len(kinds)):
        if kinds[row] != FORWARD:
            counts[chunks[row]] -= kinds[row] != INPUT_GRADIENT
            continue
        counts[chunks[row]] += 1
        # A further forward pass adds to what is there.
        if row + 1 < len(kinds) and kinds[row + 1] == FORWARD:
            continue
        reached, left = False, 0
        for k in range(found):
            if (kept[k] >= counts).all():
                reached = True
                break
        if reached:
            continue
        for k in range(found):
            if not (kept[k] <= counts).all():
                kept[left] = kept[k]
                left += 1
        if left == len(kept):
            kept = np.concatenate((kept, np.empty_like(kept)))
        kept[left] = counts
        found = left + 1
    return kept[:found]
