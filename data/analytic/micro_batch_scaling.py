r"""
Costs at micro-batches that nobody measured, from micro-batch 1 alone.

What a pass over a layer takes is in part work that every further sequence asks for again, and in part launches and
latency that do not depend on the batch. Sets: devices, layer kinds, tensor degrees, the three passes. Data of one pass:
measured seconds :math:`t(1)` at micro-batch 1, and :math:`w`, what one more sequence adds by the analytic costs
(``taut.data.analytic.layer_costs``, without launches). With :math:`\alpha = 1 - w / t(1)`, a pass over b sequences
takes

(1) :math:`t(b) = t(1) (\alpha + (1 - \alpha) b) = t(1) + (b - 1) w`, with :math:`0 \le w \le t(1)`;
(2) the blocks of one model run the same kernels, so no block's fixed part exceeds the least :math:`t(1)` among the
    blocks on that device at that degree: :math:`w \ge t(1) - \min_k t_k(1)`;
(3) bytes of activations grow in proportion to b.

Nothing in it is fitted. Source of the form (1): the measured trials of AMP (Li et al., arXiv 2210.07297) are not linear
in the micro-batch.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.operator_times import OperatorModel
from taut.data.calibration import Calibration
from taut.data.costs import CostRow, CostTable, Key
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, ENCODER, HEAD
from taut.data.model import ModelSpec
from taut.data.units import MOST_BYTES
from taut.errors import ExtrapolationWarning

FAR = 64
"""Micro-batches 64 and 128 tell what a sequence adds: launches are hidden there."""
LAW = "micro-batches above 1 by t(b) = t(1) + (b - 1) w, w the analytic seconds of one sequence"


class PassSeconds(NamedTuple):
    """Seconds of the forward, input-gradient and weight-gradient passes."""

    forward: float
    input_grad: float
    weight_grad: float


def sequence_seconds(
    model: ModelSpec,
    devices: Iterable[DeviceSpec],
    *,
    precision: Precision,
    tensor_degrees: Iterable[int],
    fused_attention: bool = True,
    operators: Mapping[str, OperatorModel] | None = None,
    calibration: Calibration | None = None,
) -> dict[Key, PassSeconds]:
    """What one more sequence adds to each pass, w, by the keys of micro-batch 1, as ``analytic_costs`` prices it."""
    far = analytic_costs(
        model,
        devices,
        precision=precision,
        tensor_degrees=tensor_degrees,
        micro_batches=[FAR, 2 * FAR],
        operators=operators,
        fused_attention=fused_attention,
        calibration=calibration,
    ).by_key
    added = {}
    for key, near in far.items():
        if key.micro_batch == FAR:
            farther = far[key._replace(micro_batch=2 * FAR)]
            added[key._replace(micro_batch=1)] = PassSeconds(
                (farther.forward - near.forward) / FAR,
                (farther.input_grad - near.input_grad) / FAR,
                (farther.weight_grad - near.weight_grad) / FAR,
            )
    return added


def growing(measured: float, work: float, least: float) -> float:
    """Seconds that grow with the batch, w of (1), (2), from t(1), the analytic work and the least t(1) of blocks."""
    return min(measured, max(work, measured - least, 0.0))


def with_micro_batches(
    table: CostTable,
    model: ModelSpec,
    devices: Iterable[DeviceSpec],
    precision: Precision,
    micro_batches: Iterable[int],
    *,
    operators: Mapping[str, OperatorModel] | None = None,
    calibration: Calibration | None = None,
) -> CostTable:
    """The table with rows at larger micro-batches where micro-batch 1 alone was measured, (1) to (3); else itself."""
    specs, wanted = list(devices), sorted({batch for batch in micro_batches if batch > 1})
    degrees = _whole(table, model, specs)
    if not wanted or not degrees or any(spec.peak_flops(precision) is None for spec in specs):
        return table
    added = sequence_seconds(
        model, specs, precision=precision, tensor_degrees=degrees, operators=operators, calibration=calibration
    )
    measured = table.micro_batches
    alone = [row for row in table.rows if row.key in added and measured[row.key.of_any_batch] == [1]]
    if not alone:
        return table
    least = _least(table, model, alone)
    rows = [_at(row, added[row.key], least.get(_like(row.key)), batch) for row in alone for batch in wanted]
    warnings.warn(f"{table.name}: micro_batch 1 alone was measured; {LAW}", ExtrapolationWarning, stacklevel=2)
    basis = f"{table.basis}; {LAW}"
    return table.model_copy(update={"rows": [*table.rows, *rows], "basis": basis})


def _whole(table: CostTable, model: ModelSpec, devices: list[DeviceSpec]) -> list[int]:
    """Tensor degrees at which every layer has a cost at micro-batch 1 on every device."""
    edges = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)] if model.vocab else []
    edges += [(ENCODER, model.encoder.patches)] if model.encoder else []
    needed = [*((layer.kind, layer.seq) for layer in model.kinds.values()), *edges]
    return [
        tp
        for tp in sorted({row.tp for row in table.rows})
        if all(table.prices(Key(spec.name, kind, tp, 1, seq, "none")) for spec in devices for kind, seq in needed)
    ]


def _like(key: Key) -> tuple[str, int, str]:
    """What blocks share that run the same kernels."""
    return key.device, key.tp, key.recompute


def _least(table: CostTable, model: ModelSpec, rows: list[CostRow]) -> dict[tuple[str, int, str], PassSeconds]:
    """The least t(1) of every pass among the model's blocks, by device, degree and recompute."""
    of_blocks: dict[tuple[str, int, str], list[PassSeconds]] = {}
    for row in rows:
        if row.kind in model.kinds:
            of_blocks.setdefault(_like(row.key), []).append(_passes(row))
    return {like: PassSeconds(*map(min, zip(*found, strict=True))) for like, found in of_blocks.items()}


def _passes(row: CostRow) -> PassSeconds:
    return PassSeconds(row.forward_s, row.input_grad_s, row.weight_grad_s)


def _at(row: CostRow, added: PassSeconds, least: PassSeconds | None, batch: int) -> CostRow:
    """The row at another micro-batch; ``least`` is None for a layer that is no block."""
    measured = _passes(row)
    more = [growing(*figures) for figures in zip(measured, added, least or measured, strict=True)]
    forward, input_grad, weight_grad = (t + (batch - 1) * w for t, w in zip(measured, more, strict=True))
    with_sp = row.activation_bytes_sp
    return row.model_copy(
        update={
            "micro_batch": batch,
            "forward_s": forward,
            "input_grad_s": input_grad,
            "weight_grad_s": weight_grad,
            "activation_bytes": min(batch * row.activation_bytes, MOST_BYTES),
            "activation_bytes_sp": None if with_sp is None else min(batch * with_sp, MOST_BYTES),
            "peak_bytes": None,
            "spread": None,
        }
    )
