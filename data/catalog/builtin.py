"""
What is built in: the catalog's models, clusters, stacks, calibrations, operator and memory models, and profiles.

Each section is a YAML file of ``data/catalog`` with one entry a name; profiles are CSV files of their own.
"""

from collections.abc import Iterable
from functools import cache
from importlib.resources import as_file, files

from taut.data.analytic.kernel_floors import BestRate
from taut.data.analytic.operator_times import OperatorModel
from taut.data.calibration import Calibration
from taut.data.catalog.devices import catalog_device, catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable, read_costs
from taut.data.device import DeviceSpec, Precision
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import Stack

POOLED_MARGIN_GIB = 5.5
"""
What one of twenty unseen runs of three campaigns takes beyond its prediction (``taut.solver.calibration.memory`` (7),
of BLOOM's). A model that is not fitted keeps a share of the capacity free, but no more: errors are those of what the
framework holds, and do not grow with what a card has.
"""


def catalog_models() -> dict[str, ModelSpec]:
    """Built-in models by name."""
    return {name: catalog_model(name) for name in catalog_section("models")}


def catalog_clusters() -> dict[str, ClusterSpec]:
    """Built-in clusters by name."""
    return {name: catalog_cluster(name) for name in catalog_section("clusters")}


def catalog_calibrations() -> dict[str, Calibration]:
    """Built-in calibrations by name."""
    return {name: catalog_calibration(name) for name in catalog_section("calibrations")}


@cache
def catalog_calibration(name: str) -> Calibration:
    """The built-in calibration of this name."""
    values = catalog_section("calibrations")[name]
    return Calibration.parse({"name": name, **values}, f"catalog calibration {name}")


def catalog_operators() -> dict[str, OperatorModel]:
    """Built-in operator models by device name, with the device's half-precision peak rates."""
    return {name: _catalog_operator(name) for name in catalog_section("operators")}


@cache
def catalog_floors() -> dict[str, BestRate]:
    """Best measured rates of kernels by name."""
    return {name: BestRate.parse(values, f"catalog floor {name}") for name, values in catalog_section("floors").items()}


def catalog_stacks() -> dict[str, Stack]:
    """Built-in stacks by name."""
    return {name: catalog_stack(name) for name in catalog_section("stacks")}


def catalog_profiles() -> dict[str, CostTable]:
    """Built-in cost tables by name, measured by ``taut profile``."""
    return {name: catalog_profile(name) for name in profile_names()}


def catalog_profile(name: str) -> CostTable:
    """The built-in cost table of this name."""
    with as_file(files("taut.data") / "catalog" / "profiles" / f"{name}.csv") as path:
        return read_costs(path)


def catalog_memory_models() -> dict[str, MemoryModel]:
    """Built-in memory models by name."""
    return {
        name: MemoryModel.parse({"name": name, **values}, f"catalog memory model {name}")
        for name, values in catalog_section("memory_models").items()
    }


def memory_model_of(stack: str, device: DeviceSpec, precision: Precision) -> MemoryModel:
    """The catalog's memory model of a stack in a precision, the device's own if there is one, or the analytic one."""
    fitted = [entry for entry in catalog_memory_models().values() if stack and entry.stack == stack]
    fitted.sort(key=lambda entry: (entry.device != device.name, entry.precision != precision))
    return fitted[0].model_copy(update={"precision": precision}) if fitted else MemoryModel(precision=precision)


def with_pooled_margin(memory: MemoryModel, devices: Iterable[DeviceSpec]) -> MemoryModel:
    """The memory model with ``POOLED_MARGIN_GIB`` if it is not fitted and its share of every device is more."""
    if memory.samples or memory.margin * min(device.memory_gib for device in devices) <= POOLED_MARGIN_GIB:
        return memory
    return memory.model_copy(update={"margin": 0.0, "margin_gib": POOLED_MARGIN_GIB})


def catalog_model(name: str) -> ModelSpec:
    """The built-in model of this name."""
    return ModelSpec.parse({"name": name, **catalog_section("models")[name]}, f"catalog model {name}")


def catalog_stack(name: str) -> Stack:
    """The built-in stack of this name."""
    return Stack.parse({"name": name, **catalog_section("stacks")[name]}, f"catalog stack {name}")


@cache
def _catalog_operator(name: str) -> OperatorModel:
    device = catalog_device(name)
    rates = {
        "peak_tflops": device.peak_tflops.get("bf16") or device.peak_tflops.get("fp16"),
        "memory_bandwidth_gbytes": device.memory_bandwidth_gbytes,
    }
    best = [row for row in catalog_floors().values() if name in row.devices]
    given = {"device": name, **rates, **catalog_section("operators")[name], "best": [row.model_dump() for row in best]}
    return OperatorModel.parse(given, f"catalog operators of {name}")


def catalog_cluster(name: str) -> ClusterSpec:
    """The built-in cluster of this name."""
    return ClusterSpec.parse({"name": name, **catalog_section("clusters")[name]}, f"catalog cluster {name}")


@cache
def profile_names() -> tuple[str, ...]:
    """Names of the built-in cost tables."""
    folder = files("taut.data") / "catalog" / "profiles"
    return tuple(sorted(file.name.removesuffix(".csv") for file in folder.iterdir() if file.name.endswith(".csv")))
