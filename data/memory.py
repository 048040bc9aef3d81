r"""
How memory is accounted: bytes per parameter, what the framework takes, and the margin; or by a network.

Bytes per parameter of the mixed-precision Adam of Megatron-LM, (weights, main gradients, optimizer states); with
ZeRO-1 (its distributed optimizer) the states are divided by the data degree:

==========  =======  =========  ======
precision   weights  gradients  states
==========  =======  =========  ======
bf16        2        4          12
fp16        2        2          16
fp32        4        4          8
fp8, ...    2        4          12
==========  =======  =========  ======

Source: Megatron-LM documentation, "Distributed optimizer" (fp16: 20 or 4 + 16/d, bf16: 18 or 6 + 12/d, fp32: 16 or
8 + 8/d bytes); fp8, blockwise or not, mxfp8 and nvfp4 keep bf16 weights
(Transformer Engine), which is also what is gathered. Gradients are summed over the replicas in the type they
are kept in (``grad_precision`` of a configuration, where it is not the table's).

A network that predicts memory: the estimator of Pipette (Yim et al., DATE 2024, equation 7), evaluated with numpy.

Features x of a configuration, layers k = 1..K with weights :math:`W_k` and biases :math:`b_k`:

(1) :math:`z_0 = (f(x) - centre) / scale` by feature, f the logarithm or the identity;
(2) :math:`z_k = \max(0, W_k z_{k-1} + b_k)`, in the last layer without the maximum;
(3) bytes :math:`= \exp(centre + scale \, z_K)`, those of the fullest device;
(4) feasible: bytes + margin capacity <= capacity.

The ten features of the paper (``FEATURES``) say nothing of sequence, vocabulary, recompute or sharding, so they suit
samples that share those; samples that differ take ``MORE_FEATURES`` too. No feature names a stage: the network stands
for evenly divided layers only, and cannot tell what a stage of an uneven partition needs.

The file is JSON of names and numbers, ``{"format": "taut-memory-network/1", ...}``, and reading it runs nothing.
"""

import json
import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BeforeValidator, Field, model_validator

from taut.data.arrays import Floats, Ints
from taut.data.calibration import KEPT
from taut.data.device import Precision
from taut.data.loss import GRADIENT_APART, HALF_BYTES, SINGLE_BYTES, FusedLoss, LossKind
from taut.data.read import read_json
from taut.data.spec import LATER, GrownSpec, NotNegative, Positive, Spec, as_tuple, shorten
from taut.data.units import GIB, KIB, MOST_BYTES, MOST_GIB
from taut.errors import DataError

FEATURES = ("n_gpus", "layers", "hidden", "heads", "tp", "pp", "dp", "micro_batch", "mini_batch", "global_batch")
"""Pipette's, in the order of its equation 7; ``mini_batch`` is a replica's share of the global batch (Algorithm 1)."""
MORE_FEATURES = ("kv_heads", "ffn_hidden", "seq", "vocab", "cp", "vpp", "gpipe", "selective", "full", "zero")
"""What else memory depends on; ``gpipe``, ``selective`` and ``full`` (recompute) are 0 or 1."""
ALL_FEATURES = FEATURES + MORE_FEATURES


class Scaling(Spec):
    """How a quantity enters or leaves the network: less ``centre``, over ``scale``."""

    centre: float
    scale: Positive


class Feature(Scaling):
    """A feature, whether its logarithm is scaled or itself, and the least and most that the samples had of it."""

    name: str
    log: bool
    least: float
    most: float

    def scaled(self, values: Floats) -> Floats:
        """Values as they enter the first layer, (1)."""
        return np.asarray(((np.log(values) if self.log else values) - self.centre) / self.scale)


class Layer(Spec):
    """Weights (outputs, inputs) and biases (outputs,)."""

    weights: list[list[float]]
    biases: list[float]


