"""
What prices a row that it does not state itself: device, precision, calibration, memory model, links.

A row's ``stack`` is a framework of the catalog (``taut.data.stack``) or the stack that a calibration was fitted on. A
framework's rows are priced as a plan's for it: with its calibration and memory model for the device, and its overlap of
gradient reductions, over the links of the device's own catalog cluster. Rows without a stack are those of
``DEFAULT_STACK``, a plan's default. Where a row or the caller names a calibration or its runs, the links are those of
the cluster that the runs used.

Rows keep shares of optimizer states and of activations in the memory of hosts where their framework does so; a row
without a framework may have any share there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from taut.data.analytic.device_rates import rates_of
from taut.data.calibration import Calibration, uncalibrated
from taut.data.catalog.builtin import (
    catalog_calibrations,
    catalog_operators,
    catalog_stacks,
    memory_model_of,
    with_pooled_margin,
)
from taut.data.catalog.devices import catalog_devices, catalog_section
from taut.data.cluster import NodeSpec
from taut.data.costs import OFFLOAD_MODULES
from taut.data.device import DeviceSpec, Precision, core_inverse, usual_precision
from taut.data.load import load_cluster, load_stack
from taut.data.memory import GRAPH_GIB, MemoryModel, ParameterBytes
from taut.data.samples import APART, ConfigurationRow
from taut.data.stack import ContextKind, Stack, borrowed, calibration_for
from taut.data.suggest import one_of
from taut.data.units import GIGABIT, MICROSECOND
from taut.errors import DataError
from taut.formulations.batch.unit_seconds import Machine
from taut.formulations.degrees import divisors
from taut.formulations.mechanisms.offload import ActivationOffload, exceeds_hosts
from taut.planning.stack import (
    DEFAULT_STACK,
    memory_model_for,
    refuse_idle_logits,
    refuse_unlike_kept,
    stated_loss,
    with_loss,
    without_graphs,
)


def hosts_of(row: ConfigurationRow, node_of: Callable[[], NodeSpec]) -> dict[str, float]:
    """The memory of the hosts of a row's nodes, of each GPU what it has on a node; empty where the row uses none."""
    if not (row.optimizer_offload_fraction or row.activation_offload_fraction):
        return {}
    gpus, node, found = min(row.gpus_per_node, row.n_gpus), node_of(), dict[str, float]()
    if node.host_memory_gbytes is not None:
        rate = node.host_memory_gbytes / node.gpus_per_node * gpus
        found |= {"host_memory_gbytes": rate, "host_memory_efficiency": node.host_memory_efficiency}
    if node.host_memory_gib is not None:
        found["host_memory_gib"] = node.host_memory_gib / node.gpus_per_node * gpus
    return found


def with_states_on_hosts(row: ConfigurationRow, memory: MemoryModel, stack: Stack | None) -> MemoryModel:
    """The memory model with the row's share of optimizer states on the host, where the framework has it."""
    if not (share := row.optimizer_offload_fraction):
        return memory
    if stack is not None and not stack.zero_beside_offload(share):
        raise DataError(f"optimizer_offload_fraction is {share:g}, not in {stack.name}, expected 0")
    return MemoryModel.parse({**memory.model_dump(), "optimizer_offload_fraction": share}, memory.name)


def with_muon(row: ConfigurationRow, memory: MemoryModel, stack: Stack | None) -> MemoryModel:
    """The memory model with the row's optimizer, where the framework has it."""
    if row.optimizer is None:
        if memory.optimizer != "adam":
            raise DataError(f"memory model {memory.name} has optimizer {memory.optimizer}, expected it in the rows")
        return memory
    if stack is not None and row.optimizer not in stack.optimizers:
        raise DataError(f"optimizer is {row.optimizer}, expected {' or '.join(stack.optimizers)} in {stack.name}")
    whole = {"optimizer": row.optimizer, "weight_remainders": False, "half_moments": False}
    return MemoryModel.parse({**memory.model_dump(), **whole}, memory.name)


def activations_on_hosts(row: ConfigurationRow) -> dict[str, Any]:
    """The row's share of activations on the host, as its space states it."""
    share = row.activation_offload_fraction
    if share and row.optimizer == "muon":
        raise DataError("activation_offload_fraction: not priced with optimizer muon, expected 0")
    listed = [ActivationOffload(fraction=share, recompute=[row.recompute])] if share else []
    return {"activation_offload": listed}


