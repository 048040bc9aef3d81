r"""
Layer costs from measured operators.

The passes are those of ``taut.data.analytic.layer_work``, with the seconds of every matrix product :math:`(m, n, k)`
looked up in a measured table instead of an operator model:

(1) an input gradient's :math:`(m, k, n)` and a weight gradient's :math:`(n, k, m)` are read from the same table:
    kernels of the three layouts run at rates within a few per cent;
(2) the attention core forward is read from a measured table, where there is one, and with a window of w tokens is s / w
    times the core of w tokens; backward it takes 5/2 of that (``taut.data.analytic.operator_times``, (3));
(3) memory traffic, launches, activations and the optimizer are those of ``taut.data.analytic.layer_costs``.

Tables of measured operators have matrix products and causal attention. A table is CSV in the columns of aiconfigurator,
latency in milliseconds: ``m, n, k`` for products of an :math:`m \times k` with a :math:`k \times n` matrix;
``batch_size, isl, num_heads, num_key_value_heads, head_dim`` for causal attention, forward. Of rows that state a number
format the half-precision ones are taken, bf16 and fp16 alike, since both run at one rate; of rows at one point the
fastest.

(4) A point's rate is its FLOP over its seconds, :math:`2 m n k` or :math:`4 b s^2 a d`.
(5) Rates are interpolated log-linearly along one axis after another: n, k, m for products; channels, heads per
    key-value head, heads, samples, tokens for attention. Each axis has the points measured under the values before,
    so the table need not be a full grid; at a measured point the measured seconds come back.
(6) Beyond the largest measured size the rate of the largest holds, and below the smallest the seconds of the
    smallest, which is too long; both warn, and a factor of more than 8 is refused.
(7) A product whose sizes lie outside is taken as its transpose, with m and n exchanged, if that lies nearer.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut.data.analytic.device_rates import stated_operators
from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.operator_times import ATTENTION_BACKWARD, OperatorModel
from taut.data.arrays import Floats
from taut.data.costs import CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.model import ModelSpec
from taut.data.read import read_text, rows_of
from taut.data.spec import shorten
from taut.data.units import MILLISECOND
from taut.errors import DataError, ExtrapolationWarning, MissingProfileError

FARTHEST = 8
LARGEST_SIZE = 10**9
HALF_PRECISION = {"bfloat16", "bf16", "float16", "fp16", "half"}
FORMATS = ("gemm_dtype", "attn_dtype", "kv_cache_dtype")
GEMM_COLUMNS = ("m", "n", "k")
ATTENTION_COLUMNS = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
WHOLE = {"window_size": "0", "step": "0"}
"""Columns whose rows count only at this value (or empty): no window, no tokens from before."""


@dataclass(frozen=True, kw_only=True)
class RateTable:
    """Measured rates in FLOP per second, as a tree with one level for each axis."""

    name: str
    axes: tuple[str, ...]
    rates: dict[int, Any] = field(default_factory=dict)

    def put(self, point: Sequence[int], rate: float) -> None:
        """Enter a rate in FLOP per second at sizes in the order of the axes; of two at one point the higher stays."""
        branch = self.rates
        for size in point[:-1]:
            branch = branch.setdefault(size, {})
        branch[point[-1]] = max(rate, branch.get(point[-1], 0.0))

    def at(self, point: Sequence[int]) -> float:
        """FLOP per second at sizes, (5) and (6); ``MissingProfileError`` if the measured ones are too far."""
        return self._along(self.rates, point, 0)

    def _along(self, branch: Any, point: Sequence[int], depth: int) -> float:
        if depth == len(point):
            return float(branch)
        size = point[depth]
        below, above = (
            max((x for x in branch if x <= size), default=0),
            min((x for x in branch if x >= size), default=0),
        )
        if below == above:
            return self._along(branch[size], point, depth + 1)
        if not (below and above):
            nearest = below or above
            self._check(self.axes[depth], size, nearest)
            return self._along(branch[nearest], point, depth + 1) * min(1.0, size / nearest)
        share = math.log(size / below) / math.log(above / below)
        low, high = (self._along(branch[end], point, depth + 1) for end in (below, above))
        return float(low ** (1 - share) * high**share)

    def _check(self, axis: str, size: int, nearest: int) -> None:
        if not nearest / FARTHEST <= size <= nearest * FARTHEST:
            bound = f"at most {nearest * FARTHEST}" if size > nearest else f"at least {-(-nearest // FARTHEST)}"
            raise MissingProfileError(f"{self.name}: {axis} is {size}, expected {bound} (measured: {nearest})")
        taken = "beyond the largest measured" if size > nearest else "below the smallest measured"
        kept = "rate" if size > nearest else "seconds"
        warnings.warn(
            f"{self.name}: {axis} {taken}, {nearest}, is taken at its {kept}", ExtrapolationWarning, stacklevel=2
        )

    def distance(self, point: Sequence[int]) -> float:
        """Largest factor by which a size leaves the sizes measured anywhere on its axis; 1 inside."""
        return max(max(1.0, low / size, size / high) for size, (low, high) in zip(point, self.spans, strict=True))

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest size measured on each axis."""
        found, branches = [], [self.rates]
        for _ in self.axes:
            found.append((min(map(min, branches)), max(map(max, branches))))
            branches = [child for branch in branches for child in branch.values()]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class GemmTable:
    """Measured matrix products."""

    rates: RateTable

    def seconds(self, m: int, n: int, k: int) -> float:
        """Seconds of a product, (4) to (7)."""
        as_is, turned = (n, k, m), (m, k, n)
        nearer = self.rates.distance(turned) < self.rates.distance(as_is)
        return 2.0 * m * n * k / self.rates.at(turned if nearer else as_is)


