r"""
The work of a layer's passes in seconds, on one tensor rank, for one micro-batch.

A layer makes four matrix products (queries with keys and values, attention output, feed-forward up and down) and an
attention core; b samples of s tokens (a share of w tokens under context parallelism), hidden size h, feed-forward size
f, a heads, all sizes of one tensor rank but h. Each of the three passes has terms of four kinds, in seconds at
coefficient 1 of a calibration (``taut.data.calibration``):

(1) gemm: the pass's products by the device's operator model (``taut.data.analytic.operator_times``), a weight
    gradient's with the tokens summed over;
(2) attention: the core by the operator model, forward and, in the input gradient, backward; unfused the two products at
    the rate of matrix products and 20 bytes of traffic for every score, backward twice that;
(3) memory: :math:`\beta b s (10 h + 4 f) / W` for norms, dropout, residual sums and activation function, forward and
    in the input gradient, at the peak bandwidth W;
(4) launch: what launching the kernels adds, :math:`\sqrt{g^2 + l^2} - g`, with g the pass's work and l the time that
    the host takes to launch it: nothing beside long kernels, all there is beside short ones.

Full recompute adds a forward pass, selective recompute the attention core's. The numbers of (2) for unfused cores come
from per-operator profiles of V100 (Aceso), 18.5 to 20.5 bytes a score. Sizes are numbers or arrays that broadcast.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from taut.data.analytic.operator_times import ATTENTION_BACKWARD, ELEMENT, OperatorModel
from taut.data.arrays import Floats
from taut.data.device import DeviceSpec, Precision

ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2}
KINDS = ("gemm", "attention", "memory", "launch")
"""The terms of a pass, in order; the first four of a calibration's."""
UNFUSED_BYTES_PER_SCORE = 20
UNFUSED_BACKWARD = 2.0


class Operators(Protocol):
    """Seconds of matrix products and attention cores: an operator model's, or measured ones."""

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, /) -> Floats:
        """Seconds of products of m x k with k x n matrices."""
        ...

    def attention_seconds(
        self,
        batch: ArrayLike,
        seq: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        window: ArrayLike | None = None,
        /,
    ) -> Floats:
        """Seconds of causal attention cores forward."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """
    What a device makes of work: operators in the precision, bandwidth, launch seconds of a pass.

    ``product`` is the seconds of a FLOP in large matrix products, by which an unfused attention core's are priced.
    """

    operators: Operators
    product: float
    memory_bandwidth: float
    memory_efficiency: float
    launch: float
    element: int
    fused_attention: bool = True


class LayerShape(NamedTuple):
    """Sizes of one tensor rank's share of a layer; ``up`` is 2 for a gated feed-forward part, else 1."""

    batch: Floats
    seq: Floats
    window: Floats
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    head_dim: Floats
    ffn: Floats
    up: Floats

    @classmethod
    def of(cls, **sizes: ArrayLike) -> "LayerShape":
        """A shape from numbers or arrays."""
        return cls(**{name: np.asarray(size, dtype=np.float64) for name, size in sizes.items()})


class Passes(NamedTuple):
    """Terms of the forward, input-gradient and weight-gradient passes, (..., 4) each in the order of ``KINDS``."""

    forward: Floats
    input_grad: Floats
    weight_grad: Floats


def rates_of(
    device: DeviceSpec,
    precision: Precision,
    operators: Operators | None,
    *,
    launch: float | None = None,
    fused_attention: bool = True,
) -> Rates:
    """
    Rates of a device in a precision.

    Parameters
    ----------
    device, precision
        Where the work is done, in a number format that the device computes in.
    operators
        The device's operator model, of half precision, or measured operators in this one; without either, its
        stated efficiencies.
    launch
        Seconds that the host takes to launch a pass, if not the device's.
    fused_attention
        Whether the attention scores stay out of memory, as FlashAttention keeps them.
    """
    stated = stated_operators(device, precision)
    chosen = stated if operators is None else operators
    if isinstance(chosen, OperatorModel):
        chosen = _in_precision(chosen, device, precision)
    rated = chosen if isinstance(chosen, OperatorModel) else stated
    return Rates(
        operators=chosen,
        product=rated.gemm["product"] / rated.peak,
        memory_bandwidth=device.memory_bandwidth,
        memory_efficiency=device.memory_efficiency,
        launch=device.launch if launch is None else launch,
        element=ELEMENT_BYTES[precision],
        fused_attention=fused_attention,
    )


def stated_operators(device: DeviceSpec, precision: Precision) -> OperatorModel:
    """A device's stated efficiencies in the form of an operator model."""
    return OperatorModel(
        device=device.name,
        peak_tflops=device.peak_tflops[precision],
        memory_bandwidth_gbytes=device.memory_bandwidth_gbytes,
        gemm={"product": 1 / device.gemm_efficiency, "sustained": 0, "output": 0, "inputs": 0, "launch": 0},
        attention={"product": 1 / device.attention_efficiency, "scores": 0, "traffic": 0, "launch": 0},
        assumed="efficiencies stated by the device",
    )


def _in_precision(model: OperatorModel, device: DeviceSpec, precision: Precision) -> OperatorModel:
    """The model with its products at another precision's peak and its traffic at another width."""
    faster = (device.peak_flops(precision) or model.peak) / model.peak
    core = (device.attention_flops(precision) or model.peak) / model.peak
    wider = ELEMENT_BYTES[precision] / ELEMENT
    gemm = {"product": 1 / faster, "sustained": 1 / faster, "output": wider, "inputs": wider, "launch": 1.0}
    attention = {"product": 1 / core, "scores": 1 / core, "traffic": wider, "launch": 1.0}
    return model.model_copy(
        update={
            "gemm": {term: value * gemm[term] for term, value in model.gemm.items()},
            "attention": {term: value * attention[term] for term, value in model.attention.items()},
        }
    )


