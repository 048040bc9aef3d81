r"""
What a matrix product or an attention core takes on a device, in closed form.

With peak rate :math:`P` (FLOP per second), peak memory bandwidth :math:`W` (bytes per second) and two-byte elements, a
product of an :math:`m \times k` with a :math:`k \times n` matrix, :math:`F = 2 m n k` FLOP, takes

(1) :math:`t = c_1 F / P + c_2 (F / P) \, F / (F + F_0) + c_3 \, 2 m n / W + c_4 \, 2 (m + n) k / W + c_5`,

the time at the best rate; what long kernels lose to the power limit, with :math:`F_0 = 10^{12}`; the output; the
inputs; and the launch. Several products of one size in one kernel take the terms of F, output and inputs of all of
them, and one launch, with coefficients of their own where grouped products were measured: few rows for each of many
matrices fill tiles badly, which has the form of the inputs' term, as reading the matrices has. What small sizes lose,
:math:`2 m n k_0 / P` and its like, has the form of the traffic terms.
A causal attention core over :math:`b` samples of :math:`s` tokens with :math:`a` heads of :math:`d` channels,
:math:`a_{kv}` key-value heads and window :math:`w` (:math:`s` unless stated) takes, forward,

(2) :math:`t = c_1 \, 4 b a s w d / P + c_2 \, 2 b a s w / W + c_3 \, 4 b s (a + a_{kv}) d / W + c_4`,

the products, counted over the full square as in ``taut.data.model``; the work on each score; queries, keys, values and
output; and the launch. Its backward pass makes five products where the forward pass makes two:

(3) :math:`5 / 2` times the forward time (FlashAttention-2, arXiv 2307.08691, section 4.1), or, where the backward pass
    was measured, the terms of (2) with coefficients of its own.

A layer's input gradient is the product :math:`(m, k, n)` and its weight gradient :math:`(n, k, m)` in the order of
(1). The terms are linear in the coefficients, so seconds stay linear in a calibration's. ``benchmarks/operators.py``
fits them to public operator tables of half-precision kernels, and those of (1) again to products in narrower formats,
with the cast of their input from bf16. These tables are of inference. Where kernels of training were measured, half
precision has their coefficients (``benchmarks/training_operators.py``).
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from taut.data.analytic.kernel_floors import BestRate, CoreSizes
from taut.data.arrays import Floats
from taut.data.device import Precision
from taut.data.spec import NotNegative, Positive, Spec
from taut.data.units import GIGABYTE, TERA

GEMM_TERMS = ("product", "sustained", "output", "inputs", "launch")
ATTENTION_TERMS = ("product", "scores", "traffic", "launch")
ELEMENT = 2
"""Bytes of a half-precision number."""
SUSTAINED_FLOP = 1e12
"""F_0 of (1)."""
ATTENTION_BACKWARD = 2.5
"""The ratio of (3)."""


class FitError(Spec):
    """Relative errors of a fit on unseen shapes; ``large_``: of the ``large_samples`` operators above 20 GFLOP."""

    samples: Annotated[int, Field(gt=0)]
    mean: NotNegative
    median: NotNegative
    p90: NotNegative
    large_samples: Annotated[int, Field(ge=0)] = 0
    large_mean: NotNegative | None = None
    large_median: NotNegative | None = None


def _check_terms(name: str, given: Mapping[str, float], terms: tuple[str, ...]) -> None:
    for term in terms:
        if term not in given:
            raise ValueError(f"{name}.{term}: missing, expected a number of at least 0")
    for term in given:
        if term not in terms:
            raise ValueError(f"{name}.{term}: unknown term, expected one of {', '.join(terms)}")


class RecipeProducts(Spec):
    """Coefficients of (1) for products in a narrower format at its peak; ``grouped``: of several in one kernel."""

    gemm: dict[str, NotNegative]
    gemm_error: FitError | None = None
    source: str = ""
    assumed: str = ""
    grouped: dict[str, NotNegative] = {}
    grouped_error: FitError | None = None
    grouped_source: str = ""

    @model_validator(mode="after")
    def _complete(self) -> "RecipeProducts":
        _check_terms("gemm", self.gemm, GEMM_TERMS)
        if self.grouped:
            _check_terms("grouped", self.grouped, GEMM_TERMS)
        return self


class TrainingKernels(Spec):
    """Coefficients of (1) to (3) for training in half precision, attention's of inference unless stated."""

    gemm: dict[str, NotNegative]
    grouped: dict[str, NotNegative] = {}
    attention: dict[str, NotNegative] = {}
    attention_backward: dict[str, NotNegative] = {}
    gemm_error: FitError | None = None
    grouped_error: FitError | None = None
    attention_error: FitError | None = None
    attention_backward_error: FitError | None = None
    source: str = ""
    assumed: str = ""

    @model_validator(mode="after")
    def _complete(self) -> "TrainingKernels":
        _check_terms("gemm", self.gemm, GEMM_TERMS)
        if self.grouped:
            _check_terms("grouped", self.grouped, GEMM_TERMS)
        for name in ("attention", "attention_backward"):
            if self.attention or self.attention_backward:
                _check_terms(name, getattr(self, name), ATTENTION_TERMS)
        return self


