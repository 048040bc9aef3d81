"""
From what a user names to a spec: a catalog entry, one of our YAML files, or a Hugging Face ``config.json``.

A cluster name may repeat a catalog entry: ``dgx-a100:16`` is sixteen of its nodes. In a cluster file ``device`` is a
catalog name or a description in place, and ``bandwidth_matrix`` is the path of a CSV matrix (relative to the file, its
unit in ``bandwidth_unit``) or the rows in place; ``latency_matrix`` likewise, in microseconds.

A file that states no name has its own. A wrong name is refused with the nearest right one (``taut.data.suggest``).
"""

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taut.data.calibration import Calibration
from taut.data.catalog.builtin import (
    catalog_calibration,
    catalog_cluster,
    catalog_memory_models,
    catalog_model,
    catalog_profile,
    catalog_stack,
    profile_names,
)
from taut.data.catalog.devices import catalog_section, device_named
from taut.data.cluster import MOST_NODES, ClusterSpec
from taut.data.costs import CostTable, read_costs
from taut.data.device import DeviceSpec
from taut.data.known_hardware import warn_of_units
from taut.data.memory import MemoryModel, read_memory_network
from taut.data.model import ModelSpec
from taut.data.read import read_matrix
from taut.data.read_yaml import read_yaml, values_in_braces
from taut.data.spec import name_of_file, shorten, with_names
from taut.data.stack import Stack
from taut.data.suggest import nearest
from taut.errors import DataError

Name = str | os.PathLike[str]
"""A catalog name or a file."""


def values_of_file(what: str, name: str, known: Iterable[str], otherwise: str = "a .yaml file") -> dict[str, Any]:
    """Plain values of a YAML file that describes ``what``; ``DataError`` says what may stand for a catalog name."""
    if not name.endswith((".yaml", ".yml")):
        raise DataError(unknown_name(what, name, known, otherwise))
    path = Path(name)
    return {"name": name_of_file(path.stem), **read_yaml(path, f"a {what} file")}


def unknown_name(
    what: str, name: str, known: Iterable[str], otherwise: str, base: str | None = None, count: str = ""
) -> str:
    """The refusal of a name, with the known one nearest to its ``base``, and ``count`` nodes as in the name."""
    names = list(known)
    fault = "is a folder" if os.path.isdir(name) else "is not in the catalog"
    near = nearest(name if base is None else base, names)
    listed = "a catalog name" if near else f"one of {', '.join(names)}"
    return f"{what} {shorten(name)} {fault}, expected {listed}, or {otherwise}" + (
        f"; did you mean {near}{count}?" if near else ""
    )


_REPEATED = re.compile(r"(.+?)[:x*]([1-9]\d{0,5})", re.IGNORECASE)
"""A name with a number of nodes, as ``dgx-a100:16`` or, what is refused, ``dgx-a100x16``."""


def load_costs(name: Name) -> CostTable:
    """
    A cost table by catalog name or CSV file.

    Raises
    ------
    DataError
        If there is no such table or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> taut.load_costs("nowhere.csv")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.csv: No such file or directory, expected a CSV cost table
    """
    name = os.fspath(name)
    if name in profile_names():
        return catalog_profile(name)
    if os.path.isdir(name) or not (name.endswith(".csv") or os.path.exists(name)):
        raise DataError(unknown_name("profile", name, profile_names(), "a .csv file"))
    return with_names(read_costs(Path(name)), name)


def load_calibration(name: Name) -> Calibration:
    """
    A calibration by catalog name or YAML file.

    Raises
    ------
    DataError
        If there is no such calibration or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> taut.load_calibration("nemo-h100-bf16").device
    'h100-80gb'
    """
    name = os.fspath(name)
    if name in catalog_section("calibrations"):
        return catalog_calibration(name)
    values = values_of_file("calibration", name, catalog_section("calibrations"))
    return with_names(Calibration.parse(values, name), name)


def load_model(name: Name | Mapping[str, Any], *, seq: int | None = None) -> ModelSpec:
    """
    The model that a user names.

    Parameters
    ----------
    name
        A catalog name, a YAML file of ours, a Hugging Face ``config.json`` or a folder with one, or the plain values
        of a spec.
    seq
        Sequence length in tokens, if it is to differ from the source's.

    Raises
    ------
    DataError
        If there is no such model or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> model = taut.load_model("llama3-8b", seq=4096)
    >>> model.hidden, model.seq
    (4096, 4096)
    """
    if isinstance(name, Mapping):
        model, name = with_names(ModelSpec.parse({"name": "model", **name}, "model"), "model"), "model"
    elif (name := os.fspath(name)) in catalog_section("models"):
        model = catalog_model(name)
    elif name.endswith((".yaml", ".yml")):
        model = with_names(ModelSpec.parse(values_of_file("model", name, catalog_section("models")), name), name)
    elif name.endswith(".json") or os.path.isdir(name):
        from taut.data.readers.huggingface import read_config

        return with_names(read_config(_config(Path(name)), seq=seq), name)
    else:
        raise DataError(_unknown_model(name))
    return model if seq is None else _with_seq(model, seq, name)


def _config(path: Path) -> Path:
    """The file itself, or the ``config.json`` of a folder, or its ``params.json`` where it has no other."""
    if path.suffix == ".json":
        return path
    found = next((path / name for name in ("config.json", "params.json") if (path / name).is_file()), None)
    if found is None:
        raise DataError(f"{path}: is a folder without a config.json, expected a folder with one, or a file")
    return found


