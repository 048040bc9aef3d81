"""What is computed anew once it was not asked for lately, so that large spaces do not fill the memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import numpy as np

Value = TypeVar("Value")


class Recent:
    """
    Values by key, of those asked for last as many as have room, and at least one.

    Parameters
    ----------
    most_bytes
        Room for the arrays of all values.

    Examples
    --------
    >>> recent = Recent(16)
    >>> [int(recent.get(n, lambda: np.full(1, n * n))[0]) for n in (1, 2, 3)]
    [1, 4, 9]
    >>> 1 in recent, 3 in recent
    (False, True)
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not kept; values of other types have other keys."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
            return cast("Value", found[0])
        value = make()
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: Any) -> None:
        size = array_bytes(value)
        self._values[key] = value, size
        self._bytes += size
        while self._bytes > self._most and len(self._values) > 1:
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed


def array_bytes(value: object) -> int:
    """
    Bytes of the arrays in a value, its fields and entries; a view counts no more than it shows.

    Examples
    --------
    >>> array_bytes((np.zeros(3), [np.zeros(1), "text"])), array_bytes(np.broadcast_to(0.0, (4, 4)))
    (32, 8)
    """
    if isinstance(value, np.ndarray):
        base = value.base
        return min(value.nbytes, base.nbytes) if isinstance(base, np.ndarray) else value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(array_bytes(each) for each in value)
    if is_dataclass(value):
        return sum(array_bytes(getattr(value, field.name)) for field in fields(value))
    return 0