class MemoryNetwork(Spec):
    """
    A trained network, with what it says of itself.

    ``margin`` is the share of a device's memory that stays free because predictions err, ``level`` the chance that a
    new sample like the old ones needs more, and ``mape`` the mean relative error on samples that training did not see.
    """

    format: Literal["taut-memory-network/1"] = "taut-memory-network/1"
    name: str = "network"
    stack: str = ""
    device: str = ""
    precision: Precision | None = None
    features: Annotated[list[Feature], Field(min_length=1)]
    target: Scaling
    layers: Annotated[list[Layer], Field(min_length=1)]
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    samples: Annotated[int, Field(ge=0)] = 0
    mape: NotNegative | None = None
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> "MemoryNetwork":
        names = self.names
        for number, feature in enumerate(self.features):
            _check_feature(feature, f"features.{number}", names)
        inputs = len(names)
        for number, layer in enumerate(self.layers):
            _check_layer(layer, f"layers.{number}", inputs)
            inputs = len(layer.biases)
        if inputs != 1:
            raise ValueError(f"layers.{len(self.layers) - 1}: {inputs} outputs, expected 1")
        return self

    @property
    def names(self) -> list[str]:
        """Names of the features, in the order in which ``predict`` takes them."""
        return [feature.name for feature in self.features]

    def predict(self, features: ArrayLike) -> Floats:
        """
        Bytes of the fullest device, (configurations,), of evenly divided ones by feature as ``names``.

        Raises ``DataError`` for another shape, or an entry that is not finite, or not above 0 where its logarithm is
        taken.
        """
        values, last = self._checked(features), len(self._arrays) - 1
        with np.errstate(over="ignore", invalid="ignore"):
            columns = [feature.scaled(column) for feature, column in zip(self.features, values.T, strict=True)]
            inputs = np.column_stack(columns)
            for number, (weights, biases) in enumerate(self._arrays):
                inputs = inputs @ weights.T + biases
                inputs = inputs if number == last else np.maximum(inputs, 0.0)
            logarithm = self.target.centre + self.target.scale * inputs[:, 0]
        if np.isnan(logarithm).any():
            row = int(np.flatnonzero(np.isnan(logarithm))[0])
            raise DataError(f"memory network {self.name}: row {row} gives no number, expected smaller weights")
        # Far from the samples the network may say anything; no device has more than this.
        return np.asarray(np.exp(np.minimum(logarithm, np.log(MOST_BYTES))))

    def outside(self, features: ArrayLike) -> list[str]:
        """Names of the features that lie outside what the samples had, in any row; predictions there are guesses."""
        values = self._checked(features)
        bounds = np.array([(feature.least, feature.most) for feature in self.features])
        beyond = np.any((values < bounds[:, 0]) | (values > bounds[:, 1]), axis=0)
        return [self.names[column] for column in np.flatnonzero(beyond)]

    def margin_kib(self, capacity_kib: int) -> int:
        """KiB that stay free on a device with this capacity, rounded up, (4)."""
        return -int(-self.margin * capacity_kib // 1)

    @cached_property
    def _arrays(self) -> list[tuple[Floats, Floats]]:
        return [(np.array(layer.weights, dtype=float), np.array(layer.biases, dtype=float)) for layer in self.layers]

    def _checked(self, features: ArrayLike) -> Floats:
        values = np.asarray(features, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.features):
            wanted = f"(configurations, {len(self.features)})"
            raise DataError(f"memory network {self.name}: features are {values.shape}, expected {wanted}")
        logs = np.array([feature.log for feature in self.features])
        wrong = ~np.isfinite(values) | (logs & (values <= 0))
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            feature = self.features[column]
            wanted = "above 0" if feature.log else "a finite number"
            raise DataError(
                f"memory network {self.name}: row {row}: {feature.name} is {values[row, column]:g}, expected {wanted}"
            )
        return values


def _check_feature(feature: Feature, where: str, names: list[str]) -> None:
    if feature.name not in ALL_FEATURES:
        raise ValueError(f"{where}.name: is {shorten(feature.name)}, expected one of {', '.join(ALL_FEATURES)}")
    if names.count(feature.name) > 1:
        raise ValueError(f"{where}.name: {feature.name} stands twice, expected once")
    if feature.least > feature.most:
        raise ValueError(f"{where}.least: is {feature.least}, expected at most {feature.most}")


def _check_layer(layer: Layer, where: str, inputs: int) -> None:
    if not layer.biases:
        raise ValueError(f"{where}.biases: none, expected at least one")
    if len(layer.weights) != len(layer.biases):
        raise ValueError(f"{where}: {len(layer.weights)} rows of weights, expected {len(layer.biases)} as of biases")
    for number, row in enumerate(layer.weights):
        if len(row) != inputs:
            raise ValueError(f"{where}.weights.{number}: {len(row)} weights, expected {inputs} as of inputs")


def read_memory_network(path: Path) -> MemoryNetwork:
    """A network from its JSON file; ``DataError`` if it is not such JSON, or its shapes or figures are wrong."""
    return MemoryNetwork.parse(read_json(path, "a memory network file"), str(path))


def network_json(network: MemoryNetwork) -> str:
    """The network's JSON file in one line, from which ``read_memory_network`` makes the same network."""
    return json.dumps(network.model_dump(mode="json"), allow_nan=False) + "\n"


MEMORY_TERMS = ("weights", "gradients", "states", "activations", "checkpoints", "workspace", "logits", "buffers")
GradPrecision = Literal["bf16", "fp16", "fp32"]
"""Number formats in which gradients are kept and summed."""
GRADIENT_BYTES: dict[GradPrecision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
LOGIT_BYTES = 8
"""Bytes for an entry of the logits' passing copies: 2 of half precision and the gradient in single precision."""
REMAINDER_BYTES = 2
"""Bytes of an fp32 weight beyond those that it shares with its bf16 copy."""
MOMENTS_SAVED, MOMENTS_CAST = 4, 8
"""Bytes of a parameter that moments in half precision save, and take in single precision while they are updated."""
STAND_INS, BOTH_OUTPUTS, GROUPED_STAND_INS = (2, 3), (2, 8), (2, 10)
"""Releases of Transformer Engine from which stand-ins of gradients, two outputs, and stand-ins of experts are kept."""
Coefficient = Annotated[float, Field(ge=0, le=1000)]
OffloadFraction = Annotated[float, Field(ge=0, le=1)]
ParamGather = Literal["gradients", "weights", "fp8"]
"""Formats in which ZeRO-1 gathers updated weights."""
Optimizer = Literal["adam", "muon"]
"""Optimizers; ``muon`` leaves embeddings, head and vectors to Adam (``taut.formulations.mechanisms.muon``)."""


class ParameterBytes(NamedTuple):
    """Bytes that one parameter takes on a device, and those ``gathered`` after its update under ZeRO-1."""

    weight: int
    gradient: int
    state: int
    gathered: int | None = None

    def exchanged(self, zero: int, num_micro_batches: int) -> float:
        """
        Bytes per parameter that all-reduces of a step carry, or what does as much, at a ZeRO stage.

        A reduce-scatter and an all-gather are half an all-reduce each. Stages 0 and 1 sum the gradients once a step;
        stage 2 scatters them after every micro-batch and gathers the weights once; stage 3 gathers the weights for both
        passes of every micro-batch (Rajbhandari et al., arXiv 1910.02054, section 7).
        """
        if zero == 3:
            return num_micro_batches * (self.gradient + 2 * self.weight) / 2
        if zero == 2:
            return (num_micro_batches * self.gradient + self.weight) / 2
        return float(self.gradient)

    def exchanged_at_end(self, zero: int, *, in_pipeline: bool = False) -> float:
        """
        Bytes as ``exchanged`` that are left after the passes, where each micro-batch's go with its own passes.

        Stages 2 and 3 scatter gradients here in a pipeline, whose stages keep them whole until then.
        """
        gathered = self.gradient if self.gathered is None else self.gathered
        left = {1: (self.gradient + gathered) / 2, 2: self.weight / 2, 3: 0.0}.get(zero, float(self.gradient))
        return left + (self.gradient / 2 if in_pipeline and zero >= 2 else 0.0)


PARAMETER_BYTES: dict[Precision, ParameterBytes] = {
    "bf16": ParameterBytes(2, 4, 12),
    "fp16": ParameterBytes(2, 2, 16),
    "fp32": ParameterBytes(4, 4, 8),
    "fp8": ParameterBytes(2, 4, 12),
    "fp8-blockwise": ParameterBytes(2, 4, 12),
    "mxfp8": ParameterBytes(2, 4, 12),
    "nvfp4": ParameterBytes(2, 4, 12),
}


def parameter_bytes(precision: Precision, gradients: GradPrecision | None = None) -> ParameterBytes:
    """Bytes per parameter in a precision, with gradients kept and summed in the table's format or in the given one."""
    each = PARAMETER_BYTES[precision]
    return each if gradients is None else each._replace(gradient=GRADIENT_BYTES[gradients])


GRAPH_GIB = 3.0
"""
GiB that CUDA graphs of a step in one stage keep: Megatron-Bridge's performance guide has "a few gigabytes for static
buffers", and over 10 with several stages.
"""


class MemoryModel(GrownSpec):
    """
    Coefficients of the terms of a device's memory (``taut.formulations.tables.memory``), analytic or fitted.

    Gradients and states: ``grad_precision`` is the format in which gradients are kept and summed; its default follows
    from the precision. With ``half_gradients`` gradients in the weights' format stay as well, if that format is
    shorter, as in DeepSpeed's bf16 optimizer (``deepspeed/runtime/bf16_optimizer.py``). With ``weight_remainders`` the
    optimizer keeps only the 2 bytes of its fp32 weights that their bf16 copies lack (Apex's
    ``distributed_fused_adam.py`` as NeMo sets it, Megatron-LM's ``--use-precision-aware-optimizer``): 10 bytes of
    states instead of 12. With ``half_moments`` it keeps both moments in bf16, 4 bytes fewer, and casts the moments of a
    parameter group to fp32 while it updates the group's weights (Transformer Engine's
    ``pytorch/optimizers/fused_adam.py``). The share ``optimizer_offload_fraction`` of the states is in the host's
    memory, and the host updates their weights (``taut.formulations.mechanisms.offload``). Under the ``optimizer`` muon
    matrices have one moment of 4 bytes (``taut.formulations.mechanisms.muon``). ``param_gather`` is the format in which
    ZeRO-1 gathers updated weights: that of the ``weights``, ``fp8``, or that of the ``gradients``, as documents read it
    that do not state it. Megatron-LM gathers the weights' format (``param_and_grad_buffer.py``), with
    ``--fp8-param-gather`` one byte of fp8, and in mxfp8 bf16. Plans and rows state it (``gathers_of_frameworks``).

    Logits (``taut.data.loss``): ``whole_logit_bytes`` are the bytes of an entry in temporary copies of the logits, and
    ``shared_logit_bytes`` the same if tensor ranks share the vocabulary, where the loss is not fused.
    ``fused_logit_bytes`` are the bytes of the gradient if a loss ``te`` keeps it next to the logits.

    Products: ``transformer_engine`` is the release of Transformer Engine, such as ``2.10``, or empty where the stack
    has none. Releases from 2.3 on keep a stand-in for the gradient of every weight shape
    (``taut.data.layers.layer``), and from 2.8 on the attention's output before and behind an all-to-all of
    context ranks (``AttnFuncWithCPAndQKVOA2A`` in ``context_parallel.py``). With ``passing_gradients`` the gradients of
    activations count that pass in a layer's backward pass; a fitted model has them in its coefficients.

    Overhead and margin: ``overhead_gib`` is what CUDA, NCCL and the framework hold on every device.
    ``group_overhead_gib`` is what communicators and their buffers add, once for several stages and once for several
    replicas. ``graph_gib`` is what CUDA graphs of a step in one stage keep in buffers; if it is 0 and
    prices count on them, they keep ``GRAPH_GIB``. ``coefficients`` multiply the other terms (default 1). The share
    ``margin`` of a device's memory and the size ``margin_gib`` stay free, because predictions err.

    Defaults of configurations and cost tables: ``sequence_parallel`` says whether tensor ranks use sequence
    parallelism, ``fused_attention`` whether attention scores stay out of memory. ``selective_products``, ``fp8_inputs``
    and ``fused_loss`` are as in ``taut.data.calibration``.

    A fitted model has its ``stack`` and ``device``, the number of samples, the mean error on unseen samples, and the
    ``level``, the chance that a run exceeds the margin. ``excesses_gib`` are measurement less prediction on unseen
    samples, and ``ranges`` the least and the most of the samples' figures. A ``network`` replaces the terms and has a
    margin of its own.
    """

    name: str = "analytic"
    precision: Precision = "bf16"
    grad_precision: GradPrecision | None = None
    half_gradients: bool = False
    weight_remainders: bool = False
    half_moments: Annotated[bool, LATER] = False
    optimizer_offload_fraction: Annotated[OffloadFraction, LATER] = 0.0
    optimizer: Annotated[Optimizer, LATER] = "adam"
    param_gather: Annotated[ParamGather, LATER] = "gradients"
    whole_logit_bytes: Annotated[int, Field(ge=0, le=64), LATER] = LOGIT_BYTES
    shared_logit_bytes: Annotated[int, Field(ge=1, le=64)] = LOGIT_BYTES
    fused_logit_bytes: Annotated[int, Field(ge=0, le=64), LATER] = 0
    transformer_engine: Annotated[str, Field(pattern=r"^([0-9]{1,3}\.[0-9]{1,3})?$"), LATER] = ""
    passing_gradients: Annotated[bool, LATER] = False
    overhead_gib: Annotated[float, Field(ge=0, le=MOST_GIB)] = 2.0
    group_overhead_gib: Annotated[float, Field(ge=0, le=MOST_GIB)] = 0.0
    graph_gib: Annotated[float, Field(ge=0, le=MOST_GIB), LATER] = 0.0
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    margin_gib: Annotated[float, Field(ge=0, le=MOST_GIB)] = 0.0
    coefficients: dict[str, Coefficient] = {}
    sequence_parallel: bool = False
    fused_attention: bool = True
    selective_products: bool = False
    fp8_inputs: bool = False
    fused_loss: Annotated[FusedLoss, LATER] = "none"
    stack: str = ""
    device: str = ""
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    excesses_gib: list[float] = []
    samples: Annotated[int, Field(ge=0)] = 0
    mape: NotNegative | None = None
    ranges: dict[str, Annotated[tuple[float, float], BeforeValidator(as_tuple)]] = {}
    source: str = ""
    network: MemoryNetwork | None = None

    @model_validator(mode="after")
    def _known_terms(self) -> "MemoryModel":
        for term in self.coefficients:
            if term not in MEMORY_TERMS:
                raise ValueError(f"coefficients.{term}: unknown term, expected one of {', '.join(MEMORY_TERMS)}")
        return self

    @model_validator(mode="after")
    def _single_precision_on_the_host(self) -> "MemoryModel":
        if not self.optimizer_offload_fraction:
            return self
        for name in ("weight_remainders", "half_moments"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}: is true, expected false with optimizer_offload_fraction, whose states are fp32"
                )
        if self.network is not None:
            raise ValueError(f"optimizer_offload_fraction: {self.network.name} does not know it, expected 0")
        return self

    @model_validator(mode="after")
    def _single_precision_under_muon(self) -> "MemoryModel":
        for name in ("weight_remainders", "half_moments", "optimizer_offload_fraction"):
            if self.optimizer == "muon" and getattr(self, name):
                raise ValueError(f"{name}: is {getattr(self, name)}, expected none with optimizer muon")
        return self

    @property
    def is_sum_of_terms(self) -> bool:
        """Whether memory is the sum of terms of any division; a network knows even divisions of few candidates."""
        return self.network is None

    def coefficient(self, term: str) -> float:
        """Coefficient of a term on a device: of states, times the share that stays there."""
        own = self.coefficients.get(term, 1.0)
        return own * (1 - self.optimizer_offload_fraction) if term == "states" else own

    def weigh(self, term: str, figure: Ints) -> Ints:
        """Coefficient times the figure of a term, rounded up to whole bytes."""
        coefficient = self.coefficient(term)
        return figure if coefficient == 1.0 else np.ceil(coefficient * figure).astype(np.int64)

    def logit_bytes(self, tp: int, fused_loss: LossKind) -> int:
        """Bytes of an entry of the logits' passing copies on one of so many tensor ranks (``taut.data.loss``)."""
        if fused_loss == "native":
            return HALF_BYTES
        if fused_loss == "te":
            return max(self.fused_logit_bytes, SINGLE_BYTES * (self.engine >= GRADIENT_APART))
        return self.shared_logit_bytes if tp > 1 else self.whole_logit_bytes

    @property
    def engine(self) -> tuple[int, int]:
        """Release of Transformer Engine as two numbers, (0, 0) without it."""
        first, _, second = self.transformer_engine.partition(".")
        return (int(first), int(second)) if first else (0, 0)

    def caches(self, *, grouped: bool) -> bool:
        """Whether a stand-in for the gradient of a weight stays, one of many in a kernel or not."""
        return self.engine >= (GROUPED_STAND_INS if grouped else STAND_INS)

    @property
    def saves_both_outputs(self) -> bool:
        """Whether attention keeps its output before and behind an all-to-all of context ranks."""
        return self.engine >= BOTH_OUTPUTS

    @property
    def kept(self) -> dict[str, Any]:
        """What the stack keeps for the backward pass: keywords of ``taut.data.analytic.device_rates.rates_of``."""
        return {name: getattr(self, name) for name in KEPT}

    def outside(self, **values: float) -> list[str]:
        """Names of the values that lie outside what the samples had."""
        known = ((name, value, self.ranges[name]) for name, value in values.items() if name in self.ranges)
        return [name for name, value, (least, most) in known if not least <= value <= most]

    @property
    def gathers_of_frameworks(self) -> ParamGather:
        """The stated format of gathered weights; that of the weights, as frameworks gather them, where none is."""
        return self.param_gather if "param_gather" in self.model_fields_set else "weights"

    @property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes per parameter in these precisions."""
        each = parameter_bytes(self.precision, self.grad_precision)
        shared = self.weight_remainders and self.precision not in ("fp16", "fp32")
        state = each.state - (4 - REMAINDER_BYTES) * shared - MOMENTS_SAVED * self.half_moments
        gathered = {"gradients": None, "weights": each.weight, "fp8": 1}[self.param_gather]
        return each._replace(state=state, gathered=gathered)

    @property
    def held_parameter_bytes(self) -> ParameterBytes:
        """Bytes per parameter that a device holds: gradients that stay beside the summed ones included."""
        each = self.parameter_bytes
        beside = each.weight if self.half_gradients and each.gradient > each.weight else 0
        return each._replace(gradient=each.gradient + beside)

    @property
    def is_written_out(self) -> bool:
        """Whether every field is stated that documents write, so that those with their defaults state nothing."""
        return self.model_fields_set >= type(self).model_fields.keys() - self._later().keys()

    @property
    def graph_bytes(self) -> int:
        """Bytes that CUDA graphs of a step in one stage keep."""
        return round(self.graph_gib * GIB)

    @property
    def overhead_bytes(self) -> int:
        """Bytes that the framework holds on every device."""
        return round(self.overhead_gib * GIB)

    @property
    def group_bytes(self) -> int:
        """Bytes that the framework holds for the pipeline, and for the replicas, where there are several of them."""
        return round(self.group_overhead_gib * GIB)

    def margin_kib(self, capacity_kib: int) -> int:
        """KiB that stay free on a device with so many KiB of memory, rounded up."""
        if self.network is not None:
            return self.network.margin_kib(capacity_kib)
        return -int(-self.margin * capacity_kib // 1) + math.ceil(self.margin_gib * GIB / KIB)


def beyond(model: MemoryModel, names: Iterable[str]) -> str:
    """What was asked beyond the samples of a fitted model, by the names of its ``ranges``, in words."""
    ranges = (f"{name} (samples: {model.ranges[name][0]:g} to {model.ranges[name][1]:g})" for name in names)
    return f"asked beyond the runs it was fitted on: {', '.join(ranges)}"