class OperatorModel(RecipeProducts):
    """
    Coefficients of (1) and (2) for one device, with the peak rates that they are relative to.

    ``recipes`` holds those of products in narrower formats by precision, ``training`` those of kernels of training in
    half precision. ``source`` says what was fitted, ``assumed`` what was not; an error is None where nothing was
    fitted. ``best`` are the best measured rates of the device's kernels (``taut.data.analytic.kernel_floors``).
    """

    device: str
    peak_tflops: Positive
    memory_bandwidth_gbytes: Positive
    attention: dict[str, NotNegative]
    attention_backward: dict[str, NotNegative] = {}
    attention_error: FitError | None = None
    recipes: dict[Precision, RecipeProducts] = {}
    training: TrainingKernels | None = None
    best: list[BestRate] = []

    @model_validator(mode="after")
    def _complete_attention(self) -> "OperatorModel":
        _check_terms("attention", self.attention, ATTENTION_TERMS)
        if self.attention_backward:
            _check_terms("attention_backward", self.attention_backward, ATTENTION_TERMS)
        return self

    @property
    def peak(self) -> float:
        """Peak rate in FLOP per second."""
        return self.peak_tflops * TERA

    @property
    def memory_bandwidth(self) -> float:
        """Peak memory bandwidth in bytes per second."""
        return self.memory_bandwidth_gbytes * GIGABYTE

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0) -> Floats:
        """Seconds of matrix products (m, k) by (k, n), (1), ``groups`` in one kernel; sizes broadcast."""
        terms = gemm_terms(m, n, k, self.peak, self.memory_bandwidth, groups)
        alone = _weighted(terms, [self.gemm[term] for term in GEMM_TERMS])
        if not self.grouped or not np.any(np.asarray(groups) > 1):
            return alone
        together = _weighted(terms, [self.grouped[term] for term in GEMM_TERMS])
        return np.where(np.asarray(groups) > 1, together, alone)

    def attention_seconds(self, sizes: CoreSizes, *, backward: bool = False) -> Floats:
        """Seconds of attention cores, forward (2) or backward (3), in the common shape of the sizes."""
        measured = backward and bool(self.attention_backward)
        coefficients = self.attention_backward if measured else self.attention
        terms = attention_terms(sizes, self.peak, self.memory_bandwidth)
        seconds = _weighted(terms, [coefficients[term] for term in ATTENTION_TERMS])
        return ATTENTION_BACKWARD * seconds if backward and not measured else seconds


def _weighted(terms: Floats, coefficients: list[float]) -> Floats:
    # A sum in fixed order, where a matrix product would round by the number of rows.
    return np.asarray((terms * np.array(coefficients)).sum(axis=-1))


def gemm_terms(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, peak: float, memory_bandwidth: float, groups: ArrayLike = 1.0
) -> Floats:
    """Terms of (1) at coefficient 1, (..., 5) in seconds, of products (m, k) by (k, n), ``groups`` in one kernel."""
    rows, columns, sums, count = np.broadcast_arrays(
        *(np.asarray(size, dtype=np.float64) for size in (m, n, k, groups))
    )
    flop = 2.0 * rows * columns * sums * count
    product = flop / peak
    terms = (
        product,
        product * flop / (flop + SUSTAINED_FLOP),
        ELEMENT * rows * columns * count / memory_bandwidth,
        ELEMENT * (rows + columns) * sums * count / memory_bandwidth,
        np.ones_like(flop),
    )
    return np.stack(terms, axis=-1)


def attention_terms(sizes: CoreSizes, peak: float, memory_bandwidth: float) -> Floats:
    """Terms of (2) at coefficient 1, (..., 4) in seconds, in the order of ``ATTENTION_TERMS``."""
    samples, tokens, queries, keys, channels, reach = np.broadcast_arrays(
        *(np.asarray(size, dtype=np.float64) for size in sizes._replace(window=sizes.reach))
    )
    scores = samples * queries * tokens * reach
    terms = (
        4.0 * scores * channels / peak,
        ELEMENT * scores / memory_bandwidth,
        2.0 * ELEMENT * samples * tokens * (queries + keys) * channels / memory_bandwidth,
        np.ones_like(scores),
    )
    return np.stack(terms, axis=-1)
