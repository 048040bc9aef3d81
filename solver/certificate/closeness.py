r"""
Whether two figures are the same but for rounding.

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|) \tag{1}
"""

import math
from collections.abc import Iterator
from typing import Any

TOLERANCE = 1e-9


def is_close(a: float, b: float) -> bool:
    """Whether figures are the same by (1)."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def is_close_or_small(wanted: float | None, stated: float | None, scale: float) -> bool:
    """Close, or both unknown, or a difference that is rounding on the scale of the objective."""
    wanted = None if wanted is not None and not math.isfinite(wanted) else wanted
    if wanted is None or stated is None:
        return wanted is stated
    return is_close(wanted, stated) or abs(wanted - stated) <= TOLERANCE * max(1.0, min(scale, 1.0))


def differences(path: str, wanted: Any, stated: Any) -> Iterator[str]:
    """Where two nested values differ beyond rounding."""
    if isinstance(wanted, dict):
        if not isinstance(stated, dict) or wanted.keys() != stated.keys():
            yield f"{path} does not hold {sorted(wanted)}"
            return
        for name, value in wanted.items():
            yield from differences(f"{path}.{name}", value, stated[name])
    elif isinstance(wanted, list):
        if not isinstance(stated, list) or len(wanted) != len(stated):
            yield f"{path} does not hold {len(wanted)} entries"
            return
        for index, value in enumerate(wanted):
            yield from differences(f"{path}.{index}", value, stated[index])
    elif wanted is None or stated is None:
        if wanted is not stated:
            yield f"{path} is {stated}, recomputed {wanted}"
    elif not (is_close(wanted, stated) or abs(wanted - stated) <= 1e-15):
        yield f"{path} is {stated}, recomputed {wanted}"


def finite(value: float | None) -> float | None:
    """The value, or None where it is unknown."""
    return value if value is not None and math.isfinite(value) else None
