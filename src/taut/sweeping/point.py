"""
A point of a sweep, whole in itself and named by its content.

Files that a point names are read here, so that a point may run on a machine that has none of them, and

(1) key = SHA-256(version of taut, kind, fields with the contents of their files),

so that a changed file is another point and the same point of two sweeps is one. Where results are kept beyond a sweep,
``problem`` joins (1): the digest of all that the fields stand for, what they leave to the catalog included. A point
whose files cannot be read, or whose fields make no row of ``taut predict``, carries its error.

A sweep asks for fields with lists of values, which expand into points. With fields f = 1..n in the order in which they
are written and the values V_f of each, the points of a block are

(2) V_1 x ... x V_n, the last field changing first.

A list stands for several values, in ``fix`` as well; a single value is a list of one. What stands at the top holds for
every block of ``points``, unless the block says otherwise (``null`` takes a field back), and is the only block where
there are none.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ConfigDict

from taut.data.layers.experts import ExpertsSpec
from taut.data.load import load_calibration, load_cluster, load_costs, load_memory_model, load_model, load_stack
from taut.data.model import ModelSpec
from taut.data.read_yaml import read_yaml
from taut.data.samples import ConfigurationRow
from taut.data.spec import Spec, digest, shorten
from taut.data.suggest import one_of
from taut.errors import DataError
from taut.planning.request import PlanRequest
from taut.prediction.experts import row_model

Kind = Literal["plan", "predict", "simulate"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PREDICTED = (*ConfigurationRow.model_fields, "model", "fix", "calibration", "memory_model")
"""Fields of a predicted point: the columns of ``taut predict``, and what fills several of them."""
REQUESTED = tuple(PlanRequest.model_fields)
OF_SEARCHES = ("time_limit", "work_limit", "gap", "seed", "workers")
"""Fields of a search, which no simulation makes."""
FIELDS: dict[Kind, tuple[str, ...]] = {
    "plan": REQUESTED,
    "predict": PREDICTED,
    "simulate": tuple(name for name in REQUESTED if name not in OF_SEARCHES),
}
MOST_POINTS = 1_000_000
"""A journal of a million points has some 500 MB; what is larger is rather a mistake in the lists."""
SweepInput = Mapping[str, Any] | str | PathLike[str]
Fields = dict[str, Any]


class SweepSpec(Spec):
    """
    A sweep as it is written: its name, blocks of points, and the fields of all of them beside these.

    Examples
    --------
    >>> spec = SweepSpec.parse({"model": "llama3-8b", "global_batch": [64, 128], "fix": {"tp": [1, 2]}}, "a sweep")
    >>> [(fields["global_batch"], fields["fix"]) for _, fields in expanded(spec, "a sweep")]
    [(64, {'tp': 1}), (64, {'tp': 2}), (128, {'tp': 1}), (128, {'tp': 2})]
    """

    model_config = ConfigDict(extra="allow")

    name: str = ""
    points: list[dict[str, Any]] | None = None


def read_spec(given: SweepInput) -> tuple[SweepSpec, str]:
    """A sweep from its YAML file or its plain values, and where it comes from."""
    if isinstance(given, Mapping):
        return SweepSpec.parse(dict(given), "sweep"), "sweep"
    return SweepSpec.parse(read_yaml(Path(given), "a sweep file"), str(given)), str(given)


def expanded(spec: SweepSpec, source: str) -> list[tuple[Kind, Fields]]:
    """Kind and fields of every point, (2)."""
    common = dict(spec.model_extra or {})
    blocks = [common] if spec.points is None else [_within(common, block) for block in spec.points]
    places = [source] if spec.points is None else [f"{source}: points.{number}" for number in range(len(blocks))]
    found: list[tuple[Kind, Fields]] = []
    for block, place in zip(blocks, places, strict=True):
        for fields in _product(block, place, MOST_POINTS - len(found)):
            found.append(_checked(fields, place))
    if not found:
        raise DataError(f"{source}: points: is an empty list, expected at least one point")
    return found


def _within(common: Fields, block: Fields) -> Fields:
    """A block's fields over the common ones, those of ``fix`` one by one."""
    fixed = [given["fix"] for given in (common, block) if isinstance(given.get("fix"), dict)]
    return {**common, **block} | ({"fix": {**fixed[0], **fixed[1]}} if len(fixed) > 1 else {})


