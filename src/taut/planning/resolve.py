"""
From a request to the planning problem: names, files and options become specs, costs, a memory model and a space.

Data that the request leaves open are chosen here: analytic costs without a profile, the memory model of the
calibration's stack, the first precision in which every device computes, and the schedules that fixed values ask for.
"""

import warnings
from collections import deque
from typing import Any

from pydantic import ValidationError

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.micro_batch_scaling import with_micro_batches
from taut.data.calibration import FP8_GATHERS, RECORDING, Calibration
from taut.data.catalog.builtin import catalog_operators, memory_model_of, with_pooled_margin
from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable, check_kinds
from taut.data.device import DeviceSpec, Precision, usual_precision
from taut.data.layers.layer import EMBEDDING, ENCODER, HEAD
from taut.data.load import load_costs, load_memory_model, load_model, of_length
from taut.data.memory import GRAPH_GIB, MemoryModel
from taut.data.model import ModelSpec
from taut.data.spec import first_complaint
from taut.data.stack import ANY_DIVISION, Stack
from taut.errors import DataError, FieldError
from taut.formulations.degrees import divisors, tensor_degrees
from taut.formulations.fields import Asked
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FIELDS, FIXES, StrategySpace
from taut.planning.choices import CHECKS, broken_rule, check_fixed
from taut.planning.offload import beside_offload, states_alone, states_of_all, with_activations, with_whole_states
from taut.planning.request import PlanRequest
from taut.planning.stack import (
    at_risk,
    calibration_of,
    memory_model_for,
    not_hidden_twice,
    overlaps,
    overlaps_beside_muon,
    refuse_idle_logits,
    refuse_unlike_kept,
    space_of,
    stack_of,
    stated_loss,
    with_graphs,
    with_loss,
    with_mixing,
    within_runs,
)


def planning_problem(request: PlanRequest) -> PlanningProblem:
    """
    The problem that a request states.

    Raises
    ------
    DataError
        If a name or a file is wrong, a value suits no candidate, or no candidate exists.

    Examples
    --------
    >>> import taut
    >>> problem = taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2}))
    >>> str(problem.candidates[0])
    'pp=2 tp=1 dp=4 micro_batch=1 1f1b recompute=full'
    """
    problem = resolved_problem(request)
    if not problem.candidates:
        raise _no_candidate(problem, request)
    return problem


def resolved_problem(request: PlanRequest, tensor: list[int] | None = None) -> PlanningProblem:
    """The problem that a request states, whether or not it has candidates; ``tensor``: degrees that costs are for."""
    request.refuse_simulation()
    model, cluster, stack = _model(request), request.cluster_spec, stack_of(request)
    overlap = overlaps(request, stack)
    if "muon" in (request.optimizer, getattr(_given_memory(request), "optimizer", None)):
        overlap = overlaps_beside_muon(request, stack)
    calibration = calibration_of(request, model, cluster, stack, _precision(request, cluster))
    if calibration is not None:
        calibration = with_graphs(with_mixing(calibration, model), model, cluster, stack, request.profile)
    if overlap and calibration is not None:
        calibration = not_hidden_twice(calibration)
    calibration = at_risk(request, calibration, model, cluster)
    _warn_of_launches(cluster, calibration)
    memory = _memory_model(request, cluster, stack, calibration, overlap=overlap)
    said = (request.fused_loss, stated_loss(_given_memory(request)), stack.fused_loss)
    calibration, memory = with_loss(calibration, memory, next((each for each in said if each is not None), None))
    refuse_idle_logits(_given_memory(request), calibration)
    check_fixed(request.fix, request.global_batch, cluster)
    space = within_runs(request, space_of(request, model, cluster, stack, memory), calibration)
    space = beside_offload(request, space, stack, memory)
    space = with_activations(request, space, stack, model)
    asked = Asked(
        fix=request.fix,
        max_cp=request.max_cp,
        max_ep=request.max_ep,
        space=space,
        model=model,
        cluster=cluster,
        stack=stack,
        latency=request.latency,
        memory=memory,
    )
    for check in CHECKS:
        check(asked)
    costs = _costs(request.profile, model, cluster, memory, space, calibration, tensor)
    return PlanningProblem(model, cluster, costs, memory, space, request.latency.name, calibration, overlap)


