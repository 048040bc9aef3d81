r"""
How often a step of an order-priced schedule waits for each unit of work.

For every pattern of hops of a configuration's replicas (``taut.formulations.batch.layouts`` (2)) the order of its
passes runs under the prices of the units (``taut.formulations.order_times`` (1) to (3)), with the end of
every device's last pass. The step waits for the device x and pattern whose end and reduction
(``taut.formulations.batch.counts`` (3)) are last. The counts are those of the passes and transfers on a longest path to
that end (1): what is priced is the same as by the evaluator, and (1) says by which terms.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.stack import SCHEDULES
from taut.formulations.batch.counts import (
    BETWEEN,
    INSIDE,
    REDUCED,
    Rows,
    add_backward,
    add_forward,
    backward_seconds,
    forward_seconds,
    gather_counts,
    left_after,
    plain_counts,
    reduce,
)
from taut.formulations.compiled import jit
from taut.formulations.schedules.plan_orders import order_of
from taut.formulations.schedules.recurrence import BACKWARD, critical_counts, execute


def ordered_counts(rows: Rows, chosen: Ints, schedule: Ints, prices: Floats, found: Floats) -> None:
    """Fill the counts (rows, units) of the chosen rows, whose ``schedule`` is an index into ``SCHEDULES``."""
    for i in chosen.tolist():
        vpp = int(rows.chunks[i] // rows.pp[i])
        order = order_of(SCHEDULES[schedule[i]], int(rows.pp[i]), vpp, int(rows.micro_batches[i]))
        _row(rows, i, order.passes, order.first, order.device, prices[i], found[i])


@jit
def _row(rows: Rows, i: int, order: Ints, first: Ints, device: Ints, price: Floats, found: Floats) -> None:
    """Counts of one row, (1)."""
    m, chunks, pp = rows.micro_batches[i], len(device), rows.pp[i]
    passes, seconds, backward = np.zeros((chunks, 2, 4)), np.zeros((4, chunks)), np.zeros((pp, 4))
    for c in range(chunks):
        plain_counts(rows.layers[i, c], c == 0, c == chunks - 1, passes[c, 0], passes[c, 1])
        if rows.gather[i, device[c]] > 0.0:
            gather_counts(rows, i, c, device[c], price, passes[c, 0], passes[c, 1])
        _durations(passes[c], rows.layers[i, c], c == 0, c == chunks - 1, price, seconds[:, c])
        backward[device[c]] += passes[c, 1]
    hidden = np.array([backward_seconds(backward[x], price) for x in range(pp)])
    hops, start, end = np.zeros(chunks, np.int64), np.zeros(len(order)), np.zeros(len(order))
    best, waited, chosen, tied = -np.inf, 0, 0, False
    for pattern in range(rows.first[i], rows.first[i] + rows.patterns[i]):
        execute(order, first, seconds, _transfers(rows, pattern, device, price, hops), m, start, end)
        for x in range(pp):
            ended = end[first[x + 1] - 1]
            after = ended + left_after(rows.reduction[i, x] * price[REDUCED], rows.last_bucket[i, x], hidden[x])
            if after > best:
                best, waited, chosen, tied = after, x, pattern, False
            if rows.tied[i] > 0.0 and x in (0, pp - 1) and ended + rows.tied[i] * price[REDUCED] > best:
                best, waited, chosen, tied = ended + rows.tied[i] * price[REDUCED], x, pattern, True
    execute(order, first, seconds, _transfers(rows, chosen, device, price, hops), m, start, end)
    counts, crossed = critical_counts(order, first, device, start, end, m, waited)
    _sum(rows.layers[i], passes, counts, crossed, hops, found)
    if tied:
        found[REDUCED] += rows.tied[i]
    else:
        reduce(rows, i, waited, price, hidden[waited], backward[waited], found)


@jit
def _durations(counts: Floats, layers: int, first: bool, last: bool, price: Floats, seconds: Floats) -> None:
    """Fill seconds (4,) of F, I, W and the whole backward pass; what hides gathers is taken from I alone."""
    seconds[0] = forward_seconds(counts[0], price)
    seconds[BACKWARD] = backward_seconds(counts[1], price)
    seconds[2] = layers * price[2] + first * price[5] + last * price[8]
    seconds[1] = seconds[BACKWARD] - seconds[2]


@jit
def _transfers(rows: Rows, pattern: int, device: Ints, price: Floats, hops: Ints) -> Floats:
    """Seconds from every chunk to the next; ``hops`` gets the unit of each, -1 where they share a device."""
    seconds, stages = np.zeros(len(device) - 1), max(device) + 1
    for c in range(len(device) - 1):
        near, far = min(device[c], device[c + 1]), max(device[c], device[c + 1])
        hops[c] = -1
        if near != far:
            place = near if far == near + 1 else stages - 1
            hops[c] = BETWEEN if rows.leaves[pattern, place] else INSIDE
            seconds[c] = price[hops[c]]
    return seconds


@jit
def _sum(layers: Ints, passes: Floats, counts: Ints, crossed: Ints, hops: Ints, found: Floats) -> None:
    """Add the units of so many passes (4, C) and transfers (C,)."""
    last = len(passes) - 1
    for c in range(last + 1):
        both, by_input, by_weight = counts[BACKWARD, c], counts[1, c], counts[2, c]
        add_forward(passes[c, 0], counts[0, c], found)
        add_backward(passes[c, 1], both + by_input, found)
        # Where the parts are split, W takes its own time, and I the rest of the backward pass.
        found[2] += (by_weight - by_input) * layers[c]
        found[5] += (by_weight - by_input) * (c == 0)
        found[8] += (by_weight - by_input) * (c == last)
        if hops[c] >= 0:
            found[hops[c]] += crossed[c]