def _product(block: Fields, place: str, most: int) -> Iterator[Fields]:
    values = {name: list(_values(name, given, place)) for name, given in block.items()}
    count = 1
    for each in values.values():
        count *= len(each)
    if count > most:
        raise DataError(f"{place}: more than {MOST_POINTS} points, expected fewer values in its lists")
    return (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


def _values(name: str, given: object, place: str) -> Iterator[Any]:
    """Values of a field: of a list each, and of ``fix`` the product of its own lists."""
    if isinstance(given, list):
        if not given:
            raise DataError(f"{place}: {name}: is an empty list, expected at least one value")
        for value in given:
            yield from _values(name, value, place) if name == "fix" else [value]
    elif name == "fix" and isinstance(given, dict):
        yield from _product(given, f"{place}: fix", MOST_POINTS)
    else:
        yield given


def _checked(fields: Fields, place: str) -> tuple[Kind, Fields]:
    """Kind and fields of a point, whose names are those of its kind; null is not given."""
    fields = {name: value for name, value in fields.items() if value is not None}
    wanted = fields.pop("kind", "plan")
    kind = next((known for known in KINDS if known == wanted), None)
    if kind is None:
        raise DataError(f"{place}: kind: is {shorten(wanted)}, expected {one_of(str(wanted), KINDS)}")
    for name in fields:
        if kind == "simulate" and name in OF_SEARCHES:
            raise DataError(f"{place}: {name}: has no effect on a simulation, which searches nothing, expected none")
        if name not in FIELDS[kind]:
            known = one_of(str(name), (*FIELDS[kind], "kind", "name", "points"))
            raise DataError(f"{place}: {shorten(name)}: unknown field of a {kind}, expected {known}")
    return kind, fields


Load = Callable[[str, str, int | None], Spec]
LOADERS: dict[str, Callable[[Any], Spec]] = {
    "model": load_model,
    "cluster": load_cluster,
    "profile": load_costs,
    "memory_model": load_memory_model,
    "calibration": load_calibration,
    "stack": load_stack,
}
OF_MODEL = tuple(
    name for name in ConfigurationRow.model_fields if name in {*ModelSpec.model_fields, *ExpertsSpec.model_fields}
)
"""Columns of a prediction that a model fills."""
FILES = (".yaml", ".yml", ".json", ".csv")
"""Ends of the names of files; anything else that is no folder is an entry of the catalog, which the version fixes."""


@dataclass(frozen=True)
class Point:
    """A point: kind, fields as written and what they stand for, an ``error``, and the problem's digest where needed."""

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
    if not isinstance(model.layers, int):
        raise DataError(f"model {model.name}: has layers of several shapes, expected equal ones for a prediction")
    values = model.model_dump(exclude_none=True)
    values |= values.get("experts", {})
    found = {name: values[name] for name in OF_MODEL if name in values}
    read = row_model(ConfigurationRow.parse({"gpu": "", "n_gpus": 1, "global_batch": 1, **found}, model.name))
    lost = [
        name
        for one, other in zip(read.blocks, model.blocks, strict=True)
        for name, value in other
        if value is not None and getattr(one, name) != value
        if name != "head_dim" or value * other.heads != other.hidden
    ]
    if lost or read.parameters() != model.parameters():
        named = f"{lost[0]} of its layers" if lost else "its embeddings or further tokens"
        raise DataError(f"model {model.name}: no column states {named}, expected kind plan, with fix and gap 1")
    return found


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
