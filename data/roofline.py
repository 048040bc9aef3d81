r"""
Layer costs from peak rates and coefficients, when no profile exists.

For micro-batch :math:`b`, sequence :math:`s`, hidden size :math:`h`, feed-forward size :math:`f`, :math:`\beta` bytes
per element and :math:`t` tensor ranks, a pass over a layer is work of four kinds; with peak rate :math:`P` and peak
memory bandwidth :math:`W`,

(1) gemm: :math:`2 b s n / P` for :math:`n` matrix parameters, in each of the three passes;
(2) attention: :math:`4 b s w h_q / t / P` forward, with :math:`h_q` the width of the queries, twice that in the
    input gradient;
(3) memory: :math:`\beta n / W` for the weights in each pass, and :math:`\beta b s (10 h + 4 f / t) / W` for the
    norms, dropout, residual sums and activation function, forward and in the input gradient;
(4) launch: one in each pass.

Seconds are the coefficients of a calibration times these (``taut.data.calibration``); without one, the inverse of the
device's stated efficiencies. The optimizer moves 30 bytes per parameter.

Activations that stay for the backward pass (Korthikanti et al., arXiv 2205.05198, eqs. 1-6, stated there for 2-byte
elements):

(5) without sequence parallelism :math:`s b h (10 + 24 / t)` for a plain layer, with it :math:`s b h \cdot 34 / t`;
    without a fused attention kernel also the scores, :math:`5 a w s b / t`, which selective recompute gives up (with
    a fused one they never exist, and selective recompute costs time and saves nothing);
(6) full recompute keeps the layer's input, :math:`2 s b h`, divided by :math:`t` with sequence parallelism.
"""

from collections.abc import Iterable
from typing import NamedTuple

from taut.data.calibration import Calibration, uncalibrated
from taut.data.costs import RECOMPUTE, CostRow, CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.model import EMBEDDING, HEAD, LayerSpec, ModelSpec
from taut.data.units import MOST_BYTES
from taut.errors import DataError

ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
OPTIMIZER_TRAFFIC_BYTES = 30
"""Bytes that Adam moves per parameter: gradient and three fp32 states read, states and weights written."""


class Work(NamedTuple):
    """Work of one pass: FLOP of matrix products and attention, bytes of memory traffic, launches."""

    gemm: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    launch: float = 0.0

    def plus(self, other: "Work") -> "Work":
        """Both, one after the other."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))

    def seconds(self, device: DeviceSpec, precision: Precision, calibration: Calibration) -> float:
        """Seconds on a device, (1) to (4) weighted by the calibration."""
        peak = device.peak_flops(precision) or 0.0
        compute = (calibration["gemm"] * self.gemm + calibration["attention"] * self.attention) / peak
        traffic = calibration["memory"] * self.memory / device.memory_bandwidth
        return compute + traffic + calibration["launch"] * self.launch


class LayerWork(NamedTuple):
    """Work of a layer's forward, input-gradient and weight-gradient passes for one micro-batch on one rank."""

    forward: Work
    input_grad: Work
    weight_grad: Work


def block_work(layer: LayerSpec, tp: int, batch: int, element: int, recompute: str) -> LayerWork:
    """Work of a transformer layer, (1) to (4); the input gradient includes what is recomputed."""
    tokens, parameters = batch * layer.seq, layer.matrix_parameters(tp)
    matrix = Work(gemm=2.0 * tokens * parameters, memory=float(element * parameters), launch=1.0)
    attention = Work(attention=batch * layer.attention_flops() / tp)
    rest = Work(memory=element * tokens * (10 * layer.hidden + 4 * layer.ffn / tp))
    forward = matrix.plus(attention).plus(rest)
    again = {"none": Work(), "selective": attention, "full": forward}[recompute]
    backward = matrix.plus(attention).plus(attention).plus(rest).plus(again)
    return LayerWork(forward, backward, matrix)


def embedding_work(model: ModelSpec, batch: int, element: int) -> LayerWork:
    """Work of the token embedding: rows read and written forward, gradients scattered backward."""
    copy = Work(memory=2.0 * element * batch * model.blocks[0].output_elements, launch=1.0)
    return LayerWork(copy, Work(), copy)


def head_work(model: ModelSpec, tp: int, batch: int, element: int) -> LayerWork:
    """Work of the head and the loss, whose fp32 logits are written and read."""
    last, vocab = model.blocks[-1], model.padded_vocab(tp)
    parameters = vocab * last.hidden // tp
    matrix = Work(gemm=2.0 * batch * last.seq * parameters, memory=float(element * parameters), launch=1.0)
    with_loss = matrix.plus(Work(memory=8.0 * batch * last.seq * vocab / tp))
    return LayerWork(with_loss, with_loss, matrix)


