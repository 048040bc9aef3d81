r"""
How often a step waits for each unit of work: the compiled loops over rows.

Units u are the 9 passes of ``taut.formulations.batch.unit_seconds`` (1), a hop inside a node and one between nodes, and
one second of a gradient reduction and of a gather at the stated links. Data of a row: prices :math:`\pi_u` of the
units, layers :math:`n_j` of every chunk, m micro-batches, parameters, rings, and the hops of its replicas.

(1) A chunk's three passes have :math:`n_j` layers each, the first one the embedding and the last one the head; under
    ZeRO-2 and 3 also the gathers and scatters that the passes do not hide, where these count less what hides them
    (``taut.formulations.sharding`` (2)).
(2) 1F1B and GPipe: with t of a stage's passes, the step waits for
    :math:`\sum_x t_x + (m - 1) \max_x t_x`, its trips there and back, and, until stage x has ended, less the backward
    passes and hops back of the stages before x (``taut.formulations.latency`` (3) and (4)).
(3) Then stage x reduces its gradients, of which overlap leaves the last bucket or what the backward pass is too short
    for, or the two holders of a tied embedding exchange theirs (``taut.formulations.gradient_reductions`` (1) to (3)).
(4) The counts are those of the stage and replica for which (3) ends last. Their sum at the prices is the time, and
    since it is the largest of such sums, it is convex in prices above what they hide.
(5) Where the first or the last chunk has no layers, embedding and head are gathered and scattered apart
    (``taut.formulations.strategy`` (2)), elsewhere with the first and the last layer.

Of an order-priced schedule, for every pattern of hops of a configuration's
replicas (``taut.formulations.batch.unit_seconds`` (5)) the order of its passes runs under the prices of the units
(``taut.formulations.order_times`` (1) to (3)), with the end of every device's last pass. The step waits for the device
x and pattern whose end and reduction (3) are last. The counts are those of the passes and transfers on a longest path
to that end (6): what is priced is the same as by the evaluator, and (6) says by which terms.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.stack import SCHEDULES
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.plan_orders import order_of
from taut.formulations.schedules.recurrence import BACKWARD, critical_counts, execute

INSIDE, BETWEEN, REDUCED, GATHERED, UNITS = 9, 10, 11, 12, 13
"""Units beyond the passes, 3 of what by 3 passes, and how many there are."""


class Rows(NamedTuple):
    """
    Figures of configurations by row.

    ``layers`` (rows, chunks); ``one``, ``table``, ``head`` parameters; ``reduction`` (rows, stages) seconds at the
    stated links, ``last_bucket`` (rows, stages) the share that overlap never hides, 1 without overlap; ``tied``
    seconds; ``gather`` (rows, stages) seconds per byte, and ``weight`` and ``gradient`` the bytes of a parameter that
    are gathered and scattered, ``slowdown`` of kernels beside; ``apart`` whether embedding and head are for themselves,
    (5); ``first`` and ``patterns`` of ``leaves`` as in ``taut.formulations.batch.unit_seconds``.
    """

    pp: Ints
    micro_batches: Ints
    trips: Floats
    layers: Ints
    chunks: Ints
    one: Ints
    table: Ints
    head: Ints
    reduction: Floats
    last_bucket: Floats
    tied: Floats
    gather: Floats
    weight: Ints
    gradient: Ints
    slowdown: float
    apart: Flags
    first: Ints
    patterns: Ints
    leaves: Flags


class Stages(NamedTuple):
    """
    What one micro-batch costs the stages of a row, (stages, 4) each: layers, embeddings, heads and seconds of gathers.

    ``forward`` and ``backward`` hold counts, of which those that hide gathers are subtracted, ``seconds`` (stages, 2)
    those of all passes and of the backward pass.
    """

    forward: Floats
    backward: Floats
    seconds: Floats


@jit
def closed_counts(rows: Rows, chosen: Ints, prices: Floats, found: Floats) -> None:
    """Fill the counts (rows, units) of the chosen rows of 1F1B and GPipe, (2) to (4)."""
    most = rows.layers.shape[1]
    stages = Stages(np.zeros((most, 4)), np.zeros((most, 4)), np.zeros((most, 2)))
    for i in chosen:
        slowest = _stages(rows, i, prices[i], stages)
        x, pattern, tied = _last(rows, i, prices[i], stages.seconds)
        _pipeline(rows, i, stages, slowest, x, found[i])
        _hops(rows, i, x, pattern, found[i])
        if tied:
            found[i, REDUCED] += rows.tied[i]
        else:
            reduce(rows, i, x, prices[i], stages.seconds[x, 1], stages.backward[x], found[i])


@jit_inside
def _stages(rows: Rows, i: int, price: Floats, stages: Stages) -> int:
    """Fill what the stages cost, and return the slowest."""
    slowest, pp = 0, rows.pp[i]
    layers, gather, seconds = rows.layers[i], rows.gather[i], stages.seconds
    for x in range(pp):
        plain_counts(layers[x], x == 0, x == pp - 1, stages.forward[x], stages.backward[x])
        if gather[x] > 0.0:
            gather_counts(rows, i, x, x, price, stages.forward[x], stages.backward[x])
        seconds[x, 1] = backward_seconds(stages.backward[x], price)
        seconds[x, 0] = forward_seconds(stages.forward[x], price) + seconds[x, 1]
        if seconds[x, 0] > seconds[slowest, 0]:
            slowest = x
    return slowest


@jit_inside
def forward_seconds(counts: Floats, price: Floats) -> float:
    """Seconds of a forward pass of such counts (4,)."""
    passed = counts[0] * price[0] + counts[1] * price[3] + counts[2] * price[6]
    return float(passed + counts[3] * price[GATHERED])


@jit
def backward_seconds(counts: Floats, price: Floats) -> float:
    """Seconds of both parts of a backward pass of such counts (4,)."""
    layers, embeddings, heads = price[1] + price[2], price[4] + price[5], price[7] + price[8]
    passed = counts[0] * layers + counts[1] * embeddings + counts[2] * heads
    return float(passed + counts[3] * price[GATHERED])


@jit_inside
def plain_counts(layers: int, first: bool, last: bool, forward: Floats, backward: Floats) -> None:
    """Counts (4,) of a chunk's passes forward and backward without shards, (1)."""
    forward[0], forward[1], forward[2], forward[3] = layers, first, last, 0.0
    backward[0], backward[1], backward[2], backward[3] = layers, first, last, 0.0


