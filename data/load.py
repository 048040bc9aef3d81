"""
From what a user names to a spec: a catalog entry, one of our YAML files, or a Hugging Face ``config.json``.

A cluster name may repeat a catalog entry: ``dgx-a100:16`` is sixteen of its nodes. In a cluster file ``device`` is a
catalog name or a description in place, and ``bandwidth_matrix`` is the path of a CSV matrix (relative to the file,
its unit in ``bandwidth_unit``) or the rows in place; ``latency_matrix`` likewise, in microseconds.
"""

import csv
from collections.abc import Iterable
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from taut.data.calibration import Calibration
from taut.data.cluster import MOST_NODES, ClusterSpec
from taut.data.costs import CostTable, read_costs
from taut.data.device import DeviceSpec, Precision
from taut.data.huggingface import read_config
from taut.data.memory import MemoryModel
from taut.data.memory_network import read_memory_network
from taut.data.model import ModelSpec
from taut.data.operators import OperatorModel
from taut.data.read import read_text, read_yaml
from taut.errors import DataError


@cache
def _catalog(section: str) -> dict[str, Any]:
    with as_file(files("taut.data") / "catalog" / f"{section}.yaml") as path:
        return read_yaml(path)


def catalog_models() -> dict[str, ModelSpec]:
    """Built-in models by name."""
    return {name: _catalog_model(name) for name in _catalog("models")}


def catalog_clusters() -> dict[str, ClusterSpec]:
    """Built-in clusters by name."""
    return {name: _catalog_cluster(name) for name in _catalog("clusters")}


def catalog_devices() -> dict[str, DeviceSpec]:
    """Built-in device types by name."""
    return {name: _catalog_device(name) for name in _catalog("devices")}


def catalog_calibrations() -> dict[str, Calibration]:
    """Built-in calibrations by name."""
    return {
        name: Calibration.parse({"name": name, **values}, f"catalog calibration {name}")
        for name, values in _catalog("calibrations").items()
    }


def catalog_operators() -> dict[str, OperatorModel]:
    """Built-in operator models by device name, with the device's half-precision peak rates."""
    return {name: _catalog_operator(name) for name in _catalog("operators")}


def catalog_profiles() -> dict[str, CostTable]:
    """Built-in cost tables by name, measured by ``taut profile``."""
    return {name: _catalog_profile(name) for name in _profile_names()}


def load_costs(name: str) -> CostTable:
    """
    A cost table by catalog name or CSV file.

    Raises
    ------
    DataError
        If there is no such table or file, or the file is wrong.
    """
    if name in _profile_names():
        return _catalog_profile(name)
    path = Path(name)
    if path.suffix != ".csv" and not path.exists():
        raise DataError(_unknown("profile", name, _profile_names(), "a .csv file"))
    return read_costs(path)


@cache
def _profile_names() -> tuple[str, ...]:
    folder = files("taut.data") / "catalog" / "profiles"
    return tuple(sorted(file.name.removesuffix(".csv") for file in folder.iterdir() if file.name.endswith(".csv")))


def _catalog_profile(name: str) -> CostTable:
    with as_file(files("taut.data") / "catalog" / "profiles" / f"{name}.csv") as path:
        return read_costs(path)


def catalog_memory_models() -> dict[str, MemoryModel]:
    """Built-in memory models by name."""
    return {
        name: MemoryModel.parse({"name": name, **values}, f"catalog memory model {name}")
        for name, values in _catalog("memory_models").items()
    }


def memory_model_of(stack: str, device: DeviceSpec, precision: Precision) -> MemoryModel:
    """The catalog's memory model of a stack, the device's own if there are several, or the analytic one."""
    fitted = [entry for entry in catalog_memory_models().values() if stack and entry.stack == stack]
    fitted.sort(key=lambda entry: (entry.device != device.name, entry.precision != precision))
    return fitted[0].model_copy(update={"precision": precision}) if fitted else MemoryModel(precision=precision)


def load_calibration(name: str) -> Calibration:
    """
    A calibration by catalog name or YAML file.

    Raises
    ------
    DataError
        If there is no such calibration or file, or the file is wrong.
    """
    if name in _catalog("calibrations"):
        return catalog_calibrations()[name]
    if not name.endswith((".yaml", ".yml")):
        raise DataError(_unknown("calibration", name, _catalog("calibrations"), "a .yaml file"))
    path = Path(name)
    return Calibration.parse({"name": path.stem, **read_yaml(path, "a calibration file")}, name)


def _catalog_model(name: str) -> ModelSpec:
    return ModelSpec.parse({"name": name, **_catalog("models")[name]}, f"catalog model {name}")


def _catalog_device(name: str) -> DeviceSpec:
    return DeviceSpec.parse({"name": name, **_catalog("devices")[name]}, f"catalog device {name}")


def _catalog_operator(name: str) -> OperatorModel:
    device = _catalog_device(name)
    rates = {
        "peak_tflops": device.peak_tflops.get("bf16") or device.peak_tflops.get("fp16"),
        "memory_bandwidth_gbytes": device.memory_bandwidth_gbytes,
    }
    return OperatorModel.parse({"device": name, **rates, **_catalog("operators")[name]}, f"catalog operators of {name}")


def _catalog_cluster(name: str) -> ClusterSpec:
    values = {"name": name, **_catalog("clusters")[name]}
    return ClusterSpec.parse(_with_devices(values, f"catalog cluster {name}"), f"catalog cluster {name}")


