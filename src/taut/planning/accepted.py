"""What a field of a request accepts, as functions that pydantic calls before it looks at a value itself."""

import math
import operator
from collections.abc import Callable, Iterable

from pydantic import BeforeValidator

from taut.data.suggest import one_of


def whole(expected: str, least: int = 1, most: float = math.inf) -> Callable[[object], int]:
    """Accept a whole number within limits; numpy's are whole numbers as well, truth values are not."""

    def accept(value: object) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError(expected)
        number = operator.index(value)
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return accept


def number(expected: str, holds: Callable[[float], bool]) -> Callable[[object], float]:
    """Accept a number that holds; not a number holds nothing."""

    def accept(value: object) -> float:
        if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__") or not holds(float(value)):
            raise ValueError(expected)
        return float(value)

    return accept


def one_of_names(known: Iterable[str]) -> Callable[[object], str]:
    """Accept one of some names."""
    names = tuple(known)

    def accept(value: object) -> str:
        if value not in names:
            raise ValueError(f"expected {one_of(str(value), names)}")
        return str(value)

    return accept


def flag(value: object) -> bool:
    """Accept a truth value alone."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def optional(accept: Callable[[object], object]) -> BeforeValidator:
    """Accept None beside what a function accepts."""
    return BeforeValidator(lambda value: None if value is None else accept(value))
