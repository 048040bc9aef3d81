r"""
Floors of kernels: no pass of a layer is priced below what the fastest kernels ever measured on its device would take.

A calibration multiplies terms by fitted coefficients, and a search prefers the shapes whose seconds the fit
underestimates most (the winner's curse). Sets: kernels q of a pass; classes of kernels with best measured rates
:math:`R(x)` at sizes x, in a precision, of a device (``data/catalog/floors.yaml``). A rate between two sizes is
interpolated in log x; rates of public tables are the best between the sizes before and after. Beyond the sizes the last
one holds, but grouped products and attention rise on in log x as between their last two sizes, up to the best rate of
any product or attention core of the device: rates that flatten out rise no faster than before. Variables: none. A
kernel takes at least

(1) :math:`F / R(F)` for a product of F = 2 m n k FLOP;
(2) :math:`F / R(\min(m, n, k))` for products in one kernel; the least side is usually the rows of an expert, in the
    mean of all experts;
(3) :math:`F / R(w)` for a causal attention core of tokens that attend to w others, forward :math:`F = 2 b a s w d`,
    half the square, and backward 5/2 of that at a rate of its own;
(4) :math:`\phi B / W` for B bytes of norms, sums and functions, with the best measured bandwidth W and
    :math:`\phi = 1/2`, as kernels that are fused leave out at most half of the counted traffic;

and nothing for launches, which graphs hide. A pass runs its kernels one after another, so that with coefficients
:math:`c_k` and terms :math:`t_k` of ``taut.data.analytic.layer_work``

(5) :math:`t = \max(\sum_k c_k t_k, \sum_q f_q)`.

Errors of terms may cancel, as fits do not tell terms apart, so only the sum is bounded. A precision without rates has
the device's peak in their place, and attention the half-precision rates times the ratio of peaks, as frameworks compute
it in either. Where operators were measured for a device they are its prices, and there are no floors. Rates of
collectives and hosts' links are in the same file; they limit coefficients (``taut.data.calibration``), as a coefficient
below 1 says what is hidden and not how fast a link is.

A floor is as good as its measurements. It assumes balanced routing, kernels of one stream, and that fusion leaves out
no more than :math:`\phi` in the sum over a pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from taut.data.arrays import Floats
from taut.data.device import HALF, DeviceSpec, Precision
from taut.data.spec import Positive, Spec
from taut.data.units import GIGA, GIGABYTE, TERA

FUSED = 0.5
"""Phi of (4)."""
BACKWARD_WORK = 2.5
"""FLOP of an attention core backward over those forward, (3)."""
Kernel = Literal[
    "product",
    "grouped",
    "attention",
    "attention_backward",
    "memory",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "host_link",
]


class BestRate(Spec):
    """
    Best measured rates of one kind of kernel: TFLOP/s, and GB/s (1e9 bytes) of what moves bytes.

    ``at`` are the sizes of the rates: GFLOP of a product, rows of an expert, tokens that attention reaches, MB of a
    message; empty where one rate holds for all. ``channels`` is the most channels of an attention head that the rates
    are for, ``ranks`` those of a collective, on ``nodes`` nodes; collectives have their bus bandwidth.
    """

    kernel: Kernel
    devices: Annotated[list[str], Field(min_length=1)]
    precision: list[Precision] = []
    at: list[Positive] = []
    rate: Annotated[list[Positive], Field(min_length=1)]
    channels: Annotated[int, Field(gt=0)] | None = None
    ranks: Annotated[int, Field(gt=1)] | None = None
    nodes: Annotated[int, Field(gt=0)] = 1
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _ordered(self) -> "BestRate":
        if len(self.rate) != max(len(self.at), 1):
            raise ValueError(f"rate: has {len(self.rate)} entries, expected one for each size of at")
        if self.at != sorted(set(self.at)):
            raise ValueError("at: expected growing sizes")
        return self

    def curve(self, unit: float) -> "Curve":
        """The rates in SI units, at sizes in units of this many."""
        sizes = np.log(np.array(self.at or [1.0]) * unit)
        return Curve(sizes, np.array(self.rate) * (TERA if self.kernel in COMPUTING else GIGABYTE))


COMPUTING = ("product", "grouped", "attention", "attention_backward")


class CoreSizes(NamedTuple):
    """Samples, tokens, heads of queries and keys, channels of a head, tokens attended to (all unless stated)."""

    batch: ArrayLike
    seq: ArrayLike
    heads: ArrayLike
    kv_heads: ArrayLike
    head_dim: ArrayLike
    window: ArrayLike | None = None

    @property
    def reach(self) -> ArrayLike:
        """Tokens that one token attends to."""
        return self.seq if self.window is None else self.window


@dataclass(frozen=True)
class Curve:
    """Rates at logarithms of sizes, beyond the last rising on as the last two do, up to ``ceiling`` (0: no further)."""

    log_sizes: Floats
    rates: Floats
    ceiling: float = 0.0

    def at(self, size: Floats) -> Floats:
        """Rates at sizes, interpolated in their logarithm."""
        if len(self.rates) == 1:
            return np.full(np.shape(size), self.rates[0])
        sizes = np.log(np.maximum(size, np.finfo(np.float64).tiny))
        rates, last = np.interp(sizes, self.log_sizes, self.rates), self.rates[-1]
        if self.ceiling <= last:
            return np.asarray(rates)
        slope = max((last - self.rates[-2]) / (self.log_sizes[-1] - self.log_sizes[-2]), 0.0)
        return np.asarray(
            np.minimum(rates + slope * np.maximum(sizes - self.log_sizes[-1], 0.0), max(self.ceiling, last))
        )

    def up_to(self, ceiling: float) -> "Curve":
        """The same that rises on up to another rate."""
        return replace(self, ceiling=ceiling)


@dataclass(frozen=True)
class FastestKernels:
    """Seconds of the fastest measured kernels, (1) to (3); attention's rates by channels of a head, ascending."""

    product: Curve
    grouped: Curve
    attention: list[tuple[float, Curve]] = field(default_factory=list)
    backward: list[tuple[float, Curve]] = field(default_factory=list)

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0) -> Floats:
        """Least seconds of matrix products, (1) and (2)."""
        rows, columns, sums, count = (np.asarray(size, dtype=np.float64) for size in (m, n, k, groups))
        flop = 2.0 * rows * columns * sums * count
        alone = flop / self.product.at(flop)
        if not np.any(count > 1):
            return np.asarray(alone)
        together = flop / self.grouped.at(np.minimum(np.minimum(rows, columns), sums))
        return np.where(count > 1, together, alone)

    def attention_seconds(self, sizes: CoreSizes, *, backward: bool = False) -> Floats:
        """Least seconds of attention cores, forward or backward, (3)."""
        curves, times = (self.backward, BACKWARD_WORK) if backward else (self.attention, 1.0)
        each = sizes.batch, sizes.seq, sizes.heads, sizes.head_dim, sizes.reach
        samples, tokens, queries, channels, reach = (np.asarray(size, dtype=np.float64) for size in each)
        flop = times * 2.0 * samples * queries * tokens * reach * channels
        rate = curves[-1][1].at(reach)
        for most, curve in reversed(curves[:-1]):
            rate = np.where(channels <= most, curve.at(reach), rate)
        return np.asarray(flop / rate)


