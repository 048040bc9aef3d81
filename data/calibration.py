r"""
A calibration: non-negative coefficients that turn terms of the step time into a machine's seconds.

The step time is a sum of terms (``taut.data.analytic.layer_work``, ``taut.formulations.batch.step_time``):

==================  ===============================================================  =========================
term                at coefficient 1                                                 unit of the coefficient
==================  ===============================================================  =========================
gemm                matrix products by the device's operator model                   1
attention           attention cores by the device's operator model                   1
memory              bytes read and written at the device's peak bandwidth            1 (inverse efficiency)
launch              launches of a pass that its work does not hide                   1
tensor_parallel     all-reduces of tensor groups over the stated links               1
pipeline            hops between stages over the stated links                        1
data_parallel       gradient rings over the stated links                             1
optimizer           optimizer traffic at the device's peak memory bandwidth          1 (inverse efficiency)
constant            one step                                                         seconds
gather              gathers and scatters of shards over the stated links (ZeRO-2     1
                    and 3), before what computation hides
exchange            tokens that expert ranks exchange over the stated links          1
==================  ===============================================================  =========================

A calibration whose runs had no shards leaves ``gather`` out: it is then that of ``data_parallel``, but at least 1,
since a smaller one stands for what these runs hid, and the step-time model hides gathers itself.

One whose runs had no expert ranks leaves ``exchange`` out: it is then that of ``tensor_parallel``, but at least 1, as a
smaller one stands for what dense layers hid.

Beside the coefficients stand properties of the software stack that the terms themselves depend on: ``launch_us``, what
the host takes to launch one pass over one layer, whether attention is fused, and whether biases and activation of
experts are part of their products' kernels (``fused_experts``), and ``gather_slowdown``, the share of their pace that
kernels lose while gathers and scatters of shards run beside them: 0 where the runs had shards, since the coefficients
of computation then hold it, else ``GATHER_SLOWDOWN``.

Since a calibration only multiplies terms, the planner's bounds hold with it as they do without.

``computation`` holds what fits on other types of device found for the terms of a device's own work (``DEVICE_TERMS``),
for clusters of several types: a calibration prices computation on each by that type's, and communication by its own.

``residuals`` holds quantiles of prediction / measurement - 1 on runs that the fit had not seen (cross-validation).

A calibration that is a posterior of several campaigns has in their place the ``covariance`` C of the
logarithms of its coefficients and a ``noise``. A step of which term k takes the share :math:`j_k` then has the band

.. math:: \ln T \pm z \sqrt{j C j + \sigma^2 + s^2},

with z = 1.28 for 80 % of runs, and the deviation s of what lies beyond all runs ((1) of ``taut.data.seen``).
``release`` names the software whose speed the coefficients stand for, and ``features`` what it must have switched on.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer_factor import LayerFactor
from taut.data.loss import FusedLoss
from taut.data.seen import Seen
from taut.data.spec import LATER, GrownSpec, NotNegative, Spec
from taut.data.units import MICROSECOND
from taut.errors import DataError

TERMS = (
    "gemm",
    "attention",
    "memory",
    "launch",
    "tensor_parallel",
    "pipeline",
    "data_parallel",
    "optimizer",
    "constant",
    "gather",
)
EXPERT_TERMS = (*TERMS, "exchange")
"""The terms of models with experts."""
DEVICE_TERMS = ("gemm", "attention", "memory", "launch", "optimizer")
"""The terms of what a device does by itself."""
OWN_PROPERTIES = ("launch_us", "fused_attention", "fused_experts", "layer_factors")
"""What these terms depend on beside their coefficients."""
OPTIONAL = ("gather", "exchange")
"""Terms that a calibration may leave out."""
KEPT = ("fused_attention", "selective_products", "fp8_inputs", "fused_loss")
"""What a stack keeps for the backward pass, of a calibration and of a memory model."""
PASSES = (*KEPT, "early_stop")
"""What a calibration says of passes: what they keep, and where full recompute ends."""
RING_EFFICIENCY = 0.8
"""
Share of nominal link rates that NCCL's rings reach: reduce-scatter and all-gather over the NVLink of eight GPUs 0.68 on
A100, 0.74 on H100, 0.67 on B200 (aiconfigurator's tables), all-reduce 0.76 to 0.89 on A100 and V100 (vTrain's).
"""
GATHER_SLOWDOWN = 0.16
"""
Share of their pace that kernels lose beside collectives. Computation took 18.9 % longer in the mean where it overlapped
collectives, in FSDP and pipelines on four A100, H100 or MI200, and at most 40 % (Lee et al. 2025, arXiv 2507.03114):
1 - 1/1.189 = 0.16, which is of all computation and so rather little for what runs beside collectives alone.
Communication of DeepSeek-V3 takes 20 of the 132 multiprocessors of an H800, 0.15 (arXiv 2412.19437, section 3.2.2).
"""
LOW, HIGH = 0.1, 0.9
"""Quantiles that bound the 80 % band."""
BAND_WIDTH = 1.2816
"""Standard deviations on either side that hold 80 % of a normal distribution."""
OVERLAPPED = "tp-comm-overlap"
"""The feature that communication of tensor ranks runs beside products."""
BETWEEN_REPLICAS = "dp-comm-overlap"
"""The feature that replicas reduce gradients during backward passes and gather weights during forward ones."""
WHOLE_STEPS = "whole-step-graphs"
"""The feature that one CUDA graph launches a whole step."""
COMPILED = "torch-compile"
"""The feature that PyTorch compiles the model, which torchtitan leaves to its user."""
STEP_GRAPH, LAYER_GRAPHS = "one-stage-graph", "one-stage-layer-graphs"
"""The features that one CUDA graph launches a whole step of a dense model in one stage, or one each of its layers."""
RECORDING = (STEP_GRAPH, LAYER_GRAPHS)
"""Features whose price is not in coefficients: plans in one stage have rows of costs of their own for it."""
FP8_GATHERS = "fp8-param-gather"
"""The feature that the distributed optimizer gathers weights in fp8."""
HYBRID_RUNS = "hybrid-ep"
"""The feature that runs exchanged tokens of experts by HybridEP."""
FEATURES = (
    WHOLE_STEPS,
    "part-graphs",
    "fused-activation",
    "fused-router",
    "fused-permutation",
    "grouped-products",
    HYBRID_RUNS,
    OVERLAPPED,
    BETWEEN_REPLICAS,
    COMPILED,
    *RECORDING,
    FP8_GATHERS,
)
"""Features of a software stack that made its releases faster."""


def features_of(stated: Iterable[str], chosen: Any, recompute: Collection[str]) -> list[str]:
    """What a strategy has of the features of its calibration's runs; no CUDA graph records layers recomputed whole."""
    absent = {
        OVERLAPPED: chosen.tp == 1 or not chosen.sequence_parallel,
        BETWEEN_REPLICAS: chosen.dp * chosen.cp == 1,
        FP8_GATHERS: chosen.zero == 0,
        **dict.fromkeys((one for one in FEATURES if one.endswith("graphs")), "full" in recompute),
        **dict.fromkeys(RECORDING, not chosen.records(recompute)),
    }
    return [one for one in stated if not absent.get(one)]


