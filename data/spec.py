"""
The common form of every input: frozen, closed to unknown fields, and explaining itself when it refuses.

What a file holds is read strictly, as JSON and YAML tell numbers, text and truth values apart: ``"8"`` and ``true`` are
no numbers. Cells of a CSV file are all text and are converted (``parse_cells``). Numbers are finite, and those above 0
lie between ``LEAST`` and ``MOST``, so that sums and quotients of them neither overflow nor lose their digits.

A name is shown, written into plans, and from there into files that others read, so it is a name and nothing else: a
letter or a digit first, then also blanks and the signs of ``PLAIN``, and no more than 200 of all. Quotes, ``$``,
braces, angle brackets and whatever cannot be printed are refused where the name enters.

Sizes of a model and its number of layers have limits of their own.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from taut.data.suggest import nearest
from taut.errors import DataError

LEAST, MOST = 1e-30, 1e30
"""No figure of a machine or a model is nearer to 0 or larger, in any unit; products of three still fit a double."""

_WORDS = {
    "extra_forbidden": "unknown field",
    "missing": "missing, expected a value",
    "finite_number": "expected a finite number",
}


def moderate(value: float) -> float:
    """A number that is 0 or of a size between ``LEAST`` and ``MOST``; ``ValueError`` for another."""
    if value and not LEAST <= abs(value) <= MOST:
        raise ValueError(f"is {value:g}, expected a size from {LEAST:g} to {MOST:g}")
    return value


Positive = Annotated[float, Field(gt=0), AfterValidator(moderate)]
"""A number above 0 within the sizes of ``moderate``."""
NotNegative = Annotated[float, Field(ge=0), AfterValidator(moderate)]
"""A number from 0 on within the sizes of ``moderate``."""
Whole = Annotated[int, Field(ge=0, lt=2**63)]
"""Counts and bytes; larger ones would not fit into an array."""


def as_tuple(values: object) -> object:
    """A list as a tuple, which JSON and YAML do not have; other values as they are."""
    return tuple(values) if isinstance(values, list) else values


class Spec(BaseModel):
    """Base of the input models: immutable, no unknown fields, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __copy__(self) -> Self:
        """Copy without what was cached for the original, which a changed copy must compute anew."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @classmethod
    def parse(cls, values: object, source: str) -> Self:
        """Build the spec from the plain values of a source, or refuse in one line, by ``DataError``, what is wrong."""
        return cls._parsed(values, source, strict=True)

    @classmethod
    def parse_cells(cls, cells: Mapping[str, object], source: str) -> Self:
        """Build the spec from the cells of a CSV file by column, where numbers are text."""
        return cls._parsed(cells, source, strict=False)

    @classmethod
    def _parsed(cls, values: object, source: str, *, strict: bool) -> Self:
        try:
            return cls.model_validate(values, strict=strict)
        except ValidationError as error:
            raise DataError(f"{source}: {first_complaint(error, cls)}") from None

    def digest(self) -> str:
        """SHA-256 of the spec's canonical JSON."""
        return digest(self.model_dump(mode="json"))


LATER = "later"
"""Marks fields that are written only where they differ from their default, so that older files keep their digest."""


class GrownSpec(Spec):
    """A spec with fields that are ``LATER`` than its first files."""

    @classmethod
    @cache
    def _later(cls) -> dict[str, Any]:
        """Defaults of these fields."""
        return {name: field.default for name, field in cls.model_fields.items() if LATER in field.metadata}

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        later = self._later()
        return {
            name: value
            for name, value in handler(self).items()
            if name not in later or later[name] not in (value, getattr(self, name))
        }


def digest(values: object) -> str:
    """SHA-256 of plain values written as JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def first_complaint(error: ValidationError, kind: type[BaseModel] | None = None) -> str:
    """One line for the first thing pydantic found of a model: field, value and what was expected."""
    first = error.errors(include_url=False)[0]
    field = ".".join(shorten_text(str(part)) for part in first["loc"])
    reason = _reason(first)
    if first["type"] == "extra_forbidden" and kind is not None:
        *path, wrong = first["loc"]
        near = nearest(str(wrong), sorted(_fields(kind, path)))
        reason += f", did you mean {near}?" if near else ""
    return f"{field}: {reason}" if field else reason


def _fields(annotation: Any, path: list[Any]) -> Iterator[str]:
    """Fields of the models that an annotation names at a path of field names, indices and keys."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not path:
            yield from annotation.model_fields
        elif path[0] in annotation.model_fields:
            yield from _fields(annotation.model_fields[path[0]].annotation, path[1:])
        return
    # A list or a mapping takes one step of the path, a choice between types none or its tag.
    for inner in get_args(annotation):
        yield from _fields(inner, path)
        if path:
            yield from _fields(inner, path[1:])