def roofline_costs(
    model: ModelSpec,
    devices: Iterable[DeviceSpec],
    *,
    precision: Precision,
    tensor_degrees: Iterable[int],
    micro_batches: Iterable[int],
    fused_attention: bool = True,
    calibration: Calibration | None = None,
) -> CostTable:
    """
    Cost table of a model from the devices' peak rates.

    Parameters
    ----------
    model, devices
        What is trained, and on which types of device.
    precision
        Number format of weights and activations.
    tensor_degrees, micro_batches
        The keys to price.
    fused_attention
        Whether the attention scores stay out of memory, as FlashAttention keeps them.
    calibration
        Coefficients for every device; without it each device's stated efficiencies.

    Raises
    ------
    DataError
        If a device states no peak rate for this precision.
    """
    devices, degrees, batches = list(devices), sorted(set(tensor_degrees)), sorted(set(micro_batches))
    for device in devices:
        if device.peak_flops(precision) is None:
            known = ", ".join(device.peak_tflops)
            raise DataError(f"device {device.name}: no peak rate for precision {precision}, expected one of {known}")
    chosen = {device.name: calibration or uncalibrated(device) for device in devices}
    rows = [
        row
        for device in devices
        for tp in degrees
        for batch in batches
        for row in _rows(model, device, precision, tp, batch, fused_attention, chosen[device.name])
    ]
    optimizer = {
        device.name: chosen[device.name]["optimizer"] * OPTIMIZER_TRAFFIC_BYTES / device.memory_bandwidth
        for device in devices
    }
    basis = _stated(devices) if calibration is None else f"calibration {calibration.name}, {calibration.source}"
    return CostTable(name=f"roofline-{precision}", basis=basis, rows=rows, optimizer_s_per_parameter=optimizer)


def _stated(devices: list[DeviceSpec]) -> str:
    stated = "; ".join(
        f"{device.name}: gemm {device.gemm_efficiency:g}, attention {device.attention_efficiency:g}, "
        f"memory {device.memory_efficiency:g}, launch {device.launch_us:g} us"
        for device in devices
    )
    return f"analytic roofline, not measured; efficiencies of peak: {stated}"


def _rows(
    model: ModelSpec,
    device: DeviceSpec,
    precision: Precision,
    tp: int,
    batch: int,
    fused: bool,
    calibration: Calibration,
) -> Iterable[CostRow]:
    element = ELEMENT_BYTES[precision]

    def row(kind: str, seq: int, recompute: str, work: LayerWork, kept: tuple[int, int]) -> CostRow:
        forward, input_grad, weight_grad = (part.seconds(device, precision, calibration) for part in work)
        replicated, split = kept
        return CostRow.model_validate(
            {
                "device": device.name,
                "kind": kind,
                "tp": tp,
                "micro_batch": batch,
                "seq": seq,
                "recompute": recompute,
                "forward_s": forward,
                "input_grad_s": input_grad,
                "weight_grad_s": weight_grad,
                "activation_bytes": min(replicated + -(-split // tp), MOST_BYTES),
                "activation_bytes_sp": min(-(-(replicated + split) // tp), MOST_BYTES),
            }
        )

    for layer in model.kinds.values():
        for recompute in RECOMPUTE if layer.splits(tp) else ():
            kept = activation_bytes(layer, recompute, batch, element, fused)
            yield row(layer.kind, layer.seq, recompute, block_work(layer, tp, batch, element, recompute), kept)
    if model.vocab:
        first, last = model.blocks[0], model.blocks[-1]
        mask = (batch * first.output_elements, 0)
        yield row(EMBEDDING, first.seq, "none", embedding_work(model, batch, element), mask)
        logits = 4 * batch * last.seq * model.padded_vocab(tp)
        inputs = 2 * element * batch * last.output_elements
        yield row(HEAD, last.seq, "none", head_work(model, tp, batch, element), (inputs, logits))


def activation_bytes(layer: LayerSpec, recompute: str, batch: int, element: int, fused: bool) -> tuple[int, int]:
    """Bytes that every tensor rank keeps, and bytes that the ranks share, (5) and (6)."""
    tokens, hidden = batch * layer.seq, layer.hidden
    if recompute == "full":
        return element * tokens * hidden, 0
    # Inputs of the two norms and of the two blocks; plain layers also keep two dropout masks of one byte.
    replicated = tokens * hidden * (4 * element + (0 if layer.gated_mlp else 2))
    # Queries, keys, values, attention output, and the feed-forward part before and after its function.
    widths = 2 * layer.query_hidden + 2 * layer.kv_hidden + (3 if layer.gated_mlp else 2) * layer.ffn
    split = tokens * element * widths
    if recompute == "none" and not fused:
        split += (2 * element + 1) * layer.heads * layer.window * tokens
    return replicated, split
