"""
Names as files and callers give them: what they may be, and the name of what has none.

A name is shown, written into plans, and from there into files that others read, so it is a name and nothing else: a
letter or a digit first, then also blanks and the signs of ``PLAIN``, and no more than 200 of all. Quotes, ``$``,
braces, angle brackets and whatever cannot be printed are refused where the name enters.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

from taut.data.spec import Spec, shorten
from taut.errors import DataError

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
