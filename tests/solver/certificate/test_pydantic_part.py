"""The part of pydantic in the checker's wheel takes what pydantic takes, with the same values, and refuses the rest."""

import ast
import json
import math
import random
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, RootModel

from taut.data.calibration import DEVICE_TERMS, Computation
from taut.data.catalog import builtin
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.layers.encoder import EncoderSpec
from taut.data.memory import MemoryModel, MemoryNetwork
from taut.data.model import ModelSpec
from taut.data.schedule import FORMAT as SCHEDULE
from taut.data.schedule import ScheduleSpec
from taut.formulations.space import StrategySpace
from taut.solver.certificate.document import FORMAT, MESHES, MeshDocument, PlanDocument
from tests.data.test_memory_network import TINY
from tests.support.alone import SCRIPT, alone, unpacked, written

READ = """
import json, sys
from functools import cache
from importlib import import_module
from pydantic import TypeAdapter, ValidationError
from taut.data.spec import Spec

def outcome(make):
    try:
        made = make()
        made = getattr(made, "root", made)
    except ValidationError as error:
        return ["refused", error.errors()[0]["type"]]
    return ["taken", made.model_dump(mode="json"), made.model_dump(mode="json", exclude_unset=True), hash_of(made)]

def hash_of(made):
    return made.digest() if isinstance(made, Spec) else sorted(made.model_fields_set)

adapter = cache(TypeAdapter)
found = []
for place, name, values in json.load(open(sys.argv[1])):
    kind = getattr(import_module(place), name)
    ways = [lambda: kind.model_validate(values, strict=True if issubclass(kind, Spec) else None)]
    if kind.model_config.get("strict"):
        ways.append(lambda: adapter(kind).validate_json(json.dumps(values)))
    found.append([outcome(way) for way in ways])
print(json.dumps(found))
"""
CATALOG = """
import json, sys
from taut.data.catalog import builtin
found = {kind: getattr(builtin, "catalog_" + kind)() for kind in sys.argv[1:]}
print(json.dumps({kind: {name: each.digest() for name, each in specs.items()} for kind, specs in found.items()}))
"""
VERDICTS = """
import json, sys
from pathlib import Path
from taut.errors import TautError
from taut.verification import checked

def verdict(path):
    try:
        return checked(path)[0].faults
    except TautError as error:
        return str(error)

print(json.dumps([verdict(Path(each)) for each in sys.argv[1:]]))
"""
KINDS = "models", "clusters", "calibrations", "operators", "floors", "stacks", "memory_models"
FORMATS: dict[type[BaseModel], str] = {PlanDocument: FORMAT, MeshDocument: MESHES, ScheduleSpec: SCHEDULE}
PLAIN: dict[type, list[Any]] = {int: [0, 1, 1, 2, 2, 4, 8], float: [0, 0.25, 0.5, 0.5, 1, 2.5], bool: [True, False]}
PLAIN |= {str: ["a", "bf16", "1-2", ""], types.NoneType: [None]}
INPUTS: dict[str, type[BaseModel]] = {"model": ModelSpec, "cluster": ClusterSpec, "costs": CostTable}
INPUTS |= {"memory_model": MemoryModel}
ENCODER: dict[str, Any] = {"layers": 1, "hidden": 32, "heads": 4, "ffn_hidden": 64, "patches": 8, "patch_dim": 12}
ENCODER |= {"merge": 4, "projector": [[128, 128], [128, 64]], "images": 0.5, "most_images": 2}
TERMS: dict[str, Any] = {"coefficients": dict.fromkeys(DEVICE_TERMS, 0.5), "name": "a100"}
WRONG: list[Any] = [None, True, False, 0, 1, -1, 3, 8, 2**53, 0.0, 0.5, 1.0, -0.5, 1e31, 1e-31, math.nan, math.inf]
WRONG += ["", "a", "8", "1.5", "true", "1f1b", "a\n", "full", [], [1], [0.5, 2], ["a"], {}, {"a": 1}, {"name": "a"}]


