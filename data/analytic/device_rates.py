r"""
What a device makes of work in a precision: seconds of operators, bytes of numbers, bandwidth and launches.

A precision is the number format of weights and activations, or a recipe by which matrix products run in a narrower one
between weights and activations of bf16. Attention cores, traffic, messages and stored weights are bf16's in all of
them. With P the device's peak rate in the precision and :math:`P_{16}` in half precision:

=============  ==========================================================  ====================================
recipe         products of a layer                                         inputs kept, bytes each
=============  ==========================================================  ====================================
fp8            bf16's operator model at P, (1)                             2
fp8-blockwise  fitted, (2): one scale for 128 inputs                       1 + 4/128
mxfp8          fitted, (2): one scale for 32, on Blackwell                 1 + 1/32
nvfp4          fitted, (2): one scale for 16, on Blackwell                 1/2 + 1/16
=============  ==========================================================  ====================================

In half precision products and attention are those of kernels of training where any were measured, and attention is so
in every recipe. Grouped products of training are left out (``routed``) for calibrations of runs with experts: these
runs' own kernels were newer and faster than those that were measured, and their coefficients stand beside inference.

(1) Coefficients of FLOP are multiplied by :math:`P_{16} / P`, and those of traffic by the width of a number. They are
    those of inference. Nothing was fitted, but three calibrations of training in fp8 on H100 find 1.1 to 1.5 times
    these seconds, and 1.1 to 1.3 times those in bf16, where scales are a step old and casts are fused into norms; runs
    on Blackwell find 1.0 to 1.1 times. Tables of inference in fp8, which find a scale for each product, are 1.6 times
    as long. Products of experts take their scales by blocks as measured: no grouped product with one scale was, and
    runs of NVIDIA's with either recipe are as fast.
(2) The coefficients of the operator model's products fitted to those of the recipe, with the cast of their inputs, and
    P in the place of :math:`P_{16}`. Without such a fit, (1).
(3) What a product keeps for its weight gradient is its input as cast, beside what attention and the activation function
    keep in bf16 (Transformer Engine). In fp8 it is the input in bf16, as torchao keeps it: the larger of the two; a
    stack with ``fp8_inputs`` keeps it as cast, 1 byte, as Transformer Engine does under every recipe.
(4) The head multiplies in bf16 as frameworks have it; in fp8 at the layers' rate, with which the calibrations were
    fitted.
(5) Where inputs are kept as cast in fp8, a cast reads 2 bytes and writes 1 twice: Hopper multiplies in fp8 only
    matrices whose sums lie along the rows, so that the weight gradient takes a transposed copy (Transformer Engine,
    ``cast_transpose``). In other recipes the casts are part of the products, (2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from taut.data.analytic.kernel_floors import BestRate, CoreSizes, best_bandwidth, fastest_kernels
from taut.data.analytic.operator_times import ELEMENT, OperatorModel
from taut.data.arrays import Floats
from taut.data.device import HALF, QUANTIZED, DeviceSpec, Precision
from taut.data.layers.experts import FUSED_MOVES
from taut.data.layers.layer_factor import LayerFactor
from taut.data.loss import SINGLE_BYTES, LossKind

ELEMENT_BYTES: dict[Precision, int] = {
    "bf16": 2,
    "fp16": 2,
    "fp32": 4,
    "fp8": 2,
    "fp8-blockwise": 2,
    "mxfp8": 2,
    "nvfp4": 2,
}
KEPT_BLOCK = 128
"""Inputs in a block of which every recipe keeps a whole number of bytes."""
FP8_KEPT = 128
"""Bytes of a block of inputs kept in fp8 with one scale for a whole tensor."""
FP8_CAST = 4
"""Bytes that a cast to fp8 moves for every number, (5)."""
KEPT_BYTES: dict[Precision, int] = {
    **{precision: KEPT_BLOCK * element for precision, element in ELEMENT_BYTES.items()},
    "fp8-blockwise": 132,
    "mxfp8": 132,
    "nvfp4": 72,
}
"""Bytes of a block of inputs that products keep for their weight gradients, with the scales, (3)."""


class Operators(Protocol):
    """Seconds of matrix products and attention cores: an operator model's, or measured ones."""

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0, /) -> Floats:
        """Seconds of products of m x k with k x n matrices, ``groups`` of them in one kernel."""
        ...

    def attention_seconds(self, sizes: CoreSizes, /, *, backward: bool = False) -> Floats:
        """Seconds of causal attention cores, forward or backward."""
        ...


