"""
What a request's stack makes of it: the space that the framework can run, and the calibration that speaks for it.

The papers' latency models price no framework, and measured costs need no calibration, so a plan under these has the
whole space at stated efficiencies unless it names a stack.
"""

import warnings
from collections.abc import Iterable

from taut.data.calibration import KEPT, RECORDING, WHOLE_STEPS, Calibration
from taut.data.catalog.builtin import catalog_memory_models
from taut.data.cluster import ClusterSpec
from taut.data.costs import MODULES, CostTable, Module, Recompute
from taut.data.device import Precision, usual_precision
from taut.data.layers.experts import USUAL_DISPATCH, DispatchSpec
from taut.data.load import load_calibration, load_costs, load_memory_model, load_stack
from taut.data.loss import LossKind
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES, Schedule, Stack, calibration_for
from taut.errors import DataError, FieldError
from taut.formulations.mechanisms.shards import stages_asked
from taut.formulations.space import StrategySpace
from taut.formulations.stack_space import CLOSED_FORM, CLOSED_ZERO, WHOLE_SPACE, stack_space
from taut.planning.choices import OF_ALL_STAGES
from taut.planning.request import PlanRequest

DEFAULT_STACK = "megatron-core"
HALF_PEAK = 0.5
"""Share of the devices' peak that a usual step reaches."""


def stack_of(request: PlanRequest) -> Stack:
    """The stack of a request, by its name or by default."""
    if request.stack is None:
        return load_stack(DEFAULT_STACK if request.latency.prices_mechanisms else WHOLE_SPACE)
    return load_stack(request.stack) if isinstance(request.stack, str) else request.stack


def calibration_of(
    request: PlanRequest, model: ModelSpec, cluster: ClusterSpec, stack: Stack, precision: Precision
) -> Calibration | None:
    """The calibration asked for, which must have been fitted on one of the devices, or the stack's for the cluster."""
    given = request.calibration
    if given is None:
        if request.profile is not None:
            return None
        mine = [load_calibration(name) for name in stack.calibrations]
        if any(layer.mixers for layer in model.kinds.values()):
            # No built-in run that recorded whole steps had such layers, and those published are no faster than parts.
            mine = [one for one in mine if WHOLE_STEPS not in one.features] or mine
        return calibration_for(
            mine,
            cluster.devices.values(),
            precision,
            many_nodes=cluster.num_nodes > 1,
            experts=model.has_experts,
            fused_attention=stack.fused_attention,
        )
    found = load_calibration(given) if isinstance(given, str) else given
    if found.device and found.device not in cluster.devices:
        reason = f"is of {found.device}, expected one of {', '.join(cluster.devices)}, which {cluster.name} has"
        raise FieldError("calibration", found.name, reason)
    return found


def overlaps(request: PlanRequest, stack: Stack) -> bool:
    """Whether gradients are reduced during the last backward pass: as asked for, or as the stack does in ``step``."""
    if request.overlap_grad_reduce and not request.latency.prices_mechanisms:
        raise FieldError("overlap_grad_reduce", "true", request.latency.refusal)
    if request.overlap_grad_reduce and not stack.overlap_in_pipelines and request.fix.get("pp") != 1:
        reason = f"pipelines of {stack.name} reduce gradients after the passes, expected none, or pp fixed to 1"
        raise FieldError("overlap_grad_reduce", "true", reason)
    return request.overlap_grad_reduce or (stack.overlap_grad_reduce and request.latency.prices_mechanisms)


def overlaps_beside_muon(request: PlanRequest, stack: Stack) -> bool:
    """Whether gradients are reduced in the last backward pass under Muon: never; refuses what is not priced with it."""
    if "muon" not in stack.optimizers:
        raise FieldError("optimizer", "muon", f"not in {stack.name}, expected {' or '.join(stack.optimizers)}")
    if not request.latency.prices_mechanisms:
        raise FieldError("optimizer", "muon", request.latency.refusal)
    if request.overlap_grad_reduce:
        raise FieldError("overlap_grad_reduce", "true", "not priced with optimizer muon, expected false")
    if request.activation_offload_fraction:
        raise FieldError("activation_offload_fraction", None, "not priced with optimizer muon, expected none")
    if request.fix.get("zero", 0) not in (0, 1) or "dp_shard" in request.fix:
        fixed = "dp_shard" if "dp_shard" in request.fix else "zero"
        reason = "not priced with optimizer muon, expected ZeRO-0 or 1 and one copy"
        raise FieldError("fix", f"{fixed}={request.fix[fixed]}", reason)
    return False