def load_model(name: str, *, seq: int | None = None) -> ModelSpec:
    """
    The model that a user names.

    Parameters
    ----------
    name
        A catalog name, a YAML file of ours, or a Hugging Face ``config.json``.
    seq
        Sequence length in tokens, if it is to differ from the source's.

    Raises
    ------
    DataError
        If there is no such model or file, or the file is wrong.
    """
    if name in _catalog("models"):
        model = _catalog_model(name)
    elif name.endswith(".json"):
        model = read_config(Path(name))
    elif name.endswith((".yaml", ".yml")):
        values = read_yaml(Path(name), "a model file")
        model = ModelSpec.parse({"name": Path(name).stem, **values}, name)
    else:
        raise DataError(_unknown("model", name, _catalog("models"), "a .yaml file or a config.json"))
    return model if seq is None else _with_seq(model, seq, name)


def _with_seq(model: ModelSpec, seq: int, source: str) -> ModelSpec:
    if isinstance(model.layers, list):
        raise DataError(f"{source}: seq {seq} asked for, expected none, as each layer of this model states its own")
    return ModelSpec.parse({**model.model_dump(), "seq": seq}, source)


def load_cluster(name: str) -> ClusterSpec:
    """
    The cluster that a user names.

    Parameters
    ----------
    name
        A catalog name, a catalog name with a node count (``dgx-a100:16``), or a YAML file.

    Raises
    ------
    DataError
        If there is no such cluster or file, or the file is wrong.
    """
    base, _, count = name.partition(":")
    if base in _catalog("clusters"):
        cluster = _catalog_cluster(base)
        return cluster if not count else _repeated(cluster, name, count)
    if not name.endswith((".yaml", ".yml")):
        raise DataError(_unknown("cluster", name, _catalog("clusters"), "NAME:NODES or a .yaml file"))
    path = Path(name)
    values = {"name": path.stem, **read_yaml(path, "a cluster file")}
    return ClusterSpec.parse(_with_matrix(_with_devices(values, name), path), name)


def _unknown(what: str, name: str, known: Iterable[str], otherwise: str) -> str:
    return f"{what} {name!r} is not in the catalog, expected one of {', '.join(known)}, or {otherwise}"


def _repeated(cluster: ClusterSpec, name: str, count: str) -> ClusterSpec:
    if not (count.isascii() and count.isdigit() and 0 < int(count) <= MOST_NODES):
        raise DataError(f"cluster {name!r}: node count is {count!r}, expected a whole number from 1 to {MOST_NODES}")
    if cluster.num_nodes != 1:
        raise DataError(f"cluster {name!r}: {cluster.name} has {cluster.num_nodes} nodes, expected no node count")
    group = cluster.nodes[0].model_copy(update={"count": int(count)})
    return cluster.model_copy(update={"name": name, "nodes": [group]})


def _with_devices(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Replace device names in the node groups by the catalog's descriptions."""
    nodes = values.get("nodes")
    if not isinstance(nodes, list):
        return values
    return {**values, "nodes": [_with_device(group, f"{source}: nodes.{i}") for i, group in enumerate(nodes)]}


def _with_device(group: Any, where: str) -> Any:
    if not isinstance(group, dict) or not isinstance(group.get("device"), str):
        return group
    return {**group, "device": device_named(group["device"], f"{where}.device")}


def device_named(name: str, where: str) -> DeviceSpec:
    """
    The catalog's device of this name.

    Raises
    ------
    DataError
        If there is none; the message begins with ``where``.
    """
    if name not in _catalog("devices"):
        raise DataError(f"{where}: is {name!r}, expected one of {', '.join(_catalog('devices'))}")
    return _catalog_device(name)


def _with_matrix(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Replace the paths of measured matrices by their rows."""
    unit = values.pop("bandwidth_unit", None)
    matrix, latency = values.get("bandwidth_matrix"), values.get("latency_matrix")
    if isinstance(latency, str):
        values = {**values, "latency_matrix": {"rows_us": read_matrix(path.parent / latency)}}
    if not isinstance(matrix, str):
        return values
    if unit is None:
        raise DataError(f"{path}: bandwidth_unit: missing, expected the unit of {matrix}")
    return {**values, "bandwidth_matrix": {"unit": unit, "rows": read_matrix(path.parent / matrix)}}


def read_matrix(path: Path) -> list[list[float]]:
    """
    Numbers of a CSV matrix; a header line and a column of names are dropped.

    Raises
    ------
    DataError
        If the file is not CSV or an entry is not a number.
    """
    try:
        lines = [line for line in csv.reader(read_text(path, "a CSV matrix").splitlines()) if line]
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected a CSV matrix") from None
    if lines and not all(_is_number(cell) for cell in lines[0]):
        lines = [line[1:] for line in lines[1:]]
    for number, line in enumerate(lines, start=1):
        for column, cell in enumerate(line, start=1):
            if not _is_number(cell):
                raise DataError(f"{path} row {number} column {column}: is {cell!r}, expected a bandwidth")
    return [[float(cell) for cell in line] for line in lines]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def load_memory_model(name: str) -> MemoryModel:
    """
    A memory model by catalog name, YAML file, or JSON file of a memory network.

    Raises
    ------
    DataError
        If there is no such model or file, or the file is wrong.
    """
    if name in _catalog("memory_models"):
        return catalog_memory_models()[name]
    if name.endswith(".json"):
        network = read_memory_network(Path(name))
        return MemoryModel(name=network.name, network=network, precision=network.precision or "bf16")
    if not name.endswith((".yaml", ".yml")):
        raise DataError(_unknown("memory model", name, _catalog("memory_models"), "a .yaml or .json file"))
    path = Path(name)
    return MemoryModel.parse({"name": path.stem, **read_yaml(path, "a memory model file")}, name)
