r"""
A stack: what a training framework can run, and what it is known to cost.

A framework runs some of all strategies. A stack states which:

=====================  ============================================================================================
field                  meaning
=====================  ============================================================================================
schedules              pipeline schedules it runs
recompute              kinds of recompute it has
recompute_modules      modules that selective recompute may name, none where it has one kind
recompute_by_stage     whether stages may recompute differently
block_recompute        whether every chunk may recompute some of its layers, the first ones, and keep the others
zero, pipeline_zero    ZeRO stages it has, and the ZeRO stages that it has in pipelines
divisions              forms in which it states a division of the layers over stages (below)
empty_ends             whether, with several chunks a device, the first chunk may hold only the embedding, and the last
                       only the loss
uneven_batch           whether replicas on different types of device may run different numbers of micro-batches, with
                       gradients averaged over samples
offload_zero           ZeRO stages that allow all optimizer states in the host's memory
offload_part_zero      ZeRO stages that allow a part of the optimizer states in the host's memory
offload_activations    kinds of recompute that allow activations of whole layers in the host's memory
offload_pipelines      whether pipelines allow activations of whole layers in the host's memory
offload_shares         allowed shares of these activations: ``any``; ``layers``, whole layers and fewer than all;
                       ``all``, all or none
offload_modules        modules whose inputs may be in the host's memory (``taut.data.analytic.offload_modules``), in
                       pipelines too, with no recompute or selective recompute
replicated_kv          whether several tensor ranks may have the same key-value heads
tied_pipelines         whether first and last stage may share an embedding that is the head
sequence_parallel      whether tensor ranks may, or must, divide the activations between their blocks
context_parallel       whether context ranks may share every sequence
mixer_contexts         whether they may where layers mix tokens otherwise than by attention
encoders               whether the first stage may have an encoder of images before the embedding
cp_comm                how context ranks share attention (``taut.formulations.degrees`` (4))
overlap_context        whether a step of a ring of keys and values runs during the attention of the step before
expert_parallel        whether experts may have ranks of their own
expert_zero            ZeRO stages with expert ranks; all of ``zero`` if none is named
expert_tensor          whether several tensor ranks may share an expert if experts have ranks of their own
dispatch               how expert ranks exchange tokens unless a user says otherwise (``taut.data.layers.experts``)
dispatchers            dispatchers of tokens to expert ranks that it has
process_meshes         whether stages on different types of device may have different tensor and data-parallel degrees
                       (``taut.formulations.meshes``)
grad_precision         number formats in which it keeps and sums gradients
cuda_graphs            whether passes of dense models in one stage are launched by CUDA graphs where the runs of the
                       calibration had these
optimizers             optimizers that can run: adam, and muon (``taut.formulations.mechanisms.muon``)
overlap_grad_reduce    whether gradients are reduced during the last backward pass unless a user says otherwise
overlap_in_pipelines   whether this is possible in pipelines
fused_attention        whether attention is one kernel; by default as in the runs of the calibration
fused_loss             how the loss is computed unless a user says otherwise (``taut.data.loss``); by default as in
                       the runs of the calibration
calibrations           fitted coefficients of its step time, catalog names or files, in the order of preference
memory_models          fitted models of its memory, catalog names or files, in the order of preference
rules                  the limits in words, each with its source
=====================  ============================================================================================

Forms of division (``taut.formulations.divisions``):

- ``even``: every chunk has the same number of layers;
- ``with-ends``: the same, with embedding, loss or both counted as a layer;
- ``balanced``: even, with one more layer on each of the first stages if some are left over;
- ``first-last``: all pipeline ranks except the first and the last have the same number of layers;
- ``layout``: any division.

The calibration of a plan is the first that was fitted on the cluster's device, in the plan's precision, on one node or
several as the plan. For a model with experts it is one whose runs had experts, if the device has one; for other models
it is one of dense models. If there is no calibration for the device, the plan takes the losses that the stack has on
the nearest device, or in another recipe of narrow products, and says so. The distance of two devices is taken from the
logarithms of their rates. With peak rate :math:`P` in half precision and memory bandwidth :math:`W` it is

(1) :math:`\sqrt{\ln^2 (P / P') + \ln^2 (W / W')}`.

If the stack has attention in one kernel and the runs of the calibration had not, their losses in attention do not apply
(``fused``): at 8,192 tokens one kind takes two to three times as long as the other. Attention then has the losses of
such a kernel of this stack on another device, or the efficiency that the device states.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from taut.data.calibration import RECORDING, Calibration
from taut.data.catalog.devices import catalog_device, catalog_section
from taut.data.costs import RECOMPUTE, Module, OffloadModule, Recompute
from taut.data.device import HALF, QUANTIZED, DeviceSpec, Precision
from taut.data.layers.experts import DISPATCHERS, USUAL_DISPATCH, Dispatcher, DispatchSpec
from taut.data.loss import FusedLoss
from taut.data.memory import GradPrecision, Optimizer
from taut.data.seen import DEVICE_DEVIATION
from taut.data.spec import Spec

Schedule = Literal["1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
ZeroStage = Literal[0, 1, 2, 3]
ContextKind = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
Form = Literal["even", "with-ends", "balanced", "first-last", "layout"]
ANY_DIVISION: Form = "layout"


class Rule(Spec):
    """A limit of a stack in words, and where it stands."""

    rule: str
    source: str


class Stack(Spec):
    """What a framework can run, and its calibrations; the table in ``taut.data.stack`` has the fields."""

    name: str
    description: str
    schedules: Annotated[list[Schedule], Field(min_length=1)]
    recompute: Annotated[list[Recompute], Field(min_length=1)] = list(RECOMPUTE)
    recompute_modules: list[Module] = []
    recompute_by_stage: bool = True
    block_recompute: bool = False
    zero: Annotated[list[ZeroStage], Field(min_length=1)]
    pipeline_zero: Annotated[list[ZeroStage], Field(min_length=1)] | None = None
    offload_zero: list[ZeroStage] = []
    offload_part_zero: list[ZeroStage] = []
    offload_activations: list[Recompute] = []
    offload_pipelines: bool = False
    offload_shares: Literal["any", "layers", "all"] = "any"
    offload_modules: list[OffloadModule] = []
    divisions: Annotated[list[Form], Field(min_length=1)] = [ANY_DIVISION]
    empty_ends: bool = False
    uneven_batch: bool = False
    replicated_kv: bool = True
    tied_pipelines: bool = True
    sequence_parallel: Annotated[list[bool], Field(min_length=1)] = [False, True]
    context_parallel: bool = False
    mixer_contexts: bool = True
    encoders: bool = False
    cp_comm: Annotated[list[ContextKind], Field(min_length=1)] = ["p2p"]
    overlap_context: bool = False
    expert_parallel: bool = False
    expert_zero: Annotated[list[ZeroStage], Field(min_length=1)] | None = None
    expert_tensor: bool = True
    dispatch: DispatchSpec = USUAL_DISPATCH
    dispatchers: Annotated[list[Dispatcher], Field(min_length=1)] = list(DISPATCHERS)
    process_meshes: bool = False
    grad_precision: Annotated[list[GradPrecision], Field(min_length=1)] = list(get_args(GradPrecision))
    cuda_graphs: bool = False
    optimizers: Annotated[list[Optimizer], Field(min_length=1)] = ["adam"]
    overlap_grad_reduce: bool = False
    overlap_in_pipelines: bool = True
    fused_attention: bool | None = None
    fused_loss: FusedLoss | None = None
    calibrations: list[str] = []
    memory_models: list[str] = []
    rules: list[Rule] = []
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("pipeline_zero", "expert_zero", "offload_zero", "offload_part_zero"):
            for stage in getattr(self, name) or ():
                if stage not in self.zero:
                    raise ValueError(f"{name}: is {stage}, expected one of zero: {', '.join(map(str, self.zero))}")
        if self.overlap_grad_reduce and not self.overlap_in_pipelines:
            raise ValueError("overlap_grad_reduce: is true, expected false where overlap_in_pipelines is false")
        if self.dispatch.dispatcher not in self.dispatchers:
            expected = f"expected one of dispatchers: {', '.join(self.dispatchers)}"
            raise ValueError(f"dispatch.dispatcher: is {self.dispatch.dispatcher}, {expected}")
        return self

    def activation_shares(self, shares: Iterable[float], layers: int) -> list[float]:
        """Shares of the activations that may be in the host's memory, the nearest to the given ones, ascending."""
        if self.offload_shares == "layers":
            shares = [min(round(share * layers), layers - 1) / layers for share in shares]
        return sorted({share for share in shares if self.offload_shares != "all" or share in (0, 1)})

    def zero_beside_offload(self, fraction: float) -> list[ZeroStage]:
        """ZeRO stages beside which such a share of the optimizer states may be in the host's memory."""
        return self.zero if not fraction else self.offload_zero if fraction == 1 else self.offload_part_zero


