"""
What a sweep is asked for: fields with lists of values, which expand into points.

With fields f = 1..n in the order in which they are written and the values V_f of each, the points of a block are

(1) V_1 x ... x V_n, the last field changing first.

A list stands for several values, in ``fix`` as well; a single value is a list of one. What stands at the top holds for
every block of ``points``, unless the block says otherwise (``null`` takes a field back), and is the only block where
there are none.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ConfigDict

from taut.data.read import read_yaml
from taut.data.samples import ConfigurationRow
from taut.data.spec import Spec, shorten
from taut.data.suggest import one_of
from taut.errors import DataError
from taut.planning.request import PlanRequest

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
    """Kind and fields of every point, (1)."""
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
