r"""
The step time of many ordinary configurations at once, as terms that a calibration weighs.

A configuration is a chain of L equal layers divided over the chunks of pp stages, on equal nodes in Megatron-LM's order
(tensor ranks fastest, then context ranks, replicas and stages). Its step time is that of the latency model ``step``
(``taut.formulations.latency``). Compiled loops count how often a step waits for each unit of work. Units u are the 9
passes of ``taut.formulations.batch.unit_seconds`` (1), a hop inside a node and one between nodes, and one second of a
gradient reduction and of a gather at the stated links. Data of a row: prices :math:`\pi_u` of the units, layers
:math:`n_j` of every chunk, m micro-batches, parameters, rings, and the hops of its replicas.

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
(6) Of an order-priced schedule, for every pattern of hops of a configuration's replicas
    (``taut.formulations.batch.unit_seconds`` (5)) the order of its passes runs under the prices of the units
    (``taut.formulations.order_division`` (3) to (5)). The step waits for the device and pattern whose end and reduction
    (3) are last. The counts are those of the passes and transfers on a longest path to that end.

With calibrated coefficients :math:`c_k` of the units' terms (``taut.formulations.batch.unit_seconds``)

(7) :math:`T(c) = \max_w \sum_k c_k a_{wk}` over what a step may wait for, w: piecewise linear in c.
(8) At given coefficients the terms of the w that is waited for are :math:`x_k = a_{wk}`, and :math:`T(c) = c x`: the
    counts times the units' terms, with the largest optimizer of any device and a constant of 1. A pass at its floor has
    its own terms times what they lack, so that :math:`T(c) = c x` holds there too.
(9) A coefficient below 1 on gradient rings stands for what a stack hides. Reductions that overlap are hidden by the
    model itself, and then priced at the rate of NCCL's rings (``taut.data.calibration``).

A fit takes the terms at its last coefficients, and fits again. The evaluator prices the same configuration to the
digit, hundreds of times slower: it makes tables of all ranges of layers, where a row has one division. It is therefore
no second evaluator that a plan could be priced by, and has no placements, mixed devices or experts.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.analytic.layer_costs import OPTIMIZER_TRAFFIC_BYTES
from taut.data.arrays import Flags, Floats, Ints
from taut.data.calibration import RING_EFFICIENCY, TERMS
from taut.data.memory import ParameterBytes
from taut.data.stack import SCHEDULES
from taut.formulations.batch.configurations import (
    FOLDED,
    GPIPE,
    ORDERED,
    Configurations,
    device_parameters,
    head_parameters,
    layer_parameters,
    table_parameters,
)
from taut.formulations.batch.unit_seconds import Layouts, Machine, hop_seconds, layouts, pass_floors, pass_terms
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.gradient_reductions import BUCKET_PER_REPLICA, LEAST_BUCKET
from taut.formulations.schedules.orders import order_of
from taut.formulations.schedules.recurrence import BACKWARD, critical_counts, execute

INSIDE, BETWEEN, REDUCED, GATHERED, TIED, UNITS = 9, 10, 11, 12, 13, 14
"""Units beyond the passes, 3 of what by 3 passes, and how many there are."""


class Rows(NamedTuple):
    """
    Figures of configurations by row: ``layers`` (rows, chunks), parameters, seconds, bytes, and hops.

    ``reduction`` (rows, stages) seconds are at the stated links, of which overlap never hides the share
    ``last_bucket``; ``gather`` (rows, stages) seconds per byte, of ``weight`` and ``gradient`` bytes of a parameter;
    ``slowdown`` of kernels beside. ``apart`` says that embedding and head are for themselves, (5). ``first`` and
    ``patterns`` of ``leaves`` are as in ``taut.formulations.batch.unit_seconds``.
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
    Layers, embeddings, heads and gather seconds of one micro-batch by stage (stages, 4), forward and backward.

    Counts of those that hide gathers are subtracted; ``seconds`` (stages, 2) are of all passes and of the backward
    pass.
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
            found[i, TIED] += rows.tied[i]
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
    tied, reduction, share = rows.tied[i] * price[TIED], rows.reduction[i], rows.last_bucket[i]
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
            if rows.tied[i] > 0.0 and x in (0, pp - 1) and ended + rows.tied[i] * price[TIED] > best:
                best, waited, chosen, tied = ended + rows.tied[i] * price[TIED], x, pattern, True
    execute(order, first, seconds, _transfers(rows, chosen, device, price, hops), m, start, end)
    counts, crossed = critical_counts(order, first, device, start, end, m, waited)
    _sum(rows.layers[i], passes, counts, crossed, hops, found)
    if tied:
        found[TIED] += rows.tied[i]
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