def check_room(row: ConfigurationRow, needed: int) -> None:
    """Refuse more activations than the memory of a host holds, from the bytes of the fullest device."""
    if row.activation_offload_fraction and exceeds_hosts(needed):
        raise DataError("activation_offload_fraction: more than host_memory_gib of a node holds, expected less")


def lacks_on_hosts(row: ConfigurationRow, stack: Stack | None) -> str:
    """What a row has on the host that its framework does not put there; empty where it does."""
    states, share = row.optimizer_offload_fraction, row.activation_offload_fraction
    if states and stack and row.dp * row.cp > 1 and row.zero not in (beside := stack.zero_beside_offload(states)):
        return f"zero is {row.zero}, expected {' or '.join(map(str, beside))} beside optimizer_offload_fraction"
    if share and row.offload_modules:
        known = stack.offload_modules if stack else OFFLOAD_MODULES
        if lacking := [module for module in row.offload_modules if module not in known]:
            return f"offload_modules: the stack has not {lacking[0]}, expected none"
        full = "offload_modules: full recompute keeps no inputs of modules, expected recompute none or selective"
        return full if row.recompute == "full" else ""
    if not share or stack is None:
        return ""
    if (row.pp > 1 and not stack.offload_pipelines) or row.recompute not in stack.offload_activations:
        words = f"activation_offload_fraction is {share:g} beside pp {row.pp} and recompute {row.recompute}"
        return f"{words}, which the stack has not, expected 0"
    part = stack.offload_shares == "all" and share < 1
    return f"activation_offload_fraction is {share:g}, expected 0 or 1 in the stack" if part else ""


def lacks(row: ConfigurationRow, stack: Stack | None) -> str:
    """What a row asks of its framework that the framework has not; empty where it has all."""
    if stack is None:
        return ""
    pipelines, replicas = row.pp > 1, row.dp * row.cp > 1
    zero = (stack.pipeline_zero if pipelines else None) or stack.zero
    zero = [each for each in zero if not (row.ep > 1 and stack.expert_zero and each not in stack.expert_zero)]
    beside = " in pipelines" if pipelines and row.zero in stack.zero else ""
    asked: list[tuple[str, Any, Sequence[Any], bool, str]] = [
        ("schedule", row.run_schedule, stack.schedules, pipelines, ""),
        ("recompute", row.recompute, stack.recompute, True, ""),
        ("zero", row.zero, zero, replicas, beside),
        ("cp", row.cp, [1], not stack.context_parallel, ""),
        ("ep", row.ep, [1], not stack.expert_parallel, ""),
        ("cp_comm", row.cp_comm, [None, *stack.cp_comm], row.cp > 1, ""),
        ("sequence_parallel", row.sequence_parallel, [None, *stack.sequence_parallel], row.tp > 1, ""),
    ]  # fmt: skip
    for name, value, has, applies, where in asked:
        if applies and value not in has:
            expected = " or ".join(str(each) for each in has if each is not None)
            return f"{name} is {value}, expected {expected}{where} in {stack.name}"
    if not stack.replicated_kv and row.kv_heads and row.kv_heads % row.tp:
        return f"tp is {row.tp}, expected a divisor of {row.kv_heads} key-value heads in {stack.name}"
    return ""


