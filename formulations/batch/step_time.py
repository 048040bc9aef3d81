r"""
The step time of many ordinary configurations at once, as terms that a calibration weighs.

A configuration is a chain of L equal layers divided over the chunks of pp stages, on equal nodes in Megatron-LM's order
(tensor ranks fastest, then context ranks, replicas and stages). Its step time is that of the latency model ``step``
(``taut.formulations.latency``): the largest, over stages and replicas, of sums of terms that calibrated coefficients
:math:`c_k` multiply, so that

(1) :math:`T(c) = \max_w \sum_k c_k a_{wk}` over what a step may wait for, w: piecewise linear in c.
(2) At given coefficients the terms of the w that is waited for are :math:`x_k = a_{wk}`, and :math:`T(c) = c x`. What
    ``counts`` and ``order_counts`` find is how often that w waits for each unit of work, and x are these counts times
    the units' terms (``taut.formulations.batch.unit_seconds``), with the largest optimizer of any device and a
    constant of 1.
    A pass at its floor has its own terms times what they lack, so that :math:`T(c) = c x` holds there too.
(3) A coefficient below 1 on gradient rings stands for what a stack hides. Reductions that overlap are hidden by the
    model itself, and then priced at the rate of NCCL's rings (``taut.data.calibration``).

A fit takes the terms at its last coefficients, and fits again. The evaluator prices the same configuration to the
digit, hundreds of times slower.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.analytic.layer_costs import OPTIMIZER_TRAFFIC_BYTES
from taut.data.arrays import Flags, Floats, Ints
from taut.data.calibration import RING_EFFICIENCY, TERMS
from taut.data.memory import ParameterBytes
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
from taut.formulations.batch.counts import (
    BETWEEN,
    GATHERED,
    INSIDE,
    REDUCED,
    UNITS,
    Rows,
    closed_counts,
    ordered_counts,
)
from taut.formulations.batch.unit_seconds import Layouts, Machine, hop_seconds, layouts, pass_floors, pass_terms
from taut.formulations.gradient_reductions import BUCKET_PER_REPLICA, LEAST_BUCKET

COMPUTE, PIPELINE, DATA, OPTIMIZER, CONSTANT, GATHER = slice(0, 5), 5, 6, 7, 8, 9
"""Places in ``TERMS``."""
WORK, OF_LAYERS = slice(0, 4), slice(0, 3)
"""Terms of passes that are work, and units that are passes of layers."""


@dataclass(frozen=True)
class StepForm:
    """
    The step time of configurations as a function of a calibration's coefficients, (1).

    ``passes`` (rows, 9, 5) and ``hops`` (rows, 2) hold the units' terms, ``floors`` (rows, 9) the least seconds of work
    of the passes, ``optimizer`` (rows,) the seconds of the largest; ``overlap`` says whose reductions overlap, and
    ``rings_where_hidden`` is (3)'s coefficient.
    """

    rows: Rows
    schedule: Ints
    passes: Floats
    floors: Floats
    hops: Floats
    optimizer: Floats
    overlap: Flags
    rings_where_hidden: float

    def seconds(self, coefficients: Floats) -> Floats:
        """Step time at coefficients in the order of ``TERMS``, (rows,)."""
        prices = self._prices(coefficients)
        rest = coefficients[OPTIMIZER] * self.optimizer + coefficients[CONSTANT]
        return np.asarray((self._counts(prices) * prices).sum(axis=1) + rest)

    def terms(self, coefficients: Floats) -> Floats:
        """Terms at coefficient 1 of what is waited for at these, (rows, terms), (2); ``data_parallel`` above 0."""
        prices = self._prices(coefficients)
        counts, found = self._counts(prices), np.ones((len(self.schedule), len(TERMS)))
        found[:, COMPUTE] = np.einsum("ru,rut->rt", counts[:, :INSIDE], self._at_floors(coefficients))
        found[:, PIPELINE] = (counts[:, [INSIDE, BETWEEN]] * self.hops).sum(axis=1)
        found[:, DATA] = counts[:, REDUCED] * prices[:, REDUCED] / coefficients[DATA]
        found[:, OPTIMIZER], found[:, GATHER] = self.optimizer, counts[:, GATHERED]
        return found

    def layer_terms(self, coefficients: Floats) -> Floats:
        """What passes of layers alone are of ``terms``, without what tensor ranks exchange in them, (rows, terms)."""
        counts, found = self._counts(self._prices(coefficients)), np.zeros((len(self.schedule), len(TERMS)))
        passes = self._at_floors(coefficients)
        found[:, WORK] = np.einsum("ru,rut->rt", counts[:, OF_LAYERS], passes[:, OF_LAYERS, WORK])
        return found

    def _at_floors(self, coefficients: Floats) -> Floats:
        """Terms of the passes, of those below their floors times what they lack, (rows, 9, 5), (2)."""
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
        prices[:, REDUCED] = np.where(self.overlap & (rings < 1.0), self.rings_where_hidden, rings)
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
    """
    The step time of configurations on one machine.

    ``machine``: rates and links; ``per_parameter``: bytes of a parameter's weight and gradient; ``rings_where_hidden``:
    coefficient of overlapped gradient rings in the place of one below 1, (3); ``gather_slowdown``: share of their pace
    that kernels lose beside gathers and scatters (``taut.formulations.sharding`` (2)).
    """
    held = device_parameters(c)
    shards = np.where(c.zero > 0, c.dp * c.cp, 1)
    optimizer = OPTIMIZER_TRAFFIC_BYTES * held.max(axis=1) / shards / machine.rates.memory_bandwidth
    passes = pass_terms(c, machine).reshape(len(c), INSIDE, -1)
    floors = pass_floors(c, machine).reshape(len(c), INSIDE)
    rows = _rows(c, layouts(c, machine), held, per_parameter, gather_slowdown)
    hops, overlap = hop_seconds(c, machine), c.overlap == 1
    return StepForm(rows, c.schedule, passes, floors, hops, optimizer, overlap, rings_where_hidden)


def _rows(c: Configurations, lies: Layouts, held: Ints, each: ParameterBytes, slowdown: float) -> Rows:
    """Figures that the counts are found from."""
    replicas, sharded = c.dp * c.cp, (c.zero >= 2) & (c.dp * c.cp > 1)
    at_end = np.array([each.exchanged_at_end(zero) for zero in range(4)])[c.zero]
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
        gradient=np.full(len(c), each.gradient),
        slowdown=slowdown,
        apart=(c.division[:, 0] == 0) | (c.division[np.arange(len(c)), c.pp * c.vpp - 1] == 0),
        first=lies.first,
        patterns=lies.count,
        leaves=lies.leaves,
    )
