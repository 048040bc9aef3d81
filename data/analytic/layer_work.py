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
    where inputs are cast to fp8 by kernels of their own (``taut.data.analytic.device_rates`` (5)), also the casts of
    the attention's and the function's output forward, and of the four products' output gradients in the input
    gradient; the norms write their output as cast;
(4) launch: what launching the kernels adds, :math:`(g^p + l^p)^{1/p} - g` with p = 3/2, g the pass's work and l the
    time that the host takes to launch it: little beside long kernels, all there is beside short ones. The norm's
    exponent says how much of launching hides behind the work: none at 1, and at infinity all that the work is longer
    than. It is the one that steps of published campaigns bear out best, and no law of one device: an H100 by itself,
    whose layers are alike, hides launches as with p = 4, so that the term holds other waiting of short passes too:
    ranks of a layer's collectives wait for each other. CUDA graphs take away launches and not such waits. Where passes
    are recorded (``recorded`` of ``Rates``), the term is what p = 3/2 adds beyond p = 4;
(5) where layers of the shape were measured, all of these times its factor (``taut.data.layers.layer_factor``).

Full recompute adds a forward pass, selective recompute the attention core's, or that of named modules
(``taut.data.analytic.recompute_modules``); where it keeps every second product's output (``selective_products`` of
``Rates``), all of a forward pass but the core and those products. With ``early_stop`` full recompute leaves out the
product that a layer ends with: its gradients take its inputs alone, so that PyTorch's checkpoints stop before it
(torch/utils/checkpoint.py from 2.1 on) and compiled ones drop it (torch/_functorch/partitioners.py). The numbers of
(2) for unfused cores come from per-operator profiles of V100 (Aceso), 18.5 to 20.5 bytes a score. Sizes are numbers or
arrays that broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from taut.data.analytic.device_rates import Operators, Rates
from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.operator_times import ELEMENT
from taut.data.arrays import Floats
from taut.data.layers.layer_factor import factors_at

KINDS = ("gemm", "attention", "memory", "launch")
"""The terms of a pass, in order; the first four of a calibration's."""
UNFUSED_BYTES_PER_SCORE = 20
UNFUSED_BACKWARD = 2.0
LAUNCH_NORM, LONE_NORM = 1.5, 4.0
"""The exponent p of (4), one for all stacks, and that of one H100 by itself."""


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

    @property
    def sizes(self) -> Floats:
        """Sizes as ``LayerFactor`` has them, (..., 7), with a width of 0, which none has, of windows and shares."""
        whole = np.where(self.window == self.seq, self.hidden, 0.0)
        found = self.batch, self.seq, whole, self.heads, self.kv_heads, self.ffn, self.up
        return np.stack(np.broadcast_arrays(*found), axis=-1)

    @classmethod
    def of(cls, **sizes: ArrayLike) -> "LayerShape":
        """A shape from numbers or arrays."""
        return cls(**{name: np.asarray(size, dtype=np.float64) for name, size in sizes.items()})


class Passes(NamedTuple):
    """Terms of the forward, input-gradient and weight-gradient passes, (..., 4) each in the order of ``KINDS``."""

    forward: Floats
    input_grad: Floats
    weight_grad: Floats


class Product(NamedTuple):
    """A product of rows x sums with sums x columns matrices forward; ``groups`` of them in one kernel."""

    rows: Floats
    columns: Floats
    sums: Floats
    groups: Floats | float = 1.0


def block_passes(shape: LayerShape, rates: Rates) -> Passes:
    """Terms of a transformer layer's passes without recompute, (1) to (4), (..., 4) each in the order of ``KINDS``."""
    tokens = shape.batch * shape.seq
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    products = [
        Product(tokens, query + 2 * kv, shape.hidden),
        Product(tokens, shape.hidden, query),
        Product(tokens, shape.up * shape.ffn, shape.hidden),
        Product(tokens, shape.hidden, shape.ffn),
    ]
    moved = rates.element * tokens * (10.0 * shape.hidden + 4.0 * shape.ffn)
    if not rates.cast:
        return _as_measured(passes_of(shape, rates, products, moved), shape, rates)
    forward = query + shape.ffn
    backward = query + 2 * kv + 2 * shape.hidden + shape.up * shape.ffn
    casts = rates.cast * tokens * forward, rates.cast * tokens * backward
    return _as_measured(passes_of(shape, rates, products, moved, casts=casts), shape, rates)


def _as_measured(passes: Passes, shape: LayerShape, rates: Rates) -> Passes:
    """Terms times the factor of the layer's shape, (5)."""
    if not rates.layer_factors:
        return passes
    factor = factors_at(rates.layer_factors, shape.sizes)[..., None]
    return Passes(*(terms * factor for terms in passes))


def passes_of(
    shape: LayerShape,
    rates: Rates,
    products: list[Product],
    moved: Floats,
    more: Floats | float = 0.0,
    casts: tuple[Floats | float, Floats | float] = (0.0, 0.0),
    *,
    has_core: bool = True,
    cores: float = 1.0,
) -> Passes:
    """Terms of the passes of a layer of other products, (1) to (4): ``more`` bytes once and twice, ``casts`` each."""
    forward, input_grad, weight_grad = _products(products, rates.operators)
    core = cores * attention_core(shape, rates) if has_core else np.float64(0.0)
    core_backward = cores * attention_core(shape, rates, backward=True) if has_core else np.float64(0.0)
    return Passes(
        _terms(forward, core, (moved + more + casts[0]) / rates.memory_bandwidth, rates),
        _terms(input_grad, core_backward, (moved + 2 * more + casts[1]) / rates.memory_bandwidth, rates),
        _terms(weight_grad, 0.0, 0.0, rates),
    )


