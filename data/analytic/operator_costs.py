r"""
Layer costs from measured operators.

The passes are those of ``taut.data.analytic.layer_work``, with the seconds of every matrix product :math:`(m, n, k)`
looked up in a measured table instead of an operator model:

(1) an input gradient's :math:`(m, k, n)` and a weight gradient's :math:`(n, k, m)` are read from the same table:
    kernels of the three layouts run at rates within a few per cent;
(2) the attention core forward is read from a measured table, where there is one, and with a window of w tokens is s / w
    times the core of w tokens; backward it takes 5/2 of that (``taut.data.analytic.operator_times``, (3));
(3) memory traffic, launches, activations and the optimizer are those of ``taut.data.analytic.layer_costs``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut.data.analytic.device_rates import stated_operators
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.operator_table import AttentionTable, GemmTable
from taut.data.analytic.operator_times import ATTENTION_BACKWARD, OperatorModel
from taut.data.arrays import Floats
from taut.data.costs import CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.model import ModelSpec
from taut.errors import DataError


@dataclass(frozen=True, slots=True)
class MeasuredOperators:
    """Measured products, and attention from a table or a model, with the methods of an operator model."""

    gemms: GemmTable
    attention: AttentionTable | OperatorModel

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0) -> Floats:
        """Seconds of matrix products of one size, each as measured alone, (1)."""
        alone = self.gemms.seconds(*(max(round(float(np.asarray(size))), 1) for size in (m, n, k)))
        return np.asarray(np.asarray(groups) * alone)

    def attention_seconds(
        self,
        batch: ArrayLike,
        seq: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        window: ArrayLike | None = None,
    ) -> Floats:
        """Seconds of one attention core forward, (2)."""
        if isinstance(self.attention, OperatorModel):
            return self.attention.attention_seconds(batch, seq, heads, kv_heads, head_dim, window)
        reach = seq if window is None else window
        sizes = (round(float(np.asarray(size))) for size in (batch, reach, heads, kv_heads, head_dim))
        times = np.asarray(seq, dtype=np.float64) / np.asarray(reach, dtype=np.float64)
        return np.asarray(times * self.attention.seconds(*sizes))


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
    """
    Cost table of a model on the device whose operators were measured.

    ``model``, ``device``: what is trained, and on which device; ``tensor_degrees``, ``micro_batches``: the keys to
    price; a degree that does not divide a layer prices no rows of it; ``precision``: number format, bf16 or fp16;
    ``attention``: measured attention, or a model of it; without one, the device's stated efficiency. Returns rows for
    every layer kind, tensor degree, micro-batch and recompute. Raises ``DataError`` if the device states no peak rate,
    the precision is another, no degree divides a layer, or a size is too far from the measured ones.
    """
    if precision not in ("bf16", "fp16"):
        raise DataError(f"precision is {precision}, expected bf16 or fp16, which operator tables hold")
    degrees = sorted(set(tensor_degrees))
    for layer in model.kinds.values():
        if not any(layer.splits(tp) for tp in degrees):
            raise DataError(f"{model.name}: tp {degrees} divides no layer {layer.kind!r}, expected one that does")
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