COMPUTE, PIPELINE, DATA, OPTIMIZER, CONSTANT, GATHER = slice(0, 5), 5, 6, 7, 8, 9
"""Places in ``TERMS``."""
WORK, OF_LAYERS = slice(0, 4), slice(0, 3)
"""Terms of passes that are work, and units that are passes of layers."""


@dataclass(frozen=True)
class StepForm:
    """
    The step time of configurations as a function of a calibration's coefficients, (7).

    Units have terms ``passes`` (rows, 9, 5), at least ``floors`` (rows, 9), and ``hops`` (rows, 2); ``optimizer``
    (rows,) seconds are the largest; ``overlap`` says whose reductions overlap, at the coefficient
    ``rings_where_hidden`` of (9), and ``shares`` whose are gathers and scatters, at their coefficient.
    """

    rows: Rows
    schedule: Ints
    passes: Floats
    floors: Floats
    hops: Floats
    optimizer: Floats
    overlap: Flags
    shares: Flags
    rings_where_hidden: float

    def seconds(self, coefficients: Floats) -> Floats:
        """Step time at coefficients in the order of ``TERMS``, (rows,)."""
        prices = self._prices(coefficients)
        rest = coefficients[OPTIMIZER] * self.optimizer + coefficients[CONSTANT]
        return np.asarray((self._counts(prices) * prices).sum(axis=1) + rest)

    def terms(self, coefficients: Floats) -> Floats:
        """Terms at coefficient 1 of what is waited for at these, (rows, terms), (8); ``data_parallel`` above 0."""
        prices = self._prices(coefficients)
        counts, found = self._counts(prices), np.ones((len(self.schedule), len(TERMS)))
        found[:, COMPUTE] = np.einsum("ru,rut->rt", counts[:, :INSIDE], self._at_floors(coefficients))
        found[:, PIPELINE] = (counts[:, [INSIDE, BETWEEN]] * self.hops).sum(axis=1)
        gathered = np.where(self.shares, counts[:, REDUCED], 0.0)
        rings = counts[:, TIED] + counts[:, REDUCED] - gathered
        found[:, DATA], found[:, GATHER] = rings * prices[:, TIED] / coefficients[DATA], counts[:, GATHERED] + gathered
        found[:, OPTIMIZER] = self.optimizer
        return found

    def layer_terms(self, coefficients: Floats) -> Floats:
        """What passes of layers alone are of ``terms``, without what tensor ranks exchange in them, (rows, terms)."""
        counts, found = self._counts(self._prices(coefficients)), np.zeros((len(self.schedule), len(TERMS)))
        passes = self._at_floors(coefficients)
        found[:, WORK] = np.einsum("ru,rut->rt", counts[:, OF_LAYERS], passes[:, OF_LAYERS, WORK])
        return found

    def _at_floors(self, coefficients: Floats) -> Floats:
        """Terms of the passes, of those below their floors times what they lack, (rows, 9, 5), (8)."""
        work = self.passes[..., WORK] @ coefficients[WORK]
        below = (work < self.floors) & (work > 0.0)
        if not below.any():
            return self.passes
        found = self.passes.copy()
        found[below, WORK] *= (self.floors[below] / work[below])[:, None]
        return found

    def _prices(self, coefficients: Floats) -> Floats:
        """Seconds of every unit, (rows, units)."""
        prices, rings = np.empty((len(self.schedule), UNITS)), coefficients[DATA]
        prices[:, :INSIDE] = self.passes @ coefficients[COMPUTE]
        prices[:, :INSIDE] += np.maximum(self.floors - self.passes[..., WORK] @ coefficients[WORK], 0.0)
        prices[:, [INSIDE, BETWEEN]] = coefficients[PIPELINE] * self.hops
        prices[:, TIED] = np.where(self.overlap & (rings < 1.0), self.rings_where_hidden, rings)
        prices[:, REDUCED] = np.where(self.shares, coefficients[GATHER], prices[:, TIED])
        prices[:, GATHERED] = coefficients[GATHER]
        return prices

    def _counts(self, prices: Floats) -> Floats:
        """How often each unit is waited for, (rows, units)."""
        found, ordered = np.zeros_like(prices), ORDERED[self.schedule]
        closed_counts(self.rows, np.flatnonzero(~ordered), prices, found)
        ordered_counts(self.rows, np.flatnonzero(ordered), self.schedule, prices, found)
        return found


