"""
Step time and memory of given configurations, with an error band where a calibration knows one.

Rows of one device, node size, precision and stack are priced together (``taut.formulations.batch.step_time``). A row
that is wrong, or whose device or stack is unknown, gets an error text in its place.
"""

import warnings
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from taut.data.analytic.device_rates import rates_of
from taut.data.arrays import Floats, Ints
from taut.data.calibration import TERMS, Calibration, uncalibrated
from taut.data.catalog.builtin import catalog_calibrations, catalog_operators, memory_model_of
from taut.data.catalog.devices import catalog_devices, catalog_section
from taut.data.device import DeviceSpec, Precision
from taut.data.load import load_cluster
from taut.data.memory import MemoryModel, beyond
from taut.data.samples import ConfigurationRow
from taut.data.stack import calibration_for, load_stack
from taut.data.suggest import one_of
from taut.data.units import GIGABIT, KIB, MICROSECOND
from taut.errors import DataError, ExtrapolationWarning
from taut.formulations.batch.configurations import Configurations
from taut.formulations.batch.memory import memory_bytes
from taut.formulations.batch.step_time import Machine, step_terms

DEFAULT_CLUSTERS = {
    "a100": "dgx-a100",
    "h100": "dgx-h100",
    "h200": "dgx-h200",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "v100": "pipette-mid-range",
    "t4": "g4dn.12xlarge",
    "l40s": "g6e.48xlarge",
    "l4-": "g6.48xlarge",
    "a10g": "g5.48xlarge",
}
ALIASES = {
    "a100": "a100-80gb",
    "h100": "h100-80gb",
    "h200": "h200-141gb",
    "b200": "b200-180gb",
    "b300": "b300-270gb",
    "gb200": "gb200-186gb",
    "gb300": "gb300-279gb",
    "v100": "v100-32gb",
    "t4": "t4-16gb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row's figures, or why there are none; the band is None without a calibration."""

    step_time_s: float | None = None
    band: tuple[float, float] | None = None
    memory_bytes: int | None = None
    fits: bool | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What rows share that are priced together."""

    device: DeviceSpec
    machine: Machine
    precision: Precision
    calibration: Calibration
    memory: MemoryModel


def predict_rows(rows: list[ConfigurationRow], calibration: Calibration | None = None) -> list[Prediction]:
    """
    Predict configurations.

    Parameters
    ----------
    rows
        What to price.
    calibration
        Coefficients for all rows; without it each row's stack and device choose one of the catalog.
    """
    results: list[Prediction] = [Prediction()] * len(rows)
    groups: dict[tuple[str, int, Precision | None, str, bool], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        many = row.n_gpus > row.gpus_per_node
        groups[row.gpu, row.gpus_per_node, row.precision, row.stack, many].append(index)
    for indices in groups.values():
        try:
            setting = setting_of(rows[indices[0]], calibration)
            priced = _priced([rows[index] for index in indices], setting)
        except DataError as error:
            priced = [Prediction(error=str(error))] * len(indices)
        for index, prediction in zip(indices, priced, strict=True):
            results[index] = prediction
    return results


def _warn_outside(rows: list[ConfigurationRow], memory: MemoryModel) -> None:
    """Warn where the memory model is asked beyond the runs it was fitted on."""
    outside = [memory.outside(**{name: getattr(row, name) for name in memory.ranges}) for row in rows]
    count, names = sum(map(bool, outside)), sorted({name for found in outside for name in found})
    if count:
        words = f"{memory.name}: {count} of {len(rows)} rows {beyond(memory, names)}"
        warnings.warn(words, ExtrapolationWarning, stacklevel=4)


def _priced(rows: list[ConfigurationRow], setting: Setting) -> list[Prediction]:
    _warn_outside(rows, setting.memory)
    seconds, needed = price(sharded(rows, setting.memory), setting.machine, setting.calibration, setting.memory)
    capacity = setting.device.capacity_kib
    room = (capacity - setting.memory.margin_kib(capacity)) * KIB
    known = bool(setting.calibration.residuals)
    return [
        Prediction(
            step_time_s=value,
            band=setting.calibration.band(value) if known else None,
            memory_bytes=need,
            fits=need <= room,
        )
        for value, need in zip(seconds.tolist(), needed.tolist(), strict=True)
    ]


def sharded(rows: list[ConfigurationRow], memory: MemoryModel) -> Configurations:
    """Rows as columns, with sequence parallelism where the stack has it."""
    columns = columns_of(rows)
    shared = (columns.tp > 1) & memory.sequence_parallel
    return replace(columns, sequence_parallel=shared.astype(np.int64))


def price(
    configurations: Configurations, machine: Machine, calibration: Calibration, memory: MemoryModel
) -> tuple[Floats, Ints]:
    """Seconds and bytes of configurations on one machine; the fast inner part of ``predict_rows``."""
    terms = step_terms(configurations, machine, memory.parameter_bytes)
    seconds = terms @ np.array([calibration[term] for term in TERMS])
    return seconds, memory_bytes(configurations, machine.rates, memory)


def columns_of(rows: list[ConfigurationRow]) -> Configurations:
    """Rows as columns."""

    def column(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    codes = {"none": 0, "selective": 1, "full": 2}
    return Configurations(
        hidden=column([row.hidden for row in rows]),
        layers=column([row.layers for row in rows]),
        heads=column([row.attention_heads for row in rows]),
        kv_heads=column([row.key_value_heads for row in rows]),
        ffn_hidden=column([row.ffn_hidden or 4 * row.hidden for row in rows]),
        seq=column([row.seq for row in rows]),
        vocab=column([row.vocab for row in rows]),
        gated=column([row.gated for row in rows]),
        tp=column([row.tp for row in rows]),
        pp=column([row.pp for row in rows]),
        dp=column([row.dp for row in rows]),
        cp=column([row.cp for row in rows]),
        vpp=column([row.vpp for row in rows]),
        micro_batch=column([row.micro_batch for row in rows]),
        num_micro_batches=column([row.num_micro_batches for row in rows]),
        gpipe=column([row.schedule == "gpipe" for row in rows]),
        recompute=column([codes[row.recompute] for row in rows]),
        zero=column([row.zero for row in rows]),
        sequence_parallel=column([0 for _ in rows]),
    )


def setting_of(row: ConfigurationRow, calibration: Calibration | None) -> Setting:
    """Device, links, precision and calibration of a row."""
    device = find_device(row.gpu)
    chosen = calibration or _calibration(row, device)
    precision = _precision(row, device)
    if device.peak_flops(precision) is None:
        raise DataError(f"precision is {precision}, expected one of {', '.join(device.peak_tflops)} on {device.name}")
    machine = machine_of(chosen.cluster or default_cluster(device), device, row.gpus_per_node, precision, chosen)
    memory = memory_model_of(row.stack or chosen.stack, device, precision)
    return Setting(device=device, machine=machine, precision=precision, calibration=chosen, memory=memory)


def _precision(row: ConfigurationRow, device: DeviceSpec) -> Precision:
    """A row's precision, or the usual one of its device."""
    return row.precision or ("bf16" if "bf16" in device.peak_tflops else "fp16")


def find_device(name: str) -> DeviceSpec:
    """
    The catalog's device of this name, whatever the case; ``A100`` is the 80 GB one.

    Raises
    ------
    DataError
        If there is none.
    """
    devices, lower = catalog_devices(), name.strip().lower()
    lower = ALIASES.get(lower, lower)
    if lower not in devices:
        raise DataError(f"gpu is {name!r}, expected {one_of(lower, devices)}")
    return devices[lower]


def default_cluster(device: DeviceSpec) -> str:
    """The catalog's cluster whose links stand for a device's where no calibration says."""
    return next((name for start, name in DEFAULT_CLUSTERS.items() if device.name.startswith(start)), "dgx-a100")


def _calibration(row: ConfigurationRow, device: DeviceSpec) -> Calibration:
    """The calibration of a row's stack, of a framework or of the catalog's runs, or of its device, or none."""
    nodes = "one" if row.n_gpus <= row.gpus_per_node else "many"
    known = list(catalog_calibrations().values())
    if row.stack in catalog_section("stacks"):
        mine = [entry for name in load_stack(row.stack).calibrations for entry in known if entry.name == name]
        found = calibration_for(mine, [device.name], _precision(row, device), many_nodes=nodes == "many")
        return found or uncalibrated(device)
    if row.stack and row.stack not in {entry.stack for entry in known}:
        stacks = ", ".join([*catalog_section("stacks"), *sorted({entry.stack for entry in known})])
        raise DataError(f"stack is {row.stack!r}, expected one of {stacks}, or none")
    precision = _precision(row, device)
    fitting = [
        entry
        for entry in known
        if entry.nodes in (nodes, "any")
        and entry.precision in (None, precision)
        and (entry.stack == row.stack if row.stack else entry.device == device.name)
    ]
    fitting.sort(key=lambda entry: entry.device != device.name)
    # A stack that was measured in another precision alone still knows the device's links and launches best.
    fitting = fitting or [entry for entry in known if row.stack and entry.stack == row.stack]
    return fitting[0] if fitting else uncalibrated(device)


def machine_of(
    cluster: str, device: DeviceSpec, gpus_per_node: int, precision: Precision, calibration: Calibration
) -> Machine:
    """Rates of a device in nodes of this size under a calibration's stack, with the links of a catalog cluster."""
    spec = load_cluster(cluster)
    node, network = spec.nodes[0], spec.network
    return Machine(
        gpus_per_node=gpus_per_node,
        rates=rates_of(
            device,
            precision,
            catalog_operators().get(device.name),
            launch=calibration.launch,
            fused_attention=calibration.fused_attention,
        ),
        inside_rate=node.intra_bandwidth_gbps * GIGABIT,
        inside_latency=node.intra_latency_us * MICROSECOND,
        between_rate=(network.bandwidth_gbps or node.intra_bandwidth_gbps) * GIGABIT,
        between_latency=network.latency_us * MICROSECOND,
        cards=(node.nic_bandwidth_gbps or np.inf) * GIGABIT,
    )
