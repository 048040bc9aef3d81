r"""
Layer costs from peak rates, when no profile exists.

For micro-batch :math:`b`, sequence :math:`s`, hidden size :math:`h`, :math:`\beta` bytes per element and :math:`t`
tensor ranks, one device takes

(1) for a matrix product over :math:`n` parameters, in each of its three passes,
    :math:`\max(2 b s n / (e_g P),\ \beta n / (e_m W))`;
(2) for the attention core forward :math:`4 b s w h / t / (e_a P)`, backward twice that;
(3) for the memory-bound rest of a layer (norms, dropout, residual sums, activation function) forward
    :math:`\beta b s (10 h + 4 f / t) / (e_m W)`, backward the same;
(4) a launch overhead per pass, and for the optimizer the bytes of states per parameter, read and written,
    over :math:`e_m W`.

Activations that stay for the backward pass (Korthikanti et al., arXiv 2205.05198, eqs. 1-6, stated there for 2-byte
elements):

(5) without sequence parallelism :math:`s b h (10 + 24 / t)` for a plain layer, with it :math:`s b h \cdot 34 / t`;
    without a fused attention kernel also the scores, :math:`5 a w s b / t`, which selective recompute gives up (with
    a fused one they never exist, and selective recompute costs time and saves nothing);
(6) full recompute keeps the layer's input, :math:`2 s b h`, divided by :math:`t` with sequence parallelism.
"""

from collections.abc import Iterable

from taut.data.costs import RECOMPUTE, CostRow, CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.model import EMBEDDING, HEAD, LayerSpec, ModelSpec
from taut.data.units import MOST_BYTES
from taut.errors import DataError

ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
OPTIMIZER_TRAFFIC_BYTES = 30
"""Bytes that Adam moves per parameter: gradient and three fp32 states read, states and weights written."""


