"""
A point of a sweep, whole in itself and named by its content.

Files that a point names are read here, so that a point may run on a machine that has none of them, and

(1) key = SHA-256(version of taut, kind, fields with the contents of their files),

so that a changed file is another point and the same point of two sweeps is one. Where results are kept beyond a sweep,
``problem`` joins (1): the digest of all that the fields stand for, what they leave to the catalog included. A point
whose files cannot be read, or whose fields make no row of ``taut predict``, carries its error.
"""

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

from taut.data.load import load_calibration, load_cluster, load_costs, load_memory_model, load_model, load_stack
from taut.data.model import ModelSpec
from taut.data.spec import Spec, digest
from taut.errors import DataError
from taut.sweeping.spec import Fields, Kind

Load = Callable[[str, str, int | None], Spec]
LOADERS: dict[str, Callable[[Any], Spec]] = {
    "model": load_model,
    "cluster": load_cluster,
    "profile": load_costs,
    "memory_model": load_memory_model,
    "calibration": load_calibration,
    "stack": load_stack,
}
FILES = (".yaml", ".yml", ".json", ".csv")
"""Ends of the names of files; anything else that is no folder is an entry of the catalog, which the version fixes."""


@dataclass(frozen=True)
class Point:
    """
    A point: kind, fields as they were written, and what they stand for; ``error`` where they stand for nothing.

    ``problem`` is the digest of the planning problem that the fields state, empty where the fields name it well enough.
    """

    kind: Kind
    given: Fields
    fields: Fields = field(default_factory=dict)
    error: str = ""
    problem: str = ""

    @cached_property
    def key(self) -> str:
        """The point's name by its content, (1)."""
        fields = {name: value.digest() if isinstance(value, Spec) else value for name, value in self.fields.items()}
        # What is no plain value, such as a date, is refused when the point is solved, and has a name all the same.
        parts = [version("taut"), self.kind, fields, self.error, *([self.problem] if self.problem else [])]
        text = json.dumps(parts, sort_keys=True, default=str)
        return digest(text)


def points_of(wanted: Iterable[tuple[Kind, Fields]]) -> list[Point]:
    """The points of some kinds and fields, each file of them read once."""
    load = cache(_load)
    return [_point(kind, given, load) for kind, given in wanted]


def _point(kind: Kind, given: Fields, load: Load) -> Point:
    try:
        fields = {name: _read(name, value, given.get("seq"), load) for name, value in given.items()}
        return Point(kind, given, _columns(fields) if kind == "predict" else fields)
    except DataError as error:
        return Point(kind, given, given, str(error))


def _read(name: str, value: Any, seq: Any, load: Load) -> Any:
    """What a field stands for: the spec of a file, anything else as it is."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if name not in LOADERS or not isinstance(value, str):
        return value
    if value.endswith(FILES) or (name == "model" and os.path.isdir(value)):
        return load(name, value, seq if name == "model" and isinstance(seq, int) else None)
    return value


def _load(name: str, value: str, seq: int | None) -> Spec:
    return load_model(value, seq=seq) if name == "model" else LOADERS[name](value)


def _columns(fields: Fields) -> Fields:
    """Columns of ``taut predict``: those that a model and a cluster fill, what is fixed, and what is said itself."""
    found: Fields = {}
    if fields.get("model") is not None:
        found |= _of_model(fields["model"], fields.get("seq"))
    if fields.get("cluster") is not None:
        found |= _of_cluster(fields["cluster"])
    said = {name: value for name, value in fields.items() if name not in ("model", "cluster", "fix")}
    found |= {name: value for name, value in {**(fields.get("fix") or {}), **said}.items() if value is not None}
    if "dp" not in found:
        found |= _replicas(found)
    return found


def _of_model(named: Any, seq: Any) -> Fields:
    model = named if isinstance(named, ModelSpec) else load_model(named, seq=seq)
    values = model.model_dump()
    if not isinstance(model.layers, int):
        raise DataError(f"model {model.name}: has layers of several shapes, expected equal ones for a prediction")
    names = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "seq", "vocab", "tied_embedding")
    return {name: values[name] for name in names if values[name] is not None}


def _of_cluster(named: Any) -> Fields:
    """Devices of a cluster of the catalog, whose links stand for the run's."""
    if not isinstance(named, str) or named.endswith(FILES):
        raise DataError("cluster: is described by a file or in place, expected a catalog name for a prediction")
    cluster = load_cluster(named)
    if len(cluster.nodes) != 1:
        raise DataError(f"cluster {named}: has nodes of several kinds, expected one for a prediction")
    group = cluster.nodes[0]
    shape = {"gpu": group.device.name, "n_gpus": cluster.num_devices, "gpus_per_node": group.gpus_per_node}
    return {**shape, "cluster": named.partition(":")[0]}


def _replicas(found: Fields) -> Fields:
    """Replicas that use all devices, where the other degrees are whole numbers that divide them."""
    degrees = [found.get(name, 1) for name in ("n_gpus", "tp", "pp", "cp")]
    if not all(isinstance(each, int) and each > 0 for each in degrees):
        return {}
    devices, *others = degrees
    return {"dp": max(devices // math.prod(others), 1)}