def _warn_of_launches(cluster: ClusterSpec, calibration: Calibration | None) -> None:
    """A line where a device's own seconds of a launch give way to those of the calibration's runs."""
    usual = DeviceSpec.model_fields["launch_us"].default
    for name, device in cluster.devices.items():
        own = name not in catalog_devices() and device.launch_us != usual
        if own and calibration is not None and calibration.launch_us is not None:
            words = f"calibration {calibration.name} has {calibration.launch_us:g}, which counts"
            warnings.warn(f"{name}: launch_us is {device.launch_us:g}, {words}", UserWarning, stacklevel=3)


def _model(request: PlanRequest) -> ModelSpec:
    found = _of_length(request)
    if request.mtp_layers is None:
        return found
    return ModelSpec.parse({**found.model_dump(exclude_none=True), "mtp_layers": request.mtp_layers}, "model")


def _of_length(request: PlanRequest) -> ModelSpec:
    """The model at the sequence length that is asked for."""
    if isinstance(request.model, str):
        return load_model(request.model, seq=request.seq)
    if request.seq is None:
        return request.model
    if isinstance(request.model.layers, list):
        raise FieldError("seq", str(request.seq), "expected none, as each layer of this model states its own")
    return of_length(request.model, request.seq, "model")


def _memory_model(
    request: PlanRequest, cluster: ClusterSpec, stack: Stack, calibration: Calibration | None, *, overlap: bool
) -> MemoryModel:
    """
    The given memory model, or the one fitted for the stack or the calibration, or the analytic one.

    Where runs gathered fp8, a coefficient of gradients that was fitted holds it; stated rates beside overlap do not.
    """
    memory, precision, had = _given_memory(request), request.precision, set(calibration.features if calibration else ())
    usual, states = memory_model_for(stack, cluster.devices), states_alone(memory)
    if memory is not None and states and usual is not None and usual.name == memory.name:
        memory = None
    if memory is not None:
        refuse_unlike_kept(memory, calibration)
    if memory is None:
        device, precision = next(iter(cluster.devices.values())), _precision(request, cluster)
        of_runs = calibration.stack if calibration else ""
        memory = usual or memory_model_of(of_runs, device, precision)
        if calibration is None and stack.fused_attention is not None:
            memory = memory.model_copy(update={"fused_attention": stack.fused_attention})
        memory = with_whole_states(request, memory.model_copy(update=states))
        memory = with_pooled_margin(memory, cluster.devices.values())
    gathers = memory.gathers_of_frameworks
    silent = "param_gather" not in memory.model_fields_set
    if overlap and silent and FP8_GATHERS in had and (precision or memory.precision) == "fp8":
        gathers = "fp8"
    graphs = (memory.graph_gib or GRAPH_GIB) if had & {*RECORDING} else None
    asked = {
        "precision": precision,
        "grad_precision": request.grad_precision,
        "optimizer": request.optimizer,
        "param_gather": gathers if request.latency.gathers_in_passes else None,
        "graph_gib": graphs,
        **states_of_all(request),
    }
    stated = {name: value for name, value in asked.items() if value is not None}
    return MemoryModel.parse({**memory.model_dump(), **stated}, "precision") if stated else memory


def _given_memory(request: PlanRequest) -> MemoryModel | None:
    """The memory model that is asked for, if any."""
    given = request.memory_model
    return load_memory_model(given) if isinstance(given, str) else given


def _precision(request: PlanRequest, cluster: ClusterSpec) -> Precision:
    """The precision asked for, by itself or in a memory model, or the usual one of the devices."""
    memory = _given_memory(request)
    stated = memory.precision if memory is not None and "precision" in memory.model_fields_set else None
    return request.precision or stated or usual_precision(cluster.devices.values())


