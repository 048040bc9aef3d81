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
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit

INSIDE, BETWEEN, REDUCED, GATHERED, UNITS = 9, 10, 11, 12, 13
"""Units beyond the passes, 3 of what by 3 passes, and how many there are."""


class Rows(NamedTuple):
    """
    Figures of configurations by row.

    ``layers`` (rows, chunks); ``one``, ``table``, ``head`` parameters; ``reduction`` (rows, stages) seconds at the
    stated links, ``last_bucket`` (rows, stages) the share that overlap never hides, 1 without overlap; ``tied``
    seconds; ``gather`` (rows, stages) seconds per byte, and ``weight`` and ``gradient`` the bytes of a parameter that
    are gathered and scattered, ``slowdown`` of kernels beside; ``apart`` whether embedding and head are for themselves,
    (5); ``first`` and ``patterns`` of ``leaves`` as in ``taut.formulations.batch.layouts``.
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


@jit
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


@jit
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


@jit
def plain_counts(layers: int, first: bool, last: bool, forward: Floats, backward: Floats) -> None:
    """Counts (4,) of a chunk's passes forward and backward without shards, (1)."""
    forward[0], forward[1], forward[2], forward[3] = layers, first, last, 0.0
    backward[0], backward[1], backward[2], backward[3] = layers, first, last, 0.0


@jit
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


@jit
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


@jit
def _pipeline(rows: Rows, i: int, stages: Stages, slowest: int, stage: int, found: Floats) -> None:
    """Add the passes of all stages and of the slowest again, less the backward passes of those before one, (2)."""
    again = rows.micro_batches[i] - 1
    for x in range(rows.pp[i]):
        times = 1 + (again if x == slowest else 0)
        add_forward(stages.forward[x], times, found)
        add_backward(stages.backward[x], times - (x < stage), found)


@jit
def add_forward(counts: Floats, times: float, found: Floats) -> None:
    """Add a forward pass of such counts (4,) so often."""
    for kind in range(3):
        found[3 * kind] += times * counts[kind]
    found[GATHERED] += times * counts[3]


@jit
def add_backward(counts: Floats, times: float, found: Floats) -> None:
    """Add both parts of a backward pass of such counts (4,) so often."""
    for kind in range(3):
        found[3 * kind + 1] += times * counts[kind]
        found[3 * kind + 2] += times * counts[kind]
    found[GATHERED] += times * counts[3]


@jit
def _hops(rows: Rows, i: int, stage: int, pattern: int, found: Floats) -> None:
    """Add the trips there and back, less the hops back of the stages before one, (2)."""
    for x in range(rows.pp[i] - 1):
        found[INSIDE + rows.leaves[pattern, x]] += 2.0 * rows.trips[i] - (x < stage)


@jit
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