def block_passes(shape: LayerShape, rates: Rates) -> Passes:
    """
    Terms of a transformer layer's passes without recompute, (1) to (4).

    Parameters
    ----------
    shape
        Sizes of one tensor rank's share.
    rates
        What the device makes of work.

    Returns
    -------
    Passes
        Terms of each pass, (..., 4) in the order of ``KINDS``.
    """
    tokens = shape.batch * shape.seq
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    products = [
        (query + 2 * kv, shape.hidden),
        (shape.hidden, query),
        (shape.up * shape.ffn, shape.hidden),
        (shape.hidden, shape.ffn),
    ]
    forward, input_grad, weight_grad = _products(tokens, products, rates)
    core, core_backward = _attention(shape, rates)
    rest = rates.element * tokens * (10.0 * shape.hidden + 4.0 * shape.ffn)
    traffic = rest / rates.memory_bandwidth
    return Passes(
        _terms(forward, core, traffic, rates),
        _terms(input_grad, core_backward, traffic, rates),
        _terms(weight_grad, 0.0, 0.0, rates),
    )


def embedding_passes(tokens: ArrayLike, hidden: ArrayLike, rates: Rates) -> Passes:
    """Terms of the token embedding: rows read and written forward, gradients scattered backward."""
    moved = np.asarray(tokens, dtype=np.float64) * np.asarray(hidden, dtype=np.float64)
    traffic = 2.0 * rates.element * moved / rates.memory_bandwidth
    copy = _terms(0.0, 0.0, traffic, rates)
    return Passes(copy, np.zeros_like(copy), copy)


def head_passes(tokens: ArrayLike, hidden: ArrayLike, vocab: ArrayLike, rates: Rates) -> Passes:
    """
    Terms of the head and the loss, whose fp32 logits are written and read; ``vocab`` is one rank's.

    Parameters
    ----------
    tokens, hidden, vocab
        Tokens of a micro-batch, hidden size, and one rank's rows of the vocabulary; numbers or arrays that
        broadcast.
    rates
        What the device makes of work.

    Returns
    -------
    Passes
        Terms of each pass, (..., 4) in the order of ``KINDS``.
    """
    count, width, words = (np.asarray(size, dtype=np.float64) for size in (tokens, hidden, vocab))
    forward, input_grad, weight_grad = _products(count, [(words, width)], rates)
    logits = 8.0 * count * words / rates.memory_bandwidth
    return Passes(
        _terms(forward, 0.0, logits, rates),
        _terms(input_grad, 0.0, logits, rates),
        _terms(weight_grad, 0.0, 0.0, rates),
    )


def recomputed(passes: Passes, recompute: str) -> Passes:
    """
    The passes with what is recomputed before the input gradient added to it.

    Parameters
    ----------
    passes
        Passes of a layer that computes nothing again.
    recompute
        ``none``, ``selective`` (the attention core) or ``full``.

    Returns
    -------
    Passes
        Terms of each pass, (..., 4) in the order of ``KINDS``.
    """
    if recompute == "none":
        return passes
    again = passes.forward
    if recompute == "selective":
        again = np.where(np.arange(len(KINDS)) == KINDS.index("attention"), again, 0.0)
    return passes._replace(input_grad=passes.input_grad + again)


def _products(tokens: Floats, shapes: list[tuple[Floats, Floats]], rates: Rates) -> tuple[Floats, Floats, Floats]:
    """Seconds of products (tokens, k) x (k, n) for every (n, k): forward, input gradient, weight gradient, (1)."""
    model = rates.operators
    forward = sum((model.gemm_seconds(tokens, n, k) for n, k in shapes), np.float64(0.0))
    input_grad = sum((model.gemm_seconds(tokens, k, n) for n, k in shapes), np.float64(0.0))
    weight_grad = sum((model.gemm_seconds(n, k, tokens) for n, k in shapes), np.float64(0.0))
    return np.asarray(forward), np.asarray(input_grad), np.asarray(weight_grad)


def _attention(shape: LayerShape, rates: Rates) -> tuple[Floats, Floats]:
    """Seconds of the attention core, forward and backward, (2)."""
    sizes = (shape.batch, shape.seq, shape.heads, shape.kv_heads, shape.head_dim, shape.window)
    if rates.fused_attention:
        forward = rates.operators.attention_seconds(*sizes)
        return forward, ATTENTION_BACKWARD * forward
    scores = shape.batch * shape.seq * shape.heads * shape.window
    product = rates.product * 4.0 * scores * shape.head_dim
    traffic = UNFUSED_BYTES_PER_SCORE / ELEMENT * rates.element * scores / rates.memory_bandwidth
    return product + traffic, UNFUSED_BACKWARD * (product + traffic)


def _terms(gemm: ArrayLike, attention: ArrayLike, memory: ArrayLike, rates: Rates) -> Floats:
    """The terms of one pass, with the launches that its work does not hide, (4)."""
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (gemm, attention, memory)))
    work = parts[0] + parts[1] + parts[2] / rates.memory_efficiency
    return np.stack([*parts, np.hypot(work, rates.launch) - work], axis=-1)