def fastest_kernels(best: Iterable[BestRate], device: DeviceSpec, precision: Precision) -> FastestKernels:
    """The fastest kernels of a device in a precision, its peak in the place of what was not measured."""
    rows = list(best)
    peak = np.array([device.peak_flops(precision) or np.inf])
    core = np.array([device.attention_flops(precision) or np.inf])
    nothing, fastest = np.zeros(1), Curve(np.zeros(1), peak)
    product = _curve(rows, "product", precision, GIGA, fastest)
    # Without rates of grouped products the best of all products holds: at few rows they are slower still.
    grouped = _curve(rows, "grouped", precision, 1.0, Curve(nothing, np.array([product.rates.max()])))
    half = next((one for one in HALF if one in device.peak_tflops), precision)
    quicker = (device.peak_flops(precision) or 1.0) / (device.peak_flops(half) or 1.0) if precision != half else 1.0
    kernels: tuple[Kernel, Kernel] = ("attention", "attention_backward")
    forward, backward = (
        _heads(rows, kernel, half, max(quicker, 1.0), Curve(nothing, core * max(quicker, 1.0))) for kernel in kernels
    )
    # No backward pass was ever faster than the best forward pass.
    most = max(float(curve.rates.max()) for _, curve in forward)
    return FastestKernels(
        product,
        grouped.up_to(float(product.rates.max())),
        [(channels, curve.up_to(most)) for channels, curve in forward],
        [(channels, curve.up_to(most)) for channels, curve in backward],
    )


def best_bandwidth(best: Iterable[BestRate], device: DeviceSpec) -> float:
    """Bytes per second of counted traffic that no fused kernel exceeds, (4)."""
    found = [max(row.rate) * GIGABYTE for row in best if row.kernel == "memory"]
    return max(found, default=device.memory_bandwidth) / FUSED


def _curve(rows: list[BestRate], kernel: Kernel, precision: Precision, unit: float, otherwise: Curve) -> Curve:
    found = [row.curve(unit) for row in rows if row.kernel == kernel and precision in row.precision]
    return found[0] if found else otherwise


def _heads(
    rows: list[BestRate], kernel: Kernel, half: Precision, quicker: float, otherwise: Curve
) -> list[tuple[float, Curve]]:
    """Rates by the most channels of a head, in half precision times what another one is quicker."""
    found = [row for row in rows if row.kernel == kernel and half in row.precision]
    curves = [(float(row.channels or np.inf), row.curve(1.0)) for row in found]
    curves.sort(key=lambda one: one[0])
    return [(most, Curve(curve.log_sizes, curve.rates * quicker)) for most, curve in curves] or [(np.inf, otherwise)]