TRAYS = (4, 8)
"""GPUs of a machine of a rack, and of the machines that rows take by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the caller gives for all rows, in the place of the catalog's."""

    calibration: Calibration | None = None
    memory_model: MemoryModel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What rows share that are priced together."""

    device: DeviceSpec
    machine: Machine
    calibration: Calibration
    memory: MemoryModel
    per_parameter: ParameterBytes
    overlap: bool
    cp_comm: ContextKind
    stack: Stack | None = None
    host: Mapping[str, float] = field(default_factory=dict)


def setting_of(row: ConfigurationRow, given: Given) -> Setting:
    """Device, links, calibration, memory model and defaults of a row."""
    device = find_device(row.gpu)
    precision = row.precision or (given.memory_model.precision if given.memory_model else usual_precision([device]))
    if device.peak_flops(precision) is None:
        raise DataError(f"precision is {precision}, expected one of {', '.join(device.peak_tflops)} on {device.name}")
    stack = _framework(row)
    known = _of_device(given.calibration, device) or _calibration(row, stack, device, precision)
    memory = given.memory_model or _memory_model(row, stack, device, precision, known)
    if given.memory_model is not None:
        refuse_unlike_kept(given.memory_model, known)
    asked: dict[str, str] = {"precision": precision, "param_gather": memory.gathers_of_frameworks}
    asked |= {"grad_precision": row.grad_precision} if row.grad_precision else {}
    if row.fp8_param_gather:
        asked["param_gather"] = "weights" if precision == "mxfp8" else "fp8"
    memory = with_muon(row, with_states_on_hosts(row, memory.model_copy(update=asked), stack), stack)
    said = row.fused_loss, stated_loss(given.memory_model), stack.fused_loss if stack else None
    known, memory = with_loss(known, memory, next((each for each in said if each is not None), None))
    refuse_idle_logits(given.memory_model, known)
    # Rows state by themselves whether they had graphs.
    chosen = without_graphs(known or uncalibrated(device))
    if known is None:
        chosen = chosen.model_copy(update=memory.kept)
    recorded = recorded_with_waits(row)
    if row.cuda_graphs and row.num_experts is None:
        memory = memory.model_copy(update={"overhead_gib": memory.overhead_gib + (memory.graph_gib or GRAPH_GIB)})
    if row.cuda_graphs and not recorded:
        chosen = chosen.model_copy(update={"launch_us": 0.0, "fused_experts": True})
    runs = stack or _framework_of_runs(row.stack)
    links = row.cluster or _cluster_of_runs(row, stack, given, chosen, device)
    context = runs is not None and runs.overlap_context
    machine = machine_of(links, device, row.gpus_per_node, precision, chosen, overlap_context=context)
    return Setting(
        device=device,
        machine=replace(machine, rates=replace(machine.rates, recorded=recorded)),
        calibration=chosen,
        memory=memory,
        per_parameter=memory.parameter_bytes,
        overlap=stack is not None and stack.overlap_grad_reduce and row.optimizer is None,
        cp_comm=runs.cp_comm[0] if runs else "p2p",
        stack=stack,
        host=hosts_of(row, lambda: load_cluster(row.cluster or default_cluster(device)).nodes[0]),
    )


def recorded_with_waits(row: ConfigurationRow) -> bool:
    """Whether CUDA graphs launch the passes of tensor or context ranks, which wait for each other in every layer."""
    return row.cuda_graphs and row.tp * row.cp > 1 and not any(getattr(row, name) for name in APART)


def _framework(row: ConfigurationRow) -> Stack | None:
    """The framework of a row, the default one where it names none; None where it names a calibration's runs."""
    name = row.stack or DEFAULT_STACK
    return load_stack(name) if name in catalog_section("stacks") else None


def _framework_of_runs(name: str) -> Stack | None:
    """The framework that a calibration of these runs speaks for, if any."""
    known = {entry.name for entry in catalog_calibrations().values() if entry.stack == name}
    return next((stack for stack in catalog_stacks().values() if known & set(stack.calibrations)), None)


def _memory_model(
    row: ConfigurationRow, stack: Stack | None, device: DeviceSpec, precision: Precision, known: Calibration | None
) -> MemoryModel:
    """The memory model fitted for the framework, or for the runs that speak for it, or the analytic one."""
    fitted = memory_model_for(stack, [device.name]) if stack else None
    runs = (known.stack if known else "") if stack else row.stack
    return with_pooled_margin(fitted or memory_model_of(runs, device, precision), [device])


def _cluster_of_runs(
    row: ConfigurationRow, stack: Stack | None, given: Given, chosen: Calibration, device: DeviceSpec
) -> str:
    """The cluster of the runs that row or caller name, where they ran on the device, or the device's own."""
    named = given.calibration is not None or stack is None
    return (named and chosen.cluster) or default_cluster(device)


def _of_device(given: Calibration | None, device: DeviceSpec) -> Calibration | None:
    """The caller's calibration, if any, which is of the row's device or of none."""
    if given is not None and given.device not in ("", device.name):
        raise DataError(f"calibration {given.name} is of {given.device}, expected one of {device.name}")
    return given