def selective_shares(shape: LayerShape, rates: Rates) -> Floats:
    """Shares (..., 4) of the forward terms that selective recompute repeats: the core's, or torchtitan's products."""
    if not rates.selective_products:
        return np.array([0.0, 1.0, 0.0, 0.0])
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    gemm = (kv + query + shape.ffn) / (2 * query + 2 * kv + (1 + shape.up) * shape.ffn)
    return np.stack(np.broadcast_arrays(gemm, 0.0, 1.0, 1.0), axis=-1)


def whole_terms(passes: Passes, shape: LayerShape, rates: Rates) -> Floats:
    """Forward terms (..., 4) that full recompute repeats: all, or under PyTorch's checkpoints not the last product."""
    if not rates.early_stop:
        return passes.forward
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    last = shape.ffn / (2 * query + 2 * kv + (1 + shape.up) * shape.ffn)
    return np.asarray(passes.forward * np.stack(np.broadcast_arrays(1.0 - last, 1.0, 1.0, 1.0), axis=-1))


def embedding_passes(tokens: ArrayLike, hidden: ArrayLike, rates: Rates) -> Passes:
    """Terms of the token embedding: rows read and written forward, gradients scattered backward."""
    moved = np.asarray(tokens, dtype=np.float64) * np.asarray(hidden, dtype=np.float64)
    traffic = 2.0 * rates.element * moved / rates.memory_bandwidth
    copy = _terms(0.0, 0.0, traffic, rates)
    return Passes(copy, np.zeros_like(copy), copy)


def head_passes(tokens: ArrayLike, hidden: ArrayLike, vocab: ArrayLike, rates: Rates) -> Passes:
    """Terms of head and loss, (..., 4) by pass, whose fp32 logits are written and read; ``vocab`` is one rank's."""
    count, width, words = (np.asarray(size, dtype=np.float64) for size in (tokens, hidden, vocab))
    forward, input_grad, weight_grad = _products([Product(count, words, width)], rates.head or rates.operators)
    logits = 8.0 * count * words / rates.memory_bandwidth
    return Passes(
        _terms(forward, 0.0, logits, rates),
        _terms(input_grad, 0.0, logits, rates),
        _terms(weight_grad, 0.0, 0.0, rates),
    )


def floors_of(passes: Passes) -> Passes:
    """Floors of passes (...): sums of all terms at the fastest rates (``taut.data.analytic.kernel_floors`` (5))."""
    return Passes(*(terms.sum(axis=-1) for terms in passes))


def recomputed(passes: Passes, recompute: str, again: Floats, whole: Floats) -> Passes:
    """The passes, with the forward terms (..., 4) that selective or full recompute repeats in the input gradient."""
    if recompute == "none":
        return passes
    return passes._replace(input_grad=passes.input_grad + (again if recompute == "selective" else whole))


def _products(products: list[Product], model: Operators) -> tuple[Floats, Floats, Floats]:
    """Seconds of products forward, of their input gradients and of their weight gradients, (1)."""
    seconds, zero = model.gemm_seconds, np.float64(0.0)
    forward = sum((seconds(m, n, k, groups) for m, n, k, groups in products), zero)
    input_grad = sum((seconds(m, k, n, groups) for m, n, k, groups in products), zero)
    weight_grad = sum((seconds(n, k, m, groups) for m, n, k, groups in products), zero)
    return np.asarray(forward), np.asarray(input_grad), np.asarray(weight_grad)


def attention_core(shape: LayerShape, rates: Rates, *, backward: bool = False) -> Floats:
    """Seconds of the attention core, forward or backward, (2)."""
    if rates.fused_attention:
        sizes = CoreSizes(shape.batch, shape.seq, shape.heads, shape.kv_heads, shape.head_dim, shape.window)
        return rates.operators.attention_seconds(sizes, backward=backward)
    scores = shape.batch * shape.seq * shape.heads * shape.window
    product = rates.product * 4.0 * scores * shape.head_dim
    traffic = UNFUSED_BYTES_PER_SCORE / ELEMENT * rates.element * scores / rates.memory_bandwidth
    return np.asarray((UNFUSED_BACKWARD if backward else 1.0) * (product + traffic))


def forward_terms(products: list[Product], core: ArrayLike, moved: ArrayLike, rates: Rates) -> Floats:
    """Terms of forward work alone: products, seconds of an attention core, and bytes moved, (1) to (4)."""
    return _terms(_products(products, rates.operators)[0], core, np.asarray(moved) / rates.memory_bandwidth, rates)


def _terms(gemm: ArrayLike, attention: ArrayLike, memory: ArrayLike, rates: Rates) -> Floats:
    """The terms of one pass, with the launches that its work does not hide, (4)."""
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (gemm, attention, memory)))
    work = parts[0] + parts[1] + parts[2] / rates.memory_efficiency
    together = (work**LAUNCH_NORM + rates.launch**LAUNCH_NORM) ** (1 / LAUNCH_NORM)
    alone = (work**LONE_NORM + rates.launch**LONE_NORM) ** (1 / LONE_NORM) if rates.recorded else work
    return np.stack([*parts, together - alone], axis=-1)