def _costs(
    profile: CostTable | str | None,
    model: ModelSpec,
    cluster: ClusterSpec,
    memory: MemoryModel,
    space: StrategySpace,
    calibration: Calibration | None,
    tensor: list[int] | None = None,
) -> CostTable:
    """The profile, extended where it has micro-batch 1 alone, or analytic costs over the keys of the space."""
    devices, micro_batches, operators = cluster.devices.values(), divisors(space.global_batch), catalog_operators()
    if profile is not None:
        measured = load_costs(profile) if isinstance(profile, str) else profile
        ends = (EMBEDDING, HEAD, *([ENCODER] if model.encoder else []))
        check_kinds(measured, (*model.kinds, *ends), model.name)
        return with_micro_batches(
            measured, model, devices, memory.precision, micro_batches, operators=operators, calibration=calibration
        )
    return _recent_costs(
        model,
        list(devices),
        precision=memory.precision,
        tensor_degrees=tensor or tensor_degrees(model, cluster, space.max_tp),
        micro_batches=micro_batches,
        context_degrees=[cp for cp in divisors(cluster.num_devices) if cp <= space.max_cp],
        expert_degrees=_expert_degrees(model, cluster, space),
        recompute_modules=space.recompute_modules,
        offload_modules=space.offload_modules,
        dispatch=space.dispatch.of_layers(),
        operators=operators,
        **memory.kept,
        calibration=calibration,
    )


MOST_TABLES = 8
"""Cost tables that are kept; a large one has some ten thousand rows."""
_RECENT: deque[tuple[tuple[object, ...], CostTable]] = deque(maxlen=MOST_TABLES)


def _recent_costs(*what: Any, **keys: Any) -> CostTable:
    """Analytic costs, taken from the last tables if one is equal: many problems differ in cluster or space alone."""
    asked = what, keys
    for known, table in _RECENT:
        if known == asked:
            return table
    try:
        table = analytic_costs(*what, **keys)
    except ValidationError as error:
        words = f"{first_complaint(error)}, from the figures of the devices or of their calibration"
        raise DataError(f"costs of layers: {words}") from None
    _RECENT.append((asked, table))
    return table


def _expert_degrees(model: ModelSpec, cluster: ClusterSpec, space: StrategySpace) -> list[int]:
    """Expert degrees of the space above 1 that divide the devices."""
    most = min(space.max_ep, max(model.expert_counts, default=1))
    return [ep for ep in divisors(cluster.num_devices) if 1 < ep <= most]


def wider_costs(problem: PlanningProblem, profile: CostTable | str | None, max_tp: int) -> CostTable:
    """Costs of a problem for tensor degrees up to the given one."""
    space = problem.space.model_copy(update={"max_tp": max_tp})
    return _costs(profile, problem.model, problem.cluster, problem.memory, space, problem.calibration)


def _no_candidate(problem: PlanningProblem, request: PlanRequest) -> DataError:
    """Why the space is empty, in one line."""
    space, devices = problem.space, problem.cluster.num_devices
    most = f" and is at most {request.max_tp} (max_tp)" if request.max_tp is not None else ""
    rule = (
        f"pp*tp*cp*dp = {devices} devices, dp divides the global batch {space.global_batch}, "
        f"pp is at most {len(problem.model.blocks)} layers, tp divides the heads, ffn and node size{most}"
    )
    told = [kept(space) for name in FIXES if name in space.fixed and (kept := FIELDS[name].rule)]
    rule += "".join(f"; {words}" for words in dict.fromkeys(told) if words)
    if ANY_DIVISION not in space.divisions:
        rule += f"; the layers divide into chunks that are {' or '.join(space.divisions)}"
    if space.seen is not None and problem.calibration is not None:
        rule += f"; every field is within the runs of {problem.calibration.name}"
    if space.fixed:
        fixed = ",".join(f"{field}={value}" for field, value in space.fixed.items())
        broken = f"; broken: {words}" if (words := broken_rule(problem)) else ""
        return FieldError("fix", fixed, f"no candidate has these values, expected {rule}{broken}")
    if request.profile is not None:
        lacks = "prices no candidate, expected costs for every layer kind at one (tp, micro_batch)"
        return DataError(f"{problem.costs.name}: {lacks}")
    return DataError(f"no candidate exists, expected {rule}")
