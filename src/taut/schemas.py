"""
JSON Schema of the files that taut reads and writes, from the models that read them.

An editor checks a file against its schema while it is written: fields, types, ranges and fixed sets of values. What
fields say of each other (``hidden`` is needed beside a number of layers) is checked by taut alone. So a file that taut
accepts is valid, and a valid file may still be refused.

Files say less than the models: a file needs no ``name``, a cluster's ``device`` may be a catalog name, and its matrices
may be paths. Such forms are added here, each where the loader that knows it is named.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from taut.data.suggest import one_of
from taut.errors import FieldError

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: str, *, by_name: bool = False) -> Schema:
    """
    The JSON Schema of a kind of file, as plain values.

    Parameters
    ----------
    kind
        ``model``, ``cluster``, ``stack``, ``calibration``, ``memory-model``, ``jobs``, ``sweep`` or ``plan``.
    by_name
        Describe a file with several of them by name, as the catalog's files are.

    Raises
    ------
    FieldError
        If there is no such kind.

    Examples
    --------
    >>> schema("cluster")["properties"]["nodes"]["type"]
    'array'
    >>> schema("clusters")
    Traceback (most recent call last):
    taut.errors.FieldError: kind is clusters, expected cluster, did you mean ...
    """
    if kind not in KINDS:
        raise FieldError("kind", kind, f"expected {one_of(kind, KINDS)}")
    found = KINDS[kind]()
    if not by_name:
        return {"$schema": DIALECT, "title": f"taut: {kind}", **found}
    inner = {name: value for name, value in found.items() if name != "$defs"}
    each = {"type": "object", "additionalProperties": inner}
    return {"$schema": DIALECT, "title": f"taut: {kind}s by name", **each, "$defs": found.get("$defs", {})}


def _of_spec(kind: str) -> Schema:
    """The schema of a kind of file that is a spec as it stands."""
    from taut.data.calibration import Calibration
    from taut.data.jobs import JobTrace
    from taut.data.memory import MemoryModel
    from taut.data.model import ModelSpec
    from taut.data.stack import Stack

    specs = ModelSpec, Stack, Calibration, MemoryModel, JobTrace
    return _of_file(dict(zip(SPECS, specs, strict=True))[kind])


def _cluster() -> Schema:
    """A cluster file, with the forms that ``load_cluster``, ``NodeSpec.device`` and ``NetworkSpec.racks`` read."""
    from taut.data.catalog.devices import catalog_section
    from taut.data.cluster import ClusterSpec

    found = _of_file(ClusterSpec)
    fields, node = found["properties"], found["$defs"]["NodeSpec"]["properties"]
    names = {"type": "string", "examples": sorted(catalog_section("devices"))}
    node["device"] = {"anyOf": [names, node["device"]]}
    path = {"type": "string", "description": "Path of a CSV matrix, relative to the file"}
    for name in ("bandwidth_matrix", "latency_matrix"):
        fields[name]["anyOf"].insert(0, path)
    racks, rack = found["$defs"]["NetworkSpec"]["properties"]["racks"], found["$defs"]["RackSpec"]["properties"]
    rack["nodes"] = {"anyOf": [{"type": "string", "examples": ["0-7"]}, numbers := rack["nodes"]]}
    racks["items"] = {"anyOf": [racks["items"], numbers]}
    unit = found["$defs"]["MatrixSpec"]["properties"]["unit"]
    fields["bandwidth_unit"] = {**unit, "description": "Unit of a bandwidth_matrix that is a path"}
    return found


def _sweep() -> Schema:
    """A sweep file (``taut.sweeping.point``): a field has a value, or a list of values of which each makes points."""
    from taut.sweeping.point import KINDS as kinds
    from taut.sweeping.point import PREDICTED, REQUESTED

    value: Schema = {"type": ["string", "number", "boolean", "null", "array", "object"]}
    names = sorted({*PREDICTED, *REQUESTED, "kind"})
    block = {name: {"enum": [*kinds, None]} if name == "kind" else value for name in names}
    points = {
        "type": ["array", "null"],
        "items": {"type": "object", "properties": block, "additionalProperties": False},
    }
    fields = {**block, "name": {"type": "string"}, "points": points}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _plan() -> Schema:
    """A plan file, ``taut-plan/1``: what ``docs/reference/files.md`` says of it; further fields may follow."""
    seconds, unknown = {"type": "number", "minimum": 0}, {"type": ["number", "null"]}
    count, text = {"type": "integer", "minimum": 1}, {"type": "string"}
    pairs = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}}
    strategy = _object({"pp": count, "tp": count, "dp": count, "micro_batch": count, "schedule": text, "stages": pairs})
    candidate = _object({"strategy": {"type": "object"}, "state": text}, lower_bound_s=unknown, source=text)
    certificate = _object(
        {
            "objective_s": seconds,
            "lower_bound_s": unknown,
            "space": {"type": "object"},
            "candidates": {"type": "array", "items": candidate},
        },
        gap=unknown,
        communication_gap=unknown,
        verified_gap=unknown,
        lower_bound_no_margin_s=unknown,
    )
    predicted = _object(
        {"step_time_s": seconds, "breakdown_s": {"type": "object", "additionalProperties": {"type": "number"}}},
        **{name: {"type": "array", "items": {"type": "integer"}} for name in ("memory_bytes", "capacity_bytes")},
        tokens_per_s=unknown,
        mfu=unknown,
        hfu=unknown,
        busy_s=unknown,
    )
    devices = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}
    return _object(
        {
            "format": {"const": "taut-plan/1"},
            "status": {"enum": ["optimal", "feasible"]},
            "workload": {"type": "object"},
            "strategy": strategy,
            "placement": _object({"devices": devices}),
            "predicted": predicted,
            "certificate": certificate,
            "inputs": {"type": "object"},
        },
        provenance={"type": "object"},
    )


def _object(needed: Mapping[str, Schema], **others: Schema) -> Schema:
    """An object with some needed fields, others that it may have, and more that nothing is said of."""
    return {"type": "object", "properties": {**needed, **others}, "required": list(needed)}


def _of_file(spec: Any) -> Schema:
    """The schema of a spec's file. The file needs no ``name``: without one, the spec has the name of the file."""
    found: Schema = spec.model_json_schema()
    found["required"] = [name for name in found.get("required", []) if name != "name"]
    found.pop("title", None)
    return found


SPECS = "model", "stack", "calibration", "memory-model", "jobs"
ORDER = "model", "cluster", "stack", "calibration", "memory-model", "jobs", "sweep", "plan"
"""Kinds as messages list them."""
OTHERS: dict[str, Callable[[], Schema]] = {"cluster": _cluster, "sweep": _sweep, "plan": _plan}
KINDS = MappingProxyType({kind: OTHERS.get(kind) or partial(_of_spec, kind) for kind in ORDER})
