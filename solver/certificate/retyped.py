"""Values of a document that stand in another form than the one they are read as, such as "8" or true for 8."""

from collections.abc import Iterator
from typing import Any


def retyped(path: str, stated: Any, read: Any) -> Iterator[str]:
    """
    Say where a text or a truth value stands for another kind of value.

    Parameters
    ----------
    path
        Name of the value for messages.
    stated
        What the document holds.
    read
        The same as it was read, as plain values; defaults may stand beside what is stated.
    """
    if isinstance(read, dict) and isinstance(stated, dict):
        for name in stated.keys() & read.keys():
            yield from retyped(f"{path}.{name}", stated[name], read[name])
    elif isinstance(read, list) and isinstance(stated, list) and len(read) == len(stated):
        for index, (a, b) in enumerate(zip(stated, read, strict=True)):
            yield from retyped(f"{path}.{index}", a, b)
    elif isinstance(stated, str | bool) and type(stated) is not type(read):
        yield f"{path} is {stated!r}, expected {read!r}"