def _unknown_model(name: str) -> str:
    if name.partition(":")[0] in catalog_section("clusters"):
        return f"model {name!r} is a cluster of the catalog, expected the model first and the cluster second"
    return unknown_name("model", name, catalog_section("models"), "a .yaml file, a config.json or a folder with one")


def _with_seq(model: ModelSpec, seq: int, source: str) -> ModelSpec:
    if isinstance(model.layers, list):
        raise DataError(f"{source}: seq {seq} asked for, expected none, as each layer of this model states its own")
    return of_length(model, seq, source)


def of_length(model: ModelSpec, seq: int, source: str) -> ModelSpec:
    """The model at another sequence length, with a warning where its file says that it takes fewer tokens."""
    if model.max_seq is not None and seq > model.max_seq:
        warnings.warn(f"{source}: the model takes {model.max_seq} tokens, {seq} asked for", UserWarning, stacklevel=2)
    return ModelSpec.parse({**model.model_dump(), "seq": seq}, source)


def load_cluster(name: Name | Mapping[str, Any]) -> ClusterSpec:
    """
    The cluster that a user names.

    Parameters
    ----------
    name
        A catalog name, a catalog name with a node count (``dgx-a100:16``), a YAML file, or the plain values of a spec.

    Raises
    ------
    DataError
        If there is no such cluster or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> taut.load_cluster("dgx-a100:16").num_devices
    128
    """
    if isinstance(name, Mapping):
        return with_names(ClusterSpec.parse({"name": "cluster", **name}, "cluster"), "cluster")
    name = os.fspath(name)
    base, _, count = name.partition(":")
    if base in catalog_section("clusters"):
        cluster = catalog_cluster(base)
        return cluster if not count else _repeated(cluster, name, count)
    if not name.endswith((".yaml", ".yml")):
        raise DataError(_unknown_cluster(name))
    values = values_of_file("cluster", name, catalog_section("clusters"))
    cluster = with_names(ClusterSpec.parse(_with_matrix(values, Path(name)), name), name)
    warn_of_units(cluster, name)
    return cluster


def _unknown_cluster(name: str) -> str:
    if name in catalog_section("models"):
        return f"cluster {name!r} is a model of the catalog, expected the model first and the cluster second"
    repeated = _REPEATED.fullmatch(name)
    base, count = (repeated[1], f":{repeated[2]}") if repeated else (name, "")
    return unknown_name("cluster", name, catalog_section("clusters"), "NAME:NODES or a .yaml file", base, count)


def _repeated(cluster: ClusterSpec, name: str, count: str) -> ClusterSpec:
    if not (count.isascii() and count.isdigit() and 0 < int(count) <= MOST_NODES):
        raise DataError(f"cluster {name!r}: node count is {count!r}, expected a whole number from 1 to {MOST_NODES}")
    if cluster.num_nodes != 1:
        raise DataError(f"cluster {name!r}: {cluster.name} has {cluster.num_nodes} nodes, expected no node count")
    group = cluster.nodes[0].model_copy(update={"count": int(count)})
    return cluster.model_copy(update={"name": name, "nodes": [group]})


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


def load_device(name: str, where: str) -> DeviceSpec:
    """The device that a user names: of the catalog, of a YAML file, or in braces; ``DataError`` says ``where``."""
    text = str(name)
    if text.lstrip().startswith("{"):
        return DeviceSpec.parse(values_in_braces(text, where), where)
    if not text.endswith((".yaml", ".yml")):
        return device_named(text, where)
    path = Path(text)
    values = read_yaml(path, "a device's description")
    values = values["device"] if isinstance(values.get("device"), dict) else values
    return DeviceSpec.parse({"name": name_of_file(path.stem), **values}, text)


def load_memory_model(name: Name) -> MemoryModel:
    """
    A memory model by catalog name, YAML file, or JSON file of a memory network.

    Raises
    ------
    DataError
        If there is no such model or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> taut.load_memory_model("nowhere.yaml")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.yaml: No such file or directory, expected a memory model file
    """
    name = os.fspath(name)
    if name in catalog_section("memory_models"):
        return catalog_memory_models()[name]
    if name.endswith(".json"):
        network = read_memory_network(Path(name))
        found = MemoryModel(name=network.name, network=network, precision=network.precision or "bf16")
        return with_names(found, name)
    values = values_of_file("memory model", name, catalog_section("memory_models"), "a .yaml or .json file")
    return with_names(MemoryModel.parse(values, name), name)


def load_stack(name: Name) -> Stack:
    """
    A stack by catalog name or YAML file.

    Raises
    ------
    DataError
        If there is no such stack or file, or the file is wrong.

    Examples
    --------
    >>> import taut
    >>> taut.load_stack("torchtitan").schedules
    ['1f1b', 'gpipe', 'interleaved-1f1b', 'zb-v']
    >>> taut.load_stack("megatron")
    Traceback (most recent call last):
    taut.errors.DataError: stack 'megatron' is not in the catalog, expected a catalog name, or a .yaml file; ...
    """
    name = os.fspath(name)
    if name in catalog_section("stacks"):
        return catalog_stack(name)
    return with_names(Stack.parse(values_of_file("stack", name, catalog_section("stacks")), name), name)