def with_mixing(calibration: Calibration, model: ModelSpec) -> Calibration:
    """The calibration with how its runs mixed tokens, by attention unless it states it, for a model with other ways."""
    seen = calibration.seen
    if seen is None or seen.mixing is not None or model.mixing <= {"attention"}:
        return calibration
    return calibration.model_copy(update={"seen": seen.model_copy(update={"mixing": ["attention"]})})


def with_graphs(
    calibration: Calibration, model: ModelSpec, cluster: ClusterSpec, stack: Stack, profile: CostTable | str | None
) -> Calibration:
    """
    The calibration with the CUDA graphs of its runs if the stack has them and the model is like theirs, else without.

    The runs had one kind of device, text, no experts and no layers that mix tokens otherwise than by attention. A
    ``profile`` of measured costs has to have rows of such passes.
    """
    unlike = model.has_experts or not model.mixing <= {"attention"} or model.encoder or len(cluster.devices) > 1
    costs = load_costs(profile) if isinstance(profile, str) else profile
    priced = costs is None or costs.records
    return calibration if stack.cuda_graphs and priced and not unlike else without_graphs(calibration)


def without_graphs(calibration: Calibration) -> Calibration:
    """The calibration without CUDA graphs whose price is not in its coefficients."""
    kept = [one for one in calibration.features if one not in RECORDING]
    return calibration if kept == calibration.features else calibration.model_copy(update={"features": kept})


def not_hidden_twice(calibration: Calibration) -> Calibration:
    """
    A calibration for reductions that overlap: none of its coefficients hides some of them as well.

    A coefficient below 1 on gradient rings stands for what the runs hid behind computation, which overlap hides itself.
    """
    rings, shown = calibration["data_parallel"], calibration.overlapped_rings
    if rings == shown:
        return calibration
    words = f"{calibration.source}; gradient rings at {shown:g} of the stated time, not {rings:g}, as they overlap"
    coefficients = {**calibration.coefficients, "data_parallel": shown, "gather": calibration["gather"]}
    return calibration.model_copy(update={"coefficients": coefficients, "source": words})


def memory_model_for(stack: Stack, devices: Iterable[str]) -> MemoryModel | None:
    """The first memory model of a stack that was fitted on one of the devices, or speaks for any."""
    types, known = {"", *devices}, map(load_memory_model, stack.memory_models)
    return next((model for model in known if model.device in types), None)


def stated_loss(memory: MemoryModel | None) -> LossKind | None:
    """How a memory model as it was given says that the loss is computed; None where it says nothing."""
    if memory is None or "fused_loss" not in memory.model_fields_set:
        return None
    # A model that was written out in full states nothing by fields that have their defaults.
    whole = memory.is_written_out
    return None if whole and memory.fused_loss == "none" else memory.fused_loss


def with_loss(
    calibration: Calibration | None, memory: MemoryModel, fused: LossKind | None
) -> tuple[Calibration | None, MemoryModel]:
    """Calibration and memory model with a loss, or as they are where nobody says."""
    if fused is None or (calibration or memory).fused_loss == fused:
        return calibration, memory
    update = {"fused_loss": fused}
    return calibration and calibration.model_copy(update=update), memory.model_copy(update=update)


def refuse_idle_logits(given: MemoryModel | None, calibration: Calibration | None) -> None:
    """Refuse bytes of a loss that overwrites the logits, in the memory model as given, beside another loss."""
    if given is None or not given.fused_logit_bytes or given == catalog_memory_models().get(given.name):
        return
    if calibration is not None and calibration.fused_loss != "te":
        loss = f"calibration {calibration.name} has fused_loss {calibration.fused_loss}"
        reason = f"fused_logit_bytes has no effect, as {loss}"
        raise FieldError("memory_model", given.name, f"{reason}; expected 0, or fused_loss te with it")


def refuse_unlike_kept(memory: MemoryModel, calibration: Calibration | None) -> None:
    """Refuse a memory model, as given, that keeps other activations than the calibration that costs are made by."""
    if calibration is None or memory == catalog_memory_models().get(memory.name):
        return
    # A model that was written out in full states nothing by fields that have their defaults.
    whole = memory.is_written_out
    fields = MemoryModel.model_fields
    for name in KEPT:
        if name == "fused_loss":
            continue  # The loss is no part of the runs' prices, so that the memory model has it (``with_loss``).
        value, stands = getattr(memory, name), getattr(calibration, name)
        stated = name in memory.model_fields_set and not (whole and value == fields[name].default)
        if stated and value != stands:
            said, has = str(value).lower(), str(stands).lower()
            reason = f"{name} is {said}, calibration {calibration.name} has {has}, which counts"
            raise FieldError("memory_model", memory.name, f"{reason}; expected {has}, or another calibration")