def step_form(
    c: Configurations,
    machine: Machine,
    per_parameter: ParameterBytes,
    rings_where_hidden: float = 1.0 / RING_EFFICIENCY,
    gather_slowdown: float = 0.0,
) -> StepForm:
    """Step time of configurations at the coefficient (9) of hidden rings, with kernels slowed down by gathers."""
    held = device_parameters(c)
    shards = np.where(c.zero > 0, c.dp * c.cp, 1)
    optimizer = OPTIMIZER_TRAFFIC_BYTES * held.max(axis=1) / shards / machine.rates.memory_bandwidth
    passes = pass_terms(c, machine).reshape(len(c), INSIDE, -1)
    floors = pass_floors(c, machine).reshape(len(c), INSIDE)
    rows = _rows(c, layouts(c, machine), held, per_parameter, gather_slowdown)
    hops, overlap = hop_seconds(c, machine), c.overlap == 1
    return StepForm(rows, c.schedule, passes, floors, hops, optimizer, overlap, c.zero >= 2, rings_where_hidden)


def _rows(c: Configurations, lies: Layouts, held: Ints, each: ParameterBytes, slowdown: float) -> Rows:
    """Figures that the counts are found from."""
    replicas, scattered = c.dp * c.cp, (c.zero >= 2) & (c.pp == 1)
    sharded = (scattered | (c.zero == 3)) & (replicas > 1)
    left = [[each.exchanged_at_end(zero, in_pipeline=piped) for zero in range(4)] for piped in (False, True)]
    at_end = np.array(left)[(c.pp > 1).astype(int), c.zero]
    bucket = np.maximum(LEAST_BUCKET, BUCKET_PER_REPLICA * replicas)[:, None] / np.maximum(held, 1)
    overlap = ((c.overlap == 1) & (c.zero < 2))[:, None]
    apart = (c.tied == 1) & (c.pp > 1) & ~FOLDED[c.schedule]
    return Rows(
        pp=c.pp,
        micro_batches=c.num_micro_batches,
        trips=np.where(c.schedule == GPIPE, 1.0, np.maximum(1.0, c.num_micro_batches / c.pp)),
        layers=c.division,
        chunks=c.pp * c.vpp,
        one=layer_parameters(c),
        table=table_parameters(c),
        head=head_parameters(c),
        reduction=at_end[:, None] * held * lies.ring,
        last_bucket=np.where(overlap, np.minimum(1.0, bucket), 1.0),
        tied=np.where(apart, each.gradient * table_parameters(c) * lies.tied, 0.0),
        gather=np.where(sharded[:, None], lies.ring / 2, 0.0),
        weight=np.where(c.zero == 3, each.weight, 0),
        gradient=np.where(scattered, each.gradient, 0),
        slowdown=slowdown,
        apart=(c.division[:, 0] == 0) | (c.division[np.arange(len(c)), c.pp * c.vpp - 1] == 0),
        first=lies.first,
        patterns=lies.count,
        leaves=lies.leaves,
    )