def _reason(complaint: Any) -> str:
    kind, message, value = complaint["type"], complaint["msg"], complaint.get("input")
    if kind in _WORDS:
        shown = "" if kind in ("missing", "extra_forbidden") else f" is {shorten(value)},"
        return f"{_WORDS[kind]}" if not shown else f"{shown[1:]} {_WORDS[kind]}"
    if kind == "value_error":
        return str(message).removeprefix("Value error, ")
    return f"is {shorten(value)}, {message[0].lower()}{message[1:].replace('input should be', 'expected')}".replace(
        "input should", "expected to"
    )


def shorten(value: object) -> str:
    """``repr`` of a value for a one-line message, cut when long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Python writes no number of more than some thousand digits, and nothing nested more deeply than its stack.
        text = f"a {type(value).__name__} too large to show"
    return shorten_text(text)


def shorten_text(text: str, limit: int = 60) -> str:
    """Text in one line, cut when long."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 3] + "..."


def cell_counts(value: object) -> object:
    """Whole numbers with blanks or bars between them, as a cell holds them."""
    words = value.replace("|", " ").split() if isinstance(value, str) else value
    if isinstance(words, list) and all(isinstance(word, str) and word.isdecimal() for word in words):
        return [int(word) for word in words]
    return words


PLAIN = re.compile(r"\w(?:[\w .:+/()\[\],=#@*%~-]{0,198}[^\s])?")
_OTHER = re.compile(r"[^\w .:+/()\[\],=#@*%~-]")
NAMED = ("name", "kind", "device", "stack")
"""Fields that hold a name; only the first two always do."""
NEEDED = NAMED[:2]

AnySpec = TypeVar("AnySpec", bound=Spec)


def check_name(text: str, where: str) -> str:
    """The name itself; ``where`` it stands, for messages. Raises ``DataError`` if it is no name."""
    if not PLAIN.fullmatch(text):
        raise DataError(
            f"{where}: is {shorten(text)}, expected a name of 1 to 200 letters, digits, blanks or signs such as . - _ :"
        )
    return text


def name_of_file(stem: str) -> str:
    """A name for what is read from a file without one: the file's own, other signs replaced by ``_``."""
    found = _OTHER.sub("_", stem).strip().lstrip(".:+/()[],=#@*%~-")[:200].rstrip()
    return found or "unnamed"


def with_names(spec: AnySpec, source: str) -> AnySpec:
    """The spec itself, all of whose names are names. ``source``: the file. Raises ``DataError`` if one is not."""
    seen: set[str] = set()
    for path, name in _names(spec, ""):
        if name not in seen:
            check_name(name, f"{source}: {path}")
            seen.add(name)
    return spec


def _names(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Names of a spec and of those in it, with the place of each."""
    if isinstance(value, Spec):
        for field in type(value).model_fields:
            inner, place = getattr(value, field), f"{path}.{field}" if path else field
            if isinstance(inner, str):
                if field in NAMED and (inner or field in NEEDED):
                    yield place, inner
            elif inner is not None:
                yield from _names(inner, place)
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Spec):
        for number, each in enumerate(value):
            yield from _names(each, f"{path}.{number}")


MOST_LAYERS = 2048
MOST_PARAMETERS = 10**15
MOST_ENTRIES = 10**17
"""Activations and scores of a micro-batch: ten bytes of each fit a whole number of 64 bits."""
Count = Annotated[int, Field(gt=0, le=10_000_000, strict=True)]
"""A size: channels, heads, tokens, experts."""
LayerCount = Annotated[int, Field(gt=0, le=MOST_LAYERS, strict=True)]
"""A number of layers."""