class Computation(Spec):
    """What a calibration of another type of device found for the terms of that device's own work."""

    name: str
    source: str = ""
    launch_us: NotNegative | None = None
    fused_attention: bool = True
    fused_experts: bool = False
    coefficients: dict[str, NotNegative]
    layer_factors: list[LayerFactor] = []

    @model_validator(mode="after")
    def _complete(self) -> "Computation":
        if set(self.coefficients) != set(DEVICE_TERMS):
            known = ", ".join(sorted(self.coefficients)) or "none"
            raise ValueError(f"coefficients: of {known}, expected {', '.join(DEVICE_TERMS)}")
        return self


class Calibration(GrownSpec):
    """
    Coefficients by term, with the software stack and device they were fitted on and the errors on unseen runs.

    ``nodes`` says whether the runs used one node or many, ``precision`` their number format if it matters. ``cluster``
    is the catalog cluster whose links priced the terms. ``selective_products``: selective recompute keeps the output of
    every second product (torchtitan). ``early_stop``: full recompute ends before a layer's last product, as PyTorch's
    checkpoints do from release 2.1 on. ``fp8_inputs``: products in fp8 keep their inputs in fp8 (Transformer Engine).
    ``fused_loss``: how the loss is computed (``taut.data.loss``). ``experts``: the runs were of models with experts.
    ``layer_factors`` are measured over predicted seconds of layers with the runs' shapes
    (``taut.data.layers.layer_factor``). ``seen`` says what the runs have been that it was fitted to or checked on, and
    ``quantile`` at which quantile of what is known its coefficients are, where these are not the likeliest ones
    (``at_quantile``). ``beyond_s`` is then what a step takes longer for each unit of the deviation of
    fields beyond all runs (``taut.data.seen.deviation_beyond``).
    """

    name: str
    stack: str = ""
    device: str = ""
    nodes: Literal["one", "many", "any"] = "any"
    precision: Precision | None = None
    launch_us: NotNegative | None = None
    fused_attention: bool = True
    selective_products: bool = False
    early_stop: Annotated[bool, LATER] = False
    fp8_inputs: bool = False
    fused_experts: bool = False
    fused_loss: Annotated[FusedLoss, LATER] = "none"
    experts: bool = False
    gather_slowdown: Annotated[float, Field(ge=0, lt=1), LATER] = 0.0
    cluster: str = ""
    coefficients: dict[str, NotNegative]
    layer_factors: Annotated[list[LayerFactor], LATER] = []
    computation: Annotated[dict[str, Computation], LATER] = {}
    residuals: dict[str, float] = {}
    covariance: Annotated[list[list[float]], LATER] = []
    noise: Annotated[NotNegative, LATER] = 0.0
    release: Annotated[str, LATER] = ""
    features: Annotated[list[str], LATER] = []
    samples: Annotated[int, Field(ge=0)] = 0
    mape: NotNegative | None = None
    seen: Annotated[Seen | None, LATER] = None
    quantile: Annotated[Annotated[float, Field(gt=0.5, lt=1)] | None, LATER] = None
    beyond_s: Annotated[NotNegative, LATER] = 0.0
    source: str = ""

    @model_validator(mode="after")
    def _complete(self) -> "Calibration":
        for term in TERMS:
            if term not in self.coefficients and term not in OPTIONAL:
                raise ValueError(f"coefficients.{term}: missing, expected a number of at least 0")
        for term in self.coefficients:
            if term not in EXPERT_TERMS:
                raise ValueError(f"coefficients.{term}: unknown term, expected one of {', '.join(EXPERT_TERMS)}")
        for quantile, error in self.residuals.items():
            if not error > -1:
                raise ValueError(f"residuals.{quantile}: is {error}, expected a relative error above -1")
        sizes = [len(row) for row in self.covariance]
        if sizes and sizes != [*range(1, len(EXPERT_TERMS) + 1)]:
            raise ValueError(f"covariance: has rows of {sizes}, expected a lower triangle of {len(EXPERT_TERMS)} terms")
        for feature in self.features:
            if feature not in FEATURES:
                raise ValueError(f"features: is {feature!r}, expected some of {', '.join(FEATURES)}")
        return self

    def __getitem__(self, term: str) -> float:
        """Coefficient of a term."""
        if term in OPTIONAL and term not in self.coefficients:
            alike = "data_parallel" if term == "gather" else "tensor_parallel"
            return max(1.0, self.coefficients[alike])
        return self.coefficients[term]

    def on(self, device: str) -> "Calibration":
        """The calibration as it prices computation on a type of device."""
        if (found := self.computation.get(device)) is None:
            return self
        coefficients = {**self.coefficients, **found.coefficients}
        stated = {name: getattr(found, name) for name in OWN_PROPERTIES}
        return self.model_copy(update={**stated, "coefficients": coefficients})

    def beside(self, others: Mapping[str, "Calibration"]) -> "Calibration":
        """The calibration with the computation of other types of device as the calibrations for these found it."""
        found = {device: other.own_work for device, other in others.items()}
        return self.model_copy(update={"computation": found}) if found else self

    @property
    def own_work(self) -> Computation:
        """Its terms of what a device does by itself, for calibrations of clusters with several types."""
        return Computation(
            name=self.name,
            source=self.source,
            coefficients={term: self[term] for term in DEVICE_TERMS},
            **{name: getattr(self, name) for name in OWN_PROPERTIES},
        )

    @property
    def rings_where_hidden(self) -> float:
        """
        Coefficient of overlapped gradient rings in the place of one below 1.

        Such a one stands for what the runs hid and says nothing of the rings' rates: they are taken to be NCCL's. Fits
        to runs with experts had these rings overlap as the model has it, and keep the stated rates.
        """
        return 1.0 if self.experts else 1.0 / RING_EFFICIENCY

    @property
    def overlapped_rings(self) -> float:
        """Coefficient of gradient rings that the step-time model itself hides behind computation."""
        rings = self["data_parallel"]
        return rings if rings >= 1.0 else self.rings_where_hidden

    @property
    def kept(self) -> dict[str, Any]:
        """What the stack's passes keep and repeat: keywords of ``taut.data.analytic.device_rates.rates_of``."""
        return {name: getattr(self, name) for name in PASSES}

    @property
    def of_runs(self) -> dict[str, Any]:
        """What was fitted to the runs beside coefficients, and how: further keywords of ``rates_of``."""
        found = {"fused_experts": self.fused_experts, "layer_factors": tuple(self.layer_factors)}
        return found | {"launch": self.launch, "routed": self.experts}

    @property
    def launch(self) -> float | None:
        """Seconds that the host takes to launch a pass, or None for the device's."""
        return None if self.launch_us is None else self.launch_us * MICROSECOND

    def at_quantile(self, share: float, step_s: float = 0.0) -> "Calibration":
        r"""
        The calibration with every coefficient at a quantile Q above 0.5, for a usual step of ``step_s`` seconds.

        With z the deviate of Q, a posterior's coefficient is :math:`e^{z (s_k + \sigma)}` times as large. Elsewhere the
        error with quantile 1 - Q divides every coefficient; beyond the outermost error its logarithm grows as a normal
        deviate does. There is no band. ``DataError`` if the calibration does not know how far its predictions may be
        off.
        """
        factors, every = self._factors(share), {**self.coefficients, **{term: self[term] for term in OPTIONAL}}
        beside = {
            device: each.model_copy(update={"coefficients": _times(each.coefficients, factors)})
            for device, each in self.computation.items()
        }
        return self.model_copy(
            update={
                "coefficients": _times(every, factors),
                "computation": beside,
                "residuals": {},
                "covariance": [],
                "noise": 0.0,
                "quantile": share,
                "beyond_s": step_s * NormalDist().inv_cdf(share),
                "source": f"{self.source}; every coefficient at its {share:.3g} quantile",
            }
        )

    def _factors(self, share: float) -> dict[str, float]:
        """How much larger every coefficient is at a quantile, by the posterior or by the errors on unseen runs."""
        if not self.covariance:
            return dict.fromkeys(EXPERT_TERMS, self._factor_of_errors(share))
        deviate, spread = NormalDist().inv_cdf(share), self.spread
        return {term: math.exp(deviate * (spread[term] + self.noise)) for term in EXPERT_TERMS}

    def _factor_of_errors(self, share: float) -> float:
        """Measured over predicted at a quantile, by the errors on unseen runs."""
        known = sorted((1 - float(q), -math.log1p(error)) for q, error in self.residuals.items())
        if not known or known[-1][0] <= 0.5:
            raise DataError(f"{self.name}: does not know how far its predictions may be off, expected residuals")
        for (low, one), (high, two) in pairwise(known):
            if low <= share <= high:
                return math.exp(one + (two - one) * (share - low) / (high - low))
        last, error = known[-1]
        return math.exp(error * NormalDist().inv_cdf(share) / NormalDist().inv_cdf(last))

    @property
    def has_band(self) -> bool:
        """Whether it knows how far its predictions may be off."""
        return bool(self.residuals or self.covariance)

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviations of the logarithms of coefficients, by term; none where they are not known."""
        return {term: row[-1] ** 0.5 for term, row in zip(EXPERT_TERMS, self.covariance, strict=False)}

    def deviation(self, shares: Mapping[str, float], beyond: float = 0.0) -> float:
        """Standard deviation of the logarithm of a step of a posterior, with that of what lies ``beyond`` all runs."""
        share = np.array([shares.get(term, 0.0) for term in EXPERT_TERMS])
        lower = np.zeros((len(share), len(share)))
        for k, row in enumerate(self.covariance):
            lower[k, : k + 1] = row
        whole = lower + np.tril(lower, -1).T
        return float(np.sqrt(share @ whole @ share + self.noise**2 + beyond**2))

    def band(
        self, seconds: float, shares: Mapping[str, float] = MappingProxyType({}), beyond: float = 0.0
    ) -> tuple[float, float]:
        """Seconds between which 80 % of measurements are expected: predictions over 1 + q for error quantiles q."""
        if self.covariance:
            factor = math.exp(BAND_WIDTH * self.deviation(shares, beyond))
            return seconds / factor, seconds * factor
        ends = self.residuals.get(str(HIGH), 0.0), self.residuals.get(str(LOW), 0.0)
        if not beyond:
            return seconds / (1 + ends[0]), seconds / (1 + ends[1])
        more = BAND_WIDTH * beyond
        low, high = (math.hypot(math.log1p(end), more) for end in ends)
        return seconds / math.exp(low), seconds * math.exp(high)


def _times(coefficients: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    return {term: factors[term] * each for term, each in coefficients.items()}


def uncalibrated(device: DeviceSpec) -> Calibration:
    """A calibration that adds nothing to what a device and the links state: traffic at the stated efficiency."""
    return Calibration(
        name=f"stated efficiencies of {device.name}",
        device=device.name,
        coefficients={
            "gemm": 1.0,
            "attention": 1.0,
            "memory": 1 / device.memory_efficiency,
            "launch": 1.0,
            "tensor_parallel": 1.0,
            "pipeline": 1.0,
            "data_parallel": 1.0,
            "optimizer": 1 / device.memory_efficiency,
            "constant": 0.0,
            "gather": 1.0,
        },
    )