@dataclass(frozen=True, slots=True)
class AttentionTable:
    """Measured causal attention, forward."""

    rates: RateTable

    def seconds(self, batch: int, seq: int, heads: int, kv_heads: int, head_dim: int) -> float:
        """Seconds of an attention core, (4) to (6)."""
        rate = self.rates.at((head_dim, heads // kv_heads, heads, batch, seq))
        return 4.0 * batch * seq**2 * heads * head_dim / rate


def read_gemms(path: Path) -> GemmTable:
    """Rates of matrix products by n, k and m; ``DataError`` without a column, a figure above 0 or half precision."""
    table = RateTable(name=path.name, axes=("n", "k", "m"))
    for _, (m, n, k), seconds in _measured(path, GEMM_COLUMNS):
        table.put((n, k, m), 2.0 * m * n * k / seconds)
    return GemmTable(table)


def read_attention(path: Path) -> AttentionTable:
    """Rates of causal attention by channels, heads, samples and tokens; ``DataError`` as for ``read_gemms``."""
    table = RateTable(
        name=path.name, axes=("head_dim", "num_heads/num_key_value_heads", "num_heads", "batch_size", "isl")
    )
    for where, (batch, seq, heads, kv_heads, head_dim), seconds in _measured(path, ATTENTION_COLUMNS):
        if heads % kv_heads:
            raise DataError(f"{where}: num_heads is {heads}, expected a multiple of num_key_value_heads ({kv_heads})")
        table.put((head_dim, heads // kv_heads, heads, batch, seq), 4.0 * batch * seq**2 * heads * head_dim / seconds)
    return AttentionTable(table)


def _measured(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, list[int], float]]:
    """Place, sizes and seconds of every row that counts."""
    found, lines = rows_of(read_text(path, "a table of operators"), path, "a table of operators")
    expected = (*columns, "latency")
    for column in expected:
        if column not in found:
            raise DataError(f"{path}: column {column} is missing, expected {', '.join(expected)}")
    taken = False
    for number, line in enumerate(lines, start=1):
        if _counts(line):
            taken, where = True, f"{path} row {number}"
            sizes = [_figure(line, column, where, whole=True) for column in columns]
            yield where, [int(size) for size in sizes], _figure(line, "latency", where) * MILLISECOND
    if not taken:
        raise DataError(f"{path}: has no row in half precision, expected {' or '.join(sorted(HALF_PRECISION))}")


def _counts(line: dict[str, str]) -> bool:
    """Whether a row is of half precision, over all tokens from the first on."""
    stated = (line[column].lower() for column in FORMATS if line.get(column))
    return all(words in HALF_PRECISION for words in stated) and all(
        (line.get(column) or value) == value for column, value in WHOLE.items()
    )


def _figure(line: dict[str, str], column: str, where: str, *, whole: bool = False) -> float:
    text = line.get(column)
    try:
        value = float(int(text or "") if whole else float(text or ""))
    except (OverflowError, TypeError, ValueError):
        value = math.nan
    if not (0 < value <= LARGEST_SIZE):
        expected = f"{'a whole number' if whole else 'milliseconds'} above 0, at most {LARGEST_SIZE:.0e}"
        raise DataError(f"{where}: {column} is {shorten(text)}, expected {expected}")
    return value


@dataclass(frozen=True, slots=True)
class MeasuredOperators:
    """Measured products, and attention from a table or a model, with the methods of an operator model."""

    gemms: GemmTable
    attention: AttentionTable | OperatorModel

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0) -> Floats:
        """Seconds of matrix products of one size, each as measured alone, (1)."""
        alone = self.gemms.seconds(*(max(round(float(np.asarray(size))), 1) for size in (m, n, k)))
        return np.asarray(np.asarray(groups) * alone)

    def attention_seconds(self, sizes: CoreSizes, *, backward: bool = False) -> Floats:
        """Seconds of one attention core, forward or backward, (2)."""
        times = ATTENTION_BACKWARD if backward else 1.0
        if isinstance(self.attention, OperatorModel):
            return times * self.attention.attention_seconds(sizes)
        given = (sizes.batch, sizes.reach, sizes.heads, sizes.kv_heads, sizes.head_dim)
        alone = self.attention.seconds(*(round(float(np.asarray(size))) for size in given))
        windows = np.asarray(sizes.seq, dtype=np.float64) / np.asarray(sizes.reach, dtype=np.float64)
        return np.asarray(times * (windows * alone))


def costs_from_operators(
    gemms: GemmTable,
    model: ModelSpec,
    device: DeviceSpec,
    *,
    tensor_degrees: Iterable[int],
    micro_batches: Iterable[int],
    precision: Precision = "bf16",
    attention: AttentionTable | OperatorModel | None = None,
) -> CostTable:
    """Cost table of a model from a device's measured operators; without ``attention`` the stated efficiency counts."""
    if precision not in ("bf16", "fp16"):
        raise DataError(f"precision is {precision}, expected bf16 or fp16, which operator tables hold")
    degrees = sorted(set(tensor_degrees))
    for layer in model.kinds.values():
        if lacking := [tp for tp in degrees if not layer.splits(tp)]:
            near = ", ".join(str(tp) for tp in range(1, FARTHEST * 2 + 1) if layer.splits(tp))
            raise DataError(f"{model.name}: tp {lacking[0]} does not divide layers {layer.kind!r}, expected {near}")
    measured = MeasuredOperators(gemms, attention or stated_operators(device, precision))
    table = analytic_costs(
        model,
        [device],
        precision=precision,
        tensor_degrees=degrees,
        micro_batches=micro_batches,
        operators={device.name: measured},
    )
    said = {"name": f"operators-{precision}", "basis": _basis(gemms, attention, device)}
    return table.model_copy(update=said)


def _basis(gemms: GemmTable, attention: AttentionTable | OperatorModel | None, device: DeviceSpec) -> str:
    if isinstance(attention, AttentionTable):
        core = f"attention of {attention.rates.name}"
    elif attention is not None:
        core = f"attention by the operator model of {attention.device}"
    else:
        core = f"attention at {device.attention_efficiency:g} of peak"
    return (
        f"measured products of {gemms.rates.name}, {core}, backward {ATTENTION_BACKWARD:g} times forward; "
        f"the rest by its bytes at {device.memory_efficiency:g} of peak bandwidth, launch {device.launch_us:g} us"
    )