def calibration_for(
    known: Iterable[Calibration],
    devices: Iterable[DeviceSpec],
    precision: Precision,
    *,
    many_nodes: bool,
    experts: bool = False,
    fused_attention: bool | None = None,
) -> Calibration | None:
    """The first calibration of a stack fitted on the cluster, or the nearest device's losses, (1), without a band."""
    nodes, types = "many" if many_nodes else "one", {device.name: device for device in devices}
    alike: tuple[Precision, ...] = HALF if precision in HALF else (precision,)
    known = list(known)
    routed = [one for one in known if one.experts and one.device in types] if experts else []
    known = routed or [one for one in known if not one.experts]
    known = [fused(one, known) for one in known] if fused_attention else known
    own = [one for one in known if one.precision in (None, *alike)]
    # Recipes of narrow products differ in the products alone, whose seconds are those of the recipe anyway.
    every = own or [one for one in known if one.precision in QUANTIZED and precision in QUANTIZED]
    every.sort(key=lambda one: (distance(one.device, types), one.device not in types, one.nodes not in (nodes, "any")))
    if not every:
        return None
    first = every[0] if own and every[0].device in types else borrowed(every[0], types.values(), precision)
    nearest = {name: _nearest(every, types[name]) for name in sorted(types)}
    unmeasured = [name for name in types if name not in catalog_section("operators")]
    nearest |= {name: borrowed(nearest[name], [types[name]], precision) for name in unmeasured}
    apart = {*unmeasured} if len(unmeasured) < len(types) else set()
    return first.beside({name: one for name, one in nearest.items() if one.name != first.name or name in apart})