@jit_inside
def gather_counts(rows: Rows, i: int, chunk: int, stage: int, price: Floats, forward: Floats, backward: Floats) -> None:
    """Change the counts (4,) of a chunk's passes to those with what gathers and scatters leave, (1) and (5)."""
    layers, first, last = rows.layers[i, chunk], chunk == 0, chunk == rows.chunks[i] - 1
    apart, rate = rows.apart[i], rows.gather[i, stage]
    table, head = rows.table[i] * first, rows.head[i] * last
    whole, parts = layers * rows.one[i] + table + head, layers + (first + last if apart else 0)
    if parts == 1:
        at_first, at_last = whole, whole
    elif apart:
        at_first, at_last = table if first else rows.one[i], head if last else rows.one[i]
    else:
        at_first, at_last = rows.one[i] + table, rows.one[i] + head
    gathered, scattered = rate * rows.weight[i], rate * rows.gradient[i]
    ahead, embedded = max(layers - (0 if apart and last else 1), 0), first if parts > 1 else 0
    shown, beside = 1.0 - rows.slowdown, gathered * (whole - at_first)
    forward[3] = gathered * at_first + rows.slowdown * beside
    if shown * beside * price[GATHERED] > ahead * price[0] + embedded * price[3]:
        forward[0], forward[1], forward[3] = layers - ahead, first - embedded, gathered * whole
    beside = gathered * (whole - at_last) + scattered * (whole - at_first)
    backward[3] = gathered * at_last + scattered * at_first
    if shown * beside * price[GATHERED] > backward_seconds(backward, price) - backward[3] * price[GATHERED]:
        backward[0], backward[1], backward[2] = 0.0, 0.0, 0.0
        backward[3] += beside
    else:
        backward[3] += rows.slowdown * beside