def _calibration(
    row: ConfigurationRow, stack: Stack | None, device: DeviceSpec, precision: Precision
) -> Calibration | None:
    """The calibration of a row's framework or runs on its device, or another device's with a wider band."""
    nodes, every = "one" if row.n_gpus <= row.gpus_per_node else "many", catalog_calibrations()
    if stack is not None:
        mine = [every[name] for name in stack.calibrations]
        return calibration_for(
            mine,
            [device],
            precision,
            many_nodes=nodes == "many",
            experts=row.num_experts is not None,
            fused_attention=stack.fused_attention,
        )
    known = [entry for entry in every.values() if entry.stack == row.stack]
    if not known:
        stacks = ", ".join([*catalog_section("stacks"), *sorted({entry.stack for entry in every.values()})])
        raise DataError(f"stack is {row.stack!r}, expected one of {stacks}, or none")
    fitting = [entry for entry in known if entry.nodes in (nodes, "any") and entry.precision in (None, precision)]
    fitting.sort(key=lambda entry: entry.device != device.name)
    # A stack that was measured in another precision alone still knows the device's links and launches best.
    chosen = (fitting or known)[0]
    here = chosen.device in ("", device.name)
    return chosen if here else borrowed(chosen, [device], precision).model_copy(update={"cluster": ""})


@cache
def _devices() -> dict[str, dict[str, str]]:
    """Clusters by beginnings of devices' names, and devices by short names, ``devices.yaml``."""
    import yaml

    found: dict[str, dict[str, str]] = yaml.safe_load((files("taut.prediction") / "devices.yaml").read_text("utf-8"))
    return found


def find_device(name: str) -> DeviceSpec:
    """The catalog's device of this name, whatever the case; ``A100`` is the 80 GB one."""
    devices, lower = catalog_devices(), name.strip().lower()
    lower = _devices()["aliases"].get(lower, lower)
    if lower not in devices:
        raise DataError(f"gpu is {name!r}, expected {one_of(lower, devices)}")
    return devices[lower]


def within_domain(row: ConfigurationRow) -> ConfigurationRow:
    """
    A row whose nodes are what NVLink spans: on racks of such a domain rows often count trays of 4 or machines of 8.

    The domain is then the largest number of GPUs that divides the row's and that the device's cluster spans. A domain
    that is stated and does not divide the row's GPUs is cut in the same way: 256 GPUs on racks of 72 are four of 64.
    """
    try:
        spanned = load_cluster(default_cluster(find_device(row.gpu))).nodes[0].gpus_per_node
    except DataError:
        return row
    whole = row.gpus_per_node not in TRAYS
    if spanned <= max(TRAYS) or (whole and row.n_gpus % row.gpus_per_node == 0):
        return row
    most = min(row.gpus_per_node, spanned) if whole else spanned
    return row.model_copy(update={"gpus_per_node": max(d for d in divisors(row.n_gpus) if d <= most)})


def default_cluster(device: DeviceSpec) -> str:
    """The catalog's cluster whose links stand for a device's where no calibration says."""
    clusters = _devices()["clusters"].items()
    return next((name for start, name in clusters if device.name.startswith(start)), "dgx-a100")


def machine_of(
    cluster: str,
    device: DeviceSpec,
    gpus_per_node: int,
    precision: Precision,
    calibration: Calibration,
    *,
    overlap_context: bool = False,
) -> Machine:
    """Rates of a device in nodes of this size under a calibration's stack, with the links of a catalog cluster."""
    spec = load_cluster(cluster)
    node, network = spec.nodes[0], spec.network
    unlike = any(group.model_copy(update={"count": node.count}) != node for group in spec.nodes)
    measured = spec.bandwidth_matrix is not None or spec.latency_matrix is not None
    if unlike or network.racks or measured:
        raise DataError(f"cluster {cluster}: has links that differ, expected one kind of node and of link between them")
    return Machine(
        gpus_per_node=gpus_per_node,
        rates=rates_of(
            device,
            precision,
            catalog_operators().get(device.name),
            launch=calibration.launch,
            layer_factors=tuple(calibration.layer_factors),
            **calibration.kept,
        ),
        inside_rate=node.intra_bandwidth_gbps * GIGABIT,
        inside_latency=node.intra_latency_us * MICROSECOND,
        between_rate=(network.bandwidth_gbps or node.intra_bandwidth_gbps) * GIGABIT,
        between_latency=network.latency_us * MICROSECOND,
        cards=(node.nic_bandwidth_gbps or np.inf) * GIGABIT,
        core_inverse=core_inverse([device], precision) if overlap_context else 0.0,
    )