def space_of(
    request: PlanRequest, model: ModelSpec, cluster: ClusterSpec, stack: Stack, memory: MemoryModel
) -> StrategySpace:
    """The space of a request: what its stack runs, less what the request takes away, and what fixed values ask for."""
    if request.grad_precision not in (None, *stack.grad_precision):
        reason = f"not in {stack.name}, expected {' or '.join(stack.grad_precision)}, or stack any"
        raise FieldError("grad_precision", request.grad_precision, reason)
    recompute = [kind for kind in stack.recompute if request.fix.get("recompute", kind) == kind]
    if not recompute:
        reason = f"not in {stack.name}, expected one of {', '.join(stack.recompute)}, or stack any"
        raise FieldError("fix", f"recompute={request.fix['recompute']}", reason)
    in_part = _recomputes_in_part(request, model, stack, recompute)
    whole = stack_space(
        stack,
        model,
        cluster,
        request.global_batch,
        mechanisms=request.latency.prices_mechanisms,
        orders=memory.is_sum_of_terms,
        measured=request.profile is not None,
    )
    return whole.model_copy(
        update={
            "max_tp": request.max_tp or whole.max_tp,
            "max_cp": int(request.max_cp or request.fix.get("cp") or whole.max_cp),
            "max_ep": int(request.max_ep or request.fix.get("ep") or whole.max_ep),
            "max_vpp": max(whole.max_vpp, request.fix.get("vpp", 1)),
            "schedules": schedules_of(request, stack, memory),
            "zero": _zero_stages(request, stack),
            "recompute": recompute,
            "recompute_modules": _modules(request, stack, whole.recompute_modules),
            "recompute_by_stage": stack.recompute_by_stage or (len(recompute) == 1 and not in_part),
            "block_recompute": in_part,
            "dispatch": _dispatch(request, model, stack),
            "fixed": {name: value for name, value in request.fix.items() if name not in OF_ALL_STAGES},
        }
    )


def at_risk(
    request: PlanRequest, calibration: Calibration | None, model: ModelSpec, cluster: ClusterSpec
) -> Calibration | None:
    """
    The calibration at the quantile that is asked for, or as it is.

    A step at half of the devices' peak is the usual one of which fields beyond all runs take a share.

    Raises ``FieldError`` if nothing is known of the errors of its prices.
    """
    if request.risk is None:
        return calibration
    precision = request.precision or usual_precision(cluster.devices.values())
    peak = sum(node.gpus_per_node * (node.device.peak_flops(precision) or 0.0) for node in cluster.node_list)
    usual_s = request.global_batch * model.training_flops() / (HALF_PEAK * peak) if peak else 0.0
    try:
        found = None if calibration is None else calibration.at_quantile(request.risk, usual_s)
    except DataError as error:
        raise FieldError("risk", f"{request.risk:g}", str(error)) from None
    if found is None:
        reason = "no calibration is used, expected one that knows how far its predictions may be off"
        raise FieldError("risk", f"{request.risk:g}", reason)
    return found


def within_runs(request: PlanRequest, space: StrategySpace, calibration: Calibration | None) -> StrategySpace:
    """The space without what lies beyond all runs of the calibration, where that is asked for."""
    if not request.seen:
        return space
    if calibration is None or (seen := calibration.seen) is None:
        silent = "no calibration is used" if calibration is None else f"{calibration.name} names no runs here"
        raise FieldError("seen", "true", f"{silent}, expected a calibration that says what its runs have been")
    recompute = [kind for kind in space.recompute if kind in seen.recompute]
    if not recompute:
        has, had = " or ".join(space.recompute), " or ".join(seen.recompute)
        raise FieldError("seen", "true", f"runs of {calibration.name} had recompute {had}, expected {has}")
    return space.model_copy(update={"seen": seen, "recompute": recompute})


def _recomputes_in_part(request: PlanRequest, model: ModelSpec, stack: Stack, recompute: list[Recompute]) -> bool:
    """Whether candidates may recompute some layers of every chunk; ``FieldError`` if it is asked for and none may."""
    fixed = request.fix.get("recompute_layers")
    if not (request.block_recompute or fixed):
        return False
    name, shown = ("block_recompute", "true") if fixed is None else ("fix", f"recompute_layers={fixed}")
    reasons = {
        f"chunks of {stack.name} recompute all layers or none": not stack.block_recompute,
        f"recompute is {' or '.join(recompute)}, expected full": "full" not in recompute,
        f"{request.latency.name} does not price recompute of some layers, expected step": (
            not request.latency.prices_mechanisms
        ),
        "layers that predict further tokens are not recomputed in part, expected mtp_layers 0": model.mtp_layers > 0,
        "goes with no activations in the host's memory, expected activation_offload_fraction 0": (
            bool(request.activation_offload_fraction)
        ),
    }
    if reason := next((words for words, holds in reasons.items() if holds), None):
        raise FieldError(name, shown, reason)
    return True