@jit_inside
def _last(rows: Rows, i: int, price: Floats, seconds: Floats) -> tuple[int, int, bool]:
    """Stage and pattern that the step waits for, and whether it is for a tied embedding, (4)."""
    pp, best, found = rows.pp[i], -np.inf, (0, 0, False)
    tied, reduction, share = rows.tied[i] * price[REDUCED], rows.reduction[i], rows.last_bucket[i]
    for pattern in range(rows.first[i], rows.first[i] + rows.patterns[i]):
        leaves, end = rows.leaves[pattern], 0.0
        for x in range(pp - 1):
            end += 2.0 * rows.trips[i] * price[INSIDE + leaves[x]]
        if tied > 0.0 and end + tied > best:
            best, found = end + tied, (0, pattern, True)
        for x in range(pp):
            left = left_after(reduction[x] * price[REDUCED], share[x], seconds[x, 1])
            if end + left > best:
                best, found = end + left, (x, pattern, False)
            if x < pp - 1:
                end -= seconds[x, 1] + price[INSIDE + leaves[x]]
    return found


@jit_inside
def _pipeline(rows: Rows, i: int, stages: Stages, slowest: int, stage: int, found: Floats) -> None:
    """Add the passes of all stages and of the slowest again, less the backward passes of those before one, (2)."""
    again = rows.micro_batches[i] - 1
    for x in range(rows.pp[i]):
        times = 1 + (again if x == slowest else 0)
        add_forward(stages.forward[x], times, found)
        add_backward(stages.backward[x], times - (x < stage), found)


@jit_inside
def add_forward(counts: Floats, times: float, found: Floats) -> None:
    """Add a forward pass of such counts (4,) so often."""
    for kind in range(3):
        found[3 * kind] += times * counts[kind]
    found[GATHERED] += times * counts[3]


@jit_inside
def add_backward(counts: Floats, times: float, found: Floats) -> None:
    """Add both parts of a backward pass of such counts (4,) so often."""
    for kind in range(3):
        found[3 * kind + 1] += times * counts[kind]
        found[3 * kind + 2] += times * counts[kind]
    found[GATHERED] += times * counts[3]


@jit_inside
def _hops(rows: Rows, i: int, stage: int, pattern: int, found: Floats) -> None:
    """Add the trips there and back, less the hops back of the stages before one, (2)."""
    for x in range(rows.pp[i] - 1):
        found[INSIDE + rows.leaves[pattern, x]] += 2.0 * rows.trips[i] - (x < stage)


@jit_inside
def left_after(whole: float, share: float, backward: float) -> float:
    """Seconds that a reduction of so many leaves after a stage's last pass, (3)."""
    return float(whole if share == 1.0 else max(whole * share, whole - backward))


@jit
def reduce(rows: Rows, i: int, stage: int, price: Floats, seconds: float, backward: Floats, found: Floats) -> None:
    """Add what ``left_after`` prices: the whole, its last bucket, or the whole less a backward pass of counts (4,)."""
    whole, share = rows.reduction[i, stage], rows.last_bucket[i, stage]
    if share == 1.0 or whole * price[REDUCED] * share >= whole * price[REDUCED] - seconds:
        found[REDUCED] += whole * share
    else:
        found[REDUCED] += whole
        add_backward(backward, -1.0, found)


def ordered_counts(rows: Rows, chosen: Ints, schedule: Ints, prices: Floats, found: Floats) -> None:
    """Fill the counts (rows, units) of the chosen rows, whose ``schedule`` is an index into ``SCHEDULES``."""
    for i in chosen.tolist():
        vpp = int(rows.chunks[i] // rows.pp[i])
        order = order_of(SCHEDULES[schedule[i]], int(rows.pp[i]), vpp, int(rows.micro_batches[i]))
        _row(rows, i, order.passes, order.first, order.device, prices[i], found[i])


@jit
def _row(rows: Rows, i: int, order: Ints, first: Ints, device: Ints, price: Floats, found: Floats) -> None:
    """Counts of one row, (6)."""
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


@jit_inside
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


@jit_inside
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