def roofline_costs(
    model: ModelSpec,
    devices: Iterable[DeviceSpec],
    *,
    precision: Precision,
    tensor_degrees: Iterable[int],
    micro_batches: Iterable[int],
    fused_attention: bool = True,
) -> CostTable:
    """
    Cost table of a model from the devices' peak rates and stated efficiencies.

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
    rows = [
        row
        for device in devices
        for tp in degrees
        for batch in batches
        for row in _rows(model, device, precision, tp, batch, fused_attention)
    ]
    optimizer = {
        device.name: OPTIMIZER_TRAFFIC_BYTES / (device.memory_efficiency * device.memory_bandwidth)
        for device in devices
    }
    return CostTable(
        name=f"roofline-{precision}", basis=_basis(devices), rows=rows, optimizer_s_per_parameter=optimizer
    )


def _basis(devices: list[DeviceSpec]) -> str:
    stated = "; ".join(
        f"{device.name}: gemm {device.gemm_efficiency:g}, attention {device.attention_efficiency:g}, "
        f"memory {device.memory_efficiency:g}, launch {device.launch_us:g} us"
        for device in devices
    )
    return f"analytic roofline, not measured; efficiencies of peak: {stated}"


def _rows(
    model: ModelSpec, device: DeviceSpec, precision: Precision, tp: int, batch: int, fused: bool
) -> Iterable[CostRow]:
    for layer in model.kinds.values():
        if layer.splits(tp):
            yield from _layer_rows(layer, device, precision, tp, batch, fused)
    if model.vocab:
        yield _embedding_row(model, device, precision, tp, batch)
        yield _head_row(model, device, precision, tp, batch)


def _layer_rows(
    layer: LayerSpec, device: DeviceSpec, precision: Precision, tp: int, batch: int, fused: bool
) -> Iterable[CostRow]:
    matrix = _matrix_seconds(layer.matrix_parameters(tp), batch * layer.seq, device, precision)
    attention = batch * layer.attention_flops() / tp / (device.attention_efficiency * _peak(device, precision))
    elements = batch * layer.seq * (10 * layer.hidden + 4 * layer.ffn / tp)
    rest = ELEMENT_BYTES[precision] * elements / (device.memory_efficiency * device.memory_bandwidth)
    forward = matrix + attention + rest + device.launch  # (1) to (4)
    again = {"none": 0.0, "selective": attention, "full": forward}
    for recompute in RECOMPUTE:
        replicated, split = _activation_bytes(layer, recompute, batch, ELEMENT_BYTES[precision], fused)
        yield CostRow(
            device=device.name,
            kind=layer.kind,
            tp=tp,
            micro_batch=batch,
            seq=layer.seq,
            recompute=recompute,
            forward_s=forward,
            input_grad_s=matrix + 2 * attention + rest + device.launch + again[recompute],
            weight_grad_s=matrix + device.launch,
            activation_bytes=min(replicated + -(-split // tp), MOST_BYTES),
            activation_bytes_sp=min(-(-(replicated + split) // tp), MOST_BYTES),
        )


def _activation_bytes(layer: LayerSpec, recompute: str, batch: int, element: int, fused: bool) -> tuple[int, int]:
    """Bytes that every tensor rank keeps, and bytes that the ranks share, (5) and (6)."""
    tokens, hidden = batch * layer.seq, layer.hidden
    if recompute == "full":
        return element * tokens * hidden, 0
    # Inputs of the two norms and of the two blocks; plain layers also keep two dropout masks of one byte.
    replicated = tokens * hidden * (4 * element + (0 if layer.gated_mlp else 2))
    # Queries, keys, values, attention output, and the feed-forward part before and after its function.
    widths = 2 * hidden + 2 * layer.kv_hidden + (3 if layer.gated_mlp else 2) * layer.ffn
    split = tokens * element * widths
    if recompute == "none" and not fused:
        split += (2 * element + 1) * layer.heads * layer.window * tokens
    return replicated, split


def _embedding_row(model: ModelSpec, device: DeviceSpec, precision: Precision, tp: int, batch: int) -> CostRow:
    elements = batch * model.blocks[0].output_elements
    traffic = ELEMENT_BYTES[precision] * 2 * elements / (device.memory_efficiency * device.memory_bandwidth)
    mask = elements
    return CostRow(
        device=device.name,
        kind=EMBEDDING,
        tp=tp,
        micro_batch=batch,
        seq=model.blocks[0].seq,
        forward_s=traffic + device.launch,
        input_grad_s=0.0,
        weight_grad_s=traffic + device.launch,
        activation_bytes=min(mask, MOST_BYTES),
        activation_bytes_sp=min(-(-mask // tp), MOST_BYTES),
    )


def _head_row(model: ModelSpec, device: DeviceSpec, precision: Precision, tp: int, batch: int) -> CostRow:
    last, element = model.blocks[-1], ELEMENT_BYTES[precision]
    vocab = model.padded_vocab(tp)
    matrix = _matrix_seconds(vocab * last.hidden // tp, batch * last.seq, device, precision)
    # The loss reads and writes the logits in fp32; they stay for the backward pass with the two inputs.
    logits = 4 * batch * last.seq * vocab // tp
    loss = 2 * logits / (device.memory_efficiency * device.memory_bandwidth)
    inputs = 2 * element * batch * last.output_elements
    return CostRow(
        device=device.name,
        kind=HEAD,
        tp=tp,
        micro_batch=batch,
        seq=last.seq,
        forward_s=matrix + loss + device.launch,
        input_grad_s=matrix + loss + device.launch,
        weight_grad_s=matrix + device.launch,
        activation_bytes=min(inputs + logits, MOST_BYTES),
        activation_bytes_sp=min(-(-inputs // tp) + logits, MOST_BYTES),
    )


def _peak(device: DeviceSpec, precision: Precision) -> float:
    return device.peak_flops(precision) or 0.0


def _matrix_seconds(parameters: int, tokens: int, device: DeviceSpec, precision: Precision) -> float:
    compute = 2.0 * tokens * parameters / (device.gemm_efficiency * _peak(device, precision))
    traffic = ELEMENT_BYTES[precision] * parameters / (device.memory_efficiency * device.memory_bandwidth)
    return max(compute, traffic)