@dataclass(frozen=True)
class Remembered:
    """Operators that price each size of a product once: cost tables ask for every size seven times and more."""

    of: Operators
    known: dict[tuple[float, ...], Floats] = field(default_factory=dict)

    def gemm_seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike = 1.0) -> Floats:
        """Seconds of products whose sizes are single numbers."""
        size = tuple(float(np.asarray(each)) for each in (m, n, k, groups))
        if size not in self.known:
            self.known[size] = self.of.gemm_seconds(*size)
        return self.known[size]

    def attention_seconds(self, sizes: CoreSizes, *, backward: bool = False) -> Floats:
        """Seconds of attention cores, forward or backward."""
        return self.of.attention_seconds(sizes, backward=backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """
    What a device makes of work: operators in the precision, bandwidth, launch seconds of a pass.

    ``product`` is the seconds of a FLOP in large matrix products, by which an unfused attention core's are priced;
    ``kept`` the bytes that products keep of ``KEPT_BLOCK`` inputs, (3), and ``cast`` those that a cast moves for every
    number, (5); ``head`` the operators of the head where they are others than a layer's, (4). ``selective_products``
    says what selective recompute keeps (``taut.data.analytic.layer_costs`` (3)), ``early_stop`` that full recompute
    ends before a layer's last product (``taut.data.analytic.layer_work``), ``fused_experts`` that biases and
    activation of experts are part of their products' kernels, ``fused_loss`` how the loss is computed
    (``taut.data.loss``), ``imbalance`` the load of the fullest rank's experts over the mean, ``summed`` the bytes of a
    number of the experts' outputs where expert ranks gather all of their tokens and sum these, 0 where they do not.
    ``row_moves`` are rows that a pass moves for each row of an expert (``taut.data.analytic.routed_layers`` (3)).
    ``layer_factors`` are those of layers of some shapes (``taut.data.layers.layer_factor``). ``fastest`` are the rates
    of the fastest kernels that were measured (``taut.data.analytic.kernel_floors``), None where operators were.
    ``recorded`` says that CUDA graphs launch the passes of ranks that wait for each other.
    """

    operators: Operators
    product: float
    memory_bandwidth: float
    memory_efficiency: float
    launch: float
    element: int
    kept: int
    cast: int = 0
    head: Operators | None = None
    fused_attention: bool = True
    selective_products: bool = False
    early_stop: bool = False
    fused_experts: bool = False
    fused_loss: LossKind = "none"
    imbalance: float = 1.0
    summed: int = 0
    row_moves: float = FUSED_MOVES
    layer_factors: tuple[LayerFactor, ...] = ()
    fastest: "Rates | None" = None
    recorded: bool = False

    @property
    def logit_bytes(self) -> int:
        """Bytes that the loss keeps for an entry of the logits: in single precision, or as computed (``te``)."""
        return self.element if self.fused_loss == "te" else SINGLE_BYTES

    @property
    def casts(self) -> bool:
        """Whether what products keep of an input is another copy than the input itself, (3)."""
        return self.kept != KEPT_BLOCK * self.element


class Ways(TypedDict, total=False):
    """How a stack computes layers, and how experts are loaded: fields of ``Rates``."""

    fused_attention: bool
    selective_products: bool
    early_stop: bool
    fused_experts: bool
    fused_loss: LossKind
    imbalance: float
    summed: int
    row_moves: float
    layer_factors: tuple[LayerFactor, ...]


def recorded_by(rates: Rates, width: int) -> Rates:
    """The rates where CUDA graphs launch the passes of as many tensor and context ranks, which wait for each other."""
    return replace(rates, launch=0.0) if width == 1 else replace(rates, recorded=True)


def rates_of(
    device: DeviceSpec,
    precision: Precision,
    operators: Operators | None,
    *,
    launch: float | None = None,
    fp8_inputs: bool = False,
    routed: bool = False,
    **ways: Unpack[Ways],
) -> Rates:
    """Rates of a device; ``launch``: seconds of the host for a pass, ``routed``: fitted to runs with experts."""
    stated = stated_operators(device, precision)
    chosen, head = stated if operators is None else operators, None
    if precision in QUANTIZED and precision != "fp8" and "bf16" in device.peak_tflops:
        head = stated_operators(device, "bf16") if operators is None else operators
        head = in_precision(head, device, "bf16") if isinstance(head, OperatorModel) else head
    if isinstance(chosen, OperatorModel):
        chosen = in_precision(chosen, device, precision, routed=routed)
    rated = chosen if isinstance(chosen, OperatorModel) else stated
    as_cast = precision == "fp8" and fp8_inputs
    rates = Rates(
        operators=chosen,
        product=rated.gemm["product"] / rated.peak,
        memory_bandwidth=device.memory_bandwidth,
        memory_efficiency=device.memory_efficiency,
        launch=device.launch if launch is None else launch,
        element=ELEMENT_BYTES[precision],
        kept=FP8_KEPT if as_cast else KEPT_BYTES[precision],
        cast=FP8_CAST if as_cast else 0,
        head=head,
        **ways,
    )
    if operators is None:
        return replace(rates, fastest=_fastest(rates, device, precision, ()))
    if isinstance(operators, OperatorModel):
        return replace(rates, fastest=_fastest(rates, device, precision, operators.best))
    return rates


def _fastest(rates: Rates, device: DeviceSpec, precision: Precision, best: Sequence[BestRate]) -> Rates:
    """The same work by the fastest kernels that were measured, or at the device's peaks, and no launches."""
    kernels = fastest_kernels(best, device, precision)
    return replace(
        rates,
        operators=kernels,
        head=None if rates.head is None else fastest_kernels(best, device, "bf16"),
        product=1.0 / (device.peak_flops(precision) or math.inf),
        memory_bandwidth=best_bandwidth(best, device),
        memory_efficiency=1.0,
        launch=0.0,
        layer_factors=(),
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


def in_precision(
    model: OperatorModel, device: DeviceSpec, precision: Precision, *, routed: bool = False
) -> OperatorModel:
    """The model with its products fitted to training or the recipe, or at another peak and width, (1) and (2)."""
    faster = (device.peak_flops(precision) or model.peak) / model.peak
    core = (device.attention_flops(precision) or model.peak) / model.peak
    wider = ELEMENT_BYTES[precision] / ELEMENT
    gemm = {"product": 1 / faster, "sustained": 1 / faster, "output": wider, "inputs": wider, "launch": 1.0}
    attention = {"product": 1 / core, "scores": 1 / core, "traffic": wider, "launch": 1.0}
    trained = model.training
    products = (trained if precision in HALF else None) or model.recipes.get(precision) or model
    cores = trained if trained is not None and trained.attention else model
    blocks = "fp8-blockwise" if precision == "fp8" else precision
    half = trained if trained is not None and trained.grouped and precision in HALF and not routed else None
    grouped = half or model.recipes.get(blocks) or model
    return model.model_copy(
        update={
            "gemm": {term: value * gemm[term] for term, value in products.gemm.items()},
            "grouped": {term: value * gemm[term] for term, value in grouped.grouped.items()},
            "attention": {term: value * attention[term] for term, value in cores.attention.items()},
            "attention_backward": {term: value * attention[term] for term, value in cores.attention_backward.items()},
        }
    )