def models() -> list[type[BaseModel]]:
    """Models in the modules of the wheel, by their names."""
    listing = "import sys; sys.path.insert(0, sys.argv[1]); import build_wheel; print(sorted(build_wheel.reached()))"
    run = subprocess.run([sys.executable, "-c", listing, SCRIPT.parent], capture_output=True, text=True, check=True)
    held = [each for name in ast.literal_eval(run.stdout) for each in vars(import_module(name)).values()]
    kinds = {
        each for each in held if isinstance(each, type) and issubclass(each, BaseModel) and "[" not in each.__name__
    }
    ours = [each for each in kinds if each.__module__.startswith("taut.")]
    return sorted(ours, key=lambda each: (each.__module__, each.__name__))


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Annotations of a model or dataclass."""
    return get_type_hints(kind, include_extras=True)


def is_tree(kind: Any) -> bool:
    """Whether values of a type hold others of it."""
    return isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__name__ in str(hints_of(kind))


def value_of(kind: Any, draw: random.Random, depth: int = 0) -> Any:
    """A value of an annotation, mostly of its form."""
    if draw.random() < 0.01:
        return draw.choice(WRONG)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return value_of(inner[0], draw, depth)
    if origin is Literal:
        return draw.choice(inner)
    if origin in (Union, types.UnionType):
        ends = [each for each in inner if not is_tree(each)]
        return value_of(draw.choice(ends if depth > 4 else inner), draw, depth + 1)
    if origin in (list, tuple):
        many = draw.choice((0, 1, 1, 2)) if depth < 6 else 0
        kinds = inner if origin is tuple and inner[-1] is not ... else inner[:1] * many
        return [value_of(each, draw, depth + 1) for each in kinds]
    if origin is dict:
        return {
            str(value_of(inner[0], draw, depth + 1)): value_of(inner[1], draw, depth + 1)
            for _ in range(draw.randint(0, 2))
        }
    if kind in PLAIN:
        return draw.choice(PLAIN[kind])
    return draw.choice(WRONG) if kind is Any else mapping_of(kind, draw, depth + 1)


def mapping_of(kind: Any, draw: random.Random, depth: int = 0) -> Any:
    """Values by field of a model or dataclass, some of those that have a default, sometimes one too few or too many."""
    hints = hints_of(kind)
    if issubclass(kind, RootModel):
        return value_of(kind.model_fields["root"].annotation, draw, depth)
    if is_dataclass(kind):
        stated = {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(kind)}
    else:
        stated = {name: each.is_required() for name, each in kind.model_fields.items()}
    found = {
        name: value_of(hints[name], draw, depth)
        for name, needed in stated.items()
        if draw.random() < (0.995 if needed else 0.3)
    }
    return {**found, "more": 1} if draw.random() < 0.02 else found


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything inside plain values."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from places(each, (*path, name))


def changed(values: Any, draw: random.Random) -> Any:
    """The values with one of them replaced, taken out, or put beside."""
    found = json.loads(json.dumps(values))
    *path, last = draw.choice(list(places(found)))
    inside = found
    for name in path:
        inside = inside[name]
    if draw.random() < 0.15:
        del inside[last]
    elif draw.random() < 0.1 and isinstance(inside, dict):
        inside[draw.choice(("more", "name", "seq"))] = draw.choice(WRONG)
    else:
        inside[last] = draw.choice(WRONG)
    return found


def both(empty: Path, code: str, *words: str | Path) -> tuple[Any, Any]:
    """What code prints with pydantic, and in the wheel without it."""
    ours = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    path = empty / "taut_verify" / "sources"
    theirs = alone(empty, f"sys.path.insert(0, {str(path)!r})\n{code}", *words)
    assert theirs.returncode == 0, theirs.stderr
    return json.loads(ours.stdout), json.loads(theirs.stdout)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked beside numpy."""
    return unpacked(tmp_path_factory.mktemp("wheel"))


@pytest.mark.proof
def test_the_catalog_of_the_wheel_is_the_catalog(empty: Path) -> None:
    """Every entry has the same digest where it is read as JSON, without pydantic and PyYAML."""
    ours, theirs = both(empty, CATALOG, *KINDS)
    assert ours == theirs
    assert min(map(len, ours.values())) > 2


def drawn(folder: Path) -> Iterator[tuple[type[BaseModel], Any]]:
    """Drawn forms of all models, then right ones, and these changed in one place."""
    draw = random.Random(0)
    for kind in models():
        yield from ((kind, mapping_of(kind, draw)) for _ in range(40))
    seen = Counter[type[BaseModel]]()
    for kind, values in right(folder):
        seen[kind] += 1
        if seen[kind] > 10:
            continue
        yield kind, values
        yield from ((kind, changed(values, draw)) for _ in range(100 if kind in FORMATS else 8))


def right(folder: Path) -> Iterator[tuple[type[BaseModel], Any]]:
    """Written documents with their inputs, and the catalog's entries with the models inside them."""
    for path in written(folder):
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        yield next(each for each in FORMATS if FORMATS[each] == values["format"]), values
        for role, stated in values.get("inputs", {}).items():
            yield INPUTS[role], stated["spec"]
        if "space" in values["certificate"]:
            yield StrategySpace, values["certificate"]["space"]
    found = [each for kind in KINDS for each in getattr(builtin, f"catalog_{kind}")().values()]
    for each in [*found, MemoryNetwork.parse(TINY, "tiny"), EncoderSpec.parse(ENCODER, "images"), Computation(**TERMS)]:
        yield from ((type(one), one.model_dump(mode="json")) for one in nested(each))


def nested(value: Any) -> Iterator[BaseModel]:
    """Models in a value, itself among them."""
    if isinstance(value, BaseModel):
        yield value
        value = [each for _, each in value]
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from nested(each)


@pytest.mark.proof
def test_models_are_read_alike(empty: Path, tmp_path: Path) -> None:
    """What pydantic takes is taken, with equal values and digests; what it refuses is refused for the same reason."""
    cases = [(kind.__module__, kind.__name__, values) for kind, values in drawn(tmp_path)]
    (tmp_path / "cases").write_text(json.dumps(cases), encoding="utf-8")
    ours, theirs = both(empty, READ, tmp_path / "cases")
    different = [(case, *pair) for case, *pair in zip(cases, ours, theirs, strict=True) if pair[0] != pair[1]]
    assert different == []
    taken = {name for (_, name, _), found in zip(cases, ours, strict=True) if any(each[0] == "taken" for each in found)}
    assert {kind.__name__ for kind in models()} == taken
    assert sum(each[0] == "refused" for found in ours for each in found) > 1000


@pytest.mark.proof
def test_verdicts_are_the_same_word_for_word(empty: Path, tmp_path: Path) -> None:
    """Of documents that are changed in one place, half of them in what they are about, both say the same."""
    draw, paths = random.Random(1), list[Path]()
    for number, path in enumerate(written(tmp_path)):
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        for k in range(60):
            about = ("problem" if "problem" in values else draw.choice(("certificate", "inputs"))) if k % 2 else None
            forged = {**values, about: changed(values[about], draw)} if about else changed(values, draw)
            paths.append(tmp_path / f"forged-{number}-{k}.json")
            paths[-1].write_text(json.dumps(forged), encoding="utf-8")
    ours, theirs = both(empty, VERDICTS, *paths)
    assert ours == theirs
    assert len({str(each) for each in ours}) > 100