def _modules(request: PlanRequest, stack: Stack, usual: list[Module]) -> list[Module]:
    """Modules of selective recompute: asked for, or the usual ones."""
    asked = request.fix.get("recompute_modules")
    if asked is None:
        return usual
    if request.profile is not None:
        reason = "selective recompute is what the profile measured, expected none beside a profile"
        raise FieldError("fix", f"recompute_modules={asked}", reason)
    wanted = [module for module in MODULES if module in str(asked).split("+")]
    if lacking := [module for module in wanted if module not in stack.recompute_modules]:
        expected = ", ".join(stack.recompute_modules) or "none, or stack any"
        raise FieldError(
            "fix", f"recompute_modules={asked}", f"{lacking[0]} is not in {stack.name}, expected {expected}"
        )
    return [] if wanted == ["core_attn"] else wanted


def _dispatch(request: PlanRequest, model: ModelSpec, stack: Stack) -> DispatchSpec:
    """How expert ranks exchange tokens: as asked for, where stack and overlap allow it, or as the stack does."""
    own = stack.dispatch
    asked = {
        "overlap_moe_expert_parallel_comm": ("overlap", request.overlap_moe_expert_parallel_comm or None),
        "moe_token_dispatcher": ("dispatcher", request.moe_token_dispatcher),
        "fp8_dispatch": ("fp8", request.fp8_dispatch or None),
        "moe_router_dtype": ("router_dtype", request.moe_router_dtype),
        "imbalance": ("imbalance", request.imbalance),
    }
    given = {field: (name, value) for field, (name, value) in asked.items() if value is not None}
    for field, (_, value) in given.items():
        shown = str(value).lower()
        if not model.has_experts or not stack.expert_parallel or not request.latency.prices_mechanisms:
            reason = f"is of expert ranks, which {stack.name} has not for {model.name} in {request.latency.name}"
            raise FieldError(field, shown, f"{reason}, expected none")
        if field == "imbalance" and request.profile is not None:
            raise FieldError(field, shown, "products are those that the profile measured, expected none with it")
    found = own.model_copy(update=dict(given.values()))
    if found.dispatcher not in stack.dispatchers or found.conflict:
        lacking = f"is not in {stack.name}, expected {' or '.join(stack.dispatchers)}"
        raise FieldError("moe_token_dispatcher", found.dispatcher, found.conflict or lacking)
    if found.overlap and not model.has_alike_experts:
        reason = f"layers with experts of {model.name} differ, expected layers that are alike"
        raise FieldError("overlap_moe_expert_parallel_comm", "true", reason)
    if found.router_dtype and not found.gathers:
        words = f"format {found.router_dtype} of a router's scores changes nothing with {found.dispatcher}"
        warnings.warn(f"moe_router_dtype: {words}, allgather alone sums outputs in it", UserWarning, stacklevel=2)
    return found if model.has_experts else USUAL_DISPATCH


def schedules_of(request: PlanRequest, stack: Stack, memory: MemoryModel) -> list[Schedule]:
    """Schedules asked for, or all that the stack runs where the latency and memory models price their orders."""
    runs: list[Schedule] = [kind for kind in SCHEDULES if kind in stack.schedules]
    if request.schedules is not None:
        wanted = runs if set(request.schedules) == set(SCHEDULES) else list(request.schedules)
        _check(stack, "schedules", wanted)
        return wanted
    named = closed_forms(request, stack)
    return runs if request.latency.prices_mechanisms and memory.is_sum_of_terms else named


def closed_forms(request: PlanRequest, stack: Stack) -> list[Schedule]:
    """The closed-form schedules that the stack runs, and what fixed values ask for."""
    runs: list[Schedule] = [kind for kind in SCHEDULES if kind in stack.schedules]
    schedule, vpp = request.fix.get("schedule"), request.fix.get("vpp", 1)
    _check(stack, "fix", [schedule] if schedule else [])
    chosen = [kind for kind in runs if kind in CLOSED_FORM or kind == schedule]
    return chosen + (["interleaved-1f1b"] if vpp > 1 and schedule is None else [])


def _check(stack: Stack, field: str, wanted: Iterable[str]) -> None:
    for kind in wanted:
        if kind not in stack.schedules:
            runs = ", ".join(stack.schedules)
            shown = f"schedule={kind}" if field == "fix" else kind
            raise FieldError(field, shown, f"not run by {stack.name}, expected one of {runs}, or stack any")


def _zero_stages(request: PlanRequest, stack: Stack) -> list[int]:
    """ZeRO stages of the stack; stages 2 and 3 under the papers' latency models only where they are asked for."""
    if request.latency.prices_mechanisms:
        return list(stack.zero)
    return [*CLOSED_ZERO, *stages_asked(request.fix)]
