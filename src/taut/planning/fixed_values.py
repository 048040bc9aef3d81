"""
Values that a user fixes: what each may be.

They are refused where no candidate can have them whatever else is chosen; ``taut.formulations.space`` filters by them.
"""

from collections.abc import Mapping
from math import gcd
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.costs import MODULES, OFFLOAD_MODULES, RECOMPUTE
from taut.data.stack import CONTEXT_KINDS, SCHEDULES
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.degrees import BlockShape
from taut.formulations.space import FIXABLE, SWITCHES

OF_ALL_STAGES = "recompute", "recompute_modules", "offload_modules"
NAMES = (*FIXABLE, *OF_ALL_STAGES)
"""What may be fixed: fields of a candidate, the recompute of every stage, and modules of it and of offload."""


def check_fixed(fixed: Mapping[str, object], global_batch: int, cluster: ClusterSpec) -> None:
    """
    Refuse fixed values that no candidate can have, whatever else is chosen.

    Raises ``FieldError``: of the field ``fix``: the name, its value, what was expected.
    """
    for name, value in fixed.items():
        if name not in NAMES:
            raise FieldError("fix", _shown(name, value), f"unknown name, expected {one_of(str(name), NAMES)}")
        if expected := _expected(name, value, global_batch, cluster.num_devices):
            raise FieldError("fix", _shown(name, value), f"expected {expected}")
    if {"dp_shard", "ep", "tp"} <= fixed.keys():
        _check_copies(fixed)


def _check_copies(fixed: Mapping[str, Any]) -> None:
    """Refuse copies that hold no whole group of expert ranks (``taut.formulations.degrees`` (3))."""
    shape = BlockShape(fixed["tp"], 1, fixed["ep"], fixed.get("etp", 1))
    if not shape.divides_copy(fixed["dp_shard"]):
        least = shape.experts // gcd(shape.experts, shape.tp)
        wanted = f"a multiple of {least}, whose devices hold whole groups of ep={shape.ep} beside tp={shape.tp}"
        raise FieldError("fix", f"dp_shard={fixed['dp_shard']}", f"expected {wanted}")


def _expected(name: str, value: object, global_batch: int, devices: int) -> str | None:
    """What a fixed value should be, or None where it may be what it is."""
    if name == "schedule":
        return None if value in SCHEDULES else one_of(str(value), SCHEDULES)
    if name == "recompute":
        return None if value in RECOMPUTE else one_of(str(value), RECOMPUTE)
    if name in ("recompute_modules", "offload_modules"):
        known: tuple[str, ...] = MODULES if name == "recompute_modules" else OFFLOAD_MODULES
        wrong = [part for part in str(value).split("+") if part not in known]
        return f"modules joined by +, {one_of(wrong[0], known)}" if wrong else None
    if name == "cp_comm":
        return None if value in CONTEXT_KINDS else one_of(str(value), CONTEXT_KINDS)
    if name in SWITCHES:
        return None if isinstance(value, bool) else "true or false"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name == "zero":
        return None if whole and value in (0, 1, 2, 3) else "0, 1, 2 or 3"
    if name == "vpp":
        return None if _divides(value, value) else "a number of chunks a device, from 1 on"
    if name in ("pp", "tp", "cp", "dp", "ep", "etp", "dp_shard") and not _divides(value, devices):
        return f"a divisor of the {devices} devices"
    if name in ("dp", "micro_batch") and not _divides(value, global_batch):
        return f"a divisor of the global batch {global_batch}"
    return None


def _shown(name: object, value: object) -> str:
    """``name=value``; text in quotes where a number or a truth value was expected."""
    text = ("schedule", "cp_comm", *OF_ALL_STAGES)
    return f"{name}={value}" if name in text or not isinstance(value, str) else f"{name}={value!r}"


def _divides(value: object, number: object) -> bool:
    if isinstance(value, bool) or not (isinstance(value, int) and isinstance(number, int)):
        return False
    return value > 0 and number % value == 0