def _nearest(every: Iterable[Calibration], device: DeviceSpec) -> Calibration:
    """The first calibration of a device, or of the one nearest to it."""
    types = {device.name: device}
    return min(every, key=lambda one: (distance(one.device, types), one.device != device.name))


def distance(name: str, types: Mapping[str, DeviceSpec]) -> float:
    """Distance (1) of a device of the catalog from the first of a cluster's; 0 if it is one, infinite if unknown."""
    if name in types or not types:
        return 0.0
    if name not in catalog_section("devices"):
        return math.inf
    known, first = catalog_device(name), next(iter(types.values()))
    return math.hypot(
        math.log(known.half_tflops / first.half_tflops),
        math.log(known.memory_bandwidth_gbytes / first.memory_bandwidth_gbytes),
    )


def fused(calibration: Calibration, known: Iterable[Calibration]) -> Calibration:
    """A calibration with attention in one kernel, at the losses of the first whose runs had it, without factors."""
    if calibration.fused_attention:
        return calibration
    like = next((one for one in known if one.fused_attention and one.precision in (None, *HALF)), None)
    words = f"at the losses of {like.name}" if like else "as the device states it"
    coefficients = {**calibration.coefficients, "attention": like["attention"] if like else 1.0}
    changed = {"fused_attention": True, "coefficients": coefficients, "layer_factors": []}
    return calibration.model_copy(
        update={**changed, "source": f"{calibration.source}; attention in one kernel {words}"}
    )


OVER_INFERENCE = {"gemm": 1.08, "attention": 0.95}
"""
Seconds of kernels in training over what tables of inference say of them, on H100: products of layers forward and both
gradients, and cuDNN's attention forward and backward at 8,192 tokens (``benchmarks/torch_operators.py``).
"""


def borrowed(
    calibration: Calibration, devices: Iterable[DeviceSpec] = (), precision: Precision | None = None
) -> Calibration:
    """
    A calibration's coefficients for any device: without its runs, which are of where it was fitted.

    Its errors on unseen runs are wider by those of devices without runs (``taut.data.seen.DEVICE_DEVIATION``), which
    stand for those of formats without runs too. On several types of device it has no band, as no run had them together.

    A fit beside operators of inference holds in its coefficients what kernels of training take longer. For devices
    whose kernels of training were measured this is taken out, in half precision and of attention in all. Devices
    without measured operators keep their stated efficiencies: a factor beside another device's operators says nothing
    of theirs.
    """
    devices = list(devices)
    if {device.name for device in devices} == {calibration.device} and precision and calibration.precision != precision:
        words = f"losses of {calibration.precision or 'other formats'}, as none are known of {precision}"
    else:
        words = f"losses of {calibration.device}, as none are known here"
    words = f"{words}; {calibration.source}"
    coefficients, trained = {**calibration.coefficients}, [_training(device.name) for device in devices]
    if devices and not any(device.name in catalog_section("operators") for device in devices):
        coefficients |= dict.fromkeys(OVER_INFERENCE, 1.0)
        words = f"{words}; products and attention at stated efficiencies"
    for term, share in OVER_INFERENCE.items():
        narrow = term == "gemm" and precision is not None and precision not in HALF
        if trained and all(each.get(term) for each in trained) and not narrow and not _training(calibration.device):
            coefficients[term] = max(1.0, coefficients[term] / share)
    return calibration.model_copy(
        update={
            "device": "",
            "coefficients": coefficients,
            "residuals": _widened(calibration.residuals) if len(devices) < 2 else {},
            "mape": None,
            "samples": 0,
            "seen": None,
            "features": [one for one in calibration.features if one not in RECORDING],
            "source": words,
        }
    )


def _widened(residuals: Mapping[str, float]) -> dict[str, float]:
    """Quantiles of relative errors on a device without runs; the median stays."""
    found = {level: (float(level) - 0.5, math.log1p(error)) for level, error in residuals.items()}
    ends = {
        level: math.copysign(math.hypot(own, NormalDist().inv_cdf(0.5 + side) * DEVICE_DEVIATION), side)
        for level, (side, own) in found.items()
    }
    return {level: error if float(level) == 0.5 else math.expm1(ends[level]) for level, error in residuals.items()}


def _training(device: str) -> Mapping[str, Any]:
    """Coefficients of a catalog device's kernels of training, none where it has none."""
    return catalog_section("operators").get(device, {}).get("training") or {}
